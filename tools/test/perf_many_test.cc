// SPDX-License-Identifier: BSD-3-Clause
// Tests of perf with many processes: short runs of jobs that the command starts by itself or is
// told of.
#include <gtest/gtest.h>
#include <sched.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "over_vhca.hpp"

namespace tagwire::test {
namespace {

using nlohmann::json;

/// The results of a short run that must succeed.
json job_results(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "perf");
    for (const char* more : {"--iters", "200", "--validate", "--json", "-"})
        arguments.emplace_back(more);
    const Finished finished = tagwire(arguments);
    EXPECT_EQ(finished.status, 0) << testing::PrintToString(arguments) << finished.error;
    EXPECT_EQ(finished.error.find("warning"), std::string::npos)
        << "they close in order: " << finished.error;
    return finished.status == 0 ? json::parse(finished.out)["results"] : json::array();
}

void expect_job_figures(const json& result, const char* transport, std::uint64_t peers) {
    EXPECT_EQ(result["level"], "msg");
    EXPECT_EQ(result["transport"], transport);
    EXPECT_EQ(result["peers"], peers);
    EXPECT_EQ(result["cpus"].size(), peers + 1);
    EXPECT_EQ(result["validated"], true);
    EXPECT_TRUE(result["latency_ns"]["p50"].is_null());
    EXPECT_TRUE(result["bytes_per_peer"].is_null());
    EXPECT_GT(result["messages_per_s"].get<double>(), 0);
    EXPECT_GE(result["rank_messages_per_s"]["max"].get<double>(),
              result["rank_messages_per_s"]["min"].get<double>());
}

class PerfMany : public testing::TestWithParam<const char*> {};

TEST_P(PerfMany, four_ranks_check_every_byte) {
    const json results = job_results({GetParam(), "--size", "0,8,4k,100k"});
    ASSERT_EQ(results.size(), 4U);
    for (const json& result : results) {
        expect_job_figures(result, "sm", 3);
        EXPECT_EQ(result["window"], 64);
        EXPECT_EQ(result["iterations"], 200);
    }
}

TEST_P(PerfMany, two_ranks_and_a_window_of_one_are_enough) {
    const json results =
        job_results({GetParam(), "--peers", "1", "--window", "1", "--warmup", "0"});
    ASSERT_EQ(results.size(), 1U);
    expect_job_figures(results[0], "sm", 1);
}

/// The four processes that the command has started.
std::vector<pid_t> ranks_of(const Command& command) {
    const std::string pid = std::to_string(command.pid());
    std::vector<pid_t> ranks;
    for (int i = 0; i < 10000000 && ranks.size() < 4; ++i) {
        ranks.clear();
        std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
        for (pid_t rank = 0; children >> rank;)
            ranks.push_back(rank);
        sched_yield();
    }
    return ranks;
}

TEST_P(PerfMany, that_is_killed_leaves_no_file) {
    std::string place = std::filesystem::temp_directory_path() / "tagwire-many-XXXXXX";
    ASSERT_NE(mkdtemp(place.data()), nullptr);
    {
        const Setting temporary("TMPDIR", place.c_str());
        Command command("TAGWIRE_TEST_COMMAND", {"perf", GetParam(), "--iters", "1000000000"});
        ASSERT_EQ(ranks_of(command).size(), 4U);
        command.kill_now();
        command.wait();  // until the last rank has closed its output
    }
    // The keeper of the ranks' directory removes it about then.
    for (int i = 0; i < 10000000 && !std::filesystem::is_empty(place); ++i)
        sched_yield();
    EXPECT_TRUE(std::filesystem::is_empty(place));
    std::filesystem::remove_all(place);
}

TEST_P(PerfMany, a_rank_that_is_killed_ends_the_command) {
    Command command("TAGWIRE_TEST_COMMAND", {"perf", GetParam(), "--iters", "1000000000"});
    const std::vector<pid_t> ranks = ranks_of(command);
    ASSERT_EQ(ranks.size(), 4U);
    kill(ranks[2], SIGKILL);
    const Finished finished = command.wait();
    EXPECT_EQ(finished.status, 1);
    EXPECT_NE(finished.error.find("rank 2 was ended by signal 9"), std::string::npos)
        << finished.error;
    for (const pid_t rank : ranks)
        EXPECT_EQ(kill(rank, 0), -1) << rank;
}

INSTANTIATE_TEST_SUITE_P(Perf, PerfMany, testing::Values("many_to_one", "all_to_all"),
                         [](const auto& param) { return std::string(param.param); });

class PerfCollective : public testing::TestWithParam<const char*> {};

TEST_P(PerfCollective, any_number_of_ranks_checks_what_comes) {
    for (const std::size_t ranks : {2U, 3U, 5U, 8U}) {
        const json results =
            job_results({GetParam(), "--ranks", std::to_string(ranks), "--size", "8,4k,64k"});
        ASSERT_EQ(results.size(), 3U);
        for (const json& result : results) {
            EXPECT_EQ(result["peers"], ranks - 1);
            EXPECT_EQ(result["cpus"].size(), ranks);
            EXPECT_EQ(result["validated"], true);
            EXPECT_GT(result["latency_ns"]["p50"].get<double>(), 0);
        }
    }
}

TEST_P(PerfCollective, half_a_double_is_refused) {
    const Finished finished = tagwire({"perf", GetParam(), "--size", "8,12"});
    EXPECT_EQ(finished.status, 2);
    EXPECT_NE(finished.error.find("--size 12: "), std::string::npos) << finished.error;
}

INSTANTIATE_TEST_SUITE_P(Perf, PerfCollective, testing::Values("allreduce", "tag_exchange"),
                         [](const auto& param) { return std::string(param.param); });

TEST(PerfManyJob, an_exchange_is_between_two_unless_told_otherwise) {
    const json results = job_results({"tag_exchange"});
    ASSERT_EQ(results.size(), 1U);
    EXPECT_EQ(results[0]["peers"], 1);
}

TEST(PerfManyJob, ranks_of_a_launcher_meet_and_rank_0_tells) {
    std::string place = std::filesystem::temp_directory_path() / "tagwire-many-XXXXXX";
    ASSERT_NE(mkdtemp(place.data()), nullptr);
    const Setting where("TAGWIRE_BOOTSTRAP", ("dir:" + place).c_str());
    const Setting size("TAGWIRE_SIZE", "3");
    std::vector<std::unique_ptr<Command>> ranks;
    for (const char* rank : {"0", "1", "2"}) {
        const Setting number("TAGWIRE_RANK", rank);
        ranks.push_back(std::make_unique<Command>(
            "TAGWIRE_TEST_COMMAND",
            std::vector<std::string>{"perf", "all_to_all", "--iters", "100", "--json", "-"}));
    }
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const Finished finished = ranks[rank]->wait();
        EXPECT_EQ(finished.status, 0) << finished.error;
        EXPECT_EQ(finished.out.empty(), rank != 0) << finished.out;
        if (rank == 0) {
            EXPECT_EQ(json::parse(finished.out)["results"][0]["peers"], 2);
        }
    }
    std::filesystem::remove_all(place);
}

