// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ud/ud_packet.hpp"

#include <endian.h>
#include <uct/api/uct.h>

#include <algorithm>
#include <cstring>

namespace tagwire::ud {

namespace {

constexpr std::uint32_t kQpNumberMax = 0xffffff;
constexpr std::size_t kDatagramBytesMin = 256;  // the shortest MTU

static_assert(kAmIdEnd == UCT_AM_ID_MAX);

void swap_order(Header& header) {
    header.to_cookie = htobe32(header.to_cookie);
    header.to_id = htobe32(header.to_id);
    header.from_id = htobe32(header.from_id);
    header.psn = htobe32(header.psn);
    header.ack_id = htobe32(header.ack_id);
    header.ack_psn = htobe32(header.ack_psn);
}

}  // namespace

Header pack(Header header) {
    swap_order(header);
    return header;
}

std::optional<Header> parse_header(std::span<const std::byte> datagram) {
    Header header;
    if (datagram.size() < sizeof header)
        return std::nullopt;
    std::memcpy(&header, datagram.data(), sizeof header);
    swap_order(header);
    const bool is_ours = header.magic == kMagic && header.version == kVersion &&
                         header.kind >= Kind::kConnect && header.kind <= Kind::kReset &&
                         (header.flags & ~kFlagsAll) == 0 && header.reserved[0] == 0 &&
                         header.reserved[1] == 0 && header.reserved[2] == 0 &&
                         header.value < kAmIdEnd;
    const bool is_whole = !has_return_address(header.kind) || datagram.size() >= kControlBytesMax;
    return is_ours && is_whole ? std::optional(header) : std::nullopt;
}

std::uint32_t packets_between(const InterfaceAddress& own, const InterfaceAddress& peer) {
    const std::size_t longest = own.datagram_bytes - kHeaderBytes;
    const std::size_t taken = std::min<std::size_t>(peer.datagram_bytes - kHeaderBytes, longest);
    return static_cast<std::uint32_t>((longest + taken - 1) / taken);
}

bool agrees(const InterfaceAddress& own, const InterfaceAddress& peer, std::uint64_t window,
            std::string* reason_p) {
    if (peer.datagram_bytes >= kDatagramBytesMin && packets_between(own, peer) <= window)
        return true;
    *reason_p = "the peer's datagrams have up to " + std::to_string(peer.datagram_bytes) +
                " bytes, ours " + std::to_string(own.datagram_bytes) +
                ", and TAGWIRE_UD_WINDOW=" + std::to_string(window) +
                " is too small for a message that is divided: raise it, or set TAGWIRE_IB_MTU to "
                "the smaller on both sides";
    return false;
}

InterfaceAddress pack(InterfaceAddress address) {
    address.datagram_bytes = htobe16(address.datagram_bytes);
    address.qp_num = htobe32(address.qp_num);
    address.cookie = htobe32(address.cookie);
    address.host = htobe64(address.host);
    address.check = 0;
    address.check = ib::checksum(std::as_bytes(std::span(&address, 1)));
    return address;
}

std::optional<InterfaceAddress> parse_interface(std::span<const std::byte> bytes,
                                                std::string* reason_p) {
    InterfaceAddress address;
    if (bytes.size() < sizeof address) {
        *reason_p = "a ud address has " + std::to_string(sizeof address) + " bytes, not " +
                    std::to_string(bytes.size());
        return std::nullopt;
    }
    std::memcpy(&address, bytes.data(), sizeof address);
    if (ib::checksum(std::as_bytes(std::span(&address, 1))) != 0) {
        *reason_p = "this is no ud address: its checksum is wrong";
        return std::nullopt;
    }
    if (address.version != kVersion) {
        *reason_p = "the peer's ud address has version " + std::to_string(address.version) +
                    ", ours " + std::to_string(kVersion);
        return std::nullopt;
    }
    address.datagram_bytes = be16toh(address.datagram_bytes);
    address.qp_num = be32toh(address.qp_num);
    address.cookie = be32toh(address.cookie);
    address.host = be64toh(address.host);
    if (address.qp_num == 0 || address.qp_num > kQpNumberMax || address.cookie == 0 ||
        address.datagram_bytes < kControlBytesMax) {
        *reason_p = "the peer's ud address has impossible values";
        return std::nullopt;
    }
    return address;
}

}  // namespace tagwire::ud
