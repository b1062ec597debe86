// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations: put, get, accumulate, fetch, compare and swap, with every way to
// synchronise them. `--skip NAME` leaves out a case that the MPI library itself has wrong.
#include <algorithm>
#include <type_traits>

#include "window.hpp"

namespace mpi_check {
namespace {

constexpr int kLengths[] = {
    0, 1, 7, 8, 63, 64, 192, 4096, 65'536, 100'003, (1 << 20), (4 << 20) - 3, 4 << 20};
constexpr std::size_t kGuard = 64;
constexpr std::uint8_t kUntouched = 0xee;

int next_rank() {
    return (rank() + 1) % size();
}
int previous_rank() {
    return (rank() + size() - 1) % size();
}

using Bytes = Window<std::uint8_t>;

/// Holds the pattern and nothing on either side of it.
bool is_framed(const std::uint8_t* bytes, std::size_t length, std::size_t seed) {
    const auto wanted = pattern(length, seed);
    const auto is_untouched = [](std::uint8_t byte) { return byte == kUntouched; };
    return std::equal(wanted.begin(), wanted.end(), bytes + kGuard) &&
           std::all_of(bytes, bytes + kGuard, is_untouched) &&
           std::all_of(bytes + kGuard + length, bytes + kGuard + length + kGuard, is_untouched);
}

/// Every rank writes to the next one and reads from the previous one, each length.
template <class Between>
void put_and_get(const Bytes& window, const Between& between) {
    for (const int length : kLengths) {
        const auto count = static_cast<std::size_t>(length);
        const auto seed = [&](int of) { return count + static_cast<std::size_t>(of); };
        const auto out = pattern(count, seed(rank()));
        between([&] {
            MPI_Put(out.data(), length, MPI_BYTE, next_rank(), window.at(next_rank(), kGuard),
                    length, MPI_BYTE, window);
        });
        MPI_CHECK(is_framed(window.data(), count, seed(previous_rank())));
        std::vector<std::uint8_t> in(count + 2 * kGuard, kUntouched);
        between([&] {
            MPI_Get(in.data() + kGuard, length, MPI_BYTE, next_rank(),
                    window.at(next_rank(), kGuard), length, MPI_BYTE, window);
        });
        MPI_CHECK(is_framed(in.data(), count, seed(rank())));
        std::fill_n(window.data(), count + 2 * kGuard, kUntouched);
    }
}

constexpr std::size_t kLongest = (4 << 20) + 2 * kGuard;

void fence(Memory kind) {
    const Bytes window(kind, kLongest, kUntouched);
    put_and_get(window, [&](const auto& operation) {
        MPI_Win_fence(0, window);
        operation();
        MPI_Win_fence(0, window);
    });
}

/// Post, start, complete, wait; the origin's targets and the target's origins differ.
void pscw(Memory kind) {
    const Bytes window(kind, kLongest, kUntouched);
    MPI_Group all = MPI_GROUP_NULL, origin = MPI_GROUP_NULL, target = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    const int next = next_rank(), previous = previous_rank();
    MPI_Group_incl(all, 1, &previous, &origin);
    MPI_Group_incl(all, 1, &next, &target);
    put_and_get(window, [&](const auto& operation) {
        MPI_Win_post(origin, 0, window);
        MPI_Win_start(target, 0, window);
        operation();
        MPI_Win_complete(window);
        MPI_Win_wait(window);
    });
    for (MPI_Group* group : {&all, &origin, &target})
        MPI_Group_free(group);
}

void locks(Memory kind) {
    const Bytes window(kind, kLongest, kUntouched);
    int turn = 0;
    put_and_get(window, [&](const auto& operation) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock(++turn % 3 == 0 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, next_rank(), 0,
                     window);
        operation();
        MPI_Win_unlock(next_rank(), window);
        MPI_Barrier(MPI_COMM_WORLD);
        window.own(0);
    });
}

void flushes(Memory kind) {
    const Bytes window(kind, kLongest, kUntouched);
    MPI_Win_lock_all(0, window);
    int turn = 0;
    put_and_get(window, [&](const auto& operation) {
        MPI_Win_sync(window);
        MPI_Barrier(MPI_COMM_WORLD);
        operation();
        if (++turn % 2 == 0)
            MPI_Win_flush(next_rank(), window);
        else
            MPI_Win_flush_all(window);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_sync(window);
    });
    MPI_Win_unlock_all(window);
}

/// After a local flush the buffer may be used again.
void local_flushes(Memory kind) {
    constexpr int kTimes = 200;
    constexpr std::size_t kEach = 1000;
    const Window<int> window(kind, kTimes * kEach, -1);
    std::vector<int> buffer(kEach);
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < kTimes; ++i) {
        std::fill(buffer.begin(), buffer.end(), i + rank());
        MPI_Put(buffer.data(), kEach, MPI_INT, next_rank(),
                window.at(next_rank(), static_cast<std::size_t>(i) * kEach), kEach, MPI_INT,
                window);
        if (i % 2 == 0)
            MPI_Win_flush_local(next_rank(), window);
        else
            MPI_Win_flush_local_all(window);
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    window.own(0);
    bool is_right = true;
    for (std::size_t i = 0; i < kTimes * kEach; ++i)
        is_right = is_right && window[i] == static_cast<int>(i / kEach) + previous_rank();
    MPI_CHECK(is_right);
}

void requests(Memory kind) {
    constexpr int kEach = 5000, kMany = 8;
    const Window<int> window(kind, kEach * kMany, 1);
    std::vector<int> out(kEach * kMany), in(kEach * kMany, -1);
    for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = static_cast<int>(i) * 3 + rank();
    const auto all = [&](const auto& start) {
        MPI_Request each[kMany];
        for (std::size_t i = 0; i < kMany; ++i)
            start(i * kEach, window.at(next_rank(), i * kEach), &each[i]);
        MPI_Waitall(kMany, each, MPI_STATUSES_IGNORE);
        MPI_Win_flush(next_rank(), window);
    };
    MPI_Win_lock_all(0, window);
    all([&](std::size_t from, MPI_Aint to, MPI_Request* request_p) {
        MPI_Rput(&out[from], kEach, MPI_INT, next_rank(), to, kEach, MPI_INT, window, request_p);
    });
    all([&](std::size_t from, MPI_Aint to, MPI_Request* request_p) {
        MPI_Rget(&in[from], kEach, MPI_INT, next_rank(), to, kEach, MPI_INT, window, request_p);
    });
    MPI_CHECK(in == out);
    all([&](std::size_t from, MPI_Aint to, MPI_Request* request_p) {
        MPI_Raccumulate(&out[from], kEach, MPI_INT, next_rank(), to, kEach, MPI_INT, MPI_SUM,
                        window, request_p);
    });
    std::fill(in.begin(), in.end(), -1);
    const std::vector<int> ones(kEach, 1);
    all([&](std::size_t from, MPI_Aint to, MPI_Request* request_p) {
        MPI_Rget_accumulate(ones.data(), kEach, MPI_INT, &in[from], kEach, MPI_INT, next_rank(), to,
                            kEach, MPI_INT, MPI_SUM, window, request_p);
    });
    MPI_Win_unlock_all(window);
    bool is_right = true;
    for (std::size_t i = 0; i < in.size(); ++i)
        is_right = is_right && in[i] == 2 * out[i];
    MPI_CHECK(is_right);
    MPI_Barrier(MPI_COMM_WORLD);
    const int mine = window.own(kEach);
    MPI_CHECK(mine == 2 * (kEach * 3 + previous_rank()) + 1);
}

/// An operand of this rank, and what rank 0 then has.
template <class T>
struct Operation {
    MPI_Op op;
    T start, operand, wanted;
};

template <class T>
std::vector<Operation<T>> sums() {
    const auto ranks = static_cast<T>(size());
    const auto mine = static_cast<T>(rank() + 1);
    return {{MPI_SUM, 3, mine, static_cast<T>(3 + ranks * (ranks + 1) / 2)},
            {MPI_REPLACE, 1, 77, 77}};
}

template <class T>
std::vector<Operation<T>> others() {
    const auto mine = static_cast<T>(rank() + 1);
    std::vector<Operation<T>> all = {{MPI_MAX, 1, mine, static_cast<T>(size())},
                                     {MPI_MIN, 100, mine, 1},
                                     {MPI_PROD, 5, static_cast<T>(rank() == 1 ? 3 : 1), 15}};
    if (std::is_integral_v<T>) {
        const auto bit = static_cast<T>(1ULL << (rank() % 7));
        all.push_back({MPI_BOR, 0, bit, static_cast<T>((1ULL << std::min(size(), 7)) - 1)});
        all.push_back({MPI_BXOR, 64, static_cast<T>(rank() == 1 ? 5 : 0), 69});
        all.push_back({MPI_BAND, 127, static_cast<T>(rank() == 1 ? 53 : 127), 53});
    }
    return all;
}

/// All ranks at once on the memory of rank 0.
template <class T>
void accumulate_of(Memory kind, MPI_Datatype type, const std::vector<Operation<T>>& operations) {
    for (const int length : {1, 3, 20'000}) {
        const auto count = static_cast<std::size_t>(length);
        for (const Operation<T>& each : operations) {
            const Window<T> window(kind, count + 2, each.start);
            const std::vector<T> operand(count, each.operand);
            MPI_Win_fence(0, window);
            MPI_Accumulate(operand.data(), length, type, 0, window.at(0, 1), length, type, each.op,
                           window);
            MPI_Win_fence(0, window);
            const T wanted = rank() == 0 ? each.wanted : each.start;
            MPI_CHECK(std::count(window.data() + 1, window.data() + 1 + count, wanted) == length);
            MPI_CHECK(window[0] == each.start && window[count + 1] == each.start);
        }
    }
}

void accumulate(Memory kind) {
    accumulate_of(kind, MPI_INT8_T, sums<std::int8_t>());
    accumulate_of(kind, MPI_INT16_T, sums<std::int16_t>());
    accumulate_of(kind, MPI_INT32_T, sums<std::int32_t>());
    accumulate_of(kind, MPI_UINT64_T, sums<std::uint64_t>());
    accumulate_of(kind, MPI_FLOAT, sums<float>());
    accumulate_of(kind, MPI_DOUBLE, sums<double>());
}

void accumulate_otherwise(Memory kind) {
    accumulate_of(kind, MPI_INT8_T, others<std::int8_t>());
    accumulate_of(kind, MPI_UINT32_T, others<std::uint32_t>());
    accumulate_of(kind, MPI_INT64_T, others<std::int64_t>());
    accumulate_of(kind, MPI_DOUBLE, others<double>());
}

/// Accumulates of one pair are in order: the last of many replacements stays.
void order(Memory kind) {
    constexpr int kTimes = 100;
    const Window<std::int64_t> window(kind, 2);
    MPI_Win_lock(MPI_LOCK_SHARED, next_rank(), 0, window);
    std::vector<std::int64_t> values(kTimes);
    for (int i = 0; i < kTimes; ++i) {
        auto& value = values[static_cast<std::size_t>(i)];
        value = i * 10 + rank();
        MPI_Accumulate(&value, 1, MPI_INT64_T, next_rank(), window.at(next_rank(), 0), 1,
                       MPI_INT64_T, MPI_REPLACE, window);
    }
    MPI_Win_unlock(next_rank(), window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_CHECK(window.own(0) == (kTimes - 1) * 10 + previous_rank());
}

/// Columns of a square, at different places and strides on both sides.
void derived(Memory kind) {
    constexpr std::size_t kSide = 60;
    constexpr int kRows = kSide;
    MPI_Datatype column = MPI_DATATYPE_NULL, blocks = MPI_DATATYPE_NULL;
    MPI_Type_vector(kRows, 1, kRows, MPI_DOUBLE, &column);
    const int lengths[] = {7, 20, 33}, places[] = {3, 100, 1000};
    MPI_Type_indexed(3, lengths, places, MPI_DOUBLE, &blocks);
    MPI_Type_commit(&column);
    MPI_Type_commit(&blocks);
    const int to = next_rank();
    std::vector<double> grid(kSide * kSide);
    for (std::size_t i = 0; i < grid.size(); ++i)
        grid[i] = static_cast<double>(i) + rank();
    {
        const Window<double> window(kind, kSide * kSide, -1);
        MPI_Win_fence(0, window);
        MPI_Put(&grid[3], 1, column, to, window.at(to, 5), 1, column, window);
        MPI_Win_fence(0, window);
        for (std::size_t i = 0; i < grid.size(); ++i) {
            const double sent = static_cast<double>(i - 2) + previous_rank();
            MPI_CHECK(window[i] == (i % kSide == 5 ? sent : -1));
        }
        MPI_Win_fence(0, window);
        MPI_Accumulate(&grid[3], 1, column, to, window.at(to, 5), 1, column, MPI_SUM, window);
        MPI_Win_fence(0, window);
        // A column on one side is blocks on the other, of as many numbers.
        std::vector<double> back(kSide * kSide, -2);
        MPI_Get(back.data(), 1, blocks, to, window.at(to, 5), 1, column, window);
        MPI_Win_fence(0, window);
        std::size_t row = 0;
        for (std::size_t block = 0; block < 3; ++block) {
            for (int i = 0; i < lengths[block]; ++i, ++row) {
                const auto place = static_cast<std::size_t>(places[block] + i);
                MPI_CHECK(back[place] == 2 * grid[row * kSide + 3]);
                back[place] = -2;
            }
        }
        MPI_CHECK(std::count(back.begin(), back.end(), -2.0) == kRows * kRows);
    }
    MPI_Type_free(&column);
    MPI_Type_free(&blocks);
}

/// Every ticket of a counter is given once, whoever asks.
void expect_tickets(const std::vector<std::int64_t>& mine, std::int64_t start, std::int64_t step) {
    std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(size()));
    const int count = static_cast<int>(mine.size());
    MPI_Allgather(mine.data(), count, MPI_INT64_T, all.data(), count, MPI_INT64_T, MPI_COMM_WORLD);
    MPI_CHECK(std::is_sorted(mine.begin(), mine.end()));
    std::sort(all.begin(), all.end());
    bool is_right = true;
    for (std::size_t i = 0; i < all.size(); ++i)
        is_right = is_right && all[i] == start + static_cast<std::int64_t>(i) * step;
    MPI_CHECK(is_right);
}

template <class T>
void tickets_of(Memory kind, MPI_Datatype type) {
    constexpr int kTimes = 200;
    const Window<T> window(kind, 3, 10);
    for (int target = 0; target < size(); target += std::max(1, size() - 1)) {
        std::vector<std::int64_t> mine;
        MPI_Win_lock_all(0, window);
        for (int i = 0; i < kTimes; ++i) {
            const T two = 2;
            T before = -1;
            MPI_Fetch_and_op(&two, &before, type, target, window.at(target, 1), MPI_SUM, window);
            MPI_Win_flush(target, window);
            mine.push_back(static_cast<std::int64_t>(before));
        }
        MPI_Win_unlock_all(window);
        expect_tickets(mine, 10, 2);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_CHECK(window.own(0) == 10 && window.own(2) == 10);
}

void fetch_and_op(Memory kind) {
    tickets_of<std::int32_t>(kind, MPI_INT32_T);
    tickets_of<std::int64_t>(kind, MPI_INT64_T);
    tickets_of<float>(kind, MPI_FLOAT);
    tickets_of<double>(kind, MPI_DOUBLE);

    const int to = next_rank();
    const Window<std::int64_t> window(kind, 1, 5);
    std::int64_t before = -1;
    const std::int64_t value = 40 + rank();
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, window);
    MPI_Fetch_and_op(&value, &before, MPI_INT64_T, to, window.at(to, 0), MPI_REPLACE, window);
    MPI_Win_flush(to, window);
    MPI_CHECK(before == 5);
    MPI_Fetch_and_op(nullptr, &before, MPI_INT64_T, to, window.at(to, 0), MPI_NO_OP, window);
    MPI_Win_unlock(to, window);
    MPI_CHECK(before == value);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_CHECK(window.own(0) == 40 + previous_rank());
}

/// Lists: each element of them is a counter.
void get_accumulate(Memory kind) {
    constexpr int kTimes = 20;
    for (const std::size_t count : {std::size_t{1}, std::size_t{50}, std::size_t{9000}}) {
        const int length = static_cast<int>(count);
        const Window<std::int64_t> window(kind, count, 4);
        const std::vector<std::int64_t> ones(count, 1);
        std::vector<std::int64_t> before(count), first, last;
        for (int i = 0; i < kTimes; ++i) {
            MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
            MPI_Get_accumulate(ones.data(), length, MPI_INT64_T, before.data(), length, MPI_INT64_T,
                               0, window.at(0, 0), length, MPI_INT64_T, MPI_SUM, window);
            MPI_Win_unlock(0, window);
            first.push_back(before.front());
            last.push_back(before.back());
        }
        expect_tickets(first, 4, 1);
        expect_tickets(last, 4, 1);
        MPI_Win_fence(0, window);
        MPI_Get_accumulate(nullptr, 0, MPI_INT64_T, before.data(), length, MPI_INT64_T, 0,
                           window.at(0, 0), length, MPI_INT64_T, MPI_NO_OP, window);
        MPI_Win_fence(0, window);
        MPI_CHECK(before == std::vector<std::int64_t>(count, 4 + kTimes * size()));
    }
}

template <class T>
void swaps_of(Memory kind, MPI_Datatype type) {
    constexpr int kTimes = 50;
    const Window<T> window(kind, 3, 7);
    const int to = 0;
    std::vector<std::int64_t> mine;
    MPI_Win_lock_all(0, window);
    const auto swap = [&](T compare, T value) {
        T before = -1;
        MPI_Compare_and_swap(&value, &compare, &before, type, to, window.at(to, 1), window);
        MPI_Win_flush(to, window);
        return before;
    };
    T seen = 7;
    while (mine.size() < kTimes) {
        const T before = swap(seen, static_cast<T>(seen + 1));
        if (before == seen)
            mine.push_back(before);
        seen = before == seen ? static_cast<T>(seen + 1) : before;
    }
    MPI_Win_unlock_all(window);
    expect_tickets(mine, 7, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    const T wanted = rank() == to ? static_cast<T>(7 + kTimes * size()) : T{7};
    MPI_CHECK(window.own(1) == wanted && window.own(0) == 7 && window.own(2) == 7);
}

void compare_and_swap(Memory kind) {
    swaps_of<std::int32_t>(kind, MPI_INT32_T);
    swaps_of<std::int64_t>(kind, MPI_INT64_T);
}

/// Read, add one, write: right only if an exclusive lock excludes.
void exclusion(Memory kind) {
    constexpr int kTimes = 50;
    const Window<int> window(kind, 1000);
    std::vector<int> values(1000);
    for (int i = 0; i < kTimes; ++i) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Get(values.data(), 1000, MPI_INT, 0, window.at(0, 0), 1000, MPI_INT, window);
        MPI_Win_flush(0, window);
        MPI_CHECK(std::count(values.begin(), values.end(), values[0]) == 1000);
        for (int& value : values)
            ++value;
        MPI_Put(values.data(), 1000, MPI_INT, 0, window.at(0, 0), 1000, MPI_INT, window);
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const int wanted = rank() == 0 ? kTimes * size() : 0;
    MPI_CHECK(window.own(0) == wanted && window.own(999) == wanted);
}

/// Counters of all ranks, to which all add at once, in one epoch.
void counters(Memory kind) {
    constexpr int kTimes = 300;
    const Window<std::int64_t> window(kind, 8);
    std::vector<std::int64_t> ignored(kTimes);
    const std::int64_t one = 1;
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < kTimes; ++i) {
        const int to = (rank() + i) % size();
        const MPI_Aint at = window.at(to, static_cast<std::size_t>(i) % 8);
        auto& before = ignored[static_cast<std::size_t>(i)];
        if (i % 2 == 0)
            MPI_Accumulate(&one, 1, MPI_INT64_T, to, at, 1, MPI_INT64_T, MPI_SUM, window);
        else
            MPI_Fetch_and_op(&one, &before, MPI_INT64_T, to, at, MPI_SUM, window);
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    std::int64_t mine = 0, all = 0;
    for (std::size_t i = 0; i < 8; ++i)
        mine += window.own(i);
    MPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_CHECK(all == static_cast<std::int64_t>(kTimes) * size());
}

template <void (*body)(Memory), Memory kind>
void with() {
    body(kind);
}

/// Each case over each kind of memory.
template <void (*body)(Memory)>
void add(std::vector<Case>& cases, const char* created, const char* allocated,
         const char* attached) {
    cases.push_back({created, with<body, Memory::kOwn>});
    cases.push_back({allocated, with<body, Memory::kAllocated>});
    cases.push_back({attached, with<body, Memory::kAttached>});
}

#define MPI_ADD(cases, body, name) \
    add<body>(cases, name ", created", name ", allocated", name ", attached")

std::vector<Case> all_cases() {
    std::vector<Case> cases;
    MPI_ADD(cases, fence, "fence");
    MPI_ADD(cases, pscw, "post start complete wait");
    MPI_ADD(cases, locks, "locks");
    MPI_ADD(cases, flushes, "flushes");
    MPI_ADD(cases, local_flushes, "local flushes");
    MPI_ADD(cases, requests, "requests");
    MPI_ADD(cases, accumulate, "accumulate");
    MPI_ADD(cases, accumulate_otherwise, "other accumulate");
    MPI_ADD(cases, order, "order");
    MPI_ADD(cases, derived, "derived types");
    MPI_ADD(cases, fetch_and_op, "fetch and op");
    MPI_ADD(cases, get_accumulate, "get accumulate");
    MPI_ADD(cases, compare_and_swap, "compare and swap");
    MPI_ADD(cases, exclusion, "exclusion");
    MPI_ADD(cases, counters, "counters");
    return cases;
}

/// `words` are pairs of `--skip` or `--only` and a part of names of cases.
std::vector<Case> chosen(const std::vector<Case>& cases, const std::vector<std::string>& words) {
    std::vector<Case> left;
    for (const Case& each : cases) {
        bool is_left = true;
        for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
            const bool is_named = std::string(each.name).find(words[i + 1]) != std::string::npos;
            is_left = is_left && is_named == (words[i] == "--only");
            if (is_named && words[i] == "--skip" && rank() == 0)
                std::printf("skipped, a defect of the MPI library: %s\n", each.name);
        }
        if (is_left)
            left.push_back(each);
    }
    return left;
}

}  // namespace
}  // namespace mpi_check

int main(int argc, char** argv) {
    using namespace mpi_check;
    MPI_Init(&argc, &argv);
    const int status = run(chosen(all_cases(), std::vector<std::string>(argv + 1, argv + argc)));
    MPI_Finalize();
    return status;
}
