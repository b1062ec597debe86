// SPDX-License-Identifier: BSD-3-Clause
// The message ring: one sender, one receiver, in different processes.
//
// Threads: RingSender by the owner thread of the sending interface, RingReceiver by that of the
// receiving one.
// Invariants
//  (1) Positions run freely (64 bits), slot = position & mask, and
//      tail <= read <= head <= tail + slot_count.
//  (2) A slot belongs to the sender while position < tail + slot_count and it was not published, to
//      the receiver from the moment its control word carries position + 1. There is no claim that
//      others could see: a sender that dies before the publishing store has sent nothing, and
//      blocks nobody.
//  (3) The receiver publishes its tail only every slot_count / 4 messages, so that the sender's
//      line stays quiet. A sender that waits has at least 3/4 of the ring filled, so the receiver
//      passes such a point.
//  (4) No wake-up is lost. The receiver that stops polling stores `sleep`, then looks once more
//      (try_sleep); the sender stores the control word, then looks at `sleep` (must_ring). At least
//      one of the two must see the other's store, and that needs a full store-load barrier on both
//      sides: a processor may let a load pass an older store that still sits in its store buffer.
//      The receiver's side is membarrier(2), which runs the barrier on the sender's processor, too;
//      so the sender's side costs nothing per message. Where membarrier is not to be had the sender
//      pays for a fence per message. The model test shows the lost wake-up without them.
//
// Atom and Fences are parameters so that the same code runs under the seeded scheduler of the
// tests.
#pragma once

#include <atomic>
#include <cstdint>

#include "ucs/sys/shared_order.hpp"
#include "uct/sm/layout.hpp"

namespace tagwire::sm {

enum class Claim { kOk, kFull, kCorrupt };

template <template <class> class Atom, class Fences>
class RingSender {
  public:
    RingSender() = default;
    /// `spare`: slots that only publish_last() uses.
    RingSender(Slot<Atom>* slots, Consumer<Atom>* consumer, std::uint32_t slot_count,
               std::uint64_t start, Fences fences, std::uint32_t spare = 0)
        : slots_(slots),
          consumer_(consumer),
          mask_(slot_count - 1),
          room_(slot_count - spare),
          head_(start),
          limit_(start),
          fences_(fences) {}

    /// May the next slot be written without asking the receiver? False also while the sender is
    /// held.
    [[nodiscard]] bool has_room() const { return head_ != limit_; }

    /// Looks where the receiver is. After kOk at least `count` slots are free. kCorrupt: the
    /// receiver wrote a tail that cannot be.
    Claim refresh(std::uint64_t count = 1) {
        if (limit_ - head_ >= count && limit_ - head_ <= capacity())
            return Claim::kOk;
        // SYNC sm_reuse: the receiver has finished with every slot below the tail before it moved
        // the tail.
        const std::uint64_t tail = consumer_->tail.load(std::memory_order_acquire);
        if (head_ - tail > capacity())
            return Claim::kCorrupt;
        limit_ = tail + room_;
        if (head_ - tail >= room_)
            limit_ = head_;
        return limit_ - head_ >= count ? Claim::kOk : Claim::kFull;
    }

    /// Makes has_room() false until the next refresh(): requests are pending, sends must take
    /// the slow path.
    void hold() { limit_ = head_; }

    /// Lets `count` messages pass without a look, then holds.
    void limit(std::uint64_t count) { limit_ = head_ + count; }

    [[nodiscard]] Slot<Atom>& slot(std::uint64_t ahead = 0) {
        return slots_[(head_ + ahead) & mask_];
    }

    /// Hands the slot `ahead` of the head to the receiver.
    void publish_ahead(std::uint64_t ahead, Control control) {
        const std::uint64_t sequence = static_cast<std::uint32_t>(head_ + ahead + 1);
        // SYNC sm_slot: pairs with the acquire in RingReceiver::peek(). The body must be visible
        // before the control word is; the receiver touches nothing else of the slot until it sees
        // this value.
        ucs::order_before_message(head_ + ahead + 1);
        slot(ahead).control.store(control.word | sequence, std::memory_order_release);
    }
    void publish(Control control) { publish(slot(), control); }
    /// As publish() above, where `next` is slot(), which the caller kept and may have written to.
    void publish(Slot<Atom>& next, Control control) {
        ++head_;
        const std::uint64_t sequence = static_cast<std::uint32_t>(head_);
        ucs::order_before_message(head_);
        // SYNC sm_slot: as in publish_ahead().
        next.control.store(control.word | sequence, std::memory_order_release);
    }
    void advance(std::uint64_t count) { head_ += count; }
    /// A message into the spare slot, which may be used once the receiver has read all before it.
    void publish_last(Control control) {
        publish(control);
        limit_ = head_;
    }

