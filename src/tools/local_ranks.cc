// SPDX-License-Identifier: BSD-3-Clause
#include "tools/local_ranks.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tools/failure.hpp"
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
    int failed;  // gets the errno of exec(3)
};

[[noreturn]] void give_up(const NewRank& rank, int reason) {
    [[maybe_unused]] const ssize_t told = write(rank.failed, &reason, sizeof reason);
    _exit(127);
}

void redirect(const NewRank& rank) {
    const RankCommand& command = *rank.command;
    if (!command.keeps_input && rank.number > 0) {
        const int nothing = open("/dev/null", O_RDONLY);
        dup2(nothing, STDIN_FILENO);
        close(nothing);
    }
    if (!command.output.empty())
        dup2(command.output[rank.number], STDOUT_FILENO);
    if (!command.error.empty())
        dup2(command.error[rank.number], STDERR_FILENO);
}

[[noreturn]] void become(const NewRank& rank) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != rank.parent)
        _exit(1);
    setenv("TAGWIRE_RANK", std::to_string(rank.number).c_str(), 1);
    setenv("TAGWIRE_SIZE", std::to_string(rank.count).c_str(), 1);
    const std::vector<int>& cpus = rank.command->cpus;
    try {
        if (!cpus.empty())
            pin_to(cpus[rank.number % cpus.size()]);
    } catch (const Failure&) {
        give_up(rank, EINVAL);
    }
    redirect(rank);
    rank.blocked->restore();
    execvp(rank.command->file.c_str(), rank.arguments);
    give_up(rank, errno);
}

}  // namespace

MeetingPlace::MeetingPlace() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(fd_, any, length) != 0 || getsockname(fd_, any, &length) != 0) {
        const std::string reason = std::strerror(errno);
        close(fd_);
        throw Failure("the ranks cannot meet at a port of 127.0.0.1: " + reason);
    }
    port_ = ntohs(address.sin_port);
}

MeetingPlace::~MeetingPlace() {
    close(fd_);
}

void MeetingPlace::set() const {
    std::array<unsigned char, 16> random{};
    if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
        throw Failure(text("no random number: %s", std::strerror(errno)));
    std::string secret;
    for (const unsigned char byte : random)
        secret += text("%02x", unsigned{byte});
    setenv("TAGWIRE_BOOTSTRAP", text("tcp:127.0.0.1:%u", unsigned{port_}).c_str(), 1);
    setenv("TAGWIRE_BOOTSTRAP_SECRET", secret.c_str(), 1);
    setenv("TAGWIRE_BOOTSTRAP_SECRET_FILE", "", 1);
}

BlockedSignals::BlockedSignals() {
    sigemptyset(&set_);
    for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2})
        sigaddset(&set_, number);
    sigprocmask(SIG_BLOCK, &set_, &before_);
}

int LocalRanks::start(std::uint64_t count, const RankCommand& command,
                      const BlockedSignals& blocked) {
    std::vector<std::string> copies = command.arguments;
    std::vector<char*> arguments;
    for (std::string& one : copies)
        arguments.push_back(one.data());
    arguments.push_back(nullptr);
    int failed[2];
    if (pipe2(failed, O_CLOEXEC) != 0)
        throw Failure(text("pipe: %s", std::strerror(errno)));
    const pid_t parent = getpid();
    for (std::uint64_t rank = 0; rank < count; ++rank) {
        const pid_t process = fork();
        if (process < 0) {
            const int reason = errno;
            close(failed[0]);
            close(failed[1]);
            throw Failure(text("cannot start rank %llu: %s", static_cast<unsigned long long>(rank),
                               std::strerror(reason)));
        }
        if (process == 0)
            become({rank, count, &command, arguments.data(), &blocked, parent, failed[1]});
        processes_.push_back(process);
    }
    close(failed[1]);
    int reason = 0;
    const ssize_t n = read(failed[0], &reason, sizeof reason);  // nothing once all have started
    close(failed[0]);
    return n == sizeof reason ? reason : 0;
}

std::size_t LocalRanks::running() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(processes_, [](pid_t process) { return process > 0; }));
}

void LocalRanks::collect() {
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
        int status = 0;
        if (processes_[rank] > 0 && waitpid(processes_[rank], &status, WNOHANG) != 0) {
            processes_[rank] = -1;
            if (status != 0 && !failure_)
                failure_ = Ended{rank, status};
        }
    }
}

void LocalRanks::signal_all(int number) const {
    for (const pid_t process : processes_)
        if (process > 0)
            kill(process, number);
}

void LocalRanks::kill_all() {
    for (pid_t& process : processes_) {
        if (process > 0) {
            kill(process, SIGKILL);
            waitpid(process, nullptr, 0);
            process = -1;
        }
    }
}

}  // namespace tagwire::tools
