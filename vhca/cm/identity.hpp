// SPDX-License-Identifier: BSD-3-Clause
// One connection, listener or destination of datagrams: what a program calls rdma_cm_id.
//
// Two state machines, as in the kernel. `state` is what a program may do next (rdma_cm);
// `exchange` is how far the messages of one connection got (IB CM):
//
//   state      idle -> bound -> resolved -> routed -> connecting -> disconnected
//                       '-> listening
//   exchange   active:  REQ sent ------> REP received -> established -> DREQ sent --.
//              passive: REQ received --> REP sent -----> established -> DREQ received -> time wait
//              datagrams: SIDR REQ sent, SIDR REQ received -> done
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_user_cm.h>

#include <cerrno>
#include <cstdint>
#include <optional>

#include "vhca/cm/address.hpp"
#include "vhca/cm/message.hpp"
#include "vhca/cm/network.hpp"

namespace tagwire::vhca::cm {

class Channel;

enum class State : std::uint8_t {
    kIdle,
    kBound,
    kListening,
    kResolved,
    kRouted,
    kConnecting,  // and connected
    kDisconnected,
};

enum class Exchange : std::uint8_t {
    kNone,  // nothing was ever sent or received
    kReqSent,
    kReqReceived,
    kRepSent,
    kRepReceived,
    kEstablished,
    kDreqSent,
    kDreqReceived,
    kTimeWait,
    kSidrSent,
    kSidrReceived,
    kSidrDone,
    kOver,  // rejected, or failed
};

struct Identity {
    // ---- The program's view
    static constexpr std::uint32_t kNoNumber = ~std::uint32_t{0};
    std::uint32_t number = kNoNumber;  // none before the program was told of it
    Channel* channel = nullptr;
    std::uint64_t uid = 0;  // 0: the program is not told what happens to it
    std::uint16_t port_space = 0;
    ibv_qp_type qp_type = IBV_QPT_RC;
    std::uint32_t events_reported = 0;
    std::uint32_t backlog = 0;

    State state = State::kIdle;
    Address source, destination;
    bool has_device = false;
    std::optional<std::uint64_t> claimed;  // the service that its port is
    bool reuses_address = false, is_family_only = false, has_family_only = false;
    std::uint8_t type_of_service = 0;
    std::optional<std::uint8_t> ack_timeout;

    /// Options of a port, before there is one. errno.
    int set_reuse(bool reuses) {
        if (state != State::kIdle && (!reuses || state != State::kBound))
            return EINVAL;
        reuses_address = reuses;
        return 0;
    }
    int set_family_only(bool is_only) {
        if (state != State::kIdle && state != State::kBound)
            return EINVAL;
        has_family_only = true;
        is_family_only = is_only;
        return 0;
    }

    // ---- The messages
    Exchange exchange = Exchange::kNone;
    Peer peer;
    std::uint64_t transaction = 0, service_id = 0;
    std::uint32_t local_id = 0, remote_id = 0;
    std::uint32_t qpn = 0, remote_qpn = 0;
    std::uint32_t qkey = 0;
    std::uint32_t psn = 0;         // that we expect first
    std::uint32_t remote_psn = 0;  // that the peer does
    std::uint8_t responder_resources = 0, initiator_depth = 0;
    std::uint8_t retry_count = 0, rnr_retry_count = 0, timeout = 0;
    bool has_srq = false;
    ibv_mtu mtu = IBV_MTU_4096;

    // ---- The message that waits for an answer
    Mad unanswered{};
    Time deadline = kNever, interval = 0;
    unsigned sends_left = 0;

    /// The program destroyed it, but the peer has not heard that yet.
    [[nodiscard]] bool is_orphan() const { return channel == nullptr; }
    [[nodiscard]] bool is_datagram() const { return qp_type == IBV_QPT_UD; }
    [[nodiscard]] bool is_ib() const { return source.family() == AF_IB; }
};

}  // namespace tagwire::vhca::cm
