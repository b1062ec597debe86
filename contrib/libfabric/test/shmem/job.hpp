// SPDX-License-Identifier: BSD-3-Clause
// Processes that the test forks, and what they tell each other at their start, through the parent.
#pragma once

#include <cstddef>
#include <vector>

namespace shmem {

struct Job {
    int pe = 0;
    int pes = 1;
    int to_parent = -1;
    int from_parent = -1;

    /// Returns the bytes of every PE, by PE. Once in a job, `bytes` alike at all PEs.
    std::vector<char> exchange(const void* mine, std::size_t bytes) const;
};

/// The job of this process.
Job& job();

/// Says why and ends the PE.
[[noreturn]] void fail(const char* what, int error = 0);

}  // namespace shmem
