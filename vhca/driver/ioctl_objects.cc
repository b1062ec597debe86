// SPDX-License-Identifier: BSD-3-Clause
// Methods that create and destroy objects.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <cerrno>

#include "vhca/driver/ioctl_methods.hpp"

namespace tagwire::vhca::driver {
namespace {

using namespace attribute;

/// After a failed answer: nobody knows of the object.
template <typename T>
int end_untold(Context& context, HandleTable<T>& table, std::uint32_t handle, int error) {
    if (error != 0)
        static_cast<void>(end_object(context, table, handle));
    return error;
}

// ---- Completion queues

constexpr std::array kCreateCq = {
    created(UVERBS_ATTR_CREATE_CQ_HANDLE, UVERBS_OBJECT_CQ),
    in(UVERBS_ATTR_CREATE_CQ_CQE, sizeof(std::uint32_t)),
    in(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, sizeof(std::uint64_t)),
    fd(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, UVERBS_OBJECT_COMP_CHANNEL),
    in(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, sizeof(std::uint32_t)),
    flags(UVERBS_ATTR_CREATE_CQ_FLAGS),
    out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, sizeof(std::uint32_t)),
    fd(UVERBS_ATTR_CREATE_CQ_EVENT_FD, UVERBS_OBJECT_ASYNC_EVENT),
};

int create_cq_by_ioctl(Context& context, IoctlCall& call) {
    ib_uverbs_ex_create_cq request{};
    std::uint64_t flags = 0;
    int error = call.read(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, &request.comp_vector);
    if (error == 0)
        error = call.read(UVERBS_ATTR_CREATE_CQ_CQE, &request.cqe);
    if (error == 0) {
        error = call.read_flags(
            UVERBS_ATTR_CREATE_CQ_FLAGS,
            IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN, &flags);
    }
    if (error != 0)
        return error;
    request.user_handle = call.value(UVERBS_ATTR_CREATE_CQ_USER_HANDLE);
    request.flags = static_cast<std::uint32_t>(flags);
    request.comp_channel = call.has(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL)
                               ? static_cast<int>(call.value(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL))
                               : -1;
    ib_uverbs_ex_create_cq_resp response{};
    error = create_cq_ex(context, call_of(call, request, response));
    if (error != 0)
        return error;
    const std::uint32_t handle = response.base.cq_handle;
    error = call.tell(UVERBS_ATTR_CREATE_CQ_HANDLE, handle);
    if (error == 0)
        error = call.write(UVERBS_ATTR_CREATE_CQ_RESP_CQE, response.base.cqe);
    return end_untold(context, context.cqs, handle, error);
}

// ---- Shared receive queues

constexpr std::array kCreateSrq = {
    created(UVERBS_ATTR_CREATE_SRQ_HANDLE, UVERBS_OBJECT_SRQ),
    object(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, UVERBS_OBJECT_PD),
    constant(UVERBS_ATTR_CREATE_SRQ_TYPE),
    in(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, sizeof(std::uint64_t)),
    in(UVERBS_ATTR_CREATE_SRQ_MAX_WR, sizeof(std::uint32_t)),
    in(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, sizeof(std::uint32_t)),
    in(UVERBS_ATTR_CREATE_SRQ_LIMIT, sizeof(std::uint32_t)),
    object(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, UVERBS_OBJECT_XRCD, false),
    object(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, UVERBS_OBJECT_CQ, false),
    in(UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, sizeof(std::uint32_t), false),
    fd(UVERBS_ATTR_CREATE_SRQ_EVENT_FD, UVERBS_OBJECT_ASYNC_EVENT),
    out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, sizeof(std::uint32_t)),
    out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, sizeof(std::uint32_t)),
    out(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, sizeof(std::uint32_t), false),
};

int read_srq(const IoctlCall& call, ib_uverbs_create_xsrq* request) {
    int error = call.read(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, &request->max_sge);
    if (error == 0)
        error = call.read(UVERBS_ATTR_CREATE_SRQ_MAX_WR, &request->max_wr);
    if (error == 0)
        error = call.read(UVERBS_ATTR_CREATE_SRQ_LIMIT, &request->srq_limit);
    if (error != 0)
        return error;
    request->user_handle = call.value(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE);
    request->pd_handle = call.handle(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE);
    const std::uint64_t type = call.value(UVERBS_ATTR_CREATE_SRQ_TYPE);
    switch (type) {
        case IB_UVERBS_SRQT_BASIC:
            break;
        case IB_UVERBS_SRQT_TM:
            if (!call.has(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE))
                return ENOENT;
            request->cq_handle = call.handle(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE);
            error = call.read(UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, &request->max_num_tags);
            break;
        case IB_UVERBS_SRQT_XRC:
            return ENOENT;  // a domain, and there is none
        default:
            return EINVAL;
    }
    request->srq_type = static_cast<std::uint32_t>(type);
    return error;
}

