// SPDX-License-Identifier: BSD-3-Clause
// The ranks of many_to_one and all_to_all where no launcher has started them.
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <ctime>
#include <fstream>

#include "cli/failure.hpp"
#include "tools/local_ranks.hpp"
#include "tools/many.hpp"
#include "tools/meeting_place.hpp"
#include "tools/stats.hpp"

namespace tagwire::tools {
namespace {

constexpr std::uint64_t kGraceNs = 3'000'000'000;
constexpr int kUsageStatus = 2;

std::vector<std::string> own_arguments() {
    std::ifstream file("/proc/self/cmdline", std::ios::binary);
    std::vector<std::string> arguments;
    for (std::string one; std::getline(file, one, '\0');)
        arguments.push_back(one);
    return arguments;
}

/// The next signal, or SIGCHLD after a while.
int next_signal(const BlockedSignals& blocked) {
    constexpr timespec kWhile{0, 200'000'000};
    const int signal = sigtimedwait(&blocked.set(), nullptr, &kWhile);
    return signal > 0 ? signal : SIGCHLD;
}

void wait_for(LocalRanks* ranks, const BlockedSignals& blocked) {
    std::uint64_t failed_at_ns = 0;
    while (ranks->running() > 0) {
        const int signal = next_signal(blocked);
        if (signal != SIGCHLD)
            throw Failure(text("stopped by signal %d (%s): all ranks were killed", signal,
                               strsignal(signal)));
        ranks->collect();
        if (ranks->first_failure() && failed_at_ns == 0)
            failed_at_ns = now_ns();
        if (failed_at_ns != 0 && now_ns() - failed_at_ns > kGraceNs)
            ranks->kill_all();
    }
}

}  // namespace

int start_ranks(std::uint64_t count, const std::vector<int>& cpus) {
    const MeetingPlace place;
    const BlockedSignals blocked;
    place.set();
    LocalRanks ranks;
    RankCommand command;
    command.file = "/proc/self/exe";
    command.arguments = own_arguments();
    command.cpus = cpus;
    if (const int reason = ranks.start(count, command, blocked))
        throw Failure(text("cannot start the ranks: %s", std::strerror(reason)));
    wait_for(&ranks, blocked);
    if (!ranks.first_failure())
        return 0;
    const auto [rank, status] = *ranks.first_failure();
    if (WIFSIGNALED(status))
        throw Failure(text("rank %zu was ended by signal %d", rank, WTERMSIG(status)));
    if (WEXITSTATUS(status) != kUsageStatus)
        throw Failure(text("rank %zu has failed", rank));
    return kUsageStatus;
}

}  // namespace tagwire::tools
