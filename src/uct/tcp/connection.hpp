// SPDX-License-Identifier: BSD-3-Clause
// The connection to one peer interface: state that both directions share. A peer that has not sent
// anything costs this object and no buffer.
//
//   opened by us:    kConnecting -> kGreeted -> kReady
//                                       +-----> kWaiting (crossed: the peer's connection comes)
//   accepted:        half open (listener.hpp) -> kReady
//   each             -> kFailed: reported to its endpoints in progress, then it has none
//
// Owner thread only.
#pragma once

#include <cstdint>

#include "ucs/memory/reserve.hpp"
#include "ucs/sys/private_fd.hpp"
#include "uct/tcp/address.hpp"
#include "uct/tcp/ops.hpp"
#include "uct/tcp/stream_writer.hpp"

namespace tagwire::tcp {

struct Incoming;

enum class State : std::uint8_t { kConnecting, kGreeted, kWaiting, kReady, kFailed };

class Connection : public ucs::FromReserve {
  public:
    explicit Connection(TcpIface& owner) : iface(owner) {}
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    TcpIface& iface;
    ucs::PrivateFd fd;
    State state = State::kConnecting;
    bool was_opened_by_us = false;
    bool is_known = false;  // the table leads to it
    bool is_slow = false;   // logged: the peer's host does not take it
    bool is_hot = false;
    bool is_working = false;  // in the list of those that get a turn in progress
    bool is_blocked = false;  // the kernel is full; EPOLLOUT tells
    bool is_watched_for_room = false;
    bool is_silent = false;  // a write has found that its host replies no more
    bool is_reading = false;
    bool fence_waits = false;
    bool is_within_message = false;  // a full frame was the last one
    std::uint8_t empty_reads = 0;
    std::uint8_t hang_ups = 0;   // of the peer before it replied
    std::uint8_t crossings = 0;  // replies that its own connection stands
    ucs_status_t failure = UCS_OK;
    ucs_status_t put_failure = UCS_OK;  // of puts that nobody waits for; the next flush tells
    std::uint16_t port = 0;
    IpAddress address;
    Cookie cookie{};
    std::uint64_t instance = 0;
    std::uint64_t deadline = 0;  // ns, while connecting or waiting
    std::uint64_t burst = 0;     // turn of progress in which it wrote at once
    std::uint32_t place = 0;     // in the list of all
    std::uint32_t ops_count = 0;
    std::uint32_t unanswered = 0;    // requests of operations that were cancelled,
    std::uint32_t recalled = 0;      // those of them before the recall that is under way
    std::uint32_t gets = 0;          // ours that are under way; a fence waits for them
    std::uint32_t puts = 0;          // numbers of puts without an operation: sent,
    std::uint32_t puts_asked = 0;    // asked for by a flush,
    std::uint32_t puts_placed = 0;   // known to be placed
    std::uint32_t failed_put = 0;    // of the peer, in several frames: one of them had a bad key
    std::uint64_t failure_told = 0;  // position in tx behind the last report of a failed put
    TcpEp* eps = nullptr;
    OpList ops;
    OpList receives;
    StreamWriter tx;
    Incoming* incoming = nullptr;  // a frame that came in part

    [[nodiscard]] bool is_ready() const { return state == State::kReady; }
};
static_assert(sizeof(Connection) <= 300, "a silent peer is cheap");

}  // namespace tagwire::tcp
