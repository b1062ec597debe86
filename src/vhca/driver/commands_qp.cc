// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs: life and states. What they are asked to be is checked in qp_request.cc.
#include <cerrno>

#include "vhca/driver/commands.hpp"
#include "vhca/driver/poller.hpp"
#include "vhca/driver/qp_request.hpp"
#include "vhca/setup/describe.hpp"

namespace tagwire::vhca::driver {
namespace {

constexpr std::uint32_t kStandardAttrs = (1U << 21) - 1;  // what is not IBV_QP_RATE_LIMIT

/// On Ethernet an entry has no service level of four bits, and a GID always.
Route route_of(const QpObject& qp, const WqeAddress& address) {
    Engine& engine = qp.context->engine;
    ibv_ah_attr attr = address.attr;
    attr.port_num = qp.port;
    if (engine.is_ethernet()) {
        attr.is_global = 1;
        attr.sl = static_cast<std::uint8_t>(attr.sl >> 1);
    }
    return engine.route_of(attr);
}

void make_rings(const QpRequest& request, QpObject& qp) {
    const mlx5_ib_create_qp& rings = request.driver;
    const std::uint64_t receive_bytes = request.receives.bytes();
    if (receive_bytes != 0) {
        qp.receives = std::make_unique<ReceiveRing>(request.receives, rings.db_addr);
    }
    if (request.sends.entries == 0) {
        return;
    }
    const bool commands_tags = qp.srq != nullptr && qp.srq->tag_cq != nullptr;
    SendRing::Config config{
        .ring = request.sends,
        .record = rings.db_addr,
        .context = {.type = request.type, .dc = request.dc.kind, .commands_tags = commands_tags},
        .route_of = [&qp](const WqeAddress& address) { return route_of(qp, address); }};
    if (commands_tags) {
        qp.tag_commands = std::make_unique<TagRing>(std::move(config), qp.srq->tags);
    } else {
        qp.sends = std::make_unique<SendRing>(std::move(config));
    }
}

/// The device reads inline data from where the ring keeps them.
int open_inline_data(Device& device, QpObject& qp) {
    SendRing* sends = qp.tag_commands != nullptr ? &qp.tag_commands->ring() : qp.sends.get();
    if (sends == nullptr || sends->shadow().empty()) {
        return 0;
    }
    const std::span<std::byte> shadow = sends->shadow();
    const int error =
        device.create_mr(*qp.pd->core, shadow.data(), shadow.size(),
                         reinterpret_cast<std::uint64_t>(shadow.data()), 0, &qp.inline_mr);
    if (error == 0) {
        sends->set_inline_key(qp.inline_mr->key);
    }
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
    qp->cap = request.told;
    qp->signals_all = request.core.sq_sig_all != 0;
    make_rings(request, *qp);
    Device& device = context.engine.device();
    if (const int error = open_inline_data(device, *qp)) {
        return error;
    }
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
                          .sends_beside_device = qp->tag_commands != nullptr};
    if (const int error = device.create_qp(config, &qp->core)) {
        if (qp->inline_mr != nullptr) {
            static_cast<void>(device.destroy_mr(*qp->inline_mr));
        }
        return error;
    }
    context.poller.add(*qp);
    *handle_p = context.qps.add(std::move(qp));
    return 0;
}

/// Doorbells of all are truth only in their records, so any register will do: the shared ones in
/// turn, but for the first page.
std::uint32_t next_bfreg(Context& context) {
    constexpr std::uint32_t kShared = 2, kOfPage = 4;
    if (context.bfregs <= kShared) {
        return 0;
    }
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
    if (const int error = read_qp_request(context, core, call, &request)) {
        return error;
    }
    std::uint32_t handle = 0;
    if (const int error = make_qp(context, request, &handle)) {
        return error;
    }
    Response response{};
    int error = answer(context, handle, call, fill(response));
    if (error == 0) {
        error = write_response(call.core_out, response);
    }
    if (error != 0) {
        static_cast<void>(end_object(context, context.qps, handle));
    }
    return error;
}

ibv_ah_attr path_of(const ib_uverbs_qp_dest& dest) {
    return ah_attr_of(dest, dest.dgid,
                      {.dgid = {},
                       .flow_label = dest.flow_label,
                       .sgid_index = dest.sgid_index,
                       .hop_limit = dest.hop_limit,
                       .traffic_class = dest.traffic_class});
}

ib_uverbs_qp_dest dest_of(const ibv_ah_attr& attr) {
    ib_uverbs_qp_dest dest{};
    dest.dlid = attr.dlid;
    dest.sl = attr.sl;
    dest.src_path_bits = attr.src_path_bits;
    dest.static_rate = attr.static_rate;
    dest.port_num = attr.port_num;
    if (attr.is_global != 0) {
        dest.is_global = 1;
        std::memcpy(dest.dgid, attr.grh.dgid.raw, sizeof dest.dgid);
        dest.flow_label = attr.grh.flow_label;
        dest.sgid_index = attr.grh.sgid_index;
        dest.hop_limit = attr.grh.hop_limit;
        dest.traffic_class = attr.grh.traffic_class;
    }
    return dest;
}

/// What the kernel's verbs layer says of ports, before it looks at the state.
int check_ports(const Context& context, const QpObject& qp, ib_uverbs_modify_qp* request) {
    const auto is_set = [request](std::uint32_t bits) {
        return (request->attr_mask & bits) == bits;
    };
    Engine& engine = context.engine;
    if (is_set(IBV_QP_PORT) && !is_port(engine, request->port_num)) {
        return EINVAL;
    }
    if (is_set(IBV_QP_AV)) {
        if (!is_port(engine, request->dest.port_num)) {
            return EINVAL;
        }
        if (is_set(IBV_QP_STATE) && request->qp_state == IBV_QPS_RTR) {
            if (request->dest.port_num != qp.port) {
                return EINVAL;
            }
        } else if (is_set(IBV_QP_PORT)) {
            if (request->port_num != request->dest.port_num) {
                return EINVAL;
            }
        } else {
            request->attr_mask |= IBV_QP_PORT;
            request->port_num = request->dest.port_num;
        }
    }
    if (is_set(IBV_QP_ALT_PATH) && (!is_port(engine, request->alt_port_num) ||
                                    request->alt_port_num != request->alt_dest.port_num)) {
        return EINVAL;
    }
    const bool is_state = (!is_set(IBV_QP_STATE) || request->qp_state <= IBV_QPS_ERR) &&
                          (!is_set(IBV_QP_CUR_STATE) || request->cur_qp_state <= IBV_QPS_ERR);
    return is_state ? 0 : EINVAL;
}

int check_paths(Context& context, const ibv_qp_attr& attr, unsigned mask) {
    if ((mask & IBV_QP_AV) != 0) {
        if (const int error = check_path(context, attr.ah_attr)) {
            return error;
        }
    }
    if ((mask & IBV_QP_ALT_PATH) != 0) {
        if (const int error = check_path(context, attr.alt_ah_attr)) {
            return error;
        }
        return context.engine.is_ethernet() ? EINVAL : 0;  // paths move on InfiniBand only
    }
    return 0;
}

ibv_qp_attr attr_of(const ib_uverbs_modify_qp& request) {
    ibv_qp_attr attr{};
    attr.qp_state = static_cast<ibv_qp_state>(request.qp_state);
    attr.cur_qp_state = static_cast<ibv_qp_state>(request.cur_qp_state);
    attr.path_mtu = static_cast<ibv_mtu>(request.path_mtu);
    attr.path_mig_state = static_cast<ibv_mig_state>(request.path_mig_state);
    attr.qkey = request.qkey;
    attr.rq_psn = request.rq_psn;
    attr.sq_psn = request.sq_psn;
    attr.dest_qp_num = request.dest_qp_num;
    attr.qp_access_flags = request.qp_access_flags;
    attr.pkey_index = request.pkey_index;
    attr.alt_pkey_index = request.alt_pkey_index;
    attr.en_sqd_async_notify = request.en_sqd_async_notify;
    attr.max_rd_atomic = request.max_rd_atomic;
    attr.max_dest_rd_atomic = request.max_dest_rd_atomic;
    attr.min_rnr_timer = request.min_rnr_timer;
    attr.port_num = request.port_num;
    attr.timeout = request.timeout;
    attr.retry_cnt = request.retry_cnt;
    attr.rnr_retry = request.rnr_retry;
    attr.alt_port_num = request.alt_port_num;
    attr.alt_timeout = request.alt_timeout;
    attr.ah_attr = path_of(request.dest);
    attr.alt_ah_attr = path_of(request.alt_dest);
    return attr;
}

void reset_rings(QpObject& qp) {
    if (qp.sends != nullptr) {
        qp.sends->reset();
    }
    if (qp.tag_commands != nullptr) {
        qp.tag_commands->reset();
    }
    if (qp.receives != nullptr) {
        qp.receives->reset();
    }
}

int modify(Context& context, ib_uverbs_modify_qp& request, const Call& call) {
    QpObject* qp = context.qps.find(request.qp_handle);
    if (qp == nullptr) {
        return EINVAL;
    }
    if (const int error = check_ports(context, *qp, &request)) {
        return error;
    }
    const ibv_qp_attr attr = attr_of(request);
    const unsigned mask = request.attr_mask;
    if (const int error = check_paths(context, attr, mask)) {
        return error;
    }
    const bool changes_state = (mask & IBV_QP_STATE) != 0;
    const bool is_new_dct =
        qp->dc == DcKind::kTarget && changes_state && attr.qp_state == IBV_QPS_RTR;
    constexpr std::size_t kThroughNumber =
        offsetof(mlx5_ib_modify_qp_resp, dctn) + sizeof(mlx5_ib_modify_qp_resp::dctn);
    if (qp->dc == DcKind::kTarget &&
        (!changes_state || (is_new_dct && call.driver_out.bytes < kThroughNumber))) {
        return EINVAL;
    }
    const Route route = (mask & IBV_QP_AV) != 0 ? context.engine.route_of(attr.ah_attr) : Route{};
    const Time now = context.engine.now();
    context.poller.settle(*qp, now);
    if (const int error = qp->core->modify(attr, static_cast<int>(mask), route, now)) {
        return error;
    }
    if ((mask & IBV_QP_PORT) != 0) {
        qp->port = request.port_num;
    }
    if (changes_state && attr.qp_state == IBV_QPS_RESET) {
        reset_rings(*qp);
    }
    mlx5_ib_modify_qp_resp driver{};
    driver.response_length = response_length<mlx5_ib_modify_qp_resp>(call.driver_out);
    driver.dctn = is_new_dct ? qp->core->number() : 0;
    return write_user(call.driver_out, driver);
}

/// The driver asks the card, which knows a DCT in RTR only, and not all of it.
bool is_askable(const QpObject& qp, std::uint32_t mask) {
    constexpr std::uint32_t kOfDct = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT |
                                     IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU |
                                     IBV_QP_PKEY_INDEX;
    return qp.dc != DcKind::kTarget || ((mask & ~kOfDct) == 0 && qp.core->state() == IBV_QPS_RTR);
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
    if (const int error = read_request(call.core_in, &request)) {
        return error;
    }
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
    if (const int error = read_request(call.core_in, &request)) {
        return error;
    }
    // A table of receive queues is named by a handle, and there is none.
    if (request.comp_mask != 0 || request.reserved != 0) {
        return EINVAL;
    }
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

int query_qp(Context& context, const Call& call) {
    ib_uverbs_query_qp request;
    if (const int error = read_request(call.core_in, &request)) {
        return error;
    }
    const QpObject* qp = context.qps.find(request.qp_handle);
    if (qp == nullptr || !is_askable(*qp, request.attr_mask)) {
        return EINVAL;
    }
    ibv_qp_attr attr{};
    qp->core->query(&attr);
    ib_uverbs_query_qp_resp response{};
    response.dest = dest_of(attr.ah_attr);
    response.alt_dest = dest_of(attr.alt_ah_attr);
    response.max_send_wr = qp->cap.max_send_wr;
    response.max_recv_wr = qp->cap.max_recv_wr;
    response.max_send_sge = qp->cap.max_send_sge;
    response.max_recv_sge = qp->cap.max_recv_sge;
    response.max_inline_data = qp->cap.max_inline_data;
    response.qkey = attr.qkey;
    response.rq_psn = attr.rq_psn;
    response.sq_psn = attr.sq_psn;
    response.dest_qp_num = attr.dest_qp_num;
    response.qp_access_flags = attr.qp_access_flags;
    response.pkey_index = attr.pkey_index;
    response.alt_pkey_index = attr.alt_pkey_index;
    response.qp_state = static_cast<std::uint8_t>(attr.qp_state);
    response.cur_qp_state = static_cast<std::uint8_t>(attr.cur_qp_state);
    response.path_mtu = static_cast<std::uint8_t>(attr.path_mtu);
    response.path_mig_state = static_cast<std::uint8_t>(attr.path_mig_state);
    response.sq_draining = attr.sq_draining;
    response.max_rd_atomic = attr.max_rd_atomic;
    response.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    response.min_rnr_timer = attr.min_rnr_timer;
    response.port_num = attr.port_num;
    response.timeout = attr.timeout;
    response.retry_cnt = attr.retry_cnt;
    response.rnr_retry = attr.rnr_retry;
    response.alt_port_num = attr.alt_port_num;
    response.alt_timeout = attr.alt_timeout;
    response.sq_sig_all = qp->signals_all ? 1 : 0;
    return write_response(call.core_out, response);
}

int modify_qp(Context& context, const Call& call) {
    ib_uverbs_modify_qp request;
    if (const int error = read_request(call.core_in, &request)) {
        return error;
    }
    if ((request.attr_mask & ~kStandardAttrs) != 0) {
        return EOPNOTSUPP;
    }
    return modify(context, request, call);
}

int modify_qp_ex(Context& context, const Call& call) {
    ib_uverbs_ex_modify_qp request;
    if (const int error = read_request(call.core_in, &request)) {
        return error;
    }
    if ((request.base.attr_mask & ~(kStandardAttrs | IBV_QP_RATE_LIMIT)) != 0) {
        return EOPNOTSUPP;
    }
    if (const int error = modify(context, request.base, call)) {
        return error;
    }
    const ib_uverbs_ex_modify_qp_resp response{
        .comp_mask = 0,
        .response_length = response_length<ib_uverbs_ex_modify_qp_resp>(call.core_out)};
    return write_response(call.core_out, response);
}

int Context::remove(QpObject& qp) {
    poller.settle(qp, engine.now());
    if (const int error = engine.device().destroy_qp(*qp.core)) {
        return error;
    }
    if (qp.inline_mr != nullptr) {
        static_cast<void>(engine.device().destroy_mr(*qp.inline_mr));
    }
    poller.remove(qp);
    qp.async_events = retire_events(qp.user_handle, qp.async_events, is_event_of_qp);
    return 0;
}

int destroy_qp(Context& context, const Call& call) {
    ib_uverbs_destroy_qp request;
    if (const int error = read_request(call.core_in, &request)) {
        return error;
    }
    QpObject* qp = context.qps.find(request.qp_handle);
    if (qp == nullptr) {
        return ENOENT;
    }
    if (const int error = context.remove(*qp)) {
        return error;
    }
    const ib_uverbs_destroy_qp_resp response{.events_reported = qp->async_events};
    static_cast<void>(context.qps.take(request.qp_handle));
    return write_response(call.core_out, response);
}

// The device has no multicast.
int attach_mcast(Context& context, const Call& call) {
    ib_uverbs_attach_mcast request;
    if (const int error = read_request(call.core_in, &request)) {
        return error;
    }
    return context.qps.find(request.qp_handle) == nullptr ? EINVAL : EOPNOTSUPP;
}

}  // namespace tagwire::vhca::driver
