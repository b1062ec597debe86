// SPDX-License-Identifier: BSD-3-Clause
// Checks after a run.
#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "protocols/traffic.hpp"

namespace tagwire::test {

namespace {

constexpr int kTrafficCounterRounds = 100'000;

}  // namespace

void Traffic::check() {
    for_each_op([&](const TrafficOp& op) { check_status(op); });
    for (const unsigned worker : living())
        for (const bool is_tagged : {false, true})
            check_space(worker, is_tagged);
    check_counter();
    check_garbage();
    memory_.check();
    am_.check();
}

void Traffic::check_status(const TrafficOp& op) {
    if (op.is_refused || op.status == TW_OK || workers_[op.worker].is_dead)
        return;
    const bool was_cancelled = op.cancelled != kNever && op.status == TW_ERR_CANCELED;
    const bool is_untold = op.report == Report::kNobody && op.status == TW_INPROGRESS;
    const bool is_near_a_break = is_anything_broken(op.worker);
    const bool is_short = op.status == TW_ERR_MESSAGE_TRUNCATED;
    bool is_right = false;
    switch (op.kind) {
        case Kind::kPeek:
            is_right = op.status == TW_ERR_NO_MESSAGE || is_near_a_break;
            break;
        case Kind::kReceive:
        case Kind::kMany:
            is_right = was_cancelled || is_short || is_near_a_break;
            break;
        case Kind::kClaim:
            is_right = is_short || is_near_a_break;
            break;
        case Kind::kAmReceive:
            // A send that is cancelled takes the data with it.
            is_right = was_cancelled || is_near_a_break || op.sent->cancelled != kNever;
            break;
        default:
            is_right = was_cancelled || is_untold || is_broken(*op.ep);
    }
    if (!is_right)
        wrong("a status that cannot be", &op);
}

RefMessage Traffic::message_of(const TrafficOp& op) {
    RefMessage message;
    message.envelope = {op.worker, op.tag, op.imm, op.length};
    // With one thread, messages of all connections keep their order.
    message.connection = is_alone() ? 0 : op.ep->number;
    message.way = options_.tx_contexts > 1 ? op.owner->number : 0;
    message.call = op.call;
    message.taken = op.taken;
    message.is_fenced = op.has(TW_OP_FENCE);
    message.tells_match = op.has(TW_OP_MATCH_COMPLETE | TW_OP_DELIVERY_COMPLETE);
    message.is_excused = is_excused(op);
    message.is_cancelled = op.is_refused || (op.status == TW_ERR_CANCELED && !message.is_excused);
    if (message.is_cancelled)
        message.cancelled = op.told;
    if (message.tells_match && op.status == TW_OK && op.is_over())
        message.matched = op.told;
    return message;
}

RefReceive Traffic::receive_of(const TrafficOp& op) {
    const bool is_stream = op.kind == Kind::kMany && op.has(TrafficOp::kBuffered);
    RefReceive receive;
    receive.kind = is_stream                ? RefKind::kStream
                   : op.kind == Kind::kMany ? RefKind::kMany
                   : op.takes()             ? RefKind::kOne
                                            : RefKind::kPeek;
    receive.tag = op.tag;
    receive.mask = op.mask;
    receive.source = op.peer;
    receive.call = op.call;
    receive.matches = op.matches;
    const bool is_bad = op.status != TW_OK && op.status != TW_ERR_MESSAGE_TRUNCATED;
    if (op.status == TW_ERR_NO_MESSAGE)
        receive.withdrawn = op.call.begin;
    else if (op.status == TW_ERR_CANCELED)
        receive.withdrawn = op.cancelled;
    // By a close it may have left the list before it was cancelled, or with a message: a buffered
    // one does not say with which.
    const bool is_near_a_break = is_anything_broken(op.worker);
    const bool may_have_failed = is_bad && op.status != TW_ERR_NO_MESSAGE && is_near_a_break;
    const bool is_directed = op.peer != kAnybody;
    if (!is_alone()) {
        receive.is_excused = may_have_failed || (is_directed && is_near_a_break);
    } else {
        const bool is_by_close = op.told_source != 0 || op.has(TrafficOp::kBuffered) ||
                                 (is_directed && way(op.worker, op.peer).broken > 0);
        receive.is_excused = may_have_failed && (op.status != TW_ERR_CANCELED || is_by_close);
    }
    // A receive of many leaves the list with a message of which the rest may never come.
    if (op.has_lost_part.load(std::memory_order_relaxed) && op.matches.empty())
        receive.is_excused = true;
    return receive;
}

/// One name space of a worker; flushes to it tell what has arrived.
void Traffic::check_space(unsigned worker, bool is_tagged) {
    Reference reference(is_alone() ? Reference::Calls::kOfOneThread : Reference::Calls::kOfThreads);
    std::map<std::size_t, std::size_t> places;  // by number
    std::string sent, received;
    std::vector<const TrafficOp*> flushes;
    std::vector<const TrafficOp*> receives;  // in the order of their calls
    for_each_op([&](const TrafficOp& op) {
        const bool is_flush = op.kind == Kind::kFlush || op.kind == Kind::kClose;
        if (is_flush && op.level == TW_FLUSH_DELIVERED && op.peer == worker && op.status == TW_OK &&
            !is_broken(*op.ep))
            flushes.push_back(&op);
        const bool is_receive =
            op.kind == Kind::kReceive || op.kind == Kind::kMany || op.kind == Kind::kPeek;
        if (is_receive && !op.is_refused && op.worker == worker && op.is_tagged == is_tagged)
            receives.push_back(&op);
    });
    for_each_op([&](const TrafficOp& op) {
        if (op.kind != Kind::kSend || op.peer != worker || op.is_tagged != is_tagged)
            return;
        RefMessage message = message_of(op);
        for (const TrafficOp* flush : flushes)
            if (flush->ep == op.ep && op.call.is_before(flush->call))
                message.taken = std::min(message.taken, flush->told);
        places[op.number] = reference.add(message);
        sent += std::to_string(places[op.number]) + ": " + text(op) + "\n";
    });
    std::ranges::stable_sort(receives, {}, [](const TrafficOp* op) { return op->call.begin; });
    for (const TrafficOp* op : receives) {
        RefReceive receive = receive_of(*op);
        for (RefMatch& match : receive.matches)
            if (match.message != kNone)
                match.message = places.at(match.message);
        received += std::to_string(reference.add(receive)) + ": " + text(*op) + "\n";
    }
    const std::string verdict = reference.check();
    if (!verdict.empty())
        wrong("worker " + std::to_string(worker) + (is_tagged ? ", tagged:\n" : ", untagged:\n") +
              verdict + "messages:\n" + sent + "receives:\n" + received);
}

/// Every operation that names it was counted, also those whose end nobody was told of.
void Traffic::check_counter() {
    std::uint64_t successes = 0, failures = 0;
    for (int round = 0; round < kTrafficCounterRounds; ++round) {
        for (const unsigned worker : living())
            work(main_, worker);
        tw_counter_read(counter_, &successes, &failures);
        if (successes + failures >= tallied_)
            break;
    }
    if (successes + failures != tallied_)
        wrong("the counter has " + std::to_string(successes) + " and " + std::to_string(failures) +
              " of " + std::to_string(tallied_));
}

/// The last word of a connection may come after the first of the next.
void Traffic::check_garbage() {
    if (options_.has_closes || options_.has_death)
        return;
    for (const unsigned worker : living()) {
        std::array<tw_worker_counter_t, 128> counters;
        unsigned count = counters.size();
        if (tw_worker_counters(workers_[worker].worker.get(), counters.data(), &count) != TW_OK)
            wrong("the counters of a worker cannot be read");
        for (unsigned i = 0; i < count; ++i)
            if (std::string_view(counters.at(i).name) == "garbage" && counters.at(i).value > 0)
                wrong("worker " + std::to_string(worker) + " has got garbage");
    }
}

}  // namespace tagwire::test
