// SPDX-License-Identifier: BSD-3-Clause
// Receives of every kind, and what they get.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "protocols/thread_traffic.hpp"

namespace tagwire::test {

namespace {

constexpr std::byte kThreadEmpty{0xee};

}  // namespace

/// Which messages it wants.
void ThreadTraffic::draw_selection(TrafficThread& self, ThreadOp& op) {
    constexpr std::uint64_t kMasks[] = {
        ~std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0}, 0xff, ~std::uint64_t{0xff}, 0};
    op.mask = op.is_tagged ? kMasks[pick(self, std::size(kMasks))] : ~std::uint64_t{0};
    op.tag = op.is_tagged ? pick(self, 3) << 40 | pick(self, 4) : 0;
    // A receive that names its source may end with the endpoint, or wait for one that is no more.
    if (chance(self, 4) && !options_.has_closes)
        op.peer = static_cast<unsigned>(pick(self, workers_.size()));
}

void ThreadTraffic::post_receive(TrafficThread& self, ThreadOp& op) {
    std::shared_lock<std::shared_mutex> use;
    if (op.peer != kAnybody) {
        open_ep(op.worker, op.peer);
        use = std::shared_lock(way(op.worker, op.peer).lock, std::try_to_lock);
        if (use && way(op.worker, op.peer).ep != nullptr)
            op.ep = way(op.worker, op.peer).ep;
        else
            op.peer = kAnybody;
    }
    op.bytes.assign(op.length + kGuardBytes, kThreadEmpty);
    if (op.kind != Kind::kMany && (op.flags & TW_OP_BUFFERED) == 0)
        draw_list(self, op, op.bytes);
    const tw_worker_h worker = workers_[op.worker].worker.get();
    const std::uint64_t ignore = ~op.mask;
    std::byte* const buffer = op.bytes.data();
    const bool is_posted = post(self, op, [&](const tw_op_t* what, tw_request_h* request_p) {
        if (!op.list.empty()) {
            return op.is_tagged
                       ? tw_tag_recvv(worker, op.list.data(), op.list.size(), op.tag, ignore, what,
                                      request_p)
                       : tw_msg_recvv(worker, op.list.data(), op.list.size(), what, request_p);
        }
        return op.is_tagged
                   ? tw_tag_recv(worker, buffer, op.length, op.tag, ignore, what, request_p)
                   : tw_msg_recv(worker, buffer, op.length, what, request_p);
    });
    if (!is_posted && op.kind == Kind::kClaim)
        self.claims.push_back({op.claimed_by, op.match, op.message});
}

void ThreadTraffic::receive(TrafficThread& self, unsigned worker) {
    ThreadOp& op = new_op(self, Kind::kReceive, worker);
    op.is_tagged = !chance(self, 4);
    draw_report(self, op);
    draw_selection(self, op);
    op.length = chance(self, 4) ? pick_length(self) : options_.bytes_max;
    if (chance(self, 5)) {
        op.flags |= TW_OP_BUFFERED;
        op.length = 0;
    }
    post_receive(self, op);
}

void ThreadTraffic::receive_many(TrafficThread& self, unsigned worker) {
    ThreadOp& op = new_op(self, Kind::kMany, worker);
    op.flags = TW_OP_MULTI_RECV;
    draw_report(self, op);
    draw_selection(self, op);
    const bool is_stream = chance(self, 4);
    op.flags |= is_stream ? unsigned{TW_OP_BUFFERED} : 0U;
    op.length = is_stream ? 0 : 16384 + pick(self, options_.bytes_max);
    post_receive(self, op);
}

void ThreadTraffic::peek(TrafficThread& self, unsigned worker) {
    constexpr std::uint32_t kWhat[] = {0, TW_OP_CLAIM, TW_OP_DISCARD};
    ThreadOp& op = new_op(self, Kind::kPeek, worker);
    op.is_tagged = !chance(self, 4);
    op.flags = TW_OP_PEEK | kWhat[pick(self, std::size(kWhat))];
    draw_report(self, op);
    draw_selection(self, op);
    op.length = chance(self, 2) ? 0 : pick_length(self);
    post_receive(self, op);
}

/// Receives or drops a message that this thread has found.
void ThreadTraffic::claim(TrafficThread& self, unsigned worker) {
    const auto found = std::ranges::find(
        self.claims, worker, [](const ThreadClaim& each) { return each.found->worker; });
    if (found == self.claims.end())
        return;
    const ThreadClaim claim = *found;
    self.claims.erase(found);
    ThreadOp& op = new_op(self, Kind::kClaim, worker);
    op.flags = TW_OP_CLAIM | (chance(self, 4) ? unsigned{TW_OP_DISCARD} : 0U);
    draw_report(self, op);
    op.is_tagged = claim.found->is_tagged;
    op.message = claim.message;
    op.match = claim.match;
    op.claimed_by = claim.found;
    op.length = chance(self, 4) ? pick_length(self) : options_.bytes_max;
    post_receive(self, op);
}

// ---- Their results

void ThreadTraffic::keep_claim(ThreadOp& op, const tw_completion_t& done, std::size_t match) {
    if (done.message == nullptr)
        return wrong("a message without a name", &op);
    TrafficThread& self = t_self == nullptr ? main_ : *t_self;
    self.claims.push_back({&op, match, done.message});
    self.has_claims = true;
}

