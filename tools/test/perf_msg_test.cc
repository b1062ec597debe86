// SPDX-License-Identifier: BSD-3-Clause
// Short measurements through the messaging layer.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "command.hpp"
#include "over_vhca.hpp"
#include "tools/job.hpp"

namespace tagwire::test {
namespace {

using nlohmann::json;

/// The results of a run that must succeed.
json results_over_sm(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "perf");
    for (const char* more : {"--level", "msg", "--iters", "200", "--json", "-"})
        arguments.emplace_back(more);
    const Finished finished = tagwire(arguments);
    EXPECT_EQ(finished.status, 0) << testing::PrintToString(arguments) << finished.error;
    return finished.status == 0 ? json::parse(finished.out)["results"] : json::array();
}

/// System calls by which one process of a run over tcp sent, the greater number of the two.
unsigned long most_writes_over_tcp(const std::vector<std::string>& arguments) {
    const char* const library = std::getenv("TAGWIRE_TEST_WRITES_LIBRARY");
    const std::string path = testing::TempDir() + "writes_" + std::to_string(::getpid());
    {
        const Setting preloaded("LD_PRELOAD", library);
        const Setting order("ASAN_OPTIONS", "verify_asan_link_order=0");
        const Setting device("TAGWIRE_TCP_DEVICES", "lo");
        const Setting file("TAGWIRE_TEST_WRITES", path.c_str());
        const Finished finished = tagwire(arguments);
        EXPECT_EQ(finished.status, 0) << finished.error;
    }
    unsigned long most = 0;
    std::ifstream lines(path);
    for (unsigned long count = 0; lines >> count;)
        most = std::max(most, count);
    std::remove(path.c_str());
    return most;
}

class EveryTestAtLevelMsg : public testing::TestWithParam<const char*> {};

TEST_P(EveryTestAtLevelMsg, has_the_keys_of_level_uct_and_checked_bytes) {
    const bool streams = tools::find_test(GetParam()).shape == tools::Shape::kStream;
    const json at_uct =
        json::parse(tagwire({"perf", GetParam(), "--iters", "64", "--json", "-"}).out)["results"];
    ASSERT_EQ(at_uct.size(), 1U);
    const json results = results_over_sm({GetParam(), "--size", "0,8,17,4k,300k", "--validate"});
    ASSERT_EQ(results.size(), 5U);
    for (const json& result : results) {
        for (const auto& [key, value] : at_uct[0].items())
            EXPECT_TRUE(result.contains(key)) << key;
        EXPECT_EQ(result["level"], "msg");
        EXPECT_EQ(result["transport"], "sm");
        EXPECT_EQ(result["device"], "memory");
        EXPECT_EQ(result["op"], "auto");
        EXPECT_EQ(result["validated"], true);
        EXPECT_EQ(result["latency_ns"]["p50"].is_number(), !streams);
        EXPECT_EQ(result["floor_ns"].is_number(), !streams);
        EXPECT_EQ(result["above_floor_ns"].is_number(), !streams);
        EXPECT_EQ(result["messages_per_s"].is_number(), streams);
    }
}

INSTANTIATE_TEST_SUITE_P(Perf, EveryTestAtLevelMsg,
                         testing::Values("tag_lat", "tag_bw", "tag_rate", "match", "match_wild"),
                         [](const auto& param) { return std::string(param.param); });

// All but the last of a window have more behind them.
TEST(PerfAtLevelMsg, messages_of_a_window_share_system_calls) {
    if (std::getenv("TAGWIRE_TEST_WRITES_LIBRARY") == nullptr)
        GTEST_SKIP() << "TAGWIRE_TEST_WRITES_LIBRARY does not name libwrites.so";
    for (const char* test : {"tag_rate", "am_rate", "put_rate"}) {
        const auto writes_at = [test](const char* window) {
            return most_writes_over_tcp({"perf", test, "--level", "msg", "--tl", "tcp", "--iters",
                                         "4000", "--warmup", "0", "--window", window});
        };
        EXPECT_GE(writes_at("1"), 4000U) << test;
        EXPECT_LT(writes_at("100"), 1000U) << test;
    }
}

TEST(PerfAtLevelMsg, variants_of_the_options_work) {
    const std::vector<std::vector<std::string>> runs{
        {"tag_lat", "--depth", "100"},
        {"tag_lat", "--memory", "mapped", "--size", "1,300k"},
        {"tag_bw", "--memory", "list", "--size", "1,300k"},
        {"match", "--depth", "100"},
        {"match_wild", "--depth", "1000"},
        {"match", "--unexpected", "--size", "8,4k,100k"},
        {"match", "--unexpected", "--depth", "100", "--size", "0,8,17,4k,100k"},
        {"tag_rate", "--bidir", "--window", "3"},
        {"tag_bw", "--window", "1", "--size", "8,64k"},
        {"tag_bw", "--bidir", "--size", "64k"},
        {"tag_lat", "--wait", "yield"},
    };
    for (std::vector<std::string> arguments : runs) {
        arguments.emplace_back("--validate");
        const json results = results_over_sm(arguments);
        EXPECT_FALSE(results.empty()) << testing::PrintToString(arguments);
        for (const json& result : results)
            EXPECT_EQ(result["validated"], true) << testing::PrintToString(arguments);
    }
}

TEST(PerfAtLevelMsg, data_may_be_fresh) {
    const std::vector<std::vector<std::string>> runs{
        {"tag_lat", "--size", "0,1,8,4k,300k"},
        {"tag_lat", "--memory", "mapped", "--size", "1,300k"},
        {"tag_bw", "--size", "8,4k,300k"},
        {"tag_rate", "--bidir", "--size", "8,64k"},
        {"tag_rate", "--threads", "2", "--wait", "yield", "--size", "8,64k"},
    };
    for (std::vector<std::string> arguments : runs) {
        arguments.insert(arguments.end(), {"--data", "fresh"});
        const json results = results_over_sm(arguments);
        EXPECT_FALSE(results.empty()) << testing::PrintToString(arguments);
        for (const json& result : results)
            EXPECT_EQ(result["data"], "fresh") << testing::PrintToString(arguments);
    }
}

/// Runs of threads that share a context or a worker, to themselves or to those of a second process.
class EveryWayOfSharing
    : public testing::TestWithParam<std::tuple<const char*, const char*, bool>> {};

TEST_P(EveryWayOfSharing, carries_the_messages_of_every_thread) {
    const auto& [test, share, is_between] = GetParam();
    for (const char* threads : {"1", "3"}) {
        std::vector<std::string> arguments{test,        "--threads", threads, "--share",
                                           share,       "--wait",    "yield", "--size",
                                           "8,4k,100k", "--validate"};
        if (is_between)
            arguments.emplace_back("--between");
        const json results = results_over_sm(arguments);
        ASSERT_EQ(results.size(), 3U);
        const std::size_t number = std::stoul(threads);
        for (const json& result : results) {
            EXPECT_EQ(result["threads"], number);
            EXPECT_EQ(result["share"], share);
            EXPECT_EQ(result["cpus"].size(), is_between ? 2 * number : number);
            EXPECT_EQ(result["level"], "msg");
            EXPECT_EQ(result["transport"], "sm");
            EXPECT_EQ(result["validated"], true);
            EXPECT_GT(result["messages_per_s"].get<double>(), 0);
            EXPECT_EQ(result["thread_messages_per_s"].size(), number);
            EXPECT_EQ(result["fairness"].is_number(), number > 1);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Perf, EveryWayOfSharing,
                         testing::Combine(testing::Values("tag_rate", "tag_bw"),
                                          testing::Values("context", "worker"), testing::Bool()),
                         [](const auto& param) {
                             return std::string(std::get<0>(param.param)) + "_" +
                                    std::get<1>(param.param) +
                                    (std::get<2>(param.param) ? "_between" : "_self");
                         });

TEST(PerfAtLevelMsg, threads_of_two_processes_stream_in_both_directions) {
    for (const char* share : {"context", "worker"}) {
        const json results = results_over_sm({"tag_rate", "--threads", "2", "--between", "--share",
                                              share, "--bidir", "--window", "3", "--validate"});
        ASSERT_EQ(results.size(), 1U);
        EXPECT_EQ(results[0]["validated"], true);
        EXPECT_EQ(results[0]["thread_messages_per_s"].size(), 2U);
    }
}

TEST(PerfAtLevelMsg, threads_send_beside_others_that_poll_their_worker) {
    for (const char* wait : {"spin", "yield"}) {
        const json results =
            results_over_sm({"tag_rate", "--threads", "2", "--share", "worker", "--pollers", "3",
                             "--wait", wait, "--size", "8,64k", "--validate"});
        ASSERT_EQ(results.size(), 2U);
        for (const json& result : results) {
            EXPECT_EQ(result["pollers"], 3);
            EXPECT_EQ(result["cpus"].size(), 2U);
            EXPECT_EQ(result["validated"], true);
            ASSERT_EQ(result["thread_messages_per_cpu_s"].size(), 2U);
            for (const json& rate : result["thread_messages_per_cpu_s"])
                EXPECT_GT(rate.get<double>(), 0);
        }
    }
}

TEST(PerfAtLevelMsg, threads_send_by_transmit_contexts_of_their_worker) {
    for (const bool is_between : {false, true}) {
        std::vector<std::string> arguments{"tag_rate", "--threads",     "2",     "--share",
                                           "worker",   "--tx-contexts", "2",     "--wait",
                                           "yield",    "--size",        "8,64k", "--validate"};
        if (is_between)
            arguments.emplace_back("--between");
        const json results = results_over_sm(arguments);
        ASSERT_EQ(results.size(), 2U);
        for (const json& result : results) {
            EXPECT_EQ(result["tx_contexts"], 2);
            EXPECT_EQ(result["validated"], true);
            EXPECT_EQ(result["thread_messages_per_s"].size(), 2U);
        }
    }
}

TEST(PerfAtLevelMsg, table_says_how_many_transmit_contexts_a_worker_has) {
    const Finished finished =
        tagwire({"perf", "tag_rate", "--level", "msg", "--threads", "2", "--share", "worker",
                 "--tx-contexts", "2", "--wait", "yield", "--iters", "200"});
    EXPECT_EQ(finished.status, 0) << finished.error;
    EXPECT_NE(finished.out.find(", 2 threads with one worker, 2 transmit contexts, "),
              std::string::npos)
        << finished.out;
}

TEST(PerfAtLevelMsg, table_says_how_many_threads_poll) {
    const Finished finished =
        tagwire({"perf", "tag_rate", "--level", "msg", "--threads", "1", "--share", "worker",
                 "--pollers", "2", "--wait", "yield", "--iters", "200"});
    EXPECT_EQ(finished.status, 0) << finished.error;
    EXPECT_NE(finished.out.find(", 2 pollers, "), std::string::npos) << finished.out;
    EXPECT_NE(finished.out.find("by cpu time"), std::string::npos) << finished.out;
}

TEST(PerfAtLevelMsg, table_says_what_threads_share) {
    const Finished finished = tagwire({"perf", "tag_rate", "--level", "msg", "--threads", "2",
                                       "--share", "worker", "--wait", "yield", "--iters", "200"});
    EXPECT_EQ(finished.status, 0) << finished.error;
    EXPECT_NE(finished.out.find(", 2 threads with one worker, "), std::string::npos)
        << finished.out;
}

TEST(PerfAtLevelMsg, tells_how_messages_went_and_why) {
    const json results =
        json::parse(tagwire({"perf", "tag_lat", "--level", "msg", "--tl", "sm", "--size",
                             "8,4k,256k", "--iters", "2000", "--json", "-"})
                        .out)["results"];
    ASSERT_EQ(results.size(), 3U);
    const auto says = [&](std::size_t row, const char* words) {
        return results[row]["reason"].get<std::string>().find(words) != std::string::npos;
    };
    EXPECT_EQ(results[0]["protocol"], "short");
    EXPECT_FALSE(says(0, "copied in by")) << results[0];
    EXPECT_EQ(results[1]["protocol"], "bcopy");
    EXPECT_TRUE(says(1, "copied in by")) << results[1];
    EXPECT_NE(results[2]["protocol"], "bcopy");
    EXPECT_EQ(says(2, "copied in by"), results[2]["protocol"] == "parts") << results[2];
    EXPECT_TRUE(says(2, "measures")) << results[2];  // the receiver, or this side if it leads
    EXPECT_TRUE(says(2, "regime")) << results[2];
    const std::string printed =
        tagwire({"perf", "tag_lat", "--level", "msg", "--tl", "sm", "--iters", "64"}).out;
    EXPECT_NE(printed.find("\n8: short; "), std::string::npos) << printed;
}

TEST(PerfAtLevelMsg, many_peers_tell_what_an_endpoint_takes) {
    const json results = results_over_sm({"tag_lat", "--peers", "40", "--validate"});
    ASSERT_EQ(results.size(), 1U);
    EXPECT_EQ(results[0]["peers"], 40);
    EXPECT_EQ(results[0]["validated"], true);
    EXPECT_GT(results[0]["bytes_per_peer"].get<std::uint64_t>(), 100U);
    EXPECT_TRUE(results_over_sm({"tag_lat"})[0]["bytes_per_peer"].is_null());
    EXPECT_GE(results[0]["buffer_bytes"].get<std::uint64_t>(), 65536U);
}

TEST(PerfTransports, are_those_of_the_library_at_both_levels) {
    for (const char* level : {"uct", "msg"}) {
        const std::vector<std::string> run{"perf", "tag_lat", "--level", level, "--iters", "100"};
        {
            const Setting transports("TAGWIRE_TRANSPORTS", "smm");
            const Finished refused = tagwire(run);
            EXPECT_EQ(refused.status, 2);
            EXPECT_NE(refused.error.find("TAGWIRE_TRANSPORTS: "), std::string::npos)
                << refused.error;
            EXPECT_NE(refused.error.find("'smm'"), std::string::npos) << refused.error;
        }
        for (const char* value : {"auto", "sm", "sm:memory"}) {
            const Setting transports("TAGWIRE_TRANSPORTS", value);
            const Finished finished = tagwire(run);
            EXPECT_EQ(finished.status, 0) << level << value << finished.error;
            EXPECT_NE(finished.out.find("sm/memory"), std::string::npos) << finished.out;
        }
    }
}

TEST(PerfAtLevelMsg, wrong_usage_is_told) {
    const Finished peers = tagwire({"perf", "tag_lat", "--level", "msg", "--peers", "1001"});
    EXPECT_EQ(peers.status, 2);
    EXPECT_NE(peers.error.find("1 to 1000"), std::string::npos) << peers.error;
    const Finished op = tagwire({"perf", "tag_lat", "--level", "msg", "--op", "short"});
    EXPECT_EQ(op.status, 2);
    EXPECT_NE(op.error.find("--op short"), std::string::npos) << op.error;
    const Finished threads =
        tagwire({"perf", "tag_rate", "--level", "msg", "--threads", "2", "--bidir"});
    EXPECT_EQ(threads.status, 2);
    EXPECT_NE(threads.error.find("--threads with --bidir"), std::string::npos) << threads.error;
    const Finished transport = tagwire({"perf", "tag_lat", "--level", "msg", "--tl", "none"});
    EXPECT_EQ(transport.status, 2);
    EXPECT_NE(transport.error.find("nothing of 'none' is here"), std::string::npos)
        << transport.error;
    const Finished list = tagwire({"perf", "tag_lat", "--level", "msg", "--tl", "none,nothing"});
    EXPECT_EQ(list.status, 2);
    EXPECT_NE(list.error.find("none,nothing"), std::string::npos) << list.error;
}

class MsgOverDc : public OverVhca {
  protected:
    MsgOverDc() : OverVhca("dc") {}
};

TEST_F(MsgOverDc, messages_arrive_whole) {
    for (const char* test : {"tag_lat", "tag_bw", "tag_rate", "match"}) {
        const json results = results_of({test, "--level", "msg", "--size", "0,8,4k,100k"});
        ASSERT_EQ(results.size(), 4U) << test;
        for (const json& result : results) {
            EXPECT_EQ(result["level"], "msg");
            EXPECT_EQ(result["transport"], "dc");
            EXPECT_EQ(result["device"], "vhca0:1");
            EXPECT_EQ(result["validated"], true);
            EXPECT_TRUE(result["floor_ns"].is_null());
        }
    }
}

}  // namespace
}  // namespace tagwire::test
