// SPDX-License-Identifier: BSD-3-Clause
// Short measurements: every test runs, checks its bytes and reports every key.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "tools/job.hpp"

namespace tagwire::test {
namespace {

using nlohmann::json;
using tools::Shape;
using tools::TestInfo;

std::vector<std::string> short_run(const char* test) {
    return {"perf", test, "--iters", "200", "--json", "-"};
}

/// The results of a run that must succeed.
json results_of(const std::vector<std::string>& arguments) {
    const Finished finished = tagwire(arguments);
    EXPECT_EQ(finished.status, 0) << testing::PrintToString(arguments) << finished.error;
    if (finished.status != 0)
        return json::array();
    const json document = json::parse(finished.out);
    EXPECT_EQ(document["schema"], 1);
    for (const char* key : {"cpu", "kernel", "cores"})
        EXPECT_TRUE(document["host"].contains(key));
    return document["results"];
}

void expect_every_key(const json& result) {
    for (const char* key : {"test",
                            "level",
                            "transport",
                            "device",
                            "op",
                            "memory",
                            "data",
                            "protocol",
                            "reason",
                            "size",
                            "iterations",
                            "window",
                            "depth",
                            "peers",
                            "threads",
                            "share",
                            "pollers",
                            "tx_contexts",
                            "cpus",
                            "latency_ns",
                            "floor_ns",
                            "above_floor_ns",
                            "messages_per_s",
                            "bytes_per_s",
                            "rank_messages_per_s",
                            "thread_messages_per_s",
                            "fairness",
                            "thread_messages_per_cpu_s",
                            "bytes_per_peer",
                            "buffer_bytes",
                            "qps",
                            "validated"}) {
        EXPECT_TRUE(result.contains(key)) << key << " of " << result["test"];
    }
    for (const char* key : {"min", "p50", "p99", "p999", "max", "mean"})
        EXPECT_TRUE(result["latency_ns"].contains(key)) << key << " of " << result["test"];
}

class EveryTest : public testing::TestWithParam<const char*> {};

TEST_P(EveryTest, reports_every_key_and_checked_bytes) {
    const TestInfo& test = tools::find_test(GetParam());
    std::vector<std::string> arguments = short_run(test.name);
    const bool validates = (test.options & tools::kWithValidate) != 0;
    if (validates)
        arguments.emplace_back("--validate");
    const json results = results_of(arguments);
    ASSERT_FALSE(results.empty());
    for (const json& result : results) {
        expect_every_key(result);
        EXPECT_EQ(result["test"], test.name);
        EXPECT_EQ(result["iterations"], 200);
        EXPECT_EQ(result["validated"], validates);
        const bool has_latency = test.shape != Shape::kStream;
        EXPECT_EQ(result["latency_ns"]["p50"].is_number(), has_latency);
        EXPECT_EQ(result["messages_per_s"].is_number(), test.shape == Shape::kStream);
        if (test.shape == Shape::kPingPong) {
            EXPECT_GT(result["floor_ns"].get<double>(), 0);
            EXPECT_TRUE(result["above_floor_ns"].is_number());
        }
    }
}

std::vector<const char*> names_of_all_tests() {
    std::vector<const char*> names;
    for (const TestInfo& test : tools::all_tests())
        if (test.shape != Shape::kMany)
            names.push_back(test.name);
    return names;
}

INSTANTIATE_TEST_SUITE_P(Perf, EveryTest, testing::ValuesIn(names_of_all_tests()),
                         [](const auto& param) { return std::string(param.param); });

TEST(PerfRun, data_is_kept_or_fresh_where_the_test_sends_some) {
    for (const TestInfo& test : tools::all_tests()) {
        if (test.shape == Shape::kMany)
            continue;
        const bool has_data = (test.options & tools::kWithData) != 0;
        for (const char* data : has_data ? std::vector<const char*>{"kept", "fresh"}
                                         : std::vector<const char*>{nullptr}) {
            std::vector<std::string> arguments = short_run(test.name);
            if (data != nullptr)
                arguments.insert(arguments.end(), {"--data", data});
            for (const json& result : results_of(arguments)) {
                const json expected = data != nullptr ? json(data) : json(nullptr);
                EXPECT_EQ(result["data"], expected) << test.name;
            }
        }
    }
}

TEST(PerfRun, fresh_data_goes_with_every_kind_of_operation) {
    for (const char* op : {"short", "bcopy", "zcopy", "rndv"}) {
        for (const char* test : {"tag_lat", "tag_rate"}) {
            const json results = results_of({"perf", test, "--op", op, "--size", "1,17,100",
                                             "--iters", "100", "--data", "fresh", "--json", "-"});
            EXPECT_EQ(results.size(), 3U) << test << " " << op;
        }
    }
    const Finished table = tagwire({"perf", "tag_lat", "--iters", "64", "--data", "fresh"});
    EXPECT_NE(table.out.find(", fresh data, "), std::string::npos) << table.out;
}

TEST(PerfRun, every_kind_of_tagged_message_arrives_whole) {
    for (const char* op : {"short", "bcopy", "zcopy", "rndv"}) {
        for (const char* memory : {"user", "alloc"}) {
            for (const char* test : {"tag_lat", "tag_rate"}) {
                const json results =
                    results_of({"perf", test, "--op", op, "--memory", memory, "--size", "0,1,17",
                                "--iters", "100", "--validate", "--json", "-"});
                EXPECT_EQ(results.size(), 3U) << op << memory << test;
            }
        }
    }
}

TEST(PerfRun, sweep_leaves_out_what_is_too_large) {
    const Finished finished =
        tagwire({"perf", "am_lat", "--op", "short", "--size", "1:1k", "--iters", "64"});
    EXPECT_EQ(finished.status, 0) << finished.error;
    EXPECT_NE(finished.error.find("skipped"), std::string::npos);
}

TEST(PerfRun, one_size_that_is_too_large_is_wrong_usage) {
    const Finished finished =
        tagwire({"perf", "am_lat", "--op", "short", "--size", "1k", "--iters", "64"});
    EXPECT_EQ(finished.status, 2);
    EXPECT_NE(finished.error.find("short 0 to"), std::string::npos) << finished.error;
}

TEST(PerfRun, unexpected_message_too_long_for_eager_is_refused_or_left_out) {
    const Finished refused = tagwire({"perf", "tag_lat", "--unexpected", "--size", "1g"});
    EXPECT_EQ(refused.status, 2);
    EXPECT_NE(refused.error.find("takes eager operations only"), std::string::npos)
        << refused.error;
    EXPECT_EQ(refused.error.find("rndv 0"), std::string::npos) << refused.error;
    const Finished range =
        tagwire({"perf", "tag_lat", "--unexpected", "--size", "64k:1g", "--iters", "100"});
    EXPECT_EQ(range.status, 0) << range.error;
    EXPECT_NE(range.error.find("sizes 256k to 1g skipped"), std::string::npos) << range.error;
}

TEST(PerfRun, variants_of_the_options_work) {
    const std::vector<std::vector<std::string>> runs{
        {"tag_lat", "--unexpected", "--size", "8,16k,64k,66048"},
        {"tag_rate", "--unexpected", "--size", "64k"},
        {"tag_lat", "--depth", "100"},
        {"match", "--depth", "100"},
        {"tag_rate", "--bidir"},
        {"tag_bw", "--peers", "3", "--size", "8,64k"},
        {"am_lat", "--peers", "3"},
        {"am_bw", "--bidir", "--window", "4"},
        {"am_lat", "--wait", "yield"},
        {"am_lat", "--wait", "sleep"},
        {"put_lat", "--size", "1,2,64", "--memory", "alloc"},
        {"cswap_lat", "--size", "4"},
    };
    for (std::vector<std::string> arguments : runs) {
        arguments.insert(arguments.begin(), "perf");
        for (const char* more : {"--iters", "100", "--validate", "--json", "-"})
            arguments.emplace_back(more);
        for (const json& result : results_of(arguments))
            EXPECT_EQ(result["validated"], true) << testing::PrintToString(arguments);
    }
}

// A pool for each peer would be 64 times as large.
TEST(PerfRun, peers_share_the_memory_of_buffers) {
    const auto bytes = [](const char* peers) {
        return results_of({"perf", "am_lat", "--iters", "100", "--peers", peers, "--json",
                           "-"})[0]["buffer_bytes"]
            .get<std::uint64_t>();
    };
    const std::uint64_t one = bytes("1");
    EXPECT_GE(one, 65536U);
    EXPECT_GE(bytes("64"), one);
    EXPECT_LE(bytes("64"), 2 * one);
}

// Far more sizes than can be measured between the first row and the signal.
TEST(PerfRun, that_is_interrupted_keeps_the_rows_that_it_had) {
    std::string sizes = "8";
    for (int i = 0; i < 9999; ++i)
        sizes += ",8";
    std::string folder = std::filesystem::temp_directory_path() / "tagwire-perf-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    const std::string file = folder + "/results.json";
    Command command("TAGWIRE_TEST_COMMAND",
                    {"perf", "tag_lat", "--size", sizes, "--iters", "10000", "--json", file});
    std::string line;
    for (int i = 0; i < 4; ++i)  // title, head, two rows
        line = command.read_line();
    command.send(SIGINT);
    EXPECT_EQ(line.rfind("tag_lat", 0), 0U) << line;
    const Finished finished = command.wait();
    EXPECT_EQ(finished.status, 128 + SIGINT);
    EXPECT_NE(finished.error.find("interrupted: the rows above are complete"), std::string::npos)
        << finished.error;
    std::ifstream results(file);
    EXPECT_GE(json::parse(results)["results"].size(), 1U);
    std::filesystem::remove_all(folder);
}

TEST(PerfRun, several_tests_have_a_table_each) {
    const Finished finished =
        tagwire({"perf", "tag_lat", "tag_rate", "cacheline", "--iters", "100"});
    EXPECT_EQ(finished.status, 0) << finished.error;
    for (const char* title : {"tag_lat: sm/memory", "\n\ntag_rate: sm/memory", "\n\ncacheline: "})
        EXPECT_NE(finished.out.find(title), std::string::npos) << finished.out;
}

TEST(PerfRun, seconds_end_it_soon) {
    const json results =
        results_of({"perf", "tag_rate", "--size", "8,1k", "--seconds", "0.01", "--json", "-"});
    ASSERT_EQ(results.size(), 2U);
    EXPECT_GE(results[0]["iterations"], 128);
}

TEST(PerfRun, comma_separated_values_have_a_line_for_each_result) {
    const Finished finished =
        tagwire({"perf", "tag_lat", "--size", "8,64", "--iters", "100", "--csv", "-"});
    EXPECT_EQ(finished.status, 0) << finished.error;
    EXPECT_EQ(finished.out.find("test,level,transport,device,op,memory,data,size,iterations,"), 0U);
    EXPECT_NE(finished.out.find(",latency_ns_p50,"), std::string::npos);
    EXPECT_NE(finished.out.find("\ntag_lat,uct,sm,memory,short,user,kept,64,100,"),
              std::string::npos)
        << finished.out;
    EXPECT_EQ(std::count(finished.out.begin(), finished.out.end(), '\n'), 3);
}

TEST(PerfRun, list_names_every_test) {
    const Finished finished = tagwire({"perf", "--list"});
    EXPECT_EQ(finished.status, 0) << finished.error;
    for (const TestInfo& test : tools::all_tests())
        EXPECT_NE(finished.out.find(test.name), std::string::npos) << test.name;
}

TEST(PerfRun, file_of_results_keeps_its_mode_and_the_link_to_it) {
    namespace fs = std::filesystem;
    std::string name = fs::temp_directory_path() / "tagwire-perf-test-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    const fs::path folder = name;
    std::ofstream(folder / "results.json") << "old";
    fs::permissions(folder / "results.json", fs::perms::owner_read | fs::perms::owner_write);
    fs::create_symlink("results.json", folder / "link.json");
    const std::string link = folder / "link.json";
    EXPECT_EQ(tagwire({"perf", "am_lat", "--iters", "100", "--json", link}).status, 0);
    EXPECT_TRUE(fs::is_symlink(link));
    std::ifstream results(folder / "results.json");
    EXPECT_EQ(json::parse(results)["results"].size(), 1U);
    EXPECT_EQ(fs::status(link).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    const auto files = std::distance(fs::directory_iterator(folder), fs::directory_iterator());
    EXPECT_EQ(files, 2);
    fs::remove_all(folder);
}

TEST(PerfRun, threads_stream_beside_each_other) {
    const json results = results_of(
        {"perf", "tag_rate", "--threads", "2", "--wait", "yield", "--iters", "500", "--json", "-"});
    ASSERT_EQ(results.size(), 1U);
    EXPECT_EQ(results[0]["threads"], 2);
}

TEST(PerfRun, threads_tell_the_rate_of_each_and_how_fair_they_are) {
    for (const char* test : {"am_rate", "tag_rate", "put_rate"}) {
        const json one = results_of({"perf", test, "--iters", "200", "--json", "-"});
        ASSERT_EQ(one.size(), 1U);
        EXPECT_EQ(one[0]["thread_messages_per_s"].size(), 1U) << test;
        EXPECT_TRUE(one[0]["fairness"].is_null()) << test;
        const json results = results_of({"perf", test, "--threads", "2", "--wait", "yield",
                                         "--iters", "500", "--validate", "--json", "-"});
        ASSERT_EQ(results.size(), 1U) << test;
        const json& result = results[0];
        EXPECT_TRUE(result["share"].is_null()) << test;
        EXPECT_EQ(result["cpus"].size(), 4U) << test << ": driver and peer of each thread";
        ASSERT_EQ(result["thread_messages_per_s"].size(), 2U) << test;
        const auto [slowest, fastest] =
            std::minmax({result["thread_messages_per_s"][0].get<double>(),
                         result["thread_messages_per_s"][1].get<double>()});
        EXPECT_DOUBLE_EQ(result["fairness"].get<double>(), slowest / fastest) << test;
        // All take as long as the slower one, or longer if that began late.
        EXPECT_LE(result["messages_per_s"].get<double>(), 2 * slowest * 1.000001) << test;
    }
    const Finished table =
        tagwire({"perf", "am_rate", "--threads", "2", "--wait", "yield", "--iters", "500"});
    EXPECT_NE(table.out.find(", 2 threads with a connection each, "), std::string::npos)
        << table.out;
    EXPECT_NE(table.out.find("slowest thread  fastest thread   fairness"), std::string::npos)
        << table.out;
}

}  // namespace
}  // namespace tagwire::test
