// SPDX-License-Identifier: BSD-3-Clause
#include "tools/launch.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/failure.hpp"
#include "tools/labels.hpp"
#include "tools/local_ranks.hpp"
#include "tools/meeting_place.hpp"
#include "tools/pinning.hpp"
#include "tools/resources.hpp"
#include "tools/stats.hpp"

namespace tagwire::tools {
namespace {

constexpr std::uint64_t kEndGraceNs = 5'000'000'000;
constexpr int kTickMs = 200;
constexpr int kSignalStatus = 128;

/// Ranks would tell it one by one, each in its own words.
void check_transports(const std::string& list) {
    for (std::size_t begin = 0; begin <= list.size();) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        const std::string one = list.substr(begin, end - begin);
        const std::size_t colon = std::min(one.find(':'), one.size());
        if (one != "auto") {
            find_resource(one.substr(0, colon),
                          colon < one.size() ? one.substr(colon + 1) : std::string());
        }
        begin = end + 1;
    }
}

/// The signals of a job that is running.
class SignalQueue {
  public:
    explicit SignalQueue(const BlockedSignals& blocked)
        : fd_(signalfd(-1, &blocked.set(), SFD_CLOEXEC | SFD_NONBLOCK)) {
        if (fd_ < 0)
            throw Failure(text("signalfd: %s", std::strerror(errno)));
    }
    ~SignalQueue() { close(fd_); }
    SignalQueue(const SignalQueue&) = delete;
    SignalQueue& operator=(const SignalQueue&) = delete;

    int fd() const { return fd_; }
    /// The next one; nothing when there is none.
    std::optional<signalfd_siginfo> next() const {
        signalfd_siginfo info{};
        if (read(fd_, &info, sizeof info) == sizeof info)
            return info;
        return std::nullopt;
    }

  private:
    int fd_;
};

/// Raises the limit of descriptors to the highest that is allowed. Returns what it was.
rlimit raise_descriptors() {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit raised{limit.rlim_max, limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &raised);
    return limit;
}

class Launch {
  public:
    explicit Launch(const LaunchArguments& arguments) : arguments_(arguments), signals_(blocked_) {
        // Orphans of the ranks become children of this process, which reaps and ends them.
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        if (arguments.labels)
            labels_.emplace();
    }

    int run() {
        RankCommand command;
        command.file = arguments_.command.front();
        command.arguments = arguments_.command;
        command.keeps_input = false;
        if (arguments_.binds)
            command.cpus = allowed_cpus();
        if (labels_) {
            command.descriptors = raise_descriptors();  // two pipes for each rank
            command.open_output = [this](std::uint64_t rank) { return labels_->open(rank); };
        }
        place_.set();
        if (arguments_.transports)
            setenv("TAGWIRE_TRANSPORTS", arguments_.transports->c_str(), 1);
        if (const int reason = ranks_.start(arguments_.ranks, command, blocked_))
            return refuse(reason);
        while (ranks_.running() > 0)
            wait_once();
        ranks_.end_orphans();
        if (labels_)
            labels_->drain();
        return status();
    }

  private:
    int refuse(int reason) const {
        std::fprintf(stderr, "tagwire: cannot start %s: %s\n", arguments_.command.front().c_str(),
                     std::strerror(reason));
        return reason == ENOENT ? 127 : 126;
    }

    void wait_once() {
        std::vector<pollfd> polled{{signals_.fd(), POLLIN, 0}};
        if (labels_)
            labels_->add_to(&polled);
        poll(polled.data(), polled.size(), kTickMs);
        if (labels_)
            labels_->forward(polled);
        while (const std::optional<signalfd_siginfo> info = signals_.next())
            take(*info);
        ranks_.collect();
        note_failure();
        if (ending_since_ns_ != 0 && now_ns() - ending_since_ns_ > kEndGraceNs) {
            ranks_.kill_all();
            note_failure();
        }
    }

    void take(const signalfd_siginfo& info) {
        const int number = static_cast<int>(info.ssi_signo);
        if (number == SIGCHLD)
            return;
        // The terminal sends it to the ranks, too.
        if (info.ssi_code != SI_KERNEL)
            ranks_.signal_all(number);
        if (number != SIGUSR1 && number != SIGUSR2 && ending_since_ns_ == 0)
            ending_since_ns_ = now_ns();
    }

    void note_failure() {
        if (!ranks_.first_failure() || has_told_)
            return;
        has_told_ = true;
        const auto [rank, status] = *ranks_.first_failure();
        const std::string how =
            WIFSIGNALED(status)
                ? text("was ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)))
                : text("ended with status %d", WEXITSTATUS(status));
        std::fprintf(stderr, "tagwire: rank %zu %s%s\n", rank, how.c_str(),
                     ranks_.running() > 0 ? "; sending SIGTERM to the other ranks" : "");
        ranks_.signal_all(SIGTERM);
        if (ending_since_ns_ == 0)
            ending_since_ns_ = now_ns();
    }

    int status() const {
        if (!ranks_.first_failure())
            return 0;
        const int status = ranks_.first_failure()->status;
        return WIFSIGNALED(status) ? kSignalStatus + WTERMSIG(status) : WEXITSTATUS(status);
    }

    const LaunchArguments& arguments_;
    const MeetingPlace place_;
    const BlockedSignals blocked_;
    SignalQueue signals_;
    std::optional<Labels> labels_;
    LocalRanks ranks_;
    std::uint64_t ending_since_ns_ = 0;
    bool has_told_ = false;
};

}  // namespace

int run_launch(const LaunchArguments& arguments) {
    if (arguments.command.empty())
        throw UsageError("no program given: tagwire run -n 4 PROGRAM [ARGS]");
    if (arguments.command.front().starts_with('-')) {
        throw UsageError(text("unknown option '%s'; options for the program go after its name",
                              arguments.command.front().c_str()));
    }
    if (arguments.transports)
        check_transports(*arguments.transports);
    return Launch(arguments).run();
}

}  // namespace tagwire::tools
