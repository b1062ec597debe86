// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/traffic_am.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "protocols/traffic.hpp"

namespace tagwire::test {

namespace {

/// Also of no bytes, which memcmp() is not for.
bool is_at(const void* at, const Bytes& bytes) {
    return std::equal(bytes.begin(), bytes.end(), static_cast<const std::byte*>(at));
}

}  // namespace

void TrafficAm::open() {
    inboxes_.emplace_back();
    TrafficNode& node = *traffic_.nodes_.back();
    EXPECT_EQ(tw_am_register(node.worker.get(), kId, on_message, &node), TW_OK);
}

std::vector<TrafficAm::Record>& TrafficAm::sent(unsigned from, unsigned to) {
    Inbox& inbox = inboxes_[to];
    while (inbox.from.size() <= from) {
        inbox.from.emplace_back();
        inbox.next.push_back({});
    }
    return inbox.from[from];
}

/// The sender, the number among its messages to this receiver, and a pattern.
Bytes TrafficAm::header(unsigned from, std::size_t number, std::size_t length) {
    Bytes bytes = pattern(length, number);
    const auto name = std::uint64_t{from} << 32 | number;
    std::memcpy(bytes.data(), &name, sizeof name);
    return bytes;
}

void TrafficAm::send(TrafficNode& node) {
    const auto peer = static_cast<unsigned>(traffic_.pick(traffic_.nodes_.size()));
    const tw_ep_h ep = traffic_.ep_to(node, peer);
    if (ep == nullptr || !traffic_.nodes_[peer]->is_alive())
        return;
    TrafficOp& op = traffic_.new_op(node, TrafficOp::Kind::kAm);
    op.peer = peer;
    op.length = traffic_.pick_length();
    constexpr std::uint32_t kEnds[] = {TW_OP_INJECT_COMPLETE, TW_OP_TRANSMIT_COMPLETE,
                                       TW_OP_DELIVERY_COMPLETE, TW_OP_MATCH_COMPLETE};
    constexpr std::uint32_t kLevels =
        TW_OP_TRANSMIT_COMPLETE | TW_OP_DELIVERY_COMPLETE | TW_OP_MATCH_COMPLETE;
    if (traffic_.chance(3))
        op.flags |= kEnds[traffic_.pick(std::size(kEnds))];
    if (traffic_.chance(16))
        op.flags |= TW_OP_FENCE;
    if (traffic_.chance(5) && op.length <= 3000)
        op.flags |= TW_OP_INJECT;
    traffic_.draw_report(op);
    std::vector<Record>& records = sent(node.index, peer);
    op.record = records.size();
    // Without a draw, so that seeds stay what they were.
    const bool is_urgent = op.record % 4 == 3 && op.length <= TW_AM_URGENT_MAX - TW_AM_HEADER_MAX &&
                           (op.flags & kLevels) == 0;
    if (is_urgent)
        op.flags |= TW_OP_URGENT;
    const std::size_t header_length = traffic_.chance(2) ? 8 : 8 + traffic_.pick(249);
    records.push_back({op.length, header_length, is_urgent, false, false});
    const Bytes head = header(node.index, op.record, header_length);
    op.bytes = pattern(op.length, op.record);
    traffic_.draw_list(op);
    const tw_status_t status = traffic_.post(op, [&](const tw_op_t* what, tw_request_h* request_p) {
        return op.list.empty() ? tw_am_send(ep, kId, head.data(), head.size(), op.bytes.data(),
                                            op.length, what, request_p)
                               : tw_am_sendv(ep, kId, head.data(), head.size(), op.list.data(),
                                             op.list.size(), what, request_p);
    });
    if (status == TW_ERR_NO_RESOURCE)
        sent(node.index, peer)[op.record].is_excused = true;
    else if ((op.flags & TW_OP_INJECT) != 0)
        std::ranges::fill(op.bytes, std::byte{0xdd});
}

void TrafficAm::give_up(const TrafficOp& op) {
    sent(op.node->index, op.peer)[op.record].is_excused = true;
}

void TrafficAm::end_send(TrafficOp& op, const tw_completion_t& done) {
    EXPECT_EQ(done.flags, unsigned{TW_DONE_SEND | TW_DONE_AM});
    EXPECT_EQ(done.tag, kId);
    if (!traffic_.may_be_read_still(op))
        std::ranges::fill(op.bytes, std::byte{0xdd});
    if (done.status == TW_OK)
        return;
    EXPECT_TRUE(traffic_.is_broken(op) || op.cancelled != kNever) << tw_status_string(done.status);
    give_up(op);
}

void TrafficAm::on_message(void* arg, tw_am_t* am) {
    auto& node = *static_cast<TrafficNode*>(arg);
    node.traffic->ams_.take(node, *am);
}

void TrafficAm::take(TrafficNode& node, tw_am_t& am) {
    std::uint64_t name = 0;
    ASSERT_GE(am.header_length, sizeof name);
    std::memcpy(&name, am.header, sizeof name);
    const auto from = static_cast<unsigned>(name >> 32);
    const std::size_t number = name & UINT32_MAX;
    ASSERT_LT(from, traffic_.nodes_.size());
    EXPECT_EQ(am.source, traffic_.nodes_[from]->id);
    std::vector<Record>& records = sent(from, node.index);
    ASSERT_LT(number, records.size());
    Record& record = records[number];
    EXPECT_FALSE(std::exchange(record.is_handled, true)) << "it was handled twice";
    std::size_t& next = inboxes_[node.index].next[from][record.is_urgent ? 1 : 0];
    EXPECT_GE(number, next) << "it was overtaken";
    next = number + 1;
    EXPECT_EQ(am.length, record.length);
    const Bytes head = header(from, number, record.header_length);
    ASSERT_EQ(am.header_length, head.size());
    EXPECT_EQ(std::memcmp(am.header, head.data(), head.size()), 0);
    const bool is_rndv = (am.flags & TW_AM_RNDV) != 0;
    EXPECT_EQ(is_rndv, am.data == nullptr);
    EXPECT_FALSE(is_rndv && record.is_urgent);
    if (!is_rndv) {
        EXPECT_TRUE(is_at(am.data, pattern(record.length, number)));
    }
    tw_message_h message = am.message;
    if (is_rndv ? traffic_.chance(4) : !traffic_.chance(6))
        return;  // used, or dropped
    if (record.is_urgent)
        return;  // nothing would pause the sender
    if (is_rndv && traffic_.chance(2) && receive(node, {message, nullptr, from, number}))
        return;
    const tw_status_t status = tw_am_keep(&am, &message);
    EXPECT_TRUE(status == TW_OK || Traffic::is_for_lack_of_memory(status));
    if (status == TW_OK)
        inboxes_[node.index].kept.push_back(
            {message, static_cast<const std::byte*>(am.data), from, number});
}

/// False: not now.
bool TrafficAm::receive(TrafficNode& node, const Kept& kept) {
    const std::size_t length = sent(kept.from, node.index)[kept.record].length;
    TrafficOp& op = traffic_.new_op(node, TrafficOp::Kind::kAmReceive);
    op.peer = kept.from;
    op.record = kept.record;
    op.length = length;
    op.bytes.assign(length + Traffic::kGuardBytes, std::byte{0xee});
    traffic_.draw_report(op);
    traffic_.draw_list(op);
    tw_status_t answer = TW_OK;
    traffic_.post(op, [&](const tw_op_t* what, tw_request_h* request_p) {
        answer = op.list.empty() ? tw_am_recv(node.worker.get(), kept.message, op.bytes.data(),
                                              length, what, request_p)
                                 : tw_am_recvv(node.worker.get(), kept.message, op.list.data(),
                                               op.list.size(), what, request_p);
        return answer;
    });
    // Otherwise it is the library's, if only because its sender has gone.
    return answer != TW_ERR_NO_RESOURCE && answer != TW_ERR_NO_MEMORY;
}

void TrafficAm::end_receive(TrafficOp& op, const tw_completion_t& done) {
    EXPECT_EQ(done.flags, unsigned{TW_DONE_RECV | TW_DONE_AM});
    EXPECT_EQ(done.tag, kId);
    if (done.status != TW_OK) {
        const Record& record = sent(op.peer, op.node->index)[op.record];
        EXPECT_TRUE(record.is_excused || traffic_.is_broken(op)) << tw_status_string(done.status);
        return;
    }
    EXPECT_EQ(done.length, op.length);
    EXPECT_TRUE(is_at(op.bytes.data(), pattern(op.length, op.record)));
    EXPECT_EQ(op.bytes[op.length], std::byte{0xee}) << "more was written";
}

bool TrafficAm::use_kept(TrafficNode& node) {
    std::vector<Kept>& all = inboxes_[node.index].kept;
    if (all.empty())
        return false;
    const std::size_t place = traffic_.pick(all.size());
    const Kept kept = all[place];
    if (kept.data != nullptr) {
        const std::size_t length = sent(kept.from, node.index)[kept.record].length;
        EXPECT_TRUE(is_at(kept.data, pattern(length, kept.record))) << "it did not stay";
    }
    // A callback may act, too.
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(place));
    if (traffic_.chance(3)) {
        const tw_status_t status = tw_am_release(node.worker.get(), kept.message);
        EXPECT_TRUE(status == TW_OK || Traffic::is_for_lack_of_memory(status));
        if (status != TW_OK)
            inboxes_[node.index].kept.push_back(kept);
    } else if (!receive(node, kept)) {
        inboxes_[node.index].kept.push_back(kept);
    }
    return true;
}

void TrafficAm::excuse(unsigned a, unsigned b) {
    for (const auto& [from, to] : {std::pair{a, b}, {b, a}})
        for (Record& record : sent(from, to))
            record.is_excused = true;
}

bool TrafficAm::is_quiet() const {
    for (std::size_t to = 0; to < inboxes_.size(); ++to) {
        if (!traffic_.nodes_[to]->is_alive())
            continue;
        const Inbox& inbox = inboxes_[to];
        if (!inbox.kept.empty())
            return false;
        for (const std::vector<Record>& records : inbox.from)
            for (const Record& record : records)
                if (!record.is_handled && !record.is_excused)
                    return false;
    }
    return true;
}

}  // namespace tagwire::test
