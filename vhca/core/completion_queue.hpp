// SPDX-License-Identifier: BSD-3-Clause
// Completion queue: a ring of entries and the rule when to announce them.
//
// Indices run free and are masked on use:  consumer_ <= producer_ <= consumer_ + capacity_.
//   begin_:     index of the ring's first place. It moves to the next entry while the queue is
//               empty, so that a program that keeps up has its completions in the same few lines of
//               the cache, however long its queue is.
//   announced_: entries before it were announced by an event. Arming announces at once exactly if
//               producer_ > max(consumer_, announced_): a naive "not empty" announces twice what a
//               program counts, "new ones only" loses those that came before the arming.
//   solicited_: one past the last solicited entry; takes the place of producer_ when the arming is
//               for solicited entries only. Errors are solicited.
//
// One with a CompletionConsumer keeps nothing: what it makes is taken at once, and counts as
// polled.
#pragma once

#include <cstdint>
#include <memory>

#include "vhca/core/objects.hpp"

namespace tagwire::vhca {

class QueuePair;
class ReceiveQueue;
class TagMatching;

struct Cqe {
    ibv_wc wc;
    Time time;
    Route from;
    QueuePair* qp;             // whose it is; nullptr: the tag-matching SRQ's
    ReceiveQueue* from_queue;  // of a receive: gets `place` back when polled; else nullptr
    TagMatching* matching;     // of a tagged receive or list operation: is told when polled
    std::uint64_t tm_tag;
    std::uint32_t tm_priv;
    std::uint32_t place;   // of a send or list operation: first one that polling this does not free
    std::uint32_t handle;  // of a tagged receive
    bool is_holder;        // that receive is held until this is polled
    bool is_solicited;
    std::uint16_t tm_count;
    void* tag_srq_user;  // of the tag-matching SRQ that it comes from; nullptr: from none
    std::span<const std::byte> data;  // Completion::data: valid until publish() returns
};

class CompletionQueue final : public Cq {
  public:
    /// nullptr: no memory.
    static std::unique_ptr<CompletionQueue> create(Device::Impl& device, const CqConfig& config);

    bool poll(Completion* completion_p) override;
    void arm(bool solicited_only) override;
    int resize(std::uint32_t cqe) override;
    [[nodiscard]] std::uint32_t cqe() const override { return capacity_; }
    [[nodiscard]] bool is_empty() const override { return consumer_ == producer_; }

    // ---- The device's side
    /// The entry to fill, or nullptr when the queue overran, now or before.
    Cqe* claim();
    /// The entry of claim() is complete. It is seen now, or later if events come late.
    void publish(const Cqe& cqe);
    /// It came late: now it is seen.
    void take_delayed(const Cqe& cqe);
    /// Takes the completions of a queue pair away.
    void purge(const QueuePair& qp);
    /// Those of a tag-matching SRQ: nobody is told.
    void purge(const TagMatching& matching, const ReceiveQueue& untagged);
    /// The device died: nothing is completed or announced any more.
    void stop() { state_ = State::kStopped; }

    std::uint32_t users = 0;

  private:
    enum class Armed : std::uint8_t { kNo, kSolicited, kAll };
    enum class State : std::uint8_t { kWell, kBroken, kStopped };

    CompletionQueue(Device::Impl& device, const CqConfig& config)
        : Cq(config.user), device_(device), taker_(config.consumer) {}
    Cqe& at(std::uint64_t index) { return ring_[(index - begin_) & (capacity_ - 1)]; }
    static void give_back(const Cqe& cqe);
    void show(const Cqe& cqe);
    void hand_over(const Cqe& cqe);
    void break_off();
    template <typename F>
    void purge_if(F&& is_meant);
    void announce();

    Device::Impl& device_;
    CompletionConsumer* const taker_;  // if there is one, ring_ is nothing but a place to fill
    std::unique_ptr<Cqe[]> ring_;
    std::uint32_t capacity_ = 0;  // power of two
    std::uint32_t delayed_ = 0;  // entries that come late: they have their places, behind producer_
    Armed armed_ = Armed::kNo;
    State state_ = State::kWell;
    std::uint64_t producer_ = 0, consumer_ = 0, announced_ = 0, solicited_ = 0;
    std::uint64_t begin_ = 0;
};

}  // namespace tagwire::vhca
