// SPDX-License-Identifier: BSD-3-Clause
// Shared receive queues.
#include <cerrno>
#include <new>

#include "ucs/log/log.hpp"
#include "vhca/face/api.hpp"
#include "vhca/face/context.hpp"

namespace tagwire::vhca {
namespace {

ibv_srq* create_srq(ibv_pd* pd, void* srq_context, ibv_srq_attr* attr, const TagConfig& tm = {}) {
    auto* made = new (std::nothrow) FaceSrq{};
    if (made == nullptr)
        return fail(ENOMEM);
    FaceContext& owner = face(pd->context);
    Engine& engine = *owner.engine;
    int error = 0;
    {
        const auto guard = engine.lock();
        error = engine.device().create_srq({.pd = face(pd).core,
                                            .wr_max = attr->max_wr,
                                            .sge_max = attr->max_sge,
                                            .limit = 0,
                                            .tm = tm,
                                            .user = made},
                                           &made->core);
        if (error == 0)
            owner.srqs.push_back(*made);
    }
    if (error != 0) {
        delete made;
        return fail(error);
    }
    ibv_srq_attr got{};
    made->core->query(&got);
    attr->max_wr = got.max_wr;
    attr->max_sge = got.max_sge;
    made->engine = &engine;
    made->srq.context = pd->context;
    made->srq.srq_context = srq_context;
    made->srq.pd = pd;
    made->srq.handle = made->core->number();
    pthread_mutex_init(&made->srq.mutex, nullptr);
    pthread_cond_init(&made->srq.cond, nullptr);
    return &made->srq;
}

ibv_srq* create_tm_srq(ibv_context* context, ibv_srq_init_attr_ex* attr) {
    if (face(context).engine->device().config().tm_tags_max == 0)
        return fail(EOPNOTSUPP);
    // libmlx5 connects a queue pair of its own by LID on port 1, which an Ethernet port has not.
    Engine& engine = *face(context).engine;
    if (engine.port().is_ethernet() && !engine.device().config().has_tags_on_ethernet) {
        TW_LOG_ERROR("%s: a tag-matching SRQ needs an InfiniBand port 1", context->device->name);
        return fail(EINVAL);
    }
    constexpr std::uint32_t kWanted =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
    if (attr->comp_mask != kWanted || attr->cq == nullptr || face(attr->cq).is_plain ||
        attr->cq->context->device != context->device) {
        return fail(EINVAL);
    }
    return create_srq(attr->pd, attr->srq_context, &attr->attr,
                      {.tags_max = attr->tm_cap.max_num_tags,
                       .ops_max = attr->tm_cap.max_ops,
                       .cq = face(attr->cq).core});
}

int post_op(Srq& srq, ibv_ops_wr& wr, Time now) {
    const auto& add = wr.tm.add;
    const bool is_add = wr.opcode == IBV_WR_TAG_ADD;
    TagWork work{.wr_id = wr.wr_id,
                 .opcode = wr.opcode,
                 .flags = static_cast<unsigned>(wr.flags),
                 .unexpected_count = wr.tm.unexpected_cnt,
                 .handle = wr.tm.handle};
    if (is_add) {
        work.recv_wr_id = add.recv_wr_id;
        work.tag = add.tag;
        work.mask = add.mask;
        work.sges = {add.sg_list, static_cast<std::size_t>(add.num_sge)};
    }
    std::size_t failed = 0;
    const int error = srq.post_ops({&work, 1}, &failed, now);
    if (error == 0 && is_add)
        wr.tm.handle = work.handle;
    return error;
}

}  // namespace

ibv_srq* create_srq_ex_op(ibv_context* context, ibv_srq_init_attr_ex* attr) {
    const bool has_type = (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0;
    if (has_type && attr->srq_type == IBV_SRQT_TM)
        return create_tm_srq(context, attr);
    if (has_type && attr->srq_type != IBV_SRQT_BASIC)
        return fail(EOPNOTSUPP);
    constexpr std::uint32_t kKnown = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    if ((attr->comp_mask & ~kKnown) != 0 || (attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0)
        return fail(EINVAL);
    return create_srq(attr->pd, attr->srq_context, &attr->attr);
}

int remove(FaceSrq& srq) {
    FaceContext& owner = face(srq.srq.context);
    {
        const auto guard = srq.engine->lock();
        if (const int error = srq.engine->device().destroy_srq(*srq.core))
            return error;
        owner.srqs.erase(srq);
    }
    owner.async_events.erase_if(
        [&](const AsyncEvent& event) { return event.delivered == &srq.events_delivered; });
    return 0;
}

void dispose(FaceSrq& srq) {
    pthread_cond_destroy(&srq.srq.cond);
    pthread_mutex_destroy(&srq.srq.mutex);
    delete &srq;
}

int get_srq_num_op(ibv_srq* srq, std::uint32_t* number) {
    *number = face(srq).core->number();
    return 0;
}

int post_srq_recv_op(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
    FaceSrq& queue = face(srq);
    const auto guard = queue.engine->lock();
    for (; wr != nullptr; wr = wr->next) {
        const RecvWork work{wr->wr_id, {wr->sg_list, static_cast<std::size_t>(wr->num_sge)}};
        if (const int error = queue.core->post(work)) {
            *bad_wr = wr;
            return error;
        }
    }
    return 0;
}

int post_srq_ops_op(ibv_srq* srq, ibv_ops_wr* wr, ibv_ops_wr** bad_wr) {
    FaceSrq& queue = face(srq);
    const auto guard = queue.engine->lock();
    for (; wr != nullptr; wr = wr->next) {
        if (const int error = post_op(*queue.core, *wr, queue.engine->now())) {
            *bad_wr = wr;
            return error;
        }
    }
    return 0;
}

}  // namespace tagwire::vhca

using namespace tagwire::vhca;

ibv_srq* tagwire_vhca_ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
    return create_srq(pd, attr->srq_context, &attr->attr);
}

int tagwire_vhca_ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
    FaceSrq& queue = face(srq);
    const auto guard = queue.engine->lock();
    return queue.core->modify(*attr, mask);
}

int tagwire_vhca_ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
    FaceSrq& queue = face(srq);
    const auto guard = queue.engine->lock();
    if (queue.engine->device().is_dead())
        return EIO;
    queue.core->query(attr);
    return 0;
}

int tagwire_vhca_ibv_destroy_srq(ibv_srq* srq) {
    FaceSrq& queue = face(srq);
    if (const int error = remove(queue))
        return error;
    wait_for_acks(&srq->mutex, &srq->cond, srq->events_completed, queue.events_delivered);
    dispose(queue);
    return 0;
}
