// SPDX-License-Identifier: BSD-3-Clause
// The device's thread, as far as the rings of programs go: which there are, when to look at them,
// and how to sleep without missing a doorbell.
#pragma once

#include <cstdint>
#include <memory>

#include "ucs/datastruct/queue.hpp"
#include "vhca/driver/doorbell_trap.hpp"
#include "vhca/driver/objects.hpp"
#include "vhca/engine/engine.hpp"
#include "vhca/engine/pump.hpp"

namespace tagwire::vhca::driver {

/// One for each device, as long as the process. Under the engine's lock.
class Poller final : public Pump {
  public:
    /// The engine's, made at the first call.
    static Poller& of(Engine& engine);

    void add(CqObject& cq) { cqs_.push_back(cq); }
    void add(QpObject& qp) { qps_.push_back(qp); }
    void remove(CqObject& cq) { cqs_.erase(cq); }
    void remove(QpObject& qp) { qps_.erase(qp); }
    /// The doorbell pages of an open device, a memfd: `bytes` from its start.
    DoorbellTrap& trap() { return trap_; }

    /// Does all that the program posted to `qp` before a command, which has to see it done.
    void settle(QpObject& qp, Time now);
    /// The next CQ's.
    [[nodiscard]] std::uint32_t take_cq_number();

    bool pump(Time now) override;
    void rest() override;
    void wake(Time now) override;
    [[nodiscard]] int fd() const override { return trap_.fd(); }
    [[nodiscard]] Time nap() const override;

  private:
    /// A receive that is posted to a queue in ERR rings no doorbell, nor does who reads an event.
    /// The second while nothing comes of it for long: programs leave queues in ERR.
    static constexpr Time kFlushNapNs = 1'000'000, kFlushNapMaxNs = 64'000'000;
    /// A thread that rang is to go on; its next doorbell is not noticed before it did.
    static constexpr Time kUnsettledNapNs = 20'000;
    /// Where doorbells are not noticed.
    static constexpr Time kBlindNapNs = 50'000;

    bool poll(QpObject& qp, Time now);
    void flush(EventPipe& pipe);
    bool pump_rings(Time now);

    DoorbellTrap trap_;
    bool has_flushing_ = false;  // a queue in ERR takes receives
    bool has_waiting_ = false;   // events for which a pipe has no room
    bool is_settled_ = true;     // all doorbells are noticed
    Time unsettled_nap_ns_ = kUnsettledNapNs, flush_nap_ns_ = kFlushNapNs;
    unsigned busy_passes_ = 0;
    static constexpr std::uint32_t kFirstCqNumber = 0x400;
    std::uint32_t next_cq_number_ = kFirstCqNumber;
    bool has_wrapped_ = false;  // numbers from here on may be in use
    ucs::List<QpObject, &QpObject::of_poller> qps_;
    ucs::List<CqObject, &CqObject::of_poller> cqs_;
};

}  // namespace tagwire::vhca::driver
