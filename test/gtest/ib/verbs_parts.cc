// SPDX-License-Identifier: BSD-3-Clause
#include "ib/verbs_parts.hpp"

#include <stdexcept>

#include "uct/ib/address.hpp"
#include "uct/ib/ib_component.hpp"
#include "uct/ib/options.hpp"

namespace tagwire::test {

namespace {

constexpr unsigned kRights =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

}  // namespace

void require(bool good, const char* what) {
    if (!good)
        throw std::runtime_error(std::string("failed: ") + what);
}

VhcaMd::VhcaMd(bool fork) {
    ib::IbMdOptions options{};
    require(ucs::config_fill(ib::md_options(), &options) == UCS_OK, "options of a memory domain");
    options.fork = static_cast<int>(fork ? ib::ForkSupport::kYes : ib::ForkSupport::kNo);
    uct::Md* md = nullptr;
    require(ib::IbMd::open(ib::component(), "vhca0", options, &md) == UCS_OK, "opening vhca0");
    md_.reset(md);
}

ib::OwnedQp make_qp(const ib::IbMd& md, ibv_qp_init_attr attr) {
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
    attr.qp_type = IBV_QPT_RC;
    ib::OwnedQp qp = ib::owned(md.verbs().create_qp(md.pd(), &attr), md.verbs().destroy_qp);
    require(qp != nullptr, "create_qp");
    return qp;
}

void connect(const ib::IbMd& md, ibv_qp& qp, const Peer& peer) {
    const auto modify = md.verbs().modify_qp;
    ib::Port port;
    require(md.device().port(1, {}, &port, nullptr) == UCS_OK, "port 1 of vhca0");
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = port.number;
    attr.pkey_index = port.pkey_index;
    attr.qp_access_flags = kRights;
    require(modify(&qp, &attr,
                   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
            "a queue pair to INIT");
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer.qp_num;
    attr.rq_psn = peer.psn;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.ah_attr = ib::path_to(port, ib::pack_port(port), 0, 0);
    require(modify(&qp, &attr,
                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
            "a queue pair to RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = peer.timeout;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    require(modify(&qp, &attr,
                   IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
            "a queue pair to RTS");
}

std::byte pattern(std::size_t index, unsigned seed) {
    return static_cast<std::byte>(index * 31 + seed * 7 + 1);
}

Memory::Memory(const ib::IbMd& md, std::size_t bytes)
    : bytes_(bytes),
      mr_(ib::owned(md.verbs().reg_mr(md.pd(), bytes_.data(), bytes, static_cast<int>(kRights)),
                    md.verbs().dereg_mr)) {
    require(mr_ != nullptr, "reg_mr");
}

ibv_sge Memory::sge(std::size_t offset, std::size_t bytes) {
    return {reinterpret_cast<std::uintptr_t>(at(offset)), static_cast<std::uint32_t>(bytes),
            lkey()};
}

void Memory::fill(std::size_t offset, std::size_t bytes, unsigned seed) {
    for (std::size_t i = 0; i != bytes; ++i)
        bytes_[offset + i] = pattern(i, seed);
}

bool Memory::has(std::size_t offset, std::size_t bytes, unsigned seed) const {
    for (std::size_t i = 0; i != bytes; ++i)
        if (bytes_[offset + i] != pattern(i, seed))
            return false;
    return true;
}

}  // namespace tagwire::test
