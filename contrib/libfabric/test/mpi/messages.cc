// SPDX-License-Identifier: BSD-3-Clause
// Messages from one rank to another: modes, probes, cancel, truncation, wildcards, order, lengths.
#include <array>
#include <numeric>

#include "check.hpp"

namespace mpi_check {
namespace {

constexpr int kTag = 11;
constexpr int kLengths[] = {0,       1,    8,    63,    64,      96,      97,      1000,
                            4096,    8192, 8193, 65536, 100'003, 262'144, 1 << 20, (4 << 20) + 1,
                            64 << 20};

bool is_pattern(const std::vector<std::uint8_t>& bytes, std::size_t seed) {
    return bytes == pattern(bytes.size(), seed);
}

int count_of(MPI_Status status) {
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    return count;
}

void lengths() {
    for (const int length : kLengths) {
        const auto seed = static_cast<std::size_t>(length);
        if (rank() == 0) {
            const auto bytes = pattern(seed, seed);
            MPI_Send(bytes.data(), length, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
        } else if (rank() == 1) {
            std::vector<std::uint8_t> bytes(seed);
            MPI_Status status;
            MPI_Recv(bytes.data(), length, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &status);
            MPI_CHECK(count_of(status) == length);
            MPI_CHECK(is_pattern(bytes, seed));
        }
    }
}

void modes() {
    std::vector<char> attached(1 << 20);
    using Send = int (*)(const void*, int, MPI_Datatype, int, int, MPI_Comm);
    const Send sends[] = {MPI_Send, MPI_Bsend, MPI_Ssend, MPI_Rsend};
    for (const int length : {0, 40, 5000, 300'000}) {
        for (std::size_t mode = 0; mode < std::size(sends); ++mode) {
            const auto seed = static_cast<std::size_t>(length) + mode;
            std::vector<std::uint8_t> bytes(static_cast<std::size_t>(length));
            if (rank() == 1) {
                MPI_Request request;
                MPI_Irecv(bytes.data(), length, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &request);
                MPI_Send(nullptr, 0, MPI_BYTE, 0, kTag + 1, MPI_COMM_WORLD);  // it is posted
                MPI_Wait(&request, MPI_STATUS_IGNORE);
                MPI_CHECK(is_pattern(bytes, seed));
            } else if (rank() == 0) {
                bytes = pattern(bytes.size(), seed);
                MPI_Recv(nullptr, 0, MPI_BYTE, 1, kTag + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                void* buffer = attached.data();
                int size_of = static_cast<int>(attached.size());
                MPI_Buffer_attach(buffer, size_of);
                sends[mode](bytes.data(), length, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
                MPI_Buffer_detach(&buffer, &size_of);
            }
        }
    }
}

/// A synchronous send does not end before its receive is posted.
void synchronous() {
    int value = 5;
    if (rank() == 0) {
        MPI_Request request;
        MPI_Issend(&value, 1, MPI_INT, 1, kTag, MPI_COMM_WORLD, &request);
        int has_ended = 0;
        for (int i = 0; i < 1000; ++i) {
            MPI_Test(&request, &has_ended, MPI_STATUS_IGNORE);
            MPI_CHECK(has_ended == 0);
            if (has_ended != 0)
                return;
        }
        MPI_Send(nullptr, 0, MPI_BYTE, 1, kTag + 1, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (rank() == 1) {
        MPI_Recv(nullptr, 0, MPI_BYTE, 0, kTag + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(&value, 1, MPI_INT, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

void persistent() {
    int value = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank() == 0)
        MPI_Send_init(&value, 1, MPI_INT, 1, kTag, MPI_COMM_WORLD, &request);
    else if (rank() == 1)
        MPI_Recv_init(&value, 1, MPI_INT, 0, kTag, MPI_COMM_WORLD, &request);
    for (int i = 0; i < 50 && rank() < 2; ++i) {
        if (rank() == 0)
            value = i * 3;
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_CHECK(value == i * 3);
    }
    if (rank() < 2)
        MPI_Request_free(&request);
}

void probes() {
    for (const int length : {0, 17, 9000, 400'000}) {
        const auto seed = static_cast<std::size_t>(length);
        if (rank() == 0) {
            const auto bytes = pattern(seed, seed);
            MPI_Request requests[3];
            for (int i = 0; i < 3; ++i) {
                MPI_Isend(bytes.data(), length, MPI_BYTE, 1, kTag + i, MPI_COMM_WORLD,
                          &requests[i]);
            }
            MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
        } else if (rank() == 1) {
            std::vector<std::uint8_t> bytes(seed);
            MPI_Status status;
            MPI_Probe(0, kTag + 1, MPI_COMM_WORLD, &status);
            MPI_CHECK(count_of(status) == length);
            MPI_Recv(bytes.data(), length, MPI_BYTE, 0, kTag + 1, MPI_COMM_WORLD, &status);
            MPI_CHECK(is_pattern(bytes, seed));

            MPI_Message message = MPI_MESSAGE_NULL;
            std::fill(bytes.begin(), bytes.end(), std::uint8_t{0});
            MPI_Mprobe(MPI_ANY_SOURCE, kTag + 2, MPI_COMM_WORLD, &message, &status);
            MPI_CHECK(count_of(status) == length && status.MPI_SOURCE == 0);
            MPI_Mrecv(bytes.data(), length, MPI_BYTE, &message, &status);
            MPI_CHECK(is_pattern(bytes, seed));

            int is_there = 0;
            while (is_there == 0)
                MPI_Iprobe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, &status);
            MPI_CHECK(status.MPI_TAG == kTag);
            is_there = 0;
            while (is_there == 0)
                MPI_Improbe(0, kTag, MPI_COMM_WORLD, &is_there, &message, &status);
            MPI_Request request;
            MPI_Imrecv(bytes.data(), length, MPI_BYTE, &message, &request);
            MPI_Wait(&request, &status);
            MPI_CHECK(is_pattern(bytes, seed));
        }
    }
}

/// Iprobe of what is not there says so.
void probe_of_nothing() {
    int is_there = 1;
    for (int i = 0; i < 20; ++i) {
        MPI_Iprobe(MPI_ANY_SOURCE, kTag + 77, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
        MPI_CHECK(is_there == 0);
    }
}

void cancel() {
    if (rank() > 1)
        return;
    int value = 0;
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(&value, 1, MPI_INT, 1 - rank(), kTag + 5, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    int is_cancelled = 0;
    MPI_Test_cancelled(&status, &is_cancelled);
    MPI_CHECK(is_cancelled == 1);
    MPI_Sendrecv(nullptr, 0, MPI_BYTE, 1 - rank(), kTag, nullptr, 0, MPI_BYTE, 1 - rank(), kTag,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);  // both have withdrawn theirs
    // A cancelled receive takes no message.
    int mine = rank() + 100, theirs = 0;
    MPI_Sendrecv(&mine, 1, MPI_INT, 1 - rank(), kTag + 5, &theirs, 1, MPI_INT, 1 - rank(), kTag + 5,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_CHECK(theirs == 101 - rank() && value == 0);
}

void truncation() {
    for (const int length : {80, 20'000, 500'000}) {
        const auto seed = static_cast<std::size_t>(length);
        if (rank() == 0) {
            const auto bytes = pattern(seed, seed);
            MPI_Send(bytes.data(), length, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
        } else if (rank() == 1) {
            std::vector<std::uint8_t> bytes(seed, 0xee);
            MPI_Errhandler before;
            MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
            MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
            MPI_Status status;
            const int error =
                MPI_Recv(bytes.data(), length / 2, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &status);
            int kind = MPI_SUCCESS;
            MPI_Error_class(error, &kind);
            MPI_CHECK(kind == MPI_ERR_TRUNCATE);
            MPI_CHECK(bytes[seed / 2] == 0xee);
            MPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
            MPI_Errhandler_free(&before);
        }
    }
}

void any_source() {
    constexpr int kEach = 50;
    if (rank() == 0) {
        std::vector<int> next(static_cast<std::size_t>(size()), 0);
        for (int left = kEach * (size() - 1); left > 0; --left) {
            int value = -1;
            MPI_Status status;
            MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            int& expected = next[static_cast<std::size_t>(status.MPI_SOURCE)];
            MPI_CHECK(value == expected && status.MPI_TAG == expected % 5);
            ++expected;
        }
    } else {
        for (int i = 0; i < kEach; ++i)
            MPI_Send(&i, 1, MPI_INT, 0, i % 5, MPI_COMM_WORLD);
    }
}

/// Long and short messages of one tag are received in the order of their sending.
void order() {
    constexpr int kMany = 60;
    const auto length_of = [](int i) { return i % 3 == 0 ? 200'000 : i % 3 == 1 ? 4 : 9000; };
    if (rank() > 1)
        return;
    std::vector<std::vector<int>> buffers(kMany, std::vector<int>(50'000));
    std::vector<MPI_Request> requests(kMany);
    for (int i = 0; i < kMany; ++i) {
        auto& buffer = buffers[static_cast<std::size_t>(i)];
        auto& request = requests[static_cast<std::size_t>(i)];
        if (rank() == 0) {
            buffer[0] = i;
            MPI_Isend(buffer.data(), length_of(i), MPI_BYTE, 1, kTag, MPI_COMM_WORLD, &request);
        } else {
            MPI_Irecv(buffer.data(), 200'000, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &request);
        }
    }
    std::vector<MPI_Status> statuses(kMany);
    MPI_Waitall(kMany, requests.data(), statuses.data());
    for (int i = 0; i < kMany && rank() == 1; ++i) {
        MPI_CHECK(buffers[static_cast<std::size_t>(i)][0] == i);
        MPI_CHECK(count_of(statuses[static_cast<std::size_t>(i)]) == length_of(i));
    }
}

void to_itself() {
    int in = 0, out = rank() * 7;
    MPI_Request request;
    MPI_Irecv(&in, 1, MPI_INT, rank(), kTag, MPI_COMM_WORLD, &request);
    MPI_Send(&out, 1, MPI_INT, rank(), kTag, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_CHECK(in == out);
}

void strided() {
    if (rank() > 1)
        return;
    MPI_Datatype column;
    MPI_Type_vector(100, 1, 100, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    std::vector<double> grid(100 * 100, -1);
    if (rank() == 0) {
        std::iota(grid.begin(), grid.end(), 0.0);
        MPI_Send(&grid[3], 1, column, 1, kTag, MPI_COMM_WORLD);
    } else {
        MPI_Recv(&grid[5], 1, column, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (std::size_t row = 0; row < 100; ++row) {
            MPI_CHECK(grid[row * 100 + 5] == static_cast<double>(row * 100 + 3));
            MPI_CHECK(grid[row * 100 + 6] == -1);
        }
    }
    MPI_Type_free(&column);
}

}  // namespace
}  // namespace mpi_check

int main(int argc, char** argv) {
    using namespace mpi_check;
    MPI_Init(&argc, &argv);
    const int status = run({{"lengths", lengths},
                            {"modes", modes},
                            {"synchronous", synchronous},
                            {"persistent", persistent},
                            {"probes", probes},
                            {"probe of nothing", probe_of_nothing},
                            {"cancel", cancel},
                            {"truncation", truncation},
                            {"any source", any_source},
                            {"order", order},
                            {"to itself", to_itself, 1},
                            {"strided", strided}});
    MPI_Finalize();
    return status;
}
