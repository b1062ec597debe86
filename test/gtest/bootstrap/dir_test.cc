// SPDX-License-Identifier: BSD-3-Clause
// Jobs that meet in a directory: what others left there, and what stays behind.
#include <sched.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "job.hpp"

namespace tagwire::test {
namespace {

class BootstrapDir : public ::testing::Test {
  protected:
    /// Until some run's directory has a file whose name begins so.
    void wait_for(const std::string& prefix) const {
        for (;;) {
            std::error_code error;
            for (const auto& entry :
                 std::filesystem::recursive_directory_iterator(directory_.path(), error)) {
                if (entry.path().filename().string().starts_with(prefix))
                    return;
            }
            ::sched_yield();
        }
    }

    void expect_a_job_goes_well() {
        expect_all_well(run_ranks(3, [&](std::uint32_t rank) {
            Rank me(place_, rank, 3);
            EXPECT_TRUE(me.gather(8));
            EXPECT_EQ(TW_OK, me.barrier());
        }));
        EXPECT_EQ(std::vector<std::string>{}, directory_.names());
    }

    void put(const std::string& name, const std::string& text) const {
        std::ofstream(directory_.path() + "/" + name) << text;
    }

    ScratchDirectory directory_;
    Place place_{TW_BOOTSTRAP_DIR, directory_.path(), "a-job"};
};

TEST_F(BootstrapDir, a_job_that_was_killed_while_it_gathered_disturbs_no_later_one) {
    for (int i = 0; i < 3; ++i) {
        const Process coordinator([&] { Rank(place_, 0, 3); });
        const Process other([&] { Rank(place_, 1, 3); });
        wait_for("hello.1.");
    }
    EXPECT_FALSE(directory_.names().empty());
    expect_a_job_goes_well();
}

TEST_F(BootstrapDir, a_job_that_was_killed_in_the_middle_disturbs_no_later_one) {
    for (int i = 0; i < 3; ++i) {
        run_ranks(3, [&](std::uint32_t rank) {
            Rank me(place_, rank, 3);
            EXPECT_TRUE(me.gather(8));
            ::raise(SIGKILL);
        });
    }
    EXPECT_FALSE(directory_.names().empty());
    expect_a_job_goes_well();
}

TEST_F(BootstrapDir, a_rank_that_waits_in_a_dead_run_moves_to_the_next_one) {
    Process waiting([&] { EXPECT_TRUE(Rank(place_, 1, 3).gather(8)); });
    Process first_coordinator([&] { Rank(place_, 0, 3); });
    wait_for("hello.1.");
    first_coordinator.kill_now();
    const auto body = [&](std::uint32_t rank) { EXPECT_TRUE(Rank(place_, rank, 3).gather(8)); };
    Process second_coordinator([&] { body(0); });
    Process last([&] { body(2); });
    EXPECT_EQ(0, second_coordinator.join());
    EXPECT_EQ(0, last.join());
    EXPECT_EQ(0, waiting.join());
    EXPECT_EQ(std::vector<std::string>{}, directory_.names());
}

TEST_F(BootstrapDir, of_two_ranks_0_the_earlier_one_gives_up) {
    Process first([&] {
        const Rank me(place_, 0, 3);
        expect_failure(TW_ERR_CONNECTION_RESET, me.status(), "another rank 0 of job 'a-job'");
    });
    Process other([&] { EXPECT_TRUE(Rank(place_, 1, 3).gather(8)); });
    wait_for("hello.1.");
    Process second([&] { EXPECT_TRUE(Rank(place_, 0, 3).gather(8)); });
    EXPECT_EQ(0, first.join());
    Process last([&] { EXPECT_TRUE(Rank(place_, 2, 3).gather(8)); });
    EXPECT_EQ(0, second.join());
    EXPECT_EQ(0, last.join());
    EXPECT_EQ(0, other.join());
}

TEST_F(BootstrapDir, jobs_of_different_names_share_a_directory) {
    const Place second{TW_BOOTSTRAP_DIR, directory_.path(), "another-job"};
    expect_all_well(run_ranks(6, [&](std::uint32_t rank) {
        Rank me(rank < 3 ? place_ : second, rank % 3, 3);
        EXPECT_TRUE(me.gather(rank < 3 ? 8 : 16));
    }));
    EXPECT_EQ(std::vector<std::string>{}, directory_.names());
}

TEST_F(BootstrapDir, a_job_whose_files_go_says_so) {
    expect_all_well(run_ranks(2, [&](std::uint32_t rank) {
        Rank me(place_, rank, 2);
        EXPECT_TRUE(me.gather(8));
        if (rank == 1)
            std::filesystem::remove_all(directory_.path());
        while (std::filesystem::exists(directory_.path()))
            ::sched_yield();
        expect_failure(TW_ERR_CONNECTION_RESET, me.barrier(), "were removed");
    }));
}

TEST_F(BootstrapDir, what_lies_about_there_is_not_believed) {
    put("tagwire-a-job.current", "nonsense");
    expect_a_job_goes_well();
    put("tagwire-a-job.current", "0123456789abcdef");  // of a run that is no more
    expect_a_job_goes_well();
    put("elsewhere", "fedcba9876543210");
    ASSERT_EQ(0, ::symlink("elsewhere", (directory_.path() + "/tagwire-a-job.current").c_str()));
    std::filesystem::create_directory(directory_.path() + "/tagwire-a-job.fedcba9876543210");
    expect_all_well(
        run_ranks(2, [&](std::uint32_t rank) { EXPECT_TRUE(Rank(place_, rank, 2).gather(8)); }));
    EXPECT_EQ(std::vector<std::string>{"elsewhere"}, directory_.names());
}

TEST_F(BootstrapDir, a_place_that_is_no_directory_is_refused) {
    put("file", "");
    for (const std::string name : {"/file", "/nothing"}) {
        const Place wrong{TW_BOOTSTRAP_DIR, directory_.path() + name, "a-job"};
        for (const std::uint32_t rank : {0u, 1u}) {
            const Rank me(wrong, rank, 2);
            expect_failure(TW_ERR_INVALID_PARAM, me.status(), "cannot use the directory");
        }
    }
    std::filesystem::create_directory(directory_.path() + "/tagwire-a-job.current");
    expect_failure(TW_ERR_IO_ERROR, Rank(place_, 0, 2).status(), "cannot write the file");
}

}  // namespace
}  // namespace tagwire::test
