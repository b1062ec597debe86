// SPDX-License-Identifier: BSD-3-Clause
// Commands that create and destroy queue pairs. qp_request.cc checks CREATE_QP; the states are in
// commands_qp_state.cc.
#include <cerrno>

#include "vhca/driver/commands.hpp"
#include "vhca/driver/poller.hpp"
#include "vhca/driver/qp_request.hpp"

namespace tagwire::vhca::driver {
namespace {

/// On Ethernet an entry has no service level of four bits, and a GID always.
Route route_of(const QpObject& qp, const WqeAddress& address) {
    Engine& engine = qp.context->engine;
    ibv_ah_attr attr = address.attr;
    attr.port_num = qp.port;
    if (engine.port().is_ethernet()) {
        attr.is_global = 1;
        attr.sl = static_cast<std::uint8_t>(attr.sl >> 1);
    }
    return engine.port().route_of(attr);
}

void make_rings(const QpRequest& request, QpObject& qp) {
    const mlx5_ib_create_qp& rings = request.driver;
    const std::uint64_t receive_bytes = request.receives.bytes();
    if (receive_bytes != 0)
        qp.receives = std::make_unique<ReceiveRing>(request.receives, rings.db_addr);
    if (request.sends.entries == 0)
        return;
    const bool commands_tags = qp.srq != nullptr && qp.srq->tag_cq != nullptr;
    SendRing::Config config{
        .ring = request.sends,
        .record = rings.db_addr,
        .context = {.type = request.type, .dc = request.dc.kind, .commands_tags = commands_tags},
        .route_of = [&qp](const WqeAddress& address) { return route_of(qp, address); }};
    if (commands_tags)
        qp.tag_commands = std::make_unique<TagRing>(std::move(config), qp.srq->tags);
    else
        qp.sends = std::make_unique<SendRing>(std::move(config));
}

/// The device reads inline data from where the ring keeps them.
int open_inline_data(Device& device, QpObject& qp) {
    SendRing* sends = qp.tag_commands != nullptr ? &qp.tag_commands->ring() : qp.sends.get();
    if (sends == nullptr || sends->shadow().empty())
        return 0;
    const std::span<std::byte> shadow = sends->shadow();
    const int error =
        device.create_mr(*qp.pd->core, shadow.data(), shadow.size(),
                         reinterpret_cast<std::uint64_t>(shadow.data()), 0, &qp.inline_mr);
    if (error == 0)
        sends->set_inline_key(qp.inline_mr->key);
    return error;
}

/// In the table; nothing was answered yet.
int make_qp(Context& context, const QpRequest& request, std::uint32_t* handle_p) {
    auto qp = std::make_unique<QpObject>();
    qp->context = &context;
    qp->user_handle = request.core.user_handle;
    qp->user_index = request.driver.uidx;
    qp->dc = request.dc.kind;
    qp->pd = request.pd;
    qp->send_cq = request.send_cq;
    qp->recv_cq = request.recv_cq;
    qp->srq = request.srq;
    qp->cap = request.reported;
    qp->recv_wr_max = request.receives.entries;
    qp->recv_sge_max = request.receives.entry_bytes / static_cast<std::uint32_t>(kSegmentBytes);
    qp->signals_all = request.core.sq_sig_all != 0;
    make_rings(request, *qp);
    Device& device = context.engine.device();
    if (const int error = open_inline_data(device, *qp))
        return error;
    // Whether a request is signaled, the driver wrote into its entry.
    const QpConfig config{.type = request.type,
                          .pd = qp->pd->core,
                          .send_cq = qp->send_cq->core,
                          .recv_cq = qp->recv_cq->core,
                          .srq = qp->srq != nullptr ? qp->srq->core : nullptr,
                          .cap = request.needed,
                          .dc = request.dc,
                          .user = qp.get(),
                          .source = qp->receives.get(),
                          .keeps_places = true,
                          .sends_beside_device = qp->tag_commands != nullptr,
                          .data_in_cqe = request.data_in_cqe};
    if (const int error = device.create_qp(config, &qp->core)) {
        if (qp->inline_mr != nullptr)
            static_cast<void>(device.destroy_mr(*qp->inline_mr));
        return error;
    }
    if (qp->tag_commands != nullptr)
        qp->srq->tag_commanders.add(*qp->core, *qp->tag_commands);
    context.poller.add(*qp);
    *handle_p = context.qps.add(std::move(qp));
    return 0;
}

/// Doorbells of all are truth only in their records, so any register will do: the shared ones in
/// turn, but for the first page.
std::uint32_t next_bfreg(Context& context) {
    constexpr std::uint32_t kShared = 2, kOfPage = 4;
    if (context.bfregs <= kShared)
        return 0;
    const std::uint32_t index = kShared + context.next_bfreg++ % (context.bfregs - kShared);
    return index / kShared * kOfPage + index % kShared;
}

int answer(Context& context, std::uint32_t handle, const Call& call,
           ib_uverbs_create_qp_resp* response) {
    const QpObject& qp = *context.qps.find(handle);
    response->qp_handle = handle;
    response->qpn = qp.core->number();
    response->max_send_wr = qp.cap.max_send_wr;
    response->max_recv_wr = qp.cap.max_recv_wr;
    response->max_send_sge = qp.cap.max_send_sge;
    response->max_recv_sge = qp.cap.max_recv_sge;
    response->max_inline_data = qp.cap.max_inline_data;
    mlx5_ib_create_qp_resp driver{};
    driver.bfreg_index = qp.dc == DcKind::kTarget ? 0 : next_bfreg(context);
    return write_user(call.driver_out, driver);
}

template <typename Response, typename Fill>
int create(Context& context, const ib_uverbs_ex_create_qp& core, const Call& call,
           const Fill& fill) {
    QpRequest request;
    if (const int error = read_qp_request(context, core, call, &request))
        return error;
    std::uint32_t handle = 0;
    if (const int error = make_qp(context, request, &handle))
        return error;
    Response response{};
    int error = answer(context, handle, call, fill(response));
    if (error == 0)
        error = write_response(call.core_out, response);
    if (error != 0)
        static_cast<void>(end_object(context, context.qps, handle));
    return error;
}

bool is_event_of_qp(std::uint32_t type) {
    switch (type) {
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_COMM_EST:
        case IBV_EVENT_SQ_DRAINED:
        case IBV_EVENT_PATH_MIG:
        case IBV_EVENT_PATH_MIG_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            return true;
        default:
            return false;
    }
}

}  // namespace

int create_qp(Context& context, const Call& call) {
    ib_uverbs_create_qp request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    ib_uverbs_ex_create_qp full{};
    full.user_handle = request.user_handle;
    full.pd_handle = request.pd_handle;
    full.send_cq_handle = request.send_cq_handle;
    full.recv_cq_handle = request.recv_cq_handle;
    full.srq_handle = request.srq_handle;
    full.max_send_wr = request.max_send_wr;
    full.max_recv_wr = request.max_recv_wr;
    full.max_send_sge = request.max_send_sge;
    full.max_recv_sge = request.max_recv_sge;
    full.max_inline_data = request.max_inline_data;
    full.sq_sig_all = request.sq_sig_all;
    full.qp_type = request.qp_type;
    full.is_srq = request.is_srq;
    return create<ib_uverbs_create_qp_resp>(context, full, call,
                                            [](auto& response) { return &response; });
}

int create_qp_ex(Context& context, const Call& call) {
    ib_uverbs_ex_create_qp request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    // A table of receive queues is named by a handle, and there is none.
    if (request.comp_mask != 0 || request.reserved != 0)
        return EINVAL;
    return create<ib_uverbs_ex_create_qp_resp>(context, request, call, [&call](auto& response) {
        response.response_length = response_length<ib_uverbs_ex_create_qp_resp>(call.core_out);
        return &response.base;
    });
}

// It names a domain of XRC, and there is none.
int open_qp(Context& /*context*/, const Call& call) {
    ib_uverbs_open_qp request;
    const int error = read_request(call.core_in, &request);
    return error != 0 ? error : EINVAL;
}

int Context::remove(QpObject& qp) {
    poller.settle(qp, engine.now());
    const Qp& core = *qp.core;
    if (const int error = engine.device().destroy_qp(*qp.core))
        return error;
    if (qp.tag_commands != nullptr)
        qp.srq->tag_commanders.remove(core);
    if (qp.inline_mr != nullptr)
        static_cast<void>(engine.device().destroy_mr(*qp.inline_mr));
    poller.remove(qp);
    qp.async_events = retire_events(qp.user_handle, qp.async_events, is_event_of_qp);
    return 0;
}

int destroy_qp(Context& context, const Call& call) {
    ib_uverbs_destroy_qp request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    QpObject* qp = find_named(context.qps, call, request.qp_handle);
    if (qp == nullptr)
        return ENOENT;
    if (const int error = context.remove(*qp))
        return error;
    const ib_uverbs_destroy_qp_resp response{.events_reported = qp->async_events};
    static_cast<void>(context.qps.take(request.qp_handle));
    return write_response(call.core_out, response);
}

// The device has no multicast.
int attach_mcast(Context& context, const Call& call) {
    ib_uverbs_attach_mcast request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    return find_named(context.qps, call, request.qp_handle) == nullptr ? EINVAL : EOPNOTSUPP;
}

}  // namespace tagwire::vhca::driver
