// SPDX-License-Identifier: BSD-3-Clause
#include "ib/stranger.hpp"

#include <string>

#include "uct/ib/rc/rc_address.hpp"

namespace tagwire::test {

namespace {

constexpr std::uint64_t kSent = 2;  // above the numbers of the queue pairs, which are of receives

}  // namespace

Stranger::Stranger(const ib::IbMd& md) : md_(md), memory_(md, (kPlaces + 1) * kMessageBytesMax) {
    require(cq_.open(md, 2 * (kPlaces + kReceives), nullptr, false) == UCS_OK, "completion queue");
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq_.get();
    attr.cap.max_send_wr = kPlaces;
    attr.cap.max_recv_wr = kReceives;
    for (ib::OwnedQp& qp : qps_)
        qp = make_qp(md, attr);
}

Stranger::~Stranger() {
    for (ib::OwnedQp& qp : qps_)  // before the memory and the queue
        qp.reset();
}

void Stranger::connect(const Entity& victim, uct_ep_h ep, std::uint16_t credits) {
    rc::RcEpAddress theirs{};
    require_ok(uct_ep_get_address(ep, reinterpret_cast<uct_ep_addr_t*>(&theirs)),
               "uct_ep_get_address");
    std::string reason;
    const auto parsed = rc::parse_ep_address(std::as_bytes(std::span(&theirs, 1)), &reason);
    require(parsed.has_value(), reason.c_str());
    theirs = *parsed;
    has_two_ = theirs.device_qp_num != 0;
    connect(0, has_two_ ? theirs.device_qp_num : theirs.qp_num, theirs.psn);
    if (has_two_)
        connect(1, theirs.qp_num, theirs.psn);
    const rc::RcEpAddress ours = rc::pack({.version = rc::kRcAddressVersion,
                                           .flags = theirs.flags,
                                           .reads = 4,
                                           .check = 0,
                                           .seg_bytes = theirs.seg_bytes,
                                           .qp_num = qps_[0]->qp_num,
                                           .device_qp_num = has_two_ ? qps_[1]->qp_num : 0,
                                           .psn = 0,
                                           .credits = credits});
    const Bytes device = victim.device_address();
    require_ok(uct_ep_connect_to_ep(ep, reinterpret_cast<const uct_device_addr_t*>(device.data()),
                                    reinterpret_cast<const uct_ep_addr_t*>(&ours)),
               "uct_ep_connect_to_ep");
}

void Stranger::connect(unsigned which, std::uint32_t peer, std::uint32_t psn) {
    test::connect(md_, *qps_[which], {.qp_num = peer, .psn = psn});
    for (unsigned i = 0; i < kReceives; ++i)
        post_receive(which);
}

void Stranger::send(std::size_t bytes, const Way& way) {
    ibv_sge sge = memory_.sge(sent_ % kPlaces * kMessageBytesMax, bytes);
    ibv_send_wr wr{};
    wr.wr_id = kSent;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = way.imm && way.opcode == IBV_WR_SEND ? IBV_WR_SEND_WITH_IMM : way.opcode;
    wr.imm_data = way.imm.value_or(0);
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {way.remote_addr, way.rkey};
    ibv_send_wr* bad = nullptr;
    require(ibv_post_send(qps_[way.to_other && has_two_ ? 1 : 0].get(), &wr, &bad) == 0,
            "ibv_post_send");
    ++sent_;
}

void Stranger::progress() {
    const ib::Completion* completions = nullptr;
    const unsigned count = cq_.poll(&completions);
    for (unsigned i = 0; i < count; ++i)
        if (completions[i].wr_id == kSent)
            ++completed_;
        else if (completions[i].status == IBV_WC_SUCCESS)
            post_receive(static_cast<unsigned>(completions[i].wr_id));
}

void Stranger::post_receive(unsigned which) {
    ibv_sge sge = memory_.sge(kPlaces * kMessageBytesMax, kMessageBytesMax);
    ibv_recv_wr wr{which, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    require(ibv_post_recv(qps_[which].get(), &wr, &bad) == 0, "ibv_post_recv");
}

}  // namespace tagwire::test
