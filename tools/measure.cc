// SPDX-License-Identifier: BSD-3-Clause
#include "tools/measure.hpp"

#include <time.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <exception>
#include <thread>

#include "cli/failure.hpp"
#include "tools/huge_allocator.hpp"
#include "tools/pattern.hpp"
#include "tools/pinning.hpp"
#include "tools/random.hpp"

namespace tagwire::tools {
namespace {

void report(const OnProgress& on_progress, std::uint64_t done, std::uint64_t all) {
    if (on_progress)
        on_progress(static_cast<double>(done) / static_cast<double>(all));
}

double seconds_since(std::uint64_t start_ns) {
    return static_cast<double>(now_ns() - start_ns) * 1e-9;
}

/// Processor time of the calling thread.
double thread_cpu_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

/// Runs `body(i)` in one thread each, the first one here; rethrows the first exception.
template <class Body>
void in_threads(std::size_t count, Body body) {
    std::vector<std::exception_ptr> failures(count);
    const auto guarded = [&](std::size_t i) {
        try {
            body(i);
        } catch (...) {
            failures[i] = std::current_exception();
        }
    };
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < count; ++i)
        threads.emplace_back(guarded, i);
    guarded(0);
    for (std::thread& thread : threads)
        thread.join();
    for (const std::exception_ptr& failure : failures)
        if (failure)
            std::rethrow_exception(failure);
}

}  // namespace

Measurement run_ping_pong(Side side, Test& test, const Job& job, CachelineFloor* floor,
                          const OnProgress& on_progress) {
    const bool driver = side == Side::kDriver;
    BatchTimer timer(2);  // of one block
    timer.samples().reserve(kBlockRoundTrips / BatchTimer::kBatch);
    Samples all, floors, differences;
    Measurement result;
    result.iterations = job.iterations;
    test.run(job.warmup, nullptr);
    std::uint64_t blocks = 0;
    for (std::uint64_t done = 0; done < job.iterations; ++blocks) {
        const std::uint64_t block = std::min(kBlockRoundTrips, job.iterations - done);
        const std::uint64_t begin = now_ns();
        const double floor_ns = floor != nullptr ? floor->block() : 0;
        result.floor_seconds += seconds_since(begin);
        const std::uint64_t begin_of_test = now_ns();
        timer.samples().clear();
        test.run(block, driver ? &timer : nullptr);
        result.seconds += seconds_since(begin_of_test);
        done += block;
        for (const double sample : timer.samples().kept())
            all.add(sample);
        if (driver && floor != nullptr) {
            floors.add(floor_ns);
            differences.add(timer.samples().median() - floor_ns);
        }
        report(on_progress, done, job.iterations);
    }
    result.floor_seconds /= static_cast<double>(std::max<std::uint64_t>(blocks, 1));
    if (driver) {
        result.latency_ns = all.summary();
        if (floor != nullptr) {
            result.floor_ns = floors.median();
            result.above_floor_ns = differences.median();
        }
    }
    return result;
}

Measurement run_fetch(Side side, Test& test, const Job& job, const OnProgress& on_progress) {
    Measurement result;
    result.iterations = job.iterations;
    if (side == Side::kPeer)
        return result;
    BatchTimer all(1);
    test.run(job.warmup, nullptr);
    const std::uint64_t start = now_ns();
    for (std::uint64_t done = 0; done < job.iterations;) {
        const std::uint64_t block = std::min(kBlockRoundTrips, job.iterations - done);
        test.run(block, &all);
        done += block;
        report(on_progress, done, job.iterations);
    }
    result.seconds = seconds_since(start);
    result.latency_ns = all.samples().summary();
    return result;
}

std::optional<double> Measurement::fairness() const {
    if (thread_messages_per_s.size() < 2)
        return std::nullopt;
    const auto [slowest, fastest] = std::ranges::minmax_element(thread_messages_per_s);
    return *slowest / *fastest;
}

