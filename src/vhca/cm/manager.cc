// SPDX-License-Identifier: BSD-3-Clause
// Identities: how they come and go, their addresses and ports.
#include "vhca/cm/manager.hpp"

#include <endian.h>
#include <algorithm>
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

Manager::Manager(Network& network, std::uint64_t seed, const Timing& timing)
    : network_(network),
      timing_(timing),
      random_(seed),
      next_local_id_(static_cast<std::uint32_t>(random_())) {}

Manager::~Manager() {
    for (const auto& [service_id, owners] : ports_)
        network_.release(service_id);
}

// ---- Coming and going --------------------------------------------------------------------------

Identity& Manager::create(Channel& channel, std::uint64_t uid, std::uint16_t port_space,
                          ibv_qp_type qp_type) {
    while (next_local_id_ == 0 || identities_.contains(next_local_id_))
        ++next_local_id_;
    auto identity = std::make_unique<Identity>();
    identity->channel = &channel;
    identity->uid = uid;
    identity->port_space = port_space;
    identity->qp_type = qp_type;
    identity->local_id = next_local_id_++;
    identity->psn = static_cast<std::uint32_t>(random_()) & 0xffffff;
    Identity& made = *identity;
    identities_.emplace(made.local_id, std::move(identity));
    return made;
}

void Manager::give_number(Identity& identity) {
    while (next_number_ == Identity::kNoNumber || numbers_.contains(next_number_))
        ++next_number_;
    identity.number = next_number_++;
    numbers_.emplace(identity.number, &identity);
}

Identity* Manager::find(std::uint32_t number) const {
    const auto found = numbers_.find(number);
    return found == numbers_.end() ? nullptr : found->second;
}

void Manager::destroy(Identity& identity) {
    say_good_bye(identity);
    for (Identity* request : identity.channel->remove_events(identity))
        destroy(*request);
    release_port(identity);
    if (const auto request = requests_.find({identity.peer.route.node, identity.remote_id});
        request != requests_.end() && request->second == &identity) {
        requests_.erase(request);
    }
    numbers_.erase(identity.number);
    if (identity.exchange == Exchange::kDreqSent) {
        identity.number = Identity::kNoNumber;
        identity.channel = nullptr;
        identity.uid = 0;
    } else {
        identities_.erase(identity.local_id);
    }
}

bool Manager::say_farewell() {
    while (!numbers_.empty())
        destroy(*numbers_.begin()->second);
    return identities_.empty();
}

void Manager::destroy_all(const Channel& channel) {
    std::vector<std::uint32_t> numbers;
    for (const auto& [number, identity] : numbers_)
        if (identity->channel == &channel)
            numbers.push_back(number);
    for (const std::uint32_t number : numbers)
        destroy(*numbers_.at(number));
}

void Manager::migrate(Identity& identity, Channel& to) {
    Channel& from = *identity.channel;
    identity.channel = &to;
    if (&from != &to)
        from.move_events(identity, to);
}

// ---- Ports -------------------------------------------------------------------------------------

std::uint64_t Manager::service_of(const Identity& identity, const Address& address) {
    return address.family() == AF_IB ? be64toh(address.ib().sib_sid)
                                     : service_space(identity.port_space) + address.port();
}

