// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dc_verbs.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "ucs/log/log.hpp"
#include "uct/ib/address.hpp"
#include "uct/ib/codes.hpp"
#include "uct/ib/dc/dc_refusal.hpp"

/// As vhca/README.md has it: what the virtual HCA tells and rdma-core does not.
struct tagwire_vhca_tm_caps {
    std::uint32_t flags;
};

namespace tagwire::dc {

namespace {

constexpr const char* kMlx5Library = "libmlx5.so.1";
constexpr const char* kVirtualPrefix = "tagwire_vhca_";
constexpr unsigned kSendOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                              IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
                              IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                              IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

/// The functions of one verbs library, or why there are none.
struct Loaded {
    std::string problem = "not looked for";
    DcVerbs verbs;
};

Loaded load(const ib::VerbsLibrary& library) {
    Loaded loaded{{}, {}};
    const bool is_virtual = library.origin == ib::VerbsOrigin::kVirtual;
    const std::string prefix = is_virtual ? kVirtualPrefix : "";
    // Never unloaded, as the verbs library itself.
    void* verbs = ::dlopen(library.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* mlx5 = is_virtual ? verbs : ::dlopen(kMlx5Library, RTLD_NOW | RTLD_LOCAL);
    if (verbs == nullptr || mlx5 == nullptr) {
        const char* text = ::dlerror();
        loaded.problem = text != nullptr ? text : "cannot be loaded";
        return loaded;
    }
    const auto find = [&](void* handle, const char* name) {
        void* function = ::dlsym(handle, (prefix + name).c_str());
        if (function == nullptr && loaded.problem.empty())
            loaded.problem = "libmlx5 has no function " + prefix + name;
        return function;
    };
    DcVerbs& to = loaded.verbs;
    to.is_supported =
        reinterpret_cast<decltype(to.is_supported)>(find(mlx5, "mlx5dv_is_supported"));
    to.query_device =
        reinterpret_cast<decltype(to.query_device)>(find(mlx5, "mlx5dv_query_device"));
    to.create_qp = reinterpret_cast<decltype(to.create_qp)>(find(mlx5, "mlx5dv_create_qp"));
    to.to_mlx5 = reinterpret_cast<decltype(to.to_mlx5)>(find(mlx5, "mlx5dv_qp_ex_from_ibv_qp_ex"));
    to.to_extended = reinterpret_cast<decltype(to.to_extended)>(find(verbs, "ibv_qp_to_qp_ex"));
    to.reset_stream = reinterpret_cast<decltype(to.reset_stream)>(
        ::dlsym(mlx5, (prefix + "mlx5dv_dci_stream_id_reset").c_str()));
    return loaded;
}

const Loaded& loaded_of(const ib::VerbsLibrary& library) {
    static std::mutex lock;
    static std::array<Loaded, 2> both;
    static std::array<bool, 2> is_there{};
    const auto index = static_cast<std::size_t>(library.origin);
    const std::lock_guard guard(lock);
    if (!is_there[index]) {
        both[index] = load(library);
        is_there[index] = true;
    }
    return both[index];
}

ucs_status_t failed(const ib::IbMd& md, const char* call, int error) {
    return ib::call_failed(md.device(), call, error);
}

}  // namespace

const DcVerbs* dc_verbs_of(const ib::Device& device, std::string* reason_p) {
    const Loaded& loaded = loaded_of(device.library());
    if (!loaded.problem.empty()) {
        *reason_p = "has no DC: " + loaded.problem;
        return nullptr;
    }
    if (!loaded.verbs.is_supported(device.context()->device)) {
        *reason_p = "has no DC: it is no mlx5 device";
        return nullptr;
    }
    return &loaded.verbs;
}

unsigned dc_streams_log_max(const ib::Device& device, const DcVerbs& dc) {
    mlx5dv_context attr{};
    attr.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS;
    if (dc.reset_stream == nullptr || dc.query_device(device.context(), &attr) != 0 ||
        (attr.comp_mask & MLX5DV_CONTEXT_MASK_DCI_STREAMS) == 0)
        return 0;
    return std::min(attr.dci_streams_caps.max_log_num_concurent,
                    attr.dci_streams_caps.max_log_num_errored);
}

DcTagMatching dc_tag_matching_of(const ib::Device& device) {
    using Query = int (*)(ibv_context*, tagwire_vhca_tm_caps*);
    constexpr std::uint32_t kOffered = 1, kRendezvous = 2;
    void* handle = ::dlopen(device.library().path.c_str(), RTLD_NOW | RTLD_LOCAL);
    const auto query = handle == nullptr
                           ? nullptr
                           : reinterpret_cast<Query>(::dlsym(handle, "tagwire_vhca_query_tm"));
    tagwire_vhca_tm_caps caps{};
    if (query == nullptr || query(device.context(), &caps) != 0)
        return {};
    return {(caps.flags & kOffered) != 0, (caps.flags & kRendezvous) != 0};
}

// ---- Targets

ucs_status_t make_target(const ib::IbMd& md, const DcVerbs& dc, const ib::Port& port,
                         const TargetParams& params, ib::OwnedQp* qp_p) {
    ibv_qp_init_attr_ex init{};
    init.qp_context = params.context;
    init.qp_type = IBV_QPT_DRIVER;
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    init.pd = md.pd();
    // A target sends nothing, but libibverbs reads the handle of its send queue's CQ.
    init.send_cq = init.recv_cq = params.cq;
    init.srq = params.srq;
    mlx5dv_qp_init_attr extra{};
    extra.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    extra.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
    extra.dc_init_attr.dct_access_key = params.key;
    ibv_qp* qp = dc.create_qp(md.device().context(), &init, &extra);
    if (qp == nullptr)
        return failed(md, "mlx5dv_create_qp of a DCT", errno);
    ib::OwnedQp owned = ib::owned(qp, md.verbs().destroy_qp);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.pkey_index = port.pkey_index;
    attr.port_num = port.number;
    attr.qp_access_flags = ib::access_of(md.device());
    int error = md.verbs().modify_qp(
        qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (error != 0)
        return failed(md, "ibv_modify_qp of a DCT to INIT", error);
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = port.attr.active_mtu;
    attr.min_rnr_timer = params.rnr_timer_code;
    attr.ah_attr = ib::path_from(port, md.traffic_class(), md.service_level());
    error = md.verbs().modify_qp(qp, &attr,
                                 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER);
    if (error != 0)
        return failed(md, "ibv_modify_qp of a DCT to RTR", error);
    *qp_p = std::move(owned);
    return UCS_OK;
}

// ---- Initiators

namespace {

ucs_status_t start(const ib::IbMd& md, const ib::Port& port, const InitiatorParams& params,
                   ibv_qp* qp) {
    const auto modify = md.verbs().modify_qp;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.pkey_index = port.pkey_index;
    attr.port_num = port.number;
    int error = modify(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT);
    if (error != 0)
        return failed(md, "ibv_modify_qp of a DCI to INIT", error);
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = params.mtu;
    attr.ah_attr = ib::path_from(port, md.traffic_class(), md.service_level());
    error = modify(qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV);
    if (error != 0)
        return failed(md, "ibv_modify_qp of a DCI to RTR", error);
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = params.timeout_code;
    attr.retry_cnt = params.retry_count;
    attr.rnr_retry = params.rnr_retry;
    attr.max_rd_atomic = params.reads;
    error = modify(qp, &attr,
                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    return error == 0 ? UCS_OK : failed(md, "ibv_modify_qp of a DCI to RTS", error);
}

/// nullptr: errno says why. The inline size is what it has on return.
ibv_qp* create_initiator(const ib::IbMd& md, const DcVerbs& dc, InitiatorParams& params) {
    ibv_qp_init_attr_ex init{};
    init.qp_context = params.context;
    init.qp_type = IBV_QPT_DRIVER;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = kSendOps;
    if (md.device().attr().orig_attr.atomic_cap == IBV_ATOMIC_NONE)
        init.send_ops_flags &=
            ~std::uint64_t{IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD};
    init.pd = md.pd();
    init.send_cq = init.recv_cq = params.cq;
    init.cap.max_send_wr = params.depth;
    init.cap.max_send_sge = params.sges_max;
    init.cap.max_inline_data = params.inline_bytes;
    mlx5dv_qp_init_attr extra{};
    extra.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    extra.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
    if (params.streams_log > 0) {
        const auto log = static_cast<std::uint8_t>(params.streams_log);
        extra.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
        extra.dc_init_attr.dci_streams = {.log_num_concurent = log, .log_num_errored = log};
    }
    ibv_qp* qp = dc.create_qp(md.device().context(), &init, &extra);
    if (qp != nullptr)
        params.inline_bytes = init.cap.max_inline_data;
    return qp;
}

ucs_status_t refused(const ib::IbMd& md, const DcVerbs& dc, const InitiatorParams& params,
                     int error) {
    constexpr const char* kCall = "mlx5dv_create_qp of a DCI";
    if (!params.is_first)
        return failed(md, kCall, error);
    const auto can_be_made = [&](InitiatorParams tried) {
        ibv_qp* qp = create_initiator(md, dc, tried);
        return ib::owned(qp, md.verbs().destroy_qp) != nullptr;
    };
    const unsigned streams_log_max = dc_streams_log_max(md.device(), dc);
    TW_LOG_ERROR("%s: %s failed: %s: %s", md.device().name().c_str(), kCall, std::strerror(error),
                 why_refused(md.device(), params, streams_log_max, can_be_made).c_str());
    return error == ENOMEM ? UCS_ERR_NO_MEMORY : UCS_ERR_EXCEEDS_LIMIT;
}

}  // namespace

bool can_reset_streams(const ib::IbMd& md, const DcVerbs& dc, const ib::Port& port) {
    const auto cq = ib::owned(md.verbs().create_cq(md.device().context(), 1, nullptr, nullptr, 0),
                              md.verbs().destroy_cq);
    if (cq == nullptr)
        return true;
    InitiatorParams params{.cq = cq.get(),
                           .context = nullptr,
                           .depth = 1,
                           .sges_max = 1,
                           .inline_bytes = 0,
                           .streams_log = 1,
                           .timeout_code = 1,
                           .retry_count = 1,
                           .rnr_retry = 1,
                           .reads = 1,
                           .mtu = port.attr.active_mtu};
    const auto qp = ib::owned(create_initiator(md, dc, params), md.verbs().destroy_qp);
    return qp == nullptr || start(md, port, params, qp.get()) != UCS_OK ||
           dc.reset_stream(qp.get(), 0) != EOPNOTSUPP;
}

ucs_status_t make_initiator(const ib::IbMd& md, const DcVerbs& dc, const ib::Port& port,
                            InitiatorParams& params, Initiator* initiator_p) {
    InitiatorParams given = params;
    ibv_qp* qp = create_initiator(md, dc, given);
    if (qp == nullptr)
        return refused(md, dc, params, errno);
    Initiator made{ib::owned(qp, md.verbs().destroy_qp), dc.to_extended(qp), nullptr,
                   params.streams_log > 0};
    made.mlx5 = dc.to_mlx5(made.extended);
    const ucs_status_t status = start(md, port, params, qp);
    if (status != UCS_OK)
        return status;
    params = given;
    *initiator_p = std::move(made);
    return UCS_OK;
}

ucs_status_t restart(const ib::IbMd& md, const ib::Port& port, const InitiatorParams& params,
                     const Initiator& initiator) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    const int error = md.verbs().modify_qp(initiator.qp.get(), &attr, IBV_QP_STATE);
    if (error != 0)
        return failed(md, "ibv_modify_qp of a DCI to RESET", error);
    return start(md, port, params, initiator.qp.get());
}

ucs_status_t restart_stream(const ib::IbMd& md, const DcVerbs& dc, const Initiator& initiator,
                            std::uint16_t stream) {
    const int error = dc.reset_stream(initiator.qp.get(), stream);
    return error == 0 ? UCS_OK : failed(md, "mlx5dv_dci_stream_id_reset", error);
}

}  // namespace tagwire::dc
