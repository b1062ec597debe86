// SPDX-License-Identifier: BSD-3-Clause
// The network interface behind an IPv4 address of this machine.
#pragma once

#include <cstdint>
#include <string>

namespace tagwire::vhca {

struct Interface {
    std::string name;  // "": none has the address
    unsigned index = 0;
    std::uint32_t mtu_bytes = 0;
};

/// The interface with that address (host order); a loopback interface has all of its network.
Interface interface_of(std::uint32_t address);

/// The first address of an interface that is up and no loopback, else 127.0.0.1.
std::uint32_t default_address();

/// False: not an IPv4 address in dots.
bool parse_ipv4(const char* text, std::uint32_t* address_p);
std::string ipv4_text(std::uint32_t address);

}  // namespace tagwire::vhca
