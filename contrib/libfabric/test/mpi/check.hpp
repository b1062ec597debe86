// SPDX-License-Identifier: BSD-3-Clause
// Test harness of the MPI programs: named cases that every rank runs, and their failures.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace mpi_check {

/// Relaxed: nothing else is read for it.
inline std::atomic<int> failures = 0;
inline const char* current = "";

inline int rank() {
    int value = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &value);
    return value;
}

inline int size() {
    int value = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &value);
    return value;
}

inline void expect(bool is_true, const char* what) {
    if (is_true)
        return;
    failures.fetch_add(1, std::memory_order_relaxed);
    std::fprintf(stderr, "rank %d, %s: not true: %s\n", rank(), current, what);
}

/// `length` bytes that depend on `seed` and on where they are.
inline std::vector<std::uint8_t> pattern(std::size_t length, std::size_t seed) {
    std::vector<std::uint8_t> bytes(length);
    for (std::size_t i = 0; i < length; ++i)
        bytes[i] = static_cast<std::uint8_t>(i * 131 + seed * 7 + (i >> 8));
    return bytes;
}

struct Case {
    const char* name;
    void (*run)();
    int ranks = 2;  // at least
};

/// Runs those that have enough ranks; the status of the program.
inline int run(const std::vector<Case>& cases) {
    int done = 0;
    for (const Case& each : cases) {
        if (size() < each.ranks)
            continue;
        current = each.name;
        MPI_Barrier(MPI_COMM_WORLD);
        each.run();
        ++done;
    }
    int all = 0;
    const int mine = failures.load(std::memory_order_relaxed);
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank() == 0)
        std::printf("%d cases, %d ranks: %s\n", done, size(), all == 0 ? "right" : "WRONG");
    return all == 0 ? 0 : 1;
}

}  // namespace mpi_check

#define MPI_CHECK(condition) mpi_check::expect((condition), #condition)
