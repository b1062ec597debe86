// SPDX-License-Identifier: BSD-3-Clause
//
// The software tag matcher: posted receives and unexpected messages.
//
// A receive (tag, mask) and a message with tag t match when ((t ^ tag) & mask) == 0. Among
// several posted receives the earliest posted wins; among several messages the earliest arrived.
//
// PostedReceives keeps one hash per distinct mask in use. An arrival probes each of them once with
// (t & mask) and takes the candidate with the lowest sequence number; equal keys queue in one ring,
// so an arrival costs O(masks in use) at any depth, and with exact receives only, one bucket and
// the receive itself. Receives are filed in the hashes only when messages do not come in their
// order (tag_matcher_queue.hpp): until then, posting and matching touches nothing but them.
//
// UnexpectedMessages hashes by full tag and links all messages in order of arrival. An exact
// receive takes O(1), as does one with mask 0; other masks walk the list from the oldest message.
//
// Nodes are intrusive: derive from them or hold them as a member; the caller owns their memory, and
// they must stay in place while inside. Not thread-safe. Nothing allocates up to the depth given to
// reserve(); beyond, tables double incrementally (see tag_matcher_index.hpp) and abort when there
// is no memory.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ucs/datastruct/tag_matcher_index.hpp"
#include "ucs/datastruct/tag_matcher_masks.hpp"
#include "ucs/datastruct/tag_matcher_queue.hpp"

namespace tagwire::ucs {

inline constexpr std::uint64_t kExactMask = ~std::uint64_t{0};

struct PostedReceive {
    std::uint64_t tag = 0;          // set before post(); bits outside the mask do not count
    PostedReceive* next = nullptr;  // in the queue, or in the ring of equal keys
    PostedReceive* prev = nullptr;
    std::uint64_t sequence = 0;       // among those in the hashes
    std::uint64_t mask = kExactMask;  // set before post()

    bool matches(std::uint64_t message_tag) const { return ((message_tag ^ tag) & mask) == 0; }

    // Derived classes hide these (tag_matcher_index.hpp).
    static constexpr bool kHasTwoLines = false;
    static const void* companion() { return nullptr; }
};
static_assert(sizeof(PostedReceive) == 40);  // room for buffer, length, context in its cache line

/** The receives are base classes of `Receive`, which says with companion() what it reads when it is
 * matched (tag_matcher_index.hpp). */
template <class Receive>
class PostedReceivesOf {
  public:
    /** Sequence numbers are compared by signed difference, so any start is good; tests start just
     * before the wrap. */
    explicit PostedReceivesOf(std::uint64_t first_sequence = 0) : sequence_(first_sequence) {}
    PostedReceivesOf(const PostedReceivesOf&) = delete;
    PostedReceivesOf& operator=(const PostedReceivesOf&) = delete;

    /** Room for `receives` exact receives without allocation. False: no memory. */
    [[nodiscard]] bool reserve(std::size_t receives) { return exact_.reserve(receives); }

    /** `receive` has tag and mask set and is not posted. */
    void post(PostedReceive& receive) {
        if (size_ >= room_) [[unlikely]]
            return post_filed(receive);
        ++size_;
        queue_.push_back(receive);
    }

    /** `receive` is posted. O(1) at any depth; a wildcard first finds its mask among those in use.
     */
    void cancel(PostedReceive& receive) {
        if (room_ != 0) {
            --size_;
            queue_.remove(receive);
        } else {
            erase(receive);
        }
    }

    /** The earliest posted receive that a message with this tag matches, removed; null when there
     * is none. */
    PostedReceive* match(std::uint64_t tag) {
        PostedReceive* const first = queue_.front();
        if (first != nullptr && first->matches(tag)) [[likely]] {
            --size_;
            return queue_.pop_front();
        }
        return size_ == 0 ? nullptr : match_among_others(tag);
    }

    /** Some posted receive, removed; null when empty. For tear-down; the order is unspecified. */
    PostedReceive* take_any() {
        if (size_ == 0)
            return nullptr;
        PostedReceive* receive = queue_.front();
        if (receive == nullptr)
            receive = exact_.any();
        if (receive == nullptr)
            receive = wildcards_.any([](const PostedReceive&) { return true; });
        cancel(*receive);
        return receive;
    }

    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }

    /** Starts loading what match(tag) or an exact post(tag) will read first. */
    void prefetch(std::uint64_t tag) const { exact_.prefetch(tag); }

  private:
    using Keys = detail::CompanionKeys<PostedReceive, Receive>;

    // Not inline, so that posting to the queue saves no registers.
    [[gnu::noinline]] void post_filed(PostedReceive& receive) {
        if (room_ != 0)
            file_all();
        ++size_;
        insert(receive);
    }

    void file_all() {
        room_ = 0;
        while (!queue_.empty())
            insert(*queue_.pop_front());
    }

