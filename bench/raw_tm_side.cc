// SPDX-License-Identifier: BSD-3-Clause
#include "raw_tm_side.hpp"

#include <endian.h>
#include <infiniband/tm_types.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace raw {
namespace {

constexpr std::uint64_t kSlots = kAhead + 1;
constexpr std::size_t kSlotBytes = 4096;
constexpr unsigned kSendDepth = 64;
constexpr unsigned kSignalEvery = 16;
constexpr unsigned kTagsMax = 16;
constexpr unsigned kOpsMax = 16;
// Cards take messages for tag matching only once they have a few dozen untagged receives.
constexpr unsigned kUntagged = 64;
constexpr std::size_t kUntaggedBytes = 4096;
constexpr std::uint64_t kPollsBetweenChecks = 1U << 22;

/// For calls that set errno.
template <class Object>
Object* must(Object* object, const char* what) {
    if (object == nullptr)
        die("%s: %s", what, std::strerror(errno));
    return object;
}

ibv_context* open_device(const char* name) {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    ibv_device* found = nullptr;
    for (int i = 0; i < (list != nullptr ? count : 0) && found == nullptr; ++i)
        if (name == nullptr || std::strcmp(ibv_get_device_name(list[i]), name) == 0)
            found = list[i];
    if (found == nullptr) {
        die("no RDMA device%s%s here (without a card: tagwire vhca run -- raw_tm_pingpong)",
            name != nullptr ? " " : "", name != nullptr ? name : "");
    }
    ibv_context* const context = must(ibv_open_device(found), "ibv_open_device");
    ibv_free_device_list(list);
    return context;
}

}  // namespace

void die(const char* format, ...) {
    va_list list;
    va_start(list, format);
    std::fprintf(stderr, "raw_tm_pingpong: ");
    std::vfprintf(stderr, format, list);
    std::fprintf(stderr, "\n");
    va_end(list);
    std::exit(1);
}

void must(int error, const char* what) {
    if (error != 0)
        die("%s: %s", what, std::strerror(error > 0 ? error : errno));
}

Place Socket::swap(const Place& mine) const {
    Place theirs{};
    if (send(fd_, &mine, sizeof mine, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof mine) ||
        recv(fd_, &theirs, sizeof theirs, MSG_WAITALL) != static_cast<ssize_t>(sizeof theirs)) {
        die("the other process ended");
    }
    return theirs;
}

void Socket::barrier() const {
    char byte = 0;
    if (send(fd_, &byte, 1, MSG_NOSIGNAL) != 1 || read(fd_, &byte, 1) != 1)
        die("the other process ended");
}

