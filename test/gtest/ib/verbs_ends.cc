// SPDX-License-Identifier: BSD-3-Clause
#include "ib/verbs_ends.hpp"

#include <cstring>

#include "uct/ib/address.hpp"

namespace tagwire::test {

namespace {

constexpr unsigned kRights =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
constexpr std::uint64_t kFin = 1;

}  // namespace

ib::OwnedQp make_qp(const ib::IbMd& md, ibv_cq* send_cq, ibv_cq* recv_cq, ibv_srq* srq,
                    unsigned send_max) {
    ibv_qp_init_attr attr{};
    attr.send_cq = send_cq;
    attr.recv_cq = recv_cq;
    attr.srq = srq;
    attr.cap = {send_max, srq == nullptr ? 4U : 0U, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    ibv_qp* qp = md.verbs().create_qp(md.pd(), &attr);
    EXPECT_NE(nullptr, qp);
    return ib::owned(qp, md.verbs().destroy_qp);
}

void connect(const ib::IbMd& md, ibv_qp& qp, const ibv_qp& peer, std::uint8_t timeout) {
    connect(md, qp, peer.qp_num, 0, timeout);
}

void connect(const ib::IbMd& md, ibv_qp& qp, std::uint32_t peer, std::uint32_t psn,
             std::uint8_t timeout) {
    ib::Port port;
    ASSERT_EQ(UCS_OK, md.device().port(1, -1, &port, nullptr));
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kRights;
    ASSERT_EQ(
        0, md.verbs().modify_qp(
               &qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.rq_psn = psn;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.ah_attr = ib::path_to(port, ib::pack_port(port), 0, 0);
    ASSERT_EQ(0, md.verbs().modify_qp(&qp, &attr,
                                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                          IBV_QP_MIN_RNR_TIMER));
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = timeout;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    ASSERT_EQ(
        0, md.verbs().modify_qp(&qp, &attr,
                                IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

std::byte pattern(std::size_t index, unsigned seed) {
    return static_cast<std::byte>(index * 31 + seed * 7 + 1);
}

Memory::Memory(const ib::IbMd& md, std::size_t bytes)
    : bytes_(bytes),
      mr_(ib::owned(md.verbs().reg_mr(md.pd(), bytes_.data(), bytes, static_cast<int>(kRights)),
                    md.verbs().dereg_mr)) {
    EXPECT_NE(nullptr, mr_);
}

void Memory::fill(std::size_t offset, std::size_t bytes, unsigned seed) {
    for (std::size_t i = 0; i != bytes; ++i)
        bytes_[offset + i] = pattern(i, seed);
}

bool Memory::has(std::size_t offset, std::size_t bytes, unsigned seed) const {
    for (std::size_t i = 0; i != bytes; ++i) {
        if (bytes_[offset + i] != pattern(i, seed))
            return false;
    }
    return true;
}

Sender::Sender(const ib::IbMd& md, ibv_srq* srq, ibv_cq* cq, std::uint8_t timeout)
    : md_(md),
      places_(std::make_unique<Memory>(md, kSendsMax * kMessageBytesMax)),
      fin_(std::make_unique<Memory>(md, 64)) {
    EXPECT_EQ(UCS_OK, cq_.open(md, 2 * kSendsMax, nullptr, false));
    qp_ = make_qp(md, cq_.get(), cq_.get(), nullptr, kSendsMax);
    far_qp_ = make_qp(md, cq, cq, srq, 0);
    connect(md, *qp_, *far_qp_, timeout);
    connect(md, *far_qp_, *qp_, timeout);
    for (int i = 0; i != 4; ++i)
        post_fin_receive();
}

Sender::~Sender() {
    qp_.reset();  // before the memory and the queue
}

void Sender::post_fin_receive() {
    ibv_sge sge{reinterpret_cast<std::uint64_t>(fin_->at(0)), 64, fin_->lkey()};
    ibv_recv_wr wr{kFin, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(0, ibv_post_recv(qp_.get(), &wr, &bad));
}

std::byte* Sender::claim() {
    for (int i = 0; is_full() && i != kStepsMax; ++i)
        progress();
    EXPECT_FALSE(is_full()) << "nothing is received any more";
    return places_->at(sent_ % kSendsMax * kMessageBytesMax);
}

void Sender::post(std::size_t bytes, std::optional<std::uint32_t> imm) {
    ibv_sge sge{reinterpret_cast<std::uint64_t>(places_->at(sent_ % kSendsMax * kMessageBytesMax)),
                static_cast<std::uint32_t>(bytes), places_->lkey()};
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    wr.imm_data = htobe32(imm.value_or(0));
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(0, ibv_post_send(qp_.get(), &wr, &bad));
    ++sent_;
}

void Sender::send(std::span<const std::byte> message, std::optional<std::uint32_t> imm) {
    std::memcpy(claim(), message.data(), message.size());
    post(message.size(), imm);
}

void Sender::send_no_tag(std::size_t bytes, unsigned seed) {
    std::byte* place = claim();
    for (std::size_t i = 0; i != bytes; ++i)
        place[i] = i == 0 ? std::byte{IBV_TMH_NO_TAG} : pattern(i, seed);
    post(bytes, {});
}

void Sender::send_eager(const Tagged& header, std::size_t bytes, unsigned seed) {
    const ibv_tmh tmh{
        static_cast<std::uint8_t>(header.opcode), {}, htobe32(header.app_ctx), htobe64(header.tag)};
    std::byte* place = claim();
    std::memcpy(place, &tmh, sizeof tmh);
    for (std::size_t i = 0; i != bytes; ++i)
        place[sizeof tmh + i] = pattern(i, seed);
    post(sizeof tmh + bytes, header.imm);
}

void Sender::send_rendezvous(const Tagged& header, Memory& source, std::size_t bytes,
                             std::uint32_t rkey) {
    const ibv_tmh tmh{IBV_TMH_RNDV, {}, htobe32(header.app_ctx), htobe64(header.tag)};
    const ibv_rvh rvh{htobe64(reinterpret_cast<std::uint64_t>(source.at(0))), htobe32(rkey),
                      htobe32(static_cast<std::uint32_t>(bytes))};
    std::byte* place = claim();
    std::memcpy(place, &tmh, sizeof tmh);
    std::memcpy(place + sizeof tmh, &rvh, sizeof rvh);
    post(sizeof tmh + sizeof rvh, header.imm);
}

void Sender::die() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    EXPECT_EQ(0, md_.verbs().modify_qp(qp_.get(), &attr, IBV_QP_STATE));
    completed_ = sent_;
}

void Sender::progress() {
    const ib::Completion* completions = nullptr;
    const unsigned count = cq_.poll(&completions);
    for (unsigned i = 0; i != count; ++i) {
        const ib::Completion& completion = completions[i];
        has_failed_ = has_failed_ || completion.status != IBV_WC_SUCCESS;
        if (completion.wr_id != kFin) {
            ++completed_;
        } else if (completion.status == IBV_WC_SUCCESS) {
            ++fins_;
            post_fin_receive();
        }
    }
}

}  // namespace tagwire::test
