// SPDX-License-Identifier: BSD-3-Clause
#include "tools/many.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>

#include "cli/failure.hpp"
#include "cli/json_file.hpp"
#include "tools/many_collective.hpp"
#include "tools/many_traffic.hpp"
#include "tools/pinning.hpp"
#include "tools/report.hpp"
#include "tools/strangers.hpp"

namespace tagwire::tools {
namespace {

Measurement sum_of(const std::vector<ManyShare>& shares, const Job& job) {
    Measurement sum;
    sum.iterations = job.iterations;
    double all_ns = 0, sent = 0;
    RateRange rates;
    for (const ManyShare& share : shares) {
        all_ns = std::max(all_ns, share.all_ns);
        sent += static_cast<double>(share.sent);
        sum.validated += share.validated;
        sum.errors += share.errors;
        if (share.sent > 0) {
            const double rate = static_cast<double>(share.sent) / (share.sending_ns * 1e-9);
            rates.min = rates.max == 0 ? rate : std::min(rates.min, rate);
            rates.max = std::max(rates.max, rate);
        }
    }
    sum.seconds = all_ns * 1e-9;
    sum.messages_per_s = sent / sum.seconds;
    sum.bytes_per_s = *sum.messages_per_s * static_cast<double>(job.size);
    sum.rank_messages_per_s = rates;
    return sum;
}

Job job_for(const PerfPlan& plan, const Size& size) {
    Job job = plan.job;
    job.size = size.bytes;
    job.op = Op::kAuto;
    return job;
}

/// The figures of the slowest rank.
Measurement sum_of(const std::vector<CollectiveShare>& shares, const Job& job) {
    Measurement sum;
    sum.iterations = job.iterations;
    LatencySummary worst = shares.front().latency_ns;
    for (const CollectiveShare& share : shares) {
        sum.seconds = std::max(sum.seconds, share.all_ns * 1e-9);
        sum.validated += share.validated;
        sum.errors += share.errors;
        for (const auto field :
             {&LatencySummary::min, &LatencySummary::p50, &LatencySummary::p99,
              &LatencySummary::p999, &LatencySummary::max, &LatencySummary::mean})
            worst.*field = std::max(worst.*field, share.latency_ns.*field);
    }
    sum.latency_ns = worst;
    return sum;
}

template <class Work>
Measurement run_job(ManyRank& rank, Work& work, const Job& job) {
    if (job.warmup > 0)
        work.run(job.warmup);
    return sum_of(rank.gather(work.run(job.iterations)), job);
}

template <class Work>
Measurement measure_job(const PerfPlan& plan, ManyRank& rank, Job* job) {
    Work work(rank, *job);
    // All ranks have the same figures, so they choose the same counts.
    set_counts(plan, job, [&](const Job& probe) { return run_job(rank, work, probe); });
    return run_job(rank, work, *job);
}

bool is_collective(TestId test) {
    return test == TestId::kBarrier || test == TestId::kAllreduce || test == TestId::kTagExchange;
}

Result result_for(const PerfPlan& plan, const Job& job, const ManyRank& rank) {
    Result result;
    result.test = plan.test->name;
    result.level = name_of(Level::kMsg);
    result.op = name_of(Op::kAuto);
    result.memory = name_of(job.memory);
    const Carrier carrier = carrier_of(rank.worker().get());
    result.transport = carrier.transport;
    result.device = carrier.device;
    result.size = job.size;
    result.window = job.window;
    result.peers = rank.size() - 1;
    result.beside = plan.beside;
    return result;
}

/// `results`: null but on rank 0, which alone tells them.
void measure(const PerfPlan& plan, ManyRank& rank, Results* results) {
    rank.meet();
    const std::vector<int> cpus = rank.gather(sched_getcpu());
    for (const Size& size : plan.sizes) {
        Job job = job_for(plan, size);
        const Measurement measured = is_collective(job.test)
                                         ? measure_job<ManyCollective>(plan, rank, &job)
                                         : measure_job<ManyTraffic>(plan, rank, &job);
        if (measured.errors > 0) {
            throw Failure(text("%s %s: %llu messages were wrong", plan.test->name,
                               size_name(job.size).c_str(),
                               static_cast<unsigned long long>(measured.errors)));
        }
        Result result = result_for(plan, job, rank);
        result.cpus = cpus;
        result.measured = measured;
        result.validated = job.validate;
        if (results != nullptr)
            results->add({result});
    }
    rank.part();
}

/// A rank of a job that has met.
int run_rank(const PerfPlan& plan, tagwire::Bootstrap job) {
    const std::uint32_t number = job.rank();
    try {
        if (plan.setup.peers != 0 && plan.setup.peers != job.size() - 1) {
            throw UsageError(text(
                "--ranks or --peers: %llu peers, but the launcher has started %u processes, so "
                "there "
                "are %u peers",
                static_cast<unsigned long long>(plan.setup.peers), job.size(), job.size() - 1));
        }
        std::optional<Results> results;
        if (number == 0)
            results.emplace(plan.files);
        ManyRank rank(std::move(job), plan.setup);
        measure(plan, rank, results ? &*results : nullptr);
        if (results)
            results->finish();
        return 0;
    } catch (const UsageError&) {
        if (number == 0)
            throw;
        return 2;  // rank 0 says it for all
    } catch (const std::exception& error) {
        throw Failure(text("rank %u: %s", number, error.what()));
    }
}

}  // namespace

int run_many(const PerfPlan& plan) {
    tagwire::Bootstrap job;
    if (job.size() > 1)
        return run_rank(plan, std::move(job));
    if (std::strcmp(job.method_name(), "single") != 0) {
        throw UsageError(
            text("%s needs at least two processes, and the launcher has started one; without a "
                 "launcher the command starts them itself",
                 plan.test->name));
    }
    const std::uint64_t usual = plan.test->id == TestId::kTagExchange ? 1 : kDefaultManyPeers;
    const std::uint64_t peers = plan.setup.peers != 0 ? plan.setup.peers : usual;
    if (peers >= kStartedRanksMax) {
        throw UsageError(
            text("--ranks or --peers: the command starts at most %llu processes by itself; use a "
                 "launcher",
                 static_cast<unsigned long long>(kStartedRanksMax)));
    }
    check_writable(plan.files);
    const Strangers strangers(plan.beside);
    const bool goes_anywhere =
        plan.test->id == TestId::kBarrier || plan.test->id == TestId::kAllreduce;
    const bool is_pinned = !goes_anywhere || !plan.cpus.empty();
    return start_ranks(peers + 1, is_pinned ? cpus_in_turn(plan.cpus) : std::vector<int>());
}

}  // namespace tagwire::tools
