// SPDX-License-Identifier: BSD-3-Clause
// The loops of all tests. A test is one of three shapes over a Port, which knows one kind of
// operation:
//
//   shape      side      steps
//   ping-pong  driver    send(i), prepare_next(i), wait for arrived(i)
//              peer      wait for arrived(i), send(i), prepare_next(i)
//              fresh data: drain() and refresh(i) before the driver's send, behind the peer's
//   stream     sender    try_send(i) or try_send(i, whether another one follows at once) ...,
//                        try_finish(), wait for acked()
//              receiver  wait for received_all(), try_ack()
//   fetch      driver    try_send(i), wait for its completion
//              peer      progress only
//
// The loops are templates so that nothing indirect lies between the loop and the call that is
// measured.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "tools/job.hpp"
#include "tools/link.hpp"
#include "tools/stats.hpp"

namespace tagwire::tools {

class MsgLink;

/// One job on one link on one side. Constructing it exchanges what it needs with the other side's.
class Test {
  public:
    Test() = default;
    virtual ~Test() = default;
    Test(const Test&) = delete;
    Test& operator=(const Test&) = delete;

    /// `count` more messages, round trips or operations. Returns the nanoseconds that a stream took
    /// on the driver.
    virtual double run(std::uint64_t count, BatchTimer* timer) = 0;
    virtual Outcome outcome() const = 0;
};

/// The object on which a port's loop makes progress: a Link or a MsgLink.
template <class Port>
using Connection = typename Port::Connection;

template <class Port>
void send(Connection<Port>& link, Port& port, std::uint64_t sequence) {
    while (port.try_send(sequence) != UCS_OK)
        link.progress();
}

template <class Port>
class PingPong final : public Test {
  public:
    PingPong(Connection<Port>& link, const Job& job)
        : link_(link), port_(link, job), is_fresh_(job.data == DataKind::kFresh), size_(job.size) {}

    double run(std::uint64_t count, BatchTimer* timer) override {
        const bool driver = link_.side() == Side::kDriver;
        if (is_fresh_) {
            run_fresh(count, timer);
            return 0;
        }
        in_batches(next_, count, timer, [&](std::uint64_t sequence) {
            if (!driver)
                link_.wait_until([&] { return port_.arrived(sequence); });
            send(link_, port_, sequence);
            port_.prepare_next(sequence);
            if (driver)
                link_.wait_until([&] { return port_.arrived(sequence); });
        });
        next_ += count;
        port_.drain();
        return 0;
    }

    Outcome outcome() const override { return port_.outcome(); }

  private:
    /// The driver writes its bytes while the clock stands, the peer its own behind its message, at
    /// about the same time.
    void run_fresh(std::uint64_t count, BatchTimer* timer) {
        const bool driver = link_.side() == Side::kDriver;
        in_batches(next_, count, timer, [&](std::uint64_t sequence) {
            if (driver)
                refresh(sequence, timer);
            else
                link_.wait_until([&] { return port_.arrived(sequence); });
            send(link_, port_, sequence);
            port_.prepare_next(sequence);
            if (driver)
                link_.wait_until([&] { return port_.arrived(sequence); });
            else
                refresh(sequence + 1, nullptr);
        });
        next_ += count;
        port_.drain();
    }

    void refresh(std::uint64_t sequence, BatchTimer* timer) {
        port_.drain();
        if constexpr (requires { port_.refresh(sequence); }) {
            const bool stops_clock = timer != nullptr && size_ >= kStopsClockBytes;
            const std::uint64_t begin = stops_clock ? now_ns() : 0;
            port_.refresh(sequence);
            if (stops_clock)
                timer->exclude(now_ns() - begin);
        }
    }

    /// Shorter messages are written in less time than it takes to read the clock twice.
    static constexpr std::uint64_t kStopsClockBytes = 1024;

    Connection<Port>& link_;
    Port port_;
    bool is_fresh_;
    std::uint64_t size_;
    std::uint64_t next_ = 0;
};

template <class Port>
class Stream final : public Test {
  public:
    Stream(Connection<Port>& link, const Job& job)
        : link_(link),
          port_(link, job),
          sends_(link.side() == Side::kDriver || job.bidir),
          receives_(Port::kReceives && (link.side() == Side::kPeer || job.bidir)) {}

