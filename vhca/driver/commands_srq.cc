// SPDX-License-Identifier: BSD-3-Clause
// Shared receive queues, those that match tags among them.
#include <algorithm>
#include <bit>
#include <cerrno>

#include "vhca/driver/commands.hpp"

namespace tagwire::vhca::driver {
namespace {

constexpr std::uint32_t kEntryBytesMin = 32;

int read_ring(const Call& call, bool matches_tags, mlx5_ib_create_srq* ring) {
    constexpr std::size_t kBytesMin =
        offsetof(mlx5_ib_create_srq, flags) + sizeof(mlx5_ib_create_srq::flags);
    if (call.driver_in.bytes < kBytesMin)
        return EINVAL;
    if (const int error = read_user(call.driver_in, ring))
        return error;
    if (const int error = check_zeros(call.driver_in.from(sizeof *ring)))
        return error == EFAULT ? EFAULT : EINVAL;
    const bool is_bad = ring->reserved0 != 0 || ring->reserved1 != 0 ||
                        (matches_tags && ring->uidx > kUserIndexMax);
    return is_bad ? EINVAL : 0;
}

/// In the table; nothing was answered yet.
int make_srq(Context& context, const ib_uverbs_create_xsrq& request, const Call& call,
             std::uint32_t* handle_p) {
    const bool matches_tags = request.srq_type == IBV_SRQT_TM;
    CqObject* cq = nullptr;
    if (matches_tags) {
        cq = find_named(context.cqs, call, request.cq_handle);
        if (cq == nullptr)
            return EINVAL;
    }
    PdObject* pd = context.pds.find(request.pd_handle);
    if (pd == nullptr)
        return EINVAL;
    const DeviceConfig& limits = context.engine.device().config();
    if (request.max_wr > limits.srq_wr_max || request.max_sge > limits.srq_sge_max)
        return EINVAL;
    mlx5_ib_create_srq ring;
    if (const int error = read_ring(call, matches_tags, &ring))
        return error;
    const RingMemory memory{
        .address = ring.buf_addr,
        .entries = std::bit_ceil(request.max_wr + 1),
        .entry_bytes = std::max(
            kEntryBytesMin,
            std::bit_ceil(static_cast<std::uint32_t>(kSegmentBytes) * (1 + request.max_sge)))};
    if (const int error = check_ring(memory.address, memory.bytes(), ring.db_addr))
        return error;
    auto srq = std::make_unique<SrqObject>();
    srq->context = &context;
    srq->user_handle = request.user_handle;
    srq->user_index = ring.uidx;
    srq->pd = pd;
    srq->tag_cq = cq;
    srq->ring = std::make_unique<ReceiveList>(memory, ring.db_addr);
    srq->wr_max = memory.entries - 1;
    srq->sge_max = request.max_sge;
    SrqConfig config{.pd = pd->core,
                     .wr_max = std::max(srq->wr_max, 1U),
                     .sge_max = static_cast<std::uint32_t>(memory.entry_bytes / kSegmentBytes - 1),
                     .user = srq.get(),
                     .source = srq->ring.get()};
    if (matches_tags) {
        config.tm = {.tags_max = request.max_num_tags,
                     .ops_max = limits.qp_wr_max,
                     .cq = cq->core,
                     .keeps_places = true,
                     .source = &srq->tag_commanders};
    }
    if (const int error = context.engine.device().create_srq(config, &srq->core))
        return error;
    *handle_p = context.srqs.add(std::move(srq));
    return 0;
}

int create(Context& context, const ib_uverbs_create_xsrq& request, const Call& call) {
    std::uint32_t handle = 0;
    if (const int error = make_srq(context, request, call, &handle))
        return error;
    const SrqObject& srq = *context.srqs.find(handle);
    int error = write_user(call.driver_out,
                           mlx5_ib_create_srq_resp{.srqn = srq.core->number(), .reserved = 0});
    if (error == 0) {
        ib_uverbs_create_srq_resp response{};
        response.srq_handle = handle;
        response.max_wr = srq.wr_max;
        response.max_sge = srq.sge_max;
        response.srqn = srq.core->number();
        error = write_response(call.core_out, response);
    }
    if (error != 0)
        static_cast<void>(end_object(context, context.srqs, handle));
    return error;
}

}  // namespace

int create_srq(Context& context, const Call& call) {
    ib_uverbs_create_srq request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    ib_uverbs_create_xsrq full{};
    full.user_handle = request.user_handle;
    full.srq_type = IBV_SRQT_BASIC;
    full.pd_handle = request.pd_handle;
    full.max_wr = request.max_wr;
    full.max_sge = request.max_sge;
    return create(context, full, call);
}

int create_xsrq(Context& context, const Call& call) {
    ib_uverbs_create_xsrq request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    switch (request.srq_type) {
        case IBV_SRQT_BASIC:
        case IBV_SRQT_TM:
            return create(context, request, call);
        case IBV_SRQT_XRC:
            return EINVAL;  // it names a domain, and there is none
        default:
            return EOPNOTSUPP;
    }
}

int modify_srq(Context& context, const Call& call) {
    ib_uverbs_modify_srq request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    const SrqObject* srq = find_named(context.srqs, call, request.srq_handle);
    if (srq == nullptr || (request.attr_mask & IBV_SRQ_MAX_WR) != 0)
        return EINVAL;
    if ((request.attr_mask & IBV_SRQ_LIMIT) == 0)
        return 0;
    if (request.srq_limit > srq->wr_max)
        return EINVAL;
    return srq->core->modify({.max_wr = 0, .max_sge = 0, .srq_limit = request.srq_limit},
                             IBV_SRQ_LIMIT);
}

int query_srq(Context& context, const Call& call) {
    ib_uverbs_query_srq request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    const SrqObject* srq = find_named(context.srqs, call, request.srq_handle);
    if (srq == nullptr)
        return EINVAL;
    ibv_srq_attr attr{};
    srq->core->query(&attr);
    return write_response(call.core_out, ib_uverbs_query_srq_resp{.max_wr = srq->wr_max,
                                                                  .max_sge = srq->sge_max,
                                                                  .srq_limit = attr.srq_limit,
                                                                  .reserved = 0});
}

int Context::remove(SrqObject& srq) {
    if (const int error = engine.device().destroy_srq(*srq.core))
        return error;
    srq.async_events = retire_events(srq.user_handle, srq.async_events, [](std::uint32_t type) {
        return type == IBV_EVENT_SRQ_LIMIT_REACHED || type == IBV_EVENT_SRQ_ERR;
    });
    return 0;
}

int destroy_srq(Context& context, const Call& call) {
    ib_uverbs_destroy_srq request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    SrqObject* srq = find_named(context.srqs, call, request.srq_handle);
    if (srq == nullptr)
        return ENOENT;
    if (const int error = context.remove(*srq))
        return error;
    const ib_uverbs_destroy_srq_resp response{.events_reported = srq->async_events};
    static_cast<void>(context.srqs.take(request.srq_handle));
    return write_response(call.core_out, response);
}

}  // namespace tagwire::vhca::driver
