// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/work_queues.hpp"

#include "uct/ib/message_iface.hpp"
#include "uct/ib/queue_source.hpp"

namespace tagwire::ib {

ucs_status_t WorkQueues::open(const IbMd& md, std::uint32_t places, std::uint32_t reserve,
                              unsigned spare, ibv_comp_channel* channel, void* context) {
    places_ = static_cast<std::int32_t>(places);
    reserve_ = static_cast<std::int32_t>(reserve);
    free_ = places_ - reserve_;
    return cq_.open(md, places + spare, channel, false, context);
}

void WorkQueues::add(WorkQueue& queue) {
    const std::size_t index = queue.id & kIndexMask;
    if (queues_.size() <= index)
        queues_.resize(index + 1);
    queues_[index] = &queue;
}

void WorkQueues::remove(WorkQueue& queue) {
    queues_[queue.id & kIndexMask] = nullptr;
    if (busy_.is_linked(queue))
        busy_.erase(queue);
    queue.unsignaled |= WorkQueue::kUnlisted;
}

void WorkQueues::drop_idle() {
    busy_.for_each([this](WorkQueue& queue) {
        if (queue.is_drained()) {
            busy_.erase(queue);
            queue.unsignaled = WorkQueue::kUnlisted;
        }
    });
}

void WorkQueues::refused(WorkQueue& queue, const ibv_send_wr* bad) {
    std::uint32_t untaken = 0;
    for (const ibv_send_wr* request = bad; request != nullptr; request = request->next) {
        ++untaken;
        signals_out_ -= (request->send_flags & IBV_SEND_SIGNALED) != 0 ? 1 : 0;
    }
    queue.posted -= untaken;
    queue.free += untaken;
    give_back(untaken);
    // The last one, which asked for the completion of all, may be among them.
    queue.unsignaled = queue.posted - queue.acked;
}

void WorkQueues::abandon(WorkQueue& queue) {
    const std::uint32_t given_up = queue.posted - queue.acked;
    queue.acked = queue.posted;
    queue.free += given_up;
    give_back(given_up);
    queue.clear_unsignaled();
    queue.wants_mark = false;
    settle_signals();
}

// Requests without a completion fill the queue: some that ask for one, behind them. Where places in
// the completion queue run out it goes on from there when some have come back: each of what it
// posted brings at least its own.
void WorkQueues::signal_all(const QueueSource& source) {
    for (std::size_t left = busy_.size(); left > 0; --left) {
        WorkQueue* queue = busy_.front();
        if (queue->has_unsignaled() && queue->has_last_place() && !signal(*queue, source))
            return;
        busy_.erase(*queue);
        busy_.push_back(*queue);  // the next call begins behind it
    }
    wants_signals_ = false;
}

bool WorkQueues::signal(WorkQueue& queue, const QueueSource& source) {
    MessageEp* ep = source.poster_of(queue);
    if (ep == nullptr || (ep->failure != UCS_OK && !queue.wants_mark))
        return true;
    if (!has_last_place())
        return false;
    queue.wants_mark = false;
    return ep->post_signal() == UCS_OK;
}

// Requests without a completion that were carried out end silently, so one is put behind them. Its
// place is one of those that has_places() leaves; when none is left, others' completions bring
// some.
void WorkQueues::mark_end(WorkQueue& queue, MessageEp& ep) {
    if (!queue.has_unsignaled() || queue.free == 0)
        return;
    queue.wants_mark = !has_last_place();
    if (queue.wants_mark)
        ask_for_completions();
    else
        ep.post_signal();
}

}  // namespace tagwire::ib
