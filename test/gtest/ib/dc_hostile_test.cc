// SPDX-License-Identifier: BSD-3-Clause
// dc against a hostile program: an initiator that knows an interface's address and sends arbitrary
// messages there. A target takes messages from any initiator, so none of them is an error of an
// endpoint; the good peer's messages and all buffers are unaffected.
#include <endian.h>
#include <gtest/gtest.h>

#include <cstring>

#include "common/seeds.hpp"
#include "ib/dc_stranger.hpp"
#include "ib/nonsense.hpp"
#include "ib/siege.hpp"
#include "uct/ib/message.hpp"

namespace tagwire::test {
namespace {

constexpr long kWaysBackMax = 64;
constexpr long kChannels = 8;

EntityOptions dc_options_of(const char* matching) {
    EntityOptions options;
    options.md_config = {{"IB_MTU", "1024"}};
    // As few receive buffers as there may be, so that a lost one is noticed.
    options.iface_config = {{"DC_TAG_MATCHING", matching}, {"DC_SEG_BYTES", "512"},
                            {"DC_RX_DEPTH", "2"},          {"DC_CREDITS", "4"},
                            {"DC_RNDV_MAX", "1"},          {"DC_RNR_TIMER", "10us"},
                            {"DC_TIMEOUT", "1ms"},         {"DC_DCIS", "2"},
                            {"DC_STREAMS", "4"},           {"DC_KEEPALIVE_INTERVAL", "5ms"}};
    return options;
}

class DcWorld : public Siege {
  public:
    explicit DcWorld(const char* matching, std::uint64_t seed = 1)
        : Siege("dc", dc_options_of(matching), seed), stranger_(*md_) {
        stranger_.aim(victim);
    }

    void send(const Message& message, bool has_key = true) {
        until([&] { return !stranger_.is_full(); });
        const std::size_t bytes = std::min(message.bytes.size(), Stranger::kMessageBytesMax);
        std::copy_n(message.bytes.data(), bytes, stranger_.place());
        stranger_.send(bytes, message.way, has_key);
        for (std::uint64_t i = random() % 4; i > 0; --i)
            step();
    }

    void check_nothing_is_lost() {
        until([&] { return stranger_.is_idle(); });
        EXPECT_TRUE(stranger_.is_idle());
        check_nothing_is_held();
        EXPECT_TRUE(victim.errors.empty());
        check_bounds();
    }

    /// The cost of all strangers together is bounded.
    void check_bounds() {
        EXPECT_LE(fact_of(victim, "ways_back"), kWaysBackMax + kChannels);
        EXPECT_LE(fact_of(victim, "endpoints"), kWaysBackMax + 2 * kChannels + 1);
    }

    /// The stranger's target; an unknown one; the stranger's with a wrong key; random bytes.
    Bytes return_address() {
        dc::ReturnAddress address = stranger_.address();
        Bytes bytes(sizeof address);
        switch (random() % 5) {
            case 0:
                address.target.number = htobe32(static_cast<std::uint32_t>(random() & 0xffffff));
                address.target.key = random();
                break;
            case 1:
                address.target.key ^= 1;
                break;
            case 2:
                for (std::byte& byte : bytes)
                    byte = static_cast<std::byte>(random());
                return bytes;
            default:
                break;
        }
        std::memcpy(bytes.data(), &address, sizeof address);
        return bytes;
    }

    void step() override {
        Siege::step();
        stranger_.progress();
    }

    DcStranger& stranger() { return stranger_; }

  private:
    VhcaMd md_;
    DcStranger stranger_;
};

Message question_from(const dc::ReturnAddress& from) {
    Message message;
    struct [[gnu::packed]] {
        ib::Prefix head{IBV_TMH_NO_TAG, ib::MessageKind::kAsk, 0, 0, 0};
        dc::Progress progress{0, 0};
        dc::ReturnAddress from;
    } question{.from = from};
    message.bytes.resize(sizeof question);
    std::memcpy(message.bytes.data(), &question, sizeof question);
    return message;
}

class DcHostile : public ::testing::TestWithParam<const char*> {};

TEST_P(DcHostile, nonsense_harms_nobody_else) {
    for_each_seed(4, [](std::uint64_t seed) {
        DcWorld world(GetParam(), seed);
        Nonsense nonsense(
            world.random,
            [&] {
                return Place{world.stranger().memory_address(), world.stranger().rkey()};
            },
            place_of(world.victim, world.exposed));
        nonsense.answer_to = [&] { return world.return_address(); };
        for (int i = 0; i < 1500; ++i) {
            world.send(nonsense.next(), world.random() % 100 != 0);
            if (i % 100 == 0) {
                world.check_good_peer();
                world.check_bounds();
                if (HasFailure())
                    return;
            }
        }
        world.check_nothing_is_lost();
        EXPECT_GT(world.stranger().failures(), 0U);
    });
}

TEST_P(DcHostile, who_does_not_know_the_key_reaches_nobody) {
    DcWorld world(GetParam());
    Message am;
    const ib::Prefix head{IBV_TMH_NO_TAG, ib::MessageKind::kAm, Entity::kAmId, 0, 0};
    am.bytes.resize(64);
    std::memcpy(am.bytes.data(), &head, sizeof head);
    for (int i = 0; i < 8; ++i) {
        world.send(am, false);
        world.until([&] { return world.stranger().is_idle(); });
    }
    EXPECT_EQ(8U, world.stranger().failures());
    EXPECT_EQ(0U, world.victim.am_count);
    world.check_nothing_is_lost();
}

// Each asks once, and cannot be reached.
TEST_P(DcHostile, a_flood_of_return_addresses_costs_no_more_than_some) {
    DcWorld world(GetParam());
    for (std::uint32_t i = 0; i < 2000 && !HasFailure(); ++i) {
        dc::ReturnAddress nobody = world.stranger().address();
        nobody.target.key = htobe64(0x1000 + i);
        world.send(question_from(nobody));
        world.check_bounds();
        if (i % 500 == 0)
            world.check_good_peer();
    }
    world.check_nothing_is_lost();
}

// A count that is wrong, of an endpoint that is there: what it may send stays what it was.
TEST_P(DcHostile, a_grant_for_what_was_not_sent_is_not_believed) {
    DcWorld world(GetParam());
    for (std::uint32_t id = 0; id < 64; ++id) {
        Message message;
        struct [[gnu::packed]] {
            ib::Prefix head{IBV_TMH_NO_TAG, ib::MessageKind::kGrant, 0, 0, 0};
            dc::Progress progress;
        } grant{.progress = {htobe32((id / 8) << 20 | id % 8), htobe32(1U << 20)}};
        message.bytes.resize(sizeof grant);
        std::memcpy(message.bytes.data(), &grant, sizeof grant);
        world.send(message);
    }
    world.check_nothing_is_lost();
}

INSTANTIATE_TEST_SUITE_P(Dc, DcHostile, ::testing::Values("auto", "software"),
                         [](const auto& parameter) { return std::string(parameter.param); });

}  // namespace
}  // namespace tagwire::test
