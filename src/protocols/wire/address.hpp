// SPDX-License-Identifier: BSD-3-Clause
// The address of a worker: its id, and where it takes first contact.
//
//     offset  0  version    u8    3
//             1  contacts   u8    1 to kContactsMax
//             2  check      u16   CRC-16 of everything else
//             4  id         u64
//            12  contacts, the nearest first:
//                  rank     u8    the transport's first-contact rank
//                  device   u8    bytes of the device address
//                  iface    u8    bytes of the interface address
//                  device address, interface address
//
// A reader leaves out contacts of transports that it does not know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocols/wire/reserve_bytes.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

inline constexpr std::size_t kAddressHeadBytes = 12;
inline constexpr std::size_t kContactHeadBytes = 3;
inline constexpr std::size_t kContactsMax = 4;

/// An interface that takes first contact.
struct Contact {
    std::string transport;
    ReserveBytes device;
    ReserveBytes iface;

    std::size_t packed_bytes() const { return kContactHeadBytes + device.size() + iface.size(); }
};

struct Address {
    std::uint64_t id = 0;
    ucs::ReserveVector<Contact> contacts;  // in the order in which they are tried

    /// The first one over that transport; nullptr: none.
    const Contact* contact_over(std::string_view transport) const;
};

/// A transport that may take first contact.
struct FirstContact {
    std::string_view transport;
    std::uint8_t rank;  ///< tagwire_uct_transport_t::first_contact_rank; addresses hold it
};

/// All of them, the nearest reaching first. The first call may throw std::bad_alloc;
/// Context::create() makes it.
std::span<const FirstContact> first_contacts();

/// Names of first_contacts(): "sm, ud, dc, tcp".
std::string first_contact_names();

/// 0: the transport does not take first contact.
std::uint8_t first_contact_rank(std::string_view transport);

/// The address has 1 to kContactsMax contacts, whose addresses have at most 255 bytes each.
std::vector<std::byte> pack(const Address& address);

/// nullopt when the bytes are no address; `*reason_p` says why. At least one contact.
std::optional<Address> parse(std::span<const std::byte> bytes, std::string* reason_p);

}  // namespace tagwire::proto
