// SPDX-License-Identifier: BSD-3-Clause
// The packet ring of one direction between two nodes: one sender, one receiver, in two processes.
//
//     SegmentHead | Consumer | Sleep | slot 0 .. slot N-1 | chunk 0 .. chunk N-1
//
//     slot:   control word (position + 1 | bytes << 32 | in chunk << 63), body of 120 bytes
//     chunk:  a packet that is longer than the body; chunk i belongs to slot i
//
// So a short packet costs one cache line that moves, and the control words lie close together
// though packets of 4 KiB are contiguous. Chunks are touched, and so backed by memory, only when
// long packets travel.
//
// Threads: each end is used by the holder of its device's lock.
// Invariants
//  (1) Positions run freely (64 bits), slot = position % N, and tail <= read <= head <= tail + N.
//  (2) Slot and chunk belong to the sender while position < tail + N and it was not published, to
//      the receiver from the moment the control word carries position + 1. A sender that dies
//      before the publishing store has sent nothing.
//  (3) The receiver publishes its tail every N / 4 packets and whenever it finds the ring empty, so
//      that the sender's line stays quiet under load and a peer that does not poll is noticed. The
//      tail covers earlier visits only: packets taken in this one have not been answered yet, and
//      a sender whose timer runs out must not believe that they were. `visits` tells that sender
//      whether the receiver had the processor since.
//  (4) No wake-up is lost. The receiver that stops polling stores armed = 1, then looks once more;
//      the sender stores the control word, then looks at `armed`. At least one of the two must see
//      the other's store, and that needs a store-load barrier on both sides, because a processor
//      may let a load pass an older store that still sits in its store buffer. Where both processes
//      are registered for membarrier(2), the receiver's call runs the barrier on the sender's
//      processor, too, and a packet costs the sender nothing. Else the sender pays for a fence
//      per packet: `sender_pays` is 1 until the receiver, who knows both, says otherwise. The model
//      test shows the lost wake-up without the barriers.
//  (5) Data of the other side are read once and checked. An impossible tail or size is kCorrupt,
//      and the end that sees it drops the ring.
//
// Atom and Fences are parameters so that the same code runs under the tests' seeded scheduler.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ucs/sys/line_ownership.hpp"
#include "vhca/core/wire.hpp"

namespace tagwire::vhca {

inline constexpr std::uint32_t kRingSlots = 128;
inline constexpr std::size_t kSlotBodyBytes = 120;
inline constexpr std::size_t kLineBytes = 64;
/// Before a long packet, so that the payload behind the shortest header begins a cache line.
inline constexpr std::size_t kChunkLead = 52;
inline constexpr std::size_t kChunkBytes = (kChunkLead + kPacketBytesMax + 63) / 64 * 64;
inline constexpr std::uint64_t kSegmentMagic = 0x6361687665726977;

struct SegmentHead {
    std::uint64_t magic = kSegmentMagic;
    std::uint32_t version = 0;
    std::uint32_t slots = kRingSlots;
    std::uint64_t bytes = 0;
};

template <template <class> class Atom = std::atomic>
struct alignas(128) Consumer {
    Atom<std::uint64_t> tail{0};
    Atom<std::uint64_t> visits{0};  // times that the receiver looked; relaxed, it orders nothing
};

template <template <class> class Atom = std::atomic>
struct alignas(128) Sleep {
    Atom<std::uint32_t> armed{0};
    Atom<std::uint32_t> sender_pays{1};
};

template <template <class> class Atom = std::atomic>
struct alignas(128) Slot {
    Atom<std::uint64_t> control{0};
    std::byte body[kSlotBodyBytes];
};
static_assert(sizeof(Slot<>) == 128 && offsetof(Slot<>, body) == 8);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// The parts of a ring in memory.
template <template <class> class Atom = std::atomic>
struct RingMemory {
    Consumer<Atom>* consumer = nullptr;
    Sleep<Atom>* sleep = nullptr;
    Slot<Atom>* slots = nullptr;
    std::byte* chunks = nullptr;

