// SPDX-License-Identifier: BSD-3-Clause
// Polite progress of a worker of UCT: whose state it asks for, what its handler is told, and the
// calls that switch it and tell about it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <uct/api/tagwire_uct.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "api/fake_transport.hpp"

namespace tagwire::test {
namespace {

using Seen = uct::Politeness::Peers;

class PoliteWorker : public ::testing::Test {
  protected:
    PoliteWorker() {
        tagwire_uct_worker_set_polite(world.worker, 1);
        const auto keep = [](void* arg, tagwire_uct_away_t how) {
            static_cast<PoliteWorker*>(arg)->told.push_back(how);
        };
        EXPECT_EQ(tagwire_uct_worker_set_away_handler(world.worker, keep, this), UCS_OK);
    }
    FakeIface& open(Seen peers, bool is_progressed) {
        uct_iface_h opened = nullptr;
        EXPECT_EQ(world.open(world.params(), &opened), UCS_OK);
        auto& iface = *static_cast<FakeIface*>(opened);
        iface.finds_nothing = true;
        iface.watch.peers = peers;
        if (is_progressed)
            uct_iface_progress_enable(&iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
        return iface;
    }
    /// Until the handler is told, or for so many calls.
    bool is_told(unsigned calls) {
        told.clear();
        for (unsigned i = 0; i < calls && told.empty(); ++i)
            uct_worker_progress(world.worker);
        return !told.empty();
    }
    std::map<std::string, std::string> facts() {
        std::map<std::string, std::string> facts;
        const auto keep = [](void* arg, const char* key, const char* value) {
            (*static_cast<std::map<std::string, std::string>*>(arg))[key] = value;
        };
        EXPECT_EQ(tagwire_uct_worker_describe(world.worker, keep, &facts), UCS_OK);
        return facts;
    }

    static constexpr unsigned kFew = 10'000, kMany = 100'000'000;

    FakeWorld world;
    std::vector<tagwire_uct_away_t> told;
};

TEST_F(PoliteWorker, peers_that_stand_are_yielded_to_and_those_out_of_sight_napped_for) {
    FakeIface& iface = open(Seen::kStand, true);
    ASSERT_TRUE(is_told(kMany));
    EXPECT_EQ(told[0], TAGWIRE_UCT_AWAY_YIELD);
    iface.watch.peers = Seen::kUnknown;
    ASSERT_TRUE(is_told(kMany));
    EXPECT_EQ(told[0], TAGWIRE_UCT_AWAY_NAP);
    iface.watch.peers = Seen::kNone;
    EXPECT_FALSE(is_told(kFew));
    uct_iface_close(&iface);
}

// A nap of one would hold up the other, whether that one finds something or not.
TEST_F(PoliteWorker, nobody_naps_while_its_thread_progresses_another_one) {
    constexpr unsigned kCalls = 3'000'000, kCallsApart = 100'000;
    constexpr std::chrono::milliseconds kAway{12};
    FakeIface& iface = open(Seen::kUnknown, true);
    ASSERT_TRUE(is_told(kMany));
    for (const bool finds_nothing : {true, false}) {
        SCOPED_TRACE(finds_nothing);
        FakeWorld other;
        tagwire_uct_worker_set_polite(other.worker, 1);
        uct_iface_h opened = nullptr;
        ASSERT_EQ(other.open(other.params(), &opened), UCS_OK);
        static_cast<FakeIface*>(opened)->finds_nothing = finds_nothing;
        uct_iface_progress_enable(opened, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
        told.clear();
        for (unsigned i = 1; i <= kCalls; ++i) {
            uct_worker_progress(world.worker);
            if (i % kCallsApart == 0)  // as when the thread has no processor
                std::this_thread::sleep_for(kAway);
            uct_worker_progress(other.worker);
        }
        EXPECT_LE(told.size(), 1U) << "the first answer comes late";
        EXPECT_TRUE(is_told(kMany)) << "it is alone again";
        // Another thread's is no reason.
        std::atomic<bool> is_over{false};
        std::thread elsewhere([&] {
            while (!is_over)
                uct_worker_progress(other.worker);
        });
        EXPECT_TRUE(is_told(kMany));
        is_over = true;
        elsewhere.join();
        uct_iface_close(opened);
    }
    uct_iface_close(&iface);
}

// The one that is asked goes, or is forked from, before it answers.
TEST_F(PoliteWorker, one_that_never_answers_holds_nobody_up) {
    FakeIface& iface = open(Seen::kUnknown, true);
    {
        FakeWorld other;
        tagwire_uct_worker_set_polite(other.worker, 1);
        EXPECT_TRUE(is_told(kMany));
        EXPECT_EQ(tagwire_uct_worker_set_polite(other.worker, 0), UCS_OK);
        EXPECT_EQ(tagwire_uct_worker_set_polite(other.worker, 1), UCS_OK);
        EXPECT_TRUE(is_told(kMany));
    }
    EXPECT_TRUE(is_told(kMany));
    const pid_t child = ::fork();
    if (child == 0) {
        FakeWorld mine;
        tagwire_uct_worker_set_polite(mine.worker, 1);
        tagwire_uct_worker_set_polite(world.worker, 0);
        ::_exit(0);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    uct_iface_close(&iface);
}

TEST_F(PoliteWorker, an_interface_that_is_not_progressed_has_no_say) {
    FakeIface& used = open(Seen::kNone, true);
    FakeIface& unused = open(Seen::kStand, false);
    EXPECT_FALSE(is_told(kFew));
    uct_iface_progress_enable(&unused, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    EXPECT_TRUE(is_told(kMany));
    uct_iface_close(&unused);
    uct_iface_close(&used);
}

TEST_F(PoliteWorker, one_that_spins_asks_nobody) {
    FakeIface& iface = open(Seen::kStand, true);
    EXPECT_EQ(tagwire_uct_worker_set_polite(world.worker, 0), UCS_OK);
    EXPECT_FALSE(is_told(kFew));
    EXPECT_EQ(tagwire_uct_worker_set_polite(world.worker, 1), UCS_OK);
    EXPECT_TRUE(is_told(kMany));
    uct_iface_close(&iface);
}

TEST_F(PoliteWorker, it_tells_its_mode_and_its_limits) {
    EXPECT_EQ(tagwire_uct_worker_is_polite(world.worker), 1);
    auto polite = facts();
    EXPECT_EQ(polite["mode"], "polite");
    for (const char* key : {"scheduler_slice_us", "turn_limit_us", "turn_limit_max_us",
                            "nap_max_us", "naps_end_in_us"})
        EXPECT_NE(polite[key], "") << key;
    EXPECT_EQ(tagwire_uct_worker_set_polite(world.worker, 0), UCS_OK);
    EXPECT_EQ(tagwire_uct_worker_is_polite(world.worker), 0);
    EXPECT_EQ(facts(), (std::map<std::string, std::string>{{"mode", "spin"}}));
}

TEST_F(PoliteWorker, its_counters_have_names) {
    tagwire_uct_counter_t counters[8] = {};
    unsigned count = 0;
    EXPECT_EQ(tagwire_uct_worker_query_counters(world.worker, nullptr, &count),
              UCS_ERR_BUFFER_TOO_SMALL);
    ASSERT_EQ(count, 4U);
    ASSERT_EQ(tagwire_uct_worker_query_counters(world.worker, counters, &count), UCS_OK);
    EXPECT_STREQ(counters[0].name, "looks");
    EXPECT_STREQ(counters[3].name, "away");
    EXPECT_STREQ(counters[3].unit, "ns");
}

TEST_F(PoliteWorker, bad_arguments_are_refused) {
    const auto tell = [](void*, const char*, const char*) {};
    EXPECT_EQ(tagwire_uct_worker_is_polite(nullptr), 0);
    EXPECT_EQ(tagwire_uct_worker_describe(nullptr, tell, nullptr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(tagwire_uct_worker_describe(world.worker, nullptr, nullptr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(tagwire_uct_worker_set_polite(nullptr, 1), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(tagwire_uct_worker_set_away_handler(nullptr, nullptr, nullptr),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(tagwire_uct_worker_wake_naps(nullptr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(tagwire_uct_worker_was_away(nullptr, TAGWIRE_UCT_AWAY_NAP, 1, 2),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(tagwire_uct_worker_was_away(world.worker, TAGWIRE_UCT_AWAY_NAP, 2, 1),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(tagwire_uct_worker_was_away(world.worker, TAGWIRE_UCT_AWAY_NAP, 1, UINT64_MAX),
              UCS_ERR_INVALID_PARAM);
}

}  // namespace
}  // namespace tagwire::test
