// SPDX-License-Identifier: BSD-3-Clause
// Addresses of the transport tcp, as peers exchange them: fixed length, no padding, numbers in
// little-endian order.
//
//   device address                        interface address
//   0  magic    1                         0   port      2
//   1  kind     1   DeviceKind bits       2   instance  8   random, names the interface
//   2  space    4   host and network      10  cookie   16   random, proves who has the address
//                   namespace, hashed
//   6  address 16   IPv4: the first four
//
// Both together have 48 bytes, so that one contact over tcp fits a name of libfabric.
#pragma once

#include <netinet/in.h>
#include <uct/api/uct.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tagwire::tcp {

enum DeviceKind : std::uint8_t { kKindInet6 = 1, kKindLoopback = 2 };

struct DeviceAddress {
    std::uint8_t magic;
    std::uint8_t kind;
    std::array<std::uint8_t, 4> space;
    std::array<std::uint8_t, 16> address;
};
static_assert(sizeof(DeviceAddress) == 22 && alignof(DeviceAddress) == 1);

using Cookie = std::array<std::uint8_t, 16>;

struct IfaceAddress {
    std::array<std::uint8_t, 2> port;
    std::array<std::uint8_t, 8> instance;
    Cookie cookie;
};
static_assert(sizeof(IfaceAddress) == 26 && alignof(IfaceAddress) == 1);
static_assert(sizeof(DeviceAddress) + sizeof(IfaceAddress) == 48);

/// An IP address without a port.
struct IpAddress {
    bool is_inet6 = false;
    bool is_loopback = false;
    std::uint32_t scope = 0;  // IPv6: of a link-local address, on this host
    std::array<std::uint8_t, 16> bytes{};
};

DeviceAddress pack(const IpAddress& address);
/// Nothing: the bytes are no address of a device.
std::optional<DeviceAddress> parse_device_address(const void* bytes);
IpAddress ip_of(const DeviceAddress& address);
/// Whether both devices are in one network namespace of one host.
bool is_same_space(const DeviceAddress& one, const DeviceAddress& other);
/// Names the running kernel, whatever the network namespace. Two hosts may share it by chance.
std::uint32_t own_host();

IfaceAddress pack(std::uint16_t port, std::uint64_t instance, const Cookie& cookie);
std::uint16_t port_of(const IfaceAddress& address);
std::uint64_t instance_of(const IfaceAddress& address);

/// Compared in a time that tells nothing of where they differ.
bool is_equal(const Cookie& one, const Cookie& other);
Cookie random_cookie();

/// For system calls; the length is `*bytes_p`.
sockaddr_storage sockaddr_of(const IpAddress& address, std::uint16_t port, socklen_t* bytes_p);
IpAddress ip_of(const sockaddr_storage& address);
std::string text_of(const IpAddress& address);

}  // namespace tagwire::tcp
