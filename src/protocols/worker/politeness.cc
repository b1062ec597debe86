// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/politeness.hpp"

#include <sched.h>

#include <algorithm>
#include <new>
#include <utility>

#include "protocols/worker/tx_contexts.hpp"
#include "protocols/worker/waiting.hpp"
#include "protocols/worker/worker_core.hpp"
#include "ucs/sys/step_aside.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

/// A transmit context has no say: messages that it brings are no reason for its worker to spin, and
/// that one looks at the same peers.
void Politeness::begin(uct_worker_h uct, const tw_worker_params_t& params) {
    uct_ = uct;
    word_.worker = uct;
    told_ = params.away;
    told_arg_ = params.away_arg;
    if (worker_.own_tx != nullptr) {
        tagwire_uct_worker_set_polite(uct_, 0);
        return;
    }
    if (params.progress != TW_PROGRESS_DEFAULT)
        tagwire_uct_worker_set_polite(uct_, params.progress == TW_PROGRESS_POLITE ? 1 : 0);
    const auto wish = [](void* arg, tagwire_uct_away_t how) {
        Politeness& self = *static_cast<Politeness*>(arg);
        if (const TxContexts* contexts = self.worker_.tx_contexts()) {
            const std::uint64_t ends = contexts->ends();
            if (std::exchange(self.ends_of_contexts_, ends) != ends)
                return;
        }
        if (self.told_ != nullptr)
            return self.told_(self.told_arg_,
                              how == TAGWIRE_UCT_AWAY_NAP ? TW_AWAY_NAP : TW_AWAY_YIELD);
        self.worker_.attention().ask_away(how == TAGWIRE_UCT_AWAY_NAP);
    };
    tagwire_uct_worker_set_away_handler(uct_, wish, this);
    const auto awaited = [](void* arg, uct_ep_h* eps) {
        WorkerCore& worker = static_cast<Politeness*>(arg)->worker_;
        // Threads that send by transmit contexts wait for others.
        return worker.tx_contexts() != nullptr
                   ? 0
                   : worker.awaited.lanes_of(worker, {eps, TAGWIRE_UCT_AWAITED_MAX});
    };
    tagwire_uct_worker_set_awaited_handler(uct_, awaited, this);
}

void Politeness::go_away_if_wanted() {
    if (!worker_.attention().is_away_wanted() || worker_.is_in_progress())
        return;
    Leave leave;
    take(0, &leave);
    go_away(leave);
}

Politeness::Away Politeness::take_wish() {
    Attention& attention = worker_.attention();
    if (!attention.is_away_wanted())
        return Away::kNo;
    return attention.take_away() ? Away::kNap : Away::kYield;
}

void Politeness::take(unsigned found, Away wish, Leave* leave) {
    leave->is_own = false;
    if (found > 0 || worker_.is_in_progress())  // which a callback may call, in vain
        return;
    if (wish == Away::kYield || (wish == Away::kNap && arm_nap(leave)))
        leave->how = wish;
}

void Politeness::choose(Leave* leave) {
    leave->is_own = ucs::is_yield_short() || worker_.is_in_progress();
    if (leave->is_own) {
        leave->how = Away::kYield;
        worker_.count(WorkerCounter::kYields);
        worker_.count(WorkerCounter::kAwayNs, std::exchange(leave->took_ns, 0));
    } else if (arm_nap(leave)) {
        leave->how = Away::kNap;
    } else {
        ucs::note_nap();
    }
}

// Threads that progress transmit contexts have work that this worker does not see, so it naps on
// its descriptor, which theirs are in.
bool Politeness::arm_nap(Leave* leave) try {
    if (worker_.is_in_progress() || waiting_.has_work() || waiting_.has_news_for_nap())
        return false;
    tagwire_uct_nap_t& nap = leave->nap;
    if (worker_.tx_contexts() == nullptr) {
        if (tagwire_uct_worker_prepare_nap(uct_, &nap) != UCS_OK)
            return false;
    } else {
        nap.word = nullptr;
        nap.fd_count = 1;
        nap.max_ns = TAGWIRE_UCT_NAP_NS;
        if (waiting_.arm_nap(&nap.fds[0]) != UCS_OK)
            return false;
    }
    const bool has_room = nap.word == nullptr && nap.fd_count < TAGWIRE_UCT_NAP_FDS_MAX;
    leave->event = has_room ? waiting_.event_for_nap() : nullptr;
    if (leave->event != nullptr)
        nap.fds[nap.fd_count++] = leave->event->fd();
    waiting_.begin_nap(leave->event == nullptr ? &word_ : nullptr);
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
    if (worker_.is_multi)
        worker_.enter();
    if (leave.how == Away::kNap)
        waiting_.end_nap();
    note(leave.how, begin, end);
    if (worker_.is_multi)
        worker_.leave();
}

void Politeness::note(Away how, std::uint64_t begin, std::uint64_t end) {
    worker_.count(how == Away::kNap ? WorkerCounter::kNaps : WorkerCounter::kYields);
    worker_.count(WorkerCounter::kAwayNs, end - begin);
    tagwire_uct_worker_was_away(
        uct_, how == Away::kNap ? TAGWIRE_UCT_AWAY_NAP : TAGWIRE_UCT_AWAY_YIELD, begin, end);
}

}  // namespace tagwire::proto
