// SPDX-License-Identifier: BSD-3-Clause
// Every wrong option of `tagwire perf` is refused with its name and what it takes.
#include <gtest/gtest.h>

#include "cli/failure.hpp"
#include "tools/limits.hpp"
#include "tools/perf.hpp"
#include "tools/resources.hpp"

namespace tagwire::test {
namespace {

using namespace tools;

PerfArguments arguments_for(const char* test) {
    PerfArguments arguments;
    arguments.test = test;
    return arguments;
}

std::string refusal(const PerfArguments& arguments) {
    try {
        make_plan(arguments);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(Plan, defaults_are_those_of_the_documentation) {
    const PerfPlan plan = make_plan(arguments_for("tag_bw"));
    EXPECT_EQ(plan.setup.transport, "sm");
    EXPECT_EQ(plan.setup.device, "");
    EXPECT_EQ(plan.op, Op::kAuto);
    EXPECT_EQ(plan.job.memory, MemoryKind::kUser);
    EXPECT_EQ(plan.job.window, 64U);
    EXPECT_EQ(plan.sizes.size(), 1U);
    EXPECT_EQ(plan.sizes[0].bytes, 8U);
    EXPECT_EQ(plan.port, 13377);
    EXPECT_EQ(make_plan(arguments_for("tag_lat")).job.window, 1U);
}

TEST(Plan, every_test_is_accepted_as_it_is) {
    for (const TestInfo& test : all_tests())
        EXPECT_EQ(refusal(arguments_for(test.name)), "accepted") << test.name;
}

TEST(Plan, unknown_test_lists_the_tests) {
    EXPECT_NE(refusal(arguments_for("latency")).find("am_lat am_bw am_rate tag_lat"),
              std::string::npos);
    EXPECT_NE(refusal(PerfArguments()).find("which test"), std::string::npos);
}

TEST(Plan, layers_that_do_not_exist_are_not_offered) {
    PerfArguments arguments = arguments_for("tag_lat");
    arguments.level = "mpi";
    EXPECT_EQ(refusal(arguments), "--level: 'mpi' is not available; available: uct msg");
}

PerfArguments at_level_msg(const char* test) {
    PerfArguments arguments = arguments_for(test);
    arguments.level = "msg";
    return arguments;
}

TEST(Plan, level_msg_has_the_tests_of_tagged_messages) {
    for (const char* test : {"tag_lat", "tag_bw", "tag_rate", "match"})
        EXPECT_EQ(refusal(at_level_msg(test)), "accepted") << test;
    PerfArguments arguments = at_level_msg("tag_lat");
    arguments.transport = "sm,rc:vhca0:1";
    EXPECT_EQ(make_plan(arguments).setup.transport, "sm,rc:vhca0:1");
    EXPECT_EQ(make_plan(arguments).setup.level, Level::kMsg);
}

TEST(Plan, level_msg_has_the_tests_of_active_messages) {
    for (const char* test : {"am_lat", "am_bw", "am_rate"}) {
        PerfArguments arguments = at_level_msg(test);
        EXPECT_EQ(refusal(arguments), "accepted") << test;
        arguments.memory = "mapped";
        EXPECT_EQ(refusal(arguments), "accepted") << test;
        arguments.memory = "list";
        EXPECT_EQ(refusal(arguments), "--memory: 'list' is not available; available: user mapped");
    }
    PerfArguments arguments = at_level_msg("am_rate");
    arguments.threads = 2;
    EXPECT_EQ(refusal(arguments),
              "--threads: at level msg threads send tagged messages; am_rate has one thread there");
}

TEST(Plan, level_msg_has_the_tests_of_one_sided_operations) {
    for (const char* test : {"put_lat", "put_bw", "put_rate", "get_lat", "get_bw", "add_lat",
                             "fadd_lat", "cswap_lat"}) {
        PerfArguments arguments = at_level_msg(test);
        EXPECT_EQ(make_plan(arguments).job.memory, MemoryKind::kUser) << test;
        arguments.memory = "alloc";
        EXPECT_EQ(make_plan(arguments).job.memory, MemoryKind::kAlloc) << test;
        arguments.memory = "mapped";
        EXPECT_EQ(make_plan(arguments).job.memory, MemoryKind::kMapped) << test;
        arguments.memory = "list";
        EXPECT_EQ(refusal(arguments),
                  "--memory: 'list' is not available; available: user mapped alloc");
        arguments = at_level_msg(test);
        arguments.unexpected = true;
        EXPECT_NE(refusal(arguments).find("--unexpected has no meaning"), std::string::npos);
    }
    PerfArguments arguments = at_level_msg("put_rate");
    arguments.threads = 2;
    EXPECT_EQ(refusal(arguments),
              "--threads: at level msg threads send tagged messages; put_rate has one thread "
              "there");
    arguments = at_level_msg("put_lat");
    arguments.op = "zcopy";
    EXPECT_NE(refusal(arguments).find("--op zcopy: at level msg"), std::string::npos);
}

TEST(Plan, threads_at_level_msg_share_a_context_or_a_worker) {
    PerfArguments arguments = at_level_msg("tag_rate");
    EXPECT_EQ(make_plan(arguments).setup.share, Share::kNone);
    arguments.threads = 2;
    EXPECT_EQ(make_plan(arguments).setup.share, Share::kContext);
    EXPECT_TRUE(make_plan(arguments).self);
    arguments.share = "worker";
    EXPECT_EQ(make_plan(arguments).setup.share, Share::kWorker);
    EXPECT_TRUE(make_plan(arguments).self);
    arguments.bidir = true;
    EXPECT_NE(refusal(arguments).find("unless --between"), std::string::npos);
    arguments.between = true;
    EXPECT_EQ(make_plan(arguments).setup.share, Share::kWorker);
    EXPECT_FALSE(make_plan(arguments).self);
    arguments.between = false;
    arguments.connect = "node7";
    EXPECT_FALSE(make_plan(arguments).self);
    arguments.peers = 2;
    EXPECT_NE(refusal(arguments).find("--threads with --peers"), std::string::npos);
}

TEST(Plan, sharing_is_refused_where_there_is_nothing_to_share) {
    PerfArguments arguments = at_level_msg("tag_rate");
    arguments.share = "worker";
    EXPECT_EQ(refusal(arguments), "--share is for several threads: say how many by --threads");
    arguments.threads = 2;
    arguments.share = "endpoint";
    EXPECT_EQ(refusal(arguments),
              "--share: 'endpoint' is not available; available: context worker");
    for (const char* test : {"tag_rate", "am_rate", "put_rate"}) {
        arguments = arguments_for(test);
        arguments.threads = 2;
        EXPECT_EQ(make_plan(arguments).setup.share, Share::kNone);
        arguments.share = "context";
        EXPECT_NE(refusal(arguments).find("--share has no meaning at level uct"),
                  std::string::npos);
    }
    arguments = arguments_for("tag_rate");
    arguments.threads = 2;
    arguments.between = true;
    EXPECT_NE(refusal(arguments).find("--between has no meaning at level uct"), std::string::npos);
    arguments = at_level_msg("tag_lat");
    arguments.share = "worker";
    EXPECT_NE(refusal(arguments).find("--share has no meaning for tag_lat"), std::string::npos);
    arguments = PerfArguments();
    arguments.server = true;
    arguments.between = true;
    EXPECT_NE(refusal(arguments).find("--server takes only"), std::string::npos);
}

TEST(Plan, transmit_contexts_are_those_of_a_worker_that_threads_share) {
    PerfArguments arguments = at_level_msg("tag_rate");
    arguments.tx_contexts = 2;
    const std::string needed =
        "--tx-contexts are those of a worker that threads share: it is for --level msg with "
        "--threads and --share worker";
    EXPECT_EQ(refusal(arguments), needed);
    arguments.threads = 2;
    EXPECT_EQ(refusal(arguments), needed);
    arguments.share = "worker";
    EXPECT_EQ(make_plan(arguments).setup.tx_contexts, 2U);
    arguments.between = true;
    EXPECT_EQ(make_plan(arguments).setup.tx_contexts, 2U);
    for (const std::uint64_t refused : {0U, 65U}) {
        arguments.tx_contexts = refused;
        EXPECT_EQ(refusal(arguments), "--tx-contexts takes a number from 1 to 64");
    }
    arguments.tx_contexts.reset();
    EXPECT_EQ(make_plan(arguments).setup.tx_contexts, 0U);
    arguments = at_level_msg("tag_lat");
    arguments.tx_contexts = 2;
    EXPECT_NE(refusal(arguments).find("--tx-contexts has no meaning for tag_lat"),
              std::string::npos);
    arguments = PerfArguments();
    arguments.server = true;
    arguments.tx_contexts = 2;
    EXPECT_NE(refusal(arguments).find("--server takes only"), std::string::npos);
}

TEST(Plan, pollers_progress_a_worker_that_threads_of_one_process_share) {
    PerfArguments arguments = at_level_msg("tag_rate");
    arguments.pollers = 15;
    const std::string needed =
        "--pollers only progress a worker that threads of one process share: it is for --level msg "
        "with --threads and --share worker, without --between";
    EXPECT_EQ(refusal(arguments), needed);
    arguments.threads = 1;
    EXPECT_EQ(refusal(arguments), needed);
    arguments.share = "worker";
    EXPECT_EQ(make_plan(arguments).pollers, 15U);
    arguments.pollers = 1000;
    EXPECT_EQ(refusal(arguments), "--pollers takes a number from 0 to 256");
    arguments.pollers = 15;
    arguments.between = true;
    EXPECT_EQ(refusal(arguments), needed);
    arguments = at_level_msg("tag_lat");
    arguments.pollers = 1;
    EXPECT_NE(refusal(arguments).find("--pollers has no meaning for tag_lat"), std::string::npos);
    arguments = PerfArguments();
    arguments.server = true;
    arguments.pollers = 1;
    EXPECT_NE(refusal(arguments).find("--server takes only"), std::string::npos);
}

TEST(Plan, setup_reaches_the_other_process_whole) {
    tools::Setup setup;
    setup.level = Level::kMsg;
    setup.transport = "sm";
    setup.threads = 2;
    setup.share = Share::kWorker;
    setup.tx_contexts = 2;
    setup.cpus = {0, 1, 2, 3};
    const tools::Setup there = tools::Setup::decode(Decoder(setup.encode().bytes()));
    EXPECT_EQ(there.threads, 2U);
    EXPECT_EQ(there.share, Share::kWorker);
    EXPECT_EQ(there.tx_contexts, 2U);
    EXPECT_EQ(there.cpus, setup.cpus);
    setup.cpus = {0, 1};
    EXPECT_THROW(tools::Setup::decode(Decoder(setup.encode().bytes())), Failure);
}

TEST(Plan, level_msg_refuses_what_the_layer_decides) {
    PerfArguments arguments = at_level_msg("tag_lat");
    arguments.op = "short";
    EXPECT_NE(refusal(arguments).find("--op short: at level msg"), std::string::npos);
    arguments.op = "auto";
    EXPECT_EQ(refusal(arguments), "accepted");
    arguments = at_level_msg("tag_lat");
    arguments.memory = "alloc";
    EXPECT_NE(refusal(arguments).find("--memory alloc"), std::string::npos);
    arguments = at_level_msg("tag_lat");
    arguments.wait = "sleep";
    EXPECT_EQ(refusal(arguments), "accepted");
    arguments = at_level_msg("tag_lat");
    arguments.peers = kMsgPeersMax + 1;
    EXPECT_NE(refusal(arguments).find("--peers"), std::string::npos);
    arguments = at_level_msg("tag_lat");
    arguments.unexpected = true;
    EXPECT_NE(refusal(arguments).find("level msg"), std::string::npos);
    arguments = at_level_msg("match");
    arguments.unexpected = true;
    arguments.depth = 10;
    EXPECT_EQ(refusal(arguments), "accepted");
    arguments = at_level_msg("tag_lat");
    arguments.transport = "sm,rc";
    arguments.device = "vhca0";
    EXPECT_NE(refusal(arguments).find("--device goes with one transport"), std::string::npos);
}

TEST(Plan, data_is_of_the_tests_whose_sender_has_some) {
    EXPECT_EQ(make_plan(arguments_for("tag_lat")).job.data, DataKind::kKept);
    for (const char* test :
         {"am_lat", "am_bw", "am_rate", "tag_lat", "tag_bw", "tag_rate", "put_lat", "put_rate"}) {
        PerfArguments arguments = arguments_for(test);
        arguments.data = "fresh";
        EXPECT_EQ(refusal(arguments), "accepted") << test;
        EXPECT_EQ(make_plan(arguments).job.data, DataKind::kFresh) << test;
        arguments.validate = true;
        EXPECT_NE(refusal(arguments).find("--data fresh with --validate"), std::string::npos);
    }
    for (const char* test : {"get_lat", "get_bw", "fadd_lat", "match", "cacheline"}) {
        PerfArguments arguments = arguments_for(test);
        arguments.data = "fresh";
        EXPECT_NE(refusal(arguments).find("--data has no meaning"), std::string::npos) << test;
    }
    PerfArguments arguments = arguments_for("tag_lat");
    arguments.data = "old";
    EXPECT_EQ(refusal(arguments), "--data: 'old' is not available; available: kept fresh");
}

TEST(Plan, seconds_say_how_long_a_row_lasts) {
    PerfArguments arguments = arguments_for("tag_lat");
    EXPECT_EQ(make_plan(arguments).seconds, 0.5);
    arguments.seconds = 2.5;
    EXPECT_EQ(make_plan(arguments).seconds, 2.5);
    for (const double bad : {0.0, -1.0, 1e6}) {
        arguments.seconds = bad;
        EXPECT_NE(refusal(arguments).find("--seconds takes a number above 0"), std::string::npos);
    }
    arguments.seconds = 1;
    arguments.iterations = 10;
    EXPECT_NE(refusal(arguments).find("--seconds with --iters"), std::string::npos);
}

TEST(Plan, counts_fill_the_seconds) {
    PerfArguments arguments = arguments_for("tag_lat");
    arguments.seconds = 2;
    const PerfPlan plan = make_plan(arguments);
    Job job = plan.job;
    const auto takes_10_us = [](const Job& probe) {
        Measurement measured;
        measured.iterations = probe.iterations;
        measured.seconds = static_cast<double>(probe.iterations) * 8e-6;
        measured.floor_seconds = 2e-6 * static_cast<double>(kBlockRoundTrips);
        return measured;
    };
    set_counts(plan, &job, takes_10_us);
    EXPECT_NEAR(static_cast<double>(job.iterations), 200000, 2);
    EXPECT_EQ(job.warmup, 10000U);
}

TEST(Plan, a_transport_is_named_alike_at_both_levels) {
    PerfArguments arguments = arguments_for("tag_lat");
    arguments.transport = "rc:mlx5_0:1";
    EXPECT_EQ(make_plan(arguments).setup.transport, "rc");
    EXPECT_EQ(make_plan(arguments).setup.device, "mlx5_0:1");
    arguments.device = "mlx5_1";
    EXPECT_NE(refusal(arguments).find("--device goes with one transport"), std::string::npos);
    arguments = arguments_for("tag_lat");
    arguments.transport = "auto";
    EXPECT_EQ(make_plan(arguments).setup.transport, "sm");
    arguments.transport = "sm,rc";
    EXPECT_NE(refusal(arguments).find("a list is for --level msg"), std::string::npos);
}

TEST(Plan, several_tests_are_those_between_two_processes) {
    EXPECT_EQ(make_plans({arguments_for("tag_lat"), arguments_for("cacheline")}).size(), 2U);
    try {
        make_plans({arguments_for("tag_lat"), arguments_for("many_to_one")});
        FAIL() << "accepted";
    } catch (const UsageError& error) {
        EXPECT_EQ(std::string(error.what()).find("many_to_one runs alone"), 0U) << error.what();
    }
}

TEST(Plan, standard_output_takes_one_kind_of_results) {
    PerfArguments arguments = arguments_for("tag_lat");
    arguments.csv = "-";
    EXPECT_EQ(make_plan(arguments).files.csv, "-");
    arguments.json = "-";
    EXPECT_NE(refusal(arguments).find("standard output takes one of them"), std::string::npos);
}

TEST(Plan, two_kinds_of_results_do_not_go_to_one_file) {
    PerfArguments arguments = arguments_for("tag_lat");
    arguments.json = "results";
    arguments.csv = "./results";
    EXPECT_NE(refusal(arguments).find("name the same file"), std::string::npos);
    arguments.csv = "results.csv";
    EXPECT_EQ(make_plan(arguments).files.csv, "results.csv");
    arguments.json = arguments.csv = "/dev/null";
    EXPECT_EQ(make_plan(arguments).files.csv, "/dev/null");
}

TEST(Plan, options_without_meaning_are_refused) {
    PerfArguments arguments = arguments_for("am_lat");
    arguments.window = 2;
    EXPECT_NE(refusal(arguments).find("--window has no meaning for am_lat"), std::string::npos);
    arguments = arguments_for("cacheline");
    arguments.transport = "sm";
    EXPECT_NE(refusal(arguments).find("--tl has no meaning"), std::string::npos);
    arguments = arguments_for("am_bw");
    arguments.depth = 2;
    EXPECT_NE(refusal(arguments).find("--depth has no meaning"), std::string::npos);
    arguments = arguments_for("put_bw");
    arguments.bidir = true;
    EXPECT_NE(refusal(arguments).find("--bidir has no meaning"), std::string::npos);
    arguments = arguments_for("am_lat");
    arguments.op = "rndv";
    EXPECT_NE(refusal(arguments).find("rendezvous is for tagged"), std::string::npos);
    arguments = arguments_for("put_lat");
    arguments.wait = "sleep";
    EXPECT_NE(refusal(arguments).find("--wait sleep has no meaning"), std::string::npos);
    arguments = arguments_for("match");
    arguments.unexpected = true;
    EXPECT_NE(refusal(arguments).find("level uct"), std::string::npos);
    arguments = arguments_for("chase");
    arguments.size = "64";
    EXPECT_NE(refusal(arguments).find("--size has no meaning for chase"), std::string::npos);
    arguments = arguments_for("memcpy");
    arguments.connect = "host";
    EXPECT_NE(refusal(arguments).find("--connect has no meaning"), std::string::npos);
}

TEST(Plan, wrong_values_name_the_accepted_ones) {
    PerfArguments arguments = arguments_for("tag_lat");
    arguments.op = "copy";
    EXPECT_EQ(refusal(arguments),
              "--op: 'copy' is not available; available: auto short bcopy zcopy rndv");
    arguments = arguments_for("tag_lat");
    arguments.memory = "gpu";
    EXPECT_EQ(refusal(arguments), "--memory: 'gpu' is not available; available: user alloc");
    arguments = arguments_for("tag_lat");
    arguments.wait = "idle";
    EXPECT_EQ(refusal(arguments), "--wait: 'idle' is not available; available: spin yield sleep");
    arguments = arguments_for("tag_bw");
    arguments.window = 0;
    EXPECT_EQ(refusal(arguments), "--window takes a number from 1 to 1048576");
    arguments = arguments_for("tag_bw");
    arguments.iterations = 0;
    EXPECT_NE(refusal(arguments).find("--iters takes"), std::string::npos);
    for (const char* cpus : {"", "x", "1,", "1,2,3", "-1", "1;2"}) {
        arguments = arguments_for("tag_bw");
        arguments.cpu = cpus;
        EXPECT_NE(refusal(arguments).find("--cpu:"), std::string::npos) << cpus;
    }
}

TEST(Plan, connect_takes_host_and_port) {
    PerfArguments arguments = arguments_for("tag_lat");
    arguments.connect = "node7";
    EXPECT_EQ(make_plan(arguments).host, "node7");
    EXPECT_EQ(make_plan(arguments).port, 13377);
    arguments.connect = "node7:99";
    EXPECT_EQ(make_plan(arguments).host, "node7");
    EXPECT_EQ(make_plan(arguments).port, 99);
    arguments.connect = "[::1]:99";
    EXPECT_EQ(make_plan(arguments).host, "::1");
    arguments.connect = "::1";
    EXPECT_EQ(make_plan(arguments).host, "::1");
    for (const char* bad : {"", ":99", "node7:", "node7:0", "node7:65536", "node7:x"}) {
        arguments.connect = bad;
        EXPECT_NE(refusal(arguments).find("--connect"), std::string::npos) << bad;
    }
}

TEST(Plan, server_does_what_its_client_asks) {
    PerfArguments arguments;
    arguments.server = true;
    EXPECT_TRUE(make_plan(arguments).server);
    arguments.iterations = 10;
    EXPECT_NE(refusal(arguments).find("--server takes only"), std::string::npos);
    arguments = PerfArguments();
    arguments.server = true;
    EXPECT_EQ(make_plan(arguments).port, 13377);
    arguments.server_port = "0";
    EXPECT_EQ(make_plan(arguments).port, 0);
    for (const char* bad : {"65536", "-1", "abc", "=", "13377x"}) {
        arguments.server_port = bad;
        EXPECT_NE(refusal(arguments).find(std::string("--server: '") + bad + "' is not a port"),
                  std::string::npos)
            << bad;
    }
    arguments = arguments_for("cacheline");
    arguments.server = true;
    EXPECT_NE(refusal(arguments).find("one host"), std::string::npos);
}

TEST(Limits, auto_takes_the_cheapest_and_rendezvous_for_large) {
    uct_iface_attr_t attr{};
    attr.cap.flags = UCT_IFACE_FLAG_TAG_EAGER_SHORT | UCT_IFACE_FLAG_TAG_EAGER_BCOPY |
                     UCT_IFACE_FLAG_TAG_RNDV_ZCOPY;
    attr.cap.tag.eager.max_short = 100;
    attr.cap.tag.eager.max_bcopy = 1 << 20;
    attr.cap.tag.rndv.max_zcopy = 1 << 30;
    std::string why;
    const auto choose = [&](std::uint64_t size) {
        return choose_op(TestId::kTagLat, Op::kAuto, size, attr, &why);
    };
    EXPECT_EQ(choose(100), Op::kShort);
    EXPECT_EQ(choose(101), Op::kBcopy);
    EXPECT_EQ(choose((64 << 10) - 1), Op::kBcopy);
    EXPECT_EQ(choose(64 << 10), Op::kRndv);
    EXPECT_EQ(choose(std::uint64_t{2} << 30), std::nullopt);
    EXPECT_EQ(why, "this transport does short 0 to 100, bcopy 0 to 1m, rndv 0 to 1g");
}

TEST(Limits, unexpected_messages_are_eager_or_refused) {
    uct_iface_attr_t attr{};
    attr.cap.flags = UCT_IFACE_FLAG_TAG_EAGER_BCOPY | UCT_IFACE_FLAG_TAG_RNDV_ZCOPY;
    attr.cap.tag.eager.max_bcopy = 1 << 20;
    attr.cap.tag.rndv.max_zcopy = 1 << 30;
    const Wanted unexpected(Op::kAuto, true);
    std::string why;
    EXPECT_EQ(choose_op(TestId::kTagLat, unexpected, 64 << 10, attr, &why), Op::kBcopy);
    EXPECT_EQ(choose_op(TestId::kTagLat, unexpected, 1 << 20, attr, &why), Op::kBcopy);
    EXPECT_EQ(choose_op(TestId::kTagLat, unexpected, (1 << 20) + 1, attr, &why), std::nullopt);
    EXPECT_EQ(why,
              "this transport does bcopy 0 to 1m; an unexpected rendezvous has no receive to end "
              "in, so --unexpected takes eager operations only");
    attr.cap.flags = UCT_IFACE_FLAG_TAG_RNDV_ZCOPY;
    EXPECT_EQ(missing_capability(TestId::kTagLat, unexpected, attr),
              "this transport does not have tag_eager_short, tag_eager_bcopy, tag_eager_zcopy");
}

TEST(Limits, missing_capability_is_named) {
    uct_iface_attr_t attr{};
    attr.cap.flags = UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_AM_BCOPY;
    attr.cap.am.max_short = 100;
    std::string why;
    EXPECT_EQ(choose_op(TestId::kTagLat, Op::kAuto, 8, attr, &why), std::nullopt);
    EXPECT_EQ(why,
              "this transport does not have tag_eager_short, tag_eager_bcopy, tag_eager_zcopy, "
              "tag_rndv_zcopy");
    EXPECT_EQ(choose_op(TestId::kAmLat, Op::kZcopy, 8, attr, &why), std::nullopt);
    EXPECT_EQ(why, "this transport does not have am_zcopy");
    EXPECT_EQ(missing_capability(TestId::kPutBw, Op::kShort, attr),
              "this transport does not have put_short");
    EXPECT_EQ(missing_capability(TestId::kAmBw, Op::kAuto, attr), "");
    EXPECT_EQ(missing_capability(TestId::kAmBw, Op::kBcopy, attr), "");
    EXPECT_EQ(missing_capability(TestId::kFaddLat, Op::kAuto, attr), "");
}

TEST(Resources, device_is_named_with_or_without_its_port) {
    EXPECT_TRUE(names_device("mlx5_0:1", "mlx5_0:1"));
    EXPECT_TRUE(names_device("mlx5_0", "mlx5_0:1"));
    EXPECT_FALSE(names_device("mlx5", "mlx5_0:1"));
    EXPECT_FALSE(names_device("mlx5_0:2", "mlx5_0:1"));
    EXPECT_FALSE(names_device("mlx5_1", "mlx5_10:1"));
    EXPECT_TRUE(names_device("memory", "memory"));
    EXPECT_FALSE(names_device("memory:1", "memory"));
}

TEST(Limits, atomics_work_on_words) {
    uct_iface_attr_t attr{};
    attr.cap.atomic64.op_flags = UCS_BIT(UCT_ATOMIC_OP_ADD);
    std::string why;
    EXPECT_EQ(choose_op(TestId::kAddLat, Op::kAuto, 8, attr, &why), Op::kShort);
    EXPECT_EQ(choose_op(TestId::kAddLat, Op::kAuto, 4, attr, &why), std::nullopt);
    EXPECT_EQ(choose_op(TestId::kCswapLat, Op::kAuto, 8, attr, &why), std::nullopt);
    EXPECT_EQ(choose_op(TestId::kAddLat, Op::kAuto, 16, attr, &why), std::nullopt);
    EXPECT_EQ(why, "an atomic operation works on 4 or 8 bytes");
}

TEST(Limits, one_sided_operations_of_level_msg_have_sizes_that_can_be_seen) {
    for (const TestId test : {TestId::kPutLat, TestId::kPutBw, TestId::kPutRate}) {
        EXPECT_NE(refusal_at_level_msg(test, 0), "");
        EXPECT_EQ(refusal_at_level_msg(test, 1), "");
    }
    for (const TestId test : {TestId::kAddLat, TestId::kFaddLat, TestId::kCswapLat}) {
        EXPECT_EQ(refusal_at_level_msg(test, 4), "");
        EXPECT_EQ(refusal_at_level_msg(test, 8), "");
        EXPECT_EQ(refusal_at_level_msg(test, 16), "an atomic operation works on 4 or 8 bytes");
    }
    EXPECT_EQ(refusal_at_level_msg(TestId::kGetLat, 0), "");
    EXPECT_EQ(refusal_at_level_msg(TestId::kTagLat, 0), "");
}

}  // namespace
}  // namespace tagwire::test
