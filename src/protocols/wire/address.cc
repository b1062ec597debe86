// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/wire/address.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <fmt/format.h>
#include <uct/api/tagwire_uct.h>

namespace tagwire::proto {

namespace {

constexpr std::uint8_t kVersion = 2;

struct Head {
    std::uint8_t version;
    std::uint8_t rank;  // of the transport
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

std::vector<FirstContact> ranked_transports() {
    std::vector<FirstContact> ranked;
    const auto add = [](void* arg, const tagwire_uct_transport_t* transport) {
        if (transport->first_contact_rank != 0) {
            static_cast<std::vector<FirstContact>*>(arg)->push_back(
                {transport->name, static_cast<std::uint8_t>(transport->first_contact_rank)});
        }
    };
    if (tagwire_uct_transports(add, &ranked) != UCS_OK)
        throw std::bad_alloc();
    std::ranges::sort(ranked, {}, &FirstContact::rank);
    return ranked;
}

}  // namespace

std::span<const FirstContact> first_contacts() {
    static const std::vector<FirstContact> ranked = ranked_transports();
    return ranked;
}

std::string first_contact_names() {
    std::string names;
    for (const FirstContact& contact : first_contacts())
        names += fmt::format("{}{}", names.empty() ? "" : ", ", contact.transport);
    return names;
}

std::uint8_t first_contact_rank(std::string_view transport) {
    const auto all = first_contacts();
    const auto found = std::ranges::find(all, transport, &FirstContact::transport);
    return found == all.end() ? 0 : found->rank;
}

std::vector<std::byte> pack(const Address& address) {
    Head head{};
    head.version = kVersion;
    head.rank = first_contact_rank(address.transport);
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
        *reason_p = fmt::format("{} bytes are too short for an address", bytes.size());
        return std::nullopt;
    }
    std::memcpy(&head, bytes.data(), sizeof head);
    const auto all = first_contacts();
    const auto transport = std::ranges::find(all, head.rank, &FirstContact::rank);
    const std::size_t wanted = sizeof head + head.device_bytes + head.iface_bytes;
    if (head.version != kVersion) {
        *reason_p =
            fmt::format("its version is {}; this library supports {}", head.version, kVersion);
    } else if (transport == all.end()) {
        *reason_p =
            fmt::format("this library has no transport of first-contact rank {}", head.rank);
    } else if (bytes.size() != wanted) {
        *reason_p =
            fmt::format("it has {} bytes, but its header announces {}", bytes.size(), wanted);
    } else if (head.check != check_of(bytes)) {
        *reason_p = "its checksum is wrong";
    } else {
        const auto device = bytes.subspan(sizeof head, head.device_bytes);
        const auto iface = bytes.subspan(sizeof head + head.device_bytes);
        return Address{head.id,
                       std::string(transport->transport),
                       {device.begin(), device.end()},
                       {iface.begin(), iface.end()}};
    }
    return std::nullopt;
}

}  // namespace tagwire::proto
