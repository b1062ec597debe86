// SPDX-License-Identifier: BSD-3-Clause
// Sends the queues of connections: when a message goes at once and when it waits for others.
//
// The first message of a burst, which is what is sent between two calls of progress, goes at once.
// Those behind it are gathered, and go when there are kGatherBytes of them, with the next call of
// progress, or with a flush: one system call for many. A frame of full length is a part of a longer
// message. It waits for the next part at most, and the last part goes at once: no message waits
// halfway. Owner thread only.
#pragma once

#include <ucs/type/status.h>
#include <uct/api/uct.h>

#include <cstdint>
#include <cstring>

#include "uct/tcp/connection.hpp"
#include "uct/tcp/frames.hpp"

namespace tagwire::tcp {

class Sender {
  public:
    explicit Sender(TcpIface& owner) : iface_(owner) {}
    Sender(const Sender&) = delete;
    Sender& operator=(const Sender&) = delete;

    /// Progress is called: bursts end.
    void end_bursts() { ++burst_; }
    /// Something was queued; `is_full`: it is as long as frames may be.
    void after_send(Connection& connection, bool is_full = false);
    /// Gives the kernel what it takes.
    void write(Connection& connection);

    /// UCS_ERR_NO_MEMORY: the connection ends.
    template <class Body>
    ucs_status_t send_control(Connection& connection, Kind kind, const Body& body,
                              const void* data = nullptr, std::size_t bytes = 0) {
        std::byte* to = reserve_control(connection, frame_bytes<Body>(bytes));
        if (to == nullptr)
            return UCS_ERR_NO_MEMORY;
        if (bytes > 0)
            std::memcpy(data_of<Body>(to), data, bytes);
        commit_control(connection, put_frame(to, kind, 0, body, bytes));
        return UCS_OK;
    }
    /// A reply with a copy of registered memory. UCS_ERR_INVALID_ADDR: it cannot be read.
    ucs_status_t send_get_data(Connection& connection, std::uint64_t op, const std::byte* from,
                               std::size_t bytes);
    /// The peer's next flush fails. It is told once, however many puts fail while its report waits.
    void report_failed_put(Connection& connection, ucs_status_t status);
    void send_done(Connection& connection, std::uint64_t op, ucs_status_t status) {
        static_cast<void>(send_control(connection, Kind::kDone, DoneBody{op, status, 0}));
    }
    void ping(Connection& connection) {
        static_cast<void>(send_control(connection, Kind::kPing, NoBody{}));
    }

    /// UCS_OK: nothing is under way, and with TAGWIRE_UCT_FLUSH_FLAG_REMOTE all puts are placed.
    ucs_status_t flush_of(Connection& connection, unsigned flags);
    /// UCS_INPROGRESS, or UCS_ERR_NO_RESOURCE.
    ucs_status_t start_remote_flush(Connection& connection, TcpEp* ep, uct_completion_t* comp);
    /// The memory of an operation that ends is the program's again.
    void let_go(const Op& op);
    /// Epoll is to tell, or not any more, when the socket has room.
    void watch_for_room(Connection& connection, bool on);

  private:
    static constexpr std::uint32_t kGatherBytes = 16 * 1024;
    static constexpr std::uint32_t kGatherPartBytes = 32 * 1024;

    void end_write(Connection& connection, ucs_status_t status);
    std::byte* reserve_control(Connection& connection, std::size_t bytes);
    void commit_control(Connection& connection, std::size_t bytes);

    TcpIface& iface_;
    std::uint64_t burst_ = 1;
};

}  // namespace tagwire::tcp
