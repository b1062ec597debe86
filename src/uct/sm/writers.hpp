// SPDX-License-Identifier: BSD-3-Clause
// Words that tell the owner of memory who writes to it at this moment, so that it can wait for that
// when a key has ended (key_guard.hpp).
//
// Behind its generations each arena has kWriters words: one for each connection that leads to its
// owner, whose hello names the word, and the first for all those that found no other. Nobody but
// the writer changes a word of its own while it lives:
//
//     writer                                    owner
//     word = kWriting                           generation = next even
//     -- compiler barrier --                    -- membarrier --
//     generation is the key's? it writes        word is kWriting? it waits
//     word = kIdle                              the memory is the program's again
//
// The barrier is the owner's, as for wake-ups (ADR 3), or each writer has a fence. A word that its
// connection has left is given again when the writer has said kGone, or is dead: it may be slower
// to see the end of the connection than the owner.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "ucs/memory/reserve.hpp"
#include "ucs/sys/process.hpp"
#include "uct/sm/fences.hpp"
#include "uct/sm/key_guard.hpp"
#include "uct/sm/layout.hpp"

namespace tagwire::sm {

enum WriterState : std::uint32_t { kIdle = 0, kWriting = 1, kGone = 2 };

template <template <class> class Atom = std::atomic>
struct alignas(kNoFalseSharing) WriterWord {
    Atom<std::uint32_t> state;  // WriterState; of the shared one, how many write
};

constexpr std::uint32_t kSharedWriter = 0;
constexpr std::uint32_t kWriters = 1024;
constexpr std::size_t kWritersBytes = kWriters * sizeof(WriterWord<>);
/// The start of each arena.
constexpr std::size_t kTablesBytes = kGenerationsBytes + kWritersBytes;

/// A writer's word.
template <template <class> class Atom = std::atomic, class Fences = HostFences>
struct Writer {
    WriterWord<Atom>* word = nullptr;  // nullptr: there is none yet
    bool is_shared = false;
    Fences fences{};

    /// Before the key is looked at.
    void begin() const {
        if (is_shared) [[unlikely]] {
            // SYNC sm_writer: pairs with the owner's barrier, then its look.
            word->state.fetch_add(1, std::memory_order_seq_cst);
            return;
        }
        // SYNC sm_writer: seen by the owner's look, or we see its new generation.
        word->state.store(kWriting, std::memory_order_relaxed);
        fences.after_publish();
    }
    /// After the last write.
    void end() const {
        // SYNC sm_writer: who sees this word idle also sees what was written.
        if (is_shared) [[unlikely]]
            word->state.fetch_sub(1, std::memory_order_release);
        else
            word->state.store(kIdle, std::memory_order_release);
    }
    /// There is no connection any more.
    void leave() {
        // SYNC sm_writer: as of end().
        if (word != nullptr && !is_shared)
            word->state.store(kGone, std::memory_order_release);
        word = nullptr;
    }
};

/// A write of ours, or several.
template <class Owner>
class Writing {
  public:
    explicit Writing(const Owner& writer) : writer_(writer) { writer_.begin(); }
    ~Writing() { writer_.end(); }
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;

  private:
    const Owner& writer_;
};

/// Something is being written; of the owner, behind its barrier.
template <template <class> class Atom>
bool is_writing(const WriterWord<Atom>& word, bool is_shared) {
    // SYNC sm_writer: what has been written is there when it is idle.
    const std::uint32_t state = word.state.load(std::memory_order_acquire);
    return is_shared ? state != 0 : state == kWriting;
}

/// The words of an owner. Any thread.
class Writers {
  public:
    /// `words`: kWriters of them, all idle.
    explicit Writers(WriterWord<>* words) : words_(words) {}
    Writers(const Writers&) = delete;
    Writers& operator=(const Writers&) = delete;

    /// The index of a word for a connection to process `pid` (0: it cannot be seen from here);
    /// kSharedWriter: all others are taken, or there is no memory for more.
    std::uint32_t give(pid_t pid);
    /// The connection has ended at this side.
    void take_back(std::uint32_t index);
    /// Returns when all that was being written when a generation changed is there. A writer that is
    /// stopped is waited for kPatienceNs; the log says that.
    void wait();

    [[nodiscard]] WriterWord<>* at(std::uint32_t index) const { return words_ + index; }

  private:
    struct Given {
        pid_t pid = 0;
        bool is_connected = false;
    };

    static constexpr std::uint64_t kPatienceNs = 2'000'000'000;

    bool may_give_again(std::uint32_t index) const;
    void wait_for(std::uint32_t index);

    WriterWord<>* const words_;
    std::mutex mutex_;
    ucs::ReserveVector<Given> given_;  // [i]: the word i + 1
};

}  // namespace tagwire::sm