    [[nodiscard]] std::byte* chunk(std::uint64_t position) const {
        return chunks + position % kRingSlots * kChunkBytes + kChunkLead;
    }
};

inline constexpr std::size_t kConsumerOffset = 128, kSleepOffset = 256, kSlotsOffset = 384;
inline constexpr std::size_t kChunksOffset = kSlotsOffset + kRingSlots * sizeof(Slot<>);
inline constexpr std::size_t kSegmentBytes =
    (kChunksOffset + kRingSlots * kChunkBytes + 4095) / 4096 * 4096;
static_assert(sizeof(SegmentHead) <= kConsumerOffset && sizeof(Consumer<>) == 128 &&
              sizeof(Sleep<>) == 128);

/// The ring in a segment whose bytes are zero, or were written by a RingSender's owner.
inline RingMemory<> ring_in(std::byte* segment) {
    return {.consumer = reinterpret_cast<Consumer<>*>(segment + kConsumerOffset),
            .sleep = reinterpret_cast<Sleep<>*>(segment + kSleepOffset),
            .slots = reinterpret_cast<Slot<>*>(segment + kSlotsOffset),
            .chunks = segment + kChunksOffset};
}

namespace detail {
inline constexpr std::uint64_t kInChunk = std::uint64_t{1} << 63;
inline constexpr unsigned kSizeShift = 32;
inline constexpr std::uint64_t kSizeMask = 0x7fffffff;
}  // namespace detail

template <template <class> class Atom, class Fences>
class RingSender {
  public:
    RingSender() = default;
    explicit RingSender(const RingMemory<Atom>& memory, Fences fences = {})
        : memory_(memory), fences_(fences) {}

    /// Room for a packet of `bytes` <= kPacketBytesMax; nullptr: the ring is full, or corrupt.
    std::byte* claim(std::size_t bytes) {
        if (head_ == limit_ && !refresh()) [[unlikely]]
            return nullptr;
        is_long_ = bytes > kSlotBodyBytes;
        return is_long_ ? memory_.chunk(head_) : slot().body;
    }

    /// Hands over the claimed packet.
    void publish(std::size_t bytes) {
        const std::uint64_t sequence = static_cast<std::uint32_t>(head_ + 1);
        const std::uint64_t size = std::uint64_t{bytes} << detail::kSizeShift;
        // SYNC vhca_slot: the packet is visible before its control word.
        slot().control.store(sequence | size | (is_long_ ? detail::kInChunk : 0),
                             std::memory_order_release);
        ++head_;
        if (is_long_)
            prefetch_next(bytes);
    }

    /// After publishing: does the receiver sleep? True for one packet only; the caller rings.
    bool must_ring() {
        fences_.after_publish(memory_.sleep->sender_pays.load(std::memory_order_relaxed) != 0);
        if (memory_.sleep->armed.load(std::memory_order_relaxed) == 0) [[likely]]
            return false;
        return memory_.sleep->armed.exchange(0, std::memory_order_relaxed) != 0;
    }

    /// Packets that the receiver has not said to be done with.
    [[nodiscard]] std::uint64_t unconsumed() const {
        return head_ - memory_.consumer->tail.load(std::memory_order_relaxed);
    }
    [[nodiscard]] std::uint64_t head() const { return head_; }
    /// Times that the receiver looked for packets.
    [[nodiscard]] std::uint64_t visits() const {
        return memory_.consumer->visits.load(std::memory_order_relaxed);
    }
    /// It found nothing, and waits to be rung for.
    [[nodiscard]] bool is_receiver_asleep() const {
        return memory_.sleep->armed.load(std::memory_order_relaxed) != 0;
    }
    [[nodiscard]] bool is_corrupt() const { return is_corrupt_; }

  private:
    Slot<Atom>& slot() { return memory_.slots[head_ % kRingSlots]; }

