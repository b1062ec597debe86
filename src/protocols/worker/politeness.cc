// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/politeness.hpp"

#include <sched.h>

#include <algorithm>
#include <new>
#include <utility>

#include "ucs/config/core_options.hpp"
#include "ucs/sys/step_aside.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

/// A transmit context has no say: messages that it brings are no reason for its worker to spin, and
/// that one looks at the same peers.
void Politeness::begin(uct_worker_h uct, const tw_worker_params_t& params,
                       const GivenOptions& given) {
    uct_ = uct;
    word_.worker = uct;
    told_ = params.away;
    told_arg_ = params.away_arg;
    if (to_.is_context) {
        tagwire_uct_worker_set_polite(uct_, 0);
        return;
    }
    ucs::ProgressOptions options{};
    if (params.progress != TW_PROGRESS_DEFAULT) {
        tagwire_uct_worker_set_polite(uct_, params.progress == TW_PROGRESS_POLITE ? 1 : 0);
    } else if (!given.value_of("PROGRESS").empty() &&
               given.apply(ucs::progress_option_table(), &options) == UCS_OK) {
        const auto mode = static_cast<ucs::ProgressMode>(options.mode);
        tagwire_uct_worker_set_polite(uct_, mode == ucs::ProgressMode::kPolite ? 1 : 0);
    }
    const auto wish = [](void* arg, tagwire_uct_away_t how) {
        Politeness& self = *static_cast<Politeness*>(arg);
        if (self.has_contexts()) {
            const std::uint64_t ends = self.to_.calls.ends_of_contexts(self.to_.owner);
            if (std::exchange(self.ends_of_contexts_, ends) != ends)
                return;
        }
        if (self.told_ != nullptr)
            return self.told_(self.told_arg_,
                              how == TAGWIRE_UCT_AWAY_NAP ? TW_AWAY_NAP : TW_AWAY_YIELD);
        self.to_.attention.ask_away(how == TAGWIRE_UCT_AWAY_NAP);
    };
    tagwire_uct_worker_set_away_handler(uct_, wish, this);
    const auto awaited = [](void* arg, uct_ep_h* eps) {
        const Politeness& self = *static_cast<Politeness*>(arg);
        // Threads that send by transmit contexts wait for others.
        return self.has_contexts()
                   ? 0
                   : self.to_.calls.awaited_lanes(self.to_.owner, {eps, TAGWIRE_UCT_AWAITED_MAX});
    };
    tagwire_uct_worker_set_awaited_handler(uct_, awaited, this);
}

void Politeness::go_away_if_wanted() {
    if (!to_.attention.is_away_wanted() || to_.attention.is_in_progress())
        return;
    Leave leave;
    take(0, &leave);
    go_away(leave);
}

Politeness::Away Politeness::take_wish() {
    Attention& attention = to_.attention;
    if (!attention.is_away_wanted())
        return Away::kNo;
    return attention.take_away() ? Away::kNap : Away::kYield;
}

void Politeness::take(unsigned found, Away wish, Leave* leave) {
    leave->is_own = false;
    if (found > 0 || to_.attention.is_in_progress())  // which a callback may call, in vain
        return;
    if (wish == Away::kYield || (wish == Away::kNap && arm_nap(leave)))
        leave->how = wish;
}

void Politeness::choose(Leave* leave) {
    leave->is_own = ucs::is_yield_short() || to_.attention.is_in_progress();
    if (leave->is_own) {
        leave->how = Away::kYield;
        to_.counters.add(WorkerCounter::kYields);
        to_.counters.add(WorkerCounter::kAwayNs, std::exchange(leave->took_ns, 0));
    } else if (arm_nap(leave)) {
        leave->how = Away::kNap;
    } else {
        ucs::note_nap();
    }
}

// Threads that progress transmit contexts have work that this worker does not see, so it naps on
// its descriptor, which theirs are in.
bool Politeness::arm_nap(Leave* leave) try {
    if (to_.attention.is_in_progress() || to_.calls.has_news(to_.owner))
        return false;
    tagwire_uct_nap_t& nap = leave->nap;
    if (!has_contexts()) {
        if (tagwire_uct_worker_prepare_nap(uct_, &nap) != UCS_OK)
            return false;
    } else {
        nap.word = nullptr;
        nap.fd_count = 1;
        nap.max_ns = TAGWIRE_UCT_NAP_NS;
        if (to_.calls.arm_nap(to_.owner, &nap.fds[0]) != UCS_OK)
            return false;
    }
    const bool has_room = nap.word == nullptr && nap.fd_count < TAGWIRE_UCT_NAP_FDS_MAX;
    leave->event = has_room ? to_.calls.event_for_nap(to_.owner) : nullptr;
    if (leave->event != nullptr)
        nap.fds[nap.fd_count++] = leave->event->fd();
    to_.calls.begin_nap(to_.owner, leave->event == nullptr ? &word_ : nullptr);
    return true;
} catch (const std::bad_alloc&) {
    return false;
}

void Politeness::go_away(Leave& leave, std::uint64_t nap_ns_max) {
    if (leave.how == Away::kNo)
        return;
    const std::uint64_t begin = ucs::clock_now_ns();
    if (leave.how == Away::kYield)
        ::sched_yield();
    else
        tagwire_uct_nap_sleep(&leave.nap, std::min(nap_ns_max, leave.nap.max_ns));
    const std::uint64_t end = ucs::clock_now_ns();
    if (leave.how == Away::kYield)
        ucs::note_yield(end - begin);
    else
        ucs::note_nap();
    if (leave.how == Away::kNap && leave.event != nullptr)
        leave.event->take();
    if (leave.is_own) {
        leave.took_ns = end - begin;
        return;
    }
    if (to_.is_multi)
        to_.calls.enter(to_.owner);
    if (leave.how == Away::kNap)
        to_.calls.end_nap(to_.owner);
    note(leave.how, begin, end);
    if (to_.is_multi)
        to_.calls.leave(to_.owner);
}

void Politeness::note(Away how, std::uint64_t begin, std::uint64_t end) {
    to_.counters.add(how == Away::kNap ? WorkerCounter::kNaps : WorkerCounter::kYields);
    to_.counters.add(WorkerCounter::kAwayNs, end - begin);
    tagwire_uct_worker_was_away(
        uct_, how == Away::kNap ? TAGWIRE_UCT_AWAY_NAP : TAGWIRE_UCT_AWAY_YIELD, begin, end);
}

}  // namespace tagwire::proto
