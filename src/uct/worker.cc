// SPDX-License-Identifier: BSD-3-Clause
#include "uct/worker.hpp"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "ucs/config/core_options.hpp"
#include "ucs/datastruct/callbackq.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/sys/futex.hpp"
#include "ucs/time/clock.hpp"
#include "uct/base_iface.hpp"

namespace tagwire::uct {

namespace {

ucs_status_t read_mode(bool* is_polite_p) {
    ucs::ProgressOptions options{};
    const ucs_status_t status = ucs::config_fill(ucs::progress_option_table(), &options);
    *is_polite_p = static_cast<ucs::ProgressMode>(options.mode) == ucs::ProgressMode::kPolite;
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
    if (is_polite)
        worker->mate_.enter(ucs::clock_now_ns());
    *worker_p = worker;
    return UCS_OK;
}

Worker::~Worker() {
    mate_.leave();
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
    std::uint64_t latency_ns = 0;
    for (BaseIface* iface = ifaces_; iface != nullptr; iface = iface->next_in_worker) {
        if (!iface->is_progressed())
            continue;
        if (counting_ == nullptr || iface->sees_peers())
            counting_ = iface;
        if (!iface->sees_peers())
            latency_ns = std::max(latency_ns, iface->latency_ns());
    }
    politeness_.set_latency(latency_ns);
}

void Worker::set_polite(bool is_polite) {
    is_polite_ = is_polite;
    choose_counting();
    if (is_polite)
        mate_.enter(ucs::clock_now_ns());
    else
        mate_.leave();
}

void Worker::describe(const DescribeSink& sink) const {
    sink.text("mode", is_polite_ ? "polite" : "spin");
    if (is_polite_)
        politeness_.describe(sink, ucs::clock_now_ns());
}

template <class Visit>
void Worker::for_each_watch(const Visit& visit) {
    for (BaseIface* iface = ifaces_; iface != nullptr; iface = iface->next_in_worker)
        if (PeerWatch* const watch = iface->peer_watch())
            visit(*watch);
}

// ---- Looks

void Worker::look() {
    const std::uint64_t now = ucs::clock_now_ns();
    const Whereabouts here = Whereabouts::here(now);
    tell_wait(here, false);
    const bool wants_look = politeness_.wants_look(now);
    if (wants_look && has_moved())
        return politeness_.restart(now);
    std::array<uct_ep_h, TAGWIRE_UCT_AWAITED_MAX> awaited;
    const unsigned count = awaited_cb_ == nullptr ? 0 : awaited_cb_(awaited_arg_, awaited.data());
    const Politeness::Peers peers = count > 0    ? look_at({awaited.data(), count}, here)
                                    : wants_look ? look_at_all(here)
                                                 : Politeness::Peers::kNotSeen;
    const Politeness::Act act = politeness_.decide(peers, now);
    if (politeness_.naps(now) != expects_naps_) {
        expects_naps_ = !expects_naps_;
        for_each_watch([this](PeerWatch& watch) { watch.expect_naps(expects_naps_); });
    }
    if (act == Politeness::Act::kSpin || (act == Politeness::Act::kNap && mate_.has_others(now)))
        return;
    tell_wait(here, true);
    give_away(act);
}

void Worker::tell_wait(const Whereabouts& here, bool is_away) {
    for_each_watch([&](PeerWatch& watch) { watch.tell_wait(here, is_away); });
}

/// Something has come or ended since it was asked last.
bool Worker::has_moved() {
    std::uint64_t moved = 0;
    for (BaseIface* iface = ifaces_; iface != nullptr; iface = iface->next_in_worker)
        moved += iface->moved();
    return std::exchange(moved_, moved) != moved;
}

Politeness::Peers Worker::look_at(std::span<const uct_ep_h> eps, const Whereabouts& here) {
    using Peers = Politeness::Peers;
    Peers all = Peers::kNone;
    for (const uct_ep_h ep : eps) {
        if (PeerWatch* const watch = iface_of(ep->iface).peer_watch())
            all = std::max(all, watch->look_at_peer(ep, here));
        else
            all = std::max(all, Peers::kUnknown);
    }
    return all;
}

Politeness::Peers Worker::look_at_all(const Whereabouts& here) {
    using Peers = Politeness::Peers;
    Peers all = Peers::kNone;
    for (BaseIface* iface = ifaces_; iface != nullptr; iface = iface->next_in_worker) {
        if (!iface->is_progressed())
            continue;
        PeerWatch* const watch = iface->peer_watch();
        all = std::max(all, watch != nullptr ? watch->look_at_peers(here) : Peers::kUnknown);
    }
    return all;
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

/// No nap where what the program waits for may wake nobody: an interface that it progresses itself,
/// a callback that it has registered. An interface whose callback runs cannot be armed.
bool Worker::may_nap() const {
    for (const BaseIface* iface = ifaces_; iface != nullptr; iface = iface->next_in_worker)
        if (!iface->is_progressed())
            return false;
    return ucs::callback_count(progress_q) == iface_count_;
}

unsigned Worker::go_away(void* arg) {
    Worker& self = *static_cast<Worker*>(arg);
    self.away_id_ = UCS_CALLBACKQ_ID_NULL;
    if (!self.is_polite_ || self.away_ != nullptr)
        return 0;  // from now on
    if (self.next_act_ != Politeness::Act::kNap) {
        const std::uint64_t begin = ucs::clock_now_ns();
        ::sched_yield();
        self.was_away(TAGWIRE_UCT_AWAY_YIELD, begin, ucs::clock_now_ns());
        return 0;
    }
    if (self.has_moved()) {  // another interface has brought something since the look
        self.politeness_.restart(ucs::clock_now_ns());
        return 0;
    }
    tagwire_uct_nap_t nap{};
    if (!self.may_nap() || self.prepare_nap(&nap) != UCS_OK)
        return 0;
    const std::uint64_t begin = ucs::clock_now_ns();
    sleep_on(nap, nap.max_ns);
    self.was_away(TAGWIRE_UCT_AWAY_NAP, begin, ucs::clock_now_ns());
    return 0;
}

void Worker::was_away(tagwire_uct_away_t how, std::uint64_t begin, std::uint64_t end) {
    if (how == TAGWIRE_UCT_AWAY_YIELD)
        return politeness_.yielded(begin, end, had_peer_processor(begin, end));
    politeness_.napped(begin, end);
    if (napping_ > 0 && --napping_ == 0)
        end_naps();
}

std::size_t Worker::count_peers() {
    std::size_t peers = 0;
    for_each_watch([&](const PeerWatch& watch) { peers += watch.peers(); });
    return peers;
}

/// Only a long turn needs an answer.
bool Worker::had_peer_processor(std::uint64_t begin, std::uint64_t end) {
    if (!politeness_.is_long_turn(end - begin))
        return false;
    politeness_.set_peers(count_peers());
    if (!politeness_.is_long_turn(end - begin))
        return false;
    // Whoever had it at the end: a stranger is there for longer.
    constexpr std::uint64_t kLatelyNs = 500'000;
    begin = std::max(begin, end - kLatelyNs);
    const Whereabouts here = Whereabouts::here(end);
    bool had = false;
    for_each_watch([&](PeerWatch& watch) { had = had || watch.had_processor(here, begin); });
    return had;
}

void Worker::wake_naps() {
    for_each_watch([](PeerWatch& watch) { watch.wake_nap(); });
}

void Worker::end_naps() {
    for_each_watch([](PeerWatch& watch) { watch.end_nap(); });
}

static_assert(Politeness::nap_ns(1) == TAGWIRE_UCT_NAP_NS);

// By a word if one interface alone is progressed and has one, which costs the least; else by the
// descriptors of all.
ucs_status_t Worker::prepare_nap(tagwire_uct_nap_t* nap) {
    nap->word = nullptr;
    nap->fd_count = 0;
    nap->max_ns = Politeness::nap_ns(count_peers());
    unsigned count = 0;
    BaseIface* only = nullptr;
    for (BaseIface* iface = ifaces_; iface != nullptr; iface = iface->next_in_worker) {
        if (!iface->is_progressed())
            continue;
        only = iface;
        ++count;
    }
    PeerWatch* const watch = count == 1 ? only->peer_watch() : nullptr;
    ucs_status_t status = watch != nullptr ? watch->prepare_nap(nap) : UCS_ERR_UNSUPPORTED;
    if (status == UCS_ERR_UNSUPPORTED)
        status = arm_for_nap(nap);
    napping_ += status == UCS_OK ? 1 : 0;
    return status;
}

ucs_status_t Worker::arm_for_nap(tagwire_uct_nap_t* nap) {
    for (BaseIface* iface = ifaces_; iface != nullptr; iface = iface->next_in_worker) {
        if (!iface->is_progressed())
            continue;
        if (nap->fd_count == TAGWIRE_UCT_NAP_FDS_MAX)
            return UCS_ERR_UNSUPPORTED;
        ucs_status_t status = uct_iface_event_fd_get(iface, &nap->fds[nap->fd_count]);
        if (status == UCS_OK)
            status = uct_iface_event_arm(iface, UCT_EVENT_SEND_COMP | UCT_EVENT_RECV);
        if (status != UCS_OK)
            return status;
        ++nap->fd_count;
    }
    return nap->fd_count > 0 ? UCS_OK : UCS_ERR_UNSUPPORTED;
}

void sleep_on(const tagwire_uct_nap_t& nap, std::uint64_t max_ns) {
    if (nap.word != nullptr) {
        auto& word = *static_cast<std::atomic<std::uint32_t>*>(nap.word);
        return ucs::sleep_shared(word, nap.value, max_ns);
    }
    std::array<pollfd, TAGWIRE_UCT_NAP_FDS_MAX> polled{};
    for (unsigned i = 0; i < nap.fd_count; ++i)
        polled[i] = {nap.fds[i], POLLIN, 0};
    const timespec time = ucs::timespec_of(max_ns);
    ::ppoll(polled.data(), nap.fd_count, &time, nullptr);
}

}  // namespace tagwire::uct
