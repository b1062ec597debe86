// SPDX-License-Identifier: BSD-3-Clause
#include "tools/self_threads.hpp"

#include <atomic>
#include <exception>
#include <latch>
#include <thread>

#include "cli/failure.hpp"
#include "tools/loops.hpp"
#include "tools/measure.hpp"
#include "tools/msg_link.hpp"
#include "tools/pinning.hpp"
#include "tools/report.hpp"

namespace tagwire::tools {
namespace {

/// Threads that progress the worker of `shared` from construction to stop(). They leave its
/// messages to others, and give their processor away where the setup says so.
class Pollers {
  public:
    Pollers(const MsgLink& shared, const std::vector<int>& cpus)
        : running_(static_cast<std::ptrdiff_t>(cpus.size())), failures_(cpus.size()) {
        for (std::size_t i = 0; i < cpus.size(); ++i)
            threads_.emplace_back([this, &shared, cpu = cpus[i], i] { poll(shared, cpu, i); });
        running_.wait();
    }
    ~Pollers() { join(); }
    Pollers(const Pollers&) = delete;
    Pollers& operator=(const Pollers&) = delete;

    /// Throws what has stopped one of them before.
    void stop() {
        join();
        for (const std::exception_ptr& failure : failures_)
            if (failure)
                std::rethrow_exception(failure);
    }

  private:
    void poll(const MsgLink& shared, int cpu, std::size_t i) {
        running_.count_down();
        try {
            pin_to(cpu);
            MsgLink link(shared, shared.stream());
            while (!is_over_.load(std::memory_order_relaxed))
                link.progress();
        } catch (...) {
            failures_[i] = std::current_exception();
        }
    }

    void join() {
        is_over_.store(true, std::memory_order_relaxed);
        for (std::thread& thread : threads_)
            if (thread.joinable())
                thread.join();
    }

    std::latch running_;
    std::atomic<bool> is_over_ = false;  // relaxed: nothing else is read for it
    std::vector<std::exception_ptr> failures_;
    std::vector<std::thread> threads_;
};

struct Threads {
    /// `all`: of the threads that send, and behind them of those that poll.
    Threads(const PerfPlan& plan, const std::vector<int>& all)
        : cpus(all.begin(), all.end() - static_cast<std::ptrdiff_t>(plan.pollers)),
          poller_cpus(all.end() - static_cast<std::ptrdiff_t>(plan.pollers), all.end()),
          links(make_msg_links(Side::kDriver, plan.setup, nullptr)) {}

    Measurement run(Job job) const {
        std::vector<std::unique_ptr<Test>> tests;
        job.bidir = true;  // each is both sides
        for (const std::unique_ptr<MsgLink>& link : links)
            tests.push_back(make_test(*link, job));
        job.bidir = false;
        Pollers pollers(*links.front(), poller_cpus);
        Measurement measured = run_streams(tests, job, cpus);
        pollers.stop();
        for (const std::unique_ptr<Test>& test : tests) {
            measured.validated += test->outcome().validated;
            measured.errors += test->outcome().errors;
        }
        return measured;
    }

    std::vector<int> cpus, poller_cpus;
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
    result.pollers = plan.pollers;
    result.tx_contexts = plan.setup.tx_contexts;
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
    for (std::uint64_t i = 0; i < plan.setup.threads + plan.pollers; ++i)
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
