// SPDX-License-Identifier: BSD-3-Clause
// Identities: how they come and go, their addresses and ports.
#include "vhca/cm/manager.hpp"

#include <cerrno>

namespace tagwire::vhca::cm {

Manager::Manager(Network& network, std::uint64_t seed, const Timing& timing)
    : network_(network),
      random_(seed),
      ports_(network, random_),
      outbox_(network, timing),
      next_local_id_(static_cast<std::uint32_t>(random_())) {}

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

void Manager::take_number_back(Identity& identity) {
    numbers_.erase(identity.number);
    identity.number = Identity::kNoNumber;
}

Identity* Manager::find(std::uint32_t number) const {
    const auto found = numbers_.find(number);
    return found == numbers_.end() ? nullptr : found->second;
}

void Manager::destroy(Identity& identity) {
    say_good_bye(identity);
    for (Identity* request : identity.channel->remove_events(identity))
        destroy(*request);
    ports_.release(identity);
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
        if (Identity* identity = find(number))  // else it was a request of one before
            destroy(*identity);
}

void Manager::migrate(Identity& identity, Channel& to) {
    Channel& from = *identity.channel;
    identity.channel = &to;
    if (&from != &to)
        from.move_events(identity, to);
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
    if (const int error = ports_.acquire(identity); error != 0) {
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
        if (const int error = ports_.check_exclusive(identity); error != 0)
            return error;
    }
    identity.backlog = backlog > 0 && backlog < kBacklogMax ? backlog : kBacklogMax;
    identity.state = State::kListening;
    return 0;
}

}  // namespace tagwire::vhca::cm
