// SPDX-License-Identifier: BSD-3-Clause
#include "tools/self_threads.hpp"

#include "tools/failure.hpp"
#include "tools/loops.hpp"
#include "tools/measure.hpp"
#include "tools/msg_link.hpp"
#include "tools/pinning.hpp"
#include "tools/report.hpp"

namespace tagwire::tools {
namespace {

struct Threads {
    Threads(const PerfPlan& plan, std::vector<int> all)
        : cpus(std::move(all)), links(make_msg_links(Side::kDriver, plan.setup, nullptr)) {}

    Measurement run(Job job) const {
        std::vector<std::unique_ptr<Test>> tests;
        job.bidir = true;  // each is both sides
        for (const std::unique_ptr<MsgLink>& link : links)
            tests.push_back(make_msg_test(*link, job));
        job.bidir = false;
        Measurement measured = run_streams(tests, job, cpus);
        for (const std::unique_ptr<Test>& test : tests) {
            measured.validated += test->outcome().validated;
            measured.errors += test->outcome().errors;
        }
        return measured;
    }

    std::vector<int> cpus;
    std::vector<std::unique_ptr<MsgLink>> links;
};

Job job_for(const PerfPlan& plan, const Size& size, const Threads& threads) {
    Job job = plan.job;
    job.size = size.bytes;
    job.op = Op::kAuto;
    set_counts(plan, &job, [&](const Job& probe) { return threads.run(probe); });
    return job;
}

Result result_for(const PerfPlan& plan, const Job& job, const Threads& threads) {
    Result result;
    result.test = plan.test->name;
    result.level = name_of(Level::kMsg);
    result.op = name_of(Op::kAuto);
    result.memory = name_of(job.memory);
    result.data = name_of(job.data);
    result.transport = threads.links.front()->transport();
    result.device = threads.links.front()->device();
    result.size = job.size;
    result.window = job.window;
    result.threads = plan.setup.threads;
    result.share = name_of(plan.setup.share);
    result.cpus = threads.cpus;
    result.measured = threads.run(job);
    result.validated = job.validate;
    if (result.measured.errors > 0) {
        throw Failure(text("%s %s: %llu messages were wrong", plan.test->name,
                           size_name(job.size).c_str(),
                           static_cast<unsigned long long>(result.measured.errors)));
    }
    return result;
}

}  // namespace

void run_self_threads(PerfPlan plan) {
    Results results(plan.files);
    const std::vector<int> turn = cpus_in_turn(plan.cpus);
    std::vector<int> cpus;
    for (std::uint64_t i = 0; i < plan.setup.threads; ++i)
        cpus.push_back(turn[i % turn.size()]);
    // Those with a worker each wait for nobody.
    if (plan.setup.share == Share::kWorker)
        take_turns(&plan.setup, plan.setup.threads, turn.size());
    const Threads threads(plan, cpus);
    for (const Size& size : plan.sizes)
        results.add({result_for(plan, job_for(plan, size, threads), threads)});
    results.finish();
}

}  // namespace tagwire::tools
