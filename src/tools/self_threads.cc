// SPDX-License-Identifier: BSD-3-Clause
#include "tools/self_threads.hpp"

#include <algorithm>
#include <tagwire_msg.hpp>

#include "tools/failure.hpp"
#include "tools/loops.hpp"
#include "tools/measure.hpp"
#include "tools/msg_link.hpp"
#include "tools/pinning.hpp"
#include "tools/report.hpp"

namespace tagwire::tools {
namespace {

/// Runs a test on one cpu, in whichever thread calls first.
class Pinned final : public Test {
  public:
    Pinned(std::unique_ptr<Test> test, int cpu) : test_(std::move(test)), cpu_(cpu) {}

    double run(std::uint64_t count, BatchTimer* timer) override {
        if (!is_pinned_) {
            pin_to(cpu_);
            is_pinned_ = true;
        }
        return test_->run(count, timer);
    }
    Outcome outcome() const override { return test_->outcome(); }

  private:
    std::unique_ptr<Test> test_;
    int cpu_;
    bool is_pinned_ = false;
};

struct Threads {
    Threads(const PerfPlan& plan, std::vector<int> all)
        : cpus(std::move(all)), context(msg::Context::adopt(open_context(plan.setup))) {
        for (std::uint64_t i = 0; i < plan.setup.threads; ++i)
            links.push_back(std::make_unique<MsgLink>(context.get(), plan.setup));
    }

    Measurement run(Job job) const {
        std::vector<std::unique_ptr<Test>> tests;
        job.bidir = true;  // each is both sides
        for (std::size_t i = 0; i < links.size(); ++i)
            tests.push_back(std::make_unique<Pinned>(make_msg_test(*links[i], job), cpus[i]));
        job.bidir = false;
        Measurement measured = run_streams(tests, job);
        for (const std::unique_ptr<Test>& test : tests) {
            measured.validated += test->outcome().validated;
            measured.errors += test->outcome().errors;
        }
        return measured;
    }

    std::vector<int> cpus;
    msg::Context context;
    std::vector<std::unique_ptr<MsgLink>> links;
};

Job job_for(const PerfPlan& plan, const Size& size, const Threads& threads) {
    Job job = plan.job;
    job.size = size.bytes;
    job.op = Op::kAuto;
    set_counts(plan, &job, [&](Job probe) {
        probe.warmup = std::max<std::uint64_t>(probe.warmup, 1);
        return threads.run(probe);
    });
    // At least one: a thread is pinned by then.
    job.warmup = std::max<std::uint64_t>(job.warmup, 1);
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

void run_self_threads(const PerfPlan& plan) {
    Results results(plan.files);
    const std::vector<int> turn = cpus_in_turn(plan.cpus);
    std::vector<int> cpus;
    for (std::uint64_t i = 0; i < plan.setup.threads; ++i)
        cpus.push_back(turn[i % turn.size()]);
    const Threads threads(plan, cpus);
    for (const Size& size : plan.sizes)
        results.add({result_for(plan, job_for(plan, size, threads), threads)});
    results.finish();
}

}  // namespace tagwire::tools
