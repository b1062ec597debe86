// SPDX-License-Identifier: BSD-3-Clause
// rc against a hostile program: plain queue pairs that are connected to an endpoint and send
// arbitrary messages. The other endpoint of the interface and its buffers are unaffected.
#include <endian.h>
#include <gtest/gtest.h>
#include <infiniband/tm_types.h>

#include <cstring>
#include <random>

#include "common/seeds.hpp"
#include "ib/nonsense.hpp"
#include "ib/siege.hpp"
#include "ib/stranger.hpp"
#include "uct/ib/message.hpp"

namespace tagwire::test {
namespace {

EntityOptions rc_options_of(const char* matching) {
    EntityOptions options;
    options.md_config = {{"IB_MTU", "1024"}};  // as the stranger's queue pairs have it
    // As few receive buffers as there may be, so that a lost one is noticed.
    options.iface_config = {{"RC_TAG_MATCHING", matching}, {"RC_SEG_BYTES", "512"},
                            {"RC_RX_DEPTH", "2"},          {"RC_RNDV_MAX", "1"},
                            {"RC_RNR_TIMER", "10us"},      {"RC_KEEPALIVE_INTERVAL", "0"}};
    return options;
}

/// A stranger that is replaced when its endpoint failed.
class World : public Siege {
  public:
    explicit World(const char* matching, std::uint64_t seed = 1)
        : Siege("rc", rc_options_of(matching), seed) {
        invite();
    }
    ~World() override { expel(); }

    /// Sends, and makes a new connection when the endpoint did not survive it.
    void send(Message message, bool to_other = false) {
        until([&] { return !stranger->is_full() || has_failed(); });
        if (!has_failed()) {
            const std::size_t bytes = std::min(message.bytes.size(), Stranger::kMessageBytesMax);
            std::copy_n(message.bytes.data(), bytes, stranger->place());
            message.way.to_other = to_other;
            stranger->send(bytes, message.way);
        }
        for (std::uint64_t i = random() % 4; i > 0; --i)
            step();
        if (has_failed())
            replace();
    }

    /// All messages sent were handled, or the endpoint failed.
    void settle() {
        until([&] { return stranger->is_idle() || has_failed(); });
        for (int i = 0; i < 100; ++i)
            step();
    }

    [[nodiscard]] bool has_failed() const {
        for (const PeerError& error : victim.errors)
            if (error.ep == ep_)
                return true;
        return false;
    }

    void replace() {
        expel();
        victim.errors.clear();
        ++replaced;
        invite();
    }

    /// Endpoints go, and every buffer of the interface is posted.
    void check_nothing_is_lost() {
        settle();
        expel();
        until([&] { return fact_of(victim, "endpoints") == 1; });
        EXPECT_EQ(1, fact_of(victim, "endpoints"));
        check_nothing_is_held();
    }

    void step() override {
        Siege::step();
        if (stranger != nullptr)
            stranger->progress();
    }

    std::unique_ptr<Stranger> stranger;
    int replaced = 0;

  private:
    void invite() {
        uct_ep_params_t params{};
        params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
        params.iface = victim.iface();
        uct_ep_h ep = nullptr;
        require_ok(uct_ep_create(&params, &ep), "uct_ep_create");
        ep_ = Endpoint(ep);
        stranger = std::make_unique<Stranger>(*md_);
        stranger->connect(victim, ep, 512);
    }

    void expel() {
        stranger.reset();
        ep_.reset();
    }

    VhcaMd md_;
    Endpoint ep_;  // the one that the stranger is connected to
};

Nonsense nonsense_of(World& world) {
    return {world.random,
            [&world] {
                return Place{world.stranger->memory_address(), world.stranger->rkey()};
            },
            place_of(world.victim, world.exposed)};
}

Message am_of(std::size_t bytes) {
    Message am;
    const ib::Prefix head{IBV_TMH_NO_TAG, ib::MessageKind::kAm, Entity::kAmId, 0, 0};
    am.bytes.resize(bytes);
    std::memcpy(am.bytes.data(), &head, sizeof head);
    return am;
}

std::uint32_t imm_of(const ib::BareHead& head) {
    return htobe32(head.imm());
}

class RcHostile : public ::testing::TestWithParam<const char*> {};

TEST_P(RcHostile, nonsense_harms_nobody_else) {
    for_each_seed(4, [](std::uint64_t seed) {
        World world(GetParam(), seed);
        Nonsense nonsense = nonsense_of(world);
        for (int i = 0; i < 1500; ++i) {
            world.send(nonsense.next(), world.random() % 4 == 0);
            if (i % 100 == 0) {
                world.check_good_peer();
                if (HasFailure())
                    return;
            }
        }
        world.check_nothing_is_lost();
        EXPECT_GT(world.replaced, 0);
    });
}

// The endpoint's other queue pair gets ends of rendezvous only, into buffers that nobody may keep.
TEST_P(RcHostile, no_message_comes_where_ends_of_rendezvous_are_told) {
    World world(GetParam());
    for (int i = 0; i < 8; ++i) {
        world.send(am_of(64), true);
        world.send(am_of(64), true);
    }
    world.settle();
    EXPECT_EQ(world.stranger->has_two() ? 0U : 16U, world.victim.am_count);
    world.check_nothing_is_lost();
}

// A bare message has its head in the immediate. One whose reserved bit is set is dropped; a count
// of messages that were never sent is dropped, and the message is delivered.
TEST_P(RcHostile, a_bare_message_says_all_in_its_immediate) {
    World world(GetParam());
    Message bare = am_of(64);
    bare.way.imm = imm_of({0x5a, Entity::kAmId, 0});
    world.send(bare);
    world.settle();
    ASSERT_EQ(1U, world.victim.am_count);
    Bytes expected = bare.bytes;
    expected[0] = std::byte{0x5a};
    EXPECT_EQ(expected, world.victim.am.back().bytes);

    bare.way.imm = imm_of({0, Entity::kAmId, 77});
    world.send(bare);
    bare.way.imm = imm_of({0, Entity::kAmId, 0}) | htobe32(1U << 23);
    world.send(bare);
    world.settle();
    EXPECT_EQ(2U, world.victim.am_count);
    world.check_good_peer();
    world.check_nothing_is_lost();
}

// A write with an immediate takes a receive buffer, and tells the length of what went elsewhere.
TEST_P(RcHostile, a_write_with_an_immediate_is_no_message) {
    World world(GetParam());
    for (int i = 0; i < 8; ++i)  // each buffer has held a message
        world.send(am_of(64));
    world.settle();
    const std::uint64_t seen = world.victim.am_count;
    Message write;
    write.bytes.resize(Stranger::kMessageBytesMax);
    write.way.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    write.way.imm = 7;
    write.way.remote_addr = world.exposed.address();
    const RemoteKey key(world.victim, world.exposed.packed_rkey());
    write.way.rkey = static_cast<std::uint32_t>(key.get());
    for (int i = 0; i < 8; ++i)
        world.send(write);
    world.settle();
    EXPECT_EQ(seen, world.victim.am_count);
    world.check_nothing_is_lost();
}

INSTANTIATE_TEST_SUITE_P(Rc, RcHostile, ::testing::Values("device", "software"),
                         [](const auto& parameter) { return std::string(parameter.param); });

}  // namespace
}  // namespace tagwire::test
