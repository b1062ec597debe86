// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/sender.hpp"

#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/sys/checked_copy.hpp"
#include "uct/tcp/limits.hpp"
#include "uct/tcp/tcp_iface.hpp"

namespace tagwire::tcp {

void Sender::after_send(Connection& connection, bool is_full) {
    const std::uint32_t gathered_max = is_full ? kGatherPartBytes : kGatherBytes;
    const bool is_last_part = connection.is_within_message && !is_full;
    if (connection.burst != burst_ || is_last_part || connection.tx.copied_bytes() >= gathered_max)
        write(connection);
    connection.burst = burst_;
    connection.is_within_message = is_full;
    if (!connection.tx.empty() || !connection.ops.empty())
        iface_.add_work(connection);
}

void Sender::commit_control(Connection& connection, std::size_t bytes) {
    connection.tx.commit(bytes);
    iface_.add_work(connection);
}

void Sender::watch_for_room(Connection& connection, bool on) {
    const std::uint32_t wanted = EPOLLIN | (on ? std::uint32_t{EPOLLOUT} : 0U);
    if (iface_.events.change(connection.fd.get(), EventSet::token(connection), wanted))
        connection.is_watched_for_room = on;
    else
        iface_.failures.fail(connection, UCS_ERR_NO_MEMORY);  // nobody would tell of room
}

void Sender::write(Connection& connection) {
    if (connection.is_blocked || !connection.is_ready() || connection.tx.empty())
        return;
    const ucs_status_t status =
        connection.tx.write(connection.fd.get(), iface_.pools, iface_.registrations());
    if (!iface_.pools.sent.empty())
        iface_.want_work();
    if (status != UCS_OK) [[unlikely]]
        end_write(connection, status);
}

void Sender::end_write(Connection& connection, ucs_status_t status) {
    const bool is_broken = status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_ENDPOINT_TIMEOUT;
    if (status != UCS_ERR_NO_RESOURCE && !is_broken) {
        TW_LOG_ERROR("tcp: the connection to %s port %u ends: writing failed: %s",
                     text_of(connection.address).c_str(), connection.port,
                     ucs_status_string(status));
        iface_.failures.fail(connection, status);
        return;
    }
    // A broken connection is found by who reads, behind the messages that came before.
    connection.is_blocked = true;
    connection.is_silent |= status == UCS_ERR_ENDPOINT_TIMEOUT;
    iface_.count(TcpCounter::kBlocked);
    if (!is_broken && !connection.is_watched_for_room)
        watch_for_room(connection, true);
}

ucs_status_t Sender::send_get_data(Connection& connection, std::uint64_t op, const std::byte* from,
                                   std::size_t bytes) {
    std::byte* to = reserve_control(connection, frame_bytes<GetDataBody>(bytes));
    if (to == nullptr)
        return UCS_ERR_NO_MEMORY;
    const ucs_status_t status = ucs::read_checked(data_of<GetDataBody>(to), from, bytes);
    if (status == UCS_OK)
        commit_control(connection, put_frame(to, Kind::kGetData, 0, GetDataBody{op}, bytes));
    return status;
}

std::byte* Sender::reserve_control(Connection& connection, std::size_t bytes) {
    if (connection.failure != UCS_OK)
        return nullptr;
    // Nobody who keeps to the protocol asks for so many replies at a time (limits.hpp).
    if (connection.tx.copied_bytes() > kControlBytesMax + iface_.options().queue_bytes) {
        iface_.failures.violation(connection, "flood of requests, and takes no replies");
        return nullptr;
    }
    std::byte* to = connection.tx.reserve(iface_.pools, bytes);
    if (to == nullptr)
        iface_.failures.fail(connection, UCS_ERR_NO_MEMORY);
    return to;
}

void Sender::report_failed_put(Connection& connection, ucs_status_t status) {
    if (connection.failure_told > connection.tx.written())
        return;
    send_done(connection, 0, status);
    connection.failure_told = connection.tx.queued();
}

void Sender::let_go(const Op& op) {
    const bool is_put = op.kind == OpKind::kPut;
    if (!is_put && op.kind != OpKind::kRndvSend)
        return;
    if (!op.connection->tx.let_go(iface_.pools, iface_.registrations(), op.id, is_put))
        iface_.failures.fail(*op.connection, UCS_ERR_NO_MEMORY);
    iface_.add_work(*op.connection);
}

ucs_status_t Sender::flush_of(Connection& connection, unsigned flags) {
    write(connection);
    if (connection.failure != UCS_OK)
        return connection.failure;
    if (!connection.tx.empty() || !connection.ops.empty()) {
        iface_.add_work(connection);
        return UCS_INPROGRESS;
    }
    if ((flags & TAGWIRE_UCT_FLUSH_FLAG_REMOTE) != 0 && connection.puts_placed != connection.puts) {
        start_remote_flush(connection, nullptr, nullptr);
        return UCS_INPROGRESS;
    }
    return std::exchange(connection.put_failure, UCS_OK);
}

ucs_status_t Sender::start_remote_flush(Connection& connection, TcpEp* ep, uct_completion_t* comp) {
    Op* op = iface_.ops.create(connection, OpKind::kFlushRemote, ep, comp);
    if (op == nullptr)
        return UCS_ERR_NO_RESOURCE;
    op->mark = connection.puts;
    static_cast<void>(send_control(connection, Kind::kFlushRequest, FlushRequestBody{op->id}));
    return UCS_INPROGRESS;
}

}  // namespace tagwire::tcp
