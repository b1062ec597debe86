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
        for (const auto& node : nodes_) {
            if (node->is_alive())
                receive_the_rest(*node);
        }
        forget_ended();
        return is_everything_received();
    });
    cancel_the_rest();
    run_until("every operation has ended", [&] { return is_all_over(); });
    if (ok())
        close_all();
    for (int round = 0; round < kTrafficRoundsOfNothing && ok(); ++round) {
        for (const auto& node : nodes_) {
            if (node->is_alive())
                progress(*node);
        }
    }
    forget_ended();
    if (ok())
        check_reference();
}

void Traffic::run_until(const char* what, const std::function<bool()>& is_over) {
    for (int round = 0; ok(); ++round) {
        if (round % kTrafficRoundsPerLook == 0 && is_over())
            return;
        for (const auto& node : nodes_) {
            if (node->is_alive())
                progress(*node);
        }
        if (round == kTrafficRoundsMax) {
            ADD_FAILURE() << "it does not come about that " << what << ": " << missing();
            return;
        }
    }
}

/// One receive of anything in either name space, and what was claimed.
void Traffic::receive_the_rest(TrafficNode& node) {
    claim(node);
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
            for (const RefMessage& message : space.messages())
                wanted += !message.is_cancelled && !message.is_excused;
            for (const RefReceive& receive : space.receives()) {
                if (receive.kind == RefKind::kPeek)
                    continue;
                for (const RefMatch& match : receive.matches)
                    got += nodes_[match.envelope.sender]->is_alive();
            }
            if (got < wanted)
                return false;
        }
    }
    return true;
}

std::string Traffic::text(const TrafficOp& op) {
    constexpr const char* kKinds[] = {"send",  "receive", "receive of many", "peek", "claim",
                                      "flush", "close"};
    constexpr const char* kReports[] = {"polled", "called back", "tested", "told nobody"};
    std::ostringstream out;
    out << kKinds[static_cast<int>(op.kind)] << " of worker " << op.node->index << ", peer "
        << static_cast<int>(op.peer) << ", flags 0x" << std::hex << op.flags << std::dec << ", "
        << op.length << " bytes, " << kReports[static_cast<int>(op.report)]
        << (op.cancelled != kNever ? ", cancelled" : "");
    return out.str();
}

std::string Traffic::missing() const {
    std::string all;
    for (const auto& op : ops_) {
        if (!op->is_over() && op->is_open)
            all += "\n  " + text(*op);
    }
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
            TrafficOp& op = new_op(*node, Kind::kClose);
            op.peer = peer;
            draw_report(op);
            op.mark = node->sent[peer].size();
            ++clock_;
            EXPECT_NE(post(op,
                           [&](const tw_op_t* what, tw_request_h* request_p) {
                               return tw_ep_close(ep, 0, what, request_p);
                           }),
                      TW_ERR_NO_RESOURCE);
        }
    }
    run_until("every endpoint is closed", [&] { return is_all_over(); });
}

void Traffic::check_reference() {
    for (const auto& node : nodes_) {
        if (!node->is_alive())
            continue;
        EXPECT_EQ(node->spaces[0].check(), "") << "untagged, worker " << node->index;
        EXPECT_EQ(node->spaces[1].check(), "") << "tagged, worker " << node->index;
        tw_counter_t counters[64];
        unsigned count = 64;
        EXPECT_EQ(tw_worker_counters(node->worker.get(), counters, &count), TW_OK);
        for (unsigned i = 0; i < count && !is_anybody_dead(); ++i) {
            if (std::string_view(counters[i].name) == "garbage") {
                EXPECT_EQ(counters[i].value, 0U) << "worker " << node->index;
            }
        }
    }
}

}  // namespace tagwire::test
