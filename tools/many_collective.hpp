// SPDX-License-Identifier: BSD-3-Clause
// barrier, allreduce and tag_exchange, between the ranks of a job: the first two in the simplest of
// the usual ways.
//
// 1. barrier: in round k each rank sends to the one 2^k behind it, and waits for that before it
//    (dissemination).
// 2. allreduce, a sum of doubles: ranks beyond a power of two give theirs to a partner first, the
//    others exchange theirs with partners at distance 1, 2, 4 ... (recursive doubling).
// 3. tag_exchange: each sends to the rank at some distance behind it, and receives from the one at
//    that distance before it, both at once; the distance is another one each time.
#pragma once

#include <vector>

#include "tools/many_rank.hpp"
#include "tools/stats.hpp"

namespace tagwire::tools {

/// The results of a run that a rank sends to the others.
struct CollectiveShare {
    double all_ns = 0;
    LatencySummary latency_ns{};  // of one operation
    std::uint64_t validated = 0;
    std::uint64_t errors = 0;
};

class ManyCollective {
  public:
    /// `job`: its size is a multiple of that of a double.
    ManyCollective(ManyRank& rank, const Job& job);
    ManyCollective(const ManyCollective&) = delete;
    ManyCollective& operator=(const ManyCollective&) = delete;

    /// All ranks call it together.
    CollectiveShare run(std::uint64_t count);

  private:
    void barrier();
    void allreduce();
    void exchange_with_next();
    void run_one();
    void add_received();
    /// To one rank and from one; their numbers may be the same.
    void exchange(std::size_t to, std::span<const double> out, std::size_t from,
                  std::span<double> in);
    void send(std::size_t to, std::span<const double> out, msg::Request* request);
    void receive(std::size_t from, std::span<double> in, msg::Request* request);
    void finish(std::size_t peer, msg::Request* request);
    double own(std::size_t i, std::size_t rank) const;
    void validate();
    [[nodiscard]] bool is_as_expected(std::size_t i) const;

    ManyRank& rank_;
    const Job job_;
    const std::size_t power_;  // the greatest power of two that is no more than there are ranks
    std::vector<double> mine_, sum_, received_;
    std::size_t distance_ = 1;  // of the next exchange
    std::size_t source_ = 0;    // of the last one
    std::uint64_t validated_ = 0;
    std::uint64_t errors_ = 0;
};

}  // namespace tagwire::tools
