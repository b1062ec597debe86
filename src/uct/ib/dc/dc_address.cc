// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dc_address.hpp"

#include <endian.h>

#include <cstring>

namespace tagwire::dc {

namespace {

constexpr std::uint32_t kNumberMax = 0xffffff;
constexpr std::uint32_t kSegBytesMax = 1 << 20;

std::uint8_t sum_of(const DcAddress& address) {
    return ib::checksum(std::as_bytes(std::span(&address, 1)));
}

}  // namespace

std::optional<DcAddress> parse_address(std::span<const std::byte> bytes, std::string* reason_p) {
    DcAddress address{};
    if (bytes.size() < sizeof address) {
        *reason_p = "a dc address has " + std::to_string(sizeof address) + " bytes, not " +
                    std::to_string(bytes.size());
        return std::nullopt;
    }
    std::memcpy(&address, bytes.data(), sizeof address);
    if (sum_of(address) != 0) {
        *reason_p = "this is no dc address: its checksum is wrong";
        return std::nullopt;
    }
    if (address.version != kDcAddressVersion) {
        *reason_p = "the peer's dc address has version " + std::to_string(address.version) +
                    ", ours " + std::to_string(kDcAddressVersion);
        return std::nullopt;
    }
    address.seg_bytes = be32toh(address.seg_bytes);
    address.number = be32toh(address.number);
    address.key = be64toh(address.key);
    if ((address.flags & ~kDeviceMatches) != 0 || address.seg_bytes == 0 ||
        address.seg_bytes > kSegBytesMax || address.number == 0 || address.number > kNumberMax) {
        *reason_p = "the peer's dc address has unknown flags, an impossible segment size or target";
        return std::nullopt;
    }
    return address;
}

DcAddress pack(DcAddress address) {
    address.seg_bytes = htobe32(address.seg_bytes);
    address.number = htobe32(address.number);
    address.key = htobe64(address.key);
    address.check = 0;
    address.check = sum_of(address);
    return address;
}

}  // namespace tagwire::dc
