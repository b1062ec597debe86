// SPDX-License-Identifier: BSD-3-Clause
// Connections: what programs do with them.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "vhca/cm/manager.hpp"
#include "vhca/cm/qp_attributes.hpp"

namespace tagwire::vhca::cm {

namespace {

// The kernel's for RoCE: 4.096 us << 16 for a packet on its way.
constexpr std::uint8_t kPacketLifetime = 16;
constexpr std::uint8_t kRetriesMax = 7;  // three bits

/// The beginning of the private data of a request that was made by IP addresses (IBTA annex 11).
void put_header(const Identity& identity, Message* message) {
    std::byte* to = message->private_data.data();
    const bool is_ip4 = identity.source.family() == AF_INET;
    to[1] = is_ip4 ? std::byte{4 << 4} : std::byte{6 << 4};
    to[2] = static_cast<std::byte>(identity.source.port() >> 8);
    to[3] = static_cast<std::byte>(identity.source.port());
    const auto put = [&](std::size_t at, const Address& address) {
        if (is_ip4) {
            const in_addr ip = address.ip4().sin_addr;
            std::memcpy(to + at + 12, &ip, sizeof ip);
        } else {
            const in6_addr ip = address.ip6().sin6_addr;
            std::memcpy(to + at, &ip, sizeof ip);
        }
    };
    put(4, identity.source);
    put(20, identity.destination);
}

void put_data(std::span<const std::byte> data, std::size_t offset, Message* message) {
    std::copy(data.begin(), data.end(),
              message->private_data.begin() + static_cast<std::ptrdiff_t>(offset));
}

std::span<const std::byte> data_of(const rdma_ucm_conn_param& param) {
    return std::as_bytes(std::span(param.private_data)).first(param.private_data_len);
}

std::uint8_t at_most_7(std::uint8_t count) {
    return std::min(count, kRetriesMax);
}

}  // namespace

int Manager::connect(Identity& identity, const rdma_ucm_conn_param& param) {
    const Kind kind = identity.is_datagram() ? Kind::kSidrReq : Kind::kReq;
    const std::size_t offset = identity.is_ib() ? 0 : kHeaderBytes;
    const bool has_type =
        identity.is_datagram() || identity.qp_type == IBV_QPT_RC || identity.qp_type == IBV_QPT_UC;
    if (identity.state != State::kRouted || !has_type ||
        offset + param.private_data_len > private_bytes_max(kind)) {
        return EINVAL;
    }
    const LocalPort port = network_.port();
    identity.qpn = param.qp_num;
    identity.has_srq = param.srq != 0;
    identity.responder_resources = param.responder_resources;
    identity.initiator_depth = param.initiator_depth;
    identity.retry_count = at_most_7(param.retry_count);
    identity.rnr_retry_count = at_most_7(param.rnr_retry_count);
    identity.timeout = identity.ack_timeout.value_or(kPacketLifetime + 1);
    identity.mtu = port.mtu;
    identity.transaction = random_();
    identity.peer = network_.find_peer(identity.service_id, identity.destination);

    Message message = outbox_.message_of(kind, identity);
    message.transport = identity.qp_type == IBV_QPT_UC ? 1 : 0;
    message.has_flow_control = param.flow_control != 0;
    message.mtu = static_cast<std::uint8_t>(port.mtu);
    message.local_lid = port.lid;
    message.remote_lid = identity.peer.lid;
    message.local_gid = port.gid;
    message.remote_gid = identity.peer.gid;
    message.traffic_class = identity.type_of_service;
    message.hop_limit = port.is_ethernet ? 64 : 0;
    message.ack_timeout = identity.timeout;
    if (offset != 0)
        put_header(identity, &message);
    put_data(data_of(param), offset, &message);
    identity.state = State::kConnecting;
    identity.exchange = identity.is_datagram() ? Exchange::kSidrSent : Exchange::kReqSent;
    outbox_.send_until_answered(identity, message);
    return 0;
}

int Manager::accept(Identity& identity, const rdma_ucm_conn_param* param) {
    if (identity.state != State::kConnecting)
        return EINVAL;
    if (param != nullptr) {
        identity.qpn = param->qp_num;
        identity.has_srq = param->srq != 0;
    }
    int error = 0;
    if (identity.is_datagram())
        error = accept_datagrams(identity, param);
    else
        error = param != nullptr ? accept_connection(identity, *param) : get_ready(identity);
    if (error != 0)
        static_cast<void>(reject(identity, {}, kRejConsumerDefined));
    return error;
}

int Manager::accept_connection(Identity& identity, const rdma_ucm_conn_param& param) {
    if (identity.exchange != Exchange::kReqReceived ||
        param.private_data_len > private_bytes_max(Kind::kRep)) {
        return EINVAL;
    }
    identity.responder_resources = param.responder_resources;
    identity.initiator_depth = param.initiator_depth;
    Message message = outbox_.message_of(Kind::kRep, identity);
    // For the peer to obey; what we obey came with its request.
    message.rnr_retry_count = at_most_7(param.rnr_retry_count);
    message.has_flow_control = param.flow_control != 0;
    put_data(data_of(param), 0, &message);
    identity.exchange = Exchange::kRepSent;
    outbox_.send_until_answered(identity, message);
    return 0;
}

int Manager::accept_datagrams(Identity& identity, const rdma_ucm_conn_param* param) {
    const std::span<const std::byte> data =
        param != nullptr ? data_of(*param) : std::span<const std::byte>();
    if (identity.exchange != Exchange::kSidrReceived ||
        data.size() > private_bytes_max(Kind::kSidrRep)) {
        return EINVAL;
    }
    identity.qkey =
        param != nullptr && param->qkey != 0 && identity.is_ib() ? param->qkey : kDatagramQkey;
    Message message = outbox_.message_of(Kind::kSidrRep, identity);
    message.local_id = identity.remote_id;
    message.reason = kSidrSuccess;
    put_data(data, 0, &message);
    identity.exchange = Exchange::kSidrDone;
    identity.unanswered = format(message);
    outbox_.send_once(identity, message);
    return 0;
}

int Manager::get_ready(Identity& identity) {
    if (identity.exchange != Exchange::kRepReceived)
        return EINVAL;
    identity.exchange = Exchange::kEstablished;
    outbox_.send_once(identity, outbox_.message_of(Kind::kRtu, identity));
    return 0;
}

int Manager::reject(Identity& identity, std::span<const std::byte> data, std::uint16_t reason) {
    const Kind kind = identity.is_datagram() ? Kind::kSidrRep : Kind::kRej;
    if (data.size() > private_bytes_max(kind))
        return EINVAL;
    Message message = outbox_.message_of(kind, identity);
    put_data(data, 0, &message);
    message.reason = reason;
    switch (identity.exchange) {
        case Exchange::kSidrReceived:
            message.reason = kSidrReject;
            message.local_id = identity.remote_id;
            message.qpn = message.qkey = 0;
            break;
        case Exchange::kReqReceived:
            break;
        case Exchange::kRepReceived:
            message.rejected = 1;
            break;
        case Exchange::kReqSent:
        case Exchange::kRepSent:
            message.rejected = 2;
            break;
        default:
            return EINVAL;
    }
    outbox_.note_answered(identity);
    identity.exchange = Exchange::kOver;
    identity.unanswered = format(message);  // for a request that comes again
    outbox_.send_once(identity, message);
    return 0;
}

int Manager::disconnect(Identity& identity) {
    if (identity.exchange == Exchange::kNone)
        return EINVAL;
    if (identity.exchange == Exchange::kEstablished) {
        Message message = outbox_.message_of(Kind::kDreq, identity);
        message.qpn = identity.remote_qpn;
        identity.exchange = Exchange::kDreqSent;
        outbox_.send_until_answered(identity, message);
    } else if (identity.exchange == Exchange::kDreqReceived) {
        outbox_.send_once(identity, outbox_.message_of(Kind::kDrep, identity));
        enter_time_wait(identity);
    }
    return 0;
}

int Manager::notify(Identity& identity, std::uint32_t event) {
    if (identity.exchange == Exchange::kNone || event != IBV_EVENT_COMM_EST)
        return EINVAL;
    if (identity.exchange == Exchange::kEstablished)
        return EISCONN;
    if (identity.exchange != Exchange::kRepSent)
        return EINVAL;
    // A message of the peer came before its RTU.
    outbox_.note_answered(identity);
    identity.exchange = Exchange::kEstablished;
    rdma_ucm_event_resp response{};
    response.event = EventType::kEstablished;
    tell(identity, response);
    return 0;
}

// As cm_destroy_id().
void Manager::say_good_bye(Identity& identity) {
    switch (identity.exchange) {
        case Exchange::kReqSent:
            static_cast<void>(reject(identity, {}, kRejTimeout));
            break;
        case Exchange::kReqReceived:
        case Exchange::kRepSent:
        case Exchange::kRepReceived:
        case Exchange::kSidrReceived:
            static_cast<void>(reject(identity, {}, kRejConsumerDefined));
            break;
        case Exchange::kEstablished:
        case Exchange::kDreqReceived:
            static_cast<void>(disconnect(identity));
            break;
        default:
            break;
    }
}

}  // namespace tagwire::vhca::cm