    /// The next long packet is often as long as the last one: its lines are asked for while the
    /// receiver reads that one, which has left them in its cache.
    void prefetch_next(std::size_t bytes) const {
        if (head_ == limit_)
            return;  // it may not be ours yet
        for (std::size_t at = 0; at < bytes; at += kLineBytes)
            ucs::prefetch_ownership(memory_.chunk(head_) + at);
    }

    bool refresh() {
        // SYNC vhca_reuse: the receiver has finished with every slot below the tail.
        const std::uint64_t tail = memory_.consumer->tail.load(std::memory_order_acquire);
        if (head_ - tail > kRingSlots) [[unlikely]] {
            is_corrupt_ = true;
            return false;
        }
        limit_ = tail + kRingSlots;
        return head_ != limit_;
    }

    RingMemory<Atom> memory_;
    std::uint64_t head_ = 0;   // next position to write
    std::uint64_t limit_ = 0;  // head_ may run up to here without a look at the tail
    bool is_long_ = false;     // the claimed packet is in the chunk
    bool is_corrupt_ = false;
    Fences fences_{};
};

enum class Peek { kEmpty, kPacket, kCorrupt };

template <template <class> class Atom, class Fences>
class RingReceiver {
  public:
    RingReceiver() = default;
    explicit RingReceiver(const RingMemory<Atom>& memory, Fences fences = {})
        : memory_(memory), fences_(fences) {}

    /// Before the first peek() of a visit: all that was taken so far has been answered.
    void begin_visit() {
        answered_ = read_;
        memory_.consumer->visits.store(++visits_, std::memory_order_relaxed);
    }

    /// The next packet, in place: whoever reads it reads each byte once.
    Peek peek(std::span<const std::byte>* packet_p) {
        const Slot<Atom>& slot = memory_.slots[read_ % kRingSlots];
        // SYNC vhca_slot: pairs with RingSender::publish().
        const std::uint64_t word = slot.control.load(std::memory_order_acquire);
        if (!is_next(word)) {
            publish_tail();
            return Peek::kEmpty;
        }
        const std::uint64_t bytes = word >> detail::kSizeShift & detail::kSizeMask;
        const bool is_long = (word & detail::kInChunk) != 0;
        if (bytes == 0 || bytes > (is_long ? kPacketBytesMax : kSlotBodyBytes)) [[unlikely]]
            return Peek::kCorrupt;
        *packet_p = {is_long ? memory_.chunk(read_) : slot.body, bytes};
        return Peek::kPacket;
    }

    [[nodiscard]] bool is_empty() const {
        return !is_next(memory_.slots[read_ % kRingSlots].control.load(std::memory_order_relaxed));
    }

    /// Done with the packet that peek() showed.
    void advance() {
        ++read_;
        if (read_ % (kRingSlots / 4) == 0)
            publish_tail();
    }

    /// Between visits: declares that nobody will poll. The caller passes fences().before_recheck()
    /// once for all its rings, then asks is_empty(): see invariant (4).
    void arm() {
        begin_visit();
        publish_tail();
        memory_.sleep->armed.store(1, std::memory_order_relaxed);
    }
    void disarm() { memory_.sleep->armed.store(0, std::memory_order_relaxed); }
    /// Both sides are registered for membarrier(2): the sender need not fence.
    void spare_sender() { memory_.sleep->sender_pays.store(0, std::memory_order_relaxed); }
    [[nodiscard]] const Fences& fences() const { return fences_; }

  private:
    [[nodiscard]] bool is_next(std::uint64_t word) const {
        return static_cast<std::uint32_t>(word) == static_cast<std::uint32_t>(read_ + 1);
    }
    void publish_tail() {
        if (published_ != answered_) {
            published_ = answered_;
            // SYNC vhca_reuse: our reads of the slots below come before the sender sees them free.
            memory_.consumer->tail.store(answered_, std::memory_order_release);
        }
    }

    RingMemory<Atom> memory_;
    std::uint64_t read_ = 0;      // next position to read
    std::uint64_t answered_ = 0;  // where this visit began
    std::uint64_t published_ = 0;
    std::uint64_t visits_ = 0;
    Fences fences_{};
};

}  // namespace tagwire::vhca
