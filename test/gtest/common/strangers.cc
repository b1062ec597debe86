// SPDX-License-Identifier: BSD-3-Clause
#include "common/strangers.hpp"

#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <uct/api/tagwire_uct.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <ctime>
#include <utility>

namespace tagwire::test {
namespace {

thread_local unsigned long_yields = 0;
thread_local bool meets_nobody = false;
thread_local int ready_behind_nap = 0;
thread_local std::function<void()> before_nap, before_yield;

std::uint64_t monotonic_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(now.tv_nsec);
}

/// The virtual HCA's: a device would not yield. It sleeps from then on, in the worker's calls.
bool is_of_device(void* caller) {
    Dl_info info{};
    return ::dladdr(caller, &info) != 0 && info.dli_fname != nullptr &&
           std::strstr(info.dli_fname, "vhca") != nullptr;
}

}  // namespace

void meet_strangers(unsigned yields) {
    long_yields = yields;
}

void meet_nobody(bool is_so) {
    meets_nobody = is_so;
}

void set_before_nap(std::function<void()> call) {
    before_nap = std::move(call);
}

int ready_at_last_nap() {
    return ready_behind_nap;
}

void set_before_yield(std::function<void()> call) {
    before_yield = std::move(call);
}

}  // namespace tagwire::test

// The library is to find them, whatever visibility the headers of the system give them.
extern "C" {

[[gnu::visibility("default")]] int sched_yield() noexcept {
    using namespace tagwire::test;
    constexpr std::uint64_t kLongerThanASliceNs = 120'000'000;
    if (is_of_device(__builtin_return_address(0)))
        return static_cast<int>(::syscall(SYS_sched_yield));
    if (before_yield)
        before_yield();
    if (long_yields > 0) {
        --long_yields;
        const std::uint64_t end = monotonic_ns() + kLongerThanASliceNs;
        while (monotonic_ns() < end) {
        }
        return 0;
    }
    return meets_nobody ? 0 : static_cast<int>(::syscall(SYS_sched_yield));
}

[[gnu::visibility("default")]] int ppoll(pollfd* fds, nfds_t count, const timespec* time,
                                         const sigset_t* mask) {
    using namespace tagwire::test;
    const bool is_nap = time != nullptr && time->tv_sec == 0 && time->tv_nsec == TAGWIRE_UCT_NAP_NS;
    if (before_nap && is_nap)
        before_nap();
    timespec left = time == nullptr ? timespec{} : *time;  // the system call writes to it
    constexpr std::size_t kMaskBytes = 8;
    const auto ready = static_cast<int>(
        ::syscall(SYS_ppoll, fds, count, time == nullptr ? nullptr : &left, mask, kMaskBytes));
    if (is_nap)
        ready_behind_nap = ready;
    return ready;
}

}  // extern "C"
