// SPDX-License-Identifier: BSD-3-Clause
//
// The matcher by tag and source: posted receives and unexpected messages of the messaging layer.
//
// A receive (tag, mask, source) and a message (t, s) match when ((t ^ tag) & mask) == 0 and the
// receive's source is s or kAnySource; in the first case it is directed. Among several posted
// receives the earliest posted wins; among several messages the earliest arrived. This is the tag
// matcher of ucs/datastruct/tag_matcher.hpp with one more thing to compare, made of the same
// indexes.
//
// PostedReceives has one index for each class of receives: the exact ones from any source by tag,
// the exact directed ones by (tag, source), and one of either kind for each other mask in use. An
// arrival probes each class that has receives once and takes the candidate with the lowest
// sequence number: O(classes in use) at any depth; with one class, one bucket and the receive
// itself. Receives are filed in the indexes only when messages do not come in their order
// (ucs/datastruct/tag_matcher_queue.hpp): until then, posting and matching touches nothing but
// them.
//
// UnexpectedMessages links all messages in order of arrival, and while they are few a look-up walks
// them. Among many it uses an index:
//
//     receive          from any source         directed
//     exact            by tag                  by (tag, source)
//     mask 0           none: the oldest        by source
//     another mask     by the bits it leaves   by these and source (masked_messages.hpp)
//
// Programs have habits: most need one or two of the indexes. So the first look-up that needs one
// makes it and files what is inside; it is kept from then on. One that is not kept costs its
// pointers of a message and no time. Where many messages come before a program has shown a habit,
// the two of exact receives are kept, so that peers cannot make its first look-up a long one.
// Look-ups are O(1) at any depth, but where a program uses more masks than there are indexes for:
// then some walk, all messages or those of their source.
//
// Invariants of UnexpectedMessages.
//   1. When filed_, every message is in every kept index; otherwise no index has a message.
//   2. With more than kFew messages inside, filed_ exactly if an index is kept; with none, not.
//   3. With more than kMany messages inside, an index is kept.
//
// Nodes are intrusive: derive from them or hold them as a member; the caller owns their memory, and
// they must stay in place while inside. Not thread-safe. Nothing allocates up to the depth given to
// reserve(), wildcards excepted; beyond, tables double incrementally (ucs's tag_matcher_index.hpp)
// and abort when there is no memory.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "protocols/index/masked_messages.hpp"
#include "protocols/index/source_matcher_index.hpp"

namespace tagwire::proto {

/** As ucs::PostedReceivesOf. */
template <class Receive>
class PostedReceivesOf {
  public:
    /** Any first sequence number is good; tests start just before the wrap. */
    explicit PostedReceivesOf(std::uint64_t first_sequence = 0) : sequence_(first_sequence) {}
    PostedReceivesOf(const PostedReceivesOf&) = delete;
    PostedReceivesOf& operator=(const PostedReceivesOf&) = delete;

    /** Room for `receives` exact receives, directed or not, without allocation. False: no memory.
     */
    [[nodiscard]] bool reserve(std::size_t receives) {
        return exact_.reserve(receives) && directed_.reserve(receives);
    }

    /** `receive` has tag, mask and source set and is not posted. */
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

    /** The earliest posted receive that a message of this tag and source matches, removed; null
     * when there is none. */
    PostedReceive* match(std::uint64_t tag, std::uint32_t source) {
        if (first(tag, source) != nullptr) [[likely]]
            return take_first();
        return size_ == 0 ? nullptr : match_among_others(tag, source);
    }

    /** The earliest of all receives, if none is filed and such a message matches it; it stays
     * posted. */
    PostedReceive* first(std::uint64_t tag, std::uint32_t source) const {
        PostedReceive* const receive = queue_.front();
        return receive != nullptr && receive->matches(tag, source) ? receive : nullptr;
    }

    /** After first(): removes what that answered. */
    PostedReceive* take_first() {
        --size_;
        return queue_.pop_front();
    }

    /** As match(), but the receive stays posted, at its place in the order. */
    PostedReceive* find(std::uint64_t tag, std::uint32_t source) {
        if (PostedReceive* receive = first(tag, source))
            return receive;
        return size_ == 0 ? nullptr : find_among_others(tag, source);
    }

