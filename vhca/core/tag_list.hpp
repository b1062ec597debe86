// SPDX-License-Identifier: BSD-3-Clause
// The list of tagged receives of a tag-matching SRQ, and its agreement with the software above on
// unexpected messages (tag_matching.md of rdma-core, ibv_post_srq_ops(3)).
//
// Device and software match concurrently: a message that the device found unexpected may be on its
// way to software while software adds the receive that it should match. So both count the
// unexpected tagged messages, software tells with its operations how many it has handled, and a
// receive becomes active only when both counts agree:
//
//     add --- counts agree ---------------> active --- match or ---> consumed --- release ---> free
//      \--- they do not ---> waiting -sync-^            remove       ^
//                               '----------------------- remove -----'
//
// Invariants
//  (1) Waiting receives are younger than all active ones: a list out of step stays so until an
//      operation brings the counts together, and then all of them become active in order.
//  (2) The oldest active one that matches wins: (message's tag & mask) == tag.
//  (3) A handle is given out again only after release(), the longest free one first.
//  (4) Counts are 16 bits wide and wrap.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "ucs/datastruct/tag_matcher.hpp"

namespace tagwire::vhca {

struct TagEntry : ucs::PostedReceive {
    enum class State : std::uint8_t { kFree, kWaiting, kActive, kConsumed };

    std::uint64_t wr_id = 0;  // recv_wr_id of the operation
    ibv_sge sge{};            // length 0: no buffer
    std::uint32_t handle = 0;
    std::uint32_t generation = 0;  // of the handle's use
    std::uint16_t phase = 0;       // software's count when it was added
    State state = State::kFree;
    bool can_match = false;  // the tag has no bit outside the mask
    std::uint8_t holds = 0;  // of who uses the list: it releases the entry when none is left
};

class TagList {
  public:
    /// Software asks for a count at the latest after this many unexpected messages.
    static constexpr std::uint16_t kUnsyncedMax = 0x3fff;

    explicit TagList(std::uint32_t entries_max);

    struct Receive {
        std::uint64_t tag = 0;
        std::uint64_t mask = 0;
        std::uint64_t wr_id = 0;
        ibv_sge sge{};
    };
    /// ENOMEM: the list is full.
    int add(const Receive& receive, std::uint32_t* handle_p);

    /// nullptr: there is no such receive any more (it was matched, or never was). Else it matches
    /// nothing any more, and the caller releases it.
    TagEntry* remove(std::uint32_t handle);
    /// nullptr: the handle is not in use.
    [[nodiscard]] TagEntry* find(std::uint32_t handle) {
        const bool is_used =
            handle < entries_.size() && entry(handle).state != TagEntry::State::kFree;
        return is_used ? &entry(handle) : nullptr;
    }

    /// Software has dealt with this many unexpected messages.
    void sync(std::uint16_t count);

    /// The receive that a message with this tag goes to, consumed; the caller releases it when its
    /// last completion was delivered. nullptr: unexpected, which the device has counted now.
    TagEntry* match(std::uint64_t tag);

    /// An unexpected message that was counted does not come after all: software never sees it.
    void uncount_unexpected();

    /// An entry that was consumed and is done with.
    void release(TagEntry& entry);

    /// Software has dealt with all unexpected messages, as far as it said.
    [[nodiscard]] bool is_in_step() const { return software_count_ == device_count_; }
    /// So many unexpected messages came since the counts last agreed that it is urgent.
    [[nodiscard]] bool is_overdue() const {
        return static_cast<std::uint16_t>(device_count_ - software_count_) > kUnsyncedMax;
    }
    [[nodiscard]] std::uint16_t unexpected_count() const { return device_count_; }
    /// Entries that are not free: what the limit is about.
    [[nodiscard]] std::uint32_t size() const { return in_use_; }
    [[nodiscard]] std::uint32_t entries_max() const { return entries_max_; }
    /// Active and waiting ones.
    [[nodiscard]] std::uint32_t posted() const { return posted_; }

  private:
    struct Waiting {
        std::uint32_t handle;
        std::uint32_t generation;
    };

    TagEntry& entry(std::uint32_t handle) { return entries_[handle]; }
    [[nodiscard]] bool is_waiting(const Waiting& waiting);
    void activate(TagEntry& entry);
    void activate_waiting();

    std::uint32_t entries_max_;
    std::uint32_t in_use_ = 0;
    std::uint16_t device_count_ = 0;    // unexpected tagged messages
    std::uint16_t software_count_ = 0;  // those that software has dealt with, as it said last
    std::uint32_t posted_ = 0;
    std::deque<TagEntry> entries_;  // by handle; they stay in place
    std::deque<std::uint32_t> free_;
    std::vector<Waiting> waiting_;  // in order of posting, among them some that were removed since
    ucs::PostedReceives active_;
};

}  // namespace tagwire::vhca
