// SPDX-License-Identifier: BSD-3-Clause
// Puts, gets and atomics of the threads of a ThreadTraffic, checked by the memory's contents.
//
// Each worker has a window that peers reach by keys, and in it
// - for each thread chunks that only this thread writes and reads, from any worker, one operation
//   at a time: so a get has what the last put has left, and so has the owner's memory at the end. A
//   put that has completed without being delivered is sure for an operation behind a fence, over
//   the same endpoint, and after its close;
// - numbers that all threads add to. Those that are fetched tell what each addition has found: in
//   one order each has found what the one before has left. The others have their sum. Additions
//   that have failed, or that had only left when their connection broke, may be missing.
// A chunk that a failed or cancelled put may have left half written is not looked at any more.
//
// Threads: act() runs in any, end() in whichever is told of the end. A chunk passes from its thread
// to the one that is told, and back, by its state.
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

class ThreadTraffic;
struct ThreadEp;
struct ThreadOp;
struct TrafficThread;

class ThreadTrafficMemory {
  public:
    explicit ThreadTrafficMemory(ThreadTraffic& traffic) : traffic_(traffic) {}
    ThreadTrafficMemory(const ThreadTrafficMemory&) = delete;
    ThreadTrafficMemory& operator=(const ThreadTrafficMemory&) = delete;
    ~ThreadTrafficMemory();

    /// A window for each worker. Before the threads start.
    void open();
    /// An operation of that worker on the memory of some worker.
    void act(TrafficThread& self, unsigned worker);
    void end(ThreadOp& op, const tw_completion_t& done);
    /// Keys go before their worker.
    void free_keys(unsigned worker);
    /// After the threads, when every endpoint has closed.
    void check();

  private:
    static constexpr std::array<std::size_t, 6> kChunks = {64, 256, 1024, 4096, 16384, 70000};
    static constexpr std::size_t kOwnBytes = 98304;  // of one thread in a window
    static constexpr std::size_t kNumbers = 4;       // fetched ones, then others
    static constexpr std::size_t kNumbersBytes = 64;

    enum class State : std::uint8_t { kIdle, kBusy, kLost };

    /// A part of a window that one thread alone uses.
    struct Chunk {
        std::atomic<State> state{State::kIdle};
        Bytes bytes;                 // what it has, or will
        ThreadEp* unsure = nullptr;  // by which something was put that is not delivered for sure
    };
    struct Number {
        std::mutex guard;
        std::vector<std::pair<std::uint64_t, std::uint64_t>> steps;  // found, added
        std::uint64_t sure = 0, unsure = 0;                          // sums; at the end
    };
    struct Window {
        std::unique_ptr<std::byte[]> own;
        std::byte* at = nullptr;
        tw_mem_h handle = nullptr;
        std::array<char, TW_KEY_BYTES_MAX> key{};
        std::size_t key_bytes = 0;
        std::array<Number, 2 * kNumbers> numbers;
        std::deque<std::array<Chunk, kChunks.size()>> chunks;  // of each thread
    };
    /// A key for one operation.
    struct Key {
        tw_key_h handle = nullptr;
        bool is_for_once = false;
    };

    Key key_to(TrafficThread& self, ThreadEp& ep);
    static std::size_t place_of(unsigned thread, std::size_t chunk);
    std::uint64_t address_of(unsigned window, std::size_t place) const;
    Chunk& chunk_of(const ThreadOp& op);
    /// The chunk of a new operation; null: there is none that it may use now.
    Chunk* draw_chunk(TrafficThread& self, ThreadEp& ep, std::size_t* index_p);
    ThreadOp& new_op(TrafficThread& self, ThreadEp& ep, bool is_put, std::size_t index);
    void put(TrafficThread& self, ThreadEp& ep, tw_key_h key);
    void get(TrafficThread& self, ThreadEp& ep, tw_key_h key);
    void add(TrafficThread& self, ThreadEp& ep, tw_key_h key);
    void end_add(ThreadOp& op, const tw_completion_t& done);
    void check_chunks(unsigned worker);
    void check_number(unsigned worker, std::size_t index);

    ThreadTraffic& traffic_;
    std::deque<Window> windows_;
    std::mutex keys_lock_;
    std::map<ThreadEp*, tw_key_h> keys_;
};

}  // namespace tagwire::test
