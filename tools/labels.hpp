// SPDX-License-Identifier: BSD-3-Clause
// Output of ranks, line by line, with the number of the rank before each: "[2] ready". One thread
// uses it.
#pragma once

#include <poll.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tools/local_ranks.hpp"

namespace tagwire::tools {

class Labels {
  public:
    Labels() = default;
    ~Labels();
    Labels(const Labels&) = delete;
    Labels& operator=(const Labels&) = delete;

    /// Makes the pipes of a rank, whose ends for writing the caller closes. Throws Failure.
    RankOutput open(std::uint64_t rank);

    /// The pipes that may have something, in the order in which forward() expects them.
    void add_to(std::vector<pollfd>* polled) const;
    /// `polled`: filled by add_to(), perhaps behind others.
    void forward(const std::vector<pollfd>& polled);
    /// Prints what is there, and ends lines that have no end yet.
    void drain();

  private:
    struct Stream {
        std::size_t rank;
        int target;  // standard output or error
        int reader = -1;
        bool is_within_line = false;  // a part of the line is printed
        std::string line;
    };

    /// False: nothing more for now.
    static bool read_some(Stream* stream);
    int add(std::uint64_t rank, int target);
    static void print(Stream* stream, std::size_t length);

    std::vector<Stream> streams_;
};

}  // namespace tagwire::tools
