// SPDX-License-Identifier: BSD-3-Clause
#include "uct/worker.hpp"

#include <poll.h>
#include <sched.h>

#include <array>
#include <memory>
#include <new>

#include "ucs/config/core_options.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/time/clock.hpp"
#include "uct/base_iface.hpp"

namespace tagwire::uct {

namespace {

ucs_status_t read_mode(bool* is_polite_p) {
    ucs::CoreOptions options{};
    const ucs_status_t status = ucs::config_fill(ucs::core_option_table(), &options);
    *is_polite_p = static_cast<ucs::ProgressMode>(options.progress) == ucs::ProgressMode::kPolite;
    return status;
}

}  // namespace

Worker::Worker(ucs_async_context_t* async, ucs_thread_mode_t mode)
    : async_(async), mode_(mode), politeness_(Politeness::times_here()) {}

ucs_status_t Worker::create(ucs_async_context_t* async, ucs_thread_mode_t mode, Worker** worker_p) {
    constexpr std::align_val_t kAlignment{alignof(Worker)};
    bool is_polite = true;
    ucs_status_t status = read_mode(&is_polite);
    if (status != UCS_OK)
        return status;
    void* memory = ucs::reserve_open() && !ucs::reserve_is_low()
                       ? ::operator new(sizeof(Worker), kAlignment, std::nothrow)
                       : nullptr;
    if (memory == nullptr)
        return UCS_ERR_NO_MEMORY;
    auto* worker = ::new (memory) Worker(async, mode);
    worker->is_polite_ = is_polite;
    status = ucs_callbackq_init(&worker->progress_q);
    if (status != UCS_OK) {
        ::operator delete(memory, kAlignment);  // no queue yet that the destructor could clean up
        return status;
    }
    *worker_p = worker;
    return UCS_OK;
}

Worker::~Worker() {
    if (away_id_ != UCS_CALLBACKQ_ID_NULL)
        ucs_callbackq_remove_safe(&progress_q, away_id_);
    ucs_callbackq_cleanup(&progress_q);
}

// ---- Interfaces

void Worker::add(BaseIface& iface) {
    ++iface_count_;
    iface.next_in_worker = ifaces_;
    ifaces_ = &iface;
}

void Worker::remove(BaseIface& iface) {
    --iface_count_;
    BaseIface** place = &ifaces_;
    while (*place != &iface)
        place = &(*place)->next_in_worker;
    *place = iface.next_in_worker;
    choose_counting();
}

/// One that sees its peers if there is one.
void Worker::choose_counting() {
    counting_ = nullptr;
    if (!is_polite_)
        return;
    for (BaseIface* iface = ifaces_; iface != nullptr; iface = iface->next_in_worker)
        if (iface->is_progressed() && (counting_ == nullptr || iface->sees_peers()))
            counting_ = iface;
}

void Worker::set_polite(bool is_polite) {
    is_polite_ = is_polite;
    choose_counting();
}

// ---- Looks

void Worker::look() {
    using Peers = Politeness::Peers;
    const std::uint64_t now = ucs::clock_now_ns();
    std::uint64_t moved = 0;
    for (const BaseIface* iface = ifaces_; iface != nullptr; iface = iface->next_in_worker)
        moved += iface->moved();
    if (moved != moved_) {
        moved_ = moved;
        politeness_.restart(now);
        return;
    }
    bool runs = false, stands = false, is_unknown = false;
    for (BaseIface* iface = ifaces_; iface != nullptr; iface = iface->next_in_worker) {
        const Peers peers = iface->look_at_peers();
        runs |= peers == Peers::kRun;
        stands |= peers == Peers::kStand;
        is_unknown |= peers == Peers::kUnknown;
    }
    const Peers peers = stands       ? Peers::kStand
                        : runs       ? Peers::kRun
                        : is_unknown ? Peers::kUnknown
                                     : Peers::kNone;
    const Politeness::Act act = politeness_.decide(peers, now);
    if (act != Politeness::Act::kSpin)
        give_away(act);
}

/// An interface is inside its progress: what is done here is done behind that, in the next call.
void Worker::give_away(Politeness::Act act) {
    const bool naps = act == Politeness::Act::kNap;
    if (away_ != nullptr)
        return away_(away_arg_, naps ? TAGWIRE_UCT_AWAY_NAP : TAGWIRE_UCT_AWAY_YIELD);
    // A program that progresses the worker with a lock of its own has it now.
    if (naps && mode_ != UCS_THREAD_MODE_SINGLE)
        return;
    next_act_ = act;
    if (away_id_ == UCS_CALLBACKQ_ID_NULL)
        away_id_ =
            ucs_callbackq_add_safe(&progress_q, &Worker::go_away, this, UCS_CALLBACKQ_FLAG_ONESHOT);
}

unsigned Worker::go_away(void* arg) {
    Worker& self = *static_cast<Worker*>(arg);
    self.away_id_ = UCS_CALLBACKQ_ID_NULL;
    const bool naps = self.next_act_ == Politeness::Act::kNap;
    const std::uint64_t begin = ucs::clock_now_ns();
    if (!naps)
        ::sched_yield();
    if (!naps || self.nap()) {
        self.was_away(naps ? TAGWIRE_UCT_AWAY_NAP : TAGWIRE_UCT_AWAY_YIELD, begin,
                      ucs::clock_now_ns());
    }
    return 0;
}

void Worker::was_away(tagwire_uct_away_t how, std::uint64_t begin, std::uint64_t end) {
    if (how == TAGWIRE_UCT_AWAY_NAP)
        politeness_.napped(begin, end);
    else
        politeness_.yielded(begin, end);
}

/// False: something is to be done, or an interface cannot be slept on.
bool Worker::nap() {
    constexpr std::size_t kMax = 16;
    std::array<pollfd, kMax> polled{};
    std::size_t count = 0;
    for (BaseIface* iface = ifaces_; iface != nullptr; iface = iface->next_in_worker) {
        if (!iface->is_progressed())
            continue;
        if (count == kMax || uct_iface_event_fd_get(iface, &polled[count].fd) != UCS_OK ||
            uct_iface_event_arm(iface, UCT_EVENT_SEND_COMP | UCT_EVENT_RECV) != UCS_OK)
            return false;
        polled[count++].events = POLLIN;
    }
    const timespec time = ucs::timespec_of(Politeness::kNapNs);
    ::ppoll(polled.data(), count, &time, nullptr);
    return true;
}

}  // namespace tagwire::uct
