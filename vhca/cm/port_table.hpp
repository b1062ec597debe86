// SPDX-License-Identifier: BSD-3-Clause
// The port table: which identities own which service.
//
// A service that has an owner here is claimed from the Network, which shares it out between the
// processes of an address. Identities may share a port as in the kernel: where all allow reuse, or
// each is of another family, and none of them listens.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <vector>

#include "vhca/cm/identity.hpp"
#include "vhca/cm/network.hpp"

namespace tagwire::vhca::cm {

/// The service that requests of `identity` at `address` go to.
[[nodiscard]] std::uint64_t service_of(const Identity& identity, const Address& address);

class PortTable {
  public:
    PortTable(Network& network, std::mt19937_64& random) : network_(network), random_(random) {}
    ~PortTable();
    PortTable(const PortTable&) = delete;
    PortTable& operator=(const PortTable&) = delete;

    /// The port of identity.source, or a free one, which it gets. The errno of bind(2).
    int acquire(Identity& identity);
    void release(Identity& identity);
    /// 0: `identity`, which owns the service, could be its only owner.
    [[nodiscard]] int check_exclusive(const Identity& identity) const;
    /// Identities that own the service.
    [[nodiscard]] std::span<Identity* const> owners(std::uint64_t service_id) const;

  private:
    int claim(Identity& identity, std::uint64_t service_id);
    int check_conflicts(const Identity& identity, std::uint64_t service_id, bool may_reuse) const;

    Network& network_;
    std::mt19937_64& random_;
    std::map<std::uint64_t, std::vector<Identity*>> owners_;  // by service
};

}  // namespace tagwire::vhca::cm
