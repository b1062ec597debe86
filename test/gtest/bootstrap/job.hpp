// SPDX-License-Identifier: BSD-3-Clause
// Jobs in tests: each rank is a process of its own, forked from the test, and says what it has to
// say by its exit status and through a pipe. The test process itself makes no handle before it
// forks.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>
#include <tagwire_bootstrap.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tagwire::test {

constexpr std::uint64_t kPatienceMs = 60'000;  // what takes longer hangs
constexpr std::uint64_t kShortMs = 1'000;      // of jobs that come to the end of their time
constexpr int kFailedInRank = 77;

/// A process, which dies with the test.
class Process {
  public:
    /// In the process: body(), then exit status 0, or kFailedInRank after a failed expectation.
    explicit Process(const std::function<void()>& body);
    Process(Process&& other) noexcept;
    Process& operator=(Process&&) = delete;
    ~Process();  // by force, if it still runs

    void kill_now();
    /// With the processes of its group; it made itself the leader of one.
    void kill_group_now();
    /// False: it still runs after `limit_ms`. It has to be joined in either case.
    bool ends_within(int limit_ms) const;
    /// Exit status; 128 + signal when one killed it.
    int join();

  private:
    pid_t pid_ = -1;
};

/// A gate between processes: wait() returns when some process has opened it.
class Gate {
  public:
    Gate();
    ~Gate();
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;
    void open() const;
    void wait() const;

  private:
    int ends_[2] = {-1, -1};
};

/// A directory that goes with the test.
class ScratchDirectory {
  public:
    ScratchDirectory();
    ~ScratchDirectory();
    ScratchDirectory(const ScratchDirectory&) = delete;
    ScratchDirectory& operator=(const ScratchDirectory&) = delete;
    const std::string& path() const { return path_; }
    std::vector<std::string> names() const;

  private:
    std::string path_;
};

/// Where a job meets.
struct Place {
    tw_bootstrap_method_t method;
    std::string where;
    std::string job;

    tw_bootstrap_params_t params(std::uint32_t rank, std::uint32_t size,
                                 std::uint64_t timeout_ms = kPatienceMs) const;
};

/// A rank's handle, with expectations.
class Rank {
  public:
    Rank(const Place& place, std::uint32_t rank, std::uint32_t size,
         std::uint64_t timeout_ms = kPatienceMs);
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;
    ~Rank() { tw_bootstrap_destroy(job_); }

    tw_bootstrap_h get() const { return job_; }
    tw_status_t status() const { return status_; }  // of its making
    /// Everybody's bytes, checked; false if the call failed.
    bool gather(std::size_t bytes);
    tw_status_t barrier() { return tw_bootstrap_barrier(job_); }

  private:
    tw_bootstrap_h job_ = nullptr;
    tw_status_t status_;
};

/// The last call failed with `status`, and its sentence has `part`.
void expect_failure(tw_status_t wanted, tw_status_t status, const std::string& part);

/// Runs body(rank) for each rank in a process of its own; answers their exit statuses.
std::vector<int> run_ranks(std::uint32_t size, const std::function<void(std::uint32_t)>& body);
/// All of them ended well.
void expect_all_well(const std::vector<int>& statuses);

}  // namespace tagwire::test
