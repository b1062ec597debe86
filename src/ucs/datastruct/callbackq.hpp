// SPDX-License-Identifier: BSD-3-Clause
// The implementation of ucs_callbackq_t: all callbacks beyond the fast array, and requests of other
// threads.
//
//   fast_elems   | fast 0 | ... | fast n-1 | NULL ...
//                                  |
//                                  v  one entry is run_slow() while there is work for it
//   slow_        callbacks without FAST, oneshot ones, and those for which the array had no room
//   arrivals_    callbacks added since run_slow() last looked; it moves them to slow_
//
// 1. The lock guards every change of the array, arrivals_ and the identifiers. No callback runs
// under it.
// 2. The array changes by the dispatching thread only, with one exception: another thread may
// append run_slow() at its
//    end, or replace a callback by one that does nothing. kFastMax leaves a place for run_slow() at
//    any time.
// 3. slow_ belongs to the dispatching thread. A removed element has no callback and is swept out
// when no run_slow() is
//    on the stack, so that callbacks may add, remove and even dispatch.
// 4. An identifier is used again only after its element was swept out.
#pragma once

#include <ucs/datastruct/callbackq.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "ucs/memory/reserve.hpp"

namespace tagwire::ucs {

class CallbackQueue {
  public:
    explicit CallbackQueue(ucs_callbackq_t& c_queue);
    ~CallbackQueue();
    CallbackQueue(const CallbackQueue&) = delete;
    CallbackQueue& operator=(const CallbackQueue&) = delete;

    /// Dispatching thread. FAST gets a place in the array while there is room.
    int add(ucs_callback_t callback, void* arg, unsigned flags);
    /// Dispatching thread. The callback does not run again, not even in the dispatch under way.
    void remove(int id);
    /// Any thread.
    int add_safe(ucs_callback_t callback, void* arg, unsigned flags);
    /// Any thread. Once another thread's call returns, the callback may be running but will not be
    /// called again.
    void remove_safe(int id);
    /// Dispatching thread. `predicate` may use the queue.
    void remove_if(ucs_callbackq_predicate_t predicate, void* arg);

    std::size_t size() const;

  private:
    static constexpr unsigned kFastMax = UCS_CALLBACKQ_FAST_COUNT - 1;

    struct SlowElement : FromReserve {
        std::atomic<ucs_callback_t> callback;
        void* arg;
        unsigned flags;
        int id;
    };
    using SlowElements = ReserveVector<std::unique_ptr<SlowElement>>;

    static unsigned run_slow_entry(void* self);
    unsigned run_slow();
    void take_arrivals();
    void sweep();

    int add_slow(ucs_callback_t callback, void* arg, unsigned flags);
    void append_fast(ucs_callback_t callback, void* arg, unsigned flags, int id);
    void erase_fast(unsigned index);
    int find_fast(int id) const;
    SlowElement* find_slow(int id) const;
    void want_run_slow();
    int take_id();

    ucs_callbackq_t& c_queue_;
    mutable std::mutex lock_;
    unsigned fast_count_ = 0;  // run_slow() included
    SlowElements arrivals_;
    ReserveVector<int> free_ids_;
    int next_id_ = 0;
    std::atomic<bool> changed_{false};  // arrivals to take or elements to sweep
    SlowElements slow_;
    unsigned depth_ = 0;  // of run_slow() on the stack
};

/// The callbacks that are in the queue now. Any thread.
std::size_t callback_count(const ucs_callbackq_t& c_queue);

}  // namespace tagwire::ucs
