// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/wire/address.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <uct/api/tagwire_uct.h>

#include "ucs/debug/check.hpp"

namespace tagwire::proto {

namespace {

constexpr std::uint8_t kVersion = 3;

struct Head {
    std::uint8_t version;
    std::uint8_t contacts;
    std::array<std::uint8_t, 2> check;
    std::array<std::uint8_t, 8> id;
};
static_assert(sizeof(Head) == kAddressHeadBytes && alignof(Head) == 1);

struct ContactHead {
    std::uint8_t rank;
    std::uint8_t device_bytes;
    std::uint8_t iface_bytes;
};
static_assert(sizeof(ContactHead) == kContactHeadBytes);

/// CRC-16/CCITT over everything but the check itself.
std::uint16_t crc_of(std::span<const std::byte> bytes) {
    constexpr unsigned kPolynomial = 0x1021;
    constexpr unsigned kTopBit = 0x8000;
    unsigned crc = 0xffff;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const bool is_check = i >= offsetof(Head, check) && i < offsetof(Head, id);
        crc ^= (is_check ? 0U : std::to_integer<unsigned>(bytes[i])) << 8;
        for (int bit = 0; bit < 8; ++bit)
            crc = ((crc << 1) ^ ((crc & kTopBit) != 0 ? kPolynomial : 0U)) & 0xffffU;
    }
    return static_cast<std::uint16_t>(crc);
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
    std::ranges::sort(ranked, std::ranges::greater(), &FirstContact::rank);
    return ranked;
}

/// The first of them, which `*rest` loses; without a transport if its rank is not known. Nothing:
/// it is not whole.
std::optional<std::pair<unsigned, Contact>> take_contact(std::span<const std::byte>* rest) {
    ContactHead head{};
    if (rest->size() < sizeof head)
        return std::nullopt;
    std::memcpy(&head, rest->data(), sizeof head);
    *rest = rest->subspan(sizeof head);
    const std::size_t addresses = std::size_t{head.device_bytes} + head.iface_bytes;
    if (rest->size() < addresses)
        return std::nullopt;
    const auto device = rest->first(head.device_bytes);
    const auto iface = rest->subspan(head.device_bytes, head.iface_bytes);
    *rest = rest->subspan(addresses);
    const auto all = first_contacts();
    const auto found = std::ranges::find(all, head.rank, &FirstContact::rank);
    return std::pair{unsigned{head.rank},
                     Contact{found == all.end() ? std::string() : std::string(found->transport),
                             {device.begin(), device.end()},
                             {iface.begin(), iface.end()}}};
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

const Contact* Address::contact_over(std::string_view transport) const {
    const auto found = std::ranges::find(contacts, transport, &Contact::transport);
    return found == contacts.end() ? nullptr : &*found;
}

std::vector<std::byte> pack(const Address& address) {
    TW_CHECK(!address.contacts.empty() && address.contacts.size() <= kContactsMax);
    Head head{};
    head.version = kVersion;
    head.contacts = static_cast<std::uint8_t>(address.contacts.size());
    std::memcpy(head.id.data(), &address.id, sizeof address.id);
    std::vector<std::byte> bytes(sizeof head);
    for (const Contact& contact : address.contacts) {
        const ContactHead each{first_contact_rank(contact.transport),
                               static_cast<std::uint8_t>(contact.device.size()),
                               static_cast<std::uint8_t>(contact.iface.size())};
        const auto* const from = reinterpret_cast<const std::byte*>(&each);
        bytes.insert(bytes.end(), from, from + sizeof each);
        bytes.insert(bytes.end(), contact.device.begin(), contact.device.end());
        bytes.insert(bytes.end(), contact.iface.begin(), contact.iface.end());
    }
    std::memcpy(bytes.data(), &head, sizeof head);
    const std::uint16_t check = crc_of(bytes);
    std::memcpy(bytes.data() + offsetof(Head, check), &check, sizeof check);
    return bytes;
}

std::optional<Address> parse(std::span<const std::byte> bytes, std::string* reason_p) {
    Head head{};
    const auto refuse = [&](std::string reason) {
        *reason_p = std::move(reason);
        return std::nullopt;
    };
    if (!bytes.empty() && std::to_integer<unsigned>(bytes[0]) != kVersion) {
        return refuse(fmt::format("its version is {}; this library supports {}",
                                  std::to_integer<unsigned>(bytes[0]), kVersion));
    }
    if (bytes.size() < sizeof head)
        return refuse(fmt::format("{} bytes are too short for an address", bytes.size()));
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.contacts == 0 || head.contacts > kContactsMax)
        return refuse(
            fmt::format("it has {} contacts; expected 1 to {}", head.contacts, kContactsMax));
    Address address;
    std::memcpy(&address.id, head.id.data(), sizeof address.id);
    std::string unknown;
    auto rest = bytes.subspan(sizeof head);
    for (unsigned i = 0; i < head.contacts; ++i) {
        const auto taken = take_contact(&rest);
        if (!taken)
            return refuse(fmt::format("{} bytes are too short for its {} contacts", bytes.size(),
                                      head.contacts));
        const auto& [rank, contact] = *taken;
        if (contact.transport.empty())
            unknown += fmt::format("{}{}", unknown.empty() ? "" : ", ", rank);
        else
            address.contacts.push_back(contact);
    }
    std::uint16_t check = 0;
    std::memcpy(&check, head.check.data(), sizeof check);
    if (!rest.empty())
        return refuse(fmt::format("{} bytes follow its contacts", rest.size()));
    if (check != crc_of(bytes))
        return refuse("its checksum is wrong");
    if (address.contacts.empty())
        return refuse(
            fmt::format("this library has no transport of first-contact rank {}", unknown));
    return address;
}

}  // namespace tagwire::proto