/// The message that has come; its bytes are checked, and whether it is here for the first time.
RefMatch ThreadTraffic::match_of(ThreadOp& op, const tw_completion_t& done,
                                 std::span<const std::byte> data) {
    RefMatch match{.envelope = {kAnybody, done.tag, done.imm, done.message_length}, .told = tick()};
    for (unsigned i = 0; i < workers_.size(); ++i)
        if (workers_[i].id == done.source)
            match.envelope.sender = i;
    const bool is_known = data.size() >= sizeof(std::uint32_t) || done.imm != 0;
    const bool takes = op.kind != Kind::kPeek || (op.flags & (TW_OP_CLAIM | TW_OP_DISCARD)) != 0;
    if (match.envelope.sender == kAnybody)
        wrong("a message of nobody", &op);
    if (!is_known) {
        if (takes && op.kind != Kind::kClaim)
            workers_[op.worker].unknown.fetch_add(1, std::memory_order_relaxed);
        return match;
    }
    std::uint32_t number = 0;
    if (done.imm != 0)
        number = static_cast<std::uint32_t>(done.imm * kImmInverse - 1);
    if (data.size() >= sizeof number)
        std::memcpy(&number, data.data(), sizeof number);
    if (number / kSendsMax >= threads_.size() || number % kSendsMax >= options_.steps * 4U) {
        wrong("a message that nobody has sent", &op);
        return match;
    }
    ThreadOp& sent = threads_[number / kSendsMax].sends[number % kSendsMax];
    // SYNC thread_op_drawn: pairs with the release in send().
    if (!sent.is_drawn.load(std::memory_order_acquire)) {
        wrong("a message that nobody has sent", &op);
        return match;
    }
    match.message = number;
    const Bytes wanted = content(done.message_length, number);
    if (!std::equal(data.begin(), data.end(), wanted.begin()))
        wrong("other bytes than were sent", &op);
    const RefEnvelope envelope{sent.worker, sent.tag, sent.imm, sent.length};
    if (envelope != match.envelope || sent.is_tagged != op.is_tagged || sent.peer != op.worker)
        wrong("a message is not what was sent: " + text(sent), &op);
    if (takes && op.kind != Kind::kClaim &&
        sent.received.fetch_add(1, std::memory_order_relaxed) > 0)
        wrong("a message is received twice: " + text(sent), &op);
    return match;
}

void ThreadTraffic::end_receive(ThreadOp& op, const tw_completion_t& done) {
    if (done.status != TW_OK && done.status != TW_ERR_MESSAGE_TRUNCATED)
        return;
    if (op.kind == Kind::kMany && (done.flags & TW_DONE_MULTI_RECV) != 0)
        return;
    const bool is_buffered = (op.flags & TW_OP_BUFFERED) != 0;
    const bool is_dropped = (op.flags & TW_OP_DISCARD) != 0 && op.kind == Kind::kClaim;
    const bool is_peek = op.kind == Kind::kPeek;
    const bool is_inside = op.kind == Kind::kMany || is_buffered || is_peek;
    const auto* const data =
        is_inside ? static_cast<const std::byte*>(done.buffer) : op.bytes.data();
    const std::size_t count = is_dropped || data == nullptr ? 0
                              : is_peek ? std::min(done.message_length, op.length)
                                        : done.length;
    if (count > done.message_length || (!is_inside && count > op.length))
        return wrong("more than there was", &op);
    if (is_buffered) {
        const ThreadWorker& at = workers_[op.worker];
        if (count < std::min(done.message_length, at.buffered_min) ||
            (done.message_length <= at.buffered_limit && count < done.message_length))
            wrong("a buffered receive shows too little", &op);
    } else if (!is_peek && !is_dropped &&
               (done.status == TW_ERR_MESSAGE_TRUNCATED) != (count < done.message_length)) {
        wrong("truncated, or not", &op);
    }
    for (std::size_t i = 0; i < kGuardBytes && !is_inside && !is_dropped; ++i)
        if (op.bytes[op.length + i] != kThreadEmpty)
            return wrong("something was written behind the buffer", &op);
    RefMatch match = match_of(op, done, {data, count});
    ThreadOp& found = op.kind == Kind::kClaim ? *op.claimed_by : op;
    std::size_t at = 0;
    {
        const std::lock_guard guard(found.guard);
        if (op.kind == Kind::kClaim) {
            RefMatch& claimed = found.matches[op.match];
            if (claimed.envelope != match.envelope)
                wrong("a claim gets another message", &op);
            if (claimed.message == kNone && match.message != kNone) {
                claimed.message = match.message;
                ++threads_[match.message / kSendsMax].sends[match.message % kSendsMax].received;
                --workers_[op.worker].unknown;
            }
            return;
        }
        if (op.kind == Kind::kMany && !is_buffered)
            match.offset = static_cast<std::size_t>(data - op.bytes.data());
        at = found.matches.size();
        found.matches.push_back(match);
    }
    if (is_buffered || (is_peek && (op.flags & TW_OP_CLAIM) != 0))
        keep_claim(op, done, at);
}

}  // namespace tagwire::test