void Socket::check() const {
    char byte = 0;
    if (recv(fd_, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
        die("the other process ended");
}

Side::Side(const Options& options, const Socket& socket)
    : options_(options),
      socket_(socket),
      memory_(kSlots * kSlotBytes + kUntagged * kUntaggedBytes),
      context_(open_device(options.device)) {
    must(ibv_query_port(context_, 1, &port_), "ibv_query_port");
    pd_ = must(ibv_alloc_pd(context_), "ibv_alloc_pd");
    mr_ = must(ibv_reg_mr(pd_, memory_.data(), memory_.size(), int{IBV_ACCESS_LOCAL_WRITE}),
               "ibv_reg_mr");
    make_srq();
    make_queue_pairs();
    const Place theirs = socket_.swap(place());
    connect(tag_qp_, theirs.send_qpn, theirs);
    connect(send_qp_, theirs.tag_qpn, theirs);
    post_untagged();
    socket_.barrier();
}

Side::~Side() {
    socket_.barrier();  // the last acknowledgement has been given by then
    must(ibv_destroy_qp(send_qp_), "ibv_destroy_qp");
    must(ibv_destroy_qp(tag_qp_), "ibv_destroy_qp");
    must(ibv_destroy_srq(srq_), "ibv_destroy_srq");
    must(ibv_destroy_cq(ibv_cq_ex_to_cq(tag_cq_)), "ibv_destroy_cq");
    must(ibv_destroy_cq(send_cq_), "ibv_destroy_cq");
    must(ibv_dereg_mr(mr_), "ibv_dereg_mr");
    must(ibv_dealloc_pd(pd_), "ibv_dealloc_pd");
    must(ibv_close_device(context_), "ibv_close_device");
}

void Side::make_srq() {
    ibv_device_attr_ex device{};
    must(ibv_query_device_ex(context_, nullptr, &device), "ibv_query_device_ex");
    if ((device.tm_caps.flags & IBV_TM_CAP_RC) == 0 || device.tm_caps.max_num_tags < kTagsMax)
        die("device %s has no tag matching", ibv_get_device_name(context_->device));
    ibv_cq_init_attr_ex cq{};
    cq.cqe = 4 * kUntagged;
    cq.wc_flags = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_TM_INFO;
    tag_cq_ = must(ibv_create_cq_ex(context_, &cq), "ibv_create_cq_ex");
    ibv_srq_init_attr_ex attr{};
    attr.attr = {.max_wr = kUntagged, .max_sge = 1, .srq_limit = 0};
    attr.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
    attr.srq_type = IBV_SRQT_TM;
    attr.pd = pd_;
    attr.cq = ibv_cq_ex_to_cq(tag_cq_);
    attr.tm_cap = {.max_num_tags = kTagsMax, .max_ops = kOpsMax};
    srq_ = must(ibv_create_srq_ex(context_, &attr), "ibv_create_srq_ex");
}

void Side::make_queue_pairs() {
    send_cq_ = must(ibv_create_cq(context_, kSendDepth, nullptr, nullptr, 0), "ibv_create_cq");
    ibv_qp_init_attr attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.send_cq = send_cq_;
    attr.recv_cq = ibv_cq_ex_to_cq(tag_cq_);
    attr.srq = srq_;
    tag_qp_ = must(ibv_create_qp(pd_, &attr), "ibv_create_qp with the tag-matching SRQ");
    attr.srq = nullptr;
    attr.recv_cq = send_cq_;
    attr.cap.max_send_wr = kSendDepth;
    attr.cap.max_send_sge = 1;
    attr.cap.max_recv_wr = 1;
    attr.cap.max_recv_sge = 1;
    attr.cap.max_inline_data = static_cast<std::uint32_t>(sizeof(ibv_tmh) + options_.size);
    send_qp_ = must(ibv_create_qp(pd_, &attr), "ibv_create_qp");
}

Place Side::place() const {
    Place mine{};
    mine.send_qpn = send_qp_->qp_num;
    mine.tag_qpn = tag_qp_->qp_num;
    mine.lid = port_.lid;
    mine.is_ethernet = port_.link_layer == IBV_LINK_LAYER_ETHERNET;
    must(ibv_query_gid(context_, 1, options_.gid_index, &mine.gid), "ibv_query_gid");
    return mine;
}

void Side::connect(ibv_qp* qp, std::uint32_t qpn, const Place& theirs) const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    must(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
         "ibv_modify_qp to INIT");
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = port_.active_mtu;
    attr.dest_qp_num = qpn;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.dlid = theirs.lid;
    attr.ah_attr.is_global = theirs.is_ethernet ? 1 : 0;
    attr.ah_attr.grh.dgid = theirs.gid;
    attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(options_.gid_index);
    attr.ah_attr.grh.hop_limit = 64;
    must(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
         "ibv_modify_qp to RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 6;
    attr.max_rd_atomic = 1;
    must(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                           IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
         "ibv_modify_qp to RTS");
}

void Side::post_untagged() {
    for (unsigned i = 0; i < kUntagged; ++i) {
        std::uint8_t* const at = memory_.data() + kSlots * kSlotBytes + i * kUntaggedBytes;
        ibv_sge sge{reinterpret_cast<std::uintptr_t>(at), kUntaggedBytes, mr_->lkey};
        ibv_recv_wr wr{.wr_id = 0, .next = nullptr, .sg_list = &sge, .num_sge = 1};
        ibv_recv_wr* bad = nullptr;
        must(ibv_post_srq_recv(srq_, &wr, &bad), "ibv_post_srq_recv");
    }
}

void Side::add(std::uint64_t tag) {
    std::uint8_t* const at = memory_.data() + tag % kSlots * kSlotBytes;
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(at), kSlotBytes, mr_->lkey};
    ibv_ops_wr wr{};
    wr.wr_id = tag;
    wr.opcode = IBV_WR_TAG_ADD;
    wr.flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC;
    wr.tm.add = {tag, &sge, 1, tag, ~std::uint64_t{0}};
    ibv_ops_wr* bad = nullptr;
    must(ibv_post_srq_ops(srq_, &wr, &bad), "ibv_post_srq_ops");
}

void Side::send(std::uint64_t tag) {
    struct {
        ibv_tmh header;
        std::uint8_t data[256];
    } message;
    message.header = {IBV_TMH_EAGER, {}, 0, htobe64(tag)};
    std::memset(message.data, static_cast<int>(tag & 0xff), options_.size);
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(&message),
                static_cast<std::uint32_t>(sizeof(ibv_tmh) + options_.size), 0};
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_INLINE;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (++sends_since_signal_ == kSignalEvery) {
        sends_since_signal_ = 0;
        wr.send_flags |= IBV_SEND_SIGNALED;
    }
    ibv_send_wr* bad = nullptr;
    must(ibv_post_send(send_qp_, &wr, &bad), "ibv_post_send");
    if (++sends_outstanding_ > kSendDepth - kSignalEvery)
        reap_sends();
}

