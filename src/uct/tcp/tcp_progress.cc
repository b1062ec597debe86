// SPDX-License-Identifier: BSD-3-Clause
// The progress of an interface, and sleeping.
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "ucs/time/clock.hpp"
#include "uct/tcp/tcp_ep.hpp"
#include "uct/tcp/tcp_iface.hpp"

namespace tagwire::tcp {

unsigned TcpIface::progress() {
    sender.end_bursts();
    if (!guard_.try_enter()) [[unlikely]]  // the buffer that connections share is in use
        return 0;
    ++turns_;
    unsigned count = reader.begin_turn();
    if (has_missed_ && reader.may_read()) [[unlikely]]
        count += look_after_miss();
    count += hot_count_ > 0 ? read_hot() : 0;
    if (hot_count_ == 0 || looks_left_ > 0 || turns_ % kTurnsPerLook == 0) {
        looks_left_ -= looks_left_ > 0 ? 1 : 0;
        count += look();
    }
    if (turns_ % kTurnsPerClock == 0)
        look_at_clock();
    if (has_work_)
        count += work();
    guard_.leave();
    count_moved(count);
    if (count == 0)
        worker().found_nothing(*this, 1);
    return count;
}

/// From where the last turn ended, since one that is full takes all of a turn.
unsigned TcpIface::read_hot() {
    unsigned count = 0;
    for (std::size_t left = hot_count_; left > 0 && hot_count_ > 0 && reader.may_read(); --left) {
        if (next_hot_ >= hot_count_)
            next_hot_ = 0;
        Connection& connection = *hot_[next_hot_];
        count += reader.read(connection);
        if (next_hot_ >= hot_count_ || hot_[next_hot_] != &connection)
            continue;  // it has failed, and another one is in its place
        if (connection.empty_reads < kEmptyReadsMax) {
            ++next_hot_;
            continue;
        }
        counters_.add(TcpCounter::kCooled);
        connection.is_hot = false;
        hot_[next_hot_] = hot_[--hot_count_];
    }
    return count;
}

/// Hot connections had all frames of a turn, and others had to wait: each side is first in turn.
unsigned TcpIface::look_after_miss() {
    has_missed_ = false;
    looks_left_ = std::max(looks_left_, 1U);
    looks_first_ = !looks_first_;
    return looks_first_ ? look() : 0;
}

/// Reads one that epoll told of, which may become hot.
unsigned TcpIface::read(Connection& connection) {
    if (connection.is_hot)
        return 0;  // has its turn each time
    if (!reader.may_read()) [[unlikely]] {
        has_missed_ = true;  // epoll tells again
        return 0;
    }
    const unsigned count = reader.read(connection);
    if (count == 0 || !connection.is_ready())
        return count;
    if (hot_count_ < kHotMax) {
        connection.is_hot = true;
        connection.empty_reads = 0;
        hot_[hot_count_++] = &connection;
    } else {
        looks_left_ = kLooksInARow;
    }
    return count;
}

unsigned TcpIface::look() {
    std::array<epoll_event, kEventsPerLook> room;
    const std::span<epoll_event> taken = events.take(room);
    unsigned count = 0;
    for (const epoll_event& event : taken) {
        const std::uint64_t token = event.data.u64;
        switch (static_cast<Watched>(token & kWatchedMask)) {
            case Watched::kListener:
                count += listener.accept();
                break;
            case Watched::kHalfOpen:
                count += listener.read(token);
                break;
            case Watched::kTimer: {
                std::uint64_t expired = 0;
                static_cast<void>(::read(timer_.get(), &expired, sizeof expired));
                look_at_clock();
                break;
            }
            case Watched::kConnection:
                count += on_event(*reinterpret_cast<Connection*>(token), event.events);
                break;
        }
    }
    if (is_sweeping_) [[unlikely]]
        end_sweep(taken.size());
    return count;
}

unsigned TcpIface::on_event(Connection& connection, std::uint32_t told) {
    if (connection.failure != UCS_OK)
        return 0;  // by an event before this one
    if (!connection.is_ready())
        return connections.go_on(connection, told);
    unsigned count = 0;
    if ((told & EPOLLOUT) != 0 && connection.is_blocked) {
        connection.is_blocked = false;
        sender.write(connection);
        if (!connection.is_blocked && connection.failure == UCS_OK)
            sender.watch_for_room(connection, false);
        add_work(connection);
        ++count;
    }
    if ((told & ~std::uint32_t{EPOLLOUT}) != 0 && connection.failure == UCS_OK)
        count += read(connection);
    return count;
}

unsigned TcpIface::work() {
    has_work_ = false;
    unsigned count = failures.bury() + tags.report_cancelled();
    const ucs::ReserveVector<Connection*> working = std::exchange(working_, {});
    for (Connection* connection : working)
        connection->is_working = false;
    for (Connection* connection : working) {
        if (connection->failure != UCS_OK)
            continue;
        const std::uint64_t before = connection->tx.written();
        sender.write(*connection);
        ops.settle_flushes(*connection);
        count += connection->tx.written() != before ? 1 : 0;
        if (connection->is_ready() && !connection->tx.empty() && !connection->is_blocked)
            add_work(*connection);
    }
    count += end_sent() + static_cast<unsigned>(pending.dispatch(kPollBudget));
    count += failures.bury();
    failures.reap();
    has_work_ |= !working_.empty() || tags.has_cancelled() || failures.has_failed() ||
                 !pending.empty() || !pools.sent.empty();
    return count;
}

unsigned TcpIface::end_sent() {
    const ucs::ReserveVector<TxPools::Sent> sent = std::exchange(pools.sent, {});
    for (const TxPools::Sent& each : sent) {
        Op* op = ops.find(each.op);
        if (op == nullptr)
            continue;
        if (op->kind == OpKind::kPut)
            ops.abandon(*op, each.status);  // its source cannot be read
        else
            ops.finish(*op, each.status);
    }
    return static_cast<unsigned>(sent.size());
}

void TcpIface::look_at_clock() {
    const std::uint64_t now = ucs::clock_now_ns();
    if (now < deadline_ || std::exchange(is_sweeping_, true))
        return;
    sweep_for_ = now;
    swept_ = 0;
    sweeps_left_ = kSweeps;
}

std::size_t TcpIface::watched() const {
    return connections.all().size() + listener.half_open() + 2;  // listener, timer
}

/// Epoll tells of those that are ready in turn, so each was told of when there were as many events
/// as descriptors, or no more to tell of.
void TcpIface::end_sweep(std::size_t taken) {
    swept_ += taken;
    if (taken == kEventsPerLook && swept_ < watched())
        return;
    swept_ = 0;
    if (--sweeps_left_ > 0)
        return;
    is_sweeping_ = false;
    deadline_ = UINT64_MAX;
    listener.expire(sweep_for_);
    connections.expire(sweep_for_);
    keepalive.look(sweep_for_);
}

void TcpIface::add_work(Connection& connection) {
    has_work_ = true;
    if (connection.is_working || connection.failure != UCS_OK)
        return;
    connection.is_working = true;
    working_.push_back(&connection);
}

void TcpIface::drop_work(Connection& connection) {
    std::erase(working_, &connection);
    if (!connection.is_hot)
        return;
    connection.is_hot = false;
    Connection** place = std::find(hot_.begin(), hot_.begin() + hot_count_, &connection);
    *place = hot_[--hot_count_];
}

// ---- Sleeping

ucs_status_t TcpIface::event_fd_get(int* fd_p) {
    *fd_p = events.fd();
    return UCS_OK;
}

void TcpIface::set_timer() {
    if (std::exchange(timer_set_, deadline_) == deadline_)
        return;
    itimerspec when{};
    if (deadline_ != UINT64_MAX)
        when.it_value = ucs::timespec_of(std::max<std::uint64_t>(deadline_, 1));
    ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

// The events that wake a sleeping program, by the states in which it may sleep:
//
//   listener                    first bytes of a stranger; without descriptors the timer
//   half open                   more bytes, the timer
//   connecting                  EPOLLOUT, the timer
//   greeted                     the whole reply (SO_RCVLOWAT), an end
//   waiting                     the listener, the timer
//   ready                       EPOLLIN, an end; with a full socket EPOLLOUT, too
//   failed and reported         nothing
//   pending request             the event that its connection waits for, as above, or the reply
//                               that ends an operation, where as many as may be, or a fence, wait
//
// Progress does all else that is to be done, so the program may not sleep then. Nothing is reported
// here: the program expects that in progress only.
ucs_status_t TcpIface::event_arm(unsigned) {
    if (guard_.is_inside() || is_sweeping_ || reader.has_rest() || failures.has_failed() ||
        tags.has_cancelled())
        return UCS_ERR_BUSY;
    for (Connection* connection : working_) {
        if (connection->is_ready() && !connection->is_blocked)
            return UCS_ERR_BUSY;
    }
    // Requests that wait for room in a socket, for the handshake, or for the end of operations that
    // the peer ends, are woken by these; others may have their turn now.
    if (!pending.empty() && !is_pending_blocked())
        return UCS_ERR_BUSY;
    set_timer();
    return UCS_OK;
}

bool TcpIface::is_pending_blocked() const {
    return std::ranges::any_of(connections.all(), [this](const auto& connection) {
        return connection->failure == UCS_OK &&
               (connection->is_blocked || !connection->is_ready() || connection->fence_waits ||
                !ops.has_room(*connection));
    });
}

}  // namespace tagwire::tcp
