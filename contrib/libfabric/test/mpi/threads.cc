// SPDX-License-Identifier: BSD-3-Clause
// Several threads of each rank at once (MPI_THREAD_MULTIPLE): streams on communicators of their own
// and on one with tags of their own, wildcards, matched probes, cancel, collectives.
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "check.hpp"

namespace mpi_check {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr int kThreads = 4;
constexpr int kTag = 20;  // of the first thread
constexpr int kLengths[] = {8, 100, 0, 3000, 16, 9000, 64, 70'000};
constexpr int kLengthMax = 70'000;

int length_of(int index) {
    return kLengths[static_cast<std::size_t>(index) % std::size(kLengths)];
}

std::size_t seed_of(int sender, int index) {
    return static_cast<std::size_t>(sender * 5000 + index);
}

Bytes message(int sender, int index) {
    return pattern(static_cast<std::size_t>(length_of(index)), seed_of(sender, index));
}

/// Whether `status` and the begin of `bytes` are those of this message.
bool is_message(const Bytes& bytes, const MPI_Status& status, int sender, int index) {
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    const Bytes wanted = message(sender, index);
    return count == length_of(index) && std::equal(wanted.begin(), wanted.end(), bytes.begin());
}

int next_rank() {
    return (rank() + 1) % size();
}

int previous_rank() {
    return (rank() + size() - 1) % size();
}

/// `body(thread)` in kThreads threads.
template <class Body>
void in_threads(Body body) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
        threads.emplace_back(body, thread);
    for (std::thread& thread : threads)
        thread.join();
}

/// Copies of MPI_COMM_WORLD.
class Copies {
  public:
    Copies() {
        for (MPI_Comm& copy : copies_)
            MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    }
    ~Copies() {
        for (MPI_Comm& copy : copies_)
            MPI_Comm_free(&copy);
    }
    Copies(const Copies&) = delete;
    Copies& operator=(const Copies&) = delete;

    MPI_Comm operator[](int thread) const { return copies_[static_cast<std::size_t>(thread)]; }

  private:
    std::array<MPI_Comm, kThreads> copies_{};
};

// ---- Waiting

void finish_each(std::vector<MPI_Request>& requests, std::vector<MPI_Status>& statuses) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
        int has_ended = 0;
        while (has_ended == 0) {
            MPI_Test(&requests[i], &has_ended, &statuses[i]);
            if (has_ended == 0)
                ::sched_yield();
        }
    }
}

void finish_any(std::vector<MPI_Request>& requests, std::vector<MPI_Status>& statuses) {
    for (std::size_t left = requests.size(); left > 0; --left) {
        int index = MPI_UNDEFINED;
        MPI_Status status;
        MPI_Waitany(static_cast<int>(requests.size()), requests.data(), &index, &status);
        MPI_CHECK(index != MPI_UNDEFINED);
        if (index != MPI_UNDEFINED)
            statuses[static_cast<std::size_t>(index)] = status;
    }
}

void finish_some(std::vector<MPI_Request>& requests, std::vector<MPI_Status>& statuses) {
    std::vector<int> indices(requests.size());
    std::vector<MPI_Status> some(requests.size());
    for (std::size_t left = requests.size(); left > 0;) {
        int count = 0;
        MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &count, indices.data(),
                     some.data());
        MPI_CHECK(count != MPI_UNDEFINED);
        if (count == MPI_UNDEFINED)
            return;
        if (count == 0)
            ::sched_yield();
        for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
            statuses[static_cast<std::size_t>(indices[i])] = some[i];
        left -= static_cast<std::size_t>(count);
    }
}

/// In one of four ways.
void finish(std::vector<MPI_Request>& requests, std::vector<MPI_Status>& statuses, int way) {
    switch (way % 4) {
        case 0:
            MPI_Waitall(static_cast<int>(requests.size()), requests.data(), statuses.data());
            break;
        case 1:
            finish_any(requests, statuses);
            break;
        case 2:
            finish_some(requests, statuses);
            break;
        default:
            finish_each(requests, statuses);
    }
}

// ---- Streams around the ring of ranks

/// Windows of receives and sends with one tag, received in the order of their sending.
void stream(MPI_Comm comm, int tag, int thread, int source = previous_rank()) {
    constexpr int kWindow = 16, kRounds = 12;
    for (int round = 0; round < kRounds; ++round) {
        std::vector<Bytes> in(kWindow, Bytes(kLengthMax)), out;
        std::vector<MPI_Request> requests(2 * kWindow, MPI_REQUEST_NULL);
        for (std::size_t i = 0; i < kWindow; ++i) {
            MPI_Irecv(in[i].data(), kLengthMax, MPI_BYTE, source, tag, comm, &requests[i]);
            out.push_back(message(thread, round * kWindow + static_cast<int>(i)));
        }
        for (std::size_t i = 0; i < kWindow; ++i) {
            const auto send = i % 5 == 3 ? MPI_Issend : MPI_Isend;
            send(out[i].data(), static_cast<int>(out[i].size()), MPI_BYTE, next_rank(), tag, comm,
                 &requests[kWindow + i]);
        }
        std::vector<MPI_Status> statuses(requests.size());
        finish(requests, statuses, thread + round);
        for (std::size_t i = 0; i < kWindow; ++i) {
            MPI_CHECK(
                is_message(in[i], statuses[i], thread, round * kWindow + static_cast<int>(i)));
            MPI_CHECK(statuses[i].MPI_SOURCE == previous_rank() && statuses[i].MPI_TAG == tag);
        }
    }
}