Measurement run_streams(const std::vector<std::unique_ptr<Test>>& tests, const Job& job,
                        const std::vector<int>& cpus) {
    std::vector<double> elapsed_ns(tests.size()), cpu_ns(tests.size());
    std::vector<std::uint64_t> begin_ns(tests.size());
    std::barrier together(static_cast<std::ptrdiff_t>(tests.size()));
    in_threads(tests.size(), [&](std::size_t i) {
        try {
            if (!cpus.empty())
                pin_to(cpus[i]);
            tests[i]->run(job.warmup, nullptr);
            together.arrive_and_wait();
        } catch (...) {
            together.arrive_and_drop();
            throw;
        }
        begin_ns[i] = now_ns();
        const double cpu_begin_ns = thread_cpu_ns();
        elapsed_ns[i] = tests[i]->run(job.iterations, nullptr);
        cpu_ns[i] = thread_cpu_ns() - cpu_begin_ns;
    });
    Measurement result;
    result.iterations = job.iterations;
    // Threads that take turns at a cpu may begin late: all of them had the time until the last end.
    const std::uint64_t first_ns = *std::ranges::min_element(begin_ns);
    double all_ns = 0;
    for (std::size_t i = 0; i < tests.size(); ++i)
        all_ns = std::max(all_ns, static_cast<double>(begin_ns[i] - first_ns) + elapsed_ns[i]);
    const double seconds = all_ns * 1e-9;
    result.seconds = seconds;
    const double directions = job.bidir ? 2 : 1;
    const double messages = static_cast<double>(job.iterations * tests.size()) * directions;
    result.messages_per_s = messages / seconds;
    const double of_thread = static_cast<double>(job.iterations) * directions;
    for (std::size_t i = 0; i < tests.size(); ++i) {
        result.thread_messages_per_s.push_back(of_thread / (elapsed_ns[i] * 1e-9));
        result.thread_messages_per_cpu_s.push_back(of_thread / (cpu_ns[i] * 1e-9));
    }
    result.bytes_per_s = messages * static_cast<double>(job.size) / seconds;
    return result;
}

std::vector<VariantMeasurement> run_cacheline(Side side, CachelineFloor& floor, const Job& job,
                                              const OnProgress& on_progress) {
    const bool driver = side == Side::kDriver;
    std::vector<BatchTimer> timers(CachelineFloor::kVariants, BatchTimer(2));
    for (const CachelineFloor::Variant& variant : CachelineFloor::kAll)
        floor.ping_pong(variant, job.warmup, nullptr);
    const std::uint64_t start = now_ns();
    for (std::uint64_t done = 0; done < job.iterations;) {
        const std::uint64_t block = std::min(kBlockRoundTrips, job.iterations - done);
        for (std::size_t i = 0; i < CachelineFloor::kVariants; ++i)
            floor.ping_pong(CachelineFloor::kAll[i], block, driver ? &timers[i] : nullptr);
        done += block;
        report(on_progress, done, job.iterations);
    }
    const double seconds = seconds_since(start);
    std::vector<VariantMeasurement> results;
    for (std::size_t i = 0; driver && i < CachelineFloor::kVariants; ++i) {
        Measurement measurement;
        measurement.iterations = job.iterations;
        measurement.seconds = seconds;
        measurement.latency_ns = timers[i].samples().summary();
        measurement.floor_ns = measurement.latency_ns->p50;
        results.push_back({&CachelineFloor::kAll[i], measurement});
    }
    std::stable_sort(results.begin(), results.end(), [](const auto& a, const auto& b) {
        return a.measurement.latency_ns->p50 < b.measurement.latency_ns->p50;
    });
    return results;
}

Measurement run_memcpy(const SharedMapping& source, const Job& job) {
    std::vector<std::uint8_t> target(job.size);
    const auto copy = [&](std::uint64_t) {
        std::memcpy(target.data(), source.data(), target.size());
        asm volatile("" : : "r"(target.data()) : "memory");  // every copy is made
    };
    in_batches(0, job.warmup, nullptr, copy);
    BatchTimer timer(1);
    const std::uint64_t start = now_ns();
    in_batches(0, job.iterations, &timer, copy);
    Measurement result;
    result.iterations = job.iterations;
    result.seconds = seconds_since(start);
    result.latency_ns = timer.samples().summary();
    result.bytes_per_s = static_cast<double>(job.size * job.iterations) / result.seconds;
    if (job.validate) {
        result.errors =
            Pattern(stream_from(Side::kPeer, job), 0).matches(target.data(), job.size) ? 0 : 1;
        result.validated = 1;
    }
    return result;
}

Measurement run_chase(const Job& job) {
    struct alignas(64) Line {
        Line* next = this;
    };
    HugeVector<Line> lines(job.depth + 1);
    Random random(1);
    // Sattolo's shuffle: one ring through all lines.
    for (std::size_t i = lines.size() - 1; i > 0; --i)
        std::swap(lines[i].next, lines[random.below(i)].next);
    const Line* at = lines.data();
    const auto load = [&](std::uint64_t) {
        at = at->next;
        asm volatile("" : "+r"(at) : : "memory");
    };
    in_batches(0, std::max<std::uint64_t>(job.warmup, lines.size()), nullptr, load);
    BatchTimer timer(1);
    const std::uint64_t start = now_ns();
    in_batches(0, job.iterations, &timer, load);
    Measurement result;
    result.iterations = job.iterations;
    result.seconds = seconds_since(start);
    result.latency_ns = timer.samples().summary();
    return result;
}

}  // namespace tagwire::tools
