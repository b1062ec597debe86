// SPDX-License-Identifier: BSD-3-Clause
// The end of a run: everything is received, nothing is outstanding, and the reference is asked.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "protocols/thread_traffic.hpp"

namespace tagwire::test {

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr auto kThreadPatience = std::chrono::seconds(300);  // then it hangs
#else
constexpr auto kThreadPatience = std::chrono::seconds(90);
#endif
constexpr int kThreadRoundsOfNothing = 300;

}  // namespace

/// A thread that hangs in the library cannot be joined: the program ends.
void ThreadTraffic::wait_for_threads(const char* what, const std::function<bool()>& is_over) {
    const auto end = std::chrono::steady_clock::now() + kThreadPatience;
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

void ThreadTraffic::describe_workers() {
    for (const ThreadWorker& worker : workers_) {
        const auto print = [](void*, const char* key, const char* value) {
            std::fprintf(stderr, "  %s: %s\n", key, value);
        };
        if (worker.worker != nullptr)
            tw_worker_describe(worker.worker.get(), print, nullptr);
    }
}

// ---- With all threads

void ThreadTraffic::settle(TrafficThread& self) {
    while (!may_end_ && !has_failed_) {
        if (self.mortal) {
            std::this_thread::yield();
            continue;
        }
        for (unsigned worker = 0; worker < options_.workers; ++worker) {
            if (is_settling_ && worker % options_.threads == self.number % options_.workers)
                receive_the_rest(self, worker);
            if (is_settling_ && options_.has_others)
                am_.take_all(self, worker);
            work(self, worker);
        }
        if (is_settling_)
            claim_the_rest(self);
    }
}

/// One receive of anything in either name space.
void ThreadTraffic::receive_the_rest(TrafficThread& self, unsigned worker) {
    for (const bool is_tagged : {false, true}) {
        const auto is_it = [&](const ThreadOp* op) {
            return op->worker == worker && op->is_tagged == is_tagged && !op->is_over();
        };
        if (std::ranges::any_of(self.rest, is_it))
            continue;
        std::erase_if(self.rest, [](const ThreadOp* op) { return op->is_over(); });
        ThreadOp& op = new_op(self, Kind::kReceive, worker);
        op.is_tagged = is_tagged;
        draw_report(self, op);
        op.mask = is_tagged ? 0 : ~std::uint64_t{0};
        op.length = options_.bytes_max;
        self.rest.push_back(&op);
        post_receive(self, op);
    }
}

void ThreadTraffic::claim_the_rest(TrafficThread& self) {
    for (std::size_t left = self.claims.size(); left > 0 && !self.claims.empty(); --left)
        claim(self, self.claims.front().found->worker);
    self.has_claims = !self.claims.empty();
}

/// Sends have ended, and all messages were received. Only while threads begin no more sends.
bool ThreadTraffic::is_everything_received() {
    std::vector<std::uint64_t> missing(workers_.size());
    for (TrafficThread& thread : threads_) {
        if (thread.has_claims)
            return false;
        for (std::size_t i = 0; i < thread.sent; ++i) {
            const ThreadOp& op = thread.sends[i];
            const bool is_of_the_dead = workers_[op.worker].is_dead;
            // SYNC thread_op_end: pairs with the release in ended().
            const bool is_over = op.ends.load(std::memory_order_acquire) > 0;
            if (!is_over && op.report != Report::kNobody && !is_of_the_dead)
                return false;
            const bool is_lost = is_over && op.status != TW_OK;
            if (op.received == 0 && !is_lost && !is_of_the_dead && !is_broken(*op.ep))
                ++missing[op.peer];
        }
    }
    for (std::size_t i = 0; i < workers_.size(); ++i)
        if (missing[i] > workers_[i].unknown && !workers_[i].is_dead)
            return false;
    return true;
}

/// The messages that is_everything_received() waits for, and closes and flushes between the two.
std::string ThreadTraffic::missing() {
    std::string all;
    for_each_op([&](const ThreadOp& op) {
        if (op.kind != Kind::kSend || workers_[op.worker].is_dead || workers_[op.peer].is_dead ||
            op.received > 0 || op.is_refused || is_broken(*op.ep) || op.status == TW_ERR_CANCELED)
            return;
        all += "missing: " + text(op) + ", broken " +
               std::to_string(way(op.worker, op.peer).broken) + "\n";
        for_each_op([&](const ThreadOp& other) {
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

void ThreadTraffic::progress_until(const char* what, const std::function<bool()>& is_over) {
    const auto end = std::chrono::steady_clock::now() + kThreadPatience;
    while (!is_over() && !has_failed_) {
        for (unsigned worker = 0; worker < options_.workers; ++worker) {
            work(main_, worker);
            for (TrafficThread& thread : threads_)
                if (!thread.mortal)
                    test(thread, worker);
        }
        if (std::chrono::steady_clock::now() > end) {
            describe_workers();
            wrong(std::string("it does not come about that ") + what);
        }
    }
}

void ThreadTraffic::for_each_op(const std::function<void(ThreadOp&)>& act) {
    for (TrafficThread& thread : threads_) {
        for (std::size_t i = 0; i < thread.sent; ++i)
            act(thread.sends[i]);
        for (ThreadOp& op : thread.others)
            act(op);
    }
    for (ThreadOp& op : main_.others)
        act(op);
}

/// Receives that have found nothing are left: they end by a cancel.
void ThreadTraffic::cancel_the_rest() {
    for_each_op([&](ThreadOp& op) {
        const bool is_receive = op.kind == Kind::kReceive || op.kind == Kind::kMany;
        if (!is_receive || op.is_over() || op.request == nullptr || workers_[op.worker].is_dead)
            return;
        Tick never = kNever;
        op.cancelled.compare_exchange_strong(never, tick());
        if (tw_request_cancel(op.request) != TW_OK)
            wrong("a cancel is refused", &op);
    });
}

/// In order; the ways to the dead have failed, or fail now.
void ThreadTraffic::close_all() {
    for (unsigned from = 0; from < options_.workers; ++from) {
        for (unsigned to = 0; to < workers_.size(); ++to) {
            ThreadEp* const ep = std::exchange(way(from, to).ep, nullptr);
            if (ep == nullptr)
                continue;
            ThreadOp& op = new_op(main_, Kind::kClose, from);
            op.peer = to;
            op.ep = ep;
            op.report = Report::kPolled;
            op.flags = TW_OP_COMPLETION;
            tw_status_t answer = TW_OK;
            const auto call = [&](const tw_op_t* what, tw_request_h* request_p) {
                return answer = tw_ep_close(ep->handle, 0, what, request_p);
            };
            if (!post(main_, op, call) && !is_closed_by(answer))
                wrong("a close is refused", &op);
        }
    }
}

/// Messages that nobody has received: only broken connections leave such ones. A close waits for
/// the match of those that ask for it, so they are dropped until all endpoints have closed.
void ThreadTraffic::drop_the_rest() {
    for (unsigned worker = 0; worker < options_.workers; ++worker) {
        const tw_worker_h handle = workers_[worker].worker.get();
        tw_op_t op{};
        op.flags = TW_OP_PEEK | TW_OP_DISCARD;
        int left = 0;
        while (tw_tag_recv(handle, nullptr, 0, 0, UINT64_MAX, &op, nullptr) == TW_OK ||
               tw_msg_recv(handle, nullptr, 0, &op, nullptr) == TW_OK)
            ++left;
        if (left > 0 && !is_anything_broken(worker))
            wrong(std::to_string(left) + " messages are left at worker " + std::to_string(worker));
    }
}

void ThreadTraffic::finish() {
    t_self = &main_;
    cancel_the_rest();
    progress_until("every operation ends", [&] {
        drop_the_rest();
        bool is_over = true;
        for_each_op([&](const ThreadOp& op) {
            is_over &= op.is_over() || op.report == Report::kNobody || workers_[op.worker].is_dead;
        });
        return is_over;
    });
    if (options_.has_others)
        progress_until("every active message is handled", [&] { return am_.is_quiet(); });
    close_all();
    progress_until("every endpoint closes", [&] {
        drop_the_rest();
        return std::ranges::all_of(main_.others, [](const ThreadOp& op) { return op.is_over(); });
    });
    for (int round = 0; round < kThreadRoundsOfNothing; ++round)
        for (unsigned worker = 0; worker < options_.workers; ++worker)
            work(main_, worker);
    drop_the_rest();
    t_self = nullptr;
}

// ---- Checks

void ThreadTraffic::check_status(const ThreadOp& op) {
    if (op.is_refused || op.status == TW_OK || workers_[op.worker].is_dead)
        return;
    const bool was_cancelled = op.cancelled != kNever && op.status == TW_ERR_CANCELED;
    bool is_right = false;
    switch (op.kind) {
        case Kind::kSend:
            is_right = was_cancelled || is_broken(*op.ep) ||
                       (op.report == Report::kNobody && op.status == TW_INPROGRESS);
            break;
        case Kind::kFlush:
        case Kind::kClose:
            is_right = is_broken(*op.ep);
            break;
        case Kind::kPut:
        case Kind::kGet:
        case Kind::kAdd:
        case Kind::kAm:
            is_right = was_cancelled || is_broken(*op.ep);
            break;
        case Kind::kPeek:
            is_right = op.status == TW_ERR_NO_MESSAGE || is_anything_broken(op.worker);
            break;
        case Kind::kReceive:
        case Kind::kMany:
            is_right = was_cancelled || op.status == TW_ERR_MESSAGE_TRUNCATED ||
                       is_anything_broken(op.worker);
            break;
        case Kind::kClaim:
            is_right = op.status == TW_ERR_MESSAGE_TRUNCATED || is_anything_broken(op.worker);
            break;
    }
    if (!is_right)
        wrong("a status that cannot be", &op);
}

void ThreadTraffic::check_statuses() {
    for_each_op([&](const ThreadOp& op) { check_status(op); });
}

SpanMessage ThreadTraffic::message_of(const ThreadOp& op) {
    SpanMessage message;
    message.envelope = {op.worker, op.tag, op.imm, op.length};
    message.connection = op.ep->number;
    message.way = options_.tx_contexts > 1 ? op.owner->number : 0;
    message.call = op.call;
    message.is_fenced = (op.flags & TW_OP_FENCE) != 0;
    message.tells_match = (op.flags & (TW_OP_MATCH_COMPLETE | TW_OP_DELIVERY_COMPLETE)) != 0;
    message.is_excused =
        is_broken(*op.ep) || workers_[op.worker].is_dead || workers_[op.peer].is_dead;
    message.is_cancelled = op.is_refused || (op.status == TW_ERR_CANCELED && !message.is_excused);
    if (message.tells_match && op.status == TW_OK && op.is_over())
        message.matched = op.told;
    return message;
}

SpanReceive ThreadTraffic::receive_of(const ThreadOp& op) {
    const bool is_stream = op.kind == Kind::kMany && (op.flags & TW_OP_BUFFERED) != 0;
    SpanReceive receive;
    receive.kind = is_stream                ? RefKind::kStream
                   : op.kind == Kind::kMany ? RefKind::kMany
                   : op.kind == Kind::kPeek ? RefKind::kPeek
                                            : RefKind::kOne;
    receive.takes = op.kind != Kind::kPeek || (op.flags & (TW_OP_CLAIM | TW_OP_DISCARD)) != 0;
    receive.tag = op.tag;
    receive.mask = op.mask;
    receive.source = op.peer;
    receive.call = op.call;
    receive.matches = op.matches;
    const bool is_bad = op.status != TW_OK && op.status != TW_ERR_MESSAGE_TRUNCATED;
    if (op.status == TW_ERR_NO_MESSAGE)
        receive.withdrawn = op.call.begin;
    else if (is_bad && op.status == TW_ERR_CANCELED)
        receive.withdrawn = op.cancelled;
    // By a close it may have left the list before it was cancelled, or with a message.
    const bool may_have_failed = is_bad && op.status != TW_ERR_NO_MESSAGE;
    receive.is_excused = (may_have_failed && is_anything_broken(op.worker)) ||
                         (op.peer != kAnybody && is_anything_broken(op.worker));
    return receive;
}

/// One name space of a worker; flushes to it tell what has arrived.
void ThreadTraffic::check_space(unsigned worker, bool is_tagged) {
    SpanReference reference;
    std::map<std::size_t, std::size_t> places;  // by number
    std::string sent, received;
    std::vector<const ThreadOp*> flushes;
    for_each_op([&](const ThreadOp& op) {
        const bool is_flush = op.kind == Kind::kFlush || op.kind == Kind::kClose;
        if (is_flush && op.peer == worker && op.status == TW_OK && !is_broken(*op.ep))
            flushes.push_back(&op);
    });
    for_each_op([&](const ThreadOp& op) {
        if (op.kind != Kind::kSend || op.peer != worker || op.is_tagged != is_tagged)
            return;
        SpanMessage message = message_of(op);
        for (const ThreadOp* flush : flushes)
            if (flush->ep == op.ep && op.call.is_before(flush->call))
                message.taken = std::min(message.taken, flush->told);
        places[op.number] = reference.add(message);
        sent += std::to_string(places[op.number]) + ": " + text(op) + "\n";
    });
    for_each_op([&](const ThreadOp& op) {
        const bool is_receive =
            op.kind == Kind::kReceive || op.kind == Kind::kMany || op.kind == Kind::kPeek;
        if (!is_receive || op.is_refused || op.worker != worker || op.is_tagged != is_tagged)
            return;
        SpanReceive receive = receive_of(op);
        for (RefMatch& match : receive.matches)
            if (match.message != kNone)
                match.message = places.at(match.message);
        received += std::to_string(reference.add(receive)) + ": " + text(op) + "\n";
    });
    const std::string verdict = reference.check();
    if (!verdict.empty())
        wrong("worker " + std::to_string(worker) + (is_tagged ? ", tagged:\n" : ", untagged:\n") +
              verdict + "messages:\n" + sent + "receives:\n" + received);
}

void ThreadTraffic::check_reference() {
    for (unsigned worker = 0; worker < options_.workers; ++worker)
        for (const bool is_tagged : {false, true})
            check_space(worker, is_tagged);
}

/// Every operation that names it was counted, also those whose end nobody was told of.
void ThreadTraffic::check_counter() {
    const auto end = std::chrono::steady_clock::now() + kThreadPatience;
    std::uint64_t successes = 0, failures = 0;
    do {
        for (unsigned worker = 0; worker < options_.workers; ++worker)
            work(main_, worker);
        tw_counter_read(counter_, &successes, &failures);
    } while (successes + failures < tallied_ && std::chrono::steady_clock::now() < end);
    if (successes + failures != tallied_)
        wrong("the counter has " + std::to_string(successes) + " and " + std::to_string(failures) +
              " of " + std::to_string(tallied_));
}

}  // namespace tagwire::test
