// SPDX-License-Identifier: BSD-3-Clause
// The C API: sleeping and waiting. Arguments are checked here.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <iterator>
#include <span>

#include "protocols/api/tw_data.h"
#include "protocols/api/tw_worker.h"
#include "protocols/request/refuse.hpp"
#include "protocols/worker/entry.hpp"
#include "protocols/worker/tx_contexts.hpp"
#include "protocols/worker/worker.hpp"
#include "ucs/sys/step_aside.hpp"
#include "ucs/time/clock.hpp"

using namespace tagwire::proto;

namespace {

/// The state that a wait looks at, with the lock.
struct Seen {
    unsigned moved = 0;            // by this thread's progress
    bool was_interrupted = false;  // by a signal handler
};

/// A wait of the calling thread, turn by turn.
class Wait {
  public:
    Wait(const char* call, Worker& worker, tw_wait_mode_t mode, std::uint64_t timeout_ns)
        : call_(call), worker_(worker), mode_(mode) {
        const std::uint64_t begin = tagwire::ucs::clock_now_ns();
        end_ns_ = begin + std::min(timeout_ns, UINT64_MAX - begin);
    }

    /// Progress is made in any case: a program may wait again and again for what it does not take.
    Wait& progressing_always() {
        always_progresses_ = true;
        return *this;
    }

    /// Other threads need not wake this one for anything else, where they can see that it is there:
    /// with a lock that all have.
    Wait& waking_for(const Wanted& wanted) {
        if (worker_.waiting().has_one_lock())
            wanted_ = wanted;
        return *this;
    }

    /// TW_OK: `is_over(Waiter&, const Seen&)`, which is called with the lock. TW_ERR_TIMED_OUT.
    template <class IsOver>
    tw_status_t run(const IsOver& is_over) {
        if (mode_ < TW_WAIT_SPIN || mode_ > TW_WAIT_SLEEP) {
            TW_LOG_ERROR("%s: mode %d is not a tw_wait_mode_t", call_, static_cast<int>(mode_));
            return TW_ERR_INVALID_PARAM;
        }
        for (;;) {
            if (TxContexts* contexts = worker_.tx_contexts()) {
                const tagwire::ucs::LogScope scope(worker_.context().log_id());
                sent_ = contexts->progress_contexts();
            }
            const tw_status_t status = turn(is_over);
            if (falls_asleep_)
                sleep();
            else if (away_.how != Politeness::Away::kNo)
                worker_.politeness().go_away(away_, left_ns());
            else
                worker_.lock.give_way();  // this thread comes back at once
            if (status != TW_INPROGRESS)
                return status;
        }
    }

  private:
    /// TW_INPROGRESS: another follows, behind a sleep if it falls asleep.
    template <class IsOver>
    tw_status_t turn(const IsOver& is_over) {
        Wakes wakes;  // written without the lock
        const Entry entry(worker_);
        const TxContexts* contexts = worker_.tx_contexts();
        if (worker_.is_in_progress_here() ||
            (contexts != nullptr && contexts->is_in_progress_here())) {
            TW_LOG_ERROR("%s: called from a callback, where waiting is not allowed", call_);
            return TW_ERR_INVALID_PARAM;
        }
        if (mode_ == TW_WAIT_SLEEP) {
            int fd = -1;
            const ucs_status_t opened = worker_.waiting().event_fd(&fd);
            if (opened != UCS_OK)
                return tw(opened);
        }
        falls_asleep_ = false;
        away_.how = Politeness::Away::kNo;
        Waiter& me = worker_.waiting().wake_up(std::exchange(told_of_, 0));
        const tw_status_t status = look(me, is_over);
        me.waits = status == TW_INPROGRESS;
        if (worker_.is_watched())
            worker_.waiting().settle(false, wakes);
        return status;
    }

    template <class IsOver>
    tw_status_t look(Waiter& me, const IsOver& is_over) {
        Seen seen{.moved = std::exchange(sent_, 0),
                  .was_interrupted = std::exchange(was_interrupted_, false)};
        const bool was_over = is_over(me, seen);
        if (was_over && !always_progresses_)
            return TW_OK;
        if (!worker_.is_in_progress()) {
            seen.moved += worker_.waiting().progress_for(me, mode_ == TW_WAIT_SLEEP);
            if (was_over || is_over(me, seen))
                return TW_OK;
        } else if (was_over) {
            return TW_OK;
        }
        if (mode_ == TW_WAIT_SLEEP)
            worker_.politeness().take_wish();  // it sleeps in any case
        else if (worker_.attention().is_away_wanted())
            worker_.politeness().take(seen.moved, &away_);
        if (end_ns_ != UINT64_MAX && tagwire::ucs::clock_now_ns() >= end_ns_)
            return TW_ERR_TIMED_OUT;
        if (mode_ == TW_WAIT_YIELD && away_.how == Politeness::Away::kNo)
            worker_.politeness().choose(&away_);
        if (mode_ != TW_WAIT_SLEEP)
            return TW_INPROGRESS;
        const ucs_status_t status = worker_.waiting().fall_asleep(me, wanted_, &on_);
        if (status != UCS_OK)
            return status == UCS_ERR_BUSY ? TW_INPROGRESS : tw(status);
        falls_asleep_ = true;
        fd_ = worker_.waiting().fd_of(on_);
        event_ = &me.event;
        return TW_INPROGRESS;
    }

