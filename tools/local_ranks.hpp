// SPDX-License-Identifier: BSD-3-Clause
// The processes of a job on this host: their start and their end. The commands that start ranks use
// it, each from its only thread.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tagwire::tools {

/// Blocks SIGCHLD and the signals that end a program, for a command that waits for them by itself.
/// Signals that were ignored at the start (nohup, `&` in a script) stay ignored, SIGCHLD apart: a
/// status can be read only where it has its default action, which the ranks get, too.
class BlockedSignals {
  public:
    BlockedSignals();
    ~BlockedSignals() { restore(); }
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;

    void restore() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }
    const sigset_t& set() const { return set_; }

  private:
    sigset_t set_{};
    sigset_t before_{};
};

/// Descriptors for the standard output and error of one rank.
struct RankOutput {
    int out, error;
};

struct RankCommand {
    std::string file;  // with PATH, where it has no slash
    std::vector<std::string> arguments;
    std::vector<int> cpus;    // pins the ranks to them in turn; empty: does not
    bool keeps_input = true;  // else only rank 0 has the standard input
    // Called just before a rank starts; its descriptors are closed behind that. Empty: the ranks
    // have the output of this process.
    std::function<RankOutput(std::uint64_t rank)> open_output;
    std::optional<rlimit> descriptors;  // RLIMIT_NOFILE of the ranks, where it is another
};

/// Ends its ranks with itself, and they end when this process dies. It reaps every child of the
/// process: orphans that a subreaper has adopted end during a job, too.
class LocalRanks {
  public:
    struct Ended {
        std::size_t rank;
        int status;  // as of waitpid(2)
    };

    LocalRanks();
    ~LocalRanks() { kill_all(); }
    LocalRanks(const LocalRanks&) = delete;
    LocalRanks& operator=(const LocalRanks&) = delete;

    /// Throws Failure, also when a rank cannot be pinned. 0, or the errno of exec(3).
    int start(std::uint64_t count, const RankCommand& command, const BlockedSignals& blocked);
    /// Takes note of ranks that have ended.
    void collect();
    std::size_t running() const;
    /// The first rank that did not end with status 0.
    const std::optional<Ended>& first_failure() const { return failure_; }
    void signal_all(int number) const;
    /// Kills and reaps the ranks that run.
    void kill_all();
    /// Kills processes that ranks have started and left, where this process is their subreaper.
    void end_orphans();

  private:
    /// Takes note of a child that has ended with this status.
    void note_end(pid_t process, int status);

    std::vector<pid_t> processes_;  // -1: has ended
    std::set<pid_t> others_;        // children that are none of the job, or cannot be killed
    std::optional<Ended> failure_;
};

}  // namespace tagwire::tools