void own_communicators() {
    const Copies copies;
    in_threads([&](int thread) { stream(copies[thread], kTag, thread); });
}

void tags_by_thread() {
    in_threads([](int thread) { stream(MPI_COMM_WORLD, kTag + thread, thread); });
}

/// Every second thread names no source.
void sources_by_thread() {
    in_threads([](int thread) {
        const int source = thread % 2 == 0 ? MPI_ANY_SOURCE : previous_rank();
        stream(MPI_COMM_WORLD, kTag + thread, thread, source);
    });
}

void to_itself() {
    in_threads([](int thread) {
        const int to = kTag + (thread + 1) % kThreads, from = kTag + thread;
        const int sender = (thread + kThreads - 1) % kThreads;
        for (int i = 0; i < 60; ++i) {
            const Bytes out = message(thread, i);
            Bytes in(kLengthMax);
            MPI_Request request;
            MPI_Isend(out.data(), length_of(i), MPI_BYTE, 0, to, MPI_COMM_SELF, &request);
            MPI_Status status;
            MPI_Recv(in.data(), kLengthMax, MPI_BYTE, 0, from, MPI_COMM_SELF, &status);
            MPI_CHECK(is_message(in, status, sender, i));
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
    });
}

// ---- Threads that take each other's messages

struct Taken {
    Bytes bytes = Bytes(kLengthMax);
    MPI_Status status{};
};

using Take = Taken (*)(MPI_Comm comm);

Taken take_by_receive(MPI_Comm comm) {
    Taken taken;
    MPI_Recv(taken.bytes.data(), kLengthMax, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm,
             &taken.status);
    return taken;
}

Taken take_by_mprobe(MPI_Comm comm) {
    Taken taken;
    MPI_Message matched = MPI_MESSAGE_NULL;
    MPI_Status probed;
    MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &matched, &probed);
    MPI_Mrecv(taken.bytes.data(), kLengthMax, MPI_BYTE, &matched, &taken.status);
    MPI_CHECK(taken.status.MPI_TAG == probed.MPI_TAG);
    MPI_CHECK(taken.status.MPI_SOURCE == probed.MPI_SOURCE);
    return taken;
}

Taken take_by_improbe(MPI_Comm comm) {
    Taken taken;
    MPI_Message matched = MPI_MESSAGE_NULL;
    int is_there = 0;
    while (is_there == 0) {
        MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &is_there, &matched, MPI_STATUS_IGNORE);
        if (is_there == 0)
            ::sched_yield();
    }
    MPI_Request request;
    MPI_Imrecv(taken.bytes.data(), kLengthMax, MPI_BYTE, &matched, &request);
    MPI_Wait(&request, &taken.status);
    return taken;
}

/// Two threads send, two take whatever comes next, each in its way. Each message is taken once, and
/// each of the two takes those of one sender in the order of their sending.
void take_in_turn(Take first, Take second) {
    constexpr int kSenders = kThreads / 2, kEach = 300;
    const Copies copies;
    const MPI_Comm comm = copies[0];
    std::atomic<int> left = kSenders * kEach;
    std::array<std::vector<int>, kSenders> times;
    times.fill(std::vector<int>(kEach, 0));
    std::array<std::array<std::vector<int>, kSenders>, 2> indices;  // by taker and sender
    const auto take = [&](int taker) {
        const Take way = taker == 0 ? first : second;
        while (left.fetch_sub(1, std::memory_order_relaxed) > 0) {
            const Taken taken = way(comm);
            const int sender = taken.status.MPI_TAG % kSenders;
            const int index = taken.status.MPI_TAG / kSenders;
            MPI_CHECK(is_message(taken.bytes, taken.status, sender, index));
            indices[static_cast<std::size_t>(taker)][static_cast<std::size_t>(sender)].push_back(
                index);
        }
    };
    in_threads([&](int thread) {
        if (thread >= kSenders) {
            take(thread - kSenders);
            return;
        }
        for (int i = 0; i < kEach; ++i) {
            const Bytes out = message(thread, i);
            MPI_Send(out.data(), length_of(i), MPI_BYTE, next_rank(), i * kSenders + thread, comm);
        }
    });
    for (const auto& taker : indices) {
        for (std::size_t sender = 0; sender < kSenders; ++sender) {
            MPI_CHECK(std::is_sorted(taker[sender].begin(), taker[sender].end()));
            for (const int index : taker[sender])
                ++times[sender][static_cast<std::size_t>(index)];
        }
    }
    MPI_CHECK(std::all_of(times.begin(), times.end(), [](const std::vector<int>& of_sender) {
        return of_sender == std::vector<int>(kEach, 1);
    }));
}