void Side::reap_sends() {
    ibv_wc wc{};
    for (;;) {
        const int got = ibv_poll_cq(send_cq_, 1, &wc);
        if (got < 0 || (got == 1 && wc.status != IBV_WC_SUCCESS))
            die("a send failed: %s", got < 0 ? "ibv_poll_cq" : ibv_wc_status_str(wc.status));
        if (got == 1) {
            sends_outstanding_ -= kSignalEvery;
            return;
        }
    }
}

void Side::wait_added(std::uint64_t count) {
    while (added_ < count)
        poll();
}

void Side::wait_received(std::uint64_t count) {
    std::uint64_t polls = 0;
    while (received_ < count) {
        poll();
        if (++polls % kPollsBetweenChecks == 0)
            socket_.check();
    }
}

void Side::poll() {
    ibv_poll_cq_attr attr{};
    if (ibv_start_poll(tag_cq_, &attr) != 0)
        return;
    do {
        take_completion();
    } while (ibv_next_poll(tag_cq_) == 0);
    ibv_end_poll(tag_cq_);
}

void Side::take_completion() {
    if (tag_cq_->status != IBV_WC_SUCCESS)
        die("%s", ibv_wc_status_str(tag_cq_->status));
    switch (ibv_wc_read_opcode(tag_cq_)) {
        case IBV_WC_TM_ADD:
            ++added_;
            return;
        case IBV_WC_TM_RECV: {
            ibv_wc_tm_info info{};
            ibv_wc_read_tm_info(tag_cq_, &info);
            const unsigned flags = ibv_wc_read_wc_flags(tag_cq_);
            if ((flags & IBV_WC_TM_MATCH) == 0 || info.tag != received_) {
                die("message %llu was not matched by its receive",
                    static_cast<unsigned long long>(received_));
            }
            ++received_;
            return;
        }
        default:
            die("completion with opcode %d", static_cast<int>(ibv_wc_read_opcode(tag_cq_)));
    }
}

}  // namespace raw
