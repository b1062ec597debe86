// SPDX-License-Identifier: BSD-3-Clause
#include "tools/options.hpp"

#include <algorithm>

#include <uct/api/tagwire_uct.h>

#include "cli/command.hpp"
#include "cli/failure.hpp"
#include "tools/completion.hpp"
#include "tools/vhca.hpp"

namespace tagwire::tools {
namespace {

std::string tests_text() {
    std::string list = "Tests:\n";
    for (const TestInfo& test : all_tests())
        list += text("  %-11s %s\n", test.name, test.doc);
    return list +
           "\nSizes: 8, lists 8,1k,64k, ranges of powers of two 1:4m; k m g are powers of 1024. "
           "Bandwidths are in powers of 1000.\n"
           "Latency is half the round trip, for get_lat, fadd_lat and cswap_lat the whole "
           "operation; percentiles are over batches of 32.\n"
           "Under a launcher (mpirun, tagwire run) ranks 0 and 1 are the two processes.";
}

/// `perf` as written: the tests stand apart from what they have in common.
struct PerfLine {
    std::vector<std::string> tests;
    PerfArguments arguments;
    std::optional<CommandOption> server;
    bool lists = false;

    std::vector<PerfArguments> each() const {
        std::vector<PerfArguments> all;
        for (const std::string& test : tests.empty() ? std::vector<std::string>{""} : tests) {
            all.push_back(arguments);
            all.back().test = test;
            all.back().server = server->is_given();
        }
        return all;
    }
};

/// Options that say how much happens at once, and where.
void add_perf_load(const Command& perf, PerfArguments* arguments) {
    perf.add_option("--window", &arguments->window,
                    "Outstanding operations of streams (default 64)")
        .type_name("N");
    perf.add_option(
            "--peers", &arguments->peers,
            "Number of targets in the other process (default 1). Level uct: interfaces, at most "
            "100000; the first 64 get the messages in turn, the others count for bytes_per_peer "
            "only. Level msg: connected workers, at most 1000; the first gets the messages. "
            "many_to_one, all_to_all: number of other processes (default 3, or as many as the "
            "launcher started)")
        .type_name("N");
    perf.add_option("--ranks", &arguments->ranks,
                    "Processes of barrier, allreduce, many_to_one and all_to_all (default 4): one "
                    "more than --peers. Those of the first two go to any processor but with --cpu")
        .type_name("N");
    perf.add_option("--beside", &arguments->beside,
                    "Busy programs of others: so many processes compute on the same processors "
                    "until the end (default 0)")
        .type_name("N");
    perf.add_option("--depth", &arguments->depth,
                    "Number of unmatched receives (or unexpected messages) queued during the test "
                    "(default 0)")
        .type_name("N");
    perf.add_option("--threads", &arguments->threads,
                    "Threads, each with its own connection (default 1); at level msg each sends to "
                    "itself, in one process, unless --between is given")
        .type_name("N");
    perf.add_option("--share", &arguments->share,
                    "Share among threads at level msg: context (default), each has its own worker; "
                    "worker, all use one in thread mode multi")
        .type_name("WHAT");
    perf.add_option("--pollers", &arguments->pollers,
                    "Further threads that only make progress on the worker of --share worker "
                    "(default 0); without --between")
        .type_name("N");
    perf.add_option("--tx-contexts", &arguments->tx_contexts,
                    "Transmit contexts of the worker of --share worker, by which its threads send "
                    "(default TAGWIRE_TX_CONTEXTS, else 1)")
        .type_name("N");
    perf.add_flag("--between", &arguments->between,
                  "Threads at level msg send to those of a second process (also with --connect)");
    perf.add_flag("--unexpected", &arguments->unexpected,
                  "Post no receives: messages arrive unexpected (match at level msg: --depth of "
                  "them wait)");
    perf.add_flag("--bidir", &arguments->bidir, "Stream in both directions at once");
    perf.add_option("--wait", &arguments->wait,
                    "spin (default), yield or sleep while nothing arrives")
        .type_name("HOW");
    perf.add_option("--cpu", &arguments->cpu,
                    "Cpus of this process and its peer (default the first two)")
        .type_name("A,B");
}

void add_perf(const Command& app, PerfLine* line) {
    const Command perf = app.add_command("perf", "Measure between two processes");
    PerfArguments* const arguments = &line->arguments;
    perf.footer(tests_text());
    perf.add_option("test", &line->tests, "Tests to run, listed below").type_name("TEST");
    perf.add_flag("--list", &line->lists, "Print the tests, one a line");
    perf.add_option(
            "--level", &arguments->level,
            "Layer: uct, the transport itself (default); msg, the messaging layer (tag, match, "
            "put, get and atomic tests)")
        .type_name("LEVEL");
    perf.add_option("--tl", &arguments->transport,
                    "Transport, with or without a device: sm, rc, rc:mlx5_0:1 or auto (default "
                    "TAGWIRE_TRANSPORTS, else sm); at level msg a list, too: sm,rc:mlx5_0:1")
        .type_name("NAME");
    perf.add_option("--device", &arguments->device,
                    "Device, where --tl names the transport alone (default the first)")
        .type_name("NAME");
    perf.add_option("--op", &arguments->op,
                    "Kind of operation: auto, short, bcopy, zcopy or rndv (default auto: by size)")
        .type_name("OP");
    perf.add_option(
            "--memory", &arguments->memory,
            "user: ordinary memory, registered (default); alloc: from the memory domain, at level "
            "msg from tw_mem_alloc() (put, get and atomic tests); at level msg also mapped: with "
            "a handle; list: sent as a list of two pieces (tag tests)")
        .type_name("KIND");
    perf.add_option("--data", &arguments->data,
                    "kept: every message has the same bytes, written once (default); fresh: the "
                    "sender writes all bytes of each message before it sends them")
        .type_name("KIND");
    perf.add_option("--size", &arguments->size, "Message sizes (default 8)").type_name("LIST");
    perf.add_option("--seconds", &arguments->seconds,
                    "Seconds for which each row is measured (default 0.5)")
        .type_name("N");
    perf.add_option("--iters", &arguments->iterations,
                    "Messages or round trips of each row, instead of --seconds")
        .type_name("N");
    perf.add_option("--warmup", &arguments->warmup,
                    "Untimed iterations before each row (default 10 % of the timed ones, at most "
                    "10000)")
        .type_name("N");
    add_perf_load(perf, arguments);
    line->server =
        perf.add_option("--server", &arguments->server_port,
                        "Wait for a --connect on this port (default 13377; 0: any free one)")
            .value_is_optional()
            .type_name("[PORT]");
    perf.add_option("--connect", &arguments->connect, "Measure against the --server on this host")
        .type_name("HOST[:PORT]");
    perf.add_flag("--validate", &arguments->validate, "Check every byte of every message");
    perf.add_option("--json", &arguments->json,
                    "Write results as JSON to FILE, - for standard output")
        .type_name("FILE");
    perf.add_option("--csv", &arguments->csv, "Write results as CSV to FILE, - for standard output")
        .type_name("FILE");
}

void add_info(const Command& app, InfoArguments* arguments) {
    const Command info = app.add_command("info", "Show devices, configuration and build");
    info.add_option("what", &arguments->what, "devices, config, progress or build (default all)")
        .type_name("WHAT")
        .choices({"devices", "config", "progress", "build"});
    info.add_option("--json", &arguments->json, "Write JSON to FILE, - for standard output")
        .type_name("FILE");
}

void add_explain(const Command& app, ExplainArguments* arguments) {
    const Command explain = app.add_command(
        "explain",
        "Show the protocol of each message size, the reason for it, and the cost of each protocol");
    explain
        .add_option("--tl", &arguments->transports,
                    "Transports, with or without devices: sm,rc:mlx5_0:1 (default "
                    "TAGWIRE_TRANSPORTS)")
        .type_name("LIST");
    explain.add_option("--size", &arguments->sizes, "Message sizes (default 8,1k,8k,64k,1m)")
        .type_name("LIST");
    explain
        .add_option("--buffer", &arguments->buffer,
                    "plain: ordinary memory (default); mapped: with a handle; list: a gather list")
        .type_name("KIND");
    explain
        .add_option("--op", &arguments->op,
                    "Explain one-sided operations instead of messages: put, get, add, and, or, "
                    "xor, swap, min, max, cswap")
        .type_name("OP")
        .choices({"put", "get", "add", "and", "or", "xor", "swap", "min", "max", "cswap"});
    explain.add_flag("--live", &arguments->live,
                     "Also exchange messages of each size between two processes, and show what "
                     "their connection has learnt and chosen");
    explain.add_option("--cpu", &arguments->cpu, "With --live: the CPUs of the two")
        .type_name("A,B");
    explain.add_option("--json", &arguments->json, "Write JSON to FILE, - for standard output")
        .type_name("FILE");
    explain
        .add_option("--plot", &arguments->plot,
                    "Draw cost over size into this SVG file (x.svg); needs Python 3 and gnuplot")
        .type_name("FILE");
}

void add_tune(const Command& app, TuneArguments* arguments) {
    const Command tune = app.add_command(
        "tune", "Measure the cost of messages on this machine, for the choice of protocols");
    tune.add_option("--tl", &arguments->transports,
                    "Transports, with or without devices, measured one by one, or auto: all that "
                    "have tagged messages (default TAGWIRE_TRANSPORTS, else sm)")
        .type_name("LIST");
    tune.add_option("--rounds", &arguments->rounds,
                    "Rounds per measurement; the median counts (default 5)")
        .range(1, 1000)
        .type_name("N");
    tune.add_option("--cpu", &arguments->cpu,
                    "Cpus of this process and its peer (default the first two)")
        .type_name("A,B");
    tune.add_option("--output", &arguments->output,
                    "File to write, instead of the one that the library reads by default")
        .type_name("FILE");
    tune.add_option("--seconds", &arguments->seconds,
                    "Time limit of each transport: rounds that do not fit are skipped (default "
                    "60)")
        .range(1, 100000)
        .type_name("N");
    tune.add_flag("--force", &arguments->force,
                  "Store the results even if the machine was too busy for reliable ones");
}

void add_report(const Command& app, ReportArguments* arguments) {
    const Command report =
        app.add_command("report", "Measure this machine and write an HTML page of plots");
    report.add_option("file", &arguments->file, "HTML page to write; needs Python 3 and gnuplot")
        .type_name("OUT.html")
        .required();
    report.add_flag("--quick", &arguments->quick, "Few sizes and short runs: about half a minute");
    report
        .add_option(
            "--compare", &arguments->compare,
            "Also measure these, if installed: ucx (the newest ucx_perftest of the path and of the "
            "list TAGWIRE_BENCH_UCX), libfabric (fi_pingpong), openmpi (NetPIPE), or several with "
            "commas")
        .type_name("LIST");
}

void add_soak(const Command& app, SoakArguments* arguments) {
    const Command soak = app.add_command(
        "soak",
        "Exchange random messages between two processes, use memory of each other, and check every "
        "byte");
    soak.add_option("--seconds", &arguments->seconds, "Seconds to run (default 10)")
        .type_name("N")
        .range(1, 1000000);
    soak.add_option("--seed", &arguments->seed, "Random seed (default: a new one for each run)")
        .type_name("N");
    soak.add_option("--tl", &arguments->transports,
                    "Transports, with or without devices: sm,rc:mlx5_0:1, or auto (default "
                    "TAGWIRE_TRANSPORTS, else sm)")
        .type_name("LIST");
}

Command add_run(const Command& app, LaunchArguments* arguments) {
    const Command run = app.add_command(
        "run", "Start N processes (ranks) of a program on this host and wait for them");
    run.starts_program();
    run.add_option("-n,--ranks", &arguments->ranks, "Number of ranks (1 to 1024)")
        .type_name("N")
        .range(1, kLaunchedRanksMax)
        .required();
    run.add_option("--tl", &arguments->transports,
                   "Transports of the messaging layer, with or without devices: sm,rc:mlx5_0:1, "
                   "or auto (default TAGWIRE_TRANSPORTS)")
        .type_name("LIST");
    run.add_flag("--label", &arguments->labels,
                 "Prefix each output line with its rank: \"[2] ready\"");
    run.add_flag("--bind", &arguments->binds, "Bind each rank to a cpu, in turn");
    return run;
}

/// The words behind the program's name. A "--" before the program of `run` is left out: CLI11 would
/// take what follows it for arguments of `run` itself.
std::vector<std::string> arguments_of(int argc, char** argv, const Command& run) {
    std::vector<std::string> arguments = words_of(argc, argv);
    if (!arguments.empty() && arguments.front() == "run") {
        std::size_t at = 1;
        while (at < arguments.size() && arguments[at].starts_with('-') && arguments[at] != "--")
            at += run.takes_value(arguments[at]) ? 2 : 1;
        if (at < arguments.size() && arguments[at] == "--")
            arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return arguments;
}

void add_completion(const Command& app, std::string* shell) {
    const Command completion = app.add_command("completion",
                                               "Print the script with which a shell completes this "
                                               "command: source <(tagwire completion bash)");
    completion.add_option("shell", shell, "bash, zsh or fish")
        .type_name("SHELL")
        .choices({"bash", "zsh", "fish"})
        .required();
}

/// The program tagwire-vhca takes the words behind it.
constexpr const char* kVhca = "vhca";

DescribedCommand described_with_vhca(const RootCommand& app) {
    DescribedCommand all = app.describe();
    for (DescribedCommand& one : all.commands)
        if (one.name == kVhca)
            one.commands = vhca_commands();
    return all;
}

}  // namespace

CommandLine parse_command_line(int argc, char** argv, std::string* asked) {
    const RootCommand app("tagwire", "tagwire: tagged messages over shared memory, RDMA and TCP",
                          std::string("tagwire ") + tagwire_version_string());
    app.require_command();
    PerfLine perf;
    InfoArguments info;
    ExplainArguments explain;
    TuneArguments tune;
    ReportArguments report;
    SoakArguments soak;
    LaunchArguments launch;
    std::string shell;
    add_perf(app, &perf);
    add_info(app, &info);
    add_explain(app, &explain);
    add_tune(app, &tune);
    add_report(app, &report);
    add_soak(app, &soak);
    const Command run = add_run(app, &launch);
    app.add_command(kVhca, "Programs on the virtual HCA");
    add_completion(app, &shell);
    CommandLine line;
    std::vector<std::string> words = words_of(argc, argv);
    if (!words.empty() && words.front() == kVhca) {
        line.vhca.emplace(words.begin() + 1, words.end());
        return line;
    }
    try {
        line.done = !app.parse(arguments_of(argc, argv, run));
    } catch (const UsageError&) {
        *asked = app.asked();
        throw;
    }
    if (line.done)
        return line;
    *asked = app.asked();
    if (app.has_got("perf")) {
        line.lists_tests = perf.lists;
        line.perf = perf.each();
    } else if (app.has_got("run")) {
        launch.command = run.remaining();
        line.launch = launch;
    } else if (app.has_got("completion")) {
        line.completion = completion_script(described_with_vhca(app), shell);
    } else if (app.has_got("info")) {
        line.info = info;
    } else if (app.has_got("explain")) {
        line.explain = explain;
    } else if (app.has_got("tune")) {
        line.tune = tune;
    } else if (app.has_got("report")) {
        line.report = report;
        for (int i = 0; i < argc; ++i)
            line.report->command += (i == 0 ? "" : " ") + std::string(argv[i]);
    } else if (app.has_got("soak")) {
        line.soak = soak;
    }
    return line;
}

}  // namespace tagwire::tools
