// SPDX-License-Identifier: BSD-3-Clause
// The address of a worker: its id, and where it takes first contact.
//
//     offset  0  version    u8    2
//             1  transport  u8    its first-contact rank
//             2  device     u8    bytes of the device address
//             3  iface      u8    bytes of the interface address
//             4  check      u32   of everything else
//             8  id         u64
//            16  device address, interface address
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

inline constexpr std::size_t kAddressHeadBytes = 16;

struct Address {
    std::uint64_t id = 0;
    std::string transport;
    ReserveBytes device;
    ReserveBytes iface;
};

/// A transport that may take first contact.
struct FirstContact {
    std::string_view transport;
    std::uint8_t rank;  ///< tagwire_uct_transport_t::first_contact_rank; the address holds it
};

/// All of them, the farthest reaching first. The first call may throw std::bad_alloc;
/// Context::create() makes it.
std::span<const FirstContact> first_contacts();

/// Their names: "dc, ud, sm".
std::string first_contact_names();

/// 0: the transport does not take first contact.
std::uint8_t first_contact_rank(std::string_view transport);

std::vector<std::byte> pack(const Address& address);

/// nullopt when the bytes are no address; `*reason_p` says why.
std::optional<Address> parse(std::span<const std::byte> bytes, std::string* reason_p);

}  // namespace tagwire::proto
