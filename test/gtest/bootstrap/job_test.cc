// SPDX-License-Identifier: BSD-3-Clause
// Jobs of several processes that meet in a directory: the calls, and ranks that fail.
#include <csignal>
#include <cstring>
#include <tuple>

#include "job.hpp"

namespace tagwire::test {
namespace {

class BootstrapJob : public ::testing::Test {
  protected:
    ScratchDirectory directory_;
    Place place_{TW_BOOTSTRAP_DIR, directory_.path(), "a-job"};
};

TEST_F(BootstrapJob, everybody_gets_what_all_gave_in_the_order_of_ranks) {
    for (const std::uint32_t size : {1u, 2u, 3u, 8u}) {
        expect_all_well(run_ranks(size, [&](std::uint32_t rank) {
            Rank me(place_, rank, size);
            EXPECT_STREQ("dir", tw_bootstrap_method_name(me.get()));
            for (const std::size_t bytes : {8ul, 0ul, 1ul, 4711ul, 65536ul}) {
                EXPECT_TRUE(me.gather(bytes));
                EXPECT_EQ(TW_OK, me.barrier());
            }
        }));
    }
    EXPECT_EQ(std::vector<std::string>{}, directory_.names());
}

TEST_F(BootstrapJob, the_largest_share_arrives_and_one_byte_more_is_refused_here) {
    expect_all_well(run_ranks(3, [&](std::uint32_t rank) {
        Rank me(place_, rank, 3);
        EXPECT_TRUE(me.gather(TW_BOOTSTRAP_BYTES_MAX));
        EXPECT_FALSE(me.gather(TW_BOOTSTRAP_BYTES_MAX + 1));
        expect_failure(TW_ERR_EXCEEDS_LIMIT,
                       tw_bootstrap_allgather(me.get(), "", TW_BOOTSTRAP_BYTES_MAX + 1, &rank),
                       "the limit of 1048576");
        EXPECT_EQ(TW_OK, me.barrier());
    }));
}

TEST_F(BootstrapJob, what_a_rank_gives_may_lie_in_its_own_place) {
    expect_all_well(run_ranks(3, [&](std::uint32_t rank) {
        Rank me(place_, rank, 3);
        std::uint64_t all[3] = {};
        all[rank] = 100 + rank;
        EXPECT_EQ(TW_OK, tw_bootstrap_allgather(me.get(), &all[rank], sizeof all[0], all));
        EXPECT_EQ(std::make_tuple(100u, 101u, 102u), std::make_tuple(all[0], all[1], all[2]));
    }));
}

TEST_F(BootstrapJob, the_others_wait_for_a_late_rank_0) {
    const Gate gate;
    std::vector<Process> others;
    for (std::uint32_t rank = 1; rank < 4; ++rank) {
        others.emplace_back([&, rank] {
            gate.open();
            EXPECT_TRUE(Rank(place_, rank, 4).gather(8));
        });
    }
    gate.wait();
    Process coordinator([&] { EXPECT_TRUE(Rank(place_, 0, 4).gather(8)); });
    EXPECT_EQ(0, coordinator.join());
    for (Process& other : others)
        EXPECT_EQ(0, other.join());
}

// Only rank 0 is impatient, and not before the others are there: they learn it from him.
TEST_F(BootstrapJob, a_rank_that_never_comes_is_named_to_all) {
    const auto body = [&](std::uint32_t rank, std::uint64_t timeout_ms) {
        const Rank me(place_, rank, 4, timeout_ms);
        expect_failure(TW_ERR_TIMED_OUT, me.status(), "rank 2 of 4 did not come");
    };
    const Gate first_is_up;
    const Gate second_is_up;
    Process first([&] { first_is_up.open(), body(1, kPatienceMs); });
    Process second([&] { second_is_up.open(), body(3, kPatienceMs); });
    first_is_up.wait();
    second_is_up.wait();
    Process coordinator([&] { body(0, kShortMs); });
    EXPECT_EQ(0, coordinator.join());
    EXPECT_EQ(0, first.join());
    EXPECT_EQ(0, second.join());
    EXPECT_EQ(std::vector<std::string>{}, directory_.names());
}

TEST_F(BootstrapJob, a_rank_0_that_never_comes_is_named) {
    expect_all_well(run_ranks(3, [&](std::uint32_t rank) {
        if (rank == 0)
            return;
        const Rank me(place_, rank, 3, kShortMs);
        expect_failure(TW_ERR_TIMED_OUT, me.status(), "rank 0 is missing");
    }));
    EXPECT_EQ(std::vector<std::string>{}, directory_.names());
}

TEST_F(BootstrapJob, a_rank_that_does_not_call_is_named_to_all) {
    const Gate gate;
    Process silent([&] {
        const Rank me(place_, 1, 3);
        gate.wait();
    });
    std::vector<Process> others;
    for (const std::uint32_t rank : {0u, 2u}) {
        others.emplace_back([&, rank] {
            Rank me(place_, rank, 3, rank == 0 ? kShortMs : kPatienceMs);
            expect_failure(TW_ERR_TIMED_OUT, me.barrier(), "rank 1 of 3 did not call barrier");
            expect_failure(TW_ERR_TIMED_OUT, me.barrier(), "failed before");
        });
    }
    for (Process& other : others)
        EXPECT_EQ(0, other.join());
    gate.open();
    EXPECT_EQ(0, silent.join());
}

TEST_F(BootstrapJob, a_rank_that_is_killed_in_the_middle_is_named_to_all) {
    const auto statuses = run_ranks(4, [&](std::uint32_t rank) {
        Rank me(place_, rank, 4, rank == 0 ? kShortMs : kPatienceMs);
        EXPECT_TRUE(me.gather(8));
        if (rank == 3)
            ::raise(SIGKILL);
        expect_failure(TW_ERR_TIMED_OUT, me.barrier(), "rank 3");
    });
    EXPECT_EQ((std::vector<int>{0, 0, 0, 128 + SIGKILL}), statuses);
}

TEST_F(BootstrapJob, a_rank_0_that_is_killed_in_the_middle_is_named_to_all) {
    const auto statuses = run_ranks(3, [&](std::uint32_t rank) {
        Rank me(place_, rank, 3, kShortMs);
        EXPECT_TRUE(me.gather(8));
        if (rank == 0)
            ::raise(SIGKILL);
        expect_failure(TW_ERR_TIMED_OUT, me.barrier(), "rank 0");
    });
    EXPECT_EQ((std::vector<int>{128 + SIGKILL, 0, 0}), statuses);
}

TEST_F(BootstrapJob, a_rank_that_leaves_is_named_to_all) {
    for (const std::uint32_t quitter : {0u, 1u, 2u}) {
        expect_all_well(run_ranks(3, [&](std::uint32_t rank) {
            Rank me(place_, rank, 3);
            EXPECT_TRUE(me.gather(8));
            if (rank != quitter)
                expect_failure(TW_ERR_CONNECTION_RESET, me.barrier(),
                               "rank " + std::to_string(quitter) + " has left");
        }));
    }
    EXPECT_EQ(std::vector<std::string>{}, directory_.names());
}

TEST_F(BootstrapJob, different_lengths_are_refused_on_all_ranks) {
    for (const std::size_t odd : {0ul, 16ul, 4096ul}) {
        expect_all_well(run_ranks(3, [&](std::uint32_t rank) {
            Rank me(place_, rank, 3);
            const std::size_t bytes = rank == 1 ? odd : 8;
            std::vector<std::byte> in(bytes);
            std::vector<std::byte> out(3 * bytes);
            expect_failure(TW_ERR_INVALID_PARAM,
                           tw_bootstrap_allgather(me.get(), in.data(), bytes, out.data()),
                           "rank 1 calls allgather of " + std::to_string(odd) + " bytes");
        }));
    }
}

TEST_F(BootstrapJob, different_calls_are_refused_on_all_ranks) {
    expect_all_well(run_ranks(3, [&](std::uint32_t rank) {
        Rank me(place_, rank, 3);
        EXPECT_EQ(TW_OK, me.barrier());
        const tw_status_t status =
            rank == 2 ? me.barrier() : tw_bootstrap_allgather(me.get(), nullptr, 0, nullptr);
        expect_failure(TW_ERR_INVALID_PARAM, status, "rank 2 calls barrier (call 1)");
    }));
}

TEST_F(BootstrapJob, of_two_that_claim_one_rank_the_second_is_refused_and_the_job_goes_on) {
    const auto claim = [&](std::uint32_t first, std::uint32_t second) {
        Rank me(place_, first, 3);
        if (me.status() == TW_OK) {
            EXPECT_TRUE(me.gather(8));
            return;
        }
        expect_failure(TW_ERR_REJECTED, me.status(), "rank 1 has joined already");
        EXPECT_TRUE(Rank(place_, second, 3).gather(8));
    };
    expect_all_well(run_ranks(3, [&](std::uint32_t rank) { claim(rank == 0 ? 0 : 1, 2); }));
}

TEST_F(BootstrapJob, who_takes_it_for_another_size_is_refused_and_the_job_goes_on) {
    expect_all_well(run_ranks(3, [&](std::uint32_t rank) {
        for (const std::uint32_t wrong : {2u, 4u}) {
            if (rank != 1)
                break;
            const Rank me(place_, rank, wrong);
            expect_failure(TW_ERR_REJECTED, me.status(),
                           "expects a job of " + std::to_string(wrong) + " processes");
        }
        EXPECT_TRUE(Rank(place_, rank, 3).gather(8));
    }));
}

TEST_F(BootstrapJob, many_jobs_follow_each_other_at_one_place) {
    expect_all_well(run_ranks(3, [&](std::uint32_t rank) {
        for (int i = 0; i < 20; ++i)
            EXPECT_TRUE(Rank(place_, rank, 3).gather(8)) << "job " << i;
    }));
    EXPECT_EQ(std::vector<std::string>{}, directory_.names());
}

}  // namespace
}  // namespace tagwire::test