TEST(PerfManyJob, wrong_usage_is_told_once) {
    const struct {
        std::vector<std::string> arguments;
        const char* says;
    } cases[] = {
        {{"--level", "uct"}, "it is a test of level msg"},
        {{"--peers", "0"}, "--peers takes a number"},
        {{"--peers", "256"}, "at most 256 processes"},
        {{"--threads", "2"}, "--threads has no meaning"},
        {{"--connect", "host"}, "--connect has no meaning"},
        {{"--bidir"}, "--bidir has no meaning"},
        {{"--memory", "list"}, "--memory has no meaning"},
        {{"--tl", "none"}, "nothing of 'none' is here"},
        {{"--tl", "none,nothing"}, "--tl: nothing of"},
    };
    for (const auto& [arguments, says] : cases) {
        std::vector<std::string> all{"perf", "many_to_one"};
        all.insert(all.end(), arguments.begin(), arguments.end());
        const Finished finished = tagwire(all);
        EXPECT_EQ(finished.status, 2) << testing::PrintToString(arguments);
        const std::size_t at = finished.error.find(says);
        ASSERT_NE(at, std::string::npos) << finished.error;
        EXPECT_EQ(finished.error.find(says, at + 1), std::string::npos) << finished.error;
    }
}

class ManyOver : public OverVhca {
  protected:
    explicit ManyOver(const char* transport) : OverVhca(transport), name_(transport) {}
    void run() const {
        for (const char* test : {"many_to_one", "all_to_all"}) {
            const json results = results_of({test, "--size", "8,4k,100k"});
            ASSERT_EQ(results.size(), 3U) << test;
            for (const json& result : results)
                expect_job_figures(result, name_, 3);
        }
    }

  private:
    const char* name_;
};

class ManyOverRc : public ManyOver {
  protected:
    ManyOverRc() : ManyOver("rc") {}
};
class ManyOverDc : public ManyOver {
  protected:
    ManyOverDc() : ManyOver("dc") {}
};

TEST_F(ManyOverRc, messages_arrive_whole) {
    run();
}
TEST_F(ManyOverDc, messages_arrive_whole) {
    run();
}

}  // namespace
}  // namespace tagwire::test
