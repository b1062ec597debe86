// SPDX-License-Identifier: BSD-3-Clause
// Commands of <rdma/rdma_user_cm.h>, as ucma.c takes them; those for connections are in
// commands_connect.cc.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "vhca/cm/manager.hpp"

namespace tagwire::vhca::cm {

using driver::read_user;
using driver::UserSpan;
using driver::write_user;

namespace {

template <typename T>
Address address_in(const T& from, std::size_t bytes) {
    sockaddr_storage storage{};
    std::memcpy(&storage, &from, std::min({sizeof from, sizeof storage, bytes}));
    return Address(storage);
}

/// The address in it, IPv4 or IPv6; of another family, none.
Address ip_address_in(const sockaddr_in6& from) {
    const Address address = address_in(from, sizeof from);
    return address.family() == AF_IB ? Address() : address;
}

}  // namespace

// ---- Dispatch ----------------------------------------------------------------------------------

std::int64_t Channel::write(const void* bytes, std::size_t count, const Finder& find) {
    const UserSpan all{reinterpret_cast<std::uint64_t>(bytes), count};
    rdma_ucm_cmd_hdr head;
    int error = count < sizeof head ? EINVAL : read_user(all, &head);
    if (error == 0 &&
        (head.cmd > RDMA_USER_CM_CMD_JOIN_MCAST || std::size_t{head.in} + sizeof head > count)) {
        error = EINVAL;
    }
    if (error == 0) {
        UserSpan in = all.from(sizeof head);
        in.bytes = head.in;
        error = run(head.cmd, {.in = in, .out_bytes = head.out}, find);
    }
    if (error != 0) {
        errno = error;
        return -1;
    }
    return static_cast<std::int64_t>(count);
}

int Channel::run(unsigned command, const Command& call, const Finder& find_channel) {
    if (command == RDMA_USER_CM_CMD_GET_EVENT)
        return get_event(call);
    const std::lock_guard guard(manager_.network());
    switch (command) {
        case RDMA_USER_CM_CMD_CREATE_ID:
            return create_id(call);
        case RDMA_USER_CM_CMD_DESTROY_ID:
            return destroy_id(call);
        case RDMA_USER_CM_CMD_BIND_IP:
            return bind_ip(call);
        case RDMA_USER_CM_CMD_BIND:
            return bind(call);
        case RDMA_USER_CM_CMD_RESOLVE_IP:
            return resolve_ip(call);
        case RDMA_USER_CM_CMD_RESOLVE_ADDR:
            return resolve_address(call);
        case RDMA_USER_CM_CMD_QUERY_ROUTE:
            return query_route(call);
        case RDMA_USER_CM_CMD_QUERY:
            return query(call);
        case RDMA_USER_CM_CMD_CONNECT:
            return connect(call);
        case RDMA_USER_CM_CMD_ACCEPT:
            return accept(call);
        case RDMA_USER_CM_CMD_REJECT:
            return reject(call);
        case RDMA_USER_CM_CMD_INIT_QP_ATTR:
            return init_qp_attr(call);
        case RDMA_USER_CM_CMD_SET_OPTION:
            return set_option(call);
        case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
        case RDMA_USER_CM_CMD_JOIN_MCAST:
            return join(call, command == RDMA_USER_CM_CMD_JOIN_IP_MCAST);
        case RDMA_USER_CM_CMD_LEAVE_MCAST:
            return ENOENT;  // nothing was ever joined
        case RDMA_USER_CM_CMD_MIGRATE_ID:
            return migrate_id(call, find_channel);
        case RDMA_USER_CM_CMD_GET_OPTION:
            return ENOSYS;
        default:
            return run_on_identity(command, call);
    }
}

// Those whose first word is the number of an identity, and one more may follow.
int Channel::run_on_identity(unsigned command, const Command& call) {
    struct {
        std::uint32_t number, value;
    } in;
    Identity* identity = nullptr;
    int error = read_user(call.in, &in);
    if (error == 0) {
        error = command == RDMA_USER_CM_CMD_LISTEN ? find(in.number, &identity)
                                                   : find_with_device(in.number, &identity);
    }
    if (error != 0)
        return error;
    switch (command) {
        case RDMA_USER_CM_CMD_RESOLVE_ROUTE:
            return manager_.resolve_route(*identity);
        case RDMA_USER_CM_CMD_LISTEN:
            return manager_.listen(*identity, in.value);
        case RDMA_USER_CM_CMD_DISCONNECT:
            return manager_.disconnect(*identity);
        case RDMA_USER_CM_CMD_NOTIFY:
            return manager_.notify(*identity, in.value);
        default:
            return ENOSYS;
    }
}

int Channel::find(std::uint32_t number, Identity** identity_p) {
    *identity_p = manager_.find(number);
    if (*identity_p == nullptr)
        return ENOENT;
    return (*identity_p)->channel == this ? 0 : EINVAL;
}

int Channel::find_with_device(std::uint32_t number, Identity** identity_p) {
    const int error = find(number, identity_p);
    return error == 0 && !(*identity_p)->has_device ? EINVAL : error;
}

// ---- Coming and going --------------------------------------------------------------------------

int Channel::create_id(const Command& call) {
    rdma_ucm_create_id in;
    rdma_ucm_create_id_resp out{};
    if (call.out_bytes < sizeof out)
        return ENOSPC;
    if (read_user(call.in, &in) != 0)
        return EFAULT;
    ibv_qp_type type = IBV_QPT_RC;
    switch (in.ps) {
        case RDMA_PS_TCP:
            break;
        case RDMA_PS_UDP:
        case RDMA_PS_IPOIB:
            type = IBV_QPT_UD;
            break;
        case RDMA_PS_IB:
            type = static_cast<ibv_qp_type>(in.qp_type);
            break;
        default:
            return EINVAL;
    }
    Identity& made = manager_.create(*this, in.uid, in.ps, type);
    manager_.give_number(made);
    out.id = made.number;
    if (write_user({in.response, call.out_bytes}, out) != 0) {
        manager_.destroy(made);
        return EFAULT;
    }
    return 0;
}

int Channel::destroy_id(const Command& call) {
    rdma_ucm_destroy_id in;
    rdma_ucm_destroy_id_resp out{};
    if (call.out_bytes < sizeof out)
        return ENOSPC;
    if (read_user(call.in, &in) != 0)
        return EFAULT;
    Identity* identity = nullptr;
    if (const int error = find(in.id, &identity); error != 0)
        return error;
    out.events_reported = identity->events_reported;
    manager_.destroy(*identity);
    return write_user({in.response, call.out_bytes}, out);
}

int Channel::migrate_id(const Command& call, const Finder& find_channel) {
    rdma_ucm_migrate_id in;
    rdma_ucm_migrate_resp out{};
    if (read_user(call.in, &in) != 0)
        return EFAULT;
    Channel* from = find_channel(static_cast<int>(in.fd));
    if (from == nullptr)
        return ENOENT;
    Identity* identity = nullptr;
    if (const int error = from->find(in.id, &identity); error != 0)
        return error;
    manager_.migrate(*identity, *this);
    out.events_reported = identity->events_reported;
    return write_user({in.response, sizeof out}, out);
}

// ---- Addresses ---------------------------------------------------------------------------------

int Channel::bind_ip(const Command& call) {
    rdma_ucm_bind_ip in;
    if (read_user(call.in, &in) != 0)
        return EFAULT;
    const Address address = ip_address_in(in.addr);
    if (address.bytes() == 0)
        return EINVAL;
    Identity* identity = nullptr;
    const int error = find(in.id, &identity);
    return error != 0 ? error : manager_.bind(*identity, address);
}

int Channel::bind(const Command& call) {
    rdma_ucm_bind in;
    if (read_user(call.in, &in) != 0)
        return EFAULT;
    const Address address = address_in(in.addr, sizeof in.addr);
    if (in.reserved != 0 || in.addr_size == 0 || in.addr_size != address.bytes())
        return EINVAL;
    Identity* identity = nullptr;
    const int error = find(in.id, &identity);
    return error != 0 ? error : manager_.bind(*identity, address);
}

int Channel::resolve_ip(const Command& call) {
    rdma_ucm_resolve_ip in;
    if (read_user(call.in, &in) != 0)
        return EFAULT;
    const Address source = ip_address_in(in.src_addr), destination = ip_address_in(in.dst_addr);
    if ((in.src_addr.sin6_family != AF_UNSPEC && source.bytes() == 0) || destination.bytes() == 0)
        return EINVAL;
    Identity* identity = nullptr;
    const int error = find(in.id, &identity);
    return error != 0 ? error : manager_.resolve_address(*identity, source, destination);
}

int Channel::resolve_address(const Command& call) {
    rdma_ucm_resolve_addr in;
    if (read_user(call.in, &in) != 0)
        return EFAULT;
    const Address destination = address_in(in.dst_addr, sizeof in.dst_addr);
    Address source;
    if (in.src_size != 0)
        source = address_in(in.src_addr, sizeof in.src_addr);
    if (in.reserved != 0 || in.src_size != source.bytes() || in.dst_size == 0 ||
        in.dst_size != destination.bytes()) {
        return EINVAL;
    }
    Identity* identity = nullptr;
    const int error = find(in.id, &identity);
    return error != 0 ? error : manager_.resolve_address(*identity, source, destination);
}

// The device has no multicast.
int Channel::join(const Command& call, bool is_ip) {
    rdma_ucm_join_mcast in{};
    if (call.out_bytes < sizeof(rdma_ucm_create_id_resp))
        return ENOSPC;
    Address address;
    if (is_ip) {
        rdma_ucm_join_ip_mcast ip;
        if (read_user(call.in, &ip) != 0)
            return EFAULT;
        address = ip_address_in(ip.addr);
        in.id = ip.id;
        in.addr_size = static_cast<std::uint16_t>(address.bytes());
    } else {
        if (read_user(call.in, &in) != 0)
            return EFAULT;
        address = address_in(in.addr, sizeof in.addr);
    }
    if (in.addr_size == 0 || in.addr_size != address.bytes() ||
        in.join_flags > RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) {
        return EINVAL;
    }
    Identity* identity = nullptr;
    if (const int error = find_with_device(in.id, &identity); error != 0)
        return error;
    if (identity->state != State::kBound && identity->state != State::kResolved)
        return EINVAL;
    return manager_.network().port().is_ethernet ? ENODEV : EOPNOTSUPP;
}

}  // namespace tagwire::vhca::cm
