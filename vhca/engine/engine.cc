// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/engine/engine.hpp"

#include <endian.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <string>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/sys/process.hpp"
#include "vhca/engine/fault_handler.hpp"
#include "vhca/engine/packet_kind.hpp"

namespace tagwire::vhca {

namespace {

/// Packets that a peer left alone for one to two of these make us knock.
constexpr Time kStallCheckNs = 100'000;

void report_faults() {
    if (const unsigned count = take_fault_count(); count != 0) [[unlikely]] {
        TW_LOG_ERROR(
            "virtual HCA: %u accesses to registered memory failed, because it was unmapped before "
            "it was deregistered; a real device would keep using the pages that it pinned",
            count);
    }
}

// Held while an engine is made, and across fork().
constinit std::mutex making;
constinit std::array<Engine*, Engine::kMax> engines{};  // under `making`
constinit PacketTrace* trace = nullptr;                 // under `making`; of all engines
constinit bool has_begun_trace = false;                 // under `making`; or tried to

[[gnu::destructor]] void end_of_process() {
    Engine::say_farewell();
}

}  // namespace

// ---- Made once for each device -----------------------------------------------------------------

int Engine::get(const EngineConfig& config, Engine** engine_p) {
    const std::lock_guard guard(making);
    Engine*& engine = engines[config.index];
    if (engine == nullptr) {
        if (const int error = make(config, &engine); error != 0)
            return error;
    }
    *engine_p = engine;
    return 0;
}

int Engine::make(const EngineConfig& config, Engine** engine_p) {
    static const int atfork_error =
        ::pthread_atfork(before_fork, after_fork_parent, after_fork_child);
    if (atfork_error != 0)
        return atfork_error;
    auto* engine = new (std::nothrow) Engine;
    if (engine == nullptr)
        return ENOMEM;
    if (const int error = engine->start(config); error != 0) {
        delete engine;
        return error;
    }
    *engine_p = engine;
    return 0;
}

int Engine::open_fabric(const EngineConfig& config, DeviceConfig* device) {
    const bool is_ethernet =
        config.link_layer == LinkLayer::kEthernet || config.fabric == FabricKind::kUdp;
    if (config.fabric == FabricKind::kShm) {
        std::unique_ptr<ShmFabric> shm;
        if (const int error = ShmFabric::open(&shm); error != 0)
            return error;
        device->lid = shm->lid();
        device->guid = (device->guid & ~kLidBits) | shm->lid();
        if (is_ethernet)
            shm->add_grhs(device->guid & ~kLidBits);
        port_ = EnginePort(device->lid, device->guid, is_ethernet, nullptr);
        fabric_ = std::move(shm);
        return 0;
    }
    if (config.link_layer == LinkLayer::kInfiniband) {
        TW_LOG_ERROR(
            "the fabric 'udp' is Ethernet; link layer 'infiniband' needs the fabric 'shm'");
        return EINVAL;
    }
    std::unique_ptr<UdpFabric> udp;
    if (const int error = UdpFabric::open(config.address.c_str(), &udp); error != 0)
        return error;
    device->lid = 0;
    device->guid = (device->guid & ~kAddressBits) | udp->address();
    device->active_mtu = std::min(device->active_mtu, udp->mtu());
    const std::uint32_t fit = udp->packets_buffered(device->active_mtu);
    device->packets_ahead = std::min(device->packets_ahead, std::max(fit, device->ack_every));
    port_ = EnginePort(device->lid, device->guid, is_ethernet, udp.get());
    fabric_ = std::move(udp);
    mutex_.flush_before_unlock(fabric_.get());
    return 0;
}

int Engine::start(const EngineConfig& config) {
    DeviceConfig device = config.device;
    if (const int error = open_fabric(config, &device); error != 0)
        return error;
    install_fault_handler();
    Wire* wire = fabric_.get();
    if (config.faults.is_any()) {
        faults_ = std::make_unique<FaultyWire>(*fabric_, config.faults, [this] { return now(); });
        wire = faults_.get();
    }
    if (!config.trace.empty()) {
        add_trace(config);
        if (tap_ != nullptr) {
            traced_ = std::make_unique<TracedWire>(*wire, *tap_);
            wire = traced_.get();
        }
    }
    index_ = config.index;
    has_summary_ = config.has_summary;
    seed_ = config.summary_seed != 0 ? config.summary_seed : config.faults.seed;
    const std::uint64_t seed = config.seed != 0 ? config.seed : ucs::random_u64();
    device_ = std::make_unique<Device>(device, *wire, sink_, seed);
    bell_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!bell_)
        return errno;
    static_cast<void>(control_.open(index_));
    TW_LOG_DEBUG("virtual HCA: LID %u, GUID %016llx", port_.lid(),
                 static_cast<unsigned long long>(port_.guid()));
    return start_helper();
}

