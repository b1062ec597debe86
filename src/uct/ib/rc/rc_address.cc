// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/rc/rc_address.hpp"

#include <endian.h>

#include <cstring>

#include "uct/ib/address.hpp"

namespace tagwire::rc {

namespace {

constexpr std::uint32_t kNumberMax = 0xffffff;  // queue pairs and packet numbers have 24 bits
constexpr std::uint32_t kSegBytesMax = 1 << 20;

template <class Address>
std::uint8_t sum_of(const Address& address) {
    return ib::checksum(std::as_bytes(std::span(&address, 1)));
}

template <class Address>
std::optional<Address> take(std::span<const std::byte> bytes, std::string* reason_p) {
    Address address{};
    if (bytes.size() < sizeof address) {
        *reason_p = "an rc address has " + std::to_string(sizeof address) + " bytes, not " +
                    std::to_string(bytes.size());
        return std::nullopt;
    }
    std::memcpy(&address, bytes.data(), sizeof address);
    // The byte that would make the sum of all zero is then zero itself.
    if (sum_of(address) != 0) {
        *reason_p = "this is no rc address: its checksum is wrong";
        return std::nullopt;
    }
    if (address.version != kRcAddressVersion) {
        *reason_p = "the peer's rc address has version " + std::to_string(address.version) +
                    ", ours " + std::to_string(kRcAddressVersion);
        return std::nullopt;
    }
    if ((address.flags & ~kDeviceMatches) != 0) {
        *reason_p = "the peer's rc address has unknown flags";
        return std::nullopt;
    }
    address.seg_bytes = be32toh(address.seg_bytes);
    if (address.seg_bytes == 0 || address.seg_bytes > kSegBytesMax) {
        *reason_p = "the peer's rc address has an impossible segment size";
        return std::nullopt;
    }
    return address;
}

}  // namespace

RcIfaceAddress pack(RcIfaceAddress address) {
    address.seg_bytes = htobe32(address.seg_bytes);
    address.check = 0;
    address.check = sum_of(address);
    return address;
}

RcEpAddress pack(RcEpAddress address) {
    address.seg_bytes = htobe32(address.seg_bytes);
    address.qp_num = htobe32(address.qp_num);
    address.device_qp_num = htobe32(address.device_qp_num);
    address.psn = htobe32(address.psn);
    address.credits = htobe16(address.credits);
    address.check = 0;
    address.check = sum_of(address);
    return address;
}

std::optional<RcIfaceAddress> parse_iface_address(std::span<const std::byte> bytes,
                                                  std::string* reason_p) {
    return take<RcIfaceAddress>(bytes, reason_p);
}

std::optional<RcEpAddress> parse_ep_address(std::span<const std::byte> bytes,
                                            std::string* reason_p) {
    auto address = take<RcEpAddress>(bytes, reason_p);
    if (!address)
        return address;
    address->qp_num = be32toh(address->qp_num);
    address->device_qp_num = be32toh(address->device_qp_num);
    address->psn = be32toh(address->psn);
    address->credits = be16toh(address->credits);
    const bool has_device_qp = (address->flags & kDeviceMatches) != 0;
    if (address->qp_num == 0 || address->qp_num > kNumberMax ||
        address->device_qp_num > kNumberMax || address->psn > kNumberMax ||
        has_device_qp != (address->device_qp_num != 0) || address->credits == 0 ||
        address->reads == 0) {
        *reason_p = "the peer's rc endpoint address has impossible values";
        return std::nullopt;
    }
    return address;
}

}  // namespace tagwire::rc
