// SPDX-License-Identifier: BSD-3-Clause
#include <tagwire.h>

#include <algorithm>
#include <charconv>

#include "cli/failure.hpp"
#include "cli/json_file.hpp"
#include "tools/perf.hpp"
#include "tools/strangers.hpp"

namespace tagwire::tools {
namespace {

constexpr std::uint64_t kThreadsMax = 256;
constexpr std::uint64_t kDefaultWindow = 64;
constexpr double kSecondsMax = 100000;

/// An option that was given, and the bit that a test must have for it.
struct Given {
    const char* name;
    bool given;
    unsigned needed;
};

void refuse_meaningless(const PerfArguments& arguments, const TestInfo& test) {
    const Given options[] = {
        {"--level", arguments.level.has_value(), kWithTransport},
        {"--tl", arguments.transport.has_value(), kWithTransport},
        {"--device", arguments.device.has_value(), kWithTransport},
        {"--op", arguments.op.has_value(), kWithOp},
        {"--memory", arguments.memory.has_value(), kWithMemory},
        {"--data", arguments.data.has_value(), kWithData},
        {"--size", arguments.size.has_value(), kWithSize},
        {"--window", arguments.window.has_value(), kWithWindow},
        {"--peers", arguments.peers.has_value(), kWithPeers},
        {"--ranks", arguments.ranks.has_value(), kWithPeers},
        {"--depth", arguments.depth.has_value(), kWithDepth},
        {"--threads", arguments.threads.has_value(), kWithThreads},
        {"--share", arguments.share.has_value(), kWithThreads},
        {"--between", arguments.between, kWithThreads},
        {"--pollers", arguments.pollers.has_value(), kWithThreads},
        {"--tx-contexts", arguments.tx_contexts.has_value(), kWithThreads},
        {"--bidir", arguments.bidir, kWithBidir},
        {"--wait", arguments.wait.has_value(), kWithWait},
        {"--validate", arguments.validate, kWithValidate},
        {"--connect", arguments.connect.has_value(), kWithServer},
    };
    for (const Given& option : options) {
        if (option.given && (test.options & option.needed) == 0) {
            throw UsageError(
                text("%s has no meaning for %s (%s)", option.name, test.name, test.doc));
        }
    }
    const bool is_one_sided = (test.options & kOneSided) != 0;
    if (arguments.level == "msg" && !is_one_sided) {
        if (arguments.unexpected && test.id != TestId::kMatch) {
            throw UsageError(
                text("--unexpected: %s at level msg posts its receives ahead; match takes its "
                     "messages from --depth unexpected ones",
                     test.name));
        }
        return;
    }
    if (arguments.unexpected && (test.options & kWithUnexpected) == 0) {
        throw UsageError(
            test.id == TestId::kMatch
                ? std::string(
                      "--unexpected: at level uct an unexpected message goes to the caller at "
                      "once, so no list of them is matched; use --level msg")
                : text("--unexpected has no meaning for %s (%s)", test.name, test.doc));
    }
}

/// Level msg chooses the kind of operation itself.
void refuse_at_level_msg(const PerfArguments& arguments, const TestInfo& test) {
    if (arguments.op && *arguments.op != "auto") {
        throw UsageError(text(
            "--op %s: at level msg the layer chooses by size and transport; only auto is possible",
            arguments.op->c_str()));
    }
    const bool is_one_sided = (test.options & kOneSided) != 0;
    const bool is_tagged = (test.options & (kOneSided | kActiveMessages)) == 0;
    if (arguments.memory == "alloc" && !is_one_sided) {
        throw UsageError(
            "--memory alloc: the messaging layer allocates no memory for messages; user, mapped "
            "or list at level msg");
    }
    if (arguments.threads && !is_tagged) {
        throw UsageError(
            text("--threads: at level msg threads send tagged messages; %s has one thread there",
                 test.name));
    }
    if (arguments.peers.value_or(1) > kMsgPeersMax && test.shape != Shape::kMany) {
        throw UsageError(text("--peers takes a number from 1 to %llu at level msg",
                              static_cast<unsigned long long>(kMsgPeersMax)));
    }
}

template <class Value>
struct Choice {
    const char* name;
    Value value;
};

template <class Value, std::size_t n>
Value choose(const char* option, const std::string& given, const Choice<Value> (&choices)[n]) {
    std::string names;
    for (const Choice<Value>& choice : choices) {
        if (given == choice.name)
            return choice.value;
        names += std::string(" ") + choice.name;
    }
    throw UsageError(
        text("%s: '%s' is not available; available:%s", option, given.c_str(), names.c_str()));
}

Op parse_op(const std::string& given, const TestInfo& test) {
    constexpr Choice<Op> kOps[] = {{"auto", Op::kAuto},
                                   {"short", Op::kShort},
                                   {"bcopy", Op::kBcopy},
                                   {"zcopy", Op::kZcopy},
                                   {"rndv", Op::kRndv}};
    const Op op = choose("--op", given, kOps);
    if (op == Op::kRndv && (test.options & kWithRndv) == 0) {
        throw UsageError(
            text("--op rndv has no meaning for %s: rendezvous is for tagged messages", test.name));
    }
    return op;
}

Wait parse_wait(const std::string& given, const TestInfo& test) {
    constexpr Choice<Wait> kWaits[] = {
        {"spin", Wait::kSpin}, {"yield", Wait::kYield}, {"sleep", Wait::kSleep}};
    const Wait wait = choose("--wait", given, kWaits);
    if (wait == Wait::kSleep && (test.options & kWithSleep) == 0) {
        throw UsageError(text(
            "--wait sleep has no meaning for %s: remote memory operations raise no event at the "
            "target",
            test.name));
    }
    return wait;
}

std::uint64_t in_range(const char* option, const std::optional<std::uint64_t>& given,
                       std::uint64_t fallback, std::uint64_t min, std::uint64_t max) {
    const std::uint64_t value = given.value_or(fallback);
    if (value < min || value > max) {
        throw UsageError(text("%s takes a number from %llu to %llu", option,
                              static_cast<unsigned long long>(min),
                              static_cast<unsigned long long>(max)));
    }
    return value;
}

void parse_host(const std::string& given, PerfPlan* plan) {
    const std::size_t colon = given.rfind(':');
    const bool bare_v6 = colon != std::string::npos && given.find(':') != colon &&
                         given.back() != ']' && given.front() != '[';
    if (colon == std::string::npos || bare_v6 || given.back() == ']') {
        plan->host = given;
    } else {
        unsigned port = 0;
        const auto [end, error] =
            std::from_chars(given.data() + colon + 1, given.data() + given.size(), port);
        if (error != std::errc() || end != given.data() + given.size() || port == 0 || port > 65535)
            throw UsageError(text("--connect: '%s' is not HOST or HOST:PORT", given.c_str()));
        plan->host = given.substr(0, colon);
        plan->port = static_cast<std::uint16_t>(port);
    }
    if (plan->host.size() > 2 && plan->host.front() == '[' && plan->host.back() == ']')
        plan->host = plan->host.substr(1, plan->host.size() - 2);
    if (plan->host.empty())
        throw UsageError(text("--connect: '%s' is not HOST or HOST:PORT", given.c_str()));
}

/// Port 0 is any free one.
std::uint16_t parse_server_port(const std::string& given) {
    if (given.empty())
        return kDefaultPort;
    std::uint16_t port = 0;
    const char* const last = given.data() + given.size();
    const auto [end, error] = std::from_chars(given.data(), last, port);
    if (error != std::errc() || end != last) {
        throw UsageError(
            text("--server: '%s' is not a port, which is a number to 65535 (0: any free one; "
                 "nothing behind --server: %u)",
                 given.c_str(), unsigned{kDefaultPort}));
    }
    return port;
}

/// A server does what its client asks for, so it takes few options.
PerfPlan server_plan(const PerfArguments& arguments) {
    const PerfArguments none;
    const bool others = arguments.level || arguments.transport || arguments.device ||
                        arguments.op || arguments.memory || arguments.data || arguments.size ||
                        arguments.iterations || arguments.seconds || arguments.warmup ||
                        arguments.window || arguments.peers || arguments.depth ||
                        arguments.threads || arguments.wait || arguments.json || arguments.csv ||
                        arguments.unexpected || arguments.bidir || arguments.validate ||
                        arguments.share || arguments.between || arguments.pollers ||
                        arguments.tx_contexts || arguments.ranks || arguments.beside;
    if (others || arguments.connect) {
        throw UsageError(
            "--server takes only a port and --cpu: the side with --connect says what is measured");
    }
    PerfPlan plan;
    plan.server = true;
    if (!arguments.test.empty()) {
        plan.test = &find_test(arguments.test);
        if ((plan.test->options & kWithServer) == 0) {
            throw UsageError(
                text("--server has no meaning for %s: it runs on one host", plan.test->name));
        }
    }
    plan.port = parse_server_port(arguments.server_port);
    if (arguments.cpu)
        plan.cpus = parse_cpus(*arguments.cpu);
    return plan;
}

void plan_job(const PerfArguments& arguments, const TestInfo& test, PerfPlan* plan) {
    constexpr Choice<MemoryKind> kMemories[] = {{"user", MemoryKind::kUser},
                                                {"alloc", MemoryKind::kAlloc}};
    constexpr Choice<MemoryKind> kMessageMemories[] = {
        {"user", MemoryKind::kUser}, {"mapped", MemoryKind::kMapped}, {"list", MemoryKind::kList}};
    constexpr Choice<MemoryKind> kOneSidedMemories[] = {{"user", MemoryKind::kUser},
                                                        {"mapped", MemoryKind::kMapped},
                                                        {"alloc", MemoryKind::kAlloc}};
    constexpr Choice<MemoryKind> kActiveMemories[] = {{"user", MemoryKind::kUser},
                                                      {"mapped", MemoryKind::kMapped}};
    constexpr Choice<DataKind> kData[] = {{"kept", DataKind::kKept}, {"fresh", DataKind::kFresh}};
    Job& job = plan->job;
    job.test = test.id;
    plan->op = parse_op(arguments.op.value_or("auto"), test);
    const std::string memory = arguments.memory.value_or("user");
    if (plan->setup.level == Level::kUct)
        job.memory = choose("--memory", memory, kMemories);
    else if ((test.options & kOneSided) != 0)
        job.memory = choose("--memory", memory, kOneSidedMemories);
    else if ((test.options & kActiveMessages) != 0)
        job.memory = choose("--memory", memory, kActiveMemories);
    else
        job.memory = choose("--memory", memory, kMessageMemories);
    job.data = choose("--data", arguments.data.value_or("kept"), kData);
    const bool windowed = (test.options & kWithWindow) != 0;
    job.window =
        in_range("--window", arguments.window, windowed ? kDefaultWindow : 1, 1, kWindowMax);
    job.depth = in_range("--depth", arguments.depth, 0, 0, kCountMax);
    job.unexpected = arguments.unexpected;
    job.bidir = arguments.bidir;
    job.validate = arguments.validate;
    if (job.validate && job.data == DataKind::kFresh) {
        throw UsageError(
            "--data fresh with --validate: a validated message is written anew in any case");
    }
    if (job.unexpected && plan->op == Op::kRndv) {
        throw UsageError(
            "--unexpected with --op rndv: at level uct the caller would have to fetch the message "
            "itself");
    }
    if (job.unexpected && job.depth > 0 && test.id != TestId::kMatch)
        throw UsageError("--unexpected posts no receives, so --depth has no meaning with it");
}

void plan_pollers(const PerfArguments& arguments, PerfPlan* plan) {
    if (!arguments.pollers)
        return;
    if (!plan->self || plan->setup.share != Share::kWorker) {
        throw UsageError(
            "--pollers only progress a worker that threads of one process share: it is for --level "
            "msg with --threads and --share worker, without --between");
    }
    plan->pollers = in_range("--pollers", arguments.pollers, 0, 0, kThreadsMax);
}

void plan_tx_contexts(const PerfArguments& arguments, PerfPlan* plan) {
    if (!arguments.tx_contexts)
        return;
    if (plan->setup.share != Share::kWorker) {
        throw UsageError(
            "--tx-contexts are those of a worker that threads share: it is for --level msg with "
            "--threads and --share worker");
    }
    plan->setup.tx_contexts =
        in_range("--tx-contexts", arguments.tx_contexts, 1, 1, TW_TX_CONTEXTS_MAX);
}

void plan_threads(const PerfArguments& arguments, PerfPlan* plan) {
    constexpr Choice<Share> kShares[] = {{"context", Share::kContext}, {"worker", Share::kWorker}};
    const char* const option = arguments.share ? "--share" : arguments.between ? "--between" : "";
    const bool is_msg = plan->setup.level == Level::kMsg;
    plan->setup.threads = in_range("--threads", arguments.threads, 1, 1, kThreadsMax);
    if (*option != '\0' && !is_msg) {
        throw UsageError(
            text("%s has no meaning at level uct, where each thread has a connection of its own "
                 "to the other process; it is for --level msg",
                 option));
    }
    if (*option != '\0' && !arguments.threads)
        throw UsageError(text("%s is for several threads: say how many by --threads", option));
    if (!is_msg || !arguments.threads)
        return;
    plan->setup.share = choose("--share", arguments.share.value_or("context"), kShares);
    plan->self = !arguments.between && !arguments.connect;
    if (arguments.peers) {
        throw UsageError(
            "--threads with --peers: at level msg a thread has one worker to send to, its own or "
            "that of a thread of the other process");
    }
    if (plan->self && plan->job.bidir) {
        throw UsageError(
            "--threads with --bidir: at level msg threads send to themselves, so there is no other "
            "side, unless --between makes them send to those of another process");
    }
}

void plan_counts(const PerfArguments& arguments, PerfPlan* plan) {
    if (arguments.iterations)
        plan->iterations = in_range("--iters", arguments.iterations, 1, 1, kCountMax);
    if (arguments.warmup)
        plan->warmup = in_range("--warmup", arguments.warmup, 0, 0, kCountMax);
    if (!arguments.seconds)
        return;
    if (plan->iterations)
        throw UsageError("--seconds with --iters: say how long a row lasts, or how many it has");
    if (!(*arguments.seconds > 0 && *arguments.seconds <= kSecondsMax)) {
        throw UsageError(
            text("--seconds takes a number above 0, at most %.0f, fractions too", kSecondsMax));
    }
    plan->seconds = *arguments.seconds;
}

}  // namespace

std::vector<int> parse_cpus(const std::string& list) {
    std::vector<int> cpus;
    const char* at = list.data();
    const char* const end = at + list.size();
    while (at < end && cpus.size() < 2) {
        int cpu = 0;
        const auto [next, error] = std::from_chars(at, end, cpu);
        if (error != std::errc() || cpu < 0)
            break;
        cpus.push_back(cpu);
        at = next < end && *next == ',' ? next + 1 : next;
        if (next == end)
            return cpus;
    }
    throw UsageError(text(
        "--cpu: '%s' is not A or A,B (numbers of the driver's and the peer's cpu)", list.c_str()));
}

PerfPlan make_plan(const PerfArguments& arguments) {
    if (arguments.server)
        return server_plan(arguments);
    if (arguments.test.empty())
        throw UsageError("say which test to run (tagwire perf --help lists them)");
    PerfPlan plan;
    plan.test = &find_test(arguments.test);
    refuse_meaningless(arguments, *plan.test);
    constexpr Choice<Level> kLevels[] = {{"uct", Level::kUct}, {"msg", Level::kMsg}};
    const bool is_many = plan.test->shape == Shape::kMany;
    const bool is_msg = (plan.test->options & kOnlyAtLevelMsg) != 0;
    plan.setup.level = choose("--level", arguments.level.value_or(is_msg ? "msg" : "uct"), kLevels);
    if (is_msg && plan.setup.level != Level::kMsg)
        throw UsageError(text("--level uct has no %s; it is a test of level msg", plan.test->name));
    if (plan.setup.level == Level::kMsg)
        refuse_at_level_msg(arguments, *plan.test);
    if ((plan.test->options & kWithTransport) != 0)
        plan_transport(arguments, &plan.setup);
    plan.setup.wait = parse_wait(arguments.wait.value_or("spin"), *plan.test);
    plan.setup.peers = in_range("--peers", arguments.peers, 1, 1, kPeersMax);
    if (is_many && !arguments.peers)
        plan.setup.peers = 0;
    if (arguments.ranks) {
        if (!is_many) {
            throw UsageError(text("--ranks has no meaning for %s, which is between two processes",
                                  plan.test->name));
        }
        if (arguments.peers)
            throw UsageError("--ranks with --peers: there is one rank more than peers; say one");
        plan.setup.peers = in_range("--ranks", arguments.ranks, 2, 2, kPeersMax) - 1;
    }
    plan.beside = in_range("--beside", arguments.beside, 0, 0, kStrangersMax);
    plan_job(arguments, *plan.test, &plan);
    plan_threads(arguments, &plan);
    plan_pollers(arguments, &plan);
    plan_tx_contexts(arguments, &plan);
    if (plan.setup.peers > 1 && (plan.job.bidir || plan.job.unexpected)) {
        throw UsageError(
            text("--peers with %s: what comes from several peers at once has no order to check",
                 plan.job.bidir ? "--bidir" : "--unexpected"));
    }
    plan.sizes =
        parse_sizes(arguments.size.value_or(plan.test->id == TestId::kBarrier ? "0" : "8"));
    for (const Size& size : plan.sizes) {
        const bool has_doubles =
            plan.test->id == TestId::kAllreduce || plan.test->id == TestId::kTagExchange;
        if (has_doubles && size.bytes % sizeof(double) != 0) {
            throw UsageError(text("--size %s: %s sends doubles, of 8 bytes each",
                                  size_name(size.bytes).c_str(), plan.test->name));
        }
    }
    plan_counts(arguments, &plan);
    if (arguments.cpu)
        plan.cpus = parse_cpus(*arguments.cpu);
    if (arguments.connect)
        parse_host(*arguments.connect, &plan);
    plan.files = {arguments.json.value_or(""), arguments.csv.value_or("")};
    if (plan.files.json == "-" && plan.files.csv == "-")
        throw UsageError("--json - with --csv -: standard output takes one of them");
    if (is_one_file(plan.files.json, plan.files.csv))
        throw UsageError(text("--json and --csv name the same file, %s", plan.files.csv.c_str()));
    return plan;
}

std::vector<PerfPlan> make_plans(const std::vector<PerfArguments>& tests) {
    std::vector<PerfPlan> plans;
    for (const PerfArguments& test : tests)
        plans.push_back(make_plan(test));
    for (const PerfPlan& plan : plans) {
        if (plans.size() > 1 && (plan.server || plan.self || plan.test->shape == Shape::kMany)) {
            throw UsageError(
                text("%s runs alone: several tests in one command are those between "
                     "two processes",
                     plan.server ? "--server"
                     : plan.self ? "--threads at level msg"
                                 : plan.test->name));
        }
    }
    return plans;
}

}  // namespace tagwire::tools
