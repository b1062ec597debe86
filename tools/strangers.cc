// SPDX-License-Identifier: BSD-3-Clause
#include "tools/strangers.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "cli/failure.hpp"
#include "tools/child.hpp"

namespace tagwire::tools {
namespace {

[[noreturn]] void compute() {
    volatile std::uint64_t number = 0;
    for (;;)
        number = number + 1;
}

}  // namespace

Strangers::Strangers(std::uint64_t count) {
    const pid_t parent = getpid();
    for (std::uint64_t i = 0; i < count; ++i) {
        const pid_t process = fork();
        if (process == 0) {
            die_with(parent);
            // Whoever reads this process's output sees its end, not theirs.
            closefrom(0);
            compute();
        }
        if (process < 0) {
            const int reason = errno;
            end();
            throw Failure(text("--beside: cannot start a process: %s", std::strerror(reason)));
        }
        processes_.push_back(process);
    }
}

Strangers::~Strangers() {
    end();
}

void Strangers::end() {
    for (const pid_t process : processes_)
        kill(process, SIGKILL);
    for (const pid_t process : processes_)
        waitpid(process, nullptr, 0);
    processes_.clear();
}

}  // namespace tagwire::tools
