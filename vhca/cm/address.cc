// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/cm/address.hpp"

#include <arpa/inet.h>
#include <endian.h>

#include <algorithm>
#include <cstring>

namespace tagwire::vhca::cm {

namespace {

template <typename T>
sockaddr_storage stored(const T& from) {
    static_assert(sizeof(T) <= sizeof(sockaddr_storage));
    sockaddr_storage storage{};
    std::memcpy(&storage, &from, sizeof from);
    return storage;
}

const std::uint8_t* bytes_of(const in6_addr& address) {
    return static_cast<const std::uint8_t*>(address.s6_addr);
}

bool is_all_zero(const void* bytes, std::size_t count) {
    const auto* begin = static_cast<const std::uint8_t*>(bytes);
    return std::all_of(begin, begin + count, [](std::uint8_t byte) { return byte == 0; });
}

// ::1, in either family that has 16 bytes.
bool is_one(const void* bytes) {
    return is_all_zero(bytes, 15) && static_cast<const std::uint8_t*>(bytes)[15] == 1;
}

}  // namespace

std::size_t address_bytes(unsigned family) {
    switch (family) {
        case AF_INET:
            return sizeof(sockaddr_in);
        case AF_INET6:
            return sizeof(sockaddr_in6);
        case AF_IB:
            return sizeof(SockaddrIb);
        default:
            return 0;
    }
}

Address::Address(const sockaddr_storage& from) {
    if (const std::size_t count = address_bytes(from.ss_family); count != 0)
        std::memcpy(&storage_, &from, count);
    else
        storage_.ss_family = from.ss_family;
}

Address Address::any(unsigned family) {
    Address address;
    address.storage_.ss_family = static_cast<sa_family_t>(family);
    return address;
}
Address Address::of(const sockaddr_in& from) {
    return Address(stored(from));
}
Address Address::of(const sockaddr_in6& from) {
    return Address(stored(from));
}
Address Address::of(const SockaddrIb& from) {
    return Address(stored(from));
}

bool Address::is_zero() const {
    switch (family()) {
        case AF_INET:
            return (ntohl(ip4().sin_addr.s_addr) & 0xff000000) == 0;
        case AF_INET6:
            return is_all_zero(bytes_of(ip6().sin6_addr), 16);
        case AF_IB: {
            const SockaddrIb address = ib();
            return is_all_zero(&address.sib_addr, 16);
        }
        default:
            return true;
    }
}

bool Address::is_any() const {
    if (is_zero())
        return true;
    switch (family()) {
        case AF_INET:
            return ntohl(ip4().sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
        case AF_INET6:
            return is_one(bytes_of(ip6().sin6_addr));
        default: {
            const SockaddrIb address = ib();
            return is_one(&address.sib_addr);
        }
    }
}

bool Address::is_link_local() const {
    const sockaddr_in6 address = ip6();
    const std::uint8_t* bytes = bytes_of(address.sin6_addr);
    return family() == AF_INET6 && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

std::uint16_t Address::port() const {
    switch (family()) {
        case AF_INET:
            return ntohs(ip4().sin_port);
        case AF_INET6:
            return ntohs(ip6().sin6_port);
        case AF_IB:
            return static_cast<std::uint16_t>(be64toh(ib().sib_sid) & be64toh(ib().sib_sid_mask));
        default:
            return 0;
    }
}

void Address::set_port(std::uint16_t port) {
    if (family() == AF_INET) {
        sockaddr_in address = ip4();
        address.sin_port = htons(port);
        storage_ = stored(address);
    } else if (family() == AF_INET6) {
        sockaddr_in6 address = ip6();
        address.sin6_port = htons(port);
        storage_ = stored(address);
    } else if (family() == AF_IB) {
        SockaddrIb address = ib();
        address.sib_sid = htobe64((be64toh(address.sib_sid) & ~std::uint64_t{0xffff}) | port);
        address.sib_sid_mask = htobe64(be64toh(address.sib_sid_mask) | 0xffff);
        storage_ = stored(address);
    }
}

bool Address::is_same_host(const Address& other) const {
    if (family() != other.family())
        return false;
    switch (family()) {
        case AF_INET:
            return ip4().sin_addr.s_addr == other.ip4().sin_addr.s_addr;
        case AF_INET6: {
            const sockaddr_in6 a = ip6(), b = other.ip6();
            return std::memcmp(&a.sin6_addr, &b.sin6_addr, sizeof a.sin6_addr) == 0;
        }
        default: {
            const SockaddrIb a = ib(), b = other.ib();
            return std::memcmp(&a.sib_addr, &b.sib_addr, sizeof a.sib_addr) == 0;
        }
    }
}

ibv_gid gid_of(const Address& address) {
    ibv_gid gid{};
    if (address.family() == AF_INET) {
        const in_addr ip = address.ip4().sin_addr;
        gid.raw[10] = gid.raw[11] = 0xff;
        std::memcpy(&gid.raw[12], &ip, sizeof ip);
    } else if (address.family() == AF_INET6) {
        const in6_addr ip = address.ip6().sin6_addr;
        std::memcpy(&gid, &ip, sizeof gid);
    } else {
        const SockaddrIb ib = address.ib();
        std::memcpy(&gid, &ib.sib_addr, sizeof gid);
    }
    return gid;
}

}  // namespace tagwire::vhca::cm
