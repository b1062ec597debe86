// SPDX-License-Identifier: BSD-3-Clause
// Commands of <rdma/rdma_user_cm.h> for connections, and the options of identities.
#include <rdma/ib_user_sa.h>

#include <cerrno>
#include <cstddef>
#include <span>

#include "vhca/cm/manager.hpp"
#include "vhca/cm/qp_attributes.hpp"

namespace tagwire::vhca::cm {

using driver::read_user;
using driver::UserSpan;
using driver::write_user;

int Channel::connect(const Command& call) {
    rdma_ucm_connect in;
    if (call.in.bytes < offsetof(rdma_ucm_connect, reserved))
        return EINVAL;
    if (read_user(call.in, &in) != 0)
        return EFAULT;
    if (in.conn_param.valid == 0)
        return EINVAL;
    Identity* identity = nullptr;
    const int error = find_with_device(in.id, &identity);
    return error != 0 ? error : manager_.connect(*identity, in.conn_param);
}

int Channel::accept(const Command& call) {
    rdma_ucm_accept in;
    if (call.in.bytes < offsetof(rdma_ucm_accept, reserved))
        return EINVAL;
    if (read_user(call.in, &in) != 0)
        return EFAULT;
    Identity* identity = nullptr;
    if (const int error = find_with_device(in.id, &identity); error != 0)
        return error;
    if (in.conn_param.valid == 0)
        return manager_.accept(*identity, nullptr);
    const int error = manager_.accept(*identity, &in.conn_param);
    if (error == 0)
        identity->uid = in.uid;
    return error;
}

int Channel::reject(const Command& call) {
    rdma_ucm_reject in;
    if (read_user(call.in, &in) != 0)
        return EFAULT;
    const std::uint8_t reason = in.reason == 0 ? std::uint8_t{kRejConsumerDefined} : in.reason;
    if (reason != kRejConsumerDefined && reason != kRejVendorOption)
        return EINVAL;
    Identity* identity = nullptr;
    if (const int error = find_with_device(in.id, &identity); error != 0)
        return error;
    const auto data = std::as_bytes(std::span(in.private_data)).first(in.private_data_len);
    return manager_.reject(*identity, data, reason);
}

int Channel::init_qp_attr(const Command& call) {
    rdma_ucm_init_qp_attr in;
    ib_uverbs_qp_attr out{};
    if (call.out_bytes < sizeof out)
        return ENOSPC;
    if (read_user(call.in, &in) != 0)
        return EFAULT;
    if (in.qp_state > IBV_QPS_ERR)
        return EINVAL;
    Identity* identity = nullptr;
    if (const int error = find_with_device(in.id, &identity); error != 0)
        return error;
    const LocalPort port = manager_.network().port();
    ibv_qp_attr attr{};
    int mask = 0;
    attr.qp_state = static_cast<ibv_qp_state>(in.qp_state);
    if (const int error = cm::init_qp_attr(*identity, port, &attr, &mask); error != 0)
        return error;
    out.qp_attr_mask = static_cast<std::uint32_t>(mask);
    out.qp_state = attr.qp_state;
    out.path_mtu = attr.path_mtu;
    out.qkey = attr.qkey;
    out.rq_psn = attr.rq_psn;
    out.sq_psn = attr.sq_psn;
    out.dest_qp_num = attr.dest_qp_num;
    out.qp_access_flags = attr.qp_access_flags;
    if ((mask & IBV_QP_AV) != 0)
        out.ah_attr = address_vector(*identity, port);
    out.max_rd_atomic = attr.max_rd_atomic;
    out.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    out.min_rnr_timer = attr.min_rnr_timer;
    out.port_num = attr.port_num;
    out.timeout = attr.timeout;
    out.retry_cnt = attr.retry_cnt;
    out.rnr_retry = attr.rnr_retry;
    return write_user({in.response, call.out_bytes}, out);
}

// ---- Options -----------------------------------------------------------------------------------

namespace {

int set_path(Manager& manager, Identity& identity, UserSpan value) {
    constexpr std::uint32_t kUsual = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
    if (value.bytes % sizeof(ib_path_rec_data) != 0)
        return EINVAL;
    for (; value.bytes != 0; value = value.from(sizeof(ib_path_rec_data))) {
        ib_path_rec_data path;
        if (read_user(value, &path) != 0)
            return EFAULT;
        if (path.flags == kUsual) {
            // There is one path between two ports, whatever the program found.
            return manager.resolve_route(identity);
        }
    }
    return EINVAL;
}

int set_identity_option(Identity& identity, std::uint32_t option, UserSpan value) {
    const bool is_byte = option == RDMA_OPTION_ID_TOS || option == RDMA_OPTION_ID_ACK_TIMEOUT;
    if (option > RDMA_OPTION_ID_ACK_TIMEOUT)
        return ENOSYS;
    if (value.bytes != (is_byte ? sizeof(std::uint8_t) : sizeof(int)))
        return EINVAL;
    int number = 0;
    std::uint8_t byte = 0;
    if ((is_byte ? read_user(value, &byte) : read_user(value, &number)) != 0)
        return EFAULT;
    switch (option) {
        case RDMA_OPTION_ID_TOS:
            identity.type_of_service = byte;
            return 0;
        case RDMA_OPTION_ID_REUSEADDR:
            return identity.set_reuse(number != 0);
        case RDMA_OPTION_ID_AFONLY:
            return identity.set_family_only(number != 0);
        default:
            if (identity.qp_type != IBV_QPT_RC)
                return EINVAL;
            identity.ack_timeout = byte & 0x1f;
            return 0;
    }
}

}  // namespace

int Channel::set_option(const Command& call) {
    constexpr std::uint32_t kValueBytesMax = 4U << 20;
    rdma_ucm_set_option in;
    if (read_user(call.in, &in) != 0)
        return EFAULT;
    if (in.optlen > kValueBytesMax)
        return EINVAL;
    Identity* identity = nullptr;
    if (const int error = find(in.id, &identity); error != 0)
        return error;
    const UserSpan value{in.optval, in.optlen};
    if (in.level == RDMA_OPTION_ID)
        return set_identity_option(*identity, in.optname, value);
    if (in.level != RDMA_OPTION_IB || in.optname != RDMA_OPTION_IB_PATH)
        return ENOSYS;
    return identity->has_device ? set_path(manager_, *identity, value) : EINVAL;
}

}  // namespace tagwire::vhca::cm
