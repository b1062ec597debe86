// SPDX-License-Identifier: BSD-3-Clause
// Receives of every kind, and what they get.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "protocols/traffic.hpp"

namespace tagwire::test {

/// Which messages it wants.
void Traffic::draw_selection(TrafficThread& self, TrafficOp& op) {
    constexpr std::uint64_t kMasks[] = {
        ~std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0}, 0xff, ~std::uint64_t{0xff}, 0};
    op.mask = op.is_tagged ? kMasks[pick(self, std::size(kMasks))] : ~std::uint64_t{0};
    op.tag = op.is_tagged ? pick(self, 3) << 40 | pick(self, 4) : 0;
    // A receive that names its source may end with the endpoint, or wait for one that is no more.
    if (chance(self, 4) && !options_.has_closes)
        op.peer = static_cast<unsigned>(pick(self, workers_.size()));
}

void Traffic::post_receive(TrafficThread& self, TrafficOp& op) {
    std::shared_lock<std::shared_mutex> use;
    if (op.peer != kAnybody) {
        open_ep(op.worker, op.peer);
        use = std::shared_lock(way(op.worker, op.peer).lock, std::try_to_lock);
        if (use && way(op.worker, op.peer).ep != nullptr)
            op.ep = way(op.worker, op.peer).ep;
        else
            op.peer = kAnybody;
    }
    op.bytes.assign(op.length + kGuardBytes, kEmpty);
    if (op.kind != Kind::kMany && op.kind != Kind::kPeek && !op.has(TrafficOp::kBuffered))
        draw_list(self, op, op.bytes);
    const tw_worker_h worker = workers_[op.worker].worker.get();
    const std::uint64_t ignore = ~op.mask;
    std::byte* const buffer = op.bytes.data();
    const bool is_posted = post(self, op, [&](const tw_op_t* what, tw_request_h* request_p) {
        const std::span<const tw_iov_t> list(op.list);
        if (op.kind == Kind::kPeek)
            return probe(op, what);
        if (op.kind == Kind::kClaim) {
            return list.empty()
                       ? tw_message_recv(worker, op.message, buffer, op.length, what, request_p)
                       : tw_message_recvv(worker, op.message, list.data(), list.size(), what,
                                          request_p);
        }
        if (op.has(TrafficOp::kBuffered) && op.is_tagged)
            return tw_tag_recv_buffered(worker, op.tag, ignore, what, request_p);
        if (op.has(TrafficOp::kBuffered)) {
            return op.kind == Kind::kMany ? tw_msg_recv_buffered_multi(worker, what, request_p)
                                          : tw_msg_recv_buffered(worker, what, request_p);
        }
        if (op.kind == Kind::kMany)
            return tw_msg_recv_multi(worker, buffer, op.length, what, request_p);
        if (!list.empty()) {
            return op.is_tagged ? tw_tag_recvv(worker, list.data(), list.size(), op.tag, ignore,
                                               what, request_p)
                                : tw_msg_recvv(worker, list.data(), list.size(), what, request_p);
        }
        return op.is_tagged
                   ? tw_tag_recv(worker, buffer, op.length, op.tag, ignore, what, request_p)
                   : tw_msg_recv(worker, buffer, op.length, what, request_p);
    });
    if (!is_posted && op.kind == Kind::kClaim)
        self.claims.push_back({op.claimed_by, op.match, op.message});
}

/// Looks for a message, and takes or drops it; a claim receives what was taken.
tw_status_t Traffic::probe(TrafficOp& op, const tw_op_t* what) {
    const tw_worker_h worker = workers_[op.worker].worker.get();
    tw_message_h message = nullptr;
    tw_message_h* const message_p = op.takes() ? &message : nullptr;
    const tw_status_t status =
        op.is_tagged ? tw_tag_probe(worker, op.tag, ~op.mask, what->source, what->info, message_p)
                     : tw_msg_probe(worker, what->source, what->info, message_p);
    op.message = nullptr;
    if (status == TW_OK && op.has(TrafficOp::kDrops))
        drop(worker, message);
    else if (status == TW_OK)
        op.message = message;
    return status;
}

/// There may be no memory for it at first.
void Traffic::drop(tw_worker_h worker, tw_message_h message) {
    constexpr int kTries = 100;
    tw_status_t status = tw_message_drop(worker, message);
    for (int i = 0; i < kTries && is_for_lack_of_memory(status); ++i)
        status = tw_message_drop(worker, message);
    if (status != TW_OK)
        wrong(std::string("a drop answers ") + tw_status_string(status), nullptr);
}

