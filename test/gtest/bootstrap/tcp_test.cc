// SPDX-License-Identifier: BSD-3-Clause
// Jobs that meet over TCP: strangers at the port, and others where rank 0 should be.
#include <sched.h>

#include <memory>
#include <random>

#include "common/seeds.hpp"
#include "job.hpp"
#include "stranger.hpp"

namespace tagwire::test {
namespace {

class BootstrapTcp : public ::testing::Test {
  protected:
    /// A connection to rank 0, once that listens.
    static void await_listener(std::uint16_t port) {
        while (!Stranger(port).is_connected())
            ::sched_yield();
    }

    /// A job of three, whose last rank comes after `mischief` at rank 0's port.
    void expect_undisturbed_by(const std::function<void()>& mischief) {
        const Gate gate;
        std::vector<Process> ranks;
        for (std::uint32_t rank = 0; rank < 3; ++rank) {
            ranks.emplace_back([&, rank] {
                if (rank == 2)
                    gate.wait();
                Rank me(place_, rank, 3);
                EXPECT_TRUE(me.gather(8));
                EXPECT_EQ(TW_OK, me.barrier());
            });
        }
        await_listener(port_);
        mischief();
        gate.open();
        for (Process& rank : ranks)
            EXPECT_EQ(0, rank.join());
    }

