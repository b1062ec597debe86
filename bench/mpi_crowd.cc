// SPDX-License-Identifier: BSD-3-Clause
// Measures messages of a program of MPI with any number of ranks, where these are more than the
// processors, say (docs/guide/few-cores.md).
//
//   mpi_crowd SECONDS MIN MAX
//
// prints a line for each: `barrier`, `allreduce` (of 8 bytes), and for each fourth power of two
// from MIN to MAX bytes `exchange BYTES`: each rank sends so many to its partner and receives as
// many, by blocking calls. Behind it are mean, median, 99th percentile and maximum in microseconds,
// of rank 0. Each takes about SECONDS.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

namespace {

/// Some operations to warm up, and to learn how many take that time.
template <class Operation>
void measure(const std::string& name, double seconds, Operation operation) {
    constexpr int kWarm = 20;
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const double begin = MPI_Wtime();
    for (int i = 0; i < kWarm; ++i)
        operation();
    double count = seconds * kWarm / (MPI_Wtime() - begin);
    MPI_Bcast(&count, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    std::vector<double> samples(static_cast<std::size_t>(std::clamp(count, 20.0, 1e6)));
    for (double& sample : samples) {
        const double before = MPI_Wtime();
        operation();
        sample = (MPI_Wtime() - before) * 1e6;
    }
    if (rank != 0)
        return;
    const double mean =
        std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
    std::sort(samples.begin(), samples.end());
    const auto at = [&](std::size_t hundredth) {
        return samples[(samples.size() - 1) * hundredth / 100];
    };
    std::printf("%s %.2f %.2f %.2f %.2f\n", name.c_str(), mean, at(50), at(99), at(100));
    std::fflush(stdout);
}

/// The first half of the ranks has its partners in the second.
void exchange(int bytes, double seconds) {
    int rank = 0, ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int half = ranks / 2;
    const int partner = rank < half ? rank + half : rank - half;
    const bool is_first = rank < half;
    std::vector<char> out(static_cast<std::size_t>(bytes), 1), in(out.size());
    const auto send = [&] { MPI_Send(out.data(), bytes, MPI_BYTE, partner, 1, MPI_COMM_WORLD); };
    measure("exchange " + std::to_string(bytes), seconds, [&] {
        if (partner == rank || partner >= 2 * half || rank >= 2 * half)
            return;
        if (is_first)
            send();
        MPI_Recv(in.data(), bytes, MPI_BYTE, partner, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (!is_first)
            send();
    });
    MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const double seconds = argc == 4 ? std::atof(argv[1]) : 0;
    const int min = argc == 4 ? std::atoi(argv[2]) : 0, max = argc == 4 ? std::atoi(argv[3]) : 0;
    const bool is_right = seconds > 0 && min > 0 && min <= max && max <= 1 << 28;
    if (is_right) {
        double mine = rank, sum = 0;
        measure("barrier", seconds, [] { MPI_Barrier(MPI_COMM_WORLD); });
        measure("allreduce", seconds,
                [&] { MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); });
        for (int bytes = min; bytes <= max; bytes *= 4)
            exchange(bytes, seconds);
    } else if (rank == 0) {
        std::fprintf(stderr, "usage: mpi_crowd SECONDS MIN MAX; MIN and MAX in bytes\n");
    }
    MPI_Finalize();
    return is_right ? 0 : 2;
}
