// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/fabric/interface.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "ucs/sys/fd.hpp"

namespace tagwire::vhca {

namespace {

std::uint32_t address_in(const sockaddr* address) {
    sockaddr_in ipv4;
    std::memcpy(&ipv4, address, sizeof ipv4);
    return ntohl(ipv4.sin_addr.s_addr);
}

/// Calls `visit(interface, address, netmask)` for each IPv4 address of the machine until that
/// returns true.
template <typename F>
void for_each_address(F&& visit) {
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0)
        return;
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET)
            continue;
        const std::uint32_t mask =
            entry->ifa_netmask != nullptr ? address_in(entry->ifa_netmask) : ~0U;
        if (visit(*entry, address_in(entry->ifa_addr), mask))
            break;
    }
    ::freeifaddrs(list);
}

std::uint32_t mtu_of(const std::string& name) {
    constexpr std::uint32_t kEthernetMtu = 1500;
    const ucs::UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    name.copy(request.ifr_name, sizeof request.ifr_name - 1);
    if (!fd || ::ioctl(fd.get(), SIOCGIFMTU, &request) != 0)
        return kEthernetMtu;
    return static_cast<std::uint32_t>(request.ifr_mtu);
}

}  // namespace

Interface interface_of(std::uint32_t address) {
    Interface found;
    for_each_address([&](const ifaddrs& entry, std::uint32_t own, std::uint32_t mask) {
        const bool is_loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
        if (own == address || (is_loopback && ((own ^ address) & mask) == 0))
            found.name = entry.ifa_name;
        return own == address;
    });
    // An address has the name of its alias, "eth0:1"; the interface has not.
    found.name.resize(std::min(found.name.size(), found.name.find(':')));
    if (!found.name.empty()) {
        found.index = ::if_nametoindex(found.name.c_str());
        found.mtu_bytes = mtu_of(found.name);
    }
    return found;
}

std::uint32_t default_address() {
    std::uint32_t address = INADDR_LOOPBACK;
    for_each_address([&](const ifaddrs& entry, std::uint32_t own, std::uint32_t) {
        const bool serves =
            (entry.ifa_flags & IFF_UP) != 0 && (entry.ifa_flags & IFF_LOOPBACK) == 0;
        address = serves ? own : address;
        return serves;
    });
    return address;
}

bool parse_ipv4(const char* text, std::uint32_t* address_p) {
    in_addr address{};
    if (::inet_pton(AF_INET, text, &address) != 1)
        return false;
    *address_p = ntohl(address.s_addr);
    return true;
}

std::string ipv4_text(std::uint32_t address) {
    std::string text;
    for (int shift = 24; shift >= 0; shift -= 8) {
        text += std::to_string(address >> shift & 0xff);
        text += shift != 0 ? "." : "";
    }
    return text;
}

}  // namespace tagwire::vhca
