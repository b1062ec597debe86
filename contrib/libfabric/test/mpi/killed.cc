// SPDX-License-Identifier: BSD-3-Clause
// The last rank kills itself in the middle of a stream; the others wait for its messages, and must
// not do so for ever: each gets an error, and says so itself, since what Open MPI says of errors
// passes through a launcher that a death may confuse. Whoever goes on to the end says so, too, and
// is wrong.
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "check.hpp"

namespace {

/// The launcher ends all when one has left: the others get as long as a device tries again.
constexpr unsigned kOthersSeconds = 4;

[[noreturn]] void leave(const char* words, int status) {
    std::printf("rank %d %s\n", mpi_check::rank(), words);
    std::fflush(stdout);
    ::sleep(kOthersSeconds);
    std::_Exit(status);
}

}  // namespace

int main(int argc, char** argv) {
    using namespace mpi_check;
    constexpr int kBefore = 20, kAll = 40;
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
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
            const int status = MPI_Recv(bytes.data(), length, MPI_BYTE, victim, i, MPI_COMM_WORLD,
                                        MPI_STATUS_IGNORE);
            if (status != MPI_SUCCESS)
                leave("was told of the death", 0);
        }
    }
    leave("got messages of the dead", 3);
}