    /// After publishing: does the receiver wait for the bell? True for one message of a ring that
    /// sleeps until the next one, and for each of a ring that is watched by the bell; the caller
    /// rings.
    bool must_ring() {
        fences_.after_publish();
        std::uint32_t sleep = consumer_->sleep.load(std::memory_order_relaxed);
        if (sleep == kAwake) [[likely]]
            return false;
        // Only what was seen is taken away: kByBell, stored meanwhile, stays, and counts.
        if (sleep == kUntilNext &&
            consumer_->sleep.compare_exchange_strong(sleep, kAwake, std::memory_order_relaxed))
            return true;
        return sleep != kAwake;
    }

    /// The receiver polls and is less than half a ring behind: it will see a hint while that is
    /// worth something. So hints that nobody reads take at most half of the ring.
    [[nodiscard]] bool is_followed() const {
        return consumer_->sleep.load(std::memory_order_relaxed) != kUntilNext &&
               head_ - consumer_->tail.load(std::memory_order_relaxed) < capacity() / 2;
    }

    /// The receiver has read something from position `since` on, and is at most a quarter of the
    /// ring behind as far as it says; it says so no more often.
    [[nodiscard]] bool is_kept_up_with(std::uint64_t since) const {
        const std::uint64_t tail = consumer_->tail.load(std::memory_order_relaxed);
        return static_cast<std::int64_t>(tail - since) > 0 && head_ - tail <= capacity() / 4;
    }

    [[nodiscard]] std::uint64_t head() const { return head_; }
    [[nodiscard]] std::uint64_t capacity() const { return std::uint64_t{mask_} + 1; }

  private:
    Slot<Atom>* slots_ = nullptr;
    Consumer<Atom>* consumer_ = nullptr;
    std::uint32_t mask_ = 0;
    std::uint32_t room_ = 0;   // slots that may be filled
    std::uint64_t head_ = 0;   // next position to write
    std::uint64_t limit_ = 0;  // head_ may run up to here without a look at the tail
    Fences fences_{};
};

template <template <class> class Atom, class Fences>
class RingReceiver {
  public:
    RingReceiver() = default;
    RingReceiver(Slot<Atom>* slots, Consumer<Atom>* consumer, std::uint32_t slot_count,
                 std::uint64_t start, Fences fences)
        : slot_(&slots[start & (slot_count - 1)]),
          stop_(&slots[((start & (slot_count - 1)) | (slot_count / 4 - 1)) + 1]),
          next_(start + 1),
          slots_(slots),
          consumer_(consumer),
          mask_(slot_count - 1),
          fences_(fences) {}

    /// Is there a message? Its control word, or anything when false. Where the sequence is 0, a
    /// slot that was never written passes for a message of kind 0, which none has.
    [[nodiscard]] bool poll(Control* control_p) const {
        // SYNC sm_slot: pairs with the release in RingSender::publish().
        control_p->word = slot_->control.load(std::memory_order_acquire);
        if (control_p->sequence() != static_cast<std::uint32_t>(next_))
            return false;
        ucs::order_after_message(next_);
        return true;
    }
    /// The control word of the next message; word 0 when there is none.
    [[nodiscard]] Control peek() const {
        Control control{};
        return poll(&control) ? control : Control{0};
    }

    [[nodiscard]] std::byte* body() { return slot_->body; }

    /// Done with the slot that poll() or peek() showed.
    void advance() {
        ++next_;
        if (++slot_ == stop_) [[unlikely]]
            end_quarter();
    }