    double run(std::uint64_t count, BatchTimer*) override {
        const std::uint64_t end = next_ + count;
        std::uint64_t sequence = sends_ ? next_ : end;
        bool finished = !sends_;
        bool ack_sent = !receives_;
        const std::uint64_t start = now_ns();
        while (!finished || !ack_sent || (sends_ && !port_.acked(end))) {
            const std::uint64_t before = sequence;
            sequence = burst(sequence, end);
            if (sequence == end && !finished)
                finished = port_.try_finish(end) == UCS_OK;
            if (!ack_sent && port_.received_all(end))
                ack_sent = port_.try_ack(end) == UCS_OK;
            // Refused, and nothing came: the other side may share this core, and has work.
            if (!link_.progress() && sequence == before)
                pause_cpu();
        }
        const std::uint64_t elapsed = now_ns() - start;
        port_.drain();
        next_ = end;
        return static_cast<double>(elapsed);
    }

    Outcome outcome() const override { return port_.outcome(); }

  private:
    /// Sends until refused; in both directions at once it looks at arrivals now and then.
    std::uint64_t burst(std::uint64_t sequence, std::uint64_t end) {
        constexpr std::uint64_t kBidirBurst = 16;
        const std::uint64_t stop = receives_ ? std::min(end, sequence + kBidirBurst) : end;
        while (sequence < stop && try_send(sequence, sequence + 1 < stop) == UCS_OK)
            ++sequence;
        return sequence;
    }

    ucs_status_t try_send(std::uint64_t sequence, bool has_more) {
        if constexpr (requires { port_.try_send(sequence, has_more); })
            return port_.try_send(sequence, has_more);
        else
            return port_.try_send(sequence);
    }

    Connection<Port>& link_;
    Port port_;
    bool sends_;
    bool receives_;
    std::uint64_t next_ = 0;
};

template <class Port>
class Fetch final : public Test {
  public:
    Fetch(Connection<Port>& link, const Job& job) : link_(link), port_(link, job) {}

    double run(std::uint64_t count, BatchTimer* timer) override {
        if (link_.side() == Side::kDriver) {
            in_batches(next_, count, timer, [&](std::uint64_t sequence) {
                send(link_, port_, sequence);
                port_.drain();
            });
        }
        next_ += count;
        return 0;
    }

    Outcome outcome() const override { return port_.outcome(); }

  private:
    Connection<Port>& link_;
    Port port_;
    std::uint64_t next_ = 0;
};

/// The test of a job at the level of the link, which is a Link or a MsgLink. At level uct `job.op`
/// is resolved and within the interface's limits.
template <class AnyLink>
std::unique_ptr<Test> make_test(AnyLink& link, const Job& job);
/// The factories, one for each family of tests.
template <class AnyLink>
std::unique_ptr<Test> make_am_test(AnyLink& link, const Job& job);
template <class AnyLink>
std::unique_ptr<Test> make_tag_test(AnyLink& link, const Job& job);
template <class AnyLink>
std::unique_ptr<Test> make_match_test(AnyLink& link, const Job& job);
template <class AnyLink>
std::unique_ptr<Test> make_put_test(AnyLink& link, const Job& job);
template <class AnyLink>
std::unique_ptr<Test> make_get_test(AnyLink& link, const Job& job);
template <class AnyLink>
std::unique_ptr<Test> make_atomic_test(AnyLink& link, const Job& job);
/// At level msg alone.
std::unique_ptr<Test> make_msg_unexpected_test(MsgLink& link, const Job& job);

/// Tells both directions and the tests apart in the bytes of validated messages.
inline std::uint64_t stream_from(Side side, const Job& job) {
    return static_cast<std::uint64_t>(job.test) * 2 + (side == Side::kDriver ? 0 : 1);
}

inline Side other(Side side) {
    return side == Side::kDriver ? Side::kPeer : Side::kDriver;
}

}  // namespace tagwire::tools