void wildcards() {
    take_in_turn(take_by_receive, take_by_receive);
}

void matched_probes() {
    take_in_turn(take_by_mprobe, take_by_mprobe);
}

void tested_probes() {
    take_in_turn(take_by_improbe, take_by_improbe);
}

void probes_beside_receives() {
    take_in_turn(take_by_mprobe, take_by_receive);
}

// ---- Cancel

/// A receive is cancelled while its message is on its way: it ends with the message, or another
/// receive gets it.
void cancel_rounds(int tag, int thread) {
    for (int i = 0; i < 100; ++i) {
        const Bytes out = message(thread, i);
        Bytes in(kLengthMax);
        MPI_Request receive, send;
        MPI_Status status;
        MPI_Irecv(in.data(), kLengthMax, MPI_BYTE, previous_rank(), tag, MPI_COMM_WORLD, &receive);
        MPI_Isend(out.data(), length_of(i), MPI_BYTE, next_rank(), tag, MPI_COMM_WORLD, &send);
        MPI_Cancel(&receive);
        MPI_Wait(&receive, &status);
        int is_cancelled = 0;
        MPI_Test_cancelled(&status, &is_cancelled);
        if (is_cancelled != 0) {
            MPI_Recv(in.data(), kLengthMax, MPI_BYTE, previous_rank(), tag, MPI_COMM_WORLD,
                     &status);
        }
        MPI_CHECK(is_message(in, status, thread, i));
        MPI_Wait(&send, MPI_STATUS_IGNORE);
    }
}

/// A receive that nobody sends to is cancelled.
void cancel_of_nothing(int tag) {
    for (int i = 0; i < 100; ++i) {
        int value = 0, is_cancelled = 0;
        MPI_Request request;
        MPI_Status status;
        MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &is_cancelled);
        MPI_CHECK(is_cancelled == 1 && value == 0);
    }
}

void cancel() {
    in_threads([](int thread) {
        if (thread == 0)
            cancel_of_nothing(kTag + thread);
        else if (thread == 1)
            stream(MPI_COMM_WORLD, kTag + thread, thread);
        else
            cancel_rounds(kTag + thread, thread);
    });
}

// ---- Collectives

void collect(MPI_Comm comm, int thread) {
    for (int i = 0; i < 40; ++i) {
        const int length = i % 8 == 7 ? 20'000 : 1 + i % 3 * 50;
        const auto count = static_cast<std::size_t>(length);
        const std::vector<int> mine(count, rank() * (thread + 1) + i);
        std::vector<int> sum(count, -1), root(count, rank() == i % size() ? thread + i : -1);
        std::vector<int> all(count * static_cast<std::size_t>(size()), -1);
        MPI_Allreduce(mine.data(), sum.data(), length, MPI_INT, MPI_SUM, comm);
        MPI_Bcast(root.data(), length, MPI_INT, i % size(), comm);
        MPI_Request request;
        MPI_Iallgather(mine.data(), length, MPI_INT, all.data(), length, MPI_INT, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Barrier(comm);
        const int wanted = (thread + 1) * size() * (size() - 1) / 2 + i * size();
        MPI_CHECK(sum == std::vector<int>(count, wanted));
        MPI_CHECK(root == std::vector<int>(count, thread + i));
        for (std::size_t k = 0; k < all.size(); ++k)
            MPI_CHECK(all[k] == static_cast<int>(k / count) * (thread + 1) + i);
    }
}

/// The last thread's messages go on the communicator of the first one's collectives.
void collectives() {
    const Copies copies;
    in_threads([&](int thread) {
        if (thread == kThreads - 1)
            stream(copies[0], kTag, thread);
        else
            collect(copies[thread], thread);
    });
}

/// Each thread makes communicators, from one of its own.
void new_communicators() {
    const Copies copies;
    in_threads([&](int thread) {
        for (int i = 0; i < 10; ++i) {
            MPI_Comm made;
            MPI_Comm_dup(copies[thread], &made);
            int mine = rank() + thread, sum = -1;
            MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, made);
            MPI_CHECK(sum == size() * (size() - 1) / 2 + thread * size());
            MPI_Comm_free(&made);
        }
    });
}

}  // namespace
}  // namespace mpi_check

int main(int argc, char** argv) {
    using namespace mpi_check;
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    if (provided != MPI_THREAD_MULTIPLE) {
        std::fprintf(stderr, "rank %d: this MPI has no MPI_THREAD_MULTIPLE\n", rank());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    const int status = run({{"own communicators", own_communicators},
                            {"tags by thread", tags_by_thread},
                            {"sources by thread", sources_by_thread},
                            {"to itself", to_itself, 1},
                            {"wildcards", wildcards},
                            {"matched probes", matched_probes},
                            {"tested probes", tested_probes},
                            {"probes beside receives", probes_beside_receives},
                            {"cancel", cancel},
                            {"collectives", collectives},
                            {"new communicators", new_communicators}});
    MPI_Finalize();
    return status;
}
