// SPDX-License-Identifier: BSD-3-Clause
// The engine of a device in a process: the fabric, the clock, the lock, and a helper thread that
// drives the device when no other thread does.
//
// Application threads drive the device themselves: a thread that posts or polls takes the lock,
// works, and releases it. The helper thread sleeps, and takes over when no thread polled for about
// kTakeOverNs, so that one-sided operations of peers and timers go on.
//
//     helper   PATIENT --- nobody polled, nothing came in ---> ASLEEP
//              wakes now and then,                             the rings are armed: a packet, a
//              looks whether somebody polls                    timer or an unlock() wakes it
//                 ^-----------------------------------------------'
//
// Use by a face
//   - Every call of the device and its objects happens under lock().
//   - A poll is: lock, progress_locked(), Cq::poll(), unlock, note_poll().
//   - A post is: lock, post, unlock. Nothing else is needed: what stays behind goes on by itself.
//   - After Cq::arm(), still under the lock: note_arm(). It says that this thread is about to
//     sleep, and spares the first packet the wait for the helper to take over.
//   - now(), port(), note_poll() need no lock.
//   - A face whose programs call nobody sets a Pump (set_pump()): the helper drives all the time.
//   - After fork() the child has no engine: objects of the parent's have no effect, their packets
//     are dropped; opening the device makes a new one.
//   - The engine is never destroyed, and its thread runs until the process ends: a library that
//     contains it is linked with -z nodelete.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "ucs/datastruct/queue.hpp"
#include "vhca/core/device.hpp"
#include "vhca/engine/clock.hpp"
#include "vhca/engine/control.hpp"
#include "vhca/engine/engine_port.hpp"
#include "vhca/engine/mutex.hpp"
#include "vhca/engine/pump.hpp"
#include "vhca/engine/stats.hpp"
#include "vhca/fabric/faulty_wire.hpp"
#include "vhca/fabric/packet_trace.hpp"
#include "vhca/fabric/shm_fabric.hpp"
#include "vhca/fabric/udp_fabric.hpp"

namespace tagwire::vhca {

enum class FabricKind { kShm, kUdp };
enum class LinkLayer { kOfFabric, kInfiniband, kEthernet };  // of shm InfiniBand, of udp Ethernet

/// `device.lid`, and of `device.guid` the low bits (shm: 16, the LID; udp: 32, the address), are
/// the fabric's: what is given is replaced. `device.active_mtu` and `device.packets_ahead` are at
/// most what the fabric carries.
struct EngineConfig {
    unsigned index = 0;  // of the device; below Engine::kMax
    FabricKind fabric = FabricKind::kShm;
    LinkLayer link_layer = LinkLayer::kOfFabric;
    std::string address;  // udp: in dots; "": one of this machine
    DeviceConfig device;
    FaultConfig faults;
    std::uint64_t seed = 0;    // 0: a random one
    std::string trace;         // file of the process for its packets, "": none; see trace_path_of()
    bool has_summary = false;  // at the end of the process
    std::uint64_t summary_seed = 0;  // for all devices of the process; 0: that of the faults
};

/// A part that is driven together with the device: the connection manager.
class Management : public ManagementPort {
  public:
    /// Returns when it wants to be called again at the latest.
    virtual Time progress(Time now) = 0;
    /// The process ends: ends what peers know of it. False: a peer has not heard it yet.
    virtual bool say_farewell() = 0;
    /// In the child of a fork(): gives back what others would see as held by the parent.
    virtual void abandon() = 0;

  protected:
    ~Management() = default;
};

/// Hears of the events of the port and the whole device: an open context.
class DeviceListener {
  public:
    /// Under the lock, from inside a call of the device: must not call back. `port` 0: the whole
    /// device.
    virtual void device_event(ibv_event_type type, unsigned port) = 0;

    ucs::ListLink<DeviceListener> of_engine;

  protected:
    ~DeviceListener() = default;
};

class Engine {
  public:
    static constexpr Time kTakeOverNs = 100'000;
    static constexpr unsigned kMax = 8;  // devices of a process

    /// The engine of device `config.index` of this process, made at the first call for it; what
    /// else `config` of later calls has is ignored. Engines know nothing of each other.
    /// EMFILE, ENOMEM, EADDRNOTAVAIL (no LID is free, or the address is of another machine),
    /// EADDRINUSE (another process has the address), EINVAL (not an address, or
    /// InfiniBand over UDP), EAGAIN (no thread
    /// could be made), EIO.
    static int get(const EngineConfig& config, Engine** engine_p);

    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    std::unique_lock<EngineMutex> lock() { return std::unique_lock(mutex_); }
    Device& device() { return *device_; }
    [[nodiscard]] Time now() const { return clock_.now(); }

