// SPDX-License-Identifier: BSD-3-Clause
// All ranks together: collectives, one-sided operations, threads.
#include <numeric>
#include <thread>

#include "check.hpp"

namespace mpi_check {
namespace {

void collectives() {
    for (const int length : {1, 100, 20'000, 300'000}) {
        const auto count = static_cast<std::size_t>(length);
        const int sum_of_ranks = size() * (size() - 1) / 2;
        std::vector<int> mine(count, rank()), result(count, -1);
        MPI_Allreduce(mine.data(), result.data(), length, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        MPI_CHECK(result == std::vector<int>(count, sum_of_ranks));

        std::iota(result.begin(), result.end(), rank() == 1 ? 3 : 0);
        MPI_Bcast(result.data(), length, MPI_INT, 1, MPI_COMM_WORLD);
        MPI_CHECK(result.front() == 3 && result.back() == length + 2);

        std::vector<int> all(count * static_cast<std::size_t>(size()), -1);
        MPI_Gather(mine.data(), length, MPI_INT, all.data(), length, MPI_INT, 0, MPI_COMM_WORLD);
        for (std::size_t i = 0; i < all.size() && rank() == 0; ++i)
            MPI_CHECK(all[i] == static_cast<int>(i / count));
    }
}

void all_to_all() {
    for (const int each : {1, 1000, 50'000}) {
        const auto total = static_cast<std::size_t>(each) * static_cast<std::size_t>(size());
        std::vector<int> out(total), in(total, -1);
        for (std::size_t i = 0; i < total; ++i)
            out[i] = rank() * 1000 + static_cast<int>(i) / each;
        MPI_Alltoall(out.data(), each, MPI_INT, in.data(), each, MPI_INT, MPI_COMM_WORLD);
        for (std::size_t i = 0; i < total; ++i)
            MPI_CHECK(in[i] == static_cast<int>(i) / each * 1000 + rank());
    }
}

void scan() {
    int mine = rank() + 1, sum = 0;
    MPI_Scan(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_CHECK(sum == (rank() + 1) * (rank() + 2) / 2);
}

void split() {
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank() % 2, rank(), &half);
    int mine = rank(), sum = 0, members = 0;
    MPI_Comm_size(half, &members);
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, half);
    int expected = 0;
    for (int other = rank() % 2; other < size(); other += 2)
        expected += other;
    MPI_CHECK(sum == expected);
    MPI_Comm_free(&half);
}

void one_sided() {
    constexpr int kEach = 1000;
    std::vector<int> window(kEach * static_cast<std::size_t>(size()), -1);
    MPI_Win win;
    MPI_Win_create(window.data(), static_cast<MPI_Aint>(window.size() * sizeof(int)), sizeof(int),
                   MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    const std::vector<int> mine(kEach, rank());
    MPI_Win_fence(0, win);
    for (int to = 0; to < size(); ++to)
        MPI_Put(mine.data(), kEach, MPI_INT, to, rank() * kEach, kEach, MPI_INT, win);
    MPI_Win_fence(0, win);
    for (std::size_t i = 0; i < window.size(); ++i)
        MPI_CHECK(window[i] == static_cast<int>(i) / kEach);

    MPI_Win_fence(0, win);
    const int one = 1;
    MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win);
    MPI_Win_fence(0, win);
    MPI_CHECK(rank() != 0 || window[0] == size());

    std::vector<int> got(kEach, -1);
    const int from = (rank() + 1) % size();
    MPI_Get(got.data(), kEach, MPI_INT, from, kEach, kEach, MPI_INT, win);
    MPI_Win_fence(0, win);
    MPI_CHECK(got == std::vector<int>(kEach, 1));

    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    MPI_Accumulate(&one, 1, MPI_INT, 0, 1, 1, MPI_INT, MPI_SUM, win);
    MPI_Win_unlock(0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_fence(0, win);
    MPI_CHECK(rank() != 0 || window[1] == size());
    MPI_Win_free(&win);
}

/// Two threads of each rank talk to those of the next and the previous one at once.
void threads() {
    int provided = MPI_THREAD_SINGLE;
    MPI_Query_thread(&provided);
    MPI_CHECK(provided == MPI_THREAD_MULTIPLE);
    if (provided != MPI_THREAD_MULTIPLE)
        return;
    const int next = (rank() + 1) % size(), previous = (rank() + size() - 1) % size();
    std::vector<int> wrong(2, 0);
    const auto talk = [&](int thread) {
        for (int i = 0; i < 200; ++i) {
            const int length = i % 4 == 0 ? 20'000 : 3;
            std::vector<int> out(static_cast<std::size_t>(length), i + thread), in(out.size(), -1);
            MPI_Sendrecv(out.data(), length, MPI_INT, next, thread, in.data(), length, MPI_INT,
                         previous, thread, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            wrong[static_cast<std::size_t>(thread)] += in != out ? 1 : 0;
        }
    };
    std::thread other(talk, 1);
    talk(0);
    other.join();
    MPI_CHECK(wrong[0] == 0 && wrong[1] == 0);
}

}  // namespace
}  // namespace mpi_check

int main(int argc, char** argv) {
    using namespace mpi_check;
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    const int status = run({{"collectives", collectives},
                            {"all to all", all_to_all},
                            {"scan", scan, 1},
                            {"split", split},
                            {"one-sided", one_sided},
                            {"threads", threads}});
    MPI_Finalize();
    return status;
}
