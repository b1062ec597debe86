// SPDX-License-Identifier: BSD-3-Clause
// Polite progress of a worker: UCT says when (tagwire_uct_worker_set_away_handler()), and the
// thread gives its processor away where it has no lock: behind a call of a worker that threads
// share, else at the beginning of the next one.
#include <poll.h>
#include <sched.h>
#include <uct/api/tagwire_uct.h>

#include "protocols/worker/tx_contexts.hpp"
#include "protocols/worker/worker.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

/// A transmit context has no say: messages that it brings are no reason for its worker to spin, and
/// that one looks at the same peers.
void Worker::be_polite() {
    if (own_tx != nullptr) {
        tagwire_uct_worker_set_polite(uct_, 0);
        return;
    }
    const auto wish = [](void* arg, tagwire_uct_away_t how) {
        Worker& self = *static_cast<Worker*>(arg);
        if (self.tx_contexts_ != nullptr) {
            const std::uint64_t ends = self.tx_contexts_->ends();
            if (std::exchange(self.ends_of_contexts_, ends) != ends)
                return;
        }
        self.attention_.ask_away(how == TAGWIRE_UCT_AWAY_NAP);
    };
    tagwire_uct_worker_set_away_handler(uct_, wish, this);
}

[[gnu::noinline]] unsigned Worker::progress_alone() {
    if (attention_.is_away_wanted() && !is_in_progress())
        go_away(take_away());
    return attention_.is_needed() ? progress_slowly() : advance();
}

Worker::Away Worker::take_away() {
    if (!attention_.take_away())
        return Away::kYield;
    return arm_nap() ? Away::kNap : Away::kNo;
}

bool Worker::arm_nap() {
    if (cannot_nap_ || is_in_progress())
        return false;
    if (nap_fd_ < 0 && waiting_.event_fd(&nap_fd_) != UCS_OK) {
        cannot_nap_ = true;
        return false;
    }
    return waiting_.arm() == UCS_OK;
}

void Worker::go_away(Away how) {
    if (how == Away::kNo)
        return;
    const std::uint64_t begin = ucs::clock_now_ns();
    if (how == Away::kYield) {
        ::sched_yield();
    } else {
        pollfd polled{nap_fd_, POLLIN, 0};
        const timespec time = ucs::timespec_of(TAGWIRE_UCT_NAP_NS);
        ::ppoll(&polled, 1, &time, nullptr);
    }
    const std::uint64_t end = ucs::clock_now_ns();
    if (is_multi)
        enter();
    note_away(how, begin, end);
    if (is_multi)
        leave();
}

void Worker::note_away(Away how, std::uint64_t begin, std::uint64_t end) {
    count(how == Away::kNap ? WorkerCounter::kNaps : WorkerCounter::kYields);
    count(WorkerCounter::kAwayNs, end - begin);
    tagwire_uct_worker_was_away(
        uct_, how == Away::kNap ? TAGWIRE_UCT_AWAY_NAP : TAGWIRE_UCT_AWAY_YIELD, begin, end);
}

}  // namespace tagwire::proto
