// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/time/clock.hpp"

#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tagwire::ucs {
namespace {

constexpr std::uint64_t kFirstMeasureNs = 1'000'000;
constexpr std::uint64_t kFinalMeasureNs = 1'000'000'000;

#if defined(__x86_64__)
bool processor_ticks_are_constant() {
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    constexpr unsigned kInvariantTsc = 1U << 8;  // leaf 0x80000007, EDX
    return __get_cpuid(0x80000007U, &eax, &ebx, &ecx, &edx) != 0 && (edx & kInvariantTsc) != 0;
}

// 0 when the processor does not say. Leaf 0x15: TSC rate = crystal rate x EBX / EAX.
double processor_tick_ns() {
    unsigned denominator = 0;
    unsigned numerator = 0;
    unsigned crystal_hz = 0;
    unsigned unused = 0;
    if (__get_cpuid_count(0x15U, 0, &denominator, &numerator, &crystal_hz, &unused) == 0 ||
        denominator == 0 || numerator == 0 || crystal_hz == 0) {
        return 0.0;
    }
    return 1e9 * denominator / (static_cast<double>(crystal_hz) * numerator);
}
#elif defined(__aarch64__)
bool processor_ticks_are_constant() {
    return true;
}

double processor_tick_ns() {
    std::uint64_t hz;
    asm volatile("mrs %0, cntfrq_el0" : "=r"(hz));
    return hz == 0 ? 0.0 : 1e9 / static_cast<double>(hz);
}
#else
bool processor_ticks_are_constant() {
    return false;
}

double processor_tick_ns() {
    return 0.0;
}
#endif

struct Moment {
    std::uint64_t ticks;
    std::uint64_t ns;
};

// Both clocks at one time: of a few tries the one that took least, so that no preemption lies
// between the two reads.
Moment moment_now() {
    Moment best{};
    std::uint64_t best_width = UINT64_MAX;
    for (int i = 0; i < 5; ++i) {
        const std::uint64_t before = detail::processor_ticks();
        const std::uint64_t ns = clock_now_ns();
        const std::uint64_t width = detail::processor_ticks() - before;
        if (width < best_width) {
            best_width = width;
            best = {before + width / 2, ns};
        }
    }
    return best;
}

const Moment& first_moment() {
    static const Moment first = moment_now();
    return first;
}

}  // namespace

namespace detail {

constinit std::atomic<TickSource> tick_source{TickSource::kUnknown};
constinit std::atomic<double> tick_ns_final{0.0};

std::uint64_t ticks_now_slow() {
    if (tick_source.load(std::memory_order_relaxed) == TickSource::kUnknown) {
        const bool constant = processor_ticks_are_constant();
        if (constant)
            first_moment();
        else
            tick_ns_final.store(1.0, std::memory_order_relaxed);
        tick_source.store(constant ? TickSource::kProcessor : TickSource::kClock,
                          std::memory_order_relaxed);
        return ticks_now();
    }
    return clock_now_ns();
}

double tick_ns_slow() {
    ticks_now();  // decides the source
    const double known = tick_ns_final.load(std::memory_order_relaxed);
    if (known != 0.0)
        return known;
    static const double told = processor_tick_ns();  // asked once: virtual machines trap CPUID
    if (told != 0.0) {
        tick_ns_final.store(told, std::memory_order_relaxed);
        return told;
    }
    const Moment& first = first_moment();
    const std::uint64_t elapsed_ns = clock_now_ns() - first.ns;
    if (elapsed_ns < kFirstMeasureNs) {
        const timespec rest{0, static_cast<long>(kFirstMeasureNs - elapsed_ns)};
        nanosleep(&rest, nullptr);
    }
    const Moment now = moment_now();
    const double measured =
        static_cast<double>(now.ns - first.ns) / static_cast<double>(now.ticks - first.ticks);
    if (now.ns - first.ns >= kFinalMeasureNs)
        tick_ns_final.store(measured, std::memory_order_relaxed);
    return measured;
}

}  // namespace detail

std::uint64_t clock_now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace tagwire::ucs
