// SPDX-License-Identifier: BSD-3-Clause
// Fuzz target of the addresses of workers, which a peer wrote and a program carried. An address
// that is accepted is packed into the bytes that it was read from, less the contacts of transports
// that this library does not have; one that is cut or goes on is refused.
#include <algorithm>
#include <string>
#include <vector>

#include "input.hpp"
#include "protocols/wire/address.hpp"
#include "target.hpp"

namespace tagwire::fuzz::msg_address_fuzz {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kContacts = 1, kCheck = 2;  // offsets

/// As a writer that computes the check itself.
void set_check(Bytes* bytes) {
    unsigned crc = 0xffff;
    for (std::size_t i = 0; i < bytes->size(); ++i) {
        const bool is_check = i == kCheck || i == kCheck + 1;
        crc ^= (is_check ? 0U : std::to_integer<unsigned>((*bytes)[i])) << 8;
        for (int bit = 0; bit < 8; ++bit)
            crc = ((crc << 1) ^ ((crc & 0x8000U) != 0 ? 0x1021U : 0U)) & 0xffffU;
    }
    (*bytes)[kCheck] = static_cast<std::byte>(crc & 0xff);
    (*bytes)[kCheck + 1] = static_cast<std::byte>(crc >> 8);
}

bool is_same(const proto::Contact& one, const proto::Contact& other) {
    return one.transport == other.transport && one.device == other.device &&
           one.iface == other.iface;
}

void require_refused(const Bytes& bytes) {
    std::string reason;
    require(!proto::parse(bytes, &reason).has_value() && !reason.empty());
}

void use(const Bytes& bytes, const proto::Address& address) {
    const std::size_t contacts = std::to_integer<std::size_t>(bytes[kContacts]);
    require(!address.contacts.empty() && address.contacts.size() <= contacts);
    for (const proto::Contact& contact : address.contacts) {
        require(proto::first_contact_rank(contact.transport) != 0);
        const proto::Contact* first = address.contact_over(contact.transport);
        require(first != nullptr && first <= &contact && first->transport == contact.transport);
    }
    const Bytes packed = proto::pack(address);
    if (address.contacts.size() == contacts)
        require(packed == bytes);
    else
        require(packed.size() < bytes.size());
    std::string reason;
    const auto again = proto::parse(packed, &reason);
    require(again.has_value() && reason.empty() && again->id == address.id);
    require(std::ranges::equal(again->contacts, address.contacts, is_same));

    for (std::size_t length = 0; length < bytes.size(); ++length)
        require_refused({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length)});
    Bytes longer = bytes;
    longer.push_back(std::byte{0});
    set_check(&longer);
    require_refused(longer);
}

void run_input(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    // Most inputs get a right checksum, so that they come as far as the contacts.
    const bool is_raw = input.take<std::uint8_t>() % 4 == 0;
    const auto rest = input.rest();
    Bytes bytes(rest.begin(), rest.end());
    if (!is_raw && bytes.size() >= proto::kAddressHeadBytes)
        set_check(&bytes);
    std::string reason;
    if (const auto address = proto::parse(bytes, &reason)) {
        require(reason.empty());
        use(bytes, *address);
    } else {
        require(!reason.empty());
    }
}

}  // namespace

extern const Target kTarget{"msg_address", nullptr, run_input};

}  // namespace tagwire::fuzz::msg_address_fuzz
