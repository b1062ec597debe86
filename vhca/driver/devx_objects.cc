// SPDX-License-Identifier: BSD-3-Clause
// Objects that are made by commands of the device: the command becomes the kernel's for the same
// kind of object. Pages of the program are named by what UMEM_REG gave out.
#include <algorithm>
#include <cerrno>

#include "vhca/driver/devx_commands.hpp"

namespace tagwire::vhca::driver {
namespace {

using ObjectKind = DevxObject::Kind;

template <typename In, typename Driver, typename Out, typename DriverOut>
Call call_of(In& in, Driver& driver, Out& out, DriverOut& driver_out) {
    const auto span_of = [](auto& value) {
        return UserSpan{reinterpret_cast<std::uint64_t>(&value), sizeof value};
    };
    return {.core_in = span_of(in),
            .driver_in = span_of(driver),
            .core_out = span_of(out),
            .driver_out = span_of(driver_out),
            .is_of_device = true};
}

/// Bytes that a queue pair or target asks for (cs_req, cs_res): 32 or 64.
std::uint8_t data_in_cqe(std::uint32_t field) {
    constexpr std::uint32_t kLong = 2;
    const std::uint8_t chosen = (field & kLong) != 0 ? 64 : 32;
    return field == 0 ? std::uint8_t{0} : chosen;
}

/// Handles by the numbers that the device knows; 0: there is none.
std::uint32_t cq_handle(const Context& context, std::uint32_t number) {
    std::uint32_t found = 0;
    context.cqs.for_each([&](std::uint32_t handle, const CqObject& cq) {
        found = cq.ring->number() == number ? handle : found;
    });
    return found;
}
std::uint32_t srq_handle(const Context& context, std::uint32_t number) {
    std::uint32_t found = 0;
    context.srqs.for_each([&](std::uint32_t handle, const SrqObject& srq) {
        found = srq.core->number() == number ? handle : found;
    });
    return found;
}

int create_cq_object(Context& context, const DevxCommand& command, DevxObject* object) {
    const Reader fields(command.in, prm::kCqOfCreate);
    const Reader top(command.in, 0);
    const unsigned log_entries = fields.get(prm::cq::kLogEntries);
    const auto umem = top.get(prm::cq::kUmem);
    const auto offset = top.get<std::uint64_t>(prm::cq::kUmemOffset);
    ib_uverbs_ex_create_cq request{};
    request.cqe = (1U << std::min(log_entries, 31U)) - 1;
    request.comp_channel = -1;
    request.flags = fields.has(prm::cq::kIgnoresOverrun) ? IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN : 0;
    mlx5_ib_create_cq driver{};
    driver.buf_addr = address_in(context, umem, offset);
    driver.db_addr = address_in(context, fields.get(prm::cq::kRecordUmem),
                                fields.get<std::uint64_t>(prm::cq::kRecordOffset));
    driver.cqe_size = fields.get(prm::cq::kEntryBytes) == 1 ? 128 : 64;
    driver.cqe_comp_en = static_cast<std::uint8_t>(fields.get(prm::cq::kCompresses));
    if (log_entries == 0 || driver.db_addr == 0 ||
        !has_doorbell_page(context, fields.get(prm::cq::kUarPage)) ||
        !holds(context, umem, offset, (std::uint64_t{1} << log_entries) * driver.cqe_size)) {
        return refuse(command, prm::kBadResource);
    }
    ib_uverbs_ex_create_cq_resp response{};
    mlx5_ib_create_cq_resp made{};
    if (const int error = create_cq_ex(context, call_of(request, driver, response, made)))
        return refuse(command, error);
    *object = {.kind = ObjectKind::kCq,
               .handle = response.base.cq_handle,
               .number = made.cqn,
               .umems = {umem, fields.get(prm::cq::kRecordUmem)}};
    context.cqs.find(object->handle)->is_devx = true;
    prm::set(command.out, prm::kNumber, made.cqn);
    return 0;
}

/// Receives in a list or a ring, with room for a link in either: of an RMP, or of an XRQ, which
/// matches tags.
int create_list(Context& context, const DevxCommand& command, unsigned wq_base,
                ib_uverbs_create_xsrq request, std::uint32_t user_index, DevxObject* object) {
    const Reader wq(command.in, wq_base);
    const unsigned log_entries = wq.get(prm::wq::kLogEntries);
    const unsigned log_bytes = wq.get(prm::wq::kLogEntryBytes);
    const auto umem = wq.get(prm::wq::kUmem);
    mlx5_ib_create_srq driver{};
    driver.buf_addr = address_in(context, umem, 0);
    driver.db_addr = address_in(context, wq.get(prm::wq::kRecordUmem),
                                wq.get<std::uint64_t>(prm::wq::kRecordOffset));
    driver.uidx = user_index;
    constexpr unsigned kLogBytesMin = 5, kLogEntriesMax = 15;
    const auto kind = wq.get(prm::wq::kKind);
    if ((kind != prm::wq::kLinkedList && kind != prm::wq::kCyclic) || log_bytes < kLogBytesMin ||
        log_entries == 0 || log_entries > kLogEntriesMax) {
        return refuse(command, prm::kBadParameter);
    }
    if (driver.db_addr == 0 ||
        !holds(context, umem, 0, std::uint64_t{1} << (log_entries + log_bytes))) {
        return refuse(command, prm::kBadResource);
    }
    request.pd_handle = wq.get(prm::wq::kPd);
    request.max_wr = (1U << log_entries) - 1;
    request.max_sge = (1U << log_bytes) / static_cast<unsigned>(kSegmentBytes) - 1;
    ib_uverbs_create_srq_resp response{};
    mlx5_ib_create_srq_resp made{};
    if (const int error = create_xsrq(context, call_of(request, driver, response, made)))
        return refuse(command, error);
    *object = {.kind = ObjectKind::kSrq,
               .handle = response.srq_handle,
               .number = made.srqn,
               .umems = {umem, wq.get(prm::wq::kRecordUmem)}};
    SrqObject& srq = *context.srqs.find(object->handle);
    srq.is_devx = true;
    srq.ring->set_cyclic(kind == prm::wq::kCyclic);
    prm::set(command.out, prm::kNumber, made.srqn);
    return 0;
}

int create_rmp(Context& context, const DevxCommand& command, DevxObject* object) {
    ib_uverbs_create_xsrq request{};
    request.srq_type = IBV_SRQT_BASIC;
    return create_list(context, command, prm::kRmpOfCreate + prm::kWqOfRmp, request, 0, object);
}

int create_xrq(Context& context, const DevxCommand& command, DevxObject* object) {
    const Reader fields(command.in, prm::kXrqOfCreate);
    if (fields.get(prm::xrq::kTopology) != prm::xrq::kTagMatching)
        return refuse(command, prm::kBadParameter);
    ib_uverbs_create_xsrq request{};
    request.srq_type = IBV_SRQT_TM;
    request.cq_handle = cq_handle(context, fields.get(prm::xrq::kCq));
    request.max_num_tags =
        std::min(1U << fields.get(prm::xrq::kLogTags), context.reported.tm_tags_max);
    return create_list(context, command, prm::kXrqOfCreate + prm::kWqOfXrq, request,
                       fields.get(prm::xrq::kUserIndex), object);
}

int create_qp_object(Context& context, const DevxCommand& command, DevxObject* object) {
    const Reader fields(command.in, prm::kQpContext);
    const Reader top(command.in, 0);
    ib_uverbs_ex_create_qp request{};
    mlx5_ib_create_qp driver{};
    switch (fields.get(prm::qp::kService)) {
        case prm::qp::kServiceRc:
            request.qp_type = IBV_QPT_RC;
            break;
        case prm::qp::kServiceDci:
            request.qp_type = IBV_QPT_DRIVER;
            driver.flags = MLX5_QP_FLAG_TYPE_DCI;
            if (fields.has(prm::qp::kLogStreams)) {
                driver.flags |= MLX5_QP_FLAG_DCI_STREAM;
                driver.dci_streams = {
                    .log_num_concurent = fields.get<std::uint8_t>(prm::qp::kLogStreams),
                    .log_num_errored = fields.get<std::uint8_t>(prm::qp::kLogErrored)};
            }
            break;
        default:
            return refuse(command, prm::kBadParameter);
    }
    // The record tells how much is posted.
    const auto receives = fields.get(prm::qp::kReceiveKind);
    if ((receives != prm::qp::kReceivesSrq && receives != prm::qp::kReceivesNone &&
         receives != prm::qp::kReceivesOwn) ||
        fields.has(prm::qp::kRecordMode)) {
        return refuse(command, prm::kBadParameter);
    }
    request.pd_handle = fields.get(prm::qp::kPd);
    request.send_cq_handle = cq_handle(context, fields.get(prm::qp::kSendCq));
    request.recv_cq_handle = cq_handle(context, fields.get(prm::qp::kReceiveCq));
    request.is_srq = receives == prm::qp::kReceivesSrq ? 1 : 0;
    request.srq_handle = srq_handle(context, fields.get(prm::qp::kSrq));
    const auto umem = top.get(prm::qp::kUmem);
    const auto offset = top.get<std::uint64_t>(prm::qp::kUmemOffset);
    driver.sq_wqe_count =
        fields.has(prm::qp::kHasNoSends) ? 0 : 1U << fields.get(prm::qp::kLogSends);
    std::uint64_t receive_bytes = 0;
    if (receives == prm::qp::kReceivesOwn) {
        constexpr std::uint32_t kLogSegmentBytes = 4;
        driver.rq_wqe_count = 1U << fields.get(prm::qp::kLogReceives);
        driver.rq_wqe_shift = kLogSegmentBytes + fields.get(prm::qp::kLogReceiveSegments);
        receive_bytes = std::uint64_t{driver.rq_wqe_count} << driver.rq_wqe_shift;
        request.max_recv_wr = driver.rq_wqe_count;
        request.max_recv_sge = 1U << fields.get(prm::qp::kLogReceiveSegments);
    }
    driver.buf_addr = address_in(context, umem, offset);
    driver.db_addr = address_in(context, fields.get(prm::qp::kRecordUmem),
                                fields.get<std::uint64_t>(prm::qp::kRecordOffset));
    driver.uidx = fields.get(prm::qp::kUserIndex);
    if (driver.buf_addr == 0 || driver.db_addr == 0 ||
        !has_doorbell_page(context, fields.get(prm::qp::kUarPage)) ||
        !holds(context, umem, offset,
               receive_bytes + std::uint64_t{driver.sq_wqe_count} * kBlockBytes)) {
        return refuse(command, prm::kBadResource);
    }
    const DataInCqe data{.received = data_in_cqe(fields.get(prm::qp::kReceivedInCqe)),
                         .read = data_in_cqe(fields.get(prm::qp::kReadInCqe))};
    ib_uverbs_ex_create_qp_resp response{};
    mlx5_ib_create_qp_resp made{};
    Call call = call_of(request, driver, response, made);
    call.data_in_cqe = &data;
    if (const int error = create_qp_ex(context, call))
        return refuse(command, error);
    *object = {.kind = ObjectKind::kQp,
               .handle = response.base.qp_handle,
               .number = response.base.qpn,
               .umems = {umem, fields.get(prm::qp::kRecordUmem)}};
    context.qps.find(object->handle)->is_devx = true;
    prm::set(command.out, prm::kNumber, response.base.qpn);
    return 0;
}

int modify(Context& context, ib_uverbs_ex_modify_qp& request, std::uint32_t* dctn_p) {
    std::uint64_t none = 0;
    ib_uverbs_ex_modify_qp_resp response{};
    mlx5_ib_modify_qp_resp made{};
    Call call = call_of(request, none, response, made);
    call.driver_in = {};
    const int error = modify_qp_ex(context, call);
    *dctn_p = made.dctn;
    return error;
}

/// The state that a DCT of DEVX begins in is the last one.
int start_dct(Context& context, const Reader& fields, std::uint32_t handle, std::uint32_t* dctn_p) {
    ib_uverbs_ex_modify_qp request{};
    ib_uverbs_modify_qp& base = request.base;
    base.qp_handle = handle;
    base.attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    base.qp_state = IBV_QPS_INIT;
    base.port_num = std::max<std::uint8_t>(fields.get<std::uint8_t>(prm::dct::kPort), 1);
    base.pkey_index = fields.get<std::uint16_t>(prm::dct::kPkey);
    base.qp_access_flags =
        rights_of(fields.has(prm::dct::kMayRead), fields.has(prm::dct::kMayWrite),
                  fields.has(prm::dct::kMayAtomic));
    if (const int error = modify(context, request, dctn_p))
        return error;
    base.attr_mask = IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU;
    base.qp_state = IBV_QPS_RTR;
    base.min_rnr_timer = fields.get<std::uint8_t>(prm::dct::kRnrTimer);
    base.path_mtu = fields.get<std::uint8_t>(prm::dct::kMtu);
    base.dest.port_num = base.port_num;
    base.dest.is_global = 1;
    base.dest.sgid_index = fields.get<std::uint8_t>(prm::dct::kGidIndex);
    base.dest.hop_limit = fields.get<std::uint8_t>(prm::dct::kHops);
    base.dest.traffic_class = fields.get<std::uint8_t>(prm::dct::kClass);
    base.dest.flow_label = fields.get(prm::dct::kFlow);
    const ibv_gid gid = context.engine.port().gid();
    std::memcpy(base.dest.dgid, gid.raw, sizeof base.dest.dgid);
    return modify(context, request, dctn_p);
}

int create_dct(Context& context, const DevxCommand& command, DevxObject* object) {
    const Reader fields(command.in, prm::kDctOfCreate);
    ib_uverbs_ex_create_qp request{};
    request.qp_type = IBV_QPT_DRIVER;
    request.pd_handle = fields.get(prm::dct::kPd);
    request.send_cq_handle = request.recv_cq_handle = cq_handle(context, fields.get(prm::dct::kCq));
    request.is_srq = 1;
    request.srq_handle = srq_handle(context, fields.get(prm::dct::kSrq));
    mlx5_ib_create_qp driver{};
    driver.flags = MLX5_QP_FLAG_TYPE_DCT;
    driver.uidx = fields.get(prm::dct::kUserIndex);
    driver.access_key = fields.get<std::uint64_t>(prm::dct::kKey);
    const DataInCqe data{.received = data_in_cqe(fields.get(prm::dct::kReceivedInCqe))};
    ib_uverbs_ex_create_qp_resp response{};
    mlx5_ib_create_qp_resp made{};
    Call call = call_of(request, driver, response, made);
    call.data_in_cqe = &data;
    if (const int error = create_qp_ex(context, call))
        return refuse(command, error);
    const std::uint32_t handle = response.base.qp_handle;
    std::uint32_t dctn = 0;
    if (const int error = start_dct(context, fields, handle, &dctn)) {
        static_cast<void>(end_object(context, context.qps, handle));
        return refuse(command, error);
    }
    *object = {.kind = ObjectKind::kDct, .handle = handle, .number = dctn};
    context.qps.find(handle)->is_devx = true;
    prm::set(command.out, prm::kNumber, dctn);
    return 0;
}

// ---- States of queue pairs

void add_path(Context& context, const Reader& path, ib_uverbs_modify_qp* base) {
    ib_uverbs_qp_dest& dest = base->dest;
    dest.port_num = path.get<std::uint8_t>(prm::path::kPort);
    dest.dlid = path.get<std::uint16_t>(prm::path::kLid);
    dest.src_path_bits = path.get<std::uint8_t>(prm::path::kPathBits);
    const bool is_ethernet = context.engine.port().is_ethernet();
    dest.sl = path.get<std::uint8_t>(is_ethernet ? prm::path::kPriority : prm::path::kLevel);
    dest.is_global = is_ethernet || path.has(prm::path::kGrh) ? 1 : 0;
    dest.sgid_index = path.get<std::uint8_t>(prm::path::kGidIndex);
    dest.hop_limit = path.get<std::uint8_t>(prm::path::kHops);
    dest.traffic_class = path.get<std::uint8_t>(prm::path::kClass);
    dest.flow_label = path.get(prm::path::kFlow);
    const std::uint64_t halves[2] = {
        __builtin_bswap64(path.get<std::uint64_t>(prm::path::kGidHigh)),
        __builtin_bswap64(path.get<std::uint64_t>(prm::path::kGidLow))};
    std::memcpy(dest.dgid, halves, sizeof dest.dgid);
}

void to_init(const Reader& fields, const Reader& path, bool is_dci, ib_uverbs_modify_qp* base) {
    base->attr_mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    base->qp_state = IBV_QPS_INIT;
    base->port_num = path.get<std::uint8_t>(prm::path::kPort);
    base->pkey_index = path.get<std::uint16_t>(prm::path::kPkey);
    if (!is_dci) {
        base->attr_mask |= IBV_QP_ACCESS_FLAGS;
        base->qp_access_flags =
            rights_of(fields.has(prm::qp::kMayRead), fields.has(prm::qp::kMayWrite),
                      fields.has(prm::qp::kMayAtomic));
    }
}

void to_rtr(Context& context, const DevxCommand& command, bool is_dci, ib_uverbs_modify_qp* base) {
    const Reader fields(command.in, prm::kQpContext);
    base->attr_mask |= IBV_QP_PATH_MTU;
    base->qp_state = IBV_QPS_RTR;
    base->path_mtu = fields.get<std::uint8_t>(prm::qp::kMtu);
    if (is_dci)
        return;
    base->attr_mask |= IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                       IBV_QP_MIN_RNR_TIMER;
    add_path(context, Reader(command.in, prm::kQpContext + prm::kPath), base);
    base->dest_qp_num = fields.get(prm::qp::kRemoteQpn);
    base->rq_psn = fields.get(prm::qp::kReceivePsn);
    base->max_dest_rd_atomic = static_cast<std::uint8_t>(1U << fields.get(prm::qp::kLogReadsIn));
    base->min_rnr_timer = fields.get<std::uint8_t>(prm::qp::kRnrTimer);
    constexpr std::uint32_t kRights =
        prm::qp::kSetsRead | prm::qp::kSetsWrite | prm::qp::kSetsAtomic;
    if ((Reader(command.in, 0).get(prm::qp::kOptional) & kRights) == kRights) {
        base->attr_mask |= IBV_QP_ACCESS_FLAGS;
        base->qp_access_flags =
            rights_of(fields.has(prm::qp::kMayRead), fields.has(prm::qp::kMayWrite),
                      fields.has(prm::qp::kMayAtomic));
    }
}

void to_rts(const Reader& fields, const Reader& path, ib_uverbs_modify_qp* base) {
    base->attr_mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                       IBV_QP_MAX_QP_RD_ATOMIC;
    base->qp_state = IBV_QPS_RTS;
    base->timeout = path.get<std::uint8_t>(prm::path::kAckTimeout);
    base->retry_cnt = fields.get<std::uint8_t>(prm::qp::kRetries);
    base->rnr_retry = fields.get<std::uint8_t>(prm::qp::kRnrRetries);
    base->sq_psn = fields.get(prm::qp::kSendPsn);
    base->max_rd_atomic = static_cast<std::uint8_t>(1U << fields.get(prm::qp::kLogReadsOut));
}

/// In RTS a stream that failed is all that may change here.
int change_in_rts(const DevxCommand& command, QpObject& qp) {
    const Reader top(command.in, 0);
    const bool is_extended = top.has(prm::qp::kIsExtended);
    const auto more = is_extended ? top.get<std::uint64_t>(prm::qp::kOptionalMore) : 0;
    if (top.has(prm::qp::kOptional) || (more & ~std::uint64_t{prm::qp::kResetsStream}) != 0)
        return refuse(command, prm::kBadParameter);
    const int error =
        more == 0 ? 0 : qp.core->reset_stream(top.get<std::uint16_t>(prm::qp::kStream));
    return error == 0 ? 0 : refuse(command, error);
}

int modify_qp_object(Context& context, const DevxCommand& command, const DevxObject& object) {
    QpObject* qp = context.qps.find(object.handle);
    if (qp == nullptr)
        return refuse(command, prm::kBadResource);
    const bool is_dci = qp->dc == DcKind::kInitiator;
    const Reader fields(command.in, prm::kQpContext);
    const Reader path(command.in, prm::kQpContext + prm::kPath);
    ib_uverbs_ex_modify_qp request{};
    request.base.qp_handle = object.handle;
    request.base.attr_mask = IBV_QP_STATE;
    switch (prm::get(command.in, prm::kOpcode)) {
        case prm::kRst2Init:
            to_init(fields, path, is_dci, &request.base);
            break;
        case prm::kInit2Rtr:
            to_rtr(context, command, is_dci, &request.base);
            break;
        case prm::kRtr2Rts:
            to_rts(fields, path, &request.base);
            break;
        case prm::kRts2Rts:
            return change_in_rts(command, *qp);
        case prm::kTo2Err:
            request.base.qp_state = IBV_QPS_ERR;
            break;
        case prm::kTo2Rst:
            request.base.qp_state = IBV_QPS_RESET;
            break;
        default:
            return EINVAL;
    }
    std::uint32_t dctn = 0;
    const int error = modify(context, request, &dctn);
    return error == 0 ? 0 : refuse(command, error);
}

unsigned state_of(ibv_qp_state state) {
    constexpr unsigned kError = 6, kDrained = 7;
    return state == IBV_QPS_ERR ? kError : state == IBV_QPS_SQD ? kDrained : unsigned{state};
}

}  // namespace

int refuse(const DevxCommand& command, prm::Status status) {
    prm::set(command.out, prm::kStatus, status);
    return EREMOTEIO;
}
int refuse(const DevxCommand& command, int error) {
    return refuse(command, error == ENOMEM                     ? prm::kLimit
                           : error == EBUSY || error == ENOENT ? prm::kBadResource
                                                               : prm::kBadParameter);
}

std::uint64_t address_in(const Context& context, std::uint32_t umem, std::uint64_t offset) {
    const UmemObject* object = context.umems.find(umem);
    return object == nullptr || offset >= object->bytes ? 0 : object->address + offset;
}
bool holds(const Context& context, std::uint32_t umem, std::uint64_t offset, std::uint64_t bytes) {
    const UmemObject* object = context.umems.find(umem);
    return object != nullptr && offset <= object->bytes && bytes <= object->bytes - offset;
}

std::uint32_t rights_of(bool may_read, bool may_write, bool may_atomic) {
    unsigned rights = 0;
    rights |= may_read ? unsigned{IBV_ACCESS_REMOTE_READ} : 0;
    rights |= may_write ? unsigned{IBV_ACCESS_REMOTE_WRITE} : 0;
    rights |= may_atomic ? unsigned{IBV_ACCESS_REMOTE_ATOMIC} : 0;
    return rights;
}

int devx_create(Context& context, const DevxCommand& command, DevxObject* object_p) {
    switch (prm::get(command.in, prm::kOpcode)) {
        case prm::kCreateMkey:
            return devx_create_mkey(context, command, object_p);
        case prm::kCreateCq:
            return create_cq_object(context, command, object_p);
        case prm::kCreateQp:
            return create_qp_object(context, command, object_p);
        case prm::kCreateDct:
            return create_dct(context, command, object_p);
        case prm::kCreateXrq:
            return create_xrq(context, command, object_p);
        case prm::kCreateRmp:
            return create_rmp(context, command, object_p);
        default:
            return EINVAL;
    }
}

int devx_modify(Context& context, const DevxCommand& command, const DevxObject& object) {
    if (prm::get(command.in, prm::kNumber) != object.number)
        return EINVAL;
    switch (object.kind) {
        case ObjectKind::kQp:
            return modify_qp_object(context, command, object);
        case ObjectKind::kSrq:  // the device reads as the target that a message came to
            return prm::get(command.in, prm::kOpcode) == prm::kSetXrqDcParams ? 0 : EINVAL;
        case ObjectKind::kDct:
            return prm::get(command.in, prm::kOpcode) == prm::kDrainDct ? 0 : EINVAL;
        default:
            return EINVAL;
    }
}

int devx_query(Context& context, const DevxCommand& command, const DevxObject& object) {
    const QpObject* qp = object.kind == ObjectKind::kQp ? context.qps.find(object.handle) : nullptr;
    if (prm::get(command.in, prm::kOpcode) != prm::kQueryQp || qp == nullptr ||
        prm::get(command.in, prm::kNumber) != object.number) {
        return EINVAL;
    }
    ibv_qp_attr attr{};
    qp->core->query(&attr);
    const auto put = [&command](unsigned base, prm::Field field, std::uint64_t value) {
        prm::set(command.out, field.in(base), value);
    };
    constexpr unsigned kPath = prm::kQpContext + prm::kPath;
    put(prm::kQpContext, prm::qp::kState, state_of(attr.qp_state));
    put(prm::kQpContext, prm::qp::kService,
        qp->dc == DcKind::kInitiator ? prm::qp::kServiceDci : prm::qp::kServiceRc);
    put(prm::kQpContext, prm::qp::kMtu, attr.path_mtu);
    put(prm::kQpContext, prm::qp::kUserIndex, qp->user_index);
    put(prm::kQpContext, prm::qp::kRemoteQpn, attr.dest_qp_num);
    put(prm::kQpContext, prm::qp::kSendPsn, attr.sq_psn);
    put(prm::kQpContext, prm::qp::kReceivePsn, attr.rq_psn);
    put(kPath, prm::path::kPort, attr.port_num);
    put(kPath, prm::path::kLid, attr.ah_attr.dlid);
    put(kPath, prm::path::kLevel, attr.ah_attr.sl);
    put(kPath, prm::path::kGrh, attr.ah_attr.is_global);
    put(kPath, prm::path::kHops, attr.ah_attr.grh.hop_limit);
    put(kPath, prm::path::kClass, attr.ah_attr.grh.traffic_class);
    std::uint64_t halves[2];
    std::memcpy(halves, attr.ah_attr.grh.dgid.raw, sizeof halves);
    put(kPath, prm::path::kGidHigh, __builtin_bswap64(halves[0]));
    put(kPath, prm::path::kGidLow, __builtin_bswap64(halves[1]));
    return 0;
}

int devx_destroy(Context& context, const DevxObject& object) {
    switch (object.kind) {
        case ObjectKind::kCq:
            return end_object(context, context.cqs, object.handle);
        case ObjectKind::kSrq:
            return end_object(context, context.srqs, object.handle);
        case ObjectKind::kMkey:
            return end_object(context, context.mkeys, object.handle);
        default:
            return end_object(context, context.qps, object.handle);
    }
}

}  // namespace tagwire::vhca::driver