    std::uint64_t left_ns() const {
        const std::uint64_t now = tagwire::ucs::clock_now_ns();
        return end_ns_ > now ? end_ns_ - now : 0;
    }

    void sleep() {
        pollfd polled[] = {{fd_, POLLIN, 0}, {event_->fd(), POLLIN, 0}};
        const bool is_beside = on_.ns_max != SleepsOn::kUnlimited;
        const bool is_limited = end_ns_ != UINT64_MAX || is_beside;
        int ready = 0;
        bool is_over = false;
        while (!is_over) {
            const std::uint64_t left = left_ns();
            const timespec time = tagwire::ucs::timespec_of(std::min(left, on_.ns_max));
            ready = ::ppoll(polled, std::size(polled), is_limited ? &time : nullptr, nullptr);
            is_over = ready != 0 || !is_beside || left <= on_.ns_max;
            if (!is_over && !worker_.waiting().sleeps_on(&on_)) {
                told_of_ = SleepsOn::kNotBeside;
                return;
            }
        }
        was_interrupted_ = ready < 0 && errno == EINTR;
        if (ready > 0 && polled[1].revents != 0)
            event_->take();
        if (ready > 0 && polled[0].revents != 0)
            told_of_ = is_beside ? SleepsOn::kNotBeside : on_.arming;
    }

    const char* const call_;
    Worker& worker_;
    const tw_wait_mode_t mode_;
    std::uint64_t end_ns_;
    Wanted wanted_;
    unsigned sent_ = 0;  // moved by this turn's progress of transmit contexts
    bool always_progresses_ = false;
    bool falls_asleep_ = false;
    Politeness::Leave away_;
    bool was_interrupted_ = false;
    SleepsOn on_;
    int fd_ = -1;                       // of on_
    std::uint64_t told_of_ = 0;         // of on_, if its descriptor has told of something
    const WakeEvent* event_ = nullptr;  // of this thread; open if it needs one
};

/// The worker of the program that a request is of.
Worker& front_of(const Request& request) {
    const TxContext* tx = request.worker->own_tx;
    return worker_of(tx == nullptr ? *request.worker : tx->front);
}

/// Asked with the lock of its front's worker, which is not that of a transmit context.
template <class Question>
bool is_true_of(const Request& request, const Question& question) {
    if (request.worker->own_tx == nullptr)
        return std::invoke(question, request);
    const BriefEntry entry(*request.worker);
    return std::invoke(question, request);
}

Worker* worker_of_first(std::span<const tw_request_h> requests) {
    const auto found =
        std::ranges::find_if(requests, [](auto handle) { return handle != nullptr; });
    return found == requests.end() ? nullptr : &front_of(request_of(*found));
}

/// All are of `worker` and are not told elsewhere: others may be the library's again already.
tw_status_t check_requests(const char* call, Worker& worker,
                           std::span<const tw_request_h> requests) {
    const Entry entry(worker);
    for (const tw_request_h handle : requests) {
        if (handle == nullptr)
            continue;
        const char* wrong = nullptr;
        if (&front_of(request_of(handle)) != &worker)
            wrong = "operations of more than one worker";
        else if (!is_true_of(request_of(handle), &Request::is_for_test))
            wrong = "an operation that completes to a callback or the completion queue";
        if (wrong != nullptr) {
            TW_LOG_ERROR("%s: %s cannot be waited for", call, wrong);
            return TW_ERR_INVALID_PARAM;
        }
    }
    return TW_OK;
}

/// Waits until `is_over()`, which looks at these requests. TW_INPROGRESS: it is not.
template <class IsOver>
tw_status_t wait_for(const char* call, std::span<const tw_request_h> requests, tw_wait_mode_t mode,
                     std::uint64_t timeout_ns, const IsOver& is_over) {
    Worker* worker = worker_of_first(requests);
    if (worker == nullptr)
        return TW_ERR_NO_ELEM;
    tw_status_t status = check_requests(call, *worker, requests);
    if (status == TW_OK) {
        const Wanted wanted{[](void* arg) { return (*static_cast<const IsOver*>(arg))(); },
                            const_cast<IsOver*>(&is_over)};
        status =
            Wait(call, *worker, mode, timeout_ns).waking_for(wanted).run([&](Waiter&, const Seen&) {
                return is_over();
            });
    }
    return status == TW_ERR_TIMED_OUT ? TW_INPROGRESS : status;
}

bool has_ended(tw_request_h handle) {
    return handle != nullptr &&
           is_true_of(request_of(handle), [](const Request& one) { return one.has_ended; });
}

}  // namespace