    std::uint16_t port_ = free_port();
    Place place_{TW_BOOTSTRAP_TCP, "127.0.0.1:" + std::to_string(port_), "a-job"};
};

TEST_F(BootstrapTcp, strangers_are_sent_away_and_disturb_nobody) {
    const std::vector<std::string> nonsense{
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        std::string(100'000, '\xff'),
        std::string(24, '\0'),
        head(2, 1, 1, 3, 5) + "a-job",           // another version
        head(1, 1, 1, 3, 0xffffffff) + "a-job",  // too long for anything
        head(1, 1, 1, 3, 1'000'000) + "a-job",   // too long for a hello
        head(1, 99, 1, 3, 5) + "a-job",          // no such kind
        head(1, 4, 2, 3, 0),                     // a share before a hello
        head(1, 1, 3, 3, 5) + "a-job",           // no such rank
        head(1, 1, 0, 3, 5) + "a-job",           // rank 0 is somebody else
        head(1, 1, 2, 0, 5) + "a-job",           // a job of nobody
    };
    expect_undisturbed_by([&] {
        for (const std::string& bytes : nonsense) {
            const Stranger stranger(port_);
            stranger.say(bytes);
            stranger.hear();  // it ends
        }
    });
}

TEST_F(BootstrapTcp, who_belongs_to_another_job_is_told_so) {
    expect_undisturbed_by([&] {
        const Stranger stranger(port_);
        stranger.say(head(1, 1, 2, 3, 7) + "another");
        EXPECT_NE(std::string::npos,
                  stranger.hear().find("it belongs to job 'another', this is 'a-job'"));
        const Place other{TW_BOOTSTRAP_TCP, place_.where, "another"};
        Process foreign([&] {
            expect_failure(TW_ERR_REJECTED, Rank(other, 2, 3).status(), "this is 'a-job'");
        });
        EXPECT_EQ(0, foreign.join());
    });
}

TEST_F(BootstrapTcp, random_bytes_disturb_nobody) {
    expect_undisturbed_by([&] {
        for_each_seed(50, [&](std::uint64_t seed) {
            std::mt19937_64 random(seed);
            std::string bytes = random() % 2 == 0 ? "TWBS\1\1" : "";
            const std::size_t more = random() % 200;
            for (std::size_t i = 0; i < more; ++i)
                bytes += static_cast<char>(random());
            Stranger(port_).say(bytes);
        });
    });
}

TEST_F(BootstrapTcp, a_crowd_of_silent_strangers_keeps_nobody_out) {
    expect_undisturbed_by([&] {
        std::vector<std::unique_ptr<Stranger>> crowd;
        for (int i = 0; i < 600; ++i)
            crowd.push_back(std::make_unique<Stranger>(port_));
        crowd.front()->hear();  // the oldest had to go
    });
}

TEST_F(BootstrapTcp, a_rank_that_dies_while_the_job_gathers_may_come_again) {
    Process coordinator([&] { EXPECT_TRUE(Rank(place_, 0, 3).gather(8)); });
    Process mortal([&] { Rank(place_, 1, 3); });
    await_listener(port_);
    mortal.kill_now();
    const auto body = [&](std::uint32_t rank) {
        for (;;) {  // until rank 0 has noticed the death
            Rank me(place_, rank, 3);
            if (me.status() != TW_ERR_REJECTED) {
                EXPECT_TRUE(me.gather(8));
                return;
            }
        }
    };
    Process again([&] { body(1); });
    Process last([&] { body(2); });
    EXPECT_EQ(0, coordinator.join());
    EXPECT_EQ(0, again.join());
    EXPECT_EQ(0, last.join());
}

TEST_F(BootstrapTcp, a_port_that_somebody_has_is_refused_at_once) {
    const WrongServer server(port_);
    expect_failure(TW_ERR_BUSY, Rank(place_, 0, 2).status(), "Address already in use");
}

TEST_F(BootstrapTcp, what_is_no_rank_0_is_refused) {
    const WrongServer server(port_);
    Process other([&] {
        expect_failure(TW_ERR_REJECTED, Rank(place_, 1, 2).status(),
                       "the process at " + place_.where + " is not rank 0");
    });
    server.answer_one("SSH-2.0-something that is not ours\r\n");
    EXPECT_EQ(0, other.join());
}

TEST_F(BootstrapTcp, a_failure_without_a_reason_is_told_in_a_sentence) {
    const WrongServer server(port_);
    Process other([&] {
        expect_failure(TW_ERR_CANCELED, Rank(place_, 1, 2).status(), "no reason was given");
    });
    std::string failure = head(1, 6, 0, 2, 0);
    failure[7] = static_cast<char>(TW_ERR_CANCELED);
    server.answer_one(failure);
    EXPECT_EQ(0, other.join());
}

TEST_F(BootstrapTcp, a_listener_that_hangs_up_without_a_word_is_tried_again) {
    // Forked first, so that the listener is nobody else's.
    Process other([&] { EXPECT_TRUE(Rank(place_, 1, 2).gather(8)); });
    auto server = std::make_unique<WrongServer>(port_);
    server->answer_one("");
    server->answer_one("");
    server.reset();
    Process coordinator([&] { EXPECT_TRUE(Rank(place_, 0, 2).gather(8)); });
    EXPECT_EQ(0, coordinator.join());
    EXPECT_EQ(0, other.join());
}

TEST_F(BootstrapTcp, rank_0_listens_at_the_given_address_only) {
    expect_undisturbed_by(
        [&] { EXPECT_FALSE(Stranger(port_, INADDR_LOOPBACK + 1).is_connected()); });
}

TEST_F(BootstrapTcp, a_port_alone_is_one_of_this_machine) {
    place_.where = std::to_string(port_);
    expect_all_well(
        run_ranks(2, [&](std::uint32_t rank) { EXPECT_TRUE(Rank(place_, rank, 2).gather(8)); }));
}

TEST_F(BootstrapTcp, an_address_that_is_none_is_refused) {
    const std::string port = ":" + std::to_string(port_);
    for (const std::string where : {"localhost", "localhost:", "localhost:0", "localhost:65536",
                                    "localhost:12x", "::1", "localhost:-1"}) {
        place_.where = where;
        expect_failure(TW_ERR_INVALID_PARAM, Rank(place_, 1, 2).status(), "is not HOST:PORT");
    }
    place_.where = "no-such-host.invalid" + port;
    expect_failure(TW_ERR_UNREACHABLE, Rank(place_, 1, 2).status(), "cannot resolve host");
    place_.where = "192.0.2.1" + port;  // nobody's, by RFC 5737
    expect_failure(TW_ERR_INVALID_PARAM, Rank(place_, 0, 2).status(), "cannot listen at 192.0.2.1");
}

TEST_F(BootstrapTcp, ranks_that_take_no_result_are_named_and_the_others_have_it) {
    constexpr std::uint32_t kSize = 8;  // the result is more than sockets hold
    std::vector<Process> ranks;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
        ranks.emplace_back([&, rank] {
            Rank me(place_, rank, kSize, rank == 0 ? kShortMs : kPatienceMs);
            std::vector<std::byte> in(TW_BOOTSTRAP_BYTES_MAX);
            std::vector<std::byte> out(kSize * in.size());
            const tw_status_t status =
                tw_bootstrap_allgather(me.get(), in.data(), in.size(), out.data());
            if (rank == 0) {
                expect_failure(TW_ERR_TIMED_OUT, status, "ranks 2-7 did not receive the result");
            } else {
                EXPECT_EQ(TW_OK, status);
            }
        });
    }
    await_listener(port_);
    std::vector<std::unique_ptr<Stranger>> others;
    for (std::uint32_t rank = 2; rank < kSize; ++rank) {
        others.push_back(std::make_unique<Stranger>(port_));
        others.back()->say(head(1, 1, rank, kSize, 5) + "a-job");
    }
    for (std::uint32_t rank = 2; rank < kSize; ++rank) {
        const Stranger& other = *others[rank - 2];
        other.await_welcome();
        std::string share = head(1, 4, rank, kSize, TW_BOOTSTRAP_BYTES_MAX);
        share[6] = 2;  // allgather
        other.say(share + std::string(TW_BOOTSTRAP_BYTES_MAX, 'x'));
    }
    for (Process& rank : ranks)
        EXPECT_EQ(0, rank.join());
}

}  // namespace
}  // namespace tagwire::test
