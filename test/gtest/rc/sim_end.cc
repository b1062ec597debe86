// SPDX-License-Identifier: BSD-3-Clause
// The end of a simulation: nothing may be missing.
#include <algorithm>
#include <functional>

#include "rc/sim.hpp"

namespace tagwire::test {

void Sim::settle() {
    is_settling_ = true;
    std::string left;
    for (std::uint64_t i = 0; i < kSettleSteps && ok(); ++i) {
        for (const auto& node : nodes_) {
            progress(*node);
            if (node->is_alive) {
                release(*node);
                fetch(*node);
            }
        }
        if (i % 64 == 0 && (left = missing()).empty())
            return;
    }
    if (ok())
        FAIL() << "after " << kSettleSteps << " steps: " << left;
}

std::string Sim::missing() {
    for (const auto& node : nodes_)
        if (node->is_alive && (!node->held.empty() || !node->fetches.empty()))
            return "node " + std::to_string(node->id) + " has something to do";
    for (const auto& link : links_) {
        const std::string left = missing_of(*link);
        if (!left.empty())
            return "link " + std::to_string(link->id) + " from " + std::to_string(link->from->id) +
                   " to " + std::to_string(link->to->id) + ": " + left;
    }
    return "";
}

std::string Sim::missing_of(SimLink& link) {
    std::erase_if(link.ops, [](const SimOp* op) { return op->is_over(); });
    if (!link.ops.empty()) {
        const SimOp& op = *link.ops.front();
        const auto sent = std::ranges::find(link.tagged, &op, &SimMessage::op);
        const bool is_taken = sent != link.tagged.end() && sent->position != 0;
        return "op " + std::to_string(op.number) + " of kind " +
               std::to_string(static_cast<int>(op.kind)) + " has not completed" +
               (is_taken ? "; its message was taken" : "");
    }
    if (link.ep != nullptr) {
        for (const auto& request : link.requests)
            if (!request->is_done)
                return "a pending request waits";
    }
    if (link.may_fail)
        return link.ep == nullptr || link.has_failed ? "" : "nothing was heard of its failure";
    if (link.ams_seen < link.ams.size())
        return "active message " + std::to_string(link.ams_seen) + " did not arrive";
    return unexcused(link);
}

/// Tagged messages that are missing, but for those that receives cancelled by force may have taken:
/// each of these one.
std::string Sim::unexcused(const SimLink& link) {
    const auto& excuses = link.to->may_be_lost;
    std::vector<const SimMessage*> taken(excuses.size());
    std::vector<bool> was_tried;
    const std::function<bool(const SimMessage&)> excuse = [&](const SimMessage& message) {
        for (std::size_t i = 0; i < excuses.size(); ++i) {
            if (was_tried[i] || ((excuses[i].first ^ message.tag) & excuses[i].second) != 0)
                continue;
            was_tried[i] = true;
            if (taken[i] == nullptr || excuse(*taken[i])) {
                taken[i] = &message;
                return true;
            }
        }
        return false;
    };
    for (const SimMessage& message : link.tagged) {
        was_tried.assign(excuses.size(), false);
        if (message.position == 0 && !excuse(message)) {
            return "tagged message " + std::to_string(message.tag >> 32) + " of kind " +
                   std::to_string(static_cast<int>(message.kind)) + " and " +
                   std::to_string(message.bytes) + " bytes did not arrive; " +
                   std::to_string(excuses.size()) + " receives were cancelled by force";
        }
    }
    return "";
}

void Sim::settle_receives() {
    for (const auto& node : nodes_) {
        for (SimReceive* receive : std::deque(node->posted)) {
            ucs_status_t status = UCS_ERR_NO_RESOURCE;
            for (int i = 0; i < 100000 && status == UCS_ERR_NO_RESOURCE && receive->ended == 0;
                 ++i) {
                status = uct_iface_tag_recv_cancel(node->entity->iface(), receive, 0);
                receive->is_cancelled = receive->is_cancelled || status == UCS_OK;
                progress(*node);
            }
        }
    }
    const auto is_over = [](const auto& receive) {
        return receive->ended == 1 || receive->is_forced || !receive->node->is_alive;
    };
    for (std::uint64_t i = 0; i < kSettleSteps && ok() && !std::ranges::all_of(receives_, is_over);
         ++i) {
        for (const auto& node : nodes_)
            progress(*node);
    }
    EXPECT_TRUE(std::ranges::all_of(receives_, is_over)) << "a cancelled receive did not end";
}

void Sim::check_order() {
    for (const auto& link : links_) {
        std::uint64_t newest = 0;
        bool is_lost = false;
        for (const SimMessage& message : link->tagged) {
            if (message.position == 0) {
                is_lost = true;
                continue;
            }
            ASSERT_LT(newest, message.position)
                << "tagged message " << (message.tag >> 32) << " of link " << link->id
                << " was taken before one sent earlier";
            // The messages that arrived over a failed link are the first ones sent; a node that is
            // gone may have had a rendezvous under way before that.
            ASSERT_FALSE(is_lost && link->may_fail && link->to->is_alive &&
                         link->to->may_be_lost.empty())
                << "one before " << (message.tag >> 32) << " of link " << link->id << " is missing";
            newest = message.position;
        }
    }
}

}  // namespace tagwire::test