void Traffic::receive(TrafficThread& self, unsigned worker) {
    TrafficOp& op = new_op(self, Kind::kReceive, worker);
    op.is_tagged = !chance(self, 4);
    draw_report(self, op);
    draw_selection(self, op);
    op.length = chance(self, 4) ? pick_length(self) : options_.bytes_max;
    if (chance(self, 5)) {
        op.flags |= TrafficOp::kBuffered;
        op.length = 0;
    }
    post_receive(self, op);
}

void Traffic::receive_many(TrafficThread& self, unsigned worker) {
    TrafficOp& op = new_op(self, Kind::kMany, worker);
    draw_report(self, op);
    draw_selection(self, op);
    const bool is_stream = chance(self, 4);
    op.flags |= is_stream ? TrafficOp::kBuffered : 0U;
    op.length = is_stream ? 0 : 16384 + pick(self, options_.bytes_max);
    post_receive(self, op);
}

void Traffic::peek(TrafficThread& self, unsigned worker) {
    constexpr std::uint32_t kWhat[] = {0, TrafficOp::kTakes, TrafficOp::kDrops};
    TrafficOp& op = new_op(self, Kind::kPeek, worker);
    op.is_tagged = !chance(self, 4);
    op.flags = kWhat[pick(self, std::size(kWhat))];
    op.report = Report::kNobody;  // the call tells
    draw_selection(self, op);
    post_receive(self, op);
}

/// Receives or drops a message that this thread has found.
void Traffic::claim(TrafficThread& self, unsigned worker) {
    const auto found = std::ranges::find(
        self.claims, worker, [](const TrafficClaim& each) { return each.found->worker; });
    if (found == self.claims.end())
        return;
    const TrafficClaim claim = *found;
    self.claims.erase(found);
    if (chance(self, 4))
        return drop(workers_[worker].worker.get(), claim.message);
    TrafficOp& op = new_op(self, Kind::kClaim, worker);
    draw_report(self, op);
    op.is_tagged = claim.found->is_tagged;
    op.message = claim.message;
    op.match = claim.match;
    op.claimed_by = claim.found;
    op.length = chance(self, 4) ? pick_length(self) : options_.bytes_max;
    post_receive(self, op);
}

// ---- Their results

void Traffic::keep_claim(TrafficOp& op, const tw_completion_t& done, std::size_t match) {
    if (done.message == nullptr)
        return wrong("a message without a name", &op);
    TrafficThread& self = t_self == nullptr ? main_ : *t_self;
    self.claims.push_back({&op, match, done.message});
    self.has_claims = true;
}

/// The message that has come; its bytes are checked, and whether it is here for the first time.
RefMatch Traffic::match_of(TrafficOp& op, const tw_completion_t& done,
                           std::span<const std::byte> data) {
    RefMatch match{.envelope = {kAnybody, done.tag, done.imm, done.message_length}, .told = tick()};
    for (unsigned i = 0; i < workers_.size(); ++i)
        if (workers_[i].id == done.source)
            match.envelope.sender = i;
    if (match.envelope.sender == kAnybody) {
        wrong("a message of nobody", &op);
        return match;
    }
    const bool is_new = op.takes() && op.kind != Kind::kClaim;
    TrafficWay& back = way(op.worker, match.envelope.sender);
    if (is_alone() && done.ep != nullptr && back.ep != nullptr && done.ep != back.ep->handle &&
        !is_anything_broken(op.worker))
        wrong("a message came by another endpoint", &op);
    std::uint32_t number = 0;
    if (data.size() < sizeof number && done.imm == 0) {
        if (is_new)
            way(match.envelope.sender, op.worker).unknown.fetch_add(1, std::memory_order_relaxed);
        return match;
    }
    if (done.imm != 0)
        number = static_cast<std::uint32_t>(done.imm * kImmInverse - 1);
    if (data.size() >= sizeof number)
        std::memcpy(&number, data.data(), sizeof number);
    // SYNC traffic_op_drawn: pairs with the release in send().
    if (number / kSendsMax >= threads_.size() || number % kSendsMax >= ops_max() ||
        !threads_[number / kSendsMax].sends[number % kSendsMax].is_drawn.load(
            std::memory_order_acquire)) {
        wrong("a message that nobody has sent", &op);
        return match;
    }
    TrafficOp& sent = threads_[number / kSendsMax].sends[number % kSendsMax];
    match.message = number;
    const Bytes wanted = content(done.message_length, number);
    if (!std::equal(data.begin(), data.end(), wanted.begin()))
        wrong("other bytes than were sent", &op);
    const RefEnvelope envelope{sent.worker, sent.tag, sent.imm, sent.length};
    if (envelope != match.envelope || sent.is_tagged != op.is_tagged || sent.peer != op.worker)
        wrong("a message is not what was sent: " + text(sent), &op);
    if (is_new && sent.received.fetch_add(1, std::memory_order_relaxed) > 0)
        wrong("a message is received twice: " + text(sent), &op);
    return match;
}

