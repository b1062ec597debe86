// SPDX-License-Identifier: BSD-3-Clause
// Receives of every kind, and what they get.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>

#include "protocols/traffic.hpp"

namespace tagwire::test {

namespace {

constexpr std::byte kTrafficEmpty{0xee};
constexpr std::size_t kTrafficNumberBytes = 4;

}  // namespace

/// Which messages it wants.
void Traffic::draw_selection(TrafficOp& op) {
    constexpr std::uint64_t kMasks[] = {
        ~std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0}, 0xff, ~std::uint64_t{0xff}, 0};
    op.mask = op.is_tagged ? kMasks[pick(std::size(kMasks))] : ~std::uint64_t{0};
    op.tag = op.is_tagged ? pick(3) << 40 | pick(4) : 0;
    // A receive that names its source may end with the endpoint, or wait for one that is no more.
    if (!chance(4) || options_.has_closes)
        return;
    const auto peer = static_cast<unsigned>(pick(nodes_.size()));
    if (ep_to(*op.node, peer) != nullptr)
        op.peer = peer;
}

void Traffic::post_receive(TrafficOp& op) {
    op.bytes.assign(op.length + kGuardBytes, kTrafficEmpty);
    if (op.kind != Kind::kMany && (op.flags & TW_OP_BUFFERED) == 0)
        draw_list(op);
    const tw_worker_h worker = op.node->worker.get();
    const std::uint64_t ignore = ~op.mask;
    const tw_status_t status = post(op, [&](const tw_op_t* what, tw_request_h* request_p) {
        if (!op.list.empty()) {
            return op.is_tagged
                       ? tw_tag_recvv(worker, op.list.data(), op.list.size(), op.tag, ignore, what,
                                      request_p)
                       : tw_msg_recvv(worker, op.list.data(), op.list.size(), what, request_p);
        }
        return op.is_tagged ? tw_tag_recv(worker, op.bytes.data(), op.length, op.tag, ignore, what,
                                          request_p)
                            : tw_msg_recv(worker, op.bytes.data(), op.length, what, request_p);
    });
    if (status != TW_ERR_NO_RESOURCE)
        return;
    if (op.kind == Kind::kClaim)
        op.node->claimed.push_back(op.claimed_by);
    else
        record_of(op).is_excused = true;
}

void Traffic::receive(TrafficNode& node) {
    TrafficOp& op = new_op(node, Kind::kReceive);
    op.is_tagged = !chance(4);
    draw_report(op);
    draw_selection(op);
    op.length = chance(4) ? pick_length() : options_.bytes_max;
    if (chance(5)) {
        op.flags |= TW_OP_BUFFERED;
        op.length = 0;
    }
    op.record = node.spaces[op.is_tagged ? 1 : 0].add(
        RefReceive{.tag = op.tag, .mask = op.mask, .source = op.peer, .posted = ++clock_});
    post_receive(op);
}

void Traffic::receive_many(TrafficNode& node) {
    TrafficOp& op = new_op(node, Kind::kMany);
    op.flags = TW_OP_MULTI_RECV;
    draw_report(op);
    draw_selection(op);
    const bool is_stream = chance(4);
    op.flags |= is_stream ? unsigned{TW_OP_BUFFERED} : 0U;
    op.length = is_stream ? 0 : 16384 + pick(options_.bytes_max);
    op.record = node.spaces[0].add(RefReceive{.kind = is_stream ? RefKind::kStream : RefKind::kMany,
                                              .tag = op.tag,
                                              .mask = op.mask,
                                              .source = op.peer,
                                              .posted = ++clock_});
    post_receive(op);
}

void Traffic::peek(TrafficNode& node) {
    constexpr std::uint32_t kWhat[] = {0, TW_OP_CLAIM, TW_OP_DISCARD};
    TrafficOp& op = new_op(node, Kind::kPeek);
    op.is_tagged = !chance(4);
    op.flags = TW_OP_PEEK | kWhat[pick(std::size(kWhat))];
    draw_report(op);
    draw_selection(op);
    op.length = chance(2) ? 0 : pick_length();
    const bool takes = (op.flags & (TW_OP_CLAIM | TW_OP_DISCARD)) != 0;
    op.record = node.spaces[op.is_tagged ? 1 : 0].add(
        RefReceive{.kind = takes ? RefKind::kOne : RefKind::kPeek,
                   .tag = op.tag,
                   .mask = op.mask,
                   .source = op.peer,
                   .posted = ++clock_});
    post_receive(op);
}

