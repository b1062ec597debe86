// SPDX-License-Identifier: BSD-3-Clause
// Tells of the first store to a doorbell page since they were taken away.
//
// The pages belong to a memfd, which the program maps. Punching a hole takes them out of all its
// mappings; the next store faults, and userfaultfd tells of it while the storing thread waits:
//
//     close()                 hole; a store makes fd() readable, its thread waits
//     open()                  the thread goes on: an empty page is there
//
// The thread that sleeps must have looked at the records between close() and sleeping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ucs/sys/fd.hpp"

namespace tagwire::vhca::driver {

class DoorbellTrap {
  public:
    /// Doorbells of this memfd, `bytes` from its start, are watched: in every mapping that there is
    /// (those of later mmap(2) calls are found by the next close()). Without userfaultfd: nothing,
    /// and is_armed() stays false.
    void watch(int memfd, std::size_t bytes);
    void forget(int memfd);

    /// -1: this kernel, or its policy, has no userfaultfd for us.
    [[nodiscard]] int fd() const { return fd_.get(); }
    /// Every store from now on makes fd() readable.
    void close();
    /// Lets those who wait go on. Stores are not noticed any more.
    void open();
    [[nodiscard]] bool is_closed() const { return is_closed_; }

  private:
    struct Range {
        std::uint64_t begin, end;
    };
    struct Watched {
        int memfd;
        std::size_t bytes;
        std::uint64_t inode;
        std::vector<Range> ranges;  // registered
    };
    void find_mappings();

    ucs::UniqueFd fd_;
    bool is_closed_ = false;
    bool was_tried_ = false;
    std::vector<Watched> watched_;
};

}  // namespace tagwire::vhca::driver
