// SPDX-License-Identifier: BSD-3-Clause
// Tells of the first store to a doorbell page since it was taken away.
//
// The pages belong to a memfd, which the program maps. Punching a hole takes one out of all its
// mappings; the next store faults, and userfaultfd tells of it while the storing thread waits:
//
//     close()                 holes; a store makes fd() readable, its thread waits
//     attend()                the thread goes on: an empty page is there until the next close()
//
// 1. The thread that sleeps must have looked at the records between close() and sleeping.
// 2. mmap(2) is not seen. A doorbell can only be rung after a command that made a queue of it, so
//    each command says note_command(), and the next close() looks for mappings.
// 3. A page is put back for whoever stores to it, and for nobody else. So stores to other pages
//    wait, until attend(), also while the device is awake.
// 4. A thread that goes on stores once more. A page is not taken away before it did: on a
//    processor that it shares with ours it would find no page again, without end. close() leaves
//    such a page, and says so.
// 5. Only stores of programs wait. Those that the kernel does for a system call fail with EFAULT,
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

    static constexpr std::size_t kNoPage = SIZE_MAX;

    /// Doorbells of this memfd, `bytes` from its start, are watched until unwatch(). The page at
    /// `kept`, the only one that the file may have by now, is no doorbell and stays. Without
    /// userfaultfd, or room to map it: nothing, and fd() is -1.
    void watch(int memfd, std::size_t bytes, std::size_t kept = kNoPage);
    void unwatch(int memfd);

    /// -1: this kernel, or its policy, has no userfaultfd for us; or nothing was ever watched.
    [[nodiscard]] int fd() const {
        // SYNC vhca_trap_fd: pairs with watch()
        return shown_fd_.load(std::memory_order_acquire);
    }
    /// Stores from now on make fd() readable. False: all but those to the page of a thread that was
    /// let go and did not store yet; to be called again soon. Enough calls close that, too.
    bool close();
    /// Lets those who wait go on. Stores to their pages are not noticed any more. True: somebody
    /// waited. One system call when nobody does.
    bool attend();

    /// Before each command of the process, whatever it is.
    static void note_command() {
        // SYNC vhca_mappings: pairs with find_mappings()
        commands_.fetch_add(1, std::memory_order_release);
    }

  private:
    struct Range {
        std::uint64_t begin = 0, end = 0;
        std::uint64_t offset = 0;  // of its begin in the file
    };
    struct OpenPage {
        std::uint64_t offset = 0;  // in the file
        bool was_stored_to = false;
    };
    struct Watched {
        int memfd = -1;
        std::uint64_t device = 0, inode = 0;
        std::byte* own = nullptr;  // a mapping of ours, for holes; no page of it is touched
        std::size_t bytes = 0;
        std::size_t kept = kNoPage;
        std::int64_t kept_blocks = 0;
        std::vector<Range> ranges;  // registered
        std::vector<OpenPage> open_pages;
    };
    bool make();
    void disable();
    bool find_mappings(bool* has_changed_p);
    void read_line(const char* begin, const char* end);
    void add_mapping(const Range& range, Watched* watched);
    static bool punch(const Watched& watched, std::uint64_t offset, std::size_t bytes);
    bool close_pages(Watched* watched);
    static bool close_all(Watched* watched);
    [[nodiscard]] bool is_settled(Watched* watched) const;
    void note_open(std::uint64_t address);
    void fill(std::uint64_t page);
    void leave(std::uint64_t begin, std::uint64_t end);

    static inline std::atomic<std::uint64_t> commands_{1};

    ucs::UniqueFd fd_, maps_fd_;
    std::atomic<int> shown_fd_{-1};
    bool was_tried_ = false;
    unsigned unsettled_ = 0;  // calls of close() in a row that left a page
    std::uint64_t seen_commands_ = 0;
    std::vector<Watched> watched_;
    std::vector<char> maps_;
};

}  // namespace tagwire::vhca::driver