    /** Some posted receive, removed; null when empty. For tear-down; the order is unspecified. */
    PostedReceive* take_any() {
        const auto all = [](const PostedReceive&) { return true; };
        PostedReceive* receive = queue_.front();
        if (receive == nullptr)
            receive = exact_.any();
        if (receive == nullptr)
            receive = wildcards_.any(all);
        if (receive == nullptr)
            receive = any_directed(all);
        return taken(receive);
    }

    /** Some receive directed at this source, removed; null when there is none. For the death of a
     * peer: O(posted), but taking all exact ones of a source costs about two of that. */
    PostedReceive* take_directed(std::uint32_t source) {
        const auto is_directed = [source](const PostedReceive& receive) {
            return receive.source == source;
        };
        return taken(room_ != 0 ? queue_.any(is_directed) : any_directed(is_directed));
    }

    /** There are at most so many, none is filed, and `holds(receive)` of each. */
    template <class Holds>
    bool all_of_few(std::size_t most, const Holds& holds) const {
        if (size_ > most || room_ == 0)
            return size_ == 0;
        const auto does_not_hold = [&](const PostedReceive& receive) {
            return !holds(static_cast<const Receive&>(receive));
        };
        return queue_.any(does_not_hold) == nullptr;
    }

    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }

    /** Starts loading what match(tag, source) will read first. */
    void prefetch(std::uint64_t tag, std::uint32_t source) const {
        if (!exact_.empty())
            exact_.prefetch(tag);
        if (!directed_.empty())
            directed_.prefetch({tag, source});
    }

  private:
    bool has_wildcards() const { return !wildcards_.empty() || !directed_wildcards_.empty(); }

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

    void count_out() {
        if (--size_ == 0)
            room_ = Queue::kRoom;
    }

    void insert(PostedReceive& receive) {
        receive.tag &= receive.mask;
        receive.sequence = sequence_++;
        if (receive.mask == kExactMask) [[likely]]
            if (receive.source == kAnySource)
                exact_.insert(receive);
            else
                directed_.insert(receive);
        else if (receive.source == kAnySource)
            wildcards_.insert(receive);
        else
            directed_wildcards_.insert(receive);
    }

    void erase(PostedReceive& receive) {
        if (receive.mask != kExactMask) [[unlikely]]
            erase_wildcard(receive);
        else if (receive.source == kAnySource)
            exact_.erase(receive);
        else
            directed_.erase(receive);
        count_out();
    }

    [[gnu::noinline]] void erase_wildcard(PostedReceive& receive) {
        if (receive.source == kAnySource)
            wildcards_.erase(receive);
        else
            directed_wildcards_.erase(receive);
    }

    PostedReceive* earliest_of_classes(std::uint64_t tag, std::uint32_t source) {
        PostedReceive* earliest = exact_.empty() ? nullptr : exact_.find(tag);
        if (!directed_.empty())
            earliest = ucs::detail::earlier_of(earliest, directed_.find({tag, source}));
        earliest = wildcards_.earliest_of(earliest, tag);
        return directed_wildcards_.earliest_of(earliest, {tag, source});
    }

    /** Searches the queued receives. False: none of the first matches, and all are filed now. */
    bool find_queued(std::uint64_t tag, std::uint32_t source, PostedReceive** receive_p) {
        bool are_all = false;
        *receive_p =
            queue_.find([&](const auto& each) { return each.matches(tag, source); }, &are_all);
        if (*receive_p != nullptr || are_all)
            return true;
        file_all();
        return false;
    }

    [[gnu::noinline]] PostedReceive* find_among_others(std::uint64_t tag, std::uint32_t source) {
        PostedReceive* receive = nullptr;
        if (room_ != 0 && find_queued(tag, source, &receive))
            return receive;
        return earliest_of_classes(tag, source);
    }

    [[gnu::noinline]] PostedReceive* match_among_others(std::uint64_t tag, std::uint32_t source) {
        PostedReceive* receive = nullptr;
        if (room_ != 0 && find_queued(tag, source, &receive))
            return taken(receive);
        const bool has_directed = !directed_.empty();
        if (has_wildcards() || (has_directed && !exact_.empty()))
            return taken(earliest_of_classes(tag, source));
        receive = has_directed ? directed_.pop({tag, source}) : exact_.pop(tag);
        if (receive != nullptr)
            count_out();
        return receive;
    }