// As cma_check_port().
int Manager::check_conflicts(const Identity& identity, std::uint64_t service_id,
                             bool may_reuse) const {
    const auto owners = ports_.find(service_id);
    if (owners == ports_.end())
        return 0;
    for (const Identity* other : owners->second) {
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

int Manager::claim_port(Identity& identity, std::uint64_t service_id) {
    if (const int error = check_conflicts(identity, service_id, identity.reuses_address);
        error != 0) {
        return error;
    }
    std::vector<Identity*>& owners = ports_[service_id];
    if (owners.empty()) {
        if (const int error = network_.claim(service_id); error != 0) {
            ports_.erase(service_id);
            return error;
        }
    }
    owners.push_back(&identity);
    identity.claimed = service_id;
    return 0;
}

void Manager::release_port(Identity& identity) {
    if (!identity.claimed)
        return;
    const auto owners = ports_.find(*identity.claimed);
    std::erase(owners->second, &identity);
    if (owners->second.empty()) {
        ports_.erase(owners);
        network_.release(*identity.claimed);
    }
    identity.claimed.reset();
}

int Manager::acquire_port(Identity& identity) {
    const std::uint16_t port_space = port_space_of(identity);
    if (port_space == 0)
        return EPROTONOSUPPORT;
    const std::uint64_t space = service_space(port_space);
    std::uint16_t port = identity.source.port();
    int error = 0;
    if (port != 0) {
        error = claim_port(identity, space + port);
    } else {
        constexpr std::uint32_t kCount = kEphemeralMax - kEphemeralMin + 1;
        const auto start = static_cast<std::uint32_t>(random_() % kCount);
        error = EADDRNOTAVAIL;
        for (std::uint32_t i = 0; i < kCount && error != 0; ++i) {
            port = static_cast<std::uint16_t>(kEphemeralMin + (start + i) % kCount);
            if (!ports_.contains(space + port))
                error = claim_port(identity, space + port);
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

// ---- Addresses ---------------------------------------------------------------------------------

int Manager::bind(Identity& identity, const Address& address) {
    if (address.bytes() == 0)
        return EAFNOSUPPORT;
    if (identity.state != State::kIdle ||
        (address.is_link_local() && address.ip6().sin6_scope_id == 0)) {
        return EINVAL;
    }
    const bool has_device = !address.is_any();
    if (has_device) {
        if (const int error = network_.check_source(address); error != 0)
            return error;
    }
    const bool was_family_only = identity.is_family_only;
    identity.source = address;
    if (!identity.has_family_only && address.family() == AF_INET)
        identity.is_family_only = true;
    if (const int error = acquire_port(identity); error != 0) {
        identity.source = Address();
        identity.is_family_only = was_family_only;
        return error;
    }
    identity.has_device = has_device;
    identity.destination = Address::any(address.family());
    identity.state = State::kBound;
    return 0;
}

int Manager::resolve_address(Identity& identity, const Address& source,
                             const Address& destination) {
    if (identity.state == State::kIdle) {
        const Address own =
            source.family() == AF_UNSPEC ? Address::any(destination.family()) : source;
        if (const int error = bind(identity, own); error != 0)
            return error;
    }
    if (identity.source.family() != destination.family() || identity.state != State::kBound)
        return EINVAL;
    Address own = identity.source;
    const int error = network_.find_source(destination, &own);
    rdma_ucm_event_resp response{};
    if (error != 0) {
        response.event = kAddressError;
        response.status = static_cast<std::uint32_t>(-error);
    } else {
        if (identity.source.is_any())
            identity.source = own;
        identity.destination = destination;
        identity.has_device = true;
        identity.state = State::kResolved;
        identity.service_id = service_of(identity, destination);
        identity.peer = network_.find_peer(identity.service_id, destination);
        response.event = kAddressResolved;
    }
    tell(identity, response);
    return 0;
}

int Manager::resolve_route(Identity& identity) {
    if (identity.state != State::kResolved)
        return EINVAL;
    identity.state = State::kRouted;
    rdma_ucm_event_resp response{};
    response.event = kRouteResolved;
    tell(identity, response);
    return 0;
}

int Manager::listen(Identity& identity, std::uint32_t backlog) {
    if (identity.state == State::kIdle) {
        if (const int error = bind(identity, Address::any(AF_INET)); error != 0)
            return error;
    }
    if (identity.state != State::kBound)
        return EINVAL;
    if (identity.reuses_address) {
        if (const int error = check_conflicts(identity, *identity.claimed, false); error != 0)
            return error;
    }
    identity.backlog = backlog > 0 && backlog < kBacklogMax ? backlog : kBacklogMax;
    identity.state = State::kListening;
    return 0;
}

// ---- Options -----------------------------------------------------------------------------------

int Manager::set_reuse(Identity& identity, bool reuses) {
    if (identity.state != State::kIdle && (!reuses || identity.state != State::kBound))
        return EINVAL;
    identity.reuses_address = reuses;
    return 0;
}

int Manager::set_family_only(Identity& identity, bool is_only) {
    if (identity.state != State::kIdle && identity.state != State::kBound)
        return EINVAL;
    identity.has_family_only = true;
    identity.is_family_only = is_only;
    return 0;
}

void Manager::tell(Identity& identity, rdma_ucm_event_resp response) {
    if (identity.uid == 0)
        return;
    response.uid = identity.uid;
    response.id = identity.number;
    identity.channel->push({.identity = &identity, .request = nullptr, .response = response});
}

}  // namespace tagwire::vhca::cm