// A device goes on without a trace when it cannot be written.
void Engine::add_trace(const EngineConfig& config) {
    const FrameKind kind = !port_.is_ethernet()           ? FrameKind::kInfiniband
                           : port_.interface() != nullptr ? FrameKind::kRoceIpv4
                                                          : FrameKind::kRoceIpv6;
    const PacketFramer framer(kind, port_.guid() & ~kLidBits);
    if (!has_begun_trace) {
        has_begun_trace = true;
        trace = PacketTrace::begin(trace_path_of(config.trace), framer.link_type());
    }
    if (trace != nullptr) {
        tap_ = std::make_unique<PacketTap>(*trace, framer, port_.node());
        fabric_->set_tap(tap_.get());
    }
}

// ---- The end of the process --------------------------------------------------------------------

namespace {
void rest_a_little() {
    const timespec rest{0, 1'000'000};
    ::nanosleep(&rest, nullptr);
}
}  // namespace

// Other threads may still run, and one may have ended in the middle of a call.
bool Engine::lock_at_end() {
    constexpr int kTriesMax = 1000;
    bool is_locked = mutex_.try_lock();
    for (int i = 0; !is_locked && i < kTriesMax; ++i) {
        rest_a_little();
        is_locked = mutex_.try_lock();
    }
    return is_locked;
}

// A good-bye may be lost, or the peer asleep.
void Engine::take_leave() {
    constexpr int kTriesMax = 400;
    bool is_heard = false;
    for (int i = 0; !is_heard && i < kTriesMax && lock_at_end(); ++i) {
        is_heard = management_ == nullptr || management_->say_farewell();
        if (management_ != nullptr)
            progress_locked();
        mutex_.unlock();
        if (!is_heard)
            rest_a_little();
    }
}

bool Engine::summarize() {
    if (!lock_at_end())
        return false;
    const std::string line = summary_of(figures());
    mutex_.unlock_quietly();
    return ::write(STDERR_FILENO, line.data(), line.size()) > 0;
}

void Engine::say_farewell() {
    const std::unique_lock guard(making, std::try_to_lock);
    if (!guard.owns_lock())
        return;
    for (Engine* engine : engines)
        if (engine != nullptr)
            engine->take_leave();
    for (Engine* engine : engines)
        if (engine != nullptr && std::exchange(engine->has_summary_, false))
            static_cast<void>(engine->summarize());
    if (trace != nullptr) {
        if (const std::uint64_t left_out = trace->finish(); left_out != 0) {
            const std::string line = "tagwire: the trace " + trace->path() + " lacks " +
                                     std::to_string(left_out) +
                                     " packets: its file was written too slowly\n";
            static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
        }
    }
}

// ---- Fork --------------------------------------------------------------------------------------

// The locks are taken, so that the child finds each device between two steps.
void Engine::before_fork() {
    making.lock();
    for (Engine* engine : engines)
        if (engine != nullptr)
            engine->mutex_.lock();
}

void Engine::after_fork_parent() {
    for (Engine* engine : engines)
        if (engine != nullptr)
            engine->mutex_.unlock_quietly();
    making.unlock();
}

