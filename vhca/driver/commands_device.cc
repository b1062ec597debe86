// SPDX-License-Identifier: BSD-3-Clause
// The device and its port: who they are, and what they can do.
#include <tagwire_version.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>

#include "vhca/driver/commands.hpp"
#include "vhca/setup/attach.hpp"
#include "vhca/setup/describe.hpp"
#include "vhca/setup/hardware_profile.hpp"

namespace tagwire::vhca::driver {
namespace {

constexpr std::uint32_t kBfregsOfPage = 2;  // that programs share; a page has two more
constexpr std::uint32_t kBfregsMax = 512;
constexpr std::uint32_t kDynamicBfregs = 512;  // of thread domains
constexpr std::uint32_t kBlueFlameBytes = 512;
constexpr std::uint32_t kCacheLineBytes = 64;
constexpr std::uint32_t kQpTableEntries = 1 << 18;
constexpr std::uint16_t kSendEntryBytesMax = 1024, kReceiveEntryBytesMin = 512;
constexpr std::uint8_t kCqeVersion = 1;

int read_alloc_request(const Context& context, UserSpan from,
                       mlx5_ib_alloc_ucontext_req_v2* request) {
    constexpr std::size_t kFirstBytes = sizeof(mlx5_ib_alloc_ucontext_req);
    constexpr std::size_t kSecondBytesMin =
        offsetof(mlx5_ib_alloc_ucontext_req_v2, max_cqe_version);
    if (from.bytes != kFirstBytes && from.bytes < kSecondBytesMin)
        return EINVAL;
    if (const int error = read_user(from, request))
        return error;
    if ((request->flags & ~std::uint32_t{MLX5_IB_ALLOC_UCTX_DEVX}) != 0 ||
        request->comp_mask != 0 || request->reserved0 != 0 || request->reserved1 != 0 ||
        request->reserved2 != 0) {
        return EOPNOTSUPP;
    }
    if (request->total_num_bfregs == 0)
        return EINVAL;
    if (request->total_num_bfregs > kBfregsMax)
        return ENOMEM;
    request->total_num_bfregs =
        (request->total_num_bfregs + kBfregsOfPage - 1) / kBfregsOfPage * kBfregsOfPage;
    if (request->num_low_latency_bfregs > request->total_num_bfregs - 1)
        return EINVAL;
    // A card whose firmware knows no user contexts says so; libmlx5 asks again without it.
    return (request->flags & MLX5_IB_ALLOC_UCTX_DEVX) != 0 && !context.has_devx ? EINVAL : 0;
}

/// As firmware versions are: three numbers.
std::uint64_t firmware_version() {
    unsigned major = 0, minor = 0, patch = 0;
    static_cast<void>(std::sscanf(TAGWIRE_VERSION_STRING, "%u.%u.%u", &major, &minor, &patch));
    return std::uint64_t{major} << 32 | std::uint64_t{minor} << 16 | patch;
}

ib_uverbs_query_device_resp facts_of(const Context& context) {
    ibv_device_attr attr;
    describe_device(context.reported, &attr);
    ib_uverbs_query_device_resp facts{};
    facts.fw_ver = firmware_version();
    facts.node_guid = attr.node_guid;
    facts.sys_image_guid = attr.sys_image_guid;
    facts.max_mr_size = attr.max_mr_size;
    facts.page_size_cap = attr.page_size_cap;
    facts.vendor_id = attr.vendor_id;
    facts.vendor_part_id = attr.vendor_part_id;
    facts.hw_ver = attr.hw_ver;
    // The driver resizes no SRQ, whatever the device could.
    facts.device_cap_flags = attr.device_cap_flags & ~static_cast<unsigned>(IBV_DEVICE_SRQ_RESIZE);
    facts.atomic_cap = attr.atomic_cap;
    facts.max_pkeys = attr.max_pkeys;
    facts.local_ca_ack_delay = attr.local_ca_ack_delay;
    facts.phys_port_cnt = attr.phys_port_cnt;
    const auto copy = [](std::uint32_t& to, int from) { to = static_cast<std::uint32_t>(from); };
    copy(facts.max_qp, attr.max_qp);
    copy(facts.max_qp_wr, attr.max_qp_wr);
    copy(facts.max_sge, attr.max_sge);
    copy(facts.max_sge_rd, attr.max_sge_rd);
    copy(facts.max_cq, attr.max_cq);
    copy(facts.max_cqe, attr.max_cqe);
    copy(facts.max_mr, attr.max_mr);
    copy(facts.max_pd, attr.max_pd);
    copy(facts.max_qp_rd_atom, attr.max_qp_rd_atom);
    copy(facts.max_res_rd_atom, attr.max_res_rd_atom);
    copy(facts.max_qp_init_rd_atom, attr.max_qp_init_rd_atom);
    copy(facts.max_ah, attr.max_ah);
    copy(facts.max_srq, attr.max_srq);
    copy(facts.max_srq_wr, attr.max_srq_wr);
    copy(facts.max_srq_sge, attr.max_srq_sge);
    return facts;
}

}  // namespace

mlx5_ib_alloc_ucontext_resp driver_facts(const Context& context, UserSpan to,
                                         std::uint32_t bfregs) {
    const DeviceConfig& config = context.engine.device().config();
    mlx5_ib_alloc_ucontext_resp facts{};
    facts.qp_tab_size = kQpTableEntries;
    facts.bf_reg_size = kBlueFlameBytes;
    facts.tot_bfregs = bfregs;
    facts.cache_line_size = kCacheLineBytes;
    facts.max_sq_desc_sz = kSendEntryBytesMax;
    const std::uint32_t list_bytes =
        kSegmentBytes * (1 + std::max(context.reported.sge_max, context.reported.srq_sge_max));
    facts.max_rq_desc_sz = static_cast<std::uint16_t>(
        std::max<std::uint32_t>(kReceiveEntryBytesMin, std::bit_ceil(list_bytes)));
    facts.max_send_wqebb = facts.max_recv_wr = config.qp_wr_max;
    facts.max_srq_recv_wr = config.srq_wr_max + 1;
    facts.num_ports = config.ports;
    facts.response_length = response_length<mlx5_ib_alloc_ucontext_resp>(to);
    facts.cqe_version = kCqeVersion;
    facts.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH;
    facts.eth_min_inline = MLX5_USER_INLINE_MODE_NONE;
    facts.log_uar_size = 12;
    facts.num_uars_per_page = 1;
    facts.num_dyn_bfregs = kDynamicBfregs;
    facts.clock_info_versions = context.has_clock_page ? 1U << MLX5_IB_CLOCK_INFO_V1 : 0;
    return facts;
}

int get_context(Context& context, const Call& call) {
    mlx5_ib_alloc_ucontext_req_v2 request;
    if (const int error = read_alloc_request(context, call.driver_in, &request))
        return error;
    // A program that allocates its pages one by one, by ioctl, needs none of these.
    if (context.has_ioctl && (request.lib_caps & MLX5_LIB_CAP_DYN_UAR) != 0)
        request.total_num_bfregs = request.num_low_latency_bfregs = 0;
    auto pipe = EventPipe::create(sizeof(ib_uverbs_async_event_desc));
    if (pipe == nullptr)
        return errno;
    const ib_uverbs_get_context_resp response{
        .async_fd = static_cast<std::uint32_t>(pipe->program_fd()),
        .num_comp_vectors = kCompVectors};
    int error = write_user(call.core_out, response);
    if (error == 0) {
        error = write_user(call.driver_out,
                           driver_facts(context, call.driver_out, request.total_num_bfregs));
    }
    if (error != 0) {
        ::close(pipe->program_fd());
        return error;
    }
    // Those of low latency are of one queue pair each, which nobody here needs.
    context.bfregs = request.total_num_bfregs - request.num_low_latency_bfregs;
    context.async_pipe = std::move(pipe);
    return 0;
}

int query_device(Context& context, const Call& call) {
    return write_response(call.core_out, facts_of(context));
}

int query_device_ex(Context& context, const Call& call) {
    ib_uverbs_ex_query_device request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    if (request.comp_mask != 0 || request.reserved != 0)
        return EINVAL;
    ib_uverbs_ex_query_device_resp facts{};
    facts.base = facts_of(context);
    facts.response_length = response_length<ib_uverbs_ex_query_device_resp>(call.core_out);
    if (hardware_profile().has_timestamps) {
        facts.timestamp_mask = UINT64_MAX;
        facts.hca_core_clock = 1'000'000;  // kHz: timestamps are nanoseconds
    }
    facts.device_cap_flags_ex = facts.base.device_cap_flags;
    const ibv_tm_caps tags = tm_caps_of(context.reported);
    facts.tm_caps = {.max_rndv_hdr_size = tags.max_rndv_hdr_size,
                     .max_num_tags = tags.max_num_tags,
                     .flags = tags.flags,
                     .max_ops = tags.max_ops,
                     .max_sge = tags.max_sge,
                     .reserved = 0};
    mlx5_ib_query_device_resp more{};
    more.response_length = response_length<mlx5_ib_query_device_resp>(call.driver_out);
    more.flags = MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD;
    if (context.reported.has_dc) {
        more.dci_streams_caps = {.max_log_num_concurent = context.reported.dc_streams_log_max,
                                 .max_log_num_errored = context.reported.dc_errored_log_max};
    }
    if (const int error = write_user(call.driver_out, more))
        return error;
    return write_response(call.core_out, facts);
}

int query_port(Context& context, const Call& call) {
    ib_uverbs_query_port request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    if (!is_port(context.engine, request.port_num))
        return EINVAL;
    ibv_port_attr attr;
    describe_port(context.engine, request.port_num, &attr);
    ib_uverbs_query_port_resp facts{};
    facts.port_cap_flags = attr.port_cap_flags;
    facts.max_msg_sz = attr.max_msg_sz;
    facts.bad_pkey_cntr = attr.bad_pkey_cntr;
    facts.qkey_viol_cntr = attr.qkey_viol_cntr;
    facts.gid_tbl_len = static_cast<std::uint32_t>(attr.gid_tbl_len);
    facts.pkey_tbl_len = attr.pkey_tbl_len;
    facts.lid = attr.lid;
    facts.sm_lid = attr.sm_lid;
    facts.state = static_cast<std::uint8_t>(attr.state);
    facts.max_mtu = static_cast<std::uint8_t>(attr.max_mtu);
    facts.active_mtu = static_cast<std::uint8_t>(attr.active_mtu);
    facts.lmc = attr.lmc;
    facts.max_vl_num = attr.max_vl_num;
    facts.sm_sl = attr.sm_sl;
    facts.subnet_timeout = attr.subnet_timeout;
    facts.init_type_reply = attr.init_type_reply;
    facts.active_width = attr.active_width;
    facts.active_speed = attr.active_speed;
    facts.phys_state = attr.phys_state;
    facts.link_layer = attr.link_layer;
    facts.flags = attr.flags;
    return write_response(call.core_out, facts);
}

}  // namespace tagwire::vhca::driver
