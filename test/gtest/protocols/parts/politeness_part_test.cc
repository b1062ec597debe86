// SPDX-License-Identifier: BSD-3-Clause
// Politeness of a worker alone: which wishes it follows, what it locks and counts, and what ends a
// nap.
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "api/fake_transport.hpp"
#include "protocols/worker/politeness.hpp"
#include "ucs/sys/fd.hpp"

namespace tagwire::test {
namespace {

using proto::Attention;
using proto::Politeness;
using proto::WorkerCounter;
using Away = Politeness::Away;
using Peers = uct::PeerWatch::Peers;

/// In place of the worker's other parts.
struct FakeSurroundings {
    bool has_contexts = false, has_news = false, has_no_memory = false;
    std::uint64_t ends = 0;
    ucs_status_t armed = UCS_OK;
    int fd = -1;
    unsigned enters = 0, leaves = 0, arms = 0, begins = 0, stops = 0, asked = 0;
    const proto::NapWord* word = nullptr;  // of the nap that has begun
    const proto::WakeEvent* event = nullptr;
};

FakeSurroundings& of(void* owner) {
    return *static_cast<FakeSurroundings*>(owner);
}
const FakeSurroundings& of(const void* owner) {
    return *static_cast<const FakeSurroundings*>(owner);
}

constexpr proto::PolitenessCalls kPoliteCalls{
    .has_contexts = [](const void* owner) { return of(owner).has_contexts; },
    .ends_of_contexts = [](const void* owner) { return of(owner).ends; },
    .awaited_lanes =
        [](void* owner, std::span<uct_ep_h>) {
            ++of(owner).asked;
            return 0U;
        },
    .enter = [](void* owner) { ++of(owner).enters; },
    .leave = [](void* owner) { ++of(owner).leaves; },
    .has_news = [](void* owner) { return of(owner).has_news; },
    .arm_nap =
        [](void* owner, int* fd_p) {
            ++of(owner).arms;
            if (of(owner).has_no_memory)
                throw std::bad_alloc();
            *fd_p = of(owner).fd;
            return of(owner).armed;
        },
    .event_for_nap = [](void* owner) { return of(owner).event; },
    .begin_nap =
        [](void* owner, const proto::NapWord* word) {
            ++of(owner).begins;
            of(owner).word = word;
        },
    .end_nap = [](void* owner) { ++of(owner).stops; },
};

class PolitenessPart : public testing::Test {
  protected:
    /// A worker of one thread.
    PolitenessPart() : PolitenessPart(false, false) {}
    PolitenessPart(bool is_multi, bool is_context)
        : attention_(is_multi),
          polite_({attention_, counters_, is_multi, is_context, &around_, kPoliteCalls}) {
        around_.fd = event_.get();
    }

