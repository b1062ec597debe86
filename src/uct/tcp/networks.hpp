// SPDX-License-Identifier: BSD-3-Clause
// Knows of network interfaces beside their addresses: IPv6 addresses that are about
// to go, and the interfaces that default routes lead over. Any thread.
#pragma once

#include <netinet/in.h>

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "uct/tcp/address.hpp"

namespace tagwire::tcp {

/// For how long an IPv6 address can be known by, the best first.
enum class Lasting { kStable, kTemporary, kDeprecated, kUnusable };

/// The address of this host that the system would send from to that one; no packet is sent.
/// Nothing: no route leads there.
std::optional<IpAddress> source_towards(const IpAddress& peer);

class Networks {
  public:
    /// As they are now, in this network namespace. Where the system does not tell, every address is
    /// stable, and there is no default route.
    static Networks read();

    [[nodiscard]] Lasting lasting(const in6_addr& address) const;
    [[nodiscard]] bool has_default_route(const std::string& device) const {
        return default_routes_.contains(device);
    }

    /// The two texts of the kernel's that it reads: if_inet6, and route or ipv6_route.
    void add_addresses(const std::string& if_inet6);
    void add_routes(const std::string& route);
    void add_routes6(const std::string& ipv6_route);

  private:
    std::map<std::array<unsigned char, 16>, Lasting> addresses_;
    std::set<std::string> default_routes_;
};

}  // namespace tagwire::tcp