int create_srq_by_ioctl(Context& context, IoctlCall& call) {
    ib_uverbs_create_xsrq request{};
    if (const int error = read_srq(call, &request))
        return error;
    ib_uverbs_create_srq_resp response{};
    if (const int error = create_xsrq(context, call_of(call, request, response)))
        return error;
    int error = call.tell(UVERBS_ATTR_CREATE_SRQ_HANDLE, response.srq_handle);
    if (error == 0)
        error = call.write(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, response.max_wr);
    if (error == 0)
        error = call.write(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, response.max_sge);
    return end_untold(context, context.srqs, response.srq_handle, error);
}

// ---- Queue pairs

constexpr std::size_t kQpCapBytes = sizeof(ib_uverbs_qp_cap);
constexpr std::array kCreateQp = {
    created(UVERBS_ATTR_CREATE_QP_HANDLE, UVERBS_OBJECT_QP),
    object(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, UVERBS_OBJECT_XRCD, false),
    object(UVERBS_ATTR_CREATE_QP_PD_HANDLE, UVERBS_OBJECT_PD, false),
    object(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, UVERBS_OBJECT_SRQ, false),
    object(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, UVERBS_OBJECT_CQ, false),
    object(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, UVERBS_OBJECT_CQ, false),
    object(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, UVERBS_OBJECT_RWQ_IND_TBL, false),
    in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, sizeof(std::uint64_t)),
    in_struct(UVERBS_ATTR_CREATE_QP_CAP, kQpCapBytes, kQpCapBytes),
    constant(UVERBS_ATTR_CREATE_QP_TYPE),
    flags(UVERBS_ATTR_CREATE_QP_FLAGS),
    in(UVERBS_ATTR_CREATE_QP_SOURCE_QPN, sizeof(std::uint32_t), false),
    fd(UVERBS_ATTR_CREATE_QP_EVENT_FD, UVERBS_OBJECT_ASYNC_EVENT),
    out_struct(UVERBS_ATTR_CREATE_QP_RESP_CAP, kQpCapBytes, kQpCapBytes),
    out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, sizeof(std::uint32_t)),
};

int read_qp_flags(const IoctlCall& call, ib_uverbs_ex_create_qp* request) {
    constexpr std::uint64_t kKnown =
        IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK | IB_UVERBS_QP_CREATE_SCATTER_FCS |
        IB_UVERBS_QP_CREATE_CVLAN_STRIPPING | IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING |
        IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
    std::uint64_t flags = 0;
    if (const int error = call.read_flags(UVERBS_ATTR_CREATE_QP_FLAGS, kKnown, &flags))
        return error;
    request->sq_sig_all = (flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL) != 0 ? 1 : 0;
    flags &= ~std::uint64_t{IB_UVERBS_QP_CREATE_SQ_SIG_ALL};
    if (flags != 0 && request->qp_type != IBV_QPT_UD && request->qp_type != IBV_QPT_DRIVER)
        return EINVAL;
    request->create_flags = static_cast<std::uint32_t>(flags);
    return call.has(UVERBS_ATTR_CREATE_QP_SOURCE_QPN) ? EPERM : 0;
}

int read_qp(const IoctlCall& call, ib_uverbs_ex_create_qp* request) {
    ib_uverbs_qp_cap cap;
    if (const int error = call.read(UVERBS_ATTR_CREATE_QP_CAP, &cap))
        return error;
    const std::uint64_t type = call.value(UVERBS_ATTR_CREATE_QP_TYPE);
    if (type > UINT8_MAX)
        return EINVAL;
    request->qp_type = static_cast<std::uint8_t>(type);
    for (const std::uint16_t id :
         {UVERBS_ATTR_CREATE_QP_PD_HANDLE, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE,
          UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE}) {
        if (!call.has(id))
            return ENOENT;
    }
    request->user_handle = call.value(UVERBS_ATTR_CREATE_QP_USER_HANDLE);
    request->pd_handle = call.handle(UVERBS_ATTR_CREATE_QP_PD_HANDLE);
    request->send_cq_handle = call.handle(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE);
    request->recv_cq_handle = call.handle(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE);
    request->srq_handle = call.handle(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE);
    request->is_srq = call.has(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE) ? 1 : 0;
    request->max_send_wr = cap.max_send_wr;
    request->max_recv_wr = cap.max_recv_wr;
    request->max_send_sge = cap.max_send_sge;
    request->max_recv_sge = cap.max_recv_sge;
    request->max_inline_data = cap.max_inline_data;
    return read_qp_flags(call, request);
}