// Descriptors and rings are the parent's. Objects that the child still holds can be called without
// effect; they are not destroyed, because a face may refer to them.
void Engine::after_fork_child() {
    for (Engine*& engine : engines) {
        if (engine != nullptr) {
            engine->abandon();
            engine->mutex_.unlock_quietly();
            engine = nullptr;
        }
    }
    if (trace != nullptr)
        trace->abandon();
    trace = nullptr;
    has_begun_trace = false;
    making.unlock();
}

void Engine::abandon() {
    mutex_.clear_wake();
    if (management_ != nullptr)
        management_->abandon();
    if (tap_ != nullptr)
        tap_->abandon();
    fabric_->abandon();
    control_.reset();
    bell_.reset();
}

// ---- Driving -----------------------------------------------------------------------------------

unsigned Engine::drive(Time time) {
    Device& device = *device_;
    const unsigned packets = fabric_->deliver(device, time);
    deadline_ = device.progress(time);
    if (management_ != nullptr) [[unlikely]]
        deadline_ = std::min(deadline_, management_->progress(time));
    if (faults_ != nullptr) [[unlikely]]
        deadline_ = std::min(deadline_, faults_->progress(time));
    if (!fabric_->flush()) [[unlikely]]
        deadline_ = time;
    if (time >= next_stall_check_) {
        next_stall_check_ = time + kStallCheckNs;
        report_faults();
        fabric_->knock_at_idle();
    }
    return packets;
}

void Engine::progress_locked() {
    drive(now());
}

void Engine::note_arm() {
    // False: packets are there already. The program looks once more after arming, and finds them.
    static_cast<void>(fabric_->arm());
}

// ---- Addresses and events ----------------------------------------------------------------------

PacketKind packet_kind_of(const Engine& engine) {
    if (!engine.port().is_ethernet())
        return PacketKind::kInfiniband;
    return engine.port().interface() != nullptr ? PacketKind::kRoceIpv4 : PacketKind::kRoceIpv6;
}

void Engine::set_sink(EventSink* sink) {
    const auto guard = lock();
    sink_.to = sink;
}

void Engine::set_management(Management* management) {
    management_ = management;
    device_->set_management(management);
}

void Engine::set_pump(Pump* pump) {
    // SYNC pump_: pairs with help()
    pump_.store(pump, std::memory_order_release);
    static constexpr std::uint64_t kOne = 1;
    static_cast<void>(!::write(bell_.get(), &kOne, sizeof kOne));
}

int Engine::happen(Incident incident) {
    const auto guard = lock();
    return device_->happen(incident, now());
}

bool Engine::is_dead() {
    const auto guard = lock();
    return device_->is_dead();
}

FaultCounters Engine::fault_counters() const {
    return faults_ != nullptr ? faults_->counters() : FaultCounters{};
}

DeviceFigures Engine::figures() const {
    DeviceFigures figures;
    figures.index = index_;
    figures.device = device_->counters();
    figures.fabric = fabric_->counters();
    if (faults_ != nullptr)
        figures.faults = faults_->counters();
    figures.seed = seed_;
    return figures;
}

Engine::HelperCounters Engine::helper_counters() const {
    return {wake_ups_.load(std::memory_order_relaxed), take_overs_.load(std::memory_order_relaxed)};
}

void Engine::SinkSwitch::cq_event(Cq& cq) {
    if (to != nullptr)
        to->cq_event(cq);
}
void Engine::SinkSwitch::qp_event(ibv_event_type type, Qp& qp) {
    if (to != nullptr)
        to->qp_event(type, qp);
}
void Engine::SinkSwitch::srq_event(ibv_event_type type, Srq& srq) {
    if (to != nullptr)
        to->srq_event(type, srq);
}
void Engine::SinkSwitch::cq_error(Cq& cq) {
    if (to != nullptr)
        to->cq_error(cq);
}
void Engine::SinkSwitch::device_event(ibv_event_type type, unsigned port) {
    for (DeviceListener* one = listeners.front(); one != nullptr; one = listeners.next(*one))
        one->device_event(type, port);
}

}  // namespace tagwire::vhca