/// Checks the length of the data, its place, and the bytes behind it.
void Traffic::check_receive(TrafficOp& op, const tw_completion_t& done, std::size_t count) {
    const bool is_many = op.kind == Kind::kMany && !op.has(TrafficOp::kBuffered);
    const auto* const data = static_cast<const std::byte*>(done.buffer);
    const std::byte* const own = op.bytes.data();
    if (op.has(TrafficOp::kBuffered)) {
        const TrafficWorker& at = workers_[op.worker];
        if (done.status != TW_OK || count < std::min(done.message_length, at.buffered_min) ||
            (done.message_length <= at.buffered_limit && count < done.message_length))
            wrong("a buffered receive shows too little", &op);
    } else if (op.kind == Kind::kPeek) {
        if (data != nullptr || (done.message != nullptr) != op.has(TrafficOp::kTakes))
            wrong("a peek shows something else than a message", &op);
    } else if (is_many && (data < own || data + count > own + op.length)) {
        wrong("a message is outside of its buffer", &op);
    } else if (!is_many && data != nullptr) {
        wrong("a receive names a buffer", &op);
    } else if ((done.status == TW_ERR_MESSAGE_TRUNCATED) != (count < done.message_length) ||
               (!is_many && count != std::min(done.message_length, op.length))) {
        wrong("truncated, or not", &op);
    }
    if (count > done.message_length ||
        (!is_many && !op.has(TrafficOp::kBuffered) && count > op.length))
        wrong("more than there was", &op);
    // Behind the data of one message; a receive of many has several.
    const std::size_t behind = is_many ? op.length : count;
    for (std::size_t i = behind; i < op.bytes.size() && i < behind + kGuardBytes; ++i)
        if (op.bytes[i] != kEmpty)
            return wrong("something was written behind the data", &op);
}

void Traffic::end_receive(TrafficOp& op, const tw_completion_t& done) {
    if (done.status != TW_OK && done.status != TW_ERR_MESSAGE_TRUNCATED)
        return;
    if (op.kind == Kind::kMany && (done.flags & TW_DONE_MULTI_RECV) != 0)
        return;
    const bool is_buffered = op.has(TrafficOp::kBuffered), is_peek = op.kind == Kind::kPeek;
    const bool is_inside = op.kind == Kind::kMany || is_buffered || is_peek;
    const auto* const data =
        is_inside ? static_cast<const std::byte*>(done.buffer) : op.bytes.data();
    const std::size_t count = data == nullptr ? 0 : done.length;
    check_receive(op, done, count);
    if (has_failed_)
        return;
    RefMatch match = match_of(op, done, {data, count});
    if (op.kind == Kind::kClaim)
        return end_claim(op, match);
    if (is_peek && is_alone())
        match.told = op.call.begin;
    if (op.kind == Kind::kMany && !is_buffered)
        match.offset = static_cast<std::size_t>(data - op.bytes.data());
    std::size_t at = 0;
    {
        const std::lock_guard guard(op.guard);
        at = op.matches.size();
        op.matches.push_back(match);
    }
    if (is_buffered || (is_peek && op.has(TrafficOp::kTakes)))
        keep_claim(op, done, at);
}

/// The message was found before; its data may tell more of it.
void Traffic::end_claim(TrafficOp& op, const RefMatch& match) {
    TrafficOp& found = *op.claimed_by;
    const std::lock_guard guard(found.guard);
    RefMatch& claimed = found.matches[op.match];
    if (claimed.envelope != match.envelope)
        wrong("a claim gets another message", &op);
    if (claimed.message != kNone || match.message == kNone)
        return;
    claimed.message = match.message;
    ++threads_[match.message / kSendsMax].sends[match.message % kSendsMax].received;
    --way(match.envelope.sender, op.worker).unknown;
}

}  // namespace tagwire::test
