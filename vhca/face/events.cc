// SPDX-License-Identifier: BSD-3-Clause
// The way of an event: from the device, which calls the sink under the engine's lock, into the
// queue of a channel or context, to the program, and back as an acknowledgement.
#include <cerrno>

#include "vhca/face/api.hpp"
#include "vhca/face/context.hpp"
#include "vhca/face/sink.hpp"

namespace tagwire::vhca {
namespace {

class FaceSink final : public EventSink {
  public:
    void cq_event(Cq& cq) override {
        auto* queue = static_cast<FaceCq*>(cq.user());
        if (queue->cq.channel != nullptr)
            face(queue->cq.channel).events.push({queue});
    }
    void qp_event(ibv_event_type type, Qp& qp) override {
        auto* pair = static_cast<FaceQp*>(qp.user());
        ibv_async_event event{.element = {.qp = &pair->qp.qp_base}, .event_type = type};
        push(pair->qp.qp_base.context, event, &pair->events_delivered);
    }
    void srq_event(ibv_event_type type, Srq& srq) override {
        auto* queue = static_cast<FaceSrq*>(srq.user());
        ibv_async_event event{.element = {.srq = &queue->srq}, .event_type = type};
        push(queue->srq.context, event, &queue->events_delivered);
    }
    void cq_error(Cq& cq) override {
        auto* queue = static_cast<FaceCq*>(cq.user());
        ibv_async_event event{.element = {.cq = queue->handle()}, .event_type = IBV_EVENT_CQ_ERR};
        push(queue->cq.context, event, &queue->async_events_delivered);
    }

  private:
    static void push(ibv_context* context, const ibv_async_event& event, std::uint32_t* delivered) {
        face(context).async_events.push({event, delivered});
    }
};

// One more event of an object was acknowledged.
void acknowledge(pthread_mutex_t* mutex, pthread_cond_t* acked, std::uint32_t* completed,
                 std::uint32_t events) {
    pthread_mutex_lock(mutex);
    *completed += events;
    pthread_cond_broadcast(acked);
    pthread_mutex_unlock(mutex);
}

}  // namespace

void FaceListener::device_event(ibv_event_type type, unsigned port) {
    ibv_async_event event{.element = {.port_num = static_cast<int>(port)}, .event_type = type};
    owner.async_events.push({event, nullptr});
}

EventSink& face_sink() {
    static FaceSink sink;
    return sink;
}

}  // namespace tagwire::vhca

using namespace tagwire::vhca;

int tagwire_vhca_ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq_p, void** cq_context_p) {
    CompletionEvent event{};
    if (!face(channel).events.pop(&event))
        return -1;
    *cq_p = event.cq->handle();
    *cq_context_p = event.cq->cq.cq_context;
    return 0;
}

void tagwire_vhca_ibv_ack_cq_events(ibv_cq* cq, unsigned int events) {
    acknowledge(&cq->mutex, &cq->cond, &cq->comp_events_completed, events);
}

int tagwire_vhca_ibv_get_async_event(ibv_context* context, ibv_async_event* event_p) {
    AsyncEvent event{};
    if (!face(context).async_events.pop(&event))
        return -1;
    *event_p = event.event;
    return 0;
}

void tagwire_vhca_ibv_ack_async_event(ibv_async_event* event) {
    switch (event->event_type) {
        case IBV_EVENT_CQ_ERR: {
            ibv_cq* cq = event->element.cq;
            acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed, 1);
            break;
        }
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_SRQ_LIMIT_REACHED: {
            ibv_srq* srq = event->element.srq;
            acknowledge(&srq->mutex, &srq->cond, &srq->events_completed, 1);
            break;
        }
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_COMM_EST:
        case IBV_EVENT_SQ_DRAINED:
        case IBV_EVENT_PATH_MIG:
        case IBV_EVENT_PATH_MIG_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED: {
            ibv_qp* qp = event->element.qp;
            acknowledge(&qp->mutex, &qp->cond, &qp->events_completed, 1);
            break;
        }
        default:
            break;  // port and device events need no acknowledgement
    }
}
