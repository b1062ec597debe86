// SPDX-License-Identifier: BSD-3-Clause
// Endpoints that are closed, by force too, and made again, and those that fail.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "protocols/traffic.hpp"

namespace tagwire::test {

void Traffic::close(TrafficNode& node) {
    const auto peer = static_cast<unsigned>(pick(nodes_.size()));
    const tw_ep_h ep = node.eps[peer];
    if (ep == nullptr || !nodes_[peer]->is_alive() || std::ranges::count(node.failed, ep) > 0)
        return;
    if (options_.has_breaks && chance(3))
        return close_by_force(node, peer);
    close_gracefully(node, peer);
}

void Traffic::close_gracefully(TrafficNode& node, unsigned peer) {
    TrafficOp& op = new_op(node, Kind::kClose);
    op.peer = peer;
    draw_report(op);
    op.mark = node.sent[peer].size();
    op.memory_mark = memory_.mark(node, peer);
    memory_.forget_key(node, peer);
    ++clock_;
    make_old(node, *nodes_[peer]);
    const tw_ep_h ep = std::exchange(node.eps[peer], nullptr);
    node.closing[peer] = node.closed[peer] = 1;
    tw_status_t answer = TW_OK;
    const tw_status_t status = post(op, [&](const tw_op_t* what, tw_request_h* request_p) {
        return answer = tw_ep_close(ep, 0, what, request_p);
    });
    if (status != TW_ERR_NO_RESOURCE)
        return;
    node.closing[peer] = 0;
    // Else it had failed, and the program has not been told: it is closed.
    if (answer == TW_ERR_NO_RESOURCE || is_for_lack_of_memory(answer))
        node.eps[peer] = ep;
    else
        excuse(node, *nodes_[peer]);
}

void Traffic::end_close(TrafficOp& op, const tw_completion_t& done) {
    op.node->closing[op.peer] = 0;
    if (!is_broken(op))
        return end_flush(op, done);
    EXPECT_EQ(done.flags, unsigned{TW_DONE_FLUSH});
    excuse(*op.node, *nodes_[op.peer]);
}

/// Anything under way between the two, in either direction, may be lost; the peer learns of the
/// close when it is spoken to again.
void Traffic::close_by_force(TrafficNode& node, unsigned peer) {
    ++clock_;
    ++breaks_;
    memory_.forget_key(node, peer);
    excuse(node, *nodes_[peer]);
    EXPECT_EQ(
        tw_ep_close(std::exchange(node.eps[peer], nullptr), TW_EP_CLOSE_FORCE, nullptr, nullptr),
        TW_OK);
    ep_to(node, peer);
}

/// Over dc, where the peer reads from no queue pair of its own: memory with a handle until that is
/// unmapped, other memory while the cache has its pages registered for another operation.
bool Traffic::may_be_read_still(const TrafficOp& op) const {
    static const bool has_dc = [] {
        const char* const transports = std::getenv("TAGWIRE_TEST_TRANSPORTS");
        return transports == nullptr || std::strstr(transports, "dc") != nullptr;
    }();
    static const bool has_cache = std::getenv("TAGWIRE_REG_CACHE") != nullptr;
    return has_dc && (has_cache || op.mapped != nullptr) && op.kind == Kind::kSend && is_broken(op);
}

void Traffic::close_failed(TrafficNode& node) {
    for (const tw_ep_h ep : node.failed) {
        const auto found = std::ranges::find(node.eps, ep);
        ASSERT_NE(found, node.eps.end()) << "an endpoint failed that is none";
        const auto peer = static_cast<unsigned>(found - node.eps.begin());
        EXPECT_TRUE(!nodes_[peer]->is_alive() || node.broken[peer] != 0);
        *found = nullptr;
        memory_.forget_key(node, peer);
        excuse(node, *nodes_[peer]);
        const bool is_forced = chance(2);
        const unsigned flags = is_forced ? unsigned{TW_EP_CLOSE_FORCE} : 0U;
        const tw_status_t status = tw_ep_close(ep, flags, nullptr, nullptr);
        // In order it is the failure, unless nothing was sent.
        EXPECT_TRUE(status == TW_OK || (!is_forced && status != TW_ERR_NO_RESOURCE))
            << tw_status_string(status);
    }
    node.failed.clear();
}

void Traffic::make_old(TrafficNode& a, TrafficNode& b) {
    for (const auto& [from, to] : {std::pair{&a, &b}, {&b, &a}})
        for (const auto& [is_tagged, record] : from->sent[to->index])
            to->spaces[is_tagged ? 1 : 0].message(record).is_old = true;
}

void Traffic::excuse(TrafficNode& a, TrafficNode& b) {
    make_old(a, b);
    memory_.excuse(a.index, b.index);
    ams_.excuse(a.index, b.index);
    for (const auto& [from, to] : {std::pair{&a, &b}, {&b, &a}}) {
        from->broken[to->index] = 1;
        for (const auto& [is_tagged, record] : from->sent[to->index])
            to->spaces[is_tagged ? 1 : 0].message(record).is_excused = true;
    }
}

}  // namespace tagwire::test
