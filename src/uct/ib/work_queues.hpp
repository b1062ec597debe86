// SPDX-License-Identifier: BSD-3-Clause
// The work queues of an interface and the completion queue that they share: places in it, which
// requests ask for a completion, and which queues have requests under way.
//
// Threads: owner of the interface.
// Invariants
//  (1) Requests under way + free places = depth of the completion queue: each may fail, and then
//      has a completion.
//  (2) A queue with requests under way is in the list of busy ones.
//  (3) signals_out() is never too small: while it is 0 only failures complete.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ucs/datastruct/queue.hpp"
#include "ucs/memory/reserve.hpp"
#include "uct/ib/completion_queue.hpp"
#include "uct/ib/ep_table.hpp"
#include "uct/ib/work_queue.hpp"

namespace tagwire::ib {

class QueueSource;

class WorkQueues {
  public:
    /// `has_work` is set when signal_all() has something to do.
    explicit WorkQueues(bool& has_work) : has_work_(has_work) {}

    /// `places` for requests, of which `reserve` only for those that bring completions; `spare`
    /// entries more.
    ucs_status_t open(const IbMd& md, std::uint32_t places, std::uint32_t reserve, unsigned spare,
                      ibv_comp_channel* channel, void* context);
    [[nodiscard]] CompletionQueue& cq() { return cq_; }

    // ---- Queues, by the upper half of the wr_ids of their requests
    void add(WorkQueue& queue);
    void remove(WorkQueue& queue);
    /// The queue of a completion; null when it is gone.
    [[nodiscard]] WorkQueue* find(std::uint32_t id) const {
        const std::uint32_t index = id & kIndexMask;
        WorkQueue* queue = index < queues_.size() ? queues_[index] : nullptr;
        return queue != nullptr && queue->id == id ? queue : nullptr;
    }
    void drop_idle();
    [[nodiscard]] std::size_t busy() const { return busy_.size(); }
    [[nodiscard]] WorkQueue* first_busy() const { return busy_.front(); }
    [[nodiscard]] WorkQueue* next_busy(WorkQueue& queue) const { return busy_.next(queue); }

    // ---- Places
    [[nodiscard]] bool has_places(unsigned requests) const {
        return free_ >= static_cast<std::int32_t>(requests);
    }
    /// A flush may take the last one.
    [[nodiscard]] bool has_last_place() const { return free_ + reserve_ > 0; }
    /// For `count` requests of `queue`, which has room for them. The flags that they get: the fence
    /// belongs to the first, the signal to the last.
    unsigned take_places(WorkQueue& queue, unsigned count, bool signal) {
        unsigned flags = std::exchange(queue.fence_flag, 0U);
        queue.unsignaled += count;
        queue.free -= count;
        free_ -= static_cast<std::int32_t>(count);
        if (signal || queue.unsignaled >= signal_every_) {
            if ((queue.unsignaled & WorkQueue::kUnlisted) != 0) {
                queue.unsignaled &= ~WorkQueue::kUnlisted;
                busy_.push_back(queue);
                if (!signal && queue.unsignaled < signal_every_)
                    return flags;
            }
            flags |= IBV_SEND_SIGNALED;
            queue.unsignaled = 0;
            ++signals_out_;
        }
        return flags;
    }
    /// The device did not take the chain that begins with `bad`.
    void refused(WorkQueue& queue, const ibv_send_wr* bad);
    /// `count` requests are not under way any more.
    void give_back(std::uint32_t count) { free_ += static_cast<std::int32_t>(count); }
    /// No completion of the queue is looked at any more.
    void abandon(WorkQueue& queue);

    // ---- Completions that are asked for
    void set_signal_every(std::uint32_t requests) { signal_every_ = requests; }
    [[nodiscard]] std::uint32_t signals_out() const { return signals_out_; }
    /// One was asked for where a request is posted again.
    void signal_is_due() { ++signals_out_; }
    /// One that was asked for came.
    void signal_came() { --signals_out_; }
    /// Where requests were given up, or failed: when none is under way no completion will come.
    void settle_signals() {
        if (free_ + reserve_ == places_)
            signals_out_ = 0;
    }
    /// Places and buffers of requests that asked for no completion lack: nobody else brings them
    /// back.
    void ask_for_completions() { wants_signals_ = has_work_ = true; }
    [[nodiscard]] bool wants_signals() const { return wants_signals_; }
    void signal_all(const QueueSource& source);
    /// False: there is no place for the request that asks.
    bool signal(WorkQueue& queue, const QueueSource& source);
    /// Nothing more is posted there, and what was posted ends with a completion behind it.
    void mark_end(WorkQueue& queue, MessageEp& ep);

  private:
    bool& has_work_;
    bool wants_signals_ = false;
    std::int32_t free_ = 0;          // places beyond the reserve; below 0 when that is in use
    std::uint32_t signals_out_ = 0;  // requests whose completion was asked for
    std::int32_t reserve_ = 0;       // places only for what brings completions
    std::uint32_t signal_every_ = 1;
    std::int32_t places_ = 0;
    CompletionQueue cq_;
    ucs::ReserveVector<WorkQueue*> queues_;  // by index; null where free
    // All that have requests under way, and some that had: so nobody looks at all queues.
    ucs::List<WorkQueue, &WorkQueue::busy_link> busy_;
};

}  // namespace tagwire::ib