int create_qp_by_ioctl(Context& context, IoctlCall& call) {
    ib_uverbs_ex_create_qp request{};
    if (const int error = read_qp(call, &request))
        return error;
    ib_uverbs_ex_create_qp_resp response{};
    if (const int error = create_qp_ex(context, call_of(call, request, response)))
        return error;
    const ib_uverbs_create_qp_resp& made = response.base;
    const ib_uverbs_qp_cap cap{.max_send_wr = made.max_send_wr,
                               .max_recv_wr = made.max_recv_wr,
                               .max_send_sge = made.max_send_sge,
                               .max_recv_sge = made.max_recv_sge,
                               .max_inline_data = made.max_inline_data};
    int error = call.tell(UVERBS_ATTR_CREATE_QP_HANDLE, made.qp_handle);
    if (error == 0)
        error = call.write_or_zero(UVERBS_ATTR_CREATE_QP_RESP_CAP, &cap, sizeof cap);
    if (error == 0)
        error = call.write(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, made.qpn);
    return end_untold(context, context.qps, made.qp_handle, error);
}

// ---- Ends. The counts of events are those that the write form answers.

constexpr std::array kDestroyCq = {
    doomed(UVERBS_ATTR_DESTROY_CQ_HANDLE, UVERBS_OBJECT_CQ),
    out(UVERBS_ATTR_DESTROY_CQ_RESP, sizeof(ib_uverbs_destroy_cq_resp)),
};
constexpr std::array kDestroySrq = {
    doomed(UVERBS_ATTR_DESTROY_SRQ_HANDLE, UVERBS_OBJECT_SRQ),
    out(UVERBS_ATTR_DESTROY_SRQ_RESP, sizeof(ib_uverbs_destroy_srq_resp)),
};
constexpr std::array kDestroyQp = {
    doomed(UVERBS_ATTR_DESTROY_QP_HANDLE, UVERBS_OBJECT_QP),
    out(UVERBS_ATTR_DESTROY_QP_RESP, sizeof(ib_uverbs_destroy_qp_resp)),
};

template <typename Request, typename Response>
int destroy_and_tell(Context& context, IoctlCall& call, std::uint16_t answer, Request request,
                     int (*destroy)(Context&, const Call&)) {
    Response response{};
    if (const int error = destroy(context, call_of(call, request, response)))
        return error;
    return call.write(answer, response);
}

int destroy_cq_by_ioctl(Context& context, IoctlCall& call) {
    ib_uverbs_destroy_cq request{};
    request.cq_handle = call.handle(UVERBS_ATTR_DESTROY_CQ_HANDLE);
    return destroy_and_tell<ib_uverbs_destroy_cq, ib_uverbs_destroy_cq_resp>(
        context, call, UVERBS_ATTR_DESTROY_CQ_RESP, request, destroy_cq);
}
int destroy_srq_by_ioctl(Context& context, IoctlCall& call) {
    ib_uverbs_destroy_srq request{};
    request.srq_handle = call.handle(UVERBS_ATTR_DESTROY_SRQ_HANDLE);
    return destroy_and_tell<ib_uverbs_destroy_srq, ib_uverbs_destroy_srq_resp>(
        context, call, UVERBS_ATTR_DESTROY_SRQ_RESP, request, destroy_srq);
}
int destroy_qp_by_ioctl(Context& context, IoctlCall& call) {
    ib_uverbs_destroy_qp request{};
    request.qp_handle = call.handle(UVERBS_ATTR_DESTROY_QP_HANDLE);
    return destroy_and_tell<ib_uverbs_destroy_qp, ib_uverbs_destroy_qp_resp>(
        context, call, UVERBS_ATTR_DESTROY_QP_RESP, request, destroy_qp);
}

