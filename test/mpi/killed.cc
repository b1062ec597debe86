// SPDX-License-Identifier: BSD-3-Clause
// The last rank kills itself in the middle of a stream; the others wait for its messages, and must
// not do so for ever. Whoever goes on to the end says so, which is wrong.
#include <csignal>

#include "check.hpp"

int main(int argc, char** argv) {
    using namespace mpi_check;
    constexpr int kBefore = 20, kAll = 40;
    MPI_Init(&argc, &argv);
    const int victim = size() - 1;
    std::vector<std::uint8_t> bytes(100'000);
    for (int i = 0; i < kAll; ++i) {
        if (rank() == victim && i == kBefore)
            std::raise(SIGKILL);
        const int length = i % 2 == 0 ? 8 : static_cast<int>(bytes.size());
        if (rank() == victim) {
            for (int to = 0; to < victim; ++to)
                MPI_Send(bytes.data(), length, MPI_BYTE, to, i, MPI_COMM_WORLD);
        } else {
            MPI_Recv(bytes.data(), length, MPI_BYTE, victim, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    std::printf("rank %d got messages of the dead\n", rank());
    return 3;
}
