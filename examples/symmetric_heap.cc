// SPDX-License-Identifier: BSD-3-Clause
// A symmetric heap, as OpenSHMEM has it, by one-sided operations: the same objects on each rank,
// named by offsets; put, get, atomics, barrier and wait-until. With it the ranks count words of a
// text in a table that is spread over all, guard a sum by a lock, and pass a row around a ring.
#include <atomic>
#include <cstdio>
#include <numeric>

#include "job.hpp"

namespace {

constexpr std::size_t kHeapBytes = 1 << 20, kBuckets = 64, kWords = 2000, kRow = 1000;

/// An array on every rank, at this offset of its heap.
template <class T>
struct Symmetric {
    std::uint64_t offset;

    std::uint64_t at(std::size_t index) const { return offset + index * sizeof(T); }
};

class Heap {
  public:
    explicit Heap(Rank& me) : me_(me), memory_(msg::Memory::allocate(me.context(), kHeapBytes)) {
        const std::vector<std::vector<std::byte>> keys = me.exchange(memory_.pack());
        for (std::size_t rank = 0; rank < me.size(); ++rank)
            peers_.emplace_back(me.worker(), keys[rank]);
        rounds_ = allocate<std::uint64_t>(64);
    }

    /// In the same order on all ranks. Zeroes.
    template <class T>
    Symmetric<T> allocate(std::size_t count) {
        const std::uint64_t offset = used_;
        used_ += (count * sizeof(T) + 63) / 64 * 64;
        if (used_ > kHeapBytes)
            throw std::runtime_error("the heap is used up");
        return {offset};
    }
    /// This rank's own.
    template <class T>
    std::span<T> mine(Symmetric<T> array, std::size_t count) const {
        return {reinterpret_cast<T*>(memory_.bytes().data() + array.offset), count};
    }

    template <class T>
    void put(std::size_t rank, Symmetric<T> to, std::span<const T> data) const {
        end([&](msg::Request& request) {
            return peers_[rank].put(me_.to(rank), std::as_bytes(data), to.offset, request);
        });
    }
    template <class T>
    void get(std::size_t rank, Symmetric<T> from, std::span<T> data) const {
        end([&](msg::Request& request) {
            return peers_[rank].get(me_.to(rank), std::as_writable_bytes(data), from.offset,
                                    request);
        });
    }
    /// Writes one number when all that was put to that rank before is there.
    void signal(std::size_t rank, Symmetric<std::uint64_t> flag, std::uint64_t value) const {
        const msg::Op fenced(TW_OP_FENCE);
        end([&](msg::Request& request) {
            return peers_[rank].put(me_.to(rank), std::as_bytes(std::span(&value, 1)), flag.offset,
                                    {fenced, request});
        });
    }
    template <class T>
    T fetch_add(std::size_t rank, Symmetric<T> array, std::size_t index, T value) const {
        T before{};
        end([&](msg::Request& request) {
            return peers_[rank].fetch(me_.to(rank), TW_ATOMIC_ADD, value, before, array.at(index),
                                      request);
        });
        return before;
    }
    template <class T>
    T cswap(std::size_t rank, Symmetric<T> array, T compare, T wanted) const {
        T before{};
        end([&](msg::Request& request) {
            return peers_[rank].cswap(me_.to(rank), compare, wanted, before, array.offset, request);
        });
        return before;
    }
    /// Until this rank's own number is that, or larger.
    void wait_until(Symmetric<std::uint64_t> flag, std::size_t index, std::uint64_t value) const {
        std::atomic_ref<std::uint64_t> number(mine(flag, index + 1)[index]);
        while (number.load(std::memory_order_acquire) < value)
            me_.worker().wait(TW_WAIT_YIELD, 1000).ignore();
    }
    /// All that this rank has done to others has taken effect.
    void quiet() const {
        end([&](msg::Request& request) { return me_.worker().flush(TW_FLUSH_DELIVERED, request); });
    }
    /// In rounds each rank tells another one, twice as far away each time.
    void barrier() {
        quiet();
        ++barriers_;
        std::size_t round = 0;
        for (std::size_t far = 1; far < me_.size(); far *= 2, ++round) {
            fetch_add<std::uint64_t>((me_.rank() + far) % me_.size(), rounds_, round, 1);
            wait_until(rounds_, round, barriers_);
        }
    }

  private:
    template <class Call>
    void end(Call call) const {
        msg::Request request;
        tw_status_t status = call(request);
        for (; status == TW_ERR_NO_RESOURCE; status = call(request))
            me_.worker().progress();
        if (status != TW_INPROGRESS)
            msg::check(status, "one-sided operation");
        me_.wait(request, "one-sided operation");
    }

    const Rank& me_;
    msg::Memory memory_;
    std::vector<msg::RemoteMemory> peers_;
    std::uint64_t used_ = 0, barriers_ = 0;
    Symmetric<std::uint64_t> rounds_{};
};

bool count_and_pass(const Rank& me, Heap& heap) {
    const auto buckets = heap.allocate<std::uint32_t>(kBuckets);
    const auto lock = heap.allocate<std::uint64_t>(1), sum = heap.allocate<std::uint64_t>(1);
    const auto row = heap.allocate<double>(kRow);
    const auto flag = heap.allocate<std::uint64_t>(1);
    // Words, by random numbers: each falls into a bucket of some rank.
    std::uint64_t word = me.rank() + 1;
    for (std::size_t i = 0; i < kWords; ++i) {
        word = word * 6364136223846793005U + 1442695040888963407U;
        heap.fetch_add<std::uint32_t>(word >> 33 & (me.size() - 1), buckets,
                                      word >> 50 & (kBuckets - 1), 1);
    }
    heap.barrier();
    // Each adds its buckets up, and adds that to a sum on rank 0, under a lock.
    const auto own = heap.mine(buckets, kBuckets);
    const auto part = std::accumulate(own.begin(), own.end(), std::uint64_t{0});
    while (heap.cswap<std::uint64_t>(0, lock, 0, me.rank() + 1) != 0)
        me.worker().progress();
    std::uint64_t total = 0;
    heap.get(0, sum, std::span(&total, 1));
    total += part;
    heap.put(0, sum, std::span<const std::uint64_t>(&total, 1));
    heap.quiet();
    heap.cswap<std::uint64_t>(0, lock, me.rank() + 1, 0);
    // A row goes around once.
    const std::vector<double> begun(kRow, 1.5);
    if (me.rank() != 0)
        heap.wait_until(flag, 0, 1);
    std::vector<double> next(begun);
    for (std::size_t i = 0; i < kRow && me.rank() != 0; ++i)
        next[i] = heap.mine(row, kRow)[i] + 1;
    const std::size_t right = (me.rank() + 1) % me.size();
    heap.put(right, row, std::span<const double>(next));
    heap.signal(right, flag, 1);
    if (me.rank() == 0)
        heap.wait_until(flag, 0, 1);
    heap.barrier();
    if (me.rank() != 0)
        return true;
    return heap.mine(sum, 1)[0] == kWords * me.size() &&
           heap.mine(row, kRow)[kRow - 1] == 0.5 + static_cast<double>(me.size());
}

}  // namespace

int main() {
    return run_ranks(4, [](Rank& me) {
        Heap heap(me);
        const bool is_right = count_and_pass(me, heap);
        if (me.rank() == 0)
            std::printf("symmetric_heap: %zu words counted, a row passed around: %s\n",
                        kWords * me.size(), is_right ? "right" : "wrong");
    });
}