    /// Packets that came in go to the device, what waits goes out. Bounded work.
    void progress_locked();
    /// An application thread polls: the helper stays away.
    void note_poll() {
        // Counts roughly when several threads poll: only that it changes is of interest.
        polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    /// Under the lock: an application thread is about to wait for an event.
    void note_arm();

    /// Its name on the fabric, and the ways from it. Without the lock.
    [[nodiscard]] const EnginePort& port() const { return port_; }

    /// Before the first object is made. The pump lives as long as the process.
    void set_pump(Pump* pump);
    /// Under the lock; lives as long as the process.
    void set_management(Management* management);
    /// Receiver of events; called under the lock, by any thread. None: events are dropped.
    void set_sink(EventSink* sink);
    /// Under the lock.
    void add(DeviceListener& listener) { sink_.listeners.push_back(listener); }
    void remove(DeviceListener& listener) { sink_.listeners.erase(listener); }

    /// Takes the lock, and has the device carry it out. EIO: the device is dead.
    int happen(Incident incident);
    /// Takes the lock.
    [[nodiscard]] bool is_dead();

    /// Under the lock.
    [[nodiscard]] const FabricCounters& fabric_counters() const { return fabric_->counters(); }
    [[nodiscard]] FaultCounters fault_counters() const;
    [[nodiscard]] DeviceFigures figures() const;
    /// Times that the helper woke up, and that it drove the device.
    struct HelperCounters {
        std::uint64_t wake_ups = 0, take_overs = 0;
    };
    [[nodiscard]] HelperCounters helper_counters() const;

    /// At the end of the process: the good-byes of its connection managers, the summaries of its
    /// devices, the rest of its trace.
    static void say_farewell();

  private:
    struct SinkSwitch final : EventSink {
        EventSink* to = nullptr;
        ucs::List<DeviceListener, &DeviceListener::of_engine> listeners;
        void cq_event(Cq& cq) override;
        void qp_event(ibv_event_type type, Qp& qp) override;
        void srq_event(ibv_event_type type, Srq& srq) override;
        void cq_error(Cq& cq) override;
        void device_event(ibv_event_type type, unsigned port) override;
    };

    Engine() = default;
    ~Engine() = default;
    int open_fabric(const EngineConfig& config, DeviceConfig* device);
    int start(const EngineConfig& config);
    int start_helper();
    unsigned drive(Time now);
    void help();
    Time help_once(bool was_asked);
    bool take_over(Time* last_work_p, Time* wait_ns_p);
    void help_pump();
    bool pump_once(Time* last_work_p, Time* wait_ns_p);
    [[nodiscard]] bool falls_asleep(Time time, Time* wait_ns_p);
    void abandon();

    void add_trace(const EngineConfig& config);
    [[nodiscard]] bool lock_at_end();
    void take_leave();
    bool summarize();

    static int make(const EngineConfig& config, Engine** engine_p);
    static void before_fork();
    static void after_fork_parent();
    static void after_fork_child();

    EngineMutex mutex_;
    EngineClock clock_;
    SinkSwitch sink_;
    EnginePort port_;
    std::unique_ptr<Fabric> fabric_;
    std::unique_ptr<FaultyWire> faults_;
    std::unique_ptr<PacketTap> tap_;  // with a trace
    std::unique_ptr<TracedWire> traced_;
    std::unique_ptr<Device> device_;
    Management* management_ = nullptr;
    Time deadline_ = kNever;     // when the device wants to be called
    Time next_stall_check_ = 0;  // when to look for peers that do not poll
    unsigned index_ = 0;
    bool has_summary_ = false;
    std::uint64_t seed_ = 0;  // of the summary

    alignas(128) std::atomic<std::uint64_t> polls_{0};  // of application threads

    // The helper's own
    ControlSocket control_;
    alignas(128) ucs::UniqueFd bell_;  // eventfd
    std::uint64_t polls_seen_ = 0;
    Time patience_ns_ = kTakeOverNs, linger_ns_ = 1000;
    bool was_idle_ = false;  // the last turn with a pump found nothing
    std::atomic<Pump*> pump_{nullptr};
    std::atomic<std::uint64_t> wake_ups_{0}, take_overs_{0};
};

}  // namespace tagwire::vhca
