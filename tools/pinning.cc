// SPDX-License-Identifier: BSD-3-Clause
#include "tools/pinning.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cli/failure.hpp"

namespace tagwire::tools {

std::vector<int> allowed_cpus() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        throw Failure(text("sched_getaffinity: %s", std::strerror(errno)));
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &set))
            cpus.push_back(cpu);
    return cpus;
}

int try_pin_to(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(cpu), &set);
    return sched_setaffinity(0, sizeof(set), &set) == 0 ? 0 : errno;
}

void pin_to(int cpu) {
    if (const int reason = try_pin_to(cpu))
        throw Failure(text("cannot run on cpu %d: %s", cpu, std::strerror(reason)));
}

KeptCpus::KeptCpus() {
    CPU_ZERO(&cpus_);
    sched_getaffinity(0, sizeof cpus_, &cpus_);
}

KeptCpus::~KeptCpus() {
    sched_setaffinity(0, sizeof cpus_, &cpus_);
}

std::vector<int> choose_cpus(const std::vector<int>& wanted) {
    const std::vector<int> allowed = allowed_cpus();
    for (const int cpu : wanted) {
        if (std::find(allowed.begin(), allowed.end(), cpu) == allowed.end()) {
            std::string list;
            for (const int one : allowed)
                list += (list.empty() ? "" : ",") + std::to_string(one);
            throw UsageError(
                text("--cpu: this process may not use cpu %d, only %s", cpu, list.c_str()));
        }
    }
    const std::vector<int>& from = wanted.empty() ? allowed : wanted;
    return {from.front(), from.size() > 1 ? from[1] : from.front()};
}

std::vector<int> cpus_in_turn(const std::vector<int>& wanted) {
    return wanted.empty() ? allowed_cpus() : choose_cpus(wanted);
}

}  // namespace tagwire::tools
