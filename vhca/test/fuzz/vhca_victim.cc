// SPDX-License-Identifier: BSD-3-Clause
#include "vhca_victim.hpp"

#include <algorithm>

namespace tagwire::fuzz {

namespace {

constexpr std::byte kCanary{0xa5};
constexpr std::uint32_t kPsn = 0xfffff0;
constexpr std::uint32_t kQkey = 5;
constexpr unsigned kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

vhca::DeviceConfig config() {
    vhca::DeviceConfig config;
    config.guid = 1;
    config.tm_tags_max = 16;
    return config;
}

}  // namespace

VhcaVictim::VhcaVictim(vhca::Wire& wire)
    : device_(std::make_unique<vhca::Device>(config(), wire, *this, 1)) {
    require(device_->create_pd(nullptr, &pd_) == 0 && device_->create_pd(nullptr, &other_pd_) == 0);
    require(device_->create_cq({.cqe = 256}, &cq_) == 0);
    add_region(pd_, kAll);
    add_region(pd_, kAll);
    add_region(pd_, IBV_ACCESS_REMOTE_READ);
    add_region(other_pd_, kAll);
    vhca::SrqConfig shared{.pd = pd_, .wr_max = 16, .sge_max = 2};
    require(device_->create_srq(shared, &srqs_[0]) == 0);
    shared.tm = {.tags_max = 8, .ops_max = 8, .cq = cq_};
    require(device_->create_srq(shared, &srqs_[1]) == 0);
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD})
        add_pair(type, nullptr);
    add_pair(IBV_QPT_RC, srqs_[0]);
    add_pair(IBV_QPT_RC, srqs_[1]);
}

VhcaVictim::~VhcaVictim() {
    check();
}

void VhcaVictim::add_region(vhca::Pd* pd, unsigned access) {
    Region region;
    region.block.assign(kRegionBytes + 2 * kEdgeBytes, kCanary);
    region.pd = pd;
    region.is_read_only = (access & IBV_ACCESS_LOCAL_WRITE) == 0;
    std::byte* base = region.block.data() + kEdgeBytes;
    require(device_->create_mr(*pd, base, kRegionBytes, reinterpret_cast<std::uint64_t>(base),
                               access, &region.mr) == 0);
    regions_.push_back(std::move(region));
}

void VhcaVictim::add_pair(ibv_qp_type type, vhca::Srq* srq) {
    vhca::QpConfig config{.type = type, .pd = pd_, .send_cq = cq_, .recv_cq = cq_, .srq = srq};
    config.cap = {16, 16, 2, 2, 64};
    vhca::Qp* qp = nullptr;
    require(device_->create_qp(config, &qp) == 0);
    pairs_.push_back(qp);
    connect(*qp);
}

