// SPDX-License-Identifier: BSD-3-Clause
// The simulation's world: nodes, links, and those that go.
#include "rc/sim.hpp"

#include <algorithm>

namespace tagwire::test {

// ---- Set-up

Sim::Sim(std::uint64_t seed, const Options& options) : random_(seed), options_(options) {
    open();
}

// Nodes close their interfaces with whatever is still under way.
Sim::~Sim() {
    is_settling_ = true;
    for (const auto& node : nodes_)
        for (const SimHeld& held : std::exchange(node->held, {}))
            uct_iface_release_desc(held.descriptor);
    for (const auto& link : links_) {
        if (link->ep != nullptr && link->from->is_alive) {
            lose(*link, true);
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

void Sim::open() {
    seg_bytes_ = 128U << pick(5);
    const unsigned nodes = 2 + static_cast<unsigned>(pick(3));
    for (unsigned i = 0; i < nodes; ++i)
        open_node();
    for (unsigned a = 0; a < nodes; ++a) {
        for (unsigned b = a; b < nodes; ++b) {
            const unsigned joins = a == b ? (chance(6) ? 1U : 0U) : (chance(4) ? 2U : 1U);
            for (unsigned i = 0; i < joins * options_.joins; ++i)
                join(*nodes_[a], *nodes_[b]);
        }
    }
    ASSERT_LE(links_.size(), options_.links_max);
}

SimConfig Sim::draw_config(std::uint64_t held) {
    SimConfig config;
    const auto add = [&](const char* name, std::uint64_t value) {
        config.emplace_back(options_.prefix() + name, std::to_string(value));
    };
    // Peers may fill the queue, but not so often that one of them gives up while the others
    // take turns.
    const std::uint64_t credits = 1 + pick(pick(2) == 0 ? 4 : 24);
    const std::uint64_t senders = 4 * options_.joins;
    add("SEG_BYTES", seg_bytes_);
    add("TX_DEPTH", 4U << pick(4));
    const std::uint64_t cq_depth = 64U << pick(3);
    if (!options_.is_connectionless())  // dc derives it from its pool
        add("TX_CQ_DEPTH", cq_depth);
    add("TX_BUFFERS", 1 + pick(64));
    add("RX_DEPTH", std::max<std::uint64_t>(8U << pick(3), credits * senders));
    add("RX_HELD", held);
    add("CREDITS", credits);
    add("READS", 1 + pick(4));
    add("TAG_DEPTH", 1 + pick(pick(2) == 0 ? 4 : 64));
    add("RNDV_MAX", 1 + pick(16));
    config.emplace_back(options_.prefix() + "TIMEOUT", "1ms");
    config.emplace_back(options_.prefix() + "RNR_TIMER", "20ms");
    config.emplace_back(options_.prefix() + "KEEPALIVE_INTERVAL", "2ms");
    config.emplace_back(options_.prefix() + "TAG_MATCHING",
                        options_.has_device_tags ? "auto" : "software");
    config.insert(config.end(), options_.config.begin(), options_.config.end());
    return config;
}

SimNode& Sim::open_node() {
    auto node = std::make_unique<SimNode>();
    node->id = static_cast<unsigned>(nodes_.size());
    node->held_max = 1 + pick(8);
    EntityOptions options;
    options.iface_config = draw_config(node->held_max);
    node->entity = std::make_unique<Entity>(resource_of(options_.transport), options);
    node->entity->keep_record = false;
    node->memory = std::make_unique<Buffer>(
        *node->entity, kFixedBytes + options_.links_max * kLinkBytes, Backing::kRegistered);
    fill_pattern(node->memory->span().first(kFixedBytes), node->id);
    std::ranges::fill(node->memory->span().subspan(kFixedBytes), std::byte{0});
    listen(*node);
    nodes_.push_back(std::move(node));
    return *nodes_.back();
}

void Sim::join(SimNode& a, SimNode& b) {
    Connection both = connect(*a.entity, *b.entity);
    if (both.backward.get() == nullptr)
        both.backward = connect(*b.entity, *a.entity).forward;
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
    const unsigned rebirth_at =
        options_.has_rebirth ? crash_at + static_cast<unsigned>(pick(100)) : options_.steps;
    for (unsigned i = 0; i < options_.steps && ok(); ++i) {
        if (i == crash_at)
            crash();
        if (i == rebirth_at)
            give_birth();
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
void Sim::lose(SimLink& link, bool with_node) {
    link.may_fail = true;
    link.back->may_fail |= with_node || !options_.is_connectionless();
}

// An interface is closed with all that it has under way, or one of its endpoints is.
void Sim::crash() {
    SimNode& node = *nodes_[pick(nodes_.size())];
    const bool is_one = chance(3);
    const bool is_tidy = chance(2);
    std::vector<SimLink*> mine;
    for (const auto& link : links_)
        if (link->from == &node && link->ep != nullptr)
            mine.push_back(link.get());
    if (mine.empty())
        return;
    if (is_one) {
        SimLink& link = *mine[pick(mine.size())];
        lose(link, false);
        destroy_link(link);
        return;
    }
    for (SimLink* link : mine)
        lose(*link, true);
    for (const SimHeld& held : std::exchange(node.held, {}))
        uct_iface_release_desc(held.descriptor);
    if (is_tidy)
        for (SimLink* link : mine)
            destroy_link(*link);
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

/// An interface where one was closed, say: it has the old one's peers, and none of its addresses.
void Sim::give_birth() {
    SimNode& born = open_node();
    for (std::size_t i = 0; i + 1 < nodes_.size(); ++i)
        for (unsigned k = 0; nodes_[i]->is_alive && k < options_.joins; ++k)
            join(born, *nodes_[i]);
    ASSERT_LE(links_.size(), options_.links_max);
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
