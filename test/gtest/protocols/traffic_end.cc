// SPDX-License-Identifier: BSD-3-Clause
// The end of a run: everything is received, and nothing is outstanding.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "protocols/traffic.hpp"

namespace tagwire::test {

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr auto kTrafficPatience = std::chrono::seconds(300);  // then it hangs
#else
constexpr auto kTrafficPatience = std::chrono::seconds(90);
#endif
constexpr int kTrafficRoundsMax = 30'000'000;
constexpr int kTrafficRoundsPerLook = 64;
constexpr int kTrafficRoundsOfNothing = 300;

}  // namespace

/// A thread that hangs in the library cannot be joined: the program ends.
void Traffic::wait_for_threads(const char* what, const std::function<bool()>& is_over) {
    const auto end = std::chrono::steady_clock::now() + kTrafficPatience;
    while (!is_over() && !has_failed_) {
        if (std::chrono::steady_clock::now() > end) {
            std::fprintf(stderr, "seed %llu: it does not come about that %s\n%s%s",
                         static_cast<unsigned long long>(seed_), what, wrong_.c_str(),
                         (history() + missing()).c_str());
            describe_workers();
            std::abort();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

void Traffic::describe_workers() {
    for (const TrafficWorker& worker : workers_) {
        const auto print = [](void*, const char* key, const char* value) {
            std::fprintf(stderr, "  %s: %s\n", key, value);
        };
        if (worker.worker != nullptr)
            tw_worker_describe(worker.worker.get(), print, nullptr);
    }
}

// ---- With all threads

/// Until another thread says that all is received. One thread looks itself.
void Traffic::settle(TrafficThread& self) {
    if (is_alone()) {
        return progress_until("everything is received", [&] {
            for (const unsigned worker : living()) {
                receive_the_rest(self, worker);
                am_.take_all(self, worker);
            }
            claim_the_rest(self);
            return is_everything_received();
        });
    }
    while (!may_end_ && !has_failed_) {
        if (self.mortal) {
            std::this_thread::yield();
            continue;
        }
        for (unsigned worker = 0; worker < options_.workers; ++worker) {
            if (is_settling_ && worker % options_.threads == self.number % options_.workers)
                receive_the_rest(self, worker);
            if (is_settling_)
                am_.take_all(self, worker);
            work(self, worker);
        }
        if (is_settling_)
            claim_the_rest(self);
    }
    t_self = nullptr;
}

/// One receive of anything in either name space.
void Traffic::receive_the_rest(TrafficThread& self, unsigned worker) {
    for (const bool is_tagged : {false, true}) {
        const auto is_it = [&](const TrafficOp* op) {
            return op->worker == worker && op->is_tagged == is_tagged && !op->is_over();
        };
        if (std::ranges::any_of(self.rest, is_it))
            continue;
        std::erase_if(self.rest, [](const TrafficOp* op) { return op->is_over(); });
        TrafficOp& op = new_op(self, Kind::kReceive, worker);
        op.is_tagged = is_tagged;
        draw_report(self, op);
        op.mask = is_tagged ? 0 : ~std::uint64_t{0};
        op.length = options_.bytes_max;
        self.rest.push_back(&op);
        post_receive(self, op);
    }
}

void Traffic::claim_the_rest(TrafficThread& self) {
    for (std::size_t left = self.claims.size(); left > 0 && !self.claims.empty(); --left)
        claim(self, self.claims.front().found->worker);
    self.has_claims = !self.claims.empty();
}

/// Sends have ended, and all messages were received. Only while threads begin no more sends. Where
/// some may be lost all that must come are told by more than their envelope.
bool Traffic::is_everything_received() {
    std::vector<std::uint64_t> missing(ways_.size());
    for (TrafficThread& thread : threads_) {
        if (thread.has_claims)
            return false;
        for (std::size_t i = 0; i < thread.sent; ++i) {
            const TrafficOp& op = thread.sends[i];
            // SYNC traffic_op_end: pairs with the release in ended().
            const bool is_over = op.ends.load(std::memory_order_acquire) > 0;
            if (!is_over && op.report != Report::kNobody && !workers_[op.worker].is_dead)
                return false;
            const bool is_lost = is_over && op.status != TW_OK;
            if (op.received == 0 && !is_lost && !is_excused(op))
                ++missing[op.worker * workers_max() + op.peer];
        }
    }
    for (std::size_t i = 0; i < ways_.size(); ++i)
        if (missing[i] > (ways_[i].broken > 0 ? 0 : ways_[i].unknown.load()))
            return false;
    return true;
}

/// The messages that is_everything_received() waits for, and closes and flushes between the two.
std::string Traffic::missing() {
    std::string all;
    for_each_op([&](const TrafficOp& op) {
        if (op.kind != Kind::kSend || op.received > 0 || op.is_refused ||
            op.status == TW_ERR_CANCELED || is_excused(op))
            return;
        all += "missing: " + text(op) + ", broken " +
               std::to_string(way(op.worker, op.peer).broken) + "\n";
        for_each_op([&](const TrafficOp& other) {
            const bool is_between = (other.worker == op.worker && other.peer == op.peer) ||
                                    (other.worker == op.peer && other.peer == op.worker);
            const bool is_close = other.kind == Kind::kClose || other.kind == Kind::kFlush;
            if (is_between && (is_close || other.ep == op.ep))
                all += "  beside " + text(other) + "\n";
        });
    });
    return all;
}

// ---- With one thread

/// `is_over`, which may take long, is not asked after each round.
void Traffic::progress_until(const char* what, const std::function<bool()>& is_over) {
    const auto end = std::chrono::steady_clock::now() + kTrafficPatience;
    for (int round = 0; !has_failed_; ++round) {
        const bool is_look = round % kTrafficRoundsPerLook == 0;
        if (is_look && is_over())
            return;
        for (const unsigned worker : living()) {
            work(main_, worker);
            for (TrafficThread& thread : threads_)
                if (!thread.mortal)
                    test(thread, worker);
        }
        const bool is_late = is_look && !is_alone() && std::chrono::steady_clock::now() > end;
        if (is_late || round == kTrafficRoundsMax) {
            describe_workers();
            wrong(std::string("it does not come about that ") + what + "\n" + missing());
        }
    }
}

/// Endpoints of the living, each until `is_done`, which may be tried again; then until all of these
/// operations have ended.
void Traffic::for_each_way(const char* what,
                           const std::function<bool(unsigned, unsigned)>& is_done) {
    std::vector<std::pair<unsigned, unsigned>> left;
    for (const unsigned from : living())
        for (unsigned to = 0; to < workers_.size(); ++to)
            left.emplace_back(from, to);
    progress_until(what, [&] {
        std::erase_if(left, [&](const auto& each) {
            return way(each.first, each.second).ep == nullptr || is_done(each.first, each.second);
        });
        // A close or a flush waits for the match of messages that ask for it.
        drop_the_rest();
        const auto is_over = [](const TrafficOp& op) { return op.is_over(); };
        return left.empty() && std::ranges::all_of(main_.others, is_over);
    });
}

/// Receives that have found nothing are left: they end by a cancel.
void Traffic::cancel_the_rest() {
    for_each_op([&](TrafficOp& op) {
        const bool is_receive = op.kind == Kind::kReceive || op.kind == Kind::kMany;
        if (!is_receive || op.is_over() || op.request == nullptr || workers_[op.worker].is_dead)
            return;
        Tick never = kNever;
        op.cancelled.compare_exchange_strong(never, tick());
        if (tw_request_cancel(op.request) != TW_OK)
            wrong("a cancel is refused", &op);
    });
}

/// Messages that nobody has received: only broken connections leave such ones. Those that were
/// found or kept are received.
void Traffic::drop_the_rest() {
    claim_the_rest(main_);
    for (const unsigned worker : living()) {
        am_.take_all(main_, worker);
        const tw_worker_h handle = workers_[worker].worker.get();
        int left = 0;
        tw_message_h message = nullptr;
        while (tw_tag_probe(handle, 0, UINT64_MAX, nullptr, nullptr, &message) == TW_OK ||
               tw_msg_probe(handle, nullptr, nullptr, &message) == TW_OK) {
            drop(handle, message);
            ++left;
        }
        if (left > 0 && !is_anything_broken(worker))
            wrong(std::to_string(left) + " messages are left at worker " + std::to_string(worker));
    }
}

/// Half of the runs of one thread end with the workers instead of closes.
void Traffic::finish() {
    t_self = &main_;
    const auto flushes = [&](unsigned from, unsigned to) {
        return flush_way(main_, from, to, TW_FLUSH_DELIVERED) != TW_ERR_NO_RESOURCE;
    };
    const auto closes = [&](unsigned from, unsigned to) {
        return close_in_order(main_, from, to, draw_level(main_));
    };
    for_each_way("every flush ends", flushes);
    cancel_the_rest();
    progress_until("every operation ends", [&] {
        drop_the_rest();
        bool is_over = true;
        for_each_op([&](const TrafficOp& op) {
            is_over &= op.is_over() || op.report == Report::kNobody || workers_[op.worker].is_dead;
        });
        return is_over;
    });
    progress_until("every active message is handled, and every notice has come",
                   [&] { return am_.is_quiet() && memory_.is_quiet(); });
    if (!is_alone() || chance(main_, 2))
        for_each_way("every endpoint closes", closes);
    for (int round = 0; round < kTrafficRoundsOfNothing; ++round)
        for (const unsigned worker : living())
            work(main_, worker);
    drop_the_rest();
    t_self = nullptr;
}

}  // namespace tagwire::test