    void insert(PostedReceive& receive) {
        receive.tag &= receive.mask;
        receive.sequence = sequence_++;
        if (receive.mask == kExactMask) [[likely]]
            exact_.insert(receive);
        else
            wildcards_.insert(receive);
    }

    void erase(PostedReceive& receive) {
        if (receive.mask == kExactMask) [[likely]]
            exact_.erase(receive);
        else
            wildcards_.erase(receive);
        count_out();
    }

    void count_out() {
        if (--size_ == 0)
            room_ = Queue::kRoom;
    }

    [[gnu::noinline]] PostedReceive* match_among_others(std::uint64_t tag) {
        if (room_ != 0) {
            bool are_all = false;
            PostedReceive* receive =
                queue_.find([&](const auto& each) { return each.matches(tag); }, &are_all);
            if (receive != nullptr)
                cancel(*receive);
            if (receive != nullptr || are_all)
                return receive;
            file_all();
        }
        if (wildcards_.empty()) {
            PostedReceive* receive = exact_.pop(tag);
            if (receive != nullptr)
                count_out();
            return receive;
        }
        PostedReceive* earliest = wildcards_.earliest_of(exact_.find(tag), tag);
        if (earliest != nullptr)
            erase(*earliest);
        return earliest;
    }

    using Queue = detail::TagQueue<PostedReceive>;

    Queue queue_;  // all receives, or none
    std::size_t size_ = 0;
    std::size_t room_ = Queue::kRoom;  // 0: they are in the hashes
    std::uint64_t sequence_;
    detail::MaskClasses<Keys> wildcards_;
    detail::TagIndex<Keys> exact_;
};

using PostedReceives = PostedReceivesOf<PostedReceive>;

struct UnexpectedMessage {
    std::uint64_t tag = 0;              // set before add(); the rest belongs to UnexpectedMessages
    UnexpectedMessage* next = nullptr;  // the next message of equal tag, in a ring
    UnexpectedMessage* prev = nullptr;
    UnexpectedMessage* older = nullptr;  // neighbours in order of arrival
    UnexpectedMessage* newer = nullptr;
};

class UnexpectedMessages {
  public:
    UnexpectedMessages() = default;
    UnexpectedMessages(const UnexpectedMessages&) = delete;
    UnexpectedMessages& operator=(const UnexpectedMessages&) = delete;

    /** Room for `messages` without allocation. False: no memory. */
    [[nodiscard]] bool reserve(std::size_t messages) { return index_.reserve(messages); }

    /** The newest arrival; `message` has its tag set and is not inside. */
    void add(UnexpectedMessage& message) {
        message.newer = nullptr;
        message.older = newest_;
        newest_ = &message;
        if (size_++ == 0) {
            oldest_ = &message;
            lone_ = &message;
            return;
        }
        message.older->newer = &message;
        if (lone_ != nullptr) [[unlikely]]
            index_.insert(*std::exchange(lone_, nullptr));
        index_.insert(message);
    }

    /** The earliest message that a receive of this tag and mask matches, left inside; null when
     * there is none. */
    UnexpectedMessage* find(std::uint64_t tag, std::uint64_t mask) {
        if (mask == kExactMask && lone_ == nullptr)
            return size_ == 0 ? nullptr : index_.find(tag);
        UnexpectedMessage* message = oldest_;
        while (message != nullptr && ((message->tag ^ tag) & mask) != 0)
            message = message->newer;
        return message;
    }

    /** As find(), and removes it. */
    UnexpectedMessage* take(std::uint64_t tag, std::uint64_t mask) {
        UnexpectedMessage* message;
        if (mask == kExactMask && lone_ == nullptr && size_ != 0) {
            message = index_.pop(tag);
            if (message != nullptr)
                unlink(*message);
        } else {
            message = find(tag, mask);
            if (message != nullptr)
                remove(*message);
        }
        return message;
    }

    /** `message` is inside. O(1). */
    void remove(UnexpectedMessage& message) {
        if (lone_ == &message)
            lone_ = nullptr;
        else
            index_.erase(message);
        unlink(message);
    }

    /** The earliest arrival; following `newer` from it visits all. */
    UnexpectedMessage* oldest() const { return oldest_; }
    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }

    /** Starts loading what add() of this tag or an exact take() will read first. */
    void prefetch(std::uint64_t tag) const { index_.prefetch(tag); }

  private:
    void unlink(UnexpectedMessage& message) {
        --size_;
        (message.older != nullptr ? message.older->newer : oldest_) = message.newer;
        (message.newer != nullptr ? message.newer->older : newest_) = message.older;
    }

    UnexpectedMessage* lone_ =
        nullptr;  // the only message, when it is the only one and came alone; not in the index
    UnexpectedMessage* oldest_ = nullptr;
    UnexpectedMessage* newest_ = nullptr;
    std::size_t size_ = 0;
    detail::TagIndex<detail::TagKeys<UnexpectedMessage>> index_;
};

}  // namespace tagwire::ucs