extern "C" {

tw_status_t tw_worker_fd(tw_worker_h worker, int* fd_p) try {
    TW_REFUSE_NULL(worker);
    TW_REFUSE_NULL(fd_p);
    const Entry entry(worker_of(worker));
    return tw(worker_of(worker).waiting().event_fd_of_program(fd_p));
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_worker_arm(tw_worker_h worker) try {
    TW_REFUSE_NULL(worker);
    const Entry entry(worker_of(worker));
    return tw(worker_of(worker).waiting().arm());
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_worker_was_away(tw_worker_h worker, tw_away_t how, uint64_t begin_ns,
                               uint64_t end_ns) {
    TW_REFUSE_NULL(worker);
    if (how < TW_AWAY_YIELD || how > TW_AWAY_NAP)
        TW_REFUSE(TW_ERR_INVALID_PARAM, "how %d is not a tw_away_t", static_cast<int>(how));
    if (end_ns < begin_ns)
        TW_REFUSE(TW_ERR_INVALID_PARAM, "end_ns is before begin_ns");
    if (end_ns > tagwire::ucs::clock_now_ns())
        TW_REFUSE(TW_ERR_INVALID_PARAM, "end_ns is in the future; it is of CLOCK_MONOTONIC");
    const Entry entry(worker_of(worker));
    worker_of(worker).politeness().note(
        how == TW_AWAY_NAP ? Politeness::Away::kNap : Politeness::Away::kYield, begin_ns, end_ns);
    return TW_OK;
}

tw_status_t tw_worker_signal(tw_worker_h worker) {
    TW_REFUSE_NULL(worker);
    worker_of(worker).waiting().signal();
    return TW_OK;
}

tw_status_t tw_worker_wait(tw_worker_h handle, tw_wait_mode_t mode, uint64_t timeout_ns) try {
    TW_REFUSE_NULL(handle);
    Worker& worker = worker_of(handle);
    Wait wait(__func__, worker, mode, timeout_ns);
    return wait.progressing_always().run([&](Waiter& me, const Seen& seen) {
        const TxContexts* contexts = worker.tx_contexts();
        const std::uint64_t signals = worker.waiting().signals();
        const std::uint64_t ends = worker.ends() + (contexts == nullptr ? 0 : contexts->ends());
        const bool has_completions = worker.requests().has_completions() ||
                                     (contexts != nullptr && contexts->has_completions());
        if (seen.moved == 0 && !seen.was_interrupted && !has_completions && ends == me.seen_ends &&
            signals == me.seen_signals)
            return false;
        me.seen_ends = ends;
        me.seen_signals = signals;
        return true;
    });
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

void tw_yield() {
    tagwire::ucs::step_aside();
}

tw_status_t tw_request_wait(tw_request_h request, tw_wait_mode_t mode, uint64_t timeout_ns,
                            tw_completion_t* done) try {
    TW_REFUSE_NULL(request);
    const tw_status_t status =
        wait_for(__func__, {&request, 1}, mode, timeout_ns, [&] { return has_ended(request); });
    return status == TW_OK ? tw_request_test(request, done) : status;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_wait_any(const tw_request_h* handles, size_t count, tw_wait_mode_t mode,
                        uint64_t timeout_ns, size_t* index_p) try {
    if (count > 0)
        TW_REFUSE_NULL(handles);
    TW_REFUSE_NULL(index_p);
    const std::span requests(handles, count);
    auto found = requests.end();
    const tw_status_t status = wait_for(__func__, requests, mode, timeout_ns, [&] {
        found = std::ranges::find_if(requests, has_ended);
        return found != requests.end();
    });
    if (status == TW_OK)
        *index_p = static_cast<size_t>(found - requests.begin());
    return status;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_wait_all(const tw_request_h* handles, size_t count, tw_wait_mode_t mode,
                        uint64_t timeout_ns) try {
    if (count > 0)
        TW_REFUSE_NULL(handles);
    const std::span requests(handles, count);
    size_t ended = 0;  // those before it
    const tw_status_t status = wait_for(__func__, requests, mode, timeout_ns, [&] {
        while (ended < count && (handles[ended] == nullptr || has_ended(handles[ended])))
            ++ended;
        return ended == count;
    });
    return status == TW_ERR_NO_ELEM ? TW_OK : status;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

}  // extern "C"
