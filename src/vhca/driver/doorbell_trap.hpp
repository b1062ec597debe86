// SPDX-License-Identifier: BSD-3-Clause
// Tells of the first store to a doorbell page since they were taken away.
//
// The pages belong to a memfd, which the program maps. Punching a hole takes them out of all its
// mappings; the next store faults, and userfaultfd tells of it while the storing thread waits:
//
//     close()                 hole; a store makes fd() readable, its thread waits
//     open()                  the thread goes on: an empty page is there
//
// 1. The thread that sleeps must have looked at the records between close() and sleeping.
// 2. mmap(2) is not seen. A doorbell can only be rung after a command that made a queue of it, so
//    each command says note_command(), and the next close() looks for mappings.
// 3. A page that is mapped twice may hold up a thread across open() for a moment: fd() is readable
//    then, and the next open() or attend() lets it go on.
// 4. Only stores of programs wait. Those that the kernel does for a system call fail with EFAULT,
//    and a child of fork(2) has mappings that are not watched.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ucs/sys/fd.hpp"

namespace tagwire::vhca::driver {

/// Under the engine's lock, but for fd() and note_command().
class DoorbellTrap {
  public:
    DoorbellTrap() = default;
    DoorbellTrap(const DoorbellTrap&) = delete;
    DoorbellTrap& operator=(const DoorbellTrap&) = delete;
    ~DoorbellTrap();

    /// Doorbells of this memfd, `bytes` from its start, are watched until forget(). Without
    /// userfaultfd, or room to map it: nothing, and fd() is -1.
    void watch(int memfd, std::size_t bytes);
    void forget(int memfd);

    /// -1: this kernel, or its policy, has no userfaultfd for us; or nothing was ever watched.
    [[nodiscard]] int fd() const {
        // SYNC vhca_trap_fd: pairs with watch()
        return shown_fd_.load(std::memory_order_acquire);
    }
    /// Every store from now on makes fd() readable.
    void close();
    /// Lets those who wait go on. Stores are not noticed any more.
    void open();
    /// As open() for those who wait already; for now and then while it is open. One system call.
    void attend();
    [[nodiscard]] bool is_closed() const { return is_closed_; }

    /// Before each command of the process, whatever it is.
    static void note_command() {
        // SYNC vhca_mappings: pairs with find_mappings()
        commands_.fetch_add(1, std::memory_order_release);
    }

  private:
    struct Range {
        std::uint64_t begin = 0, end = 0;
    };
    struct Watched {
        int memfd = -1;
        std::uint64_t device = 0, inode = 0;
        std::byte* own = nullptr;  // a mapping of ours, for holes; no page of it is touched
        std::size_t bytes = 0;
        std::vector<Range> ranges;  // registered
    };
    bool make();
    void give_up();
    bool find_mappings();
    void read_line(const char* begin, const char* end);
    void add_mapping(const Range& range, Watched* watched);
    void fill(const Range& range);
    void leave(const Range& range);
    void take_messages();

    static inline std::atomic<std::uint64_t> commands_{1};

    ucs::UniqueFd fd_;
    std::atomic<int> shown_fd_{-1};
    bool is_closed_ = false;
    bool was_tried_ = false;
    std::uint64_t seen_commands_ = 0;
    std::vector<Watched> watched_;
    std::vector<char> maps_;
};

}  // namespace tagwire::vhca::driver
