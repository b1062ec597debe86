// SPDX-License-Identifier: BSD-3-Clause
// The processes of a job on this host: started, waited for, ended.
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>

#include "tools/failure.hpp"
#include "tools/many.hpp"
#include "tools/pinning.hpp"
#include "tools/stats.hpp"

namespace tagwire::tools {
namespace {

constexpr std::uint64_t kGraceNs = 3'000'000'000;
constexpr int kUsageStatus = 2;

/// A free port of the loopback device where the ranks meet: nothing of it outlives the processes,
/// however they end. It is bound here and never listens, so that no other program is given it;
/// rank 0 listens there, which SO_REUSEADDR on both sockets permits.
class MeetingPlace {
  public:
    MeetingPlace() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
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
    ~MeetingPlace() { close(fd_); }
    MeetingPlace(const MeetingPlace&) = delete;
    MeetingPlace& operator=(const MeetingPlace&) = delete;

    /// For this process and the ranks: where they meet, and what proves that they belong to it.
    void set() const {
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

  private:
    int fd_;
    std::uint16_t port_ = 0;
};

/// Signals that the waiting below takes by itself.
class Waited {
  public:
    Waited() {
        sigemptyset(&set_);
        for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP})
            sigaddset(&set_, signal);
        sigprocmask(SIG_BLOCK, &set_, &before_);
    }
    ~Waited() { restore(); }
    Waited(const Waited&) = delete;
    Waited& operator=(const Waited&) = delete;

    void restore() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }
    /// The next of them, or SIGCHLD after a while.
    int next() const {
        constexpr timespec kWhile{0, 200'000'000};
        const int signal = sigtimedwait(&set_, nullptr, &kWhile);
        return signal > 0 ? signal : SIGCHLD;
    }

  private:
    sigset_t set_{};
    sigset_t before_{};
};

std::vector<std::string> own_arguments() {
    std::ifstream file("/proc/self/cmdline", std::ios::binary);
    std::vector<std::string> arguments;
    for (std::string one; std::getline(file, one, '\0');)
        arguments.push_back(one);
    return arguments;
}

class Ranks {
  public:
    ~Ranks() { kill_all(); }

    void start(std::uint64_t count, const std::vector<int>& cpus, const Waited& waited) {
        std::vector<std::string> arguments = own_arguments();
        std::vector<char*> pointers;
        for (std::string& one : arguments)
            pointers.push_back(one.data());
        pointers.push_back(nullptr);
        const pid_t parent = getpid();
        for (std::uint64_t rank = 0; rank < count; ++rank) {
            const pid_t process = fork();
            if (process < 0) {
                throw Failure(text("cannot start rank %llu: %s",
                                   static_cast<unsigned long long>(rank), std::strerror(errno)));
            }
            if (process == 0)
                become(rank, count, cpus[rank % cpus.size()], parent, pointers.data(), waited);
            processes_.push_back(process);
        }
    }

    /// Waits for all; the status of the command.
    int wait(const Waited& waited) {
        while (running() > 0) {
            const int signal = waited.next();
            if (signal != SIGCHLD)
                throw Failure(text("ended by signal %d", signal));
            collect();
            if (failed_at_ns_ != 0 && now_ns() - failed_at_ns_ > kGraceNs)
                kill_all();
        }
        if (!reason_.empty())
            throw Failure(reason_);
        return status_;
    }

  private:
    [[noreturn]] static void become(std::uint64_t rank, std::uint64_t count, int cpu, pid_t parent,
                                    char* const* arguments, const Waited& waited) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        setenv("TAGWIRE_RANK", std::to_string(rank).c_str(), 1);
        setenv("TAGWIRE_SIZE", std::to_string(count).c_str(), 1);
        try {
            pin_to(cpu);
        } catch (const Failure&) {
            _exit(1);
        }
        waited.restore();
        execv("/proc/self/exe", arguments);
        _exit(127);
    }

    std::size_t running() const {
        std::size_t count = 0;
        for (const pid_t process : processes_)
            count += process > 0 ? 1 : 0;
        return count;
    }

    void collect() {
        for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
            int status = 0;
            if (processes_[rank] > 0 && waitpid(processes_[rank], &status, WNOHANG) != 0) {
                processes_[rank] = -1;
                note(rank, status);
            }
        }
    }

    /// The first failure is the one that counts.
    void note(std::size_t rank, int status) {
        if (status == 0 || failed_at_ns_ != 0)
            return;
        failed_at_ns_ = now_ns();
        if (WIFSIGNALED(status))
            reason_ = text("rank %zu was ended by signal %d", rank, WTERMSIG(status));
        else if (WEXITSTATUS(status) == kUsageStatus)
            status_ = kUsageStatus;
        else
            reason_ = text("rank %zu has failed", rank);
    }

    void kill_all() {
        for (pid_t& process : processes_) {
            if (process > 0) {
                kill(process, SIGKILL);
                waitpid(process, nullptr, 0);
                process = -1;
            }
        }
    }

    std::vector<pid_t> processes_;  // -1: has ended
    std::uint64_t failed_at_ns_ = 0;
    std::string reason_;
    int status_ = 0;
};

}  // namespace

int start_ranks(std::uint64_t ranks, const std::vector<int>& cpus) {
    const MeetingPlace place;
    const Waited waited;
    place.set();
    Ranks processes;
    processes.start(ranks, cpus, waited);
    return processes.wait(waited);
}

}  // namespace tagwire::tools