    /** `wanted` looks at nothing but the source. */
    template <class Wanted>
    PostedReceive* any_directed(const Wanted& wanted) {
        PostedReceive* receive = directed_.any(wanted);
        return receive != nullptr ? receive : directed_wildcards_.any(wanted);
    }

    PostedReceive* taken(PostedReceive* receive) {
        if (receive != nullptr)
            cancel(*receive);
        return receive;
    }

    using Queue = ucs::detail::TagQueue<PostedReceive>;
    using AnySourceKeys = detail::AnySourceKeys<Receive>;
    using DirectedKeys = detail::DirectedKeys<Receive>;

    Queue queue_;  // all receives, or none
    std::size_t size_ = 0;
    std::size_t room_ = Queue::kRoom;  // 0: they are in the indexes
    std::uint64_t sequence_;
    ucs::detail::MaskClasses<AnySourceKeys> wildcards_;
    ucs::detail::TagIndex<AnySourceKeys> exact_;
    ucs::detail::TagIndex<DirectedKeys> directed_;
    ucs::detail::MaskClasses<DirectedKeys> directed_wildcards_;
};

using PostedReceives = PostedReceivesOf<PostedReceive>;

class UnexpectedMessages {
  public:
    static constexpr std::size_t kFew = 8;  // a walk over so many costs no more than a hash does
    static constexpr std::size_t kMany = 4096;

    UnexpectedMessages() = default;
    UnexpectedMessages(const UnexpectedMessages&) = delete;
    UnexpectedMessages& operator=(const UnexpectedMessages&) = delete;

    /** Room for `messages` without allocation. False: no memory. */
    [[nodiscard]] bool reserve(std::size_t messages) {
        return by_tag_.index.reserve(messages) && by_both_.index.reserve(messages) &&
               by_source_.index.reserve(messages);
    }

    /** The newest arrival; `message` has tag and source set and is not inside. */
    void add(UnexpectedMessage& message) {
        message.newer = nullptr;
        message.older = newest_;
        (newest_ != nullptr ? newest_->newer : oldest_) = &message;
        newest_ = &message;
        ++size_;
        if (filed_)
            file(message);
        else if (size_ > kFew && is_any_kept())
            file_all();
        else if (size_ > kMany) [[unlikely]]
            keep_exact();
    }

    /** The earliest message that a receive of this tag, mask and source matches, left inside; null
     * when there is none. */
    UnexpectedMessage* find(std::uint64_t tag, std::uint64_t mask, std::uint32_t source) {
        if (size_ <= kFew && !filed_)
            return walk(tag, mask, source);
        return find_among_many(tag, mask, source);
    }

    /** As find(), and removes it. */
    UnexpectedMessage* take(std::uint64_t tag, std::uint64_t mask, std::uint32_t source) {
        if (mask == kExactMask && filed_)
            return source == kAnySource ? pop(by_tag_, tag) : pop(by_both_, {tag, source});
        UnexpectedMessage* message = find(tag, mask, source);
        if (message != nullptr)
            remove(*message);
        return message;
    }

    /** `message` is inside. O(1). */
    void remove(UnexpectedMessage& message) {
        if (filed_)
            unfile(message, nullptr);
        else if (by_mask_.was_any_kept()) [[unlikely]]
            MaskedMessages::drop_links(message);
        unlink(message);
    }

    /** The earliest arrival; following `newer` from it visits all. */
    UnexpectedMessage* oldest() const { return oldest_; }
    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    /** No look-up but for unusual masks visits what is inside. */
    bool is_filed() const { return filed_; }

    /** Starts loading what add() of this tag and source or an exact take() will read first. */
    void prefetch(std::uint64_t tag, std::uint32_t source) const {
        if (!filed_)
            return;
        if (by_tag_.is_kept)
            by_tag_.index.prefetch(tag);
        if (by_both_.is_kept)
            by_both_.index.prefetch({tag, source});
    }

  private:
    template <class Keys>
    struct View {
        ucs::detail::TagIndex<Keys> index;
        bool is_kept = false;
    };

    bool is_any_kept() const {
        return by_tag_.is_kept || by_both_.is_kept || by_source_.is_kept || by_mask_.is_any_kept();
    }

