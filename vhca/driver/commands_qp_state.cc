// SPDX-License-Identifier: BSD-3-Clause
// States and attributes of queue pairs: modify and query.
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "vhca/driver/commands.hpp"
#include "vhca/driver/poller.hpp"
#include "vhca/setup/describe.hpp"

namespace tagwire::vhca::driver {
namespace {

constexpr std::uint32_t kStandardAttrs = (1U << 21) - 1;  // what is not IBV_QP_RATE_LIMIT

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

/// The kernel's verbs layer looks at ports before it looks at the state.
int check_ports(const Context& context, const QpObject& qp, ib_uverbs_modify_qp* request) {
    const auto is_set = [request](std::uint32_t bits) {
        return (request->attr_mask & bits) == bits;
    };
    Engine& engine = context.engine;
    if (is_set(IBV_QP_PORT) && !is_port(engine, request->port_num))
        return EINVAL;
    if (is_set(IBV_QP_AV)) {
        if (!is_port(engine, request->dest.port_num))
            return EINVAL;
        if (is_set(IBV_QP_STATE) && request->qp_state == IBV_QPS_RTR) {
            if (request->dest.port_num != qp.port)
                return EINVAL;
        } else if (is_set(IBV_QP_PORT)) {
            if (request->port_num != request->dest.port_num)
                return EINVAL;
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
        if (const int error = check_path(context, attr.ah_attr))
            return error;
    }
    if ((mask & IBV_QP_ALT_PATH) != 0) {
        if (const int error = check_path(context, attr.alt_ah_attr))
            return error;
        return context.engine.port().is_ethernet() ? EINVAL : 0;  // paths move on InfiniBand only
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
    if (qp.sends != nullptr)
        qp.sends->reset();
    if (qp.tag_commands != nullptr)
        qp.tag_commands->reset();
    if (qp.receives != nullptr)
        qp.receives->reset();
}

int modify(Context& context, ib_uverbs_modify_qp& request, const Call& call) {
    QpObject* qp = find_named(context.qps, call, request.qp_handle);
    if (qp == nullptr)
        return EINVAL;
    if (const int error = check_ports(context, *qp, &request))
        return error;
    const ibv_qp_attr attr = attr_of(request);
    const unsigned mask = request.attr_mask;
    if (const int error = check_paths(context, attr, mask))
        return error;
    const bool changes_state = (mask & IBV_QP_STATE) != 0;
    const bool is_new_dct =
        qp->dc == DcKind::kTarget && changes_state && attr.qp_state == IBV_QPS_RTR;
    constexpr std::size_t kThroughNumber =
        offsetof(mlx5_ib_modify_qp_resp, dctn) + sizeof(mlx5_ib_modify_qp_resp::dctn);
    if (qp->dc == DcKind::kTarget &&
        (!changes_state || (is_new_dct && call.driver_out.bytes < kThroughNumber))) {
        return EINVAL;
    }
    const Route route =
        (mask & IBV_QP_AV) != 0 ? context.engine.port().route_of(attr.ah_attr) : Route{};
    const Time now = context.engine.now();
    context.poller.settle(*qp, now);
    if (const int error = qp->core->modify(attr, static_cast<int>(mask), route, now))
        return error;
    if ((mask & IBV_QP_PORT) != 0)
        qp->port = request.port_num;
    if (changes_state && attr.qp_state == IBV_QPS_RESET)
        reset_rings(*qp);
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

}  // namespace

int query_qp(Context& context, const Call& call) {
    ib_uverbs_query_qp request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    const QpObject* qp = find_named(context.qps, call, request.qp_handle);
    if (qp == nullptr || !is_askable(*qp, request.attr_mask))
        return EINVAL;
    ibv_qp_attr attr{};
    qp->core->query(&attr);
    ib_uverbs_query_qp_resp response{};
    response.dest = dest_of(attr.ah_attr);
    response.alt_dest = dest_of(attr.alt_ah_attr);
    response.max_send_wr = qp->cap.max_send_wr;
    response.max_recv_wr = qp->recv_wr_max;
    response.max_send_sge = qp->cap.max_send_sge;
    response.max_recv_sge = qp->recv_sge_max;
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
    if (const int error = read_request(call.core_in, &request))
        return error;
    if ((request.attr_mask & ~kStandardAttrs) != 0)
        return EOPNOTSUPP;
    return modify(context, request, call);
}

int modify_qp_ex(Context& context, const Call& call) {
    ib_uverbs_ex_modify_qp request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    if ((request.base.attr_mask & ~(kStandardAttrs | IBV_QP_RATE_LIMIT)) != 0)
        return EOPNOTSUPP;
    if (const int error = modify(context, request.base, call))
        return error;
    const ib_uverbs_ex_modify_qp_resp response{
        .comp_mask = 0,
        .response_length = response_length<ib_uverbs_ex_modify_qp_resp>(call.core_out)};
    return write_response(call.core_out, response);
}

}  // namespace tagwire::vhca::driver
