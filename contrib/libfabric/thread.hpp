// SPDX-License-Identifier: BSD-3-Clause
// Threads of the provider itself.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

#include "provider.hpp"

namespace tagwire::fi {

/// Runs `call` in a thread that gets no signals: these are for the program's own threads. 0, or a
/// negative error of libfabric.
template <class Call>
int start_thread(std::thread* thread_p, Call call) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    const int status = without_exceptions([&] {
        *thread_p = std::thread(std::move(call));
        return 0;
    });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return status;
}

}  // namespace tagwire::fi