    UnexpectedMessage* walk(std::uint64_t tag, std::uint64_t mask, std::uint32_t source) const {
        UnexpectedMessage* message = oldest_;
        while (message != nullptr && !message->is_for(tag, mask, source))
            message = message->newer;
        return message;
    }

    [[gnu::noinline]] UnexpectedMessage* find_among_many(std::uint64_t tag, std::uint64_t mask,
                                                         std::uint32_t source) {
        if (mask == kExactMask && source == kAnySource)
            return kept(by_tag_).find(tag);
        if (mask == kExactMask)
            return kept(by_both_).find({tag, source});
        if (mask == 0 && source == kAnySource)
            return oldest_;
        UnexpectedMessage* found = nullptr;
        if (mask != 0 && find_masked(tag, mask, source, &found))
            return found;
        if (source == kAnySource)
            return walk(tag, mask, source);
        UnexpectedMessage* const first = kept(by_source_).find(source);
        UnexpectedMessage* message = first;
        while (message != nullptr && ((message->tag ^ tag) & mask) != 0) {
            message = message->same_source.next;
            if (message == first)
                message = nullptr;
        }
        return message;
    }

    /** False: no index of this mask is kept. */
    bool find_masked(std::uint64_t tag, std::uint64_t mask, std::uint32_t source,
                     UnexpectedMessage** found_p) {
        if (by_mask_.find(tag, mask, source, found_p))
            return true;
        if (!by_mask_.begin(mask, source != kAnySource, oldest_))
            return false;
        filed_ = true;  // as in start()
        return by_mask_.find(tag, mask, source, found_p);
    }

    template <class Keys>
    UnexpectedMessage* pop(View<Keys>& view, typename Keys::Key key) {
        UnexpectedMessage* message = kept(view).pop(key);
        if (message != nullptr) {
            unfile(*message, &view);
            unlink(*message);
        }
        return message;
    }

    /** The index of `view`, with everything inside filed. */
    template <class Keys>
    ucs::detail::TagIndex<Keys>& kept(View<Keys>& view) {
        if (!view.is_kept) [[unlikely]]
            start(view);
        return view.index;
    }

    template <class Keys>
    [[gnu::noinline]] void start(View<Keys>& view) {
        view.is_kept = true;
        filed_ = true;  // if it was not, no other index is kept (invariant 2)
        for (auto* each = oldest_; each != nullptr; each = each->newer)
            view.index.insert(*each);
    }

    [[gnu::noinline]] void keep_exact() {
        start(by_tag_);
        start(by_both_);
    }

    [[gnu::noinline]] void file_all() {
        filed_ = true;
        for (auto* each = oldest_; each != nullptr; each = each->newer)
            file(*each);
    }

    void file(UnexpectedMessage& message) {
        if (by_tag_.is_kept)
            by_tag_.index.insert(message);
        if (by_both_.is_kept)
            by_both_.index.insert(message);
        if (by_source_.is_kept)
            by_source_.index.insert(message);
        if (by_mask_.is_any_kept()) [[unlikely]]
            by_mask_.file(message);
    }

    /** Out of every kept index but `done`, the address of a view. */
    void unfile(UnexpectedMessage& message, const void* done) {
        if (by_tag_.is_kept && &by_tag_ != done)
            by_tag_.index.erase(message);
        if (by_both_.is_kept && &by_both_ != done)
            by_both_.index.erase(message);
        if (by_source_.is_kept && &by_source_ != done)
            by_source_.index.erase(message);
        if (by_mask_.was_any_kept()) [[unlikely]]
            by_mask_.unfile(message);
    }

    void unlink(UnexpectedMessage& message) {
        (message.older != nullptr ? message.older->newer : oldest_) = message.newer;
        (message.newer != nullptr ? message.newer->older : newest_) = message.older;
        if (--size_ == 0)
            filed_ = false;
    }

    UnexpectedMessage* oldest_ = nullptr;
    UnexpectedMessage* newest_ = nullptr;
    std::size_t size_ = 0;
    bool filed_ = false;
    View<detail::MessageTagKeys> by_tag_;
    View<detail::MessageBothKeys> by_both_;
    View<detail::MessageSourceKeys> by_source_;
    MaskedMessages by_mask_;
};

}  // namespace tagwire::proto
