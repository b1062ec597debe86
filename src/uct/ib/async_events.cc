// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/async_events.hpp"

#include <algorithm>
#include <utility>

namespace tagwire::ib {

AsyncEvents::AsyncEvents(const VerbsTable& verbs, ibv_context* context)
    : verbs_(verbs), context_(context) {}

void AsyncEvents::add(Mailbox& mailbox) {
    const std::lock_guard lock(mutex_);
    mailboxes_.push_back(&mailbox);
}

void AsyncEvents::remove(Mailbox& mailbox) {
    const std::lock_guard lock(mutex_);
    std::erase(mailboxes_, &mailbox);
}

ucs::ReserveVector<AsyncEvent> AsyncEvents::collect(Mailbox& mailbox) {
    const std::lock_guard lock(mutex_);
    ibv_async_event event{};
    while (verbs_.get_async_event(context_, &event) == 0) {
        deliver(event);
        verbs_.ack_async_event(&event);
    }
    return std::exchange(mailbox.events, {});
}

void AsyncEvents::forget(Mailbox& mailbox, std::uint32_t qp_num) {
    const std::lock_guard lock(mutex_);
    std::erase_if(mailbox.events, [qp_num](const AsyncEvent& event) {
        return event.qp_num != 0 && event.qp_num == qp_num;
    });
}

void AsyncEvents::deliver(const ibv_async_event& event) {
    void* to = nullptr;  // without a mailbox: an object that nobody wants to hear of
    bool is_for_all = false;
    AsyncEvent copy{event.event_type, 0, 0};
    switch (event.event_type) {
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_COMM_EST:
        case IBV_EVENT_SQ_DRAINED:
        case IBV_EVENT_PATH_MIG:
        case IBV_EVENT_PATH_MIG_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            to = event.element.qp->qp_context;
            copy.qp_num = event.element.qp->qp_num;
            break;
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            to = event.element.srq->srq_context;
            break;
        case IBV_EVENT_CQ_ERR:
            to = event.element.cq->cq_context;
            break;
        default:
            copy.port = event.element.port_num;
            is_for_all = true;
            break;
    }
    for (Mailbox* mailbox : mailboxes_)
        if (is_for_all || to == mailbox)
            mailbox->events.push_back(copy);
}

}  // namespace tagwire::ib
