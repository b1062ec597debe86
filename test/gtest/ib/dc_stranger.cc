// SPDX-License-Identifier: BSD-3-Clause
#include "ib/dc_stranger.hpp"

#include <endian.h>

#include <string>

#include "uct/ib/dc/dc_post.hpp"

namespace tagwire::test {

namespace {

constexpr std::uint64_t kSent = 2;  // others are receives
constexpr std::uint64_t kKey = 0x5eed;
constexpr std::uint8_t kForEver = 7;

}  // namespace

DcStranger::DcStranger(const ib::IbMd& md)
    : md_(md), memory_(md, (kPlaces + 1) * kMessageBytesMax) {
    std::string reason;
    require(md.device().port(1, {}, &port_, &reason) == UCS_OK, reason.c_str());
    dc_ = dc::dc_verbs_of(md.device(), &reason);
    require(dc_ != nullptr, reason.c_str());
    require(cq_.open(md, 2 * (kPlaces + kReceives), nullptr, false) == UCS_OK, "completion queue");
    ibv_srq_init_attr attr{};
    attr.attr = {.max_wr = kReceives, .max_sge = 1, .srq_limit = 0};
    srq_ = ib::owned(md.verbs().create_srq(md.pd(), &attr), md.verbs().destroy_srq);
    require(srq_ != nullptr, "create_srq");
    make_ends();
    for (unsigned i = 0; i < kReceives; ++i)
        post_receive();
}

DcStranger::~DcStranger() {
    initiator_ = {};  // before the memory and the queue
    target_.reset();
}

void DcStranger::make_ends() {
    require(dc::make_target(md_, *dc_, port_,
                            {.key = kKey,
                             .srq = srq_.get(),
                             .cq = cq_.get(),
                             .context = nullptr,
                             .rnr_timer_code = 1},
                            &target_) == UCS_OK,
            "a target");
    params_ = {.cq = cq_.get(),
               .context = nullptr,
               .depth = kPlaces,
               .sges_max = 1,
               .inline_bytes = 0,
               .streams_log = 0,
               .timeout_code = 9,
               .retry_count = 6,
               .rnr_retry = kForEver,
               .reads = 1,
               .mtu = IBV_MTU_1024};
    require(dc::make_initiator(md_, *dc_, port_, params_, &initiator_) == UCS_OK, "an initiator");
    address_ = {.target = {.number = htobe32(target_->qp_num),
                           .reserved = 0,
                           .lid = htobe16(port_.attr.lid),
                           .key = htobe64(kKey)},
                .port = ib::pack_port(port_)};
}

void DcStranger::aim(const Entity& victim) {
    std::string reason;
    const auto target = dc::parse_address(victim.iface_address(), &reason);
    require(target.has_value(), reason.c_str());
    const auto there = ib::parse_port(victim.device_address(), &reason);
    require(there.has_value(), reason.c_str());
    ibv_ah_attr attr = ib::path_to(port_, *there, 0, 0);
    path_ = ib::owned(md_.verbs().create_ah(md_.pd(), &attr), md_.verbs().destroy_ah);
    require(path_ != nullptr, "ibv_create_ah");
    victim_ = {path_.get(), target->key, target->number};
}

void DcStranger::send(std::size_t bytes, const Stranger::Way& way, bool has_key) {
    ibv_sge sge = memory_.sge(sent_ % kPlaces * kMessageBytesMax, bytes);
    ibv_send_wr wr{};
    wr.wr_id = kSent;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = way.imm && way.opcode == IBV_WR_SEND ? IBV_WR_SEND_WITH_IMM : way.opcode;
    wr.imm_data = way.imm.value_or(0);
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {way.remote_addr, way.rkey};
    dc::TargetAddress to = victim_;
    to.key ^= has_key ? 0U : 1U;
    require(dc::post_to(initiator_, &wr, to, 0) == 0, "posting to an initiator");
    ++sent_;
}

void DcStranger::progress() {
    const ib::Completion* completions = nullptr;
    const unsigned count = cq_.poll(&completions);
    for (unsigned i = 0; i < count; ++i) {
        if (completions[i].wr_id != kSent) {
            if (completions[i].status == IBV_WC_SUCCESS)
                post_receive();
            continue;
        }
        ++completed_;
        is_broken_ = is_broken_ || completions[i].status != IBV_WC_SUCCESS;
    }
    if (is_broken_ && is_idle()) {
        require(dc::restart(md_, port_, params_, initiator_) == UCS_OK, "starting anew");
        is_broken_ = false;
        ++failures_;
    }
}

void DcStranger::post_receive() {
    ibv_sge sge = memory_.sge(kPlaces * kMessageBytesMax, kMessageBytesMax);
    ibv_recv_wr wr{0, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    require(ibv_post_srq_recv(srq_.get(), &wr, &bad) == 0, "ibv_post_srq_recv");
}

}  // namespace tagwire::test
