// SPDX-License-Identifier: BSD-3-Clause
// Messages that come.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "vhca/cm/manager.hpp"
#include "vhca/cm/qp_attributes.hpp"

namespace tagwire::vhca::cm {

namespace {

constexpr std::uint8_t kRejectedReq = 0, kRejectedRep = 1;

/// Private data of a message behind `offset`, as an event shows it: the length is not known, so it
/// is all that there is room for.
template <typename Param>
void put_private_data(const Message& message, std::size_t offset, Param* param) {
    const std::size_t bytes =
        std::min(private_bytes_max(message.kind) - offset, sizeof param->private_data);
    std::memcpy(param->private_data, message.private_data.data() + offset, bytes);
    param->private_data_len = static_cast<std::uint8_t>(bytes);
}

/// The addresses that a request begins with, seen from where it came to. False: it has none.
bool take_header(const Message& message, Address* source_p, Address* destination_p) {
    const std::byte* from = message.private_data.data();
    const unsigned version = std::to_integer<unsigned>(from[1]) >> 4;
    if (from[0] != std::byte{0} || (version != 4 && version != 6))
        return false;
    const auto read = [&](std::size_t at, std::uint16_t port) {
        Address address = Address::any(version == 4 ? AF_INET : AF_INET6);
        if (version == 4) {
            sockaddr_in ip = address.ip4();
            std::memcpy(&ip.sin_addr, from + at + 12, sizeof ip.sin_addr);
            address = Address::of(ip);
        } else {
            sockaddr_in6 ip = address.ip6();
            std::memcpy(&ip.sin6_addr, from + at, sizeof ip.sin6_addr);
            address = Address::of(ip);
        }
        address.set_port(port);
        return address;
    };
    const auto port = static_cast<std::uint16_t>(std::to_integer<unsigned>(from[2]) << 8 |
                                                 std::to_integer<unsigned>(from[3]));
    *destination_p = read(4, port);
    *source_p = read(20, static_cast<std::uint16_t>(message.service_id));
    return true;
}

/// Address of a connection to a listener by AF_IB: both ends by GID.
Address gid_address(const Address& listener, const ibv_gid& gid, std::uint64_t service_id) {
    SockaddrIb address = listener.ib();
    std::memcpy(&address.sib_addr, &gid, sizeof gid);
    address.sib_sid = htobe64(service_id);
    address.sib_sid_mask = ~std::uint64_t{0};
    return Address::of(address);
}

ibv_qp_type type_of(const Message& message) {
    if (message.kind == Kind::kSidrReq)
        return IBV_QPT_UD;
    return message.transport == 1 ? IBV_QPT_UC : IBV_QPT_RC;
}

bool matches(const Identity& listener, const Message& message) {
    if (listener.is_ib())
        return true;
    Address source, destination;
    if (!take_header(message, &source, &destination))
        return false;
    if (listener.source.is_any() && !listener.is_family_only)
        return true;
    return listener.source.family() == source.family() &&
           (listener.source.is_any() || listener.source.is_same_host(source));
}

}  // namespace

void Manager::receive(Route from, std::span<const std::byte> mad) {
    Message message;
    if (!parse(mad, &message))
        return;
    switch (message.kind) {
        case Kind::kReq:
        case Kind::kSidrReq:
            receive_request(from, message);
            return;
        case Kind::kDreq:
            receive_disconnect(from, message);
            return;
        default:
            break;
    }
    if (Identity* identity = find_exchange(from, message); identity != nullptr) {
        dispatch(*identity, message);
        bury_orphans();
    }
}

Identity* Manager::find_exchange(Route from, const Message& message) const {
    if (message.kind == Kind::kRej && message.remote_id == 0) {
        // The peer lost patience before it heard of us.
        const auto request = requests_.find({from.node, message.local_id});
        return request == requests_.end() ? nullptr : request->second;
    }
    const bool is_sidr = message.kind == Kind::kSidrRep;
    const auto found = identities_.find(is_sidr ? message.local_id : message.remote_id);
    if (found == identities_.end())
        return nullptr;
    Identity& identity = *found->second;
    const bool is_pair = is_sidr || identity.remote_id == 0 || message.local_id == 0 ||
                         identity.remote_id == message.local_id;
    return is_pair && identity.peer.route == from ? &identity : nullptr;
}

void Manager::dispatch(Identity& identity, const Message& message) {
    switch (message.kind) {
        case Kind::kMra: {
            const Exchange asked =
                message.rejected == kRejectedReq ? Exchange::kReqSent : Exchange::kRepSent;
            if (identity.exchange == asked)
                outbox_.be_patient(identity);
            break;
        }
        case Kind::kRep:
            receive_reply(identity, message);
            break;
        case Kind::kRtu:
            if (identity.exchange == Exchange::kRepSent) {
                outbox_.note_answered(identity);
                identity.exchange = Exchange::kEstablished;
                rdma_ucm_event_resp response{};
                response.event = EventType::kEstablished;
                tell(identity, response);
            }
            break;
        case Kind::kRej:
            receive_rejection(identity, message);
            break;
        case Kind::kDrep:
            if (identity.exchange == Exchange::kDreqSent) {
                enter_time_wait(identity);
                end_connection(identity, 0);
            }
            break;
        case Kind::kSidrRep:
            receive_sidr_reply(identity, message);
            break;
        default:
            break;
    }
}

Identity* Manager::find_listener(const Message& message, std::uint16_t* reason_p) const {
    *reason_p = kRejInvalidServiceId;
    for (Identity* owner : ports_.owners(message.service_id)) {
        if (owner->state == State::kListening) {
            *reason_p = kRejConsumerDefined;
            if (matches(*owner, message) && owner->qp_type == type_of(message))
                return owner;
        }
    }
    return nullptr;
}

void Manager::receive_again(Identity& identity) {
    switch (identity.exchange) {
        case Exchange::kReqReceived: {
            Message message = outbox_.message_of(Kind::kMra, identity);
            message.rejected = kRejectedReq;
            outbox_.send_once(identity, message);
            break;
        }
        case Exchange::kRepSent:
        case Exchange::kSidrDone:
        case Exchange::kOver:
            outbox_.repeat(identity);
            break;
        default:
            break;
    }
}

void Manager::receive_request(Route from, const Message& message) {
    const Key key{from.node, message.local_id};
    if (const auto known = requests_.find(key); known != requests_.end()) {
        if (known->second->transaction == message.transaction) {
            receive_again(*known->second);
            return;
        }
        requests_.erase(known);  // of an earlier life of that node
    }
    std::uint16_t reason = 0;
    Identity* listener = find_listener(message, &reason);
    if (listener == nullptr) {
        outbox_.refuse(from, message, reason);
        return;
    }
    if (listener->backlog == 0)
        return;  // it comes again
    Identity& made = create(*listener->channel, 0, listener->port_space, listener->qp_type);
    made.peer = network_.peer_at(from);
    if (listener->is_ib()) {
        made.source = gid_address(listener->source, network_.port().gid, message.service_id);
        made.destination = gid_address(listener->source, made.peer.gid, 0);
    } else {
        take_header(message, &made.source, &made.destination);
    }
    made.has_device = true;
    made.state = State::kConnecting;
    made.exchange = made.is_datagram() ? Exchange::kSidrReceived : Exchange::kReqReceived;
    made.transaction = message.transaction;
    made.service_id = message.service_id;
    made.remote_id = message.local_id;
    made.remote_qpn = message.qpn;
    made.remote_psn = message.psn;
    made.responder_resources = message.initiator_depth;
    made.initiator_depth = message.responder_resources;
    made.retry_count = message.retry_count;
    made.rnr_retry_count = message.rnr_retry_count;
    made.timeout = message.ack_timeout;
    made.mtu = std::clamp(static_cast<ibv_mtu>(message.mtu), IBV_MTU_256, network_.port().mtu);
    requests_.emplace(key, &made);

    rdma_ucm_event_resp response{};
    response.event = kConnectRequest;
    response.uid = listener->uid;
    response.id = listener->number;
    const std::size_t offset = listener->is_ib() ? 0 : kHeaderBytes;
    if (made.is_datagram()) {
        put_private_data(message, offset, &response.param.ud);
    } else {
        rdma_ucm_conn_param& param = response.param.conn;
        put_private_data(message, offset, &param);
        param.responder_resources = message.initiator_depth;
        param.initiator_depth = message.responder_resources;
        param.flow_control = message.has_flow_control ? 1 : 0;
        param.retry_count = message.retry_count;
        param.rnr_retry_count = message.rnr_retry_count;
        param.srq = message.has_srq ? 1 : 0;
        param.qp_num = message.qpn;
    }
    --listener->backlog;
    listener->channel->push({.identity = listener, .request = &made, .response = response});
}

void Manager::receive_reply(Identity& identity, const Message& message) {
    if (identity.exchange == Exchange::kRepReceived) {
        Message patience = outbox_.message_of(Kind::kMra, identity);
        patience.rejected = kRejectedRep;
        outbox_.send_once(identity, patience);
        return;
    }
    if (identity.exchange == Exchange::kEstablished && identity.remote_id == message.local_id) {
        outbox_.send_once(identity, outbox_.message_of(Kind::kRtu, identity));
        return;
    }
    if (identity.exchange != Exchange::kReqSent)
        return;
    outbox_.note_answered(identity);
    identity.exchange = Exchange::kRepReceived;
    identity.remote_id = message.local_id;
    identity.remote_qpn = message.qpn;
    identity.remote_psn = message.psn;
    identity.initiator_depth = message.responder_resources;
    identity.responder_resources = message.initiator_depth;
    identity.rnr_retry_count = message.rnr_retry_count;
    rdma_ucm_event_resp response{};
    response.event = kConnectResponse;
    rdma_ucm_conn_param& param = response.param.conn;
    put_private_data(message, 0, &param);
    param.responder_resources = message.initiator_depth;
    param.initiator_depth = message.responder_resources;
    param.flow_control = message.has_flow_control ? 1 : 0;
    param.rnr_retry_count = message.rnr_retry_count;
    param.srq = message.has_srq ? 1 : 0;
    param.qp_num = message.qpn;
    tell(identity, response);
}

void Manager::receive_rejection(Identity& identity, const Message& message) {
    switch (identity.exchange) {
        case Exchange::kReqSent:
            if (message.reason == kRejInvalidServiceId && outbox_.asks_again(identity))
                return;
            break;
        case Exchange::kReqReceived:
        case Exchange::kRepSent:
        case Exchange::kRepReceived:
        case Exchange::kEstablished:
            break;
        case Exchange::kDreqSent:
            enter_time_wait(identity);
            end_connection(identity, 0);
            return;
        default:
            return;
    }
    outbox_.note_answered(identity);
    identity.exchange = Exchange::kOver;
    identity.unanswered = {};
    rdma_ucm_event_resp response{};
    response.event = kRejected;
    response.status = message.reason;
    put_private_data(message, 0, &response.param.conn);
    tell(identity, response);
}

void Manager::receive_disconnect(Route from, const Message& message) {
    Identity* identity = find_exchange(from, message);
    if (identity == nullptr || identity->exchange == Exchange::kTimeWait ||
        identity->exchange == Exchange::kDreqReceived || identity->exchange == Exchange::kOver) {
        // Gone already, or the program takes its time; the peer wants to hear it all the same.
        Message reply;
        reply.kind = Kind::kDrep;
        reply.transaction = message.transaction;
        reply.local_id = message.remote_id;
        reply.remote_id = message.local_id;
        network_.send(from, format(reply));
        return;
    }
    switch (identity->exchange) {
        case Exchange::kEstablished:
        case Exchange::kRepSent:
        case Exchange::kDreqSent:
            outbox_.note_answered(*identity);
            identity->exchange = Exchange::kDreqReceived;
            end_connection(*identity, 0);
            if (identity->is_orphan()) {
                static_cast<void>(disconnect(*identity));  // both said it at once
                bury_orphans();
            }
            break;
        default:
            break;
    }
}

void Manager::receive_sidr_reply(Identity& identity, const Message& message) {
    if (identity.exchange != Exchange::kSidrSent ||
        (message.reason == kSidrUnsupported && outbox_.asks_again(identity))) {
        return;
    }
    outbox_.note_answered(identity);
    rdma_ucm_event_resp response{};
    rdma_ucm_ud_param& param = response.param.ud;
    put_private_data(message, 0, &param);
    if (message.reason == kSidrSuccess) {
        identity.exchange = Exchange::kSidrDone;
        identity.remote_qpn = message.qpn;
        identity.qkey = message.qkey;
        response.event = EventType::kEstablished;
        param.ah_attr = address_vector(identity, network_.port());
        param.qp_num = message.qpn;
        param.qkey = message.qkey;
    } else {
        identity.exchange = Exchange::kOver;
        response.event = kUnreachable;
        response.status = message.reason;
    }
    tell(identity, response);
}

}  // namespace tagwire::vhca::cm
