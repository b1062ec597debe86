// SPDX-License-Identifier: BSD-3-Clause
// Jobs over TCP with a secret: processes that know it join, and no other process takes a rank.
#include <sched.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "job.hpp"
#include "stranger.hpp"

namespace tagwire::test {
namespace {

constexpr const char* kSecret = "correct horse battery staple";
constexpr char kHello = 1;
constexpr char kWelcome = 2;
constexpr char kChallenge = 8;
constexpr char kProof = 9;
constexpr char kProven = 10;

class BootstrapSecret : public ::testing::Test {
  protected:
    /// In a rank's process.
    static void know(const char* secret) {
        EXPECT_EQ(0, ::setenv("TAGWIRE_BOOTSTRAP_SECRET", secret, 1));
    }
    static void know_by_file(const std::string& path) {
        EXPECT_EQ(0, ::setenv("TAGWIRE_BOOTSTRAP_SECRET_FILE", path.c_str(), 1));
    }
    std::string write_file(const std::string& text, mode_t mode) const {
        std::string path = directory_.path() + "/secret";
        std::ofstream(path) << text;
        EXPECT_EQ(0, ::chmod(path.c_str(), mode));
        return path;
    }
    void await_listener() const {
        while (!Stranger(port_).is_connected())
            ::sched_yield();
    }
    /// A job of two that know it comes about, whatever happens at its port before rank 1 comes.
    void expect_undisturbed_by(const std::function<void()>& mischief) {
        const Gate gate;
        std::vector<Process> ranks;
        for (std::uint32_t rank = 0; rank < 2; ++rank) {
            ranks.emplace_back([&, rank] {
                know(kSecret);
                if (rank == 1)
                    gate.wait();
                Rank me(place_, rank, 2);
                EXPECT_TRUE(me.gather(8));
            });
        }
        await_listener();
        mischief();
        gate.open();
        for (Process& rank : ranks)
            EXPECT_EQ(0, rank.join());
    }
    /// A process alone, set up by `prepare`, fails with `status` and `part` in its message.
    void expect_refused(const std::function<void()>& prepare, tw_status_t status,
                        const std::string& part) const {
        Process process([&] {
            prepare();
            expect_failure(status, Rank(place_, 1, 2, kShortMs).status(), part);
        });
        EXPECT_EQ(0, process.join());
    }

    ScratchDirectory directory_;
    std::uint16_t port_ = free_port();
    Place place_{TW_BOOTSTRAP_TCP, "127.0.0.1:" + std::to_string(port_), "a-job"};
};

TEST_F(BootstrapSecret, ranks_that_know_it_meet_whether_by_option_or_by_file) {
    const std::string path = write_file(std::string(kSecret) + "\n", 0400);
    expect_all_well(run_ranks(4, [&](std::uint32_t rank) {
        rank % 2 == 0 ? know(kSecret) : know_by_file(path);
        Rank me(place_, rank, 4);
        EXPECT_TRUE(me.gather(100));
        EXPECT_EQ(TW_OK, me.barrier());
    }));
}

TEST_F(BootstrapSecret, an_impostor_takes_no_rank) {
    expect_undisturbed_by([&] {
        const Stranger silent(port_);
        silent.say(head(1, kHello, 1, 2, 5) + "a-job");
        const Stranger guessing(port_);
        guessing.say(head(1, kHello, 1, 2, 5) + "a-job");
        guessing.say(head(1, kProof, 1, 2, 64) + std::string(64, 'x'));
        const std::string heard = guessing.hear();
        EXPECT_EQ(heard.substr(0, 24), head(1, kChallenge, 0, 2, 32));
        EXPECT_NE(heard.find("it does not have the secret of this job"), std::string::npos);
        EXPECT_EQ(heard.find(std::string("TWBS\1") + kProven), std::string::npos);
        const Stranger dumb(port_);
        dumb.say(head(1, kHello, 1, 2, 5) + "a-job");
        dumb.say(head(1, kHello, 1, 2, 5) + "a-job");
        EXPECT_NE(dumb.hear().find("it did not reply to the challenge"), std::string::npos);
    });
}

TEST_F(BootstrapSecret, a_rank_without_it_or_with_another_is_told_so) {
    expect_undisturbed_by([&] {
        expect_refused([] {}, TW_ERR_REJECTED, "rank 0 asks for the job's secret");
        expect_refused([] { know("a secret of another job"); }, TW_ERR_REJECTED,
                       "it does not have the secret of this job");
    });
}

TEST_F(BootstrapSecret, a_rank_gives_nothing_to_a_rank_0_that_does_not_know_it) {
    for (const auto& [answer, part] :
         {std::pair{head(1, kWelcome, 0, 2, 0), "asks for no secret"},
          std::pair{head(1, kChallenge, 0, 2, 32) + std::string(32, 'r') +
                        head(1, kProven, 0, 2, 32) + std::string(32, 'p'),
                    "does not have the secret of this job"}}) {
        const WrongServer server(port_);
        Process other([this, reason = part] {
            know(kSecret);
            expect_failure(TW_ERR_REJECTED, Rank(place_, 1, 2).status(), reason);
        });
        server.answer_one(answer);
        EXPECT_EQ(0, other.join());
    }
}

TEST_F(BootstrapSecret, one_that_is_short_or_open_to_others_is_refused) {
    const auto refused = [&](const std::function<void()>& prepare, const std::string& part) {
        expect_refused(prepare, TW_ERR_INVALID_PARAM, part);
    };
    refused([] { know("fifteen letters"); }, "has 15 bytes; expected 16 to 4096");
    const std::string open = write_file(kSecret, 0644);
    refused([&] { know_by_file(open); }, "open to others");
    const std::string good = write_file(kSecret, 0600);
    refused(
        [&] {
            know_by_file(good);
            know(kSecret);
        },
        "are both set");
    refused([&] { know_by_file(directory_.path()); }, "is not a regular file");
    refused([&] { know_by_file(good + ".none"); }, "No such file");
}

TEST_F(BootstrapSecret, without_one_a_listener_beyond_this_machine_warns) {
    for (const bool is_open : {true, false}) {
        Process coordinator([&] {
            const std::string host = is_open ? "0.0.0.0:" : "127.0.0.1:";
            const Place place{TW_BOOTSTRAP_TCP, host + std::to_string(port_), "a-job"};
            testing::internal::CaptureStderr();
            const Rank me(place, 0, 1);
            const std::string log = testing::internal::GetCapturedStderr();
            EXPECT_EQ(log.find("without a secret") != std::string::npos, is_open) << log;
        });
        EXPECT_EQ(0, coordinator.join());
    }
}

}  // namespace
}  // namespace tagwire::test