void VhcaVictim::connect(vhca::Qp& qp) {
    const bool is_rc = qp.type() == IBV_QPT_RC, is_ud = qp.type() == IBV_QPT_UD;
    ibv_qp_attr attr{};
    const auto go = [&](ibv_qp_state state, int mask) {
        attr.qp_state = state;
        require(qp.modify(attr, mask | IBV_QP_STATE, kPeer, now_) == 0);
    };
    attr.port_num = attr.ah_attr.port_num = 1;
    attr.qkey = kQkey;
    attr.qp_access_flags = kAll;
    attr.path_mtu = IBV_MTU_512;
    attr.rq_psn = attr.sq_psn = kPsn;
    attr.dest_qp_num = 3;
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 2;
    attr.timeout = 8;
    attr.retry_cnt = attr.rnr_retry = 2;
    go(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | (is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
    constexpr int kPath = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    go(IBV_QPS_RTR,
       is_ud ? 0 : kPath | (is_rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
    constexpr int kRetries = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
    go(IBV_QPS_RTS, IBV_QP_SQ_PSN | (is_rc ? kRetries | IBV_QP_MAX_QP_RD_ATOMIC : 0));
}

std::uint64_t VhcaVictim::address_in(Input& input, const Region& region) {
    const std::uint64_t begin = region.mr->iova;
    switch (input.take<std::uint8_t>() % 4) {
        case 0:
            return begin + input.below(kRegionBytes / 8) * 8;
        case 1:
            return begin + kRegionBytes - input.below(64);
        case 2:
            return begin - input.below(64);
        default:
            return input.take<std::uint64_t>();
    }
}

std::size_t VhcaVictim::compose(Input& input, std::span<std::byte, vhca::kPacketBytesMax> out) {
    const vhca::Qp& qp = *pairs_[input.below(static_cast<std::uint32_t>(pairs_.size()))];
    const Region& region = regions_[input.below(static_cast<std::uint32_t>(regions_.size()))];
    vhca::Packet packet;
    const unsigned transport = qp.type() == IBV_QPT_RC   ? vhca::kTransportRc
                               : qp.type() == IBV_QPT_UC ? vhca::kTransportUc
                                                         : vhca::kTransportUd;
    packet.opcode = static_cast<vhca::Opcode>(transport | input.take<std::uint8_t>() % 0x20);
    const auto flags = input.take<std::uint8_t>();
    packet.solicited = (flags & 1) != 0;
    packet.wants_ack = (flags & 2) != 0;
    packet.qpn = qp.number();
    packet.psn = kPsn + input.take<std::uint8_t>() % 32;
    packet.rkey = region.mr->key;
    packet.address = address_in(input, region);
    packet.length = (flags & 4) != 0 ? input.below(4096) : input.take<std::uint32_t>();
    packet.swap_add = packet.compare = input.take<std::uint8_t>();
    packet.qkey = kQkey;
    packet.source_qpn = 3;
    packet.syndrome = input.take<std::uint8_t>();
    packet.imm = region.mr->key;
    std::size_t payload = (flags & 8) != 0 ? 512 : input.below(vhca::kMtuMax + 1);
    if (!vhca::kOpcodes[static_cast<std::uint8_t>(packet.opcode)].traits)
        payload = std::min<std::size_t>(payload, 64);
    std::byte* at = vhca::put_headers(out.data(), packet, payload);
    std::memset(at, 0x11, payload);
    input.take_into({at, std::min<std::size_t>(payload, 48)});
    const std::byte* end = vhca::put_padding(at + payload, payload);
    const auto bytes = static_cast<std::size_t>(end - out.data());
    for (unsigned damages = flags >> 6; damages != 0; --damages) {
        out[input.below(static_cast<std::uint32_t>(bytes))] ^=
            static_cast<std::byte>(input.take<std::uint8_t>());
    }
    return bytes;
}

ibv_sge VhcaVictim::sge_in(Input& input, bool may_be_wrong) {
    const Region& region = regions_[input.below(may_be_wrong ? 4 : 2)];
    const std::uint64_t address =
        may_be_wrong ? address_in(input, region) : region.mr->iova + input.below(1024);
    return {address, input.below(1500), region.mr->key};
}

void VhcaVictim::post_send(Input& input) {
    vhca::Qp& qp = *pairs_[input.below(static_cast<std::uint32_t>(pairs_.size()))];
    const auto kind = input.take<std::uint8_t>();
    ibv_sge sge = sge_in(input, (kind & 0x80) != 0);
    vhca::SendWork work{
        .wr_id = 1, .opcode = static_cast<ibv_wr_opcode>(kind % 7), .flags = IBV_SEND_SIGNALED};
    if (work.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP)
        sge.length = sizeof(std::uint64_t);
    work.sges = {&sge, 1};
    work.remote_addr = input.take<std::uint64_t>();
    work.route = kPeer;
    work.remote_qpn = 3;
    static_cast<void>(qp.post_send(work, now_));
}

void VhcaVictim::post_receive(Input& input) {
    const ibv_sge sge = sge_in(input, input.take<std::uint8_t>() % 16 == 0);
    const auto where = input.below(5);
    if (where < 3) {
        static_cast<void>(pairs_[where]->post_recv({.wr_id = 2, .sges = {&sge, 1}}));
        return;
    }
    static_cast<void>(srqs_[where - 3]->post({.wr_id = 3, .sges = {&sge, 1}}));
    vhca::TagWork tag{.wr_id = 4, .opcode = IBV_WR_TAG_ADD, .recv_wr_id = 5};
    tag.tag = tag.mask = input.take<std::uint8_t>() % 4;
    tag.sges = {&sge, 1};
    std::size_t failed = 0;
    static_cast<void>(srqs_[1]->post_ops({&tag, 1}, &failed, now_));
}

void VhcaVictim::act(Input& input) {
    vhca::Completion completion;
    switch (input.take<std::uint8_t>() % 8) {
        case 0:
            post_send(input);
            break;
        case 1:
        case 2:
            post_receive(input);
            break;
        case 3: {
            vhca::Qp& qp = *pairs_[input.below(static_cast<std::uint32_t>(pairs_.size()))];
            ibv_qp_attr attr{};
            attr.qp_state = IBV_QPS_RESET;
            require(qp.modify(attr, IBV_QP_STATE, {}, now_) == 0);
            connect(qp);
            break;
        }
        case 4:
            now_ += input.take<std::uint32_t>();
            break;
        default:
            while (cq_->poll(&completion))
                require(completion.wc.byte_len <= 1U << 30);
    }
    device_->progress(now_);
}

void VhcaVictim::check() {
    const auto is_intact = [](std::span<const std::byte> bytes) {
        return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == kCanary; });
    };
    for (const Region& region : regions_) {
        const std::span<const std::byte> block(region.block);
        require(is_intact(block.first(kEdgeBytes)) && is_intact(block.last(kEdgeBytes)));
        require(!region.is_read_only || is_intact(block));
        require(region.pd != other_pd_ || is_intact(block));
    }
}

}  // namespace tagwire::fuzz