constexpr std::array kDestroyPd = {doomed(UVERBS_ATTR_DESTROY_PD_HANDLE, UVERBS_OBJECT_PD)};
constexpr std::array kDestroyMr = {doomed(UVERBS_ATTR_DESTROY_MR_HANDLE, UVERBS_OBJECT_MR)};
constexpr std::array kDestroyAh = {doomed(UVERBS_ATTR_DESTROY_AH_HANDLE, UVERBS_OBJECT_AH)};

int destroy_pd(Context& context, IoctlCall& call) {
    return end_object(context, context.pds, call.handle(UVERBS_ATTR_DESTROY_PD_HANDLE));
}
int destroy_mr(Context& context, IoctlCall& call) {
    return end_object(context, context.mrs, call.handle(UVERBS_ATTR_DESTROY_MR_HANDLE));
}
int destroy_ah_by_ioctl(Context& context, IoctlCall& call) {
    return end_object(context, context.ahs, call.handle(UVERBS_ATTR_DESTROY_AH_HANDLE));
}

// ---- For who imports an object by its handle

constexpr std::array kQueryMr = {
    object(UVERBS_ATTR_QUERY_MR_HANDLE, UVERBS_OBJECT_MR),
    out(UVERBS_ATTR_QUERY_MR_RESP_LKEY, sizeof(std::uint32_t)),
    out(UVERBS_ATTR_QUERY_MR_RESP_RKEY, sizeof(std::uint32_t)),
    out(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, sizeof(std::uint64_t)),
    out(UVERBS_ATTR_QUERY_MR_RESP_IOVA, sizeof(std::uint64_t), false),
};

int query_mr(Context& context, IoctlCall& call) {
    const Mr& mr = *context.mrs.find(call.handle(UVERBS_ATTR_QUERY_MR_HANDLE))->core;
    int error = call.write(UVERBS_ATTR_QUERY_MR_RESP_LKEY, mr.key);
    if (error == 0)
        error = call.write(UVERBS_ATTR_QUERY_MR_RESP_RKEY, mr.key);
    if (error == 0)
        error = call.write(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, mr.length);
    return error != 0 ? error : call.write_if_asked(UVERBS_ATTR_QUERY_MR_RESP_IOVA, mr.iova);
}

constexpr std::array kQueryPd = {
    object(MLX5_IB_ATTR_QUERY_PD_HANDLE, UVERBS_OBJECT_PD),
    out(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, sizeof(std::uint32_t)),
};

int query_pd(Context& /*context*/, IoctlCall& call) {
    return call.write(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, call.handle(MLX5_IB_ATTR_QUERY_PD_HANDLE));
}

constexpr std::array kAdviseMr = {
    object(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, UVERBS_OBJECT_PD),
    constant(UVERBS_ATTR_ADVISE_MR_ADVICE),
    AttributeSpec{UVERBS_ATTR_ADVISE_MR_FLAGS, AttributeSpec::Kind::kIn, true, 0, 4, 8},
    in_from(UVERBS_ATTR_ADVISE_MR_SGE_LIST, sizeof(ib_uverbs_sge)),
};

/// A card without on-demand paging has nothing to prefetch.
int advise_mr(Context& /*context*/, IoctlCall& /*call*/) {
    return EOPNOTSUPP;
}

constexpr std::array kObjectMethods = {
    IoctlMethod{UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, kCreateCq, create_cq_by_ioctl, true},
    IoctlMethod{UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, kDestroyCq, destroy_cq_by_ioctl},
    IoctlMethod{UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE, kCreateSrq, create_srq_by_ioctl, true},
    IoctlMethod{UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, kDestroySrq, destroy_srq_by_ioctl},
    IoctlMethod{UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, kCreateQp, create_qp_by_ioctl, true},
    IoctlMethod{UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, kDestroyQp, destroy_qp_by_ioctl},
    IoctlMethod{UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, kDestroyPd, destroy_pd},
    IoctlMethod{UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY, kQueryPd, query_pd},
    IoctlMethod{UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, kDestroyMr, destroy_mr},
    IoctlMethod{UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, kQueryMr, query_mr},
    IoctlMethod{UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR, kAdviseMr, advise_mr},
    IoctlMethod{UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, kDestroyAh, destroy_ah_by_ioctl},
};

}  // namespace

std::span<const IoctlMethod> object_methods() {
    return kObjectMethods;
}

}  // namespace tagwire::vhca::driver