    void begin(tw_away_cb_t away = nullptr, tw_progress_mode_t mode = TW_PROGRESS_POLITE) {
        tw_worker_params_t params{};
        params.struct_bytes = sizeof params;
        params.progress = mode;
        params.away = away;
        params.away_arg = &told_;
        polite_.begin(world_.worker, params, {});
    }
    /// The leave that `found` and the wish of progress lead to.
    Politeness::Leave taken(unsigned found, bool naps) {
        attention_.ask_away(naps);
        Politeness::Leave leave;
        polite_.take(found, &leave);
        EXPECT_FALSE(attention_.is_away_wanted());
        return leave;
    }
    /// UCT's own wish, by an interface whose peers stand. False: none in so many calls.
    bool is_wished(unsigned calls) {
        for (unsigned i = 0; i < calls; ++i) {
            uct_worker_progress(world_.worker);
            if (attention_.is_away_wanted() || !told_.empty())
                return true;
        }
        return false;
    }
    FakeIface& open_standing() {
        EXPECT_EQ(world_.open(world_.params(), &world_.opened), UCS_OK);
        FakeIface& iface = world_.iface();
        iface.finds_nothing = true;
        iface.watch.peers = Peers::kStand;
        uct_iface_progress_enable(&iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
        return iface;
    }
    void signal() const {
        const std::uint64_t one = 1;
        EXPECT_EQ(::write(event_.get(), &one, sizeof one), ssize_t{sizeof one});
    }
    std::uint64_t count(WorkerCounter counter) const { return counters_.value(counter); }

    static constexpr unsigned kFew = 10'000, kMany = 100'000'000;

    FakeWorld world_;
    ucs::UniqueFd event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    FakeSurroundings around_;
    proto::WorkerCounters counters_;
    Attention attention_;
    Politeness polite_;
    std::vector<tw_away_t> told_;
};

struct PolitenessOfThreads : PolitenessPart {
    PolitenessOfThreads() : PolitenessPart(true, false) {}
};

struct PolitenessOfContext : PolitenessPart {
    PolitenessOfContext() : PolitenessPart(true, true) {}
};

void keep_told(void* told, tw_away_t how) {
    static_cast<std::vector<tw_away_t>*>(told)->push_back(how);
}

// ---- Which wishes are followed

TEST_F(PolitenessPart, nothing_is_given_away_without_a_wish) {
    begin();
    Politeness::Leave leave;
    polite_.take(0, &leave);
    EXPECT_EQ(leave.how, Away::kNo);
    polite_.go_away(leave);
    polite_.go_away_if_wanted();
    EXPECT_EQ(count(WorkerCounter::kYields) + count(WorkerCounter::kNaps), 0U);
}

TEST_F(PolitenessPart, a_wish_is_dropped_by_a_call_that_found_something) {
    begin();
    EXPECT_EQ(taken(1, false).how, Away::kNo);
    EXPECT_EQ(taken(0, false).how, Away::kYield);
}

TEST_F(PolitenessPart, nobody_goes_away_from_a_callback) {
    begin();
    attention_.begin_progress();
    EXPECT_EQ(taken(0, false).how, Away::kNo);
    attention_.ask_away(true);
    polite_.go_away_if_wanted();
    EXPECT_TRUE(attention_.is_away_wanted());  // for the next call outside
    attention_.end_progress();
    EXPECT_EQ(around_.arms, 0U);
}

TEST_F(PolitenessPart, a_nap_is_not_begun_with_news_nor_where_it_cannot_be_armed) {
    begin();
    around_.has_contexts = true;
    around_.has_news = true;
    EXPECT_EQ(taken(0, true).how, Away::kNo);
    EXPECT_EQ(around_.arms, 0U);
    around_.has_news = false;
    around_.armed = UCS_ERR_BUSY;
    EXPECT_EQ(taken(0, true).how, Away::kNo);
    around_.armed = UCS_OK;
    around_.has_no_memory = true;
    EXPECT_EQ(taken(0, true).how, Away::kNo);
    EXPECT_EQ(around_.arms, 2U);
    EXPECT_EQ(around_.begins, 0U);
    around_.has_no_memory = false;
    EXPECT_EQ(taken(0, true).how, Away::kNap);
    EXPECT_EQ(around_.begins, 1U);
}

// ---- Going away

TEST_F(PolitenessPart, a_yield_is_counted_and_takes_no_lock_of_one_thread) {
    begin();
    Politeness::Leave leave = taken(0, false);
    polite_.go_away(leave);
    EXPECT_EQ(count(WorkerCounter::kYields), 1U);
    EXPECT_EQ(around_.enters + around_.leaves, 0U);
    attention_.ask_away(false);
    polite_.go_away_if_wanted();
    EXPECT_EQ(count(WorkerCounter::kYields), 2U);
}

TEST_F(PolitenessOfThreads, what_was_done_is_noted_with_the_lock) {
    begin();
    Politeness::Leave leave = taken(0, false);
    polite_.go_away(leave);
    EXPECT_EQ(around_.enters, 1U);
    EXPECT_EQ(around_.leaves, 1U);
    EXPECT_EQ(count(WorkerCounter::kYields), 1U);
}

TEST_F(PolitenessOfThreads, a_nap_on_the_descriptor_ends_when_that_is_readable) {
    begin();
    around_.has_contexts = true;
    Politeness::Leave leave = taken(0, true);
    ASSERT_EQ(leave.how, Away::kNap);
    EXPECT_EQ(leave.nap.fd_count, 1U);
    EXPECT_EQ(leave.nap.fds[0], event_.get());
    signal();
    leave.nap.max_ns = std::uint64_t{600} * 1'000'000'000;  // which would be noticed
    polite_.go_away(leave);
    EXPECT_EQ(count(WorkerCounter::kNaps), 1U);
    EXPECT_GT(count(WorkerCounter::kAwayNs), 0U);
    EXPECT_EQ(around_.stops, 1U);
    EXPECT_EQ(around_.enters, around_.leaves);
}

TEST_F(PolitenessOfThreads, a_nap_ends_by_the_event_of_other_threads_which_is_taken) {
    begin();
    around_.has_contexts = true;
    proto::WakeEvent event;
    ASSERT_TRUE(event.make());
    around_.event = &event;
    Politeness::Leave leave = taken(0, true);
    ASSERT_EQ(leave.how, Away::kNap);
    EXPECT_EQ(leave.nap.fd_count, 2U);
    EXPECT_EQ(around_.word, nullptr);  // threads wake the event
    event.wake();
    leave.nap.max_ns = std::uint64_t{600} * 1'000'000'000;
    polite_.go_away(leave);
    std::uint64_t value = 0;
    EXPECT_EQ(::read(event.fd(), &value, sizeof value), -1);  // taken
    EXPECT_EQ(around_.stops, 1U);
}

TEST_F(PolitenessOfThreads, a_nap_is_no_longer_than_its_caller_has_time) {
    begin();
    around_.has_contexts = true;
    Politeness::Leave leave = taken(0, true);
    ASSERT_EQ(leave.how, Away::kNap);
    EXPECT_NE(around_.word, nullptr);
    leave.nap.max_ns = std::uint64_t{600} * 1'000'000'000;
    polite_.go_away(leave, 1000);
    EXPECT_EQ(count(WorkerCounter::kNaps), 1U);
}

TEST_F(PolitenessPart, a_thread_that_chooses_counts_its_yield_at_the_next_one) {
    begin();
    attention_.begin_progress();  // where a nap is out of the question
    Politeness::Leave leave;
    polite_.choose(&leave);
    EXPECT_EQ(leave.how, Away::kYield);
    EXPECT_TRUE(leave.is_own);
    attention_.end_progress();
    polite_.go_away(leave);
    EXPECT_EQ(count(WorkerCounter::kYields), 1U);
    EXPECT_EQ(count(WorkerCounter::kAwayNs), 0U);
    EXPECT_GT(leave.took_ns, 0U);
    attention_.begin_progress();
    const std::uint64_t took = leave.took_ns;
    polite_.choose(&leave);
    attention_.end_progress();
    EXPECT_EQ(count(WorkerCounter::kAwayNs), took);
    EXPECT_EQ(leave.took_ns, 0U);
}

// ---- Whose wish it is

TEST_F(PolitenessPart, transports_wish_and_ask_for_what_is_awaited) {
    begin();
    FakeIface& iface = open_standing();
    ASSERT_TRUE(is_wished(kMany));
    EXPECT_EQ(polite_.take_wish(), Away::kYield);
    EXPECT_GT(around_.asked, 0U);
    iface.watch.peers = Peers::kNone;
    EXPECT_FALSE(is_wished(kFew));
}

TEST_F(PolitenessPart, a_program_that_gives_away_itself_is_told_instead) {
    begin(keep_told);
    open_standing();
    ASSERT_TRUE(is_wished(kMany));
    EXPECT_EQ(told_, std::vector{TW_AWAY_YIELD});
    EXPECT_FALSE(attention_.is_away_wanted());
}

TEST_F(PolitenessPart, a_worker_that_spins_has_no_wishes) {
    begin(nullptr, TW_PROGRESS_SPIN);
    open_standing();
    EXPECT_FALSE(is_wished(30 * kFew));
}

TEST_F(PolitenessOfThreads, ends_of_contexts_are_a_reason_to_stay) {
    around_.has_contexts = true;
    around_.ends = 1;
    begin();
    open_standing();
    ASSERT_TRUE(is_wished(kMany));  // the second wish, since an operation had ended at the first
    EXPECT_EQ(around_.asked, 0U);   // their threads wait for others
}

TEST_F(PolitenessOfContext, a_transmit_context_has_no_say) {
    begin(keep_told);
    open_standing();
    EXPECT_FALSE(is_wished(30 * kFew));
    EXPECT_TRUE(told_.empty());
}

}  // namespace
}  // namespace tagwire::test
