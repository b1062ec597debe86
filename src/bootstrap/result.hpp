// SPDX-License-Identifier: BSD-3-Clause
// Results of the parts of the bootstrap: errors, time limits, and lists of ranks in messages.
#pragma once

#include <ucs/type/status.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tagwire::bootstrap {

inline constexpr std::uint64_t kNsPerMs = 1'000'000;

/// A status, and one sentence why when it is a failure.
struct [[nodiscard]] Result {
    ucs_status_t status = UCS_OK;
    std::string why;

    bool ok() const { return status == UCS_OK; }
};

[[gnu::format(printf, 2, 3)]] Result failed(ucs_status_t status, const char* format, ...);

/// As failed(), with ": " and the text of `error`, an errno, behind the message.
[[gnu::format(printf, 3, 4)]] Result failed_errno(ucs_status_t status, int error,
                                                  const char* format, ...);

/// The end of a call's time.
class Deadline {
  public:
    explicit Deadline(std::uint64_t timeout_ns);

    bool is_over() const { return left_ms() == 0; }
    /// For poll(2); 0 only when it is over.
    int left_ms() const;
    /// A quarter later: for those who wait for the word of one with the same time limit.
    Deadline with_grace() const;
    /// "60 s", "0.25 s"
    std::string limit_text() const;

  private:
    std::uint64_t begin_ns_;
    std::uint64_t timeout_ns_;
};

/// A set of ranks of a job.
class RankSet {
  public:
    explicit RankSet(std::uint32_t job_size, bool all = false) : has_(job_size, all) {}

    bool contains(std::uint32_t rank) const { return has_[rank]; }
    void add(std::uint32_t rank) { has_[rank] = true; }
    void remove(std::uint32_t rank) { has_[rank] = false; }
    bool is_empty() const;
    /// "rank 3", "ranks 1, 4-7 and 12"; of very many the first, and how many others. Not of none.
    std::string text() const;

  private:
    std::vector<bool> has_;
};

}  // namespace tagwire::bootstrap
