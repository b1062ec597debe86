// SPDX-License-Identifier: BSD-3-Clause
#include "tools/perf.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string_view>

#include "cli/failure.hpp"
#include "tools/describe.hpp"
#include "tools/limits.hpp"
#include "tools/many.hpp"
#include "tools/pinning.hpp"
#include "tools/rank_pair.hpp"
#include "tools/report.hpp"
#include "tools/self_threads.hpp"
#include "tools/session.hpp"
#include "tools/strangers.hpp"

namespace tagwire::tools {
namespace {

/// Sizes of ranges that the transport cannot do, told at the end.
struct LeftOut {
    std::vector<std::uint64_t> sizes;
    std::string why;

    void tell() const {
        if (!sizes.empty()) {
            std::fprintf(stderr, "tagwire: sizes %s to %s skipped: %s\n",
                         size_name(sizes.front()).c_str(), size_name(sizes.back()).c_str(),
                         why.c_str());
        }
    }
};

[[noreturn]] void refuse(const PerfPlan& plan, const Size& size, const std::string& why) {
    throw UsageError(text("%s %s --op %s over %s: %s", plan.test->name,
                          size_name(size.bytes).c_str(), name_of(plan.op),
                          plan.setup.transport.c_str(), why.c_str()));
}

void check_depth(const Job& job, const uct_iface_attr_t& attr) {
    constexpr std::size_t kOwnReceives = 3;  // of the test itself
    const std::size_t limit = attr.cap.tag.recv.max_outstanding;
    if (job.depth > 0 && job.depth + kOwnReceives > limit) {
        throw UsageError(text(
            "--depth %llu: an interface of this transport takes %zu posted receives (tagwire info "
            "config lists the option that sets it)",
            static_cast<unsigned long long>(job.depth), limit));
    }
}

/// The job for one size; nothing when the size belongs to a range and the transport cannot do it.
std::optional<Job> job_for(const PerfPlan& plan, const Size& size, const Driver& driver,
                           LeftOut* left_out) {
    Job job = plan.job;
    job.size = size.bytes;
    if (plan.setup.level == Level::kMsg) {
        job.op = Op::kAuto;
        const std::string why = refusal_at_level_msg(job.test, size.bytes);
        if (why.empty())
            return job;
        if (!size.from_range)
            refuse(plan, size, why);
        left_out->sizes.push_back(size.bytes);
        left_out->why = why;
        return std::nullopt;
    }
    const uct_iface_attr_t& attr = driver.link().attr();
    std::string why;
    const Wanted wanted(plan.op, job.unexpected);
    const std::optional<Op> op = choose_op(job.test, wanted, size.bytes, attr, &why);
    if (op) {
        job.op = *op;
        check_depth(job, attr);
        return job;
    }
    if (!size.from_range || !missing_capability(job.test, wanted, attr).empty())
        refuse(plan, size, why);
    left_out->sizes.push_back(size.bytes);
    left_out->why = why;
    return std::nullopt;
}

Result result_for(const PerfPlan& plan, const Job& job, const std::vector<int>& cpus) {
    Result result;
    result.test = plan.test->name;
    result.size = job.size;
    result.window = job.window;
    result.depth = job.depth;
    result.peers = plan.setup.peers;
    result.beside = plan.beside;
    result.threads = plan.setup.threads;
    if (plan.setup.share != Share::kNone)
        result.share = name_of(plan.setup.share);
    result.tx_contexts = plan.setup.tx_contexts;
    result.cpus = plan.setup.cpus.empty() ? cpus : plan.setup.cpus;
    return result;
}

/// `measured` must not contain wrong messages.
void accept(const Job& job, const Measurement& measured, Result* result) {
    if (measured.errors > 0) {
        throw Failure(text("%s %s: %llu messages were wrong", result->test.c_str(),
                           size_name(job.size).c_str(),
                           static_cast<unsigned long long>(measured.errors)));
    }
    result->measured = measured;
    result->validated = job.validate;
}

Measurement run_floor(Driver& driver, const Job& job) {
    switch (job.test) {
        case TestId::kCacheline:
            return driver.run_cacheline(job).front().measurement;
        case TestId::kMemcpy:
            return driver.run_memcpy(job);
        default:
            return run_chase(job);
    }
}

void run_floors(const PerfPlan& plan, Driver& driver, const std::vector<int>& cpus,
                Results* results) {
    ProgressLine progress;
    for (const Size& size : plan.sizes) {
        Job job = plan.job;
        job.size = plan.test->id == TestId::kCacheline ? sizeof(std::uint64_t) : size.bytes;
        set_counts(plan, &job, [&](const Job& probe) { return run_floor(driver, probe); });
        Result result = result_for(plan, job, cpus);
        if (plan.test->id != TestId::kCacheline) {
            accept(job, run_floor(driver, job), &result);
            results->add({result});
            continue;
        }
        std::vector<Result> variants;
        for (const VariantMeasurement& one : driver.run_cacheline(
                 job, [&](double share) { progress.show(plan.test->name, share); })) {
            accept(job, one.measurement, &result);
            result.op = one.variant->name;
            variants.push_back(result);
        }
        progress.hide();
        results->add(variants);
    }
}

/// Adds the cost of one more peer. The allocator does not see what a transport maps, and a
/// transport does not see what its device allocates: the greater of both counts.
void add_footprint(const Link& link, Result* result) {
    const Facts facts = describe(link.interface(0));
    result->bytes_per_peer =
        std::max(link.allocated_per_peer(), number_in(facts, "bytes_per_peer"));
    result->buffer_bytes = number_in(facts, "pool_bytes");
    result->qps = number_in(facts, "qps");
}

/// Adds how the messages went over the connection at the end, and why.
void add_protocol(const MsgLink& link, const Job& job, Result* result) {
    const tw_buffer_kind_t buffer = job.memory == MemoryKind::kMapped ? TW_BUFFER_MAPPED
                                    : job.memory == MemoryKind::kList ? TW_BUFFER_LIST
                                                                      : TW_BUFFER_PLAIN;
    const tw_explanation_t how = link.explain(job.size, buffer);
    result->protocol = how.protocols[how.chosen].name;
    result->reason = how.source[0] != '\0' ? text("%s (%s)", how.rule, how.source) : how.rule;
    // The others are short, or not copied through shared memory.
    constexpr std::string_view kCopied[] = {"bcopy", "parts", "rndv_copy"};
    if (how.copy_in != nullptr &&
        std::ranges::find(kCopied, *result->protocol) != std::end(kCopied))
        *result->reason += text("; copied in by %s, out by %s", how.copy_in, how.copy_out);
}

/// Adds the level, transport and device that carried the messages.
void add_carrier(const PerfPlan& plan, const Driver& driver, Result* result) {
    result->level = name_of(plan.setup.level);
    if (plan.setup.level == Level::kMsg) {
        result->transport = driver.msg_link().transport();
        result->device = driver.msg_link().device();
        result->bytes_per_peer = driver.msg_link().bytes_per_peer();
        result->buffer_bytes = driver.msg_link().buffer_bytes();
        return;
    }
    result->transport = driver.link().resource().transport;
    result->device = driver.link().resource().device;
    add_footprint(driver.link(), result);
}

void run_transport(const PerfPlan& plan, Driver& driver, const std::vector<int>& cpus,
                   Results* results) {
    driver.open(plan.setup);
    LeftOut left_out;
    ProgressLine progress;
    for (std::size_t i = 0; i < plan.sizes.size(); ++i) {
        std::optional<Job> job = job_for(plan, plan.sizes[i], driver, &left_out);
        if (!job)
            continue;
        const std::string what = text("%s %s (%zu of %zu)", plan.test->name,
                                      size_name(job->size).c_str(), i + 1, plan.sizes.size());
        progress.show(what, 0);
        set_counts(plan, &*job, [&](const Job& probe) { return driver.run(probe); });
        Result result = result_for(plan, *job, cpus);
        accept(*job, driver.run(*job, [&](double share) { progress.show(what, share); }), &result);
        add_carrier(plan, driver, &result);
        // One-sided operations have no protocols to choose from.
        if (plan.setup.level == Level::kMsg && (plan.test->options & kOneSided) == 0)
            add_protocol(driver.msg_link(), *job, &result);
        result.op = (plan.test->options & kWithOp) != 0
                        ? std::optional<std::string>(name_of(job->op))
                        : std::nullopt;
        result.memory = name_of(job->memory);
        result.data = (plan.test->options & kWithData) != 0
                          ? std::optional<std::string>(name_of(job->data))
                          : std::nullopt;
        progress.hide();
        results->add({result});
    }
    left_out.tell();
}

void run_plans(const std::vector<PerfPlan>& plans, std::unique_ptr<Channel> channel,
               const std::vector<int>& cpus, Results* results) {
    Driver driver(std::move(channel), cpus);
    for (const PerfPlan& plan : plans) {
        if (plan.test->shape == Shape::kFloor)
            run_floors(plan, driver, cpus, results);
        else
            run_transport(plan, driver, cpus, results);
    }
}

/// Both sides on one cpu take turns.
void share_cpu(std::vector<PerfPlan>* plans) {
    std::fprintf(stderr,
                 "tagwire: warning: only one cpu is allowed: both sides share it and take turns, "
                 "which costs microseconds each time\n");
    for (PerfPlan& plan : *plans)
        if (plan.setup.wait == Wait::kSpin)
            plan.setup.wait = Wait::kYield;
}

/// Threads take the allowed cpus in turn, each beside its partner of the other side.
void place_threads(std::vector<PerfPlan>* plans) {
    for (PerfPlan& plan : *plans) {
        if (plan.setup.threads == 1)
            continue;
        const std::vector<int> turn = cpus_in_turn(plan.cpus);
        for (std::size_t i = 0; i < 2 * plan.setup.threads; ++i)
            plan.setup.cpus.push_back(turn[i % turn.size()]);
        take_turns(&plan.setup, plan.setup.cpus.size(), turn.size());
    }
}

/// The other side is a process that this one starts, or a server.
void run_driver(std::vector<PerfPlan> plans) {
    const PerfPlan& first = plans.front();
    const Strangers strangers(first.beside);
    const bool is_local = first.host.empty();
    const std::vector<int> cpus = choose_cpus(first.cpus);
    if (is_local && cpus[0] == cpus[1])
        share_cpu(&plans);
    place_threads(&plans);
    Results results(first.files);
    run_plans(plans,
              is_local ? start_peer_process()
                       : std::make_unique<Channel>(connect_to(first.host, first.port)),
              cpus, &results);
    results.finish();
}

bool is_within_host(const PerfPlan& plan) {
    return (plan.test->options & kWithServer) == 0;
}

/// Ranks 0 and 1 are on two hosts, which some tests cannot be between: rank 0 measures these with a
/// process of its own.
int run_within_host(const std::vector<PerfPlan>& plans, std::uint32_t rank) {
    if (!std::ranges::all_of(plans, is_within_host)) {
        if (rank > 0)
            return 2;  // rank 0 says it for all
        throw UsageError(text(
            "%s measures within one host, but ranks 0 and 1 are on two: measure it in a command "
            "of its own",
            std::ranges::find_if(plans, is_within_host)->test->name));
    }
    if (rank == 0)
        run_driver(plans);
    return 0;
}

/// A rank of a job that a launcher has started: the first two measure.
int run_launched(std::vector<PerfPlan> plans, tagwire::Bootstrap job) {
    if (plans.front().self) {
        if (job.rank() == 0)
            run_self_threads(plans.front());
        return 0;
    }
    const RankPair pair(std::move(job), plans.front().cpus);
    if (pair.rank() > 1)
        return 0;
    if (!pair.is_on_one_host() && std::ranges::any_of(plans, is_within_host))
        return run_within_host(plans, pair.rank());
    if (pair.rank() == 1) {
        serve_driver(pair.accept(), pair.own_cpu());
        return 0;
    }
    const std::vector<int> cpus = pair.cpus();
    if (pair.is_on_one_host() && cpus[0] == cpus[1])
        share_cpu(&plans);
    for (PerfPlan& plan : plans)
        take_turns(&plan.setup, plan.setup.threads, 1);  // a rank stays on one cpu
    Results results(plans.front().files);
    run_plans(plans, pair.connect(), cpus, &results);
    results.finish();
    return 0;
}

}  // namespace

void take_turns(Setup* setup, std::size_t threads, std::size_t cpus) {
    if (threads <= cpus || setup->wait != Wait::kSpin)
        return;
    std::fprintf(stderr,
                 "tagwire: warning: %zu threads take turns at %zu cpu%s, so they yield while "
                 "nothing arrives\n",
                 threads, cpus, cpus == 1 ? "" : "s");
    setup->wait = Wait::kYield;
}

int run_perf(const std::vector<PerfPlan>& plans) {
    const PerfPlan& plan = plans.front();
    if (plan.server) {
        const int cpu = plan.cpus.empty() ? -1 : choose_cpus(plan.cpus).front();
        serve_driver(std::make_unique<Channel>(accept_one(plan.port)), cpu);
        return 0;
    }
    if (plan.test->shape == Shape::kMany)
        return run_many(plan);
    if (plan.host.empty()) {
        tagwire::Bootstrap job;
        if (job.size() > 1)
            return run_launched(plans, std::move(job));
    }
    if (plan.self)
        run_self_threads(plan);
    else
        run_driver(plans);
    return 0;
}

void list_tests() {
    for (const TestInfo& test : all_tests())
        std::printf("%-11s %s\n", test.name, test.doc);
}

}  // namespace tagwire::tools
