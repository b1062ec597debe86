// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/engine/fault_handler.hpp"

#include <signal.h>

#include <atomic>

#include "vhca/core/guarded.hpp"

namespace tagwire::vhca {

namespace {

struct sigaction segv_before, bus_before;
constinit std::atomic<unsigned> fault_count{0};

void pass_on(int signal, siginfo_t* info, void* context) {
    const struct sigaction& before = signal == SIGSEGV ? segv_before : bus_before;
    if ((before.sa_flags & SA_SIGINFO) != 0) {
        before.sa_sigaction(signal, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(signal);
    } else {
        sigaction(signal, &before, nullptr);
        if (info->si_code <= 0)  // somebody sent it: there is no access that faults again
            raise(signal);
    }
}

void handle(int signal, siginfo_t* info, void* context) {
    FaultLanding* landing = fault_landing;
    if (landing != nullptr && info->si_code > 0) {
        if (landing->is_surprise)
            fault_count.fetch_add(1, std::memory_order_relaxed);
        siglongjmp(landing->place, 1);
    }
    pass_on(signal, info, context);
}

void install(int signal, struct sigaction* before) {
    struct sigaction ours {};
    ours.sa_sigaction = handle;
    // Not deferred: the handler is left by a jump. On the alternate stack, for those that pass on.
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    sigaction(signal, nullptr, before);  // a fault may come as soon as ours is there
    sigaction(signal, &ours, nullptr);
}

}  // namespace

void install_fault_handler() {
    static const bool done = [] {
        install(SIGSEGV, &segv_before);
        install(SIGBUS, &bus_before);
        return true;
    }();
    static_cast<void>(done);
}

unsigned take_fault_count() {
    if (fault_count.load(std::memory_order_relaxed) == 0) [[likely]]
        return 0;
    return fault_count.exchange(0, std::memory_order_relaxed);
}

}  // namespace tagwire::vhca