/// Receives or drops a message that a peek has claimed, or a buffered receive has shown.
void Traffic::claim(TrafficNode& node) {
    if (node.claimed.empty())
        return;
    TrafficOp& peek = *node.claimed.back();
    node.claimed.pop_back();
    TrafficOp& op = new_op(node, Kind::kClaim);
    op.flags = TW_OP_CLAIM | (chance(4) ? unsigned{TW_OP_DISCARD} : 0U);
    draw_report(op);
    op.is_tagged = peek.is_tagged;
    op.message = peek.message;
    op.record = peek.record;
    op.match = peek.match;
    op.claimed_by = &peek;
    op.length = chance(4) ? pick_length() : options_.bytes_max;
    ++clock_;
    post_receive(op);
}

// ---- Their results

/// True: no message came of it.
bool Traffic::ends_badly(TrafficOp& op, const tw_completion_t& done) {
    if (done.status == TW_OK || done.status == TW_ERR_MESSAGE_TRUNCATED)
        return false;
    RefReceive& record = record_of(op);
    const bool has_closed = op.peer != kAnybody && op.node->closed[op.peer] != 0;
    const bool has_broken = op.peer != kAnybody && op.node->broken[op.peer] != 0;
    // By a close it may have left the list before it was cancelled, or with a message: a buffered
    // one does not say with which.
    const bool is_buffered = (op.flags & TW_OP_BUFFERED) != 0;
    const bool is_by_close =
        has_closed || has_broken || done.source != 0 || (is_buffered && is_anything_broken());
    if (done.status == TW_ERR_CANCELED && op.cancelled != kNever && op.kind != Kind::kClaim &&
        !is_by_close) {
        record.withdrawn = op.cancelled;
    } else if (done.status == TW_ERR_NO_MESSAGE && op.kind == Kind::kPeek) {
        record.withdrawn = record.posted;
    } else {
        EXPECT_TRUE(is_anything_broken() || has_closed) << tw_status_string(done.status);
        record.is_excused = true;
    }
    return true;
}

RefMatch Traffic::match_of(TrafficOp& op, const tw_completion_t& done,
                           std::span<const std::byte> data) {
    RefMatch match{.envelope = {kAnybody, done.tag, done.imm, done.message_length}, .told = clock_};
    for (const auto& node : nodes_)
        if (node->id == done.source)
            match.envelope.sender = node->index;
    if (match.envelope.sender == kAnybody) {
        ADD_FAILURE() << "a message of nobody";
        return match;
    }
    const tw_ep_h ep = op.node->eps[match.envelope.sender];
    EXPECT_TRUE(done.ep == nullptr || done.ep == ep || ep == nullptr || is_anything_broken());
    Reference& space = op.node->spaces[op.is_tagged ? 1 : 0];
    if (data.size() >= kTrafficNumberBytes) {
        std::uint32_t number = 0;
        std::memcpy(&number, data.data(), sizeof number);
        EXPECT_LT(number, space.messages().size())
            << "not what was sent: " << text(op) << ", " << done.message_length << " bytes of "
            << match.envelope.sender;
        if (number < space.messages().size())
            match.message = number;
    } else if ((done.flags & TW_DONE_IMM) != 0) {
        const auto found =
            std::ranges::find(space.messages(), match.envelope, &RefMessage::envelope);
        EXPECT_NE(found, space.messages().end()) << "an immediate that nobody sent";
        if (found != space.messages().end())
            match.message = static_cast<std::size_t>(found - space.messages().begin());
    }
    return match;
}

void Traffic::check_data(TrafficOp& op, RefMatch& match, const std::byte* data, std::size_t bytes) {
    const bool is_alone = op.kind != Kind::kMany && (op.flags & TW_OP_BUFFERED) == 0;
    for (std::size_t i = 0; i < kGuardBytes && is_alone; ++i)
        ASSERT_EQ(data[bytes + i], kTrafficEmpty) << "behind the data";
    if (match.message == kNone)
        return;
    const RefMessage& message = op.node->spaces[op.is_tagged ? 1 : 0].message(match.message);
    EXPECT_EQ(message.envelope, match.envelope);
    const Bytes wanted = content(match.envelope.length, match.message);
    EXPECT_TRUE(std::equal(data, data + bytes, wanted.data())) << "other bytes than were sent";
}

