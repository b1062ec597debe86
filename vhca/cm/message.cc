// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/cm/message.hpp"

#include <algorithm>
#include <concepts>
#include <cstring>

namespace tagwire::vhca::cm {

namespace {

constexpr std::size_t kHeadBytes = 24;
constexpr std::uint8_t kBaseVersion = 1, kClassCm = 7, kClassVersion = 2, kMethodSend = 3;
// 4.096 us << 20: what the kernel tells, and the number of times that it sends a message again.
constexpr std::uint8_t kResponseTimeout = 20, kCmRetriesMax = 15;

class Writer {
  public:
    Writer(Mad& mad, std::size_t origin) : to_(mad.data() + origin) {}
    void put(std::size_t at, std::unsigned_integral auto value) { put(at, value, sizeof value); }
    void put24(std::size_t at, std::uint32_t value) { put(at, value, 3); }
    void put(std::size_t at, const void* from, std::size_t bytes) {
        std::memcpy(to_ + at, from, bytes);
    }
    void put_bits(std::size_t at, unsigned value) { put(at, static_cast<std::uint8_t>(value)); }

  private:
    void put(std::size_t at, std::unsigned_integral auto value, std::size_t bytes) {
        for (std::size_t i = 0; i < bytes; ++i)
            to_[at + i] = static_cast<std::byte>(std::uint64_t{value} >> 8 * (bytes - 1 - i));
    }
    std::byte* to_;
};

class Reader {
  public:
    Reader(std::span<const std::byte> mad, std::size_t origin) : from_(mad.subspan(origin)) {}
    [[nodiscard]] std::uint8_t u8(std::size_t at) const {
        return static_cast<std::uint8_t>(get(at, 1));
    }
    [[nodiscard]] std::uint16_t u16(std::size_t at) const {
        return static_cast<std::uint16_t>(get(at, 2));
    }
    [[nodiscard]] std::uint32_t u24(std::size_t at) const {
        return static_cast<std::uint32_t>(get(at, 3));
    }
    [[nodiscard]] std::uint32_t u32(std::size_t at) const {
        return static_cast<std::uint32_t>(get(at, 4));
    }
    [[nodiscard]] std::uint64_t u64(std::size_t at) const { return get(at, 8); }
    void get(std::size_t at, void* to, std::size_t bytes) const {
        std::memcpy(to, &from_[at], bytes);
    }

