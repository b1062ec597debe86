// SPDX-License-Identifier: BSD-3-Clause
// Sends, flushes, cancels.
#include <algorithm>
#include <iterator>
#include <string_view>

#include "protocols/traffic.hpp"

namespace tagwire::test {

namespace {

/// Where one way of sending ends and another begins.
constexpr std::size_t kTrafficLengths[] = {0, 8, 96, 112, 1024, 4096, 8192, 16384, 32768, 65536};
constexpr std::size_t kTrafficInjectMax = 4096;
constexpr std::uint64_t kTrafficImm = 0x9e3779b97f4a7c15;

}  // namespace

/// The endpoint to `peer`, made when there is none. Null: it has died, or it is being closed.
tw_ep_h Traffic::ep_to(TrafficNode& node, unsigned peer) {
    if (node.eps[peer] != nullptr || !nodes_[peer]->is_alive() || node.closing[peer] != 0)
        return node.eps[peer];
    const Bytes& address = nodes_[peer]->address;
    const tw_ep_params_t params{.address = address.data(),
                                .address_length = address.size(),
                                .user_data = nodes_[peer].get()};
    const tw_status_t status = tw_ep_create(node.worker.get(), &params, &node.eps[peer]);
    EXPECT_TRUE(status == TW_OK || is_for_lack_of_memory(status)) << tw_status_string(status);
    return node.eps[peer];
}

std::size_t Traffic::pick_length() {
    switch (pick(8)) {
        case 0:
            return pick(options_.bytes_max);
        case 1:
            return pick(2000);
        default: {
            const std::size_t about = kTrafficLengths[pick(std::size(kTrafficLengths))];
            const std::size_t near = about + pick(33);
            return near < 24 ? near : near - 24;
        }
    }
}

void Traffic::draw_message(TrafficOp& op) {
    op.is_tagged = !chance(4);
    op.tag = op.is_tagged ? pick(3) << 40 | pick(4) : 0;
    op.length = pick_length();
    constexpr std::uint32_t kEnds[] = {TW_OP_INJECT_COMPLETE, TW_OP_TRANSMIT_COMPLETE,
                                       TW_OP_DELIVERY_COMPLETE, TW_OP_MATCH_COMPLETE};
    if (chance(3))
        op.flags |= kEnds[pick(std::size(kEnds))];
    // Where some are lost each must tell which it is.
    if (chance(4) || op.node->broken[op.peer] != 0)
        op.flags |= TW_OP_IMM;
    if (chance(16))
        op.flags |= TW_OP_FENCE;
    if (chance(5) && op.length <= kTrafficInjectMax)
        op.flags |= TW_OP_INJECT;
}

/// The bytes of a message: its number, as much as there is room for, and a pattern.
Bytes Traffic::content(std::size_t length, std::size_t number) {
    Bytes bytes = pattern(length, number);
    for (std::size_t i = 0; i < std::min(length, sizeof(std::uint32_t)); ++i)
        bytes[i] = static_cast<std::byte>(number >> (8 * i));
    return bytes;
}

void Traffic::send(TrafficNode& node) {
    const auto peer = static_cast<unsigned>(pick(nodes_.size()));
    const tw_ep_h ep = ep_to(node, peer);
    if (ep == nullptr)
        return;
    TrafficOp& op = new_op(node, Kind::kSend);
    op.peer = peer;
    draw_message(op);
    draw_report(op);
    Reference& to = nodes_[peer]->spaces[op.is_tagged ? 1 : 0];
    op.record = to.messages().size();
    const auto number = static_cast<std::uint32_t>(op.record);
    op.imm = (op.flags & TW_OP_IMM) != 0 ? (number + 1) * kTrafficImm : 0;
    op.bytes = content(op.length, number);
    draw_list(op);
    RefMessage message{.envelope = {node.index, op.tag, op.imm, op.length}, .sent = ++clock_};
    message.is_fenced = (op.flags & TW_OP_FENCE) != 0;
    message.tells_match = (op.flags & (TW_OP_MATCH_COMPLETE | TW_OP_DELIVERY_COMPLETE)) != 0;
    message.is_excused = !nodes_[peer]->is_alive();
    to.add(message);
    node.sent[peer].emplace_back(op.is_tagged, op.record);
    const tw_status_t status = post(op, [&](const tw_op_t* what, tw_request_h* request_p) {
        if (!op.list.empty()) {
            return op.is_tagged
                       ? tw_tag_sendv(ep, op.list.data(), op.list.size(), op.tag, what, request_p)
                       : tw_msg_sendv(ep, op.list.data(), op.list.size(), what, request_p);
        }
        return op.is_tagged ? tw_tag_send(ep, op.bytes.data(), op.length, op.tag, what, request_p)
                            : tw_msg_send(ep, op.bytes.data(), op.length, what, request_p);
    });
    if (status == TW_ERR_NO_RESOURCE) {
        RefMessage& refused = message_of(op);
        refused.is_cancelled = true;
        refused.cancelled = refused.sent;
        refused.has_asked_back = true;
    } else if ((op.flags & TW_OP_INJECT) != 0) {
        std::ranges::fill(op.bytes, std::byte{0xdd});
    }
}

void Traffic::end_send(TrafficOp& op, const tw_completion_t& done) {
    RefMessage& message = message_of(op);
    EXPECT_EQ(done.flags, TW_DONE_SEND | (op.is_tagged ? unsigned{TW_DONE_TAGGED} : 0U) |
                              (op.imm != 0 ? unsigned{TW_DONE_IMM} : 0U));
    EXPECT_EQ(done.tag, op.tag);
    EXPECT_EQ(done.message_length, op.length);
    const tw_ep_h ep = op.node->eps[op.peer];
    EXPECT_TRUE(done.ep == ep || ep == nullptr || is_anything_broken());
    if (!may_be_read_still(op))
        std::ranges::fill(op.bytes, std::byte{0xdd});  // nothing may be read from it any more
    if (done.status == TW_OK) {
        EXPECT_EQ(done.length, op.length);
        if (message.tells_match)
            message.matched = clock_;
    } else if (is_broken(op)) {
        message.is_excused = true;
    } else if (done.status == TW_ERR_CANCELED && op.cancelled != kNever) {
        message.is_cancelled = true;
        message.cancelled = clock_;
    } else {
        ADD_FAILURE() << tw_status_string(done.status);
    }
}

void Traffic::cancel(TrafficNode& node) {
    const std::size_t latest = std::min<std::size_t>(ops_.size(), 100);
    for (std::size_t tries = 8; tries > 0 && latest > 0; --tries) {
        TrafficOp& op = *ops_[ops_.size() - 1 - pick(latest)];
        if (op.node != &node || op.request == nullptr || op.kind == Kind::kClose)
            continue;
        if (op.cancelled == kNever)
            op.cancelled = ++clock_;
        if (op.kind == Kind::kSend)
            message_of(op).has_asked_back = true;
        if (op.kind == Kind::kAm)
            ams_.give_up(op);
        EXPECT_EQ(tw_request_cancel(op.request), TW_OK);
        return;
    }
}

// ---- Flush

void Traffic::flush(TrafficNode& node) {
    const auto peer = static_cast<unsigned>(pick(nodes_.size()));
    if (node.eps[peer] != nullptr)
        flush_to(node, peer);
}

tw_status_t Traffic::flush_to(TrafficNode& node, unsigned peer) {
    TrafficOp& op = new_op(node, Kind::kFlush);
    op.peer = peer;
    draw_report(op);
    op.mark = node.sent[peer].size();
    op.memory_mark = memory_.mark(node, peer);
    ++clock_;
    const tw_ep_h ep = node.eps[peer];
    return post(op, [&](const tw_op_t* what, tw_request_h* request_p) {
        return tw_ep_flush(ep, what, request_p);
    });
}

void Traffic::end_flush(TrafficOp& op, const tw_completion_t& done) {
    EXPECT_EQ(done.flags, unsigned{TW_DONE_FLUSH});
    TrafficNode& to = *nodes_[op.peer];
    if (done.status != TW_OK) {
        EXPECT_TRUE(is_broken(op)) << tw_status_string(done.status);
        return;
    }
    if (!to.is_alive())
        return;
    memory_.flushed(*op.node, op.peer, op.memory_mark);
    const auto& sent = op.node->sent[op.peer];
    for (std::size_t& i = op.node->flushed[op.peer]; i < op.mark; ++i) {
        RefMessage& message = to.spaces[sent[i].first ? 1 : 0].message(sent[i].second);
        if (!message.is_excused)  // else its connection is not the one that was flushed
            message.taken = std::min(message.taken, clock_);
    }
    check_flushed(to);
}

/// All flushed messages have arrived.
void Traffic::check_flushed(TrafficNode& to) {
    std::uint64_t wanted = 0, arrived = 0;
    for (Reference& space : to.spaces)
        for (const RefMessage& message : space.messages())
            wanted += message.taken != kNever && !message.has_asked_back && !message.is_excused;
    tw_worker_counter_t counters[64];
    unsigned count = 64;
    EXPECT_EQ(tw_worker_counters(to.worker.get(), counters, &count), TW_OK);
    for (unsigned i = 0; i < count; ++i) {
        const std::string_view name = counters[i].name;
        if (name == "rx_expected" || name == "rx_unexpected")
            arrived += counters[i].value;
    }
    EXPECT_GE(arrived, wanted) << "a flush has ended too early";
}

}  // namespace tagwire::test
