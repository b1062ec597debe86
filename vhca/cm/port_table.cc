// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/cm/port_table.hpp"

#include <endian.h>
#include <cerrno>

namespace tagwire::vhca::cm {

namespace {

// RDMA_IB_IP_PS_*: services that are ports of IP.
constexpr std::uint64_t kPortSpaceMask = 0xffffffffffff0000;
constexpr std::uint64_t service_space(std::uint16_t port_space) {
    return std::uint64_t{port_space} << 16;
}
// net.ipv4.ip_local_port_range
constexpr std::uint16_t kEphemeralMin = 32768, kEphemeralMax = 60999;

// Which ports an AF_IB address means; 0: none. As cma_select_ib_ps().
std::uint16_t port_space_of(const Identity& identity) {
    if (!identity.is_ib())
        return identity.port_space;
    const SockaddrIb address = identity.source.ib();
    const std::uint64_t mask = be64toh(address.sib_sid_mask) & kPortSpaceMask;
    const std::uint64_t service = be64toh(address.sib_sid) & mask;
    const bool is_ib = identity.port_space == RDMA_PS_IB;
    const auto is_space = [&](std::uint16_t space) {
        return (is_ib || identity.port_space == space) && service == (service_space(space) & mask);
    };
    for (const std::uint16_t space : {RDMA_PS_IB, RDMA_PS_TCP, RDMA_PS_UDP})
        if (is_space(space))
            return space;
    return 0;
}

}  // namespace

std::uint64_t service_of(const Identity& identity, const Address& address) {
    return address.family() == AF_IB ? be64toh(address.ib().sib_sid)
                                     : service_space(identity.port_space) + address.port();
}

PortTable::~PortTable() {
    for (const auto& [service_id, owners] : owners_)
        network_.release(service_id);
}

std::span<Identity* const> PortTable::owners(std::uint64_t service_id) const {
    const auto found = owners_.find(service_id);
    if (found == owners_.end())
        return {};
    return found->second;
}

int PortTable::check_exclusive(const Identity& identity) const {
    return check_conflicts(identity, *identity.claimed, false);
}

// As cma_check_port().
int PortTable::check_conflicts(const Identity& identity, std::uint64_t service_id,
                               bool may_reuse) const {
    const auto found = owners_.find(service_id);
    if (found == owners_.end())
        return 0;
    for (const Identity* other : found->second) {
        const bool is_shared =
            may_reuse && other->reuses_address && other->state != State::kListening;
        const bool is_other_family = identity.is_family_only && other->is_family_only &&
                                     identity.source.family() != other->source.family();
        if (other == &identity || is_shared || is_other_family)
            continue;
        if (identity.source.is_any() || other->source.is_any())
            return EADDRNOTAVAIL;
        if (identity.source.is_same_host(other->source))
            return EADDRINUSE;
    }
    return 0;
}

int PortTable::claim(Identity& identity, std::uint64_t service_id) {
    if (const int error = check_conflicts(identity, service_id, identity.reuses_address);
        error != 0) {
        return error;
    }
    std::vector<Identity*>& owners = owners_[service_id];
    if (owners.empty()) {
        if (const int error = network_.claim(service_id); error != 0) {
            owners_.erase(service_id);
            return error;
        }
    }
    owners.push_back(&identity);
    identity.claimed = service_id;
    return 0;
}

void PortTable::release(Identity& identity) {
    if (!identity.claimed)
        return;
    const auto found = owners_.find(*identity.claimed);
    std::erase(found->second, &identity);
    if (found->second.empty()) {
        owners_.erase(found);
        network_.release(*identity.claimed);
    }
    identity.claimed.reset();
}

int PortTable::acquire(Identity& identity) {
    const std::uint16_t port_space = port_space_of(identity);
    if (port_space == 0)
        return EPROTONOSUPPORT;
    const std::uint64_t space = service_space(port_space);
    std::uint16_t port = identity.source.port();
    int error = 0;
    if (port != 0) {
        error = claim(identity, space + port);
    } else {
        constexpr std::uint32_t kCount = kEphemeralMax - kEphemeralMin + 1;
        const auto start = static_cast<std::uint32_t>(random_() % kCount);
        error = EADDRNOTAVAIL;
        for (std::uint32_t i = 0; i < kCount && error != 0; ++i) {
            port = static_cast<std::uint16_t>(kEphemeralMin + (start + i) % kCount);
            if (!owners_.contains(space + port))
                error = claim(identity, space + port);
        }
    }
    if (error != 0)
        return error;
    if (identity.is_ib()) {
        SockaddrIb address = identity.source.ib();
        address.sib_sid = htobe64(space + port);
        address.sib_sid_mask = ~std::uint64_t{0};
        identity.source = Address::of(address);
    } else {
        identity.source.set_port(port);
    }
    return 0;
}

}  // namespace tagwire::vhca::cm
