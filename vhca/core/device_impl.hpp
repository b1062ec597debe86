// SPDX-License-Identifier: BSD-3-Clause
// State shared by the parts of the core: tables of objects, the time, and two lists of queue pairs.
//
//   working  have packets to send: progress() lets each send a few. A queue pair leaves when it has
//            nothing that may be sent now.
//   waiting  may have a timer. next_deadline is never later than the earliest of their timers; one
//            that moved later or was stopped is noticed when next_deadline has come.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "vhca/core/cable.hpp"
#include "vhca/core/completion_queue.hpp"
#include "vhca/core/late_events.hpp"
#include "vhca/core/memory.hpp"
#include "vhca/core/number_table.hpp"
#include "vhca/core/objects.hpp"
#include "vhca/core/queue_pair.hpp"
#include "vhca/core/receive_queue.hpp"

namespace tagwire::vhca {

class Device::Impl {
  public:
    Impl(const DeviceConfig& config_, Wire& wire_, EventSink& sink_, std::uint64_t seed);
    ~Impl();

    void receive(Route from, std::span<const std::byte> packet);
    Time progress(Time time);

    /// `qp` has something to send; progress() will let it.
    void schedule(QueuePair& qp) {
        if (!working.is_linked(qp))
            working.push_back(qp);
    }
    /// Calls qp.run_timer() at `deadline` or later.
    void schedule_timer(QueuePair& qp, Time deadline) {
        if (!waiting.is_linked(qp))
            waiting.push_back(qp);
        next_deadline = deadline < next_deadline ? deadline : next_deadline;
    }
    void unschedule(QueuePair& qp);
    /// The length of a wait that verbs ask for: they name the shortest time.
    [[nodiscard]] Time wait_of(Time shortest) {
        const std::uint64_t stretch_max = config.timer_stretch_max;
        return stretch_max <= 1 ? shortest
                                : shortest + random() % (shortest * (stretch_max - 1) + 1);
    }

    /// A packet without payload that nobody repeats. False: the wire has no room, it is lost.
    bool send_short(Route to, const Packet& packet);
    /// If `packet` asks for a session of a DCI: there is none.
    void answer_inquiry(Route from, const Packet& packet);
    /// A DCI begins with another target.
    std::uint32_t new_session() { return next_session_++; }

    int happen(Incident incident);

    void note_broken(CompletionQueue& cq) { broken.push_back(&cq); }
    /// Moves the queue pairs of CQs that overran to the error state: not possible within a step.
    void settle() {
        if (!broken.empty()) [[unlikely]]
            settle_broken();
    }

    const DeviceConfig config;
    Cable wire;
    bool is_dead = false;
    EventSink& sink;
    LateEvents late;
    DeviceCounters counters;
    Time now = 0;
    std::mt19937_64 random;          // of what the device does in another way each time
    const std::byte* grh = nullptr;  // of the packet that is being received

    ManagementPort* management = nullptr;

    MemoryTable memory;
    NumberTable<QueuePair> qps;
    NumberTable<SharedReceiveQueue> srqs;

    ucs::List<QueuePair, &QueuePair::working_link> working;
    ucs::List<QueuePair, &QueuePair::waiting_link> waiting;
    Time next_deadline = kNever;

    // Owners of what has no number; destroyed with the device, if the face did not.
    std::vector<std::unique_ptr<Pd>> pds;
    std::vector<std::unique_ptr<CompletionQueue>> cqs;

  private:
    void run_timers();
    void settle_broken();
    void die();
    void set_link(bool is_up);
    void fail_srqs();
    /// `fails(qp)`: to ERR, with IBV_EVENT_QP_FATAL.
    template <typename F>
    void fail_queue_pairs(const F& fails);

    std::vector<CompletionQueue*> broken;
    std::uint32_t next_session_;
};

}  // namespace tagwire::vhca
