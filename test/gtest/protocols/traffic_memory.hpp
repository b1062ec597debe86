// SPDX-License-Identifier: BSD-3-Clause
// Puts, gets and atomics of the threads of a Traffic, checked by the memory's contents.
//
// Each worker has a window that peers reach by keys, and in it
// - for each thread (of one thread: for each worker) chunks that only this one writes and reads,
//   from any worker, one operation at a time: so a get has what the last put has left, and so has
//   the owner's memory at the end. A put that has completed without being delivered is sure for an
//   operation behind a fence, over the same endpoint, and after a flush or its close. A put with an
//   immediate is noticed once by the owner, when its data is there;
// - numbers for atomics. Each step of a number of any operation tells what it has found, and so
//   left: some order of the steps is a path from 0 to the number at the end. Each step of a fetched
//   sum has found what the one before has left, and the other sums are right at the end; additions
//   that have failed, or that had only left when their connection broke, may be missing.
// A chunk that a failed or cancelled put may have left half written is not looked at any more, nor
// is a number of any operation after one that is not sure.
//
// Threads: act() runs in any, end() in whichever is told of the end. A chunk passes from its thread
// to those who are told, of its end and by the notice, and back, by its state.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "protocols/fixture.hpp"

namespace tagwire::test {

class Traffic;
struct TrafficEp;
struct TrafficOp;
struct TrafficThread;
struct TrafficWorker;

class TrafficMemory {
  public:
    explicit TrafficMemory(Traffic& traffic) : traffic_(traffic) {}
    TrafficMemory(const TrafficMemory&) = delete;
    TrafficMemory& operator=(const TrafficMemory&) = delete;
    ~TrafficMemory();

    /// A worker that has just been created, in the order of their indices.
    void open(const TrafficWorker& worker);
    /// An operation of that worker on the memory of some worker.
    void act(TrafficThread& self, unsigned worker);
    void end(TrafficOp& op, const tw_completion_t& done);
    /// With one thread, all puts that had ended before this flush or close began are there.
    void flushed(const TrafficOp& flush);
    /// Before the endpoint goes.
    void free_key(TrafficEp& ep);
    /// Keys go before their worker.
    void free_keys(unsigned worker);
    /// Every notice that must come has.
    bool is_quiet();
    /// After the threads, when every endpoint has been flushed.
    void check();

    static void on_event(void* arg, const tw_completion_t* done);

  private:
    static constexpr std::array<std::size_t, 8> kChunks = {64,   256,  256,   1024,
                                                           4096, 4096, 16384, 70000};
    static constexpr std::size_t kOwnBytes = 98304;  // of one thread in a window
    static constexpr std::size_t kNumbersBytes = 256;
    static constexpr unsigned kEachNumber = 6;  // of each kind
    static constexpr unsigned kNumbers = 4 * kEachNumber;

    enum class State : std::uint8_t { kIdle, kBusy, kLost };
    /// kWide, kNarrow: 64 and 32 bits, of any operation that fetches.
    enum class NumberKind : std::uint8_t { kWide, kNarrow, kFetchedSum, kSum };

    /// A part of a window that one thread alone uses.
    struct Chunk {
        std::atomic<State> state{State::kIdle};
        Bytes bytes;                  // what it has, or will
        TrafficEp* unsure = nullptr;  // by which something was put that is not delivered for sure
        std::uint64_t unsure_since = 0;
        const TrafficOp* put = nullptr;     // the last one
        std::atomic<std::uint64_t> imm{0};  // its notice that has not come; 0: none
        std::atomic<int> left{0};           // of its end and its notice
    };
    struct Number {
        std::mutex guard;
        std::vector<std::pair<std::uint64_t, std::uint64_t>> steps;  // found, and left or added
        std::uint64_t sure = 0, unsure = 0;                          // sums; at the end
    };
    struct Window {
        std::unique_ptr<std::byte[]> own;
        std::byte* at = nullptr;
        tw_mem_h handle = nullptr;
        tw_context_h context = nullptr;
        std::array<char, TW_KEY_BYTES_MAX> key{};
        std::size_t key_bytes = 0;
        std::array<Number, kNumbers> numbers;
        std::deque<std::array<Chunk, kChunks.size()>> chunks;  // of each thread
    };
    /// A key for one operation.
    struct Key {
        tw_key_h handle = nullptr;
        bool is_for_once = false;
    };

    static NumberKind kind_of(const TrafficOp& op);
    Key key_to(TrafficThread& self, TrafficEp& ep);
    static std::size_t place_of(std::size_t slot, std::size_t chunk);
    std::size_t slots() const;
    std::size_t slot_of(const TrafficOp& op) const;
    std::uint64_t address_of(unsigned window, std::size_t place) const;
    Chunk& chunk_of(const TrafficOp& op);
    /// A new operation on a chunk; null: there is none that it may use now.
    TrafficOp* draw(TrafficThread& self, TrafficEp& ep, bool is_put);
    void put(TrafficThread& self, TrafficEp& ep, tw_key_h key);
    void get(TrafficThread& self, TrafficEp& ep, tw_key_h key);
    void combine(TrafficThread& self, TrafficEp& ep, tw_key_h key);
    void end_put(TrafficOp& op, const tw_completion_t& done);
    void end_get(TrafficOp& op, const tw_completion_t& done);
    void end_atomic(TrafficOp& op, const tw_completion_t& done);
    void notice(unsigned to, const tw_completion_t& done);
    void finish(Chunk& chunk);
    void check_chunks(unsigned worker);
    void check_number(unsigned worker, unsigned index);
    static bool is_path(const Number& number, std::uint64_t last);
    static bool is_sum(Number& number, std::uint64_t last, bool is_fetched);

    Traffic& traffic_;
    std::deque<Window> windows_;
    std::mutex keys_lock_;
    std::map<TrafficEp*, tw_key_h> keys_;
    std::atomic<std::uint64_t> puts_{0};
};

}  // namespace tagwire::test
