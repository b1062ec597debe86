// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/address.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "ucs/sys/process.hpp"

namespace tagwire::tcp {

namespace {

constexpr std::uint8_t kMagic = 0x54;
constexpr std::size_t kInetBytes = 4;

template <class T, std::size_t N>
std::array<std::uint8_t, N> little(T value) {
    std::array<std::uint8_t, N> bytes;
    for (std::size_t i = 0; i < N; ++i)
        bytes[i] = static_cast<std::uint8_t>(value >> (8 * i));
    return bytes;
}

template <class T, std::size_t N>
T number(const std::array<std::uint8_t, N>& bytes) {
    T value = 0;
    for (std::size_t i = 0; i < N; ++i)
        value = static_cast<T>(value | static_cast<T>(T{bytes[i]} << (8 * i)));
    return value;
}

constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;

std::array<std::uint8_t, 4> own_space() {
    const std::uint64_t mixed = (ucs::boot_id() ^ ucs::network_namespace() * kSpread) * kSpread;
    return little<std::uint64_t, 4>(mixed >> 32);
}

}  // namespace

DeviceAddress pack(const IpAddress& address) {
    const unsigned kind = (address.is_inet6 ? unsigned{kKindInet6} : 0U) |
                          (address.is_loopback ? unsigned{kKindLoopback} : 0U);
    return {kMagic, static_cast<std::uint8_t>(kind), own_space(), address.bytes};
}

std::optional<DeviceAddress> parse_device_address(const void* bytes) {
    DeviceAddress address;
    std::memcpy(&address, bytes, sizeof address);
    const bool is_inet6 = (address.kind & kKindInet6) != 0;
    const auto behind = std::span(address.address).subspan(kInetBytes);
    if (address.magic != kMagic || address.kind > (kKindInet6 | kKindLoopback) ||
        (!is_inet6 && std::ranges::any_of(behind, [](std::uint8_t byte) { return byte != 0; })))
        return std::nullopt;
    return address;
}

IpAddress ip_of(const DeviceAddress& address) {
    return {(address.kind & kKindInet6) != 0, (address.kind & kKindLoopback) != 0, 0,
            address.address};
}

bool is_same_space(const DeviceAddress& one, const DeviceAddress& other) {
    return one.space == other.space;
}

std::uint32_t own_host() {
    return static_cast<std::uint32_t>(ucs::boot_id() * kSpread >> 32);
}

IfaceAddress pack(std::uint16_t port, std::uint64_t instance, const Cookie& cookie) {
    return {little<std::uint16_t, 2>(port), little<std::uint64_t, 8>(instance), cookie};
}

std::uint16_t port_of(const IfaceAddress& address) {
    return number<std::uint16_t>(address.port);
}

std::uint64_t instance_of(const IfaceAddress& address) {
    return number<std::uint64_t>(address.instance);
}

bool is_equal(const Cookie& one, const Cookie& other) {
    unsigned differing = 0;
    for (std::size_t i = 0; i < one.size(); ++i)
        differing |= static_cast<unsigned>(one[i] ^ other[i]);
    return differing == 0;
}

Cookie random_cookie() {
    Cookie cookie;
    for (std::size_t i = 0; i < cookie.size(); i += sizeof(std::uint64_t)) {
        const std::uint64_t random = ucs::random_u64();
        std::memcpy(cookie.data() + i, &random, sizeof random);
    }
    return cookie;
}

sockaddr_storage sockaddr_of(const IpAddress& address, std::uint16_t port, socklen_t* bytes_p) {
    sockaddr_storage storage{};
    if (address.is_inet6) {
        sockaddr_in6 inet6{};
        inet6.sin6_family = AF_INET6;
        inet6.sin6_port = htons(port);
        inet6.sin6_scope_id = address.scope;
        std::memcpy(&inet6.sin6_addr, address.bytes.data(), sizeof inet6.sin6_addr);
        std::memcpy(&storage, &inet6, sizeof inet6);
        *bytes_p = sizeof inet6;
        return storage;
    }
    sockaddr_in inet{};
    inet.sin_family = AF_INET;
    inet.sin_port = htons(port);
    std::memcpy(&inet.sin_addr, address.bytes.data(), sizeof inet.sin_addr);
    std::memcpy(&storage, &inet, sizeof inet);
    *bytes_p = sizeof inet;
    return storage;
}

IpAddress ip_of(const sockaddr_storage& address) {
    IpAddress ip;
    ip.is_inet6 = address.ss_family == AF_INET6;
    if (ip.is_inet6) {
        sockaddr_in6 inet6;
        std::memcpy(&inet6, &address, sizeof inet6);
        std::memcpy(ip.bytes.data(), &inet6.sin6_addr, sizeof inet6.sin6_addr);
        ip.scope = inet6.sin6_scope_id;
    } else {
        sockaddr_in inet;
        std::memcpy(&inet, &address, sizeof inet);
        std::memcpy(ip.bytes.data(), &inet.sin_addr, sizeof inet.sin_addr);
    }
    return ip;
}

std::string text_of(const IpAddress& address) {
    char text[INET6_ADDRSTRLEN] = "?";
    ::inet_ntop(address.is_inet6 ? AF_INET6 : AF_INET, address.bytes.data(), text, sizeof text);
    return text;
}

}  // namespace tagwire::tcp
