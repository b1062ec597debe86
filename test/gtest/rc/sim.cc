// SPDX-License-Identifier: BSD-3-Clause
// The simulation's world: nodes, links, and those that go.
#include "rc/sim.hpp"

#include <algorithm>

namespace tagwire::test {

// ---- Set-up

Sim::Sim(std::uint64_t seed, const Options& options) : random_(seed), options_(options) {
    open(options);
}

// Nodes close their interfaces with whatever is still under way.
Sim::~Sim() {
    is_settling_ = true;
    for (const auto& node : nodes_) {
        for (const SimHeld& held : std::exchange(node->held, {}))
            uct_iface_release_desc(held.descriptor);
    }
    for (const auto& link : links_) {
        if (link->ep != nullptr && link->from->is_alive) {
            lose(*link);
            destroy_link(*link);
        }
    }
    for (const auto& node : nodes_)
        node->entity->close_iface();
    for (const auto& link : links_)
        link->key.reset();
    for (const auto& op : ops_) {
        EXPECT_TRUE(op->is_over()) << "op " << op->number << " did not end with its interface";
        op->buffer.reset();
    }
    for (const auto& receive : receives_)
        receive->buffer.reset();
    for (const auto& node : nodes_)
        node->memory.reset();
}

void Sim::open(const Options& options) {
    seg_bytes_ = 128U << pick(5);
    const unsigned nodes = 2 + static_cast<unsigned>(pick(3));
    for (unsigned i = 0; i < nodes; ++i) {
        const auto number = [&](const char* name, std::uint64_t value) {
            return std::pair<std::string, std::string>(name, std::to_string(value));
        };
        const std::uint64_t held = 1 + pick(8);
        // Peers may fill the queue, but not so often that one of them gives up while the others
        // take turns.
        const std::uint64_t credits = 1 + pick(pick(2) == 0 ? 4 : 24);
        const std::uint64_t buffers = std::max<std::uint64_t>(8U << pick(3), credits * nodes);
        open_node({number("RC_SEG_BYTES", seg_bytes_),
                   number("RC_TX_DEPTH", 4U << pick(4)),
                   number("RC_TX_SIGNAL", 1 + pick(16)),
                   number("RC_TX_CQ_DEPTH", 64U << pick(3)),
                   number("RC_TX_BUFFERS", 1 + pick(64)),
                   number("RC_RX_DEPTH", buffers),
                   number("RC_RX_HELD", held),
                   number("RC_CREDITS", credits),
                   number("RC_READS", 1 + pick(4)),
                   number("RC_TAG_DEPTH", 1 + pick(pick(2) == 0 ? 4 : 64)),
                   number("RC_RNDV_MAX", 1 + pick(16)),
                   {"RC_TIMEOUT", "1ms"},
                   {"RC_RNR_TIMER", "20ms"},
                   {"RC_KEEPALIVE_INTERVAL", "2ms"},
                   {"RC_TAG_MATCHING", options.has_device_tags ? "auto" : "software"}});
        nodes_.back()->held_max = held;
    }
    for (unsigned a = 0; a < nodes; ++a) {
        for (unsigned b = a; b < nodes; ++b) {
            const unsigned joins = a == b ? (chance(6) ? 1U : 0U) : (chance(4) ? 2U : 1U);
            for (unsigned i = 0; i < joins; ++i)
                join(*nodes_[a], *nodes_[b]);
        }
    }
    ASSERT_LE(links_.size(), kLinksMax);
}

void Sim::open_node(const std::vector<std::pair<std::string, std::string>>& config) {
    auto node = std::make_unique<SimNode>();
    node->id = static_cast<unsigned>(nodes_.size());
    EntityOptions options;
    options.iface_config = config;
    node->entity = std::make_unique<Entity>(resource_of("rc"), options);
    node->entity->keep_record = false;
    node->memory = std::make_unique<Buffer>(*node->entity, kFixedBytes + kLinksMax * kLinkBytes,
                                            Backing::kRegistered);
    fill_pattern(node->memory->span().first(kFixedBytes), node->id);
    std::ranges::fill(node->memory->span().subspan(kFixedBytes), std::byte{0});
    listen(*node);
    nodes_.push_back(std::move(node));
}

void Sim::join(SimNode& a, SimNode& b) {
    Connection both = connect(*a.entity, *b.entity);
    SimLink* made[2];
    for (int i = 0; i < 2; ++i) {
        auto link = std::make_unique<SimLink>();
        link->id = static_cast<unsigned>(links_.size());
        link->from = i == 0 ? &a : &b;
        link->to = i == 0 ? &b : &a;
        Endpoint& end = i == 0 ? both.forward : both.backward;
        link->ep = end.release();
        link->key =
            std::make_unique<RemoteKey>(*link->from->entity, link->to->memory->packed_rkey());
        made[i] = link.get();
        links_.push_back(std::move(link));
    }
    made[0]->back = made[1];
    made[1]->back = made[0];
}

// ---- Running

void Sim::run() {
    const unsigned crash_at =
        options_.has_crash ? static_cast<unsigned>(pick(options_.steps)) : options_.steps;
    for (unsigned i = 0; i < options_.steps && ok(); ++i) {
        if (i == crash_at)
            crash();
        step();
    }
    if (ok())
        settle();
    if (ok())
        settle_receives();
    if (ok())
        check_order();
}

void Sim::step() {
    SimNode& node = *nodes_[pick(nodes_.size())];
    const std::uint64_t what = pick(100);
    if (what < 45)
        return progress(node);
    if (what < 46) {
        // It computes, say; not so long that a peer without a receive buffer gives up.
        if (chance(2))
            node.pause = static_cast<unsigned>(pick(60));
        return;
    }
    if (!node.is_alive)
        return;
    if (what < 58)
        return post(node);
    if (what < 61)
        return cancel(node);
    if (what < 66)
        return release(node);
    if (what < 69)
        return fetch(node);
    act();
}

void Sim::progress(SimNode& node) {
    if (!node.is_alive)
        return;
    if (node.pause > 0 && !is_settling_) {
        --node.pause;
        return;
    }
    node.entity->progress();
}

// ---- Ends

/// Its operations may end with an error from now on, and what it sends may get lost.
void Sim::lose(SimLink& link) {
    link.may_fail = true;
    link.back->may_fail = true;
}

// An interface is closed with all that it has under way, or one of its endpoints is.
void Sim::crash() {
    SimNode& node = *nodes_[pick(nodes_.size())];
    const bool is_one = chance(3);
    const bool is_tidy = chance(2);
    std::vector<SimLink*> mine;
    for (const auto& link : links_) {
        if (link->from == &node && link->ep != nullptr)
            mine.push_back(link.get());
    }
    if (mine.empty())
        return;
    if (is_one) {
        SimLink& link = *mine[pick(mine.size())];
        lose(link);
        destroy_link(link);
        return;
    }
    for (SimLink* link : mine)
        lose(*link);
    for (const SimHeld& held : std::exchange(node.held, {}))
        uct_iface_release_desc(held.descriptor);
    if (is_tidy) {
        for (SimLink* link : mine)
            destroy_link(*link);
    }
    node.is_alive = false;
    node.entity->close_iface();
    for (SimLink* link : mine) {
        link->ep = nullptr;
        for (const SimOp* op : link->ops)
            EXPECT_TRUE(op->is_over()) << "op " << op->number << " outlived its interface";
    }
    node.posted.clear();
    node.fetches.clear();
}

void Sim::destroy_link(SimLink& link) {
    uct_ep_pending_purge(
        link.ep,
        [](uct_pending_req_t* self, void*) { static_cast<SimRequest*>(self)->is_done = true; },
        nullptr);
    uct_ep_destroy(std::exchange(link.ep, nullptr));
}

void Sim::on_error(const PeerError& error) {
    const auto at =
        std::ranges::find_if(links_, [&](const auto& link) { return link->ep == error.ep; });
    ASSERT_NE(links_.end(), at) << "an error of an endpoint that is not there";
    SimLink& link = **at;
    EXPECT_TRUE(link.may_fail) << "link " << link.id << " failed though both ends live: "
                               << ucs_status_string(error.status);
    EXPECT_FALSE(link.has_failed) << "link " << link.id << " failed twice";
    EXPECT_LT(error.status, UCS_OK);
    link.has_failed = true;
    for (const SimOp* op : link.ops)
        EXPECT_TRUE(op->is_over())
            << "op " << op->number << " was still under way when the error came";
    uct_ep_pending_purge(
        link.ep,
        [](uct_pending_req_t* self, void*) { static_cast<SimRequest*>(self)->is_done = true; },
        nullptr);
}

}  // namespace tagwire::test