void Traffic::end_receive(TrafficOp& op, const tw_completion_t& done) {
    if (ends_badly(op, done))
        return;
    const bool is_claim = op.kind == Kind::kClaim;
    const bool is_dropped = (op.flags & TW_OP_DISCARD) != 0;
    EXPECT_EQ(done.flags, TW_DONE_RECV | (op.is_tagged ? unsigned{TW_DONE_TAGGED} : 0U) |
                              (done.imm != 0 ? unsigned{TW_DONE_IMM} : 0U) |
                              (is_claim ? unsigned{TW_DONE_CLAIM} : 0U));
    EXPECT_EQ(done.buffer, nullptr);
    const std::size_t fits = is_dropped ? 0 : std::min(done.message_length, op.length);
    RefMatch match = match_of(op, done, {op.bytes.data(), fits});
    if (!is_dropped) {
        EXPECT_EQ(done.length, fits);
        EXPECT_EQ(done.status == TW_ERR_MESSAGE_TRUNCATED, fits < done.message_length);
        check_data(op, match, op.bytes.data(), fits);
    }
    RefReceive& record = record_of(op);
    if (!is_claim) {
        record.matches.push_back(match);
        return;
    }
    RefMatch& claimed = record.matches[op.match];
    EXPECT_EQ(claimed.envelope, match.envelope) << "not what was claimed";
    if (match.message != kNone)
        claimed.message = match.message;
}

/// The library has the message; a claim gets it.
void Traffic::end_buffered(TrafficOp& op, const tw_completion_t& done) {
    if (ends_badly(op, done))
        return;
    EXPECT_EQ(done.status, TW_OK);
    EXPECT_EQ(done.flags, TW_DONE_RECV | TW_DONE_BUFFERED |
                              (op.is_tagged ? unsigned{TW_DONE_TAGGED} : 0U) |
                              (done.imm != 0 ? unsigned{TW_DONE_IMM} : 0U) |
                              (done.length < done.message_length ? unsigned{TW_DONE_MORE} : 0U));
    const bool is_short = done.message_length <= op.node->buffered_limit;
    EXPECT_GE(done.length, is_short ? done.message_length : op.node->buffered_min);
    ASSERT_LE(done.length, done.message_length);
    const auto* data = static_cast<const std::byte*>(done.buffer);
    RefMatch match = match_of(op, done, {data, done.length});
    check_data(op, match, data, done.length);
    RefReceive& record = record_of(op);
    record.matches.push_back(match);
    ASSERT_NE(done.message, nullptr);
    // A claim is about one message; a receive that stays posted has many.
    TrafficOp& shown = op.kind == Kind::kMany ? new_op(*op.node, Kind::kPeek) : op;
    shown.ends = 1;
    shown.is_tagged = op.is_tagged;
    shown.record = op.record;
    shown.match = record.matches.size() - 1;
    shown.message = done.message;
    op.node->claimed.push_back(&shown);
}

void Traffic::end_many(TrafficOp& op, const tw_completion_t& done) {
    if (ends_badly(op, done))
        return;
    if ((done.flags & TW_DONE_MULTI_RECV) != 0) {
        EXPECT_EQ(done.status, TW_OK);
        EXPECT_EQ(done.length, 0U);
        for (std::size_t i = 0; i < kGuardBytes; ++i)
            EXPECT_EQ(op.bytes[op.length + i], kTrafficEmpty) << "behind the buffer";
        return;
    }
    EXPECT_EQ(done.flags, TW_DONE_RECV | (done.imm != 0 ? unsigned{TW_DONE_IMM} : 0U));
    const auto* data = static_cast<const std::byte*>(done.buffer);
    ASSERT_TRUE(data >= op.bytes.data() && data + done.length <= op.bytes.data() + op.length);
    EXPECT_EQ(done.status == TW_ERR_MESSAGE_TRUNCATED, done.length < done.message_length);
    RefMatch match = match_of(op, done, {data, done.length});
    match.offset = static_cast<std::size_t>(data - op.bytes.data());
    check_data(op, match, data, done.length);
    record_of(op).matches.push_back(match);
}

void Traffic::end_peek(TrafficOp& op, const tw_completion_t& done) {
    const std::uint32_t common = TW_DONE_RECV | TW_DONE_PEEK |
                                 (op.is_tagged ? unsigned{TW_DONE_TAGGED} : 0U) |
                                 (done.imm != 0 ? unsigned{TW_DONE_IMM} : 0U);
    EXPECT_EQ(done.flags, common);
    if (ends_badly(op, done))
        return;
    EXPECT_EQ(done.length, done.message_length);
    RefReceive& record = record_of(op);
    const std::size_t copied =
        done.buffer == nullptr ? 0 : std::min(done.message_length, op.length);
    RefMatch match = match_of(op, done, {op.bytes.data(), copied});
    match.told = record.posted;
    if (done.buffer != nullptr) {
        EXPECT_EQ(done.buffer, op.bytes.data());
        check_data(op, match, op.bytes.data(), copied);
    }
    record.matches.push_back(match);
    EXPECT_EQ(done.message != nullptr, (op.flags & TW_OP_CLAIM) != 0);
    if ((op.flags & TW_OP_CLAIM) == 0)
        return;
    op.message = done.message;
    op.node->claimed.push_back(&op);
}

}  // namespace tagwire::test
