// SPDX-License-Identifier: BSD-3-Clause
#include "tools/local_ranks.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "cli/failure.hpp"
#include "tools/child.hpp"
#include "tools/pinning.hpp"

namespace tagwire::tools {
namespace {

/// One rank that is about to start, with everything that its process needs.
struct NewRank {
    std::uint64_t number, count;
    const RankCommand* command;
    char* const* arguments;
    const BlockedSignals* blocked;
    pid_t parent;
    RankOutput output;
    int failed;  // gets a NotStarted
};

/// Why a rank has not become the program.
struct NotStarted {
    int reason;  // errno
    int cpu;     // that it could not be pinned to; -1: exec(3) failed
};

[[noreturn]] void give_up(const NewRank& rank, NotStarted why) {
    [[maybe_unused]] const ssize_t told = write(rank.failed, &why, sizeof why);
    _exit(127);
}

void redirect(const NewRank& rank) {
    const RankCommand& command = *rank.command;
    if (!command.keeps_input && rank.number > 0) {
        const int nothing = open("/dev/null", O_RDONLY);
        dup2(nothing, STDIN_FILENO);
        close(nothing);
    }
    if (command.open_output) {
        dup2(rank.output.out, STDOUT_FILENO);
        dup2(rank.output.error, STDERR_FILENO);
    }
}

void pin(const NewRank& rank) {
    const std::vector<int>& cpus = rank.command->cpus;
    if (cpus.empty())
        return;
    const int cpu = cpus[rank.number % cpus.size()];
    if (const int reason = try_pin_to(cpu))
        give_up(rank, {reason, cpu});
}

[[noreturn]] void become(const NewRank& rank) {
    die_with(rank.parent);
    setenv("TAGWIRE_RANK", std::to_string(rank.number).c_str(), 1);
    setenv("TAGWIRE_SIZE", std::to_string(rank.count).c_str(), 1);
    pin(rank);
    redirect(rank);
    if (rank.command->descriptors)
        setrlimit(RLIMIT_NOFILE, &*rank.command->descriptors);
    rank.blocked->restore();
    execvp(rank.command->file.c_str(), rank.arguments);
    give_up(rank, {errno, -1});
}

/// Starts `rank`, whose output is opened for it alone: the parent holds no writing ends of pipes.
pid_t fork_rank(NewRank rank) {
    if (rank.command->open_output)
        rank.output = rank.command->open_output(rank.number);
    const pid_t process = fork();
    if (process == 0)
        become(rank);
    const int reason = errno;
    if (rank.command->open_output) {
        close(rank.output.out);
        close(rank.output.error);
    }
    errno = reason;
    return process;
}

std::set<pid_t> children() {
    std::ifstream list("/proc/self/task/" + std::to_string(getpid()) + "/children");
    std::set<pid_t> all;
    for (pid_t child = 0; list >> child;)
        all.insert(child);
    return all;
}

bool is_ignored(int number) {
    struct sigaction action {};
    return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

/// A descriptor that is closed in the end.
struct Descriptor {
    ~Descriptor() { reset(); }
    void reset() {
        if (fd >= 0)
            close(std::exchange(fd, -1));
    }
    int fd = -1;
};

}  // namespace

BlockedSignals::BlockedSignals() {
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&set_);
    sigaddset(&set_, SIGCHLD);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2})
        if (!is_ignored(number))
            sigaddset(&set_, number);
    sigprocmask(SIG_BLOCK, &set_, &before_);
}

LocalRanks::LocalRanks() : others_(children()) {}

int LocalRanks::start(std::uint64_t count, const RankCommand& command,
                      const BlockedSignals& blocked) {
    std::vector<std::string> copies = command.arguments;
    std::vector<char*> arguments;
    for (std::string& one : copies)
        arguments.push_back(one.data());
    arguments.push_back(nullptr);
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        throw Failure(text("pipe: %s", std::strerror(errno)));
    Descriptor result{fds[0]}, failed{fds[1]};
    const pid_t parent = getpid();
    for (std::uint64_t rank = 0; rank < count; ++rank) {
        const pid_t process = fork_rank(
            {rank, count, &command, arguments.data(), &blocked, parent, {-1, -1}, failed.fd});
        if (process < 0) {
            throw Failure(text("cannot start rank %llu: %s", static_cast<unsigned long long>(rank),
                               std::strerror(errno)));
        }
        processes_.push_back(process);
    }
    failed.reset();
    NotStarted why{};
    if (read(result.fd, &why, sizeof why) != sizeof why)  // nothing once all have started
        return 0;
    if (why.cpu >= 0)
        throw Failure(text("cannot bind a rank to cpu %d: %s", why.cpu, std::strerror(why.reason)));
    return why.reason;
}

std::size_t LocalRanks::running() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(processes_, [](pid_t process) { return process > 0; }));
}

void LocalRanks::note_end(pid_t process, int status) {
    others_.erase(process);
    const auto at = std::ranges::find(processes_, process);
    if (at == processes_.end())
        return;
    *at = -1;
    if (status != 0 && !failure_)
        failure_ = Ended{static_cast<std::size_t>(at - processes_.begin()), status};
}

void LocalRanks::collect() {
    int status = 0;
    pid_t process = 0;
    while ((process = waitpid(-1, &status, WNOHANG)) > 0)
        note_end(process, status);
    if (process == 0 || errno != ECHILD)
        return;
    // Somebody else has reaped them: how they have ended is not known.
    for (const pid_t lost : std::vector<pid_t>(processes_))
        if (lost > 0)
            note_end(lost, W_EXITCODE(EXIT_FAILURE, 0));
}

void LocalRanks::signal_all(int number) const {
    for (const pid_t process : processes_)
        if (process > 0)
            kill(process, number);
}

void LocalRanks::kill_all() {
    signal_all(SIGKILL);
    for (const pid_t process : std::vector<pid_t>(processes_)) {
        int status = W_EXITCODE(EXIT_FAILURE, 0);
        if (process <= 0)
            continue;
        while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
        }
        note_end(process, status);
    }
}

void LocalRanks::end_orphans() {
    for (bool is_any_left = true; is_any_left;) {
        is_any_left = false;
        collect();
        for (const pid_t child : children()) {
            if (others_.contains(child))
                continue;
            is_any_left = true;
            if (kill(child, SIGKILL) == 0)
                waitpid(child, nullptr, 0);
            else
                others_.insert(child);  // of another user: it has changed its id
        }
    }
}

}  // namespace tagwire::tools