  private:
    [[nodiscard]] std::uint64_t get(std::size_t at, std::size_t bytes) const {
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < bytes; ++i)
            value = value << 8 | std::to_integer<std::uint64_t>(from_[at + i]);
        return value;
    }
    std::span<const std::byte> from_;
};

std::size_t private_offset(Kind kind) {
    switch (kind) {
        case Kind::kReq:
            return 140;
        case Kind::kMra:
            return 10;
        case Kind::kRej:
            return 84;
        case Kind::kRep:
            return 36;
        case Kind::kDreq:
            return 12;
        case Kind::kSidrReq:
            return 16;
        case Kind::kSidrRep:
            return 96;
        default:
            return 8;
    }
}

void format_req(const Message& m, Writer w) {
    w.put(8, m.service_id);
    w.put(16, m.guid);
    w.put(28, m.qkey);
    w.put24(32, m.qpn);
    w.put(35, m.responder_resources);
    w.put(39, m.initiator_depth);
    w.put_bits(43, unsigned{kResponseTimeout} << 3 | unsigned{m.transport} << 1 |
                       (m.has_flow_control ? 1U : 0U));
    w.put24(44, m.psn);
    w.put_bits(47, kResponseTimeout << 3 | (m.retry_count & 7));
    w.put(48, m.pkey);
    w.put_bits(50, unsigned{m.mtu} << 4 | (m.rnr_retry_count & 7U));
    w.put_bits(51, kCmRetriesMax << 4 | (m.has_srq ? 8 : 0));
    w.put(52, m.local_lid);
    w.put(54, m.remote_lid);
    w.put(56, &m.local_gid, sizeof m.local_gid);
    w.put(72, &m.remote_gid, sizeof m.remote_gid);
    w.put(92, m.traffic_class);
    w.put(93, m.hop_limit);
    w.put_bits(94, m.hop_limit <= 1 ? 8 : 0);  // subnet local
    w.put_bits(95, unsigned{m.ack_timeout} << 3);
}

void parse_req(Reader r, Message* m) {
    m->service_id = r.u64(8);
    m->guid = r.u64(16);
    m->qkey = r.u32(28);
    m->qpn = r.u24(32);
    m->responder_resources = r.u8(35);
    m->initiator_depth = r.u8(39);
    m->transport = r.u8(43) >> 1 & 3;
    m->has_flow_control = (r.u8(43) & 1) != 0;
    m->psn = r.u24(44);
    m->retry_count = r.u8(47) & 7;
    m->pkey = r.u16(48);
    m->mtu = r.u8(50) >> 4;
    m->rnr_retry_count = r.u8(50) & 7;
    m->has_srq = (r.u8(51) & 8) != 0;
    m->local_lid = r.u16(52);
    m->remote_lid = r.u16(54);
    r.get(56, &m->local_gid, sizeof m->local_gid);
    r.get(72, &m->remote_gid, sizeof m->remote_gid);
    m->traffic_class = r.u8(92);
    m->hop_limit = r.u8(93);
    m->ack_timeout = r.u8(95) >> 3;
}

void format_rep(const Message& m, Writer w) {
    w.put(8, m.qkey);
    w.put24(12, m.qpn);
    w.put24(20, m.psn);
    w.put(24, m.responder_resources);
    w.put(25, m.initiator_depth);
    w.put_bits(26, m.has_flow_control ? 1 : 0);
    w.put_bits(27, (m.rnr_retry_count & 7U) << 5 | (m.has_srq ? 16U : 0U));
    w.put(28, m.guid);
}

void parse_rep(Reader r, Message* m) {
    m->qkey = r.u32(8);
    m->qpn = r.u24(12);
    m->psn = r.u24(20);
    m->responder_resources = r.u8(24);
    m->initiator_depth = r.u8(25);
    m->has_flow_control = (r.u8(26) & 1) != 0;
    m->rnr_retry_count = r.u8(27) >> 5;
    m->has_srq = (r.u8(27) & 16) != 0;
    m->guid = r.u64(28);
}

void format_fields(const Message& m, Writer w) {
    switch (m.kind) {
        case Kind::kReq:
            format_req(m, w);
            break;
        case Kind::kRep:
            format_rep(m, w);
            break;
        case Kind::kMra:
            w.put_bits(8, unsigned{m.rejected} << 6);
            w.put_bits(9, kResponseTimeout << 3);
            break;
        case Kind::kRej:
            w.put_bits(8, unsigned{m.rejected} << 6);
            w.put(10, m.reason);
            break;
        case Kind::kDreq:
            w.put24(8, m.qpn);
            break;
        case Kind::kSidrReq:
            w.put(4, m.pkey);
            w.put(8, m.service_id);
            break;
        case Kind::kSidrRep:
            w.put_bits(4, m.reason);
            w.put24(8, m.qpn);
            w.put(12, m.service_id);
            w.put(20, m.qkey);
            break;
        default:
            break;
    }
}

void parse_fields(Reader r, Message* m) {
    switch (m->kind) {
        case Kind::kReq:
            parse_req(r, m);
            break;
        case Kind::kRep:
            parse_rep(r, m);
            break;
        case Kind::kMra:
            m->rejected = r.u8(8) >> 6;
            break;
        case Kind::kRej:
            m->rejected = r.u8(8) >> 6;
            m->reason = r.u16(10);
            break;
        case Kind::kDreq:
            m->qpn = r.u24(8);
            break;
        case Kind::kSidrReq:
            m->pkey = r.u16(4);
            m->service_id = r.u64(8);
            break;
        case Kind::kSidrRep:
            m->reason = r.u8(4);
            m->qpn = r.u24(8);
            m->service_id = r.u64(12);
            m->qkey = r.u32(20);
            break;
        default:
            break;
    }
}

bool has_remote_id(Kind kind) {
    return kind != Kind::kReq && kind != Kind::kSidrReq && kind != Kind::kSidrRep;
}

}  // namespace

std::size_t private_bytes_max(Kind kind) {
    return kMadBytes - kHeadBytes - private_offset(kind);
}

Mad format(const Message& message) {
    Mad mad{};
    mad[0] = std::byte{kBaseVersion};
    mad[1] = std::byte{kClassCm};
    mad[2] = std::byte{kClassVersion};
    mad[3] = std::byte{kMethodSend};
    Writer w(mad, kHeadBytes);
    Writer head(mad, 0);
    head.put(8, message.transaction);
    head.put(16, static_cast<std::uint16_t>(message.kind));
    w.put(0, message.local_id);
    if (has_remote_id(message.kind))
        w.put(4, message.remote_id);
    format_fields(message, w);
    const std::size_t room = std::min(private_bytes_max(message.kind), message.private_data.size());
    w.put(private_offset(message.kind), message.private_data.data(), room);
    return mad;
}

bool parse(std::span<const std::byte> mad, Message* message_p) {
    if (mad.size() != kMadBytes || mad[0] != std::byte{kBaseVersion} ||
        mad[1] != std::byte{kClassCm} || mad[2] != std::byte{kClassVersion} ||
        mad[3] != std::byte{kMethodSend}) {
        return false;
    }
    const Reader head(mad, 0), r(mad, kHeadBytes);
    const std::uint16_t attribute = head.u16(16);
    if (attribute < static_cast<std::uint16_t>(Kind::kReq) ||
        attribute > static_cast<std::uint16_t>(Kind::kSidrRep)) {
        return false;
    }
    Message& m = *message_p;
    m = {};
    m.kind = static_cast<Kind>(attribute);
    m.transaction = head.u64(8);
    m.local_id = r.u32(0);
    m.remote_id = has_remote_id(m.kind) ? r.u32(4) : 0;
    parse_fields(r, &m);
    const std::size_t room = std::min(private_bytes_max(m.kind), m.private_data.size());
    r.get(private_offset(m.kind), m.private_data.data(), room);
    return true;
}

}  // namespace tagwire::vhca::cm