    // Nobody will poll, in three steps, so that many rings can have one barrier between: see
    // invariant (4). After the barrier stays_asleep() is false, and the ring awake, when a message
    // came in between.
    void announce_sleep(RingSleep how = kUntilNext) {
        consumer_->sleep.store(how, std::memory_order_relaxed);
    }
    void barrier() const { fences_.before_recheck(); }
    bool stays_asleep() {
        if (peek().word == 0)
            return true;
        wake();
        return false;
    }
    void wake() { consumer_->sleep.store(kAwake, std::memory_order_relaxed); }

    /// All three steps for one ring.
    bool try_sleep(RingSleep how = kUntilNext) {
        announce_sleep(how);
        barrier();
        return stays_asleep();
    }

    [[nodiscard]] std::uint64_t position() const { return next_ - 1; }

  private:
    void end_quarter() {
        const std::uint64_t read = position();
        slot_ = &slots_[read & mask_];
        stop_ = slot_ + (std::uint64_t{mask_} + 1) / 4;
        // SYNC sm_reuse: our reads of the slots below come before the sender sees them free.
        consumer_->tail.store(read, std::memory_order_release);
    }

    Slot<Atom>* slot_ = nullptr;  // of the next position to read
    Slot<Atom>* stop_ = nullptr;  // behind the quarter of the ring that it is in
    std::uint64_t next_ = 1;      // the position behind it; its low half is the message's sequence
    Slot<Atom>* slots_ = nullptr;
    Consumer<Atom>* consumer_ = nullptr;
    std::uint32_t mask_ = 0;
    Fences fences_{};
};

/// Either side: there is something in the ring of that bit.
template <template <class> class Atom>
void set_bell(Bell<Atom>& bell, std::uint32_t bit) {
    const std::uint32_t word = bit / 64 % kBellWords;
    // SYNC sm_bell: both read-modify-writes are full barriers, in this order, so a receiver that
    // takes the summary bit finds the ring's bit, and then the ring's message.
    bell.words[word].fetch_or(std::uint64_t{1} << (bit % 64), std::memory_order_seq_cst);
    bell.summary.fetch_or(std::uint64_t{1} << word, std::memory_order_seq_cst);
}

/// Sender's side of the bell. The ways in which the caller wakes the receiver (kArmedPacket,
/// kArmedNap); 0: it does not sleep, or somebody else does.
template <template <class> class Atom>
std::uint32_t ring_bell(Bell<Atom>& bell, std::uint32_t bit) {
    set_bell(bell, bit);
    // SYNC sm_armed: the receiver stores `armed` and then looks at the summary; we set the summary
    // and then look.
    if (bell.armed.load(std::memory_order_seq_cst) == 0)
        return 0;
    return bell.armed.exchange(0, std::memory_order_seq_cst);
}

/// Receiver's side: calls visit(bit) for each bit that was set. True when there was any.
template <template <class> class Atom, class Visit>
bool collect_bell(Bell<Atom>& bell, Visit&& visit) {
    if (bell.summary.load(std::memory_order_relaxed) == 0) [[likely]]
        return false;
    // SYNC sm_bell: pairs with ring_bell().
    std::uint64_t summary = bell.summary.exchange(0, std::memory_order_acquire);
    for (; summary != 0; summary &= summary - 1) {
        const auto word = static_cast<std::uint32_t>(__builtin_ctzll(summary));
        // SYNC sm_bell: pairs with ring_bell().
        std::uint64_t bits = bell.words[word].exchange(0, std::memory_order_acquire);
        for (; bits != 0; bits &= bits - 1)
            visit(word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(bits)));
    }
    return true;
}

/// Receiver's side: asks to be woken in this way, too. False: a bell rang meanwhile, do not sleep.
template <template <class> class Atom>
bool arm_bell(Bell<Atom>& bell, std::uint32_t how) {
    // SYNC sm_armed: pairs with ring_bell(); both sides use sequentially consistent operations.
    bell.armed.fetch_or(how, std::memory_order_seq_cst);
    return bell.summary.load(std::memory_order_seq_cst) == 0;  // SYNC sm_armed
}

/// Receiver's side: it does not sleep in this way any more.
template <template <class> class Atom>
void disarm_bell(Bell<Atom>& bell, std::uint32_t how) {
    // SYNC sm_armed: relaxed; a sender that has taken it wakes nobody.
    if ((bell.armed.load(std::memory_order_relaxed) & how) != 0)
        bell.armed.fetch_and(~how, std::memory_order_relaxed);
}

}  // namespace tagwire::sm
