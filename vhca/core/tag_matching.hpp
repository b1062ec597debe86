// SPDX-License-Identifier: BSD-3-Clause
// The part of a tag-matching SRQ that an ordinary one does not have: the list of tagged receives,
// the operations on it, and the completions of both.
//
// Operations are carried out when they are posted. An operation's place in the command queue comes
// back when its own completion or a later one was polled; indices run free:
//     op_free_ <= op_head_ <= op_free_ + ops_max
//
// A receive is held by its last completion and by the completions of operations that name it; its
// handle is given out again when all of these were polled (or never came to be).
//
// Completions belong to the SRQ, not to the queue pair that received the message: they stay when
// that is reset or destroyed, so that software's count of unexpected messages stays right.
#pragma once

#include <cstdint>

#include "vhca/core/completion_queue.hpp"
#include "vhca/core/objects.hpp"
#include "vhca/core/tag_list.hpp"

namespace tagwire::vhca {

class TagMatching {
  public:
    TagMatching(Device::Impl& device, const SrqConfig& srq, std::uint32_t untagged_min)
        : device_(device),
          config_(srq.tm),
          user_(srq.user),
          untagged_min_(untagged_min),
          has_started_(untagged_min == 0),
          list_(srq.tm.tags_max) {}

    /// ENOMEM, EINVAL: see Srq::post_ops().
    int post(TagWork& work);
    /// Posts what the source has.
    void catch_up();

    // ---- Messages
    /// `untagged` receives are posted. Receiving begins once they were enough, although some may be
    /// taken before the first message comes: a write with an immediate takes one.
    void posted(std::uint32_t untagged) {
        has_started_ = has_started_ || untagged >= untagged_min_;
    }
    [[nodiscard]] bool has_started() const { return has_started_; }
    /// As TagList::match(); a receive that matched is held until complete() or drop().
    TagEntry* match(std::uint64_t tag);
    void uncount_unexpected() { list_.uncount_unexpected(); }
    [[nodiscard]] bool is_overdue() const { return list_.is_overdue(); }
    /// A completion of `entry`: `cqe` tells of the message, the rest is filled here.
    void complete(const TagEntry& entry, Cqe cqe, bool is_final);
    /// No completion will come of `entry`.
    void drop(TagEntry& entry);
    [[nodiscard]] TagEntry* find(std::uint32_t handle) { return list_.find(handle); }
    /// User pointer of the SRQ.
    [[nodiscard]] void* user() const { return user_; }

    // ---- Completions
    /// One that this made was polled, or is thrown away.
    void give_back(const Cqe& cqe);
    [[nodiscard]] CompletionQueue& cq() const { return static_cast<CompletionQueue&>(*config_.cq); }

  private:
    void add(TagWork& work, Cqe& cqe);
    void remove(const TagWork& work, Cqe& cqe);
    void name(const TagEntry& entry, Cqe& cqe);
    void publish(Cqe& cqe);
    void let_go(const Cqe& cqe);

    Device::Impl& device_;
    TagConfig config_;
    void* user_;
    std::uint32_t untagged_min_;
    bool has_started_;
    std::uint32_t op_free_ = 0, op_head_ = 0;
    TagList list_;
};

}  // namespace tagwire::vhca
