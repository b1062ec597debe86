// SPDX-License-Identifier: BSD-3-Clause
// Measures messages of a program of MPI. bench/compare_mpi.py runs it over several transports.
//
//   mpi_times pair MIN MAX    two ranks, each power of two from MIN to MAX bytes; a line for each:
//                             bytes, nanoseconds of one way of a ping-pong, bytes per second of a
//                             stream with a window of 64, as OSU's micro-benchmarks have them
//   mpi_times collectives     any number of ranks; a line for each: barrier or allreduce (of 8
//                             bytes), nanoseconds
//
// Each figure is the median of batches; rank 0 prints.
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr std::size_t kBatches = 21;
constexpr int kWindow = 64;
constexpr std::size_t kSizeMax = std::size_t{1} << 30;

double median(std::vector<double>* samples) {
    std::sort(samples->begin(), samples->end());
    return (*samples)[samples->size() / 2];
}

/// The median seconds of one `operation`, `count` of them in each batch. The first batch is not
/// timed.
template <class Operation>
double seconds_of(std::size_t count, Operation operation) {
    std::vector<double> samples;
    for (std::size_t batch = 0; batch <= kBatches; ++batch) {
        const double begin = MPI_Wtime();
        for (std::size_t i = 0; i < count; ++i)
            operation();
        if (batch > 0)
            samples.push_back((MPI_Wtime() - begin) / static_cast<double>(count));
    }
    return median(&samples);
}

/// So many messages of a size take milliseconds.
std::size_t count_for(std::size_t bytes, std::size_t bytes_in_all, std::size_t most) {
    return std::clamp<std::size_t>(bytes_in_all / bytes, 1, most);
}

class Pair {
  public:
    Pair(int rank, std::size_t bytes)
        : is_first_(rank == 0), other_(1 - rank), out_(bytes, 1), in_(bytes, 2) {}

    double latency() {
        const int bytes = static_cast<int>(out_.size());
        return seconds_of(count_for(out_.size(), 1 << 21, 500),
                          [&] {
                              if (is_first_)
                                  MPI_Send(out_.data(), bytes, MPI_BYTE, other_, 1, MPI_COMM_WORLD);
                              MPI_Recv(in_.data(), bytes, MPI_BYTE, other_, 1, MPI_COMM_WORLD,
                                       MPI_STATUS_IGNORE);
                              if (!is_first_)
                                  MPI_Send(out_.data(), bytes, MPI_BYTE, other_, 1, MPI_COMM_WORLD);
                          }) /
               2;
    }

    /// Bytes per second. The receiver tells the sender when a window is there.
    double stream() {
        const int bytes = static_cast<int>(out_.size());
        const double seconds = seconds_of(count_for(out_.size() * kWindow, 1 << 23, 50), [&] {
            for (MPI_Request& request : requests_) {
                if (is_first_)
                    MPI_Isend(out_.data(), bytes, MPI_BYTE, other_, 2, MPI_COMM_WORLD, &request);
                else
                    MPI_Irecv(in_.data(), bytes, MPI_BYTE, other_, 2, MPI_COMM_WORLD, &request);
            }
            MPI_Waitall(kWindow, requests_, MPI_STATUSES_IGNORE);
            char word[4] = {};
            if (is_first_)
                MPI_Recv(word, sizeof word, MPI_BYTE, other_, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            else
                MPI_Send(word, sizeof word, MPI_BYTE, other_, 3, MPI_COMM_WORLD);
        });
        return static_cast<double>(bytes) * kWindow / seconds;
    }

  private:
    bool is_first_;
    int other_;
    std::vector<char> out_, in_;
    MPI_Request requests_[kWindow];
};

void measure_pairs(int rank, std::size_t min, std::size_t max) {
    for (std::size_t bytes = min; bytes <= max; bytes *= 2) {
        Pair pair(rank, bytes);
        const double latency = pair.latency();
        const double stream = pair.stream();
        if (rank == 0)
            std::printf("%zu %.1f %.0f\n", bytes, latency * 1e9, stream);
    }
}

void measure_collectives(int rank) {
    constexpr std::size_t kCount = 20;
    const double barrier = seconds_of(kCount, [] { MPI_Barrier(MPI_COMM_WORLD); });
    double mine = rank, sum = 0;
    const double allreduce = seconds_of(
        kCount, [&] { MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); });
    if (rank == 0)
        std::printf("barrier %.1f\nallreduce %.1f\n", barrier * 1e9, allreduce * 1e9);
}

std::size_t size_in(const char* word) {
    char* end = nullptr;
    const unsigned long long value = std::strtoull(word, &end, 10);
    return *end == '\0' && value >= 1 && value <= kSizeMax ? static_cast<std::size_t>(value) : 0;
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0, ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const bool is_pair = argc == 4 && std::strcmp(argv[1], "pair") == 0 && ranks == 2 &&
                         size_in(argv[2]) > 0 && size_in(argv[3]) > 0;
    const bool is_collectives = argc == 2 && std::strcmp(argv[1], "collectives") == 0;
    if (is_pair) {
        measure_pairs(rank, size_in(argv[2]), size_in(argv[3]));
    } else if (is_collectives) {
        measure_collectives(rank);
    } else if (rank == 0) {
        std::fprintf(stderr, "usage: mpi_times pair MIN MAX (two ranks) | mpi_times collectives\n");
    }
    MPI_Finalize();
    return is_pair || is_collectives ? 0 : 2;
}
