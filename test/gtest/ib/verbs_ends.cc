// SPDX-License-Identifier: BSD-3-Clause
#include "ib/verbs_ends.hpp"

#include <cstring>

namespace tagwire::test {

namespace {

constexpr std::uint64_t kFin = 1;
constexpr unsigned kFinsMax = 4;  // receives posted for them

}  // namespace

Sender::Sender(const ib::IbMd& md, ibv_srq* srq, ibv_cq* cq, std::uint8_t timeout)
    : md_(md),
      places_(std::make_unique<Memory>(md, kSendsMax * kMessageBytesMax)),
      fin_(std::make_unique<Memory>(md, 64)) {
    EXPECT_EQ(UCS_OK, cq_.open(md, 2 * kSendsMax, nullptr, false));
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq_.get();
    attr.cap.max_send_wr = kSendsMax;
    attr.cap.max_recv_wr = kFinsMax;
    qp_ = make_qp(md, attr);
    attr.send_cq = attr.recv_cq = cq;
    attr.srq = srq;
    attr.cap = {};
    far_qp_ = make_qp(md, attr);
    connect(md, *qp_, {.qp_num = far_qp_->qp_num, .timeout = timeout});
    connect(md, *far_qp_, {.qp_num = qp_->qp_num, .timeout = timeout});
    for (unsigned i = 0; i != kFinsMax; ++i)
        post_fin_receive();
}

Sender::~Sender() {
    qp_.reset();  // before the memory and the queue
}

void Sender::post_fin_receive() {
    ibv_sge sge = fin_->sge(0, 64);
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
    ibv_sge sge = places_->sge(sent_ % kSendsMax * kMessageBytesMax, bytes);
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
