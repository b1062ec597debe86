// SPDX-License-Identifier: BSD-3-Clause
// The end of a run: everything is received, nothing is outstanding, and the reference is asked.
#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>

#include "protocols/traffic.hpp"

namespace tagwire::test {

namespace {

constexpr int kTrafficRoundsMax = 30'000'000;
constexpr int kTrafficRoundsPerLook = 64;
constexpr int kTrafficRoundsOfNothing = 300;

}  // namespace

void Traffic::settle() {
    is_settling_ = true;
    for (const auto& node : nodes_)
        node->pause = 0;
    run_until("everything is received", [&] {
        for (const auto& node : nodes_)
            if (node->is_alive())
                receive_the_rest(*node);
        forget_ended();
        return is_everything_received() && ams_.is_quiet();
    });
    if (ok())
        flush_all();
    cancel_the_rest();
    run_until("every operation has ended", [&] { return is_all_over(); });
    if (ok())
        close_all();
    for (int round = 0; round < kTrafficRoundsOfNothing && ok(); ++round) {
        for (const auto& node : nodes_)
            if (node->is_alive())
                progress(*node);
    }
    forget_ended();
    if (ok())
        check_reference();
    if (ok())
        memory_.check();
}

void Traffic::run_until(const char* what, const std::function<bool()>& is_over) {
    for (int round = 0; ok(); ++round) {
        if (round % kTrafficRoundsPerLook == 0 && is_over())
            return;
        for (const auto& node : nodes_)
            if (node->is_alive())
                progress(*node);
        if (round == kTrafficRoundsMax) {
            ADD_FAILURE() << "it does not come about that " << what << ": " << missing();
            return;
        }
    }
}

/// Puts and atomics that have ended are there afterwards.
void Traffic::flush_all() {
    std::vector<std::pair<TrafficNode*, unsigned>> left;
    for (const auto& node : nodes_)
        for (unsigned peer = 0; peer < nodes_.size() && node->is_alive(); ++peer)
            left.emplace_back(node.get(), peer);
    const auto is_done = [&](const std::pair<TrafficNode*, unsigned>& way) {
        return way.first->eps[way.second] == nullptr ||
               flush_to(*way.first, way.second) != TW_ERR_NO_RESOURCE;
    };
    run_until("all is flushed", [&] {
        std::erase_if(left, is_done);
        return left.empty();
    });
    const auto is_flushed = [](const auto& op) {
        return op->kind != Kind::kFlush || op->is_over() || !op->is_open;
    };
    run_until("every flush has ended, and every notice has come", [&] {
        // As in close_all(): a flush waits for the match of a message that was excused, too.
        for (const auto& node : nodes_)
            if (node->is_alive() && breaks_ > 0)
                receive_the_rest(*node);
        return std::ranges::all_of(ops_, is_flushed) && memory_.is_quiet();
    });
}

/// One receive of anything in either name space, and what was claimed.
void Traffic::receive_the_rest(TrafficNode& node) {
    claim(node);
    ams_.use_kept(node);
    for (const bool is_tagged : {false, true}) {
        TrafficOp*& rest = node.rest[is_tagged ? 1 : 0];
        if (rest != nullptr && !rest->is_over())
            continue;
        TrafficOp& op = new_op(node, Kind::kReceive);
        op.is_tagged = is_tagged;
        draw_report(op);
        op.mask = is_tagged ? 0 : ~std::uint64_t{0};
        op.length = options_.bytes_max;
        op.record =
            node.spaces[is_tagged ? 1 : 0].add(RefReceive{.mask = op.mask, .posted = ++clock_});
        rest = &op;
        post_receive(op);
    }
}

/// The sends of the living have ended, and what they sent to the living was matched.
bool Traffic::is_everything_received() {
    for (const auto& op : ops_) {
        const bool is_receive = op->kind == Kind::kReceive || op->kind == Kind::kMany;
        if (op->is_open && !op->is_over() && !is_receive)
            return false;
    }
    for (const auto& node : nodes_) {
        if (!node->is_alive())
            continue;
        if (!node->claimed.empty())
            return false;
        for (Reference& space : node->spaces) {
            std::size_t wanted = 0, got = 0;
            std::vector<char> has_excused(nodes_.size());  // what says nothing may be any of them
            for (const RefMessage& message : space.messages()) {
                wanted += !message.is_cancelled && !message.is_excused;
                has_excused[message.envelope.sender] |= message.is_excused;
            }
            const auto counts = [&](const RefMatch& match) {
                return match.message == kNone ? has_excused[match.envelope.sender] == 0
                                              : !space.message(match.message).is_excused;
            };
            for (const RefReceive& receive : space.receives())
                if (receive.kind != RefKind::kPeek)
                    got += static_cast<std::size_t>(std::ranges::count_if(receive.matches, counts));
            if (got < wanted)
                return false;
        }
    }
    return true;
}

std::string Traffic::text(const TrafficOp& op) {
    constexpr const char* kNames[] = {
        "send",  "receive", "receive of many", "peek",
        "claim", "flush",   "close",           "put",
        "get",   "atomic",  "active message",  "receive of an active message"};
    constexpr const char* kReports[] = {"polled", "called back", "tested", "told nobody"};
    std::ostringstream out;
    out << kNames[static_cast<int>(op.kind)] << " of worker " << op.node->index << ", peer "
        << static_cast<int>(op.peer) << ", flags 0x" << std::hex << op.flags << std::dec << ", "
        << op.length << " bytes, " << kReports[static_cast<int>(op.report)]
        << (op.cancelled != kNever ? ", cancelled" : "");
    return out.str();
}

std::string Traffic::missing() const {
    std::string all;
    for (const auto& op : ops_)
        if (!op->is_over() && op->is_open)
            all += "\n  " + text(*op);
    const auto tell = [](void* arg, const char* key, const char* value) {
        *static_cast<std::string*>(arg) += std::string(" ") + key + "=" + value;
    };
    for (const auto& node : nodes_) {
        all += "\n  worker " + std::to_string(node->index) + ":";
        if (node->is_alive()) {
            EXPECT_EQ(tw_worker_describe(node->worker.get(), tell, &all), TW_OK);
        }
    }
    return all;
}

bool Traffic::is_all_over() const {
    return std::ranges::all_of(ops_, [](const auto& op) { return op->is_over() || !op->is_open; });
}

void Traffic::cancel_the_rest() {
    ++clock_;
    for (const auto& op : ops_) {
        if (!op->is_over() && op->request != nullptr && op->node->is_alive() && ok()) {
            op->cancelled = std::min(op->cancelled, clock_);
            EXPECT_EQ(tw_request_cancel(op->request), TW_OK);
        }
    }
}

/// Half of the runs end with closing, the others with destroying.
void Traffic::close_all() {
    if (chance(2))
        return;
    for (const auto& node : nodes_) {
        for (unsigned peer = 0; peer < nodes_.size() && node->is_alive(); ++peer) {
            const tw_ep_h ep = node->eps[peer];
            if (ep == nullptr || !nodes_[peer]->is_alive())
                continue;
            close_gracefully(*node, peer);
            EXPECT_EQ(node->eps[peer], nullptr) << "an endpoint cannot be closed";
        }
    }
    const auto is_closed = [](const auto& op) { return op->kind != Kind::kClose || op->is_over(); };
    run_until("every endpoint is closed", [&] {
        // A message that was excused may be there all the same, and its sender waits for its match.
        for (const auto& node : nodes_)
            if (node->is_alive() && breaks_ > 0)
                receive_the_rest(*node);
        return std::ranges::all_of(ops_, is_closed);
    });
    cancel_the_rest();
    run_until("every receive is withdrawn", [&] { return is_all_over(); });
}

void Traffic::check_reference() {
    for (const auto& node : nodes_) {
        if (!node->is_alive())
            continue;
        EXPECT_EQ(node->spaces[0].check(), "") << "untagged, worker " << node->index;
        EXPECT_EQ(node->spaces[1].check(), "") << "tagged, worker " << node->index;
        tw_worker_counter_t counters[64];
        unsigned count = 64;
        EXPECT_EQ(tw_worker_counters(node->worker.get(), counters, &count), TW_OK);
        // The last word of a connection may come after the first of the next.
        const bool is_clean = !is_anything_broken() && !options_.has_closes;
        for (unsigned i = 0; i < count && is_clean; ++i)
            if (std::string_view(counters[i].name) == "garbage") {
                EXPECT_EQ(counters[i].value, 0U) << "worker " << node->index;
            }
    }
}

}  // namespace tagwire::test
