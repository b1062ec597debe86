// SPDX-License-Identifier: BSD-3-Clause
// Puts, gets and atomics among the workers of a Traffic, checked by what must be in their memory.
//
// Each worker has a window, and in it
// - for each other worker chunks that only that one writes and reads, one operation at a time: so a
//   get has what the last put has left, and so has the owner's memory at the end. A put that has
//   ended without being delivered is sure after the next flush;
// - numbers for the atomics of all. Those that fetch tell what each has found and left: some order
//   of them must be a path from 0 to the number at the end. Those that only add have their sum.
// Memory that a broken connection may have left half written is not looked at any more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "protocols/fixture.hpp"

namespace tagwire::test {

class Traffic;
struct TrafficNode;
struct TrafficOp;

class TrafficMemory {
  public:
    explicit TrafficMemory(Traffic& traffic) : traffic_(traffic) {}
    TrafficMemory(const TrafficMemory&) = delete;
    TrafficMemory& operator=(const TrafficMemory&) = delete;
    ~TrafficMemory();

    /// The latest worker gets its window.
    void open();
    /// An operation of that worker on the memory of some worker.
    void act(TrafficNode& node);
    void end(TrafficOp& op, const tw_completion_t& done);
    /// A flush of `from` to `to` that has ended well: what had ended before it began is there.
    std::size_t mark(const TrafficNode& from, unsigned to) const;
    void flushed(const TrafficNode& from, unsigned to, std::size_t mark);
    /// Its worker has died.
    void never_ends(const TrafficOp& op);
    /// An endpoint goes, and its key.
    void forget_key(const TrafficNode& node, unsigned peer);
    /// Operations under way between the two, and those not sure, may be lost.
    void excuse(unsigned a, unsigned b);
    /// Its keys go before its worker.
    void close(const TrafficNode& node);
    /// All that had to come has come, notices too.
    bool is_quiet() const;
    void check();

    static void on_event(void* arg, const tw_completion_t* done);

  private:
    static constexpr std::array<std::size_t, 8> kChunks = {64,   256,  256,   1024,
                                                           4096, 4096, 16384, 70000};
    static constexpr std::size_t kOwnBytes = 98304;  // of one worker in a window
    static constexpr std::size_t kNumbers = 6;       // of each kind
    static constexpr std::size_t kNumbersBytes = 256;

    enum class State : std::uint8_t { kIdle, kBusy, kLanding, kLost };

    /// A part of a window that one worker alone uses.
    struct Chunk {
        State state = State::kIdle;
        Bytes bytes;  // what it has, or will
        TrafficOp* op = nullptr;
        bool awaits_notice = false;
        std::uint64_t imm = 0;
        std::size_t at = 0, length = 0;  // of the put that is noticed
    };
    struct Way {
        std::vector<Chunk> chunks;
        std::vector<std::size_t> landing;  // chunks, oldest first
        std::size_t landed = 0;            // so many of them are sure
        tw_key_h key = nullptr;
        tw_ep_h ep = nullptr;  // that the key is for
    };
    struct Number {
        bool is_excused = false;
        std::uint64_t sum = 0;
        std::vector<std::pair<std::uint64_t, std::uint64_t>> steps;  // found, left
    };
    struct Window {
        std::unique_ptr<std::byte[]> own;
        std::byte* at = nullptr;
        tw_mem_h handle = nullptr;
        tw_context_h context = nullptr;
        std::array<char, TW_KEY_BYTES_MAX> key{};
        std::size_t key_bytes = 0;
        std::array<Number, kNumbers> wide{}, narrow{}, sums{};
        std::deque<Way> ways;  // by the worker that uses it
    };

    Window& window(unsigned of) { return *windows_[of]; }
    Way& way(unsigned from, unsigned to);
    tw_key_h key_to(TrafficNode& node, unsigned peer, tw_ep_h ep);
    /// The chunk of `from` in the window of `to`, at the owner.
    std::byte* chunk_at(unsigned from, unsigned to, std::size_t index);
    /// The same, as peers name it.
    std::uint64_t address_of(unsigned from, unsigned to, std::size_t index) {
        return reinterpret_cast<std::uintptr_t>(chunk_at(from, to, index));
    }
    void put(TrafficNode& node, unsigned peer, tw_ep_h ep, tw_key_h key);
    void get(TrafficNode& node, unsigned peer, tw_ep_h ep, tw_key_h key);
    void combine(TrafficNode& node, unsigned peer, tw_ep_h ep, tw_key_h key);
    void end_put(TrafficOp& op, const tw_completion_t& done);
    void end_get(TrafficOp& op, const tw_completion_t& done);
    void end_atomic(TrafficOp& op, const tw_completion_t& done);
    void notice(unsigned to, const tw_completion_t& done);
    Number& number_of(const TrafficOp& op);
    void check_number(const Number& number, std::uint64_t last, const std::string& which) const;

    Traffic& traffic_;
    std::vector<std::unique_ptr<Window>> windows_;
    std::uint64_t imms_ = 0;
};

}  // namespace tagwire::test
