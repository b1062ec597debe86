// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/address.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

namespace tagwire::proto {

namespace {

constexpr std::uint8_t kVersion = 1;

struct Head {
    std::uint8_t version;
    std::uint8_t transport;
    std::uint8_t device_bytes;
    std::uint8_t iface_bytes;
    std::uint32_t check;
    std::uint64_t id;
};
static_assert(sizeof(Head) == kAddressHeadBytes);

/// FNV-1a over everything but the check itself.
std::uint32_t check_of(std::span<const std::byte> bytes) {
    std::uint32_t hash = 2166136261U;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const bool is_check = i >= offsetof(Head, check) && i < offsetof(Head, id);
        hash = (hash ^ (is_check ? 0U : std::to_integer<std::uint32_t>(bytes[i]))) * 16777619U;
    }
    return hash;
}

}  // namespace

bool takes_first_contact(std::string_view transport) {
    return std::ranges::find(kFirstContact, transport) != std::end(kFirstContact);
}

std::vector<std::byte> pack(const Address& address) {
    Head head{};
    head.version = kVersion;
    head.transport = static_cast<std::uint8_t>(std::distance(
        std::begin(kFirstContact), std::ranges::find(kFirstContact, address.transport)));
    head.device_bytes = static_cast<std::uint8_t>(address.device.size());
    head.iface_bytes = static_cast<std::uint8_t>(address.iface.size());
    head.id = address.id;
    std::vector<std::byte> bytes(sizeof head);
    bytes.insert(bytes.end(), address.device.begin(), address.device.end());
    bytes.insert(bytes.end(), address.iface.begin(), address.iface.end());
    std::memcpy(bytes.data(), &head, sizeof head);
    head.check = check_of(bytes);
    std::memcpy(bytes.data(), &head, sizeof head);
    return bytes;
}

std::optional<Address> parse(std::span<const std::byte> bytes, std::string* reason_p) {
    Head head{};
    if (bytes.size() < sizeof head) {
        *reason_p = fmt::format("{} bytes are too few for an address", bytes.size());
        return std::nullopt;
    }
    std::memcpy(&head, bytes.data(), sizeof head);
    const std::size_t wanted = sizeof head + head.device_bytes + head.iface_bytes;
    if (head.version != kVersion) {
        *reason_p = fmt::format("version {}; this library knows {}", head.version, kVersion);
    } else if (head.transport >= std::size(kFirstContact)) {
        *reason_p = fmt::format("transport number {} is unknown", head.transport);
    } else if (bytes.size() != wanted) {
        *reason_p = fmt::format("{} bytes where {} are announced", bytes.size(), wanted);
    } else if (head.check != check_of(bytes)) {
        *reason_p = "its check sum is wrong";
    } else {
        const auto device = bytes.subspan(sizeof head, head.device_bytes);
        const auto iface = bytes.subspan(sizeof head + head.device_bytes);
        return Address{head.id,
                       kFirstContact[head.transport],
                       {device.begin(), device.end()},
                       {iface.begin(), iface.end()}};
    }
    return std::nullopt;
}

}  // namespace tagwire::proto
