// SPDX-License-Identifier: BSD-3-Clause
// Programs of a partitioned address space, each checked by all PEs: `test_shmem PES [CASE]`.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "shmem.h"

namespace {

int failures = 0;
const char* current = "";
std::string wanted_case;

void expect(bool is_true, const char* what, int line) {
    if (is_true || ++failures > 20)
        return;
    std::fprintf(stderr, "PE %d, %s, line %d: not true: %s\n", shmem_my_pe(), current, line, what);
}

#define CHECK(condition) expect((condition), #condition, __LINE__)

/// Symmetric memory of all PEs, freed by all together.
template <class T>
class Symmetric {
  public:
    explicit Symmetric(std::size_t count, T value = {})
        : data_(static_cast<T*>(shmem_malloc(count * sizeof(T)))) {
        std::fill_n(data_, count, value);
        shmem_barrier_all();
    }
    ~Symmetric() { shmem_free(data_); }
    Symmetric(const Symmetric&) = delete;
    Symmetric& operator=(const Symmetric&) = delete;

    T* at(std::size_t i) const { return data_ + i; }
    T& operator[](std::size_t i) const { return data_[i]; }

  private:
    T* data_;
};

int next_pe() {
    return (shmem_my_pe() + 1) % shmem_n_pes();
}
int previous_pe() {
    return (shmem_my_pe() + shmem_n_pes() - 1) % shmem_n_pes();
}

void heap() {
    void* const first = shmem_malloc(1000);
    void* const second = shmem_malloc(1);
    void* const third = shmem_malloc(70);
    CHECK(first != nullptr && second != nullptr && third != nullptr && first != second);
    CHECK(reinterpret_cast<std::uintptr_t>(third) % 64 == 0);
    shmem_free(second);
    CHECK(shmem_malloc(64) == second);
    CHECK(shmem_malloc(std::size_t{1} << 50) == nullptr);
    shmem_free(second);
    shmem_free(third);
    shmem_free(first);
    shmem_free(nullptr);
    CHECK(shmem_malloc(2000) == first);
    shmem_free(first);
}

/// Data and its signal go round: whoever sees the signal sees the data.
void ring() {
    constexpr std::size_t kLongest = 1 << 20;
    const Symmetric<std::uint8_t> data(kLongest + 1, 0xee);
    const Symmetric<std::uint64_t> signals(2);
    std::vector<std::uint8_t> out(kLongest), in(kLongest);
    std::uint64_t turn = 0;
    for (const std::size_t length :
         {0UL, 1UL, 8UL, 63UL, 192UL, 4096UL, 8193UL, 100'003UL, kLongest}) {
        for (int way = 0; way < 2; ++way) {
            ++turn;
            for (std::size_t i = 0; i < length; ++i)
                out[i] = static_cast<std::uint8_t>(i * 7 + turn + std::size_t(shmem_my_pe()));
            const bool is_set = way == 0;
            shmem_putmem_signal(data.at(0), out.data(), length, signals.at(std::size_t(way)),
                                is_set ? turn : 1, is_set ? SHMEM_SIGNAL_SET : SHMEM_SIGNAL_ADD,
                                next_pe());
            const std::uint64_t wanted = is_set ? turn : turn / 2;
            const auto seen =
                shmem_signal_wait_until(signals.at(std::size_t(way)), SHMEM_CMP_GE, wanted);
            CHECK(seen == wanted);
            bool is_right = data[length] == 0xee || length < kLongest;
            for (std::size_t i = 0; i < length; ++i) {
                const auto byte =
                    static_cast<std::uint8_t>(i * 7 + turn + std::size_t(previous_pe()));
                is_right = is_right && data[i] == byte;
            }
            CHECK(is_right);
            shmem_barrier_all();  // the data is read
        }
    }
    CHECK(data[kLongest] == 0xee);
}

/// Every PE owns a part of the memory of every other one, and knows what it holds.
void random_access() {
    constexpr std::size_t kPart = 200'000;
    const auto pes = static_cast<std::size_t>(shmem_n_pes());
    const auto mine = static_cast<std::size_t>(shmem_my_pe()) * kPart;
    const Symmetric<char> memory(kPart * pes);
    std::vector<std::vector<char>> known(pes, std::vector<char>(kPart));
    std::mt19937 random(static_cast<unsigned>(shmem_my_pe()) + 5);
    const auto below = [&](std::size_t limit) { return random() % limit; };
    std::vector<char> out(kPart), in(kPart);
    for (char& byte : out)
        byte = static_cast<char>(random());
    for (int i = 0; i < 3000; ++i) {
        const std::size_t pe = below(pes);
        const std::size_t length = 1 + below(i % 16 == 0 ? 60'000 : 300);
        const std::size_t place = below(kPart - length), from = below(kPart - length);
        if (i % 3 != 2) {
            if (i % 2 == 0)
                shmem_putmem(memory.at(mine + place), &out[from], length, static_cast<int>(pe));
            else
                shmem_putmem_nbi(memory.at(mine + place), &out[from], length, static_cast<int>(pe));
            // Writes have no order, and the next one may be to the same bytes.
            shmem_fence();
            std::copy_n(&out[from], length, &known[pe][place]);
        } else {
            shmem_getmem(in.data(), memory.at(mine + place), length, static_cast<int>(pe));
            CHECK(std::equal(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(length),
                             &known[pe][place]));
        }
    }
    // Then all parts of all PEs, without waiting for any.
    std::vector<char> all(kPart * pes);
    for (std::size_t pe = 0; pe < pes; ++pe)
        shmem_getmem_nbi(&all[pe * kPart], memory.at(mine), kPart, static_cast<int>(pe));
    shmem_quiet();
    for (std::size_t pe = 0; pe < pes; ++pe)
        CHECK(std::equal(known[pe].begin(), known[pe].end(), &all[pe * kPart]));
}

/// Thousands of puts to one PE at a time, none of which waits.
void many_puts() {
    constexpr std::size_t kMany = 5000;
    const auto pes = static_cast<std::size_t>(shmem_n_pes());
    const Symmetric<std::int64_t> memory(kMany * pes, -1);
    std::vector<std::int64_t> values(kMany);
    const auto me = static_cast<std::size_t>(shmem_my_pe());
    for (std::size_t i = 0; i < kMany; ++i) {
        values[i] = static_cast<std::int64_t>(i * 10 + me);
        for (std::size_t pe = 0; pe < pes; ++pe)
            shmem_putmem_nbi(memory.at(me * kMany + i), &values[i], 8, static_cast<int>(pe));
    }
    shmem_barrier_all();
    bool is_right = true;
    for (std::size_t i = 0; i < kMany * pes; ++i)
        is_right = is_right && memory[i] == static_cast<std::int64_t>(i % kMany * 10 + i / kMany);
    CHECK(is_right);
}

/// A flag that is put after a fence comes after the data.
void fences() {
    const Symmetric<std::int32_t> data(100), flag(1);
    for (std::int32_t i = 1; i <= 200; ++i) {
        for (std::size_t k = 0; k < 100; ++k)
            shmem_int32_p(data.at(k), i, next_pe());
        shmem_fence();
        shmem_int32_p(flag.at(0), i, next_pe());
        shmem_int32_wait_until(flag.at(0), SHMEM_CMP_EQ, i);
        CHECK(std::count(data.at(0), data.at(100), i) == 100);
        shmem_barrier_all();
    }
    CHECK(shmem_int32_g(flag.at(0), next_pe()) == 200);
    CHECK(shmem_int32_test(flag.at(0), SHMEM_CMP_LT, 200) == 0);
    CHECK(shmem_int32_test(flag.at(0), SHMEM_CMP_NE, 199) == 1);
}

void atomics() {
    const Symmetric<std::int64_t> longs(3, -1);
    const Symmetric<std::int32_t> ints(3, -1);
    const int pe = next_pe();
    shmem_int64_atomic_set(longs.at(1), 5'000'000'000, pe);
    CHECK(shmem_int64_atomic_fetch(longs.at(1), pe) == 5'000'000'000);
    CHECK(shmem_int64_atomic_swap(longs.at(1), 7, pe) == 5'000'000'000);
    CHECK(shmem_int64_atomic_compare_swap(longs.at(1), 8, 9, pe) == 7);
    CHECK(shmem_int64_atomic_compare_swap(longs.at(1), 7, 10, pe) == 7);
    shmem_int64_atomic_add(longs.at(1), -20, pe);
    shmem_int64_atomic_inc(longs.at(1), pe);
    CHECK(shmem_int64_atomic_fetch_inc(longs.at(1), pe) == -9);
    shmem_int32_atomic_set(ints.at(1), 40, pe);
    CHECK(shmem_int32_atomic_fetch_add(ints.at(1), 2, pe) == 40);
    CHECK(shmem_int32_atomic_compare_swap(ints.at(1), 42, -3, pe) == 42);
    CHECK(shmem_int32_atomic_swap(ints.at(1), 4, pe) == -3);
    shmem_int32_atomic_inc(ints.at(1), pe);
    shmem_int32_atomic_add(ints.at(1), 6, pe);
    shmem_barrier_all();
    CHECK(longs[0] == -1 && longs[1] == -8 && longs[2] == -1);
    CHECK(ints[0] == -1 && ints[1] == 11 && ints[2] == -1);
}

/// One counter at each PE, to which all add: every number is fetched once.
void counters() {
    constexpr std::size_t kTimes = 300;
    const auto pes = static_cast<std::size_t>(shmem_n_pes());
    const Symmetric<std::int32_t> counter(1), adds(1);
    const Symmetric<std::int32_t> taken(kTimes * pes);
    for (std::size_t i = 0; i < kTimes; ++i) {
        for (int pe = 0; pe < shmem_n_pes(); ++pe) {
            shmem_int32_atomic_add(adds.at(0), 3, pe);
            const auto ticket = shmem_int32_atomic_fetch_inc(counter.at(0), pe);
            CHECK(ticket >= 0 && static_cast<std::size_t>(ticket) < kTimes * pes);
            shmem_int32_atomic_inc(taken.at(static_cast<std::size_t>(ticket)), pe);
        }
    }
    shmem_barrier_all();
    CHECK(counter[0] == static_cast<std::int32_t>(kTimes * pes));
    CHECK(adds[0] == static_cast<std::int32_t>(3 * kTimes * pes));
    CHECK(std::count(taken.at(0), taken.at(kTimes * pes), 1) ==
          static_cast<std::ptrdiff_t>(kTimes * pes));
}

/// Open addressing over all PEs. A slot is taken by compare and swap; keys are not 0.
class Table {
  public:
    Table() : keys_(kSlots), counts_(kSlots) {}

    void add(std::int64_t key) {
        for (std::size_t at = static_cast<std::size_t>(key) * 2'654'435'761;; ++at) {
            const int pe = static_cast<int>(at % std::size_t(shmem_n_pes()));
            const std::size_t slot = at / std::size_t(shmem_n_pes()) % kSlots;
            const auto before = shmem_int64_atomic_compare_swap(keys_.at(slot), 0, key, pe);
            if (before != 0 && before != key)
                continue;
            shmem_int64_atomic_fetch_add(counts_.at(slot), 1, pe);
            return;
        }
    }
    /// Keys and counts of this PE's slots.
    std::vector<std::pair<std::int64_t, std::int64_t>> own() const {
        std::vector<std::pair<std::int64_t, std::int64_t>> all;
        for (std::size_t i = 0; i < kSlots; ++i)
            if (keys_[i] != 0)
                all.emplace_back(keys_[i], counts_[i]);
        return all;
    }
    static constexpr std::size_t kSlots = 500;

  private:
    Symmetric<std::int64_t> keys_, counts_;
};

/// All PEs enter the same keys, each in an order of its own.
void hash_table() {
    const auto pes = static_cast<std::size_t>(shmem_n_pes());
    Table table;
    std::vector<std::int64_t> keys(Table::kSlots * pes * 6 / 10);
    for (std::size_t i = 0; i < keys.size(); ++i)
        keys[i] = static_cast<std::int64_t>(i * i + 1);
    const std::vector<std::int64_t> sorted = keys;
    std::shuffle(keys.begin(), keys.end(), std::mt19937(unsigned(shmem_my_pe())));
    for (const std::int64_t key : keys)
        table.add(key);
    shmem_barrier_all();
    const Symmetric<std::int64_t> found(sorted.size());
    for (const auto& [key, count] : table.own()) {
        const auto at = std::lower_bound(sorted.begin(), sorted.end(), key) - sorted.begin();
        CHECK(sorted[std::size_t(at)] == key && count == shmem_n_pes());
        shmem_int64_atomic_inc(found.at(std::size_t(at)), 0);
    }
    shmem_barrier_all();
    CHECK(shmem_my_pe() != 0 || std::count(found.at(0), found.at(sorted.size()), 1) ==
                                    static_cast<std::ptrdiff_t>(sorted.size()));
}

/// The queue of Mellor-Crummey and Scott: whoever swaps itself in waits for the one before.
void lock() {
    constexpr int kTimes = 60;
    const Symmetric<std::int64_t> tail(1), next(1), is_waiting(1);  // PE + 1, 0 is none
    const Symmetric<std::int64_t> guarded(50);
    const int me = shmem_my_pe();
    std::vector<std::int64_t> values(50);
    for (int i = 0; i < kTimes; ++i) {
        shmem_int64_atomic_set(next.at(0), 0, me);
        shmem_int64_atomic_set(is_waiting.at(0), 1, me);
        shmem_quiet();
        const auto before = shmem_int64_atomic_swap(tail.at(0), me + 1, 0);
        if (before != 0) {
            shmem_int64_atomic_set(next.at(0), me + 1, static_cast<int>(before) - 1);
            shmem_int64_wait_until(is_waiting.at(0), SHMEM_CMP_EQ, 0);
        }
        shmem_getmem(values.data(), guarded.at(0), 50 * 8, 0);
        CHECK(std::count(values.begin(), values.end(), values[0]) == 50);
        for (std::int64_t& value : values)
            ++value;
        shmem_putmem(guarded.at(0), values.data(), 50 * 8, 0);
        shmem_quiet();
        if (shmem_int64_atomic_compare_swap(tail.at(0), me + 1, 0, 0) != me + 1) {
            shmem_int64_wait_until(next.at(0), SHMEM_CMP_NE, 0);
            shmem_int64_atomic_set(is_waiting.at(0), 0, static_cast<int>(next[0]) - 1);
        }
    }
    shmem_barrier_all();
    CHECK(me != 0 || std::count(guarded.at(0), guarded.at(50), kTimes * shmem_n_pes()) == 50);
}

void collectives() {
    const Symmetric<std::int64_t> from(10'000), to(10'000);
    for (const std::size_t count : {1UL, 30UL, 10'000UL}) {
        for (int root = 0; root < shmem_n_pes(); ++root) {
            std::fill_n(from.at(0), count, shmem_my_pe() * 100 + 7);
            shmem_broadcastmem(SHMEM_TEAM_WORLD, to.at(0), from.at(0), count * 8, root);
            CHECK(std::count(to.at(0), to.at(count), root * 100 + 7) ==
                  static_cast<std::ptrdiff_t>(count));
        }
        for (std::size_t i = 0; i < count; ++i)
            from[i] = static_cast<std::int64_t>(i) * (shmem_my_pe() + 1);
        shmem_int64_sum_reduce(SHMEM_TEAM_WORLD, to.at(0), from.at(0), count);
        const std::int64_t ranks = shmem_n_pes() * (shmem_n_pes() + 1) / 2;
        bool is_right = true;
        for (std::size_t i = 0; i < count; ++i)
            is_right = is_right && to[i] == static_cast<std::int64_t>(i) * ranks;
        CHECK(is_right);
        shmem_barrier_all();
    }
}

int program() {
    const struct {
        const char* name;
        void (*run)();
    } cases[] = {{"heap", heap},
                 {"ring", ring},
                 {"random access", random_access},
                 {"many puts", many_puts},
                 {"fences", fences},
                 {"atomics", atomics},
                 {"counters", counters},
                 {"hash table", hash_table},
                 {"lock", lock},
                 {"collectives", collectives}};
    int done = 0;
    for (const auto& each : cases) {
        if (!wanted_case.empty() && wanted_case != each.name)
            continue;
        current = each.name;
        shmem_barrier_all();
        each.run();
        ++done;
    }
    if (shmem_my_pe() == 0)
        std::printf("%d cases, %d PEs\n", done, shmem_n_pes());
    return failures + (done == 0 ? 1 : 0);
}

}  // namespace

int main(int argc, char** argv) {
    const int pes = argc > 1 ? std::atoi(argv[1]) : 2;
    if (pes < 1 || pes > 64) {
        std::fprintf(stderr, "usage: %s PES [CASE], with 1 to 64 PEs\n", argv[0]);
        return 2;
    }
    wanted_case = argc > 2 ? argv[2] : "";
    return shmemx_run(pes, program);
}
