// SPDX-License-Identifier: BSD-3-Clause
// The completion queue of the API (tw_cq_h): operations of any workers of a context end there, and
// any threads take them. queue_protocol.hpp has the rules.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "protocols/api/tw_def.h"
#include "protocols/completion/queue_protocol.hpp"
#include "protocols/completion/users.hpp"
#include "ucs/sys/futex.hpp"
#include "ucs/sys/spin_lock.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name of the C API
struct tw_cq {};

namespace tagwire::proto {

class Context;
struct Request;
struct KeptCompletion;

/// The fields of a completion; the room behind them is the program's.
inline constexpr std::size_t kCompletionBytes = offsetof(tw_completion_t, reserved);

struct CompletionSlot {
    std::byte bytes[kCompletionBytes];

    void put(const tw_completion_t& done) { std::memcpy(bytes, &done, sizeof bytes); }
    void get(tw_completion_t* done) const { std::memcpy(done, bytes, sizeof bytes); }
};

struct CompletionEnv {
    template <class T>
    using Atom = std::atomic<T>;
    using Item = tw_completion_t;
    using Slot = CompletionSlot;
    using Kept = KeptCompletion;
    using Lock = ucs::SpinLock;
    using Word = ucs::FutexWord;
    // SYNC cq_sleep: as queue_protocol.hpp says.
    static constexpr std::memory_order kPublish = std::memory_order_seq_cst;
    static constexpr bool kPassesOn = true;
    static constexpr bool kIsBehind = true;
};

/// A completion that found the queue full: part of its request, which stays with it.
struct KeptCompletion {
    KeptCompletion* next;
    KeptReturns<CompletionEnv>* home;  // of the worker
    Request* request;
    const tw_completion_t* done;
    bool is_foreign;  // memory of the program, which has it again with the completion

    const tw_completion_t& item() const { return *done; }
    void give_back() {
        if (!is_foreign)
            home->push(*this);
    }
};

class CompletionQueue : public tw_cq {
  public:
    CompletionQueue(Context& context, std::size_t capacity)
        : context_(context), protocol_(capacity) {}

    Context& context() const { return context_; }
    /// An operation names it; it reports its end, or leaves.
    Users& users() { return users_; }
    /// The end of an operation that names the queue. True: it was copied. False: `kept`, which has
    /// it, is the queue's until give_back().
    bool push(const tw_completion_t& done, KeptCompletion& kept) {
        users_.begin_report();
        const bool is_copied = protocol_.push(done, kept);
        users_.end();
        return is_copied;
    }
    unsigned poll(tw_completion_t* completions, unsigned max) {
        return protocol_.poll(completions, max);
    }
    CqWait wait_until(tw_completion_t* completions, unsigned max, std::uint64_t end_ns,
                      unsigned* taken_p) {
        return protocol_.wait_until(completions, max, end_ns, taken_p);
    }
    void close() { protocol_.close(); }
    bool has_sleepers() const { return protocol_.has_sleepers(); }
    /// A worker goes: what it had in the queue beyond the capacity goes with it.
    void drop_kept_of(const KeptReturns<CompletionEnv>& home) {
        protocol_.drop_kept([&](KeptCompletion& kept) {
            if (kept.home != &home)
                return false;
            kept.give_back();
            return true;
        });
    }
    /// The queue goes: the requests are their workers' again.
    void drop_kept() {
        protocol_.drop_kept([](KeptCompletion& kept) {
            kept.give_back();
            return true;
        });
    }

  private:
    Context& context_;
    Users users_;
    QueueProtocol<CompletionEnv> protocol_;
};

inline CompletionQueue& queue_of(tw_cq_h handle) {
    return *static_cast<CompletionQueue*>(handle);
}

}  // namespace tagwire::proto
