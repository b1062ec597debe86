// SPDX-License-Identifier: BSD-3-Clause
// The list of a tag-matching SRQ: receives that the device holds (ibv_post_srq_ops(3)).
//
// An entry's life:
//
//   free -> adding (ADD posted) -> posted (ADD acknowledged) -> consumed (MATCH) -> free (DATA_VALID)
//                 |                    |
//                 +----- deleting (DEL posted): TM_DEL ok -> free, CANCELED
//                                              TM_ERR: the message won, its completion comes
//
// A message may match before the ADD was acknowledged, and both acknowledgements may come after the
// data: an entry is free again only when nothing of it is outstanding.
//
// Threads: owner of the interface.
// Invariants
//  (1) Entries in use <= depth(); one more is UCS_ERR_EXCEEDS_LIMIT. Operations outstanding on the
//      device <= ops_max: an ADD or DEL that finds none left is UCS_ERR_NO_RESOURCE... but one is
//      always left for SYNC.
//  (2) Every operation carries the count of unexpected messages that software has handled (16 bits,
//      wrapping): until the device's count is the same, an ADD does not match (the phase).
//  (3) The handle that ADD returned names the entry until it is consumed or deleted.
//  (4) completed exactly once: each entry ends by finish() with a real result or UCS_ERR_CANCELED,
//      unless it was cancelled by force: then nobody is told.
#pragma once

#include <infiniband/verbs.h>
#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "uct/ib/completion_queue.hpp"

namespace tagwire::ib {

struct TagEntry {
    enum class State : std::uint8_t { kFree, kAdding, kPosted, kConsumed, kDeleting };

    uct_tag_context_t* ctx;  // null: cancelled by force, or free
    void* buffer;
    std::size_t capacity;
    std::uint32_t lkey;
    std::uint32_t handle;     // of the device
    State state;
    std::uint8_t acks;        // ADD and DEL acknowledgements still to come
    bool forced;              // nobody is told
    std::uint32_t qp_num;     // of the MATCH completion; 0 before
    std::uint32_t app_ctx;    // of the MATCH completion
    std::uint32_t imm;
    std::uint32_t byte_len;
    std::uint64_t tag;        // of the message once consumed, before that of the receive
    std::uint64_t mask;
};

/// What a completion meant for the list.
struct TagEvent {
    enum class Kind : std::uint8_t {
        kNone,        // bookkeeping
        kConsumed,    // `entry` was matched, its data is still to come
        kArrived,     // `entry` has its data: byte_len, tag, app_ctx, imm of the message
        kIncomplete,  // `entry` was matched by a rendezvous that does not fit: TMH and RVH are in it
        kCanceled,    // `entry` was cancelled before a message came
        kFailed,      // `entry` will never get its data: `status`
    };
    Kind kind = Kind::kNone;
    TagEntry* entry = nullptr;
    bool was_consumed_now = false;  // kArrived: matched and complete in one completion
    ucs_status_t status = UCS_OK;
};

class TagList {
  public:
    /// `depth` receives; `ops_max` as the SRQ was created with.
    ucs_status_t open(ibv_srq* srq, unsigned depth, unsigned ops_max);

    /// Posts a receive. UCS_ERR_EXCEEDS_LIMIT: the list is full. UCS_ERR_ALREADY_EXISTS: a
    /// non-empty buffer at this address is in the list. UCS_ERR_NO_RESOURCE: no operation left.
    ucs_status_t add(uct_tag_t tag, uct_tag_t mask, void* buffer, std::size_t capacity,
                     std::uint32_t lkey, uct_tag_context_t* ctx);
    /// Not forced: kCanceled or a real result follows, once. Forced: nothing follows; the entry's
    /// buffer may still be written when a message matched it already. UCS_ERR_NO_ELEM: not in the
    /// list. UCS_ERR_NO_RESOURCE: no operation left.
    ucs_status_t cancel(uct_tag_context_t* ctx, bool forced);

    /// A completion of the SRQ that concerns the list: TM_ADD, TM_DEL, TM_SYNC, TM_RECV with
    /// IBV_WC_TM_MATCH or IBV_WC_TM_DATA_VALID, TM_RNDV_INCOMPLETE, TM_ERR.
    TagEvent handle(const Completion& completion);
    /// The entry of a kArrived, kIncomplete, kCanceled or kFailed event is done with.
    void finish(TagEntry& entry);

    /// One more unexpected tagged message was handled by software.
    void count_unexpected();
    /// The device asks for a SYNC (IBV_WC_TM_SYNC_REQ), or enough unexpected messages came since the
    /// last operation. Repeated from progress while no operation is left.
    void sync_if_needed() {
        if (sync_wanted_) [[unlikely]]
            sync();
    }

    /// Entries that were matched by a message of this queue pair and wait for its data, which will
    /// not come: calls `end(entry)` for each.
    template <class End>
    void fail_consumed(std::uint32_t qp_num, End&& end);
    /// Whether entries wait for data of this queue pair.
    [[nodiscard]] bool waits_for(std::uint32_t qp_num) const;
    /// Ends all entries at tear-down.
    template <class End>
    void take_all(End&& end);

    [[nodiscard]] unsigned depth() const { return static_cast<unsigned>(entries_.size()); }
    [[nodiscard]] unsigned size() const { return used_; }

  private:
    void sync();

    ibv_srq* srq_ = nullptr;
    unsigned ops_left_ = 0;
    unsigned used_ = 0;
    bool sync_wanted_ = false;
    std::uint16_t unexpected_ = 0;
    std::uint32_t since_sync_ = 0;
    std::vector<TagEntry> entries_;
    std::vector<std::uint32_t> free_;
    std::unordered_map<void*, TagEntry*> by_buffer_;
};

}  // namespace tagwire::ib
