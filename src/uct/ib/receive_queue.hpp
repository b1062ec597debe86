// SPDX-License-Identifier: BSD-3-Clause
// Receive buffers of an interface and the shared receive queue that they are posted on, plain or
// tag matching.
//
// A buffer is a slot in a region that is aligned to uct::kDescRegionBytes (desc_region.hpp), so
// that the user can give a kept one back by any address in it:
//
//   region | header and owners, whole pages | slot 0 | slot 1 | ...
//   slot   | pad | headroom | message: Prefix or TMH, data        |
//                           ^ posted address: (address + front_bytes + offset) % alignment == 0
//
// Threads: owner of the interface.
// Invariants
//  (1) A slot is free, posted, or held (in a completion that is being handled, or by the user).
//  (2) posted() + what free slots allow is brought back to wanted() by refill(), in chains of at
//      most kRefillBatch: one doorbell each. Buffers come back in turn, so the fewer are wanted,
//      the fewer lines of a cache the messages of a ping-pong go through.
//  (3) Regions outlive the queue while the user holds slots of them; the last release frees them.
//  (4) Nothing here allocates but refill() and want() when they need more slots than there ever
//      were.
#pragma once

#include <infiniband/verbs.h>
#include <ucs/type/status.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ucs/memory/reserve.hpp"
#include "uct/desc_region.hpp"
#include "uct/ib/ib_md.hpp"
#include "uct/ib/message.hpp"

namespace tagwire::ib {

struct ReceiveQueueParams {
    unsigned depth = 4096;                   // buffers posted at most
    unsigned wanted = 0;                     // of them at first; 0: all
    unsigned buffers_max = 0;                // in all, held ones included; at least depth
    std::size_t message_bytes = 0;           // the longest message, headers included
    std::size_t front_bytes = kPrefixBytes;  // of a message in front of its data
    std::size_t headroom = 0;
    std::size_t alignment = 1;  // of the data; a power of two
    std::size_t align_offset = 0;
    unsigned tags = 0;        // > 0: a tag-matching SRQ with that many
    unsigned tag_ops = 0;     // outstanding list operations
    ibv_cq* cq = nullptr;     // of a tag-matching SRQ, extended
    unsigned limit = 0;       // event when fewer of `depth` are posted; 0: none
    void* context = nullptr;  // the mailbox of its asynchronous events
    /// Gets why the device makes no SRQ like that, instead of the log; null: logged.
    std::string* refusal_p = nullptr;
};

class ReceiveRegion;

/// The owner of a message that came from nobody we know.
inline constexpr std::uint64_t kUnknownOwner = UINT64_MAX - 1;

class ReceiveQueue {
  public:
    /// Reports the release of a kept slot, and so of the credit that it held. `owner` is the value
    /// given to keep().
    using Released = void (*)(void* arg, std::uint64_t owner);

    ReceiveQueue() = default;
    ~ReceiveQueue() { close(); }
    ReceiveQueue(const ReceiveQueue&) = delete;
    ReceiveQueue& operator=(const ReceiveQueue&) = delete;

    /// The first `wanted` buffers are posted. UCS_ERR_INVALID_PARAM; UCS_ERR_EXCEEDS_LIMIT names
    /// the limit of the device; UCS_ERR_NO_MEMORY, UCS_ERR_IO_ERROR (all logged).
    ucs_status_t open(const IbMd& md, const ReceiveQueueParams& params, Released released,
                      void* arg);
    /// After the last queue pair is gone, before the domain. Slots that the user holds stay valid,
    /// and Released is not called for them any more.
    void close();

    [[nodiscard]] ibv_srq* srq() const { return srq_.get(); }
    [[nodiscard]] unsigned posted() const { return posted_; }
    /// Buffers that are posted when all is well.
    [[nodiscard]] unsigned wanted() const { return std::min(wanted_, params_.depth); }
    /// Slots that the user keeps.
    [[nodiscard]] unsigned kept() const { return kept_; }

    /// The message of a receive completion: `wr_id` is that of the completion.
    [[nodiscard]] std::byte* message(std::uint64_t wr_id) const {
        return reinterpret_cast<std::byte*>(wr_id);
    }
    /// Whether `message` is a slot of this queue.
    [[nodiscard]] bool owns(const std::byte* message) const {
        const void* region = uct::desc_region_of(const_cast<std::byte*>(message));
        for (const ReceiveRegion* own : regions_)
            if (own == region)
                return true;
        return false;
    }
    /// A completion with `wr_id` was polled: the slot is held.
    void consumed() { --posted_; }
    /// The slot of `message` is free again.
    void put_back(std::byte* message) { free_[free_count_++] = message; }
    /// The user keeps the slot; uct_iface_release_desc() calls Released with `owner` and frees it.
    void keep(std::byte* message, std::uint64_t owner);

    /// Posts free slots when a batch of them is missing (`all`: any). UCS_ERR_NO_MEMORY,
    /// UCS_ERR_IO_ERROR: the device refused (both logged).
    ucs_status_t refill(bool all = false) {
        if (posted_ + batch_ > target_ && !all) [[likely]]
            return UCS_OK;
        return post_missing(all ? 1 : batch_);
    }
    /// Allows `more` messages more before the next refill, and posts that many more buffers at
    /// once, within the depth. Errors as of refill(); then no more are wanted.
    ucs_status_t want(unsigned more);
    /// Twice as many as are wanted, never more than the depth: what many such calls ask for is
    /// bounded. Errors as of want().
    ucs_status_t want_twice() {
        const unsigned room = params_.depth - wanted();
        return room == 0 ? UCS_OK : want(std::min(wanted(), room));
    }
    /// Allows `less` messages fewer: posted buffers stay until messages have taken them.
    void want_less(unsigned less);
    /// Arms the SRQ's limit event again after one was seen: when more than that are posted, since
    /// one that is armed before fires at once, again and again while the user keeps buffers.
    void arm_limit();

  private:
    static constexpr unsigned kRefillBatch = 64;
    friend class ReceiveRegion;

    [[nodiscard]] ucs_status_t check() const;
    ucs_status_t create_srq();
    ucs_status_t post_missing(unsigned batch_min);
    ucs_status_t post(unsigned count);
    void set_target();
    bool grow();
    /// As many are low: the same share of what is wanted as of the depth.
    [[nodiscard]] unsigned limit() const {
        return std::max(params_.limit * target_ / params_.depth, 1U);
    }
    void lay_out();
    void release(std::byte* message, std::uint64_t owner);

    ReceiveQueueParams params_;
    const IbMd* md_ = nullptr;
    Released released_ = nullptr;
    void* arg_ = nullptr;
    OwnedSrq srq_{nullptr, nullptr};
    unsigned batch_ = 1;   // that is worth a doorbell
    unsigned wanted_ = 0;  // may be more than the depth
    unsigned target_ = 0;  // of posted_
    unsigned posted_ = 0;
    unsigned slots_ = 0;
    unsigned kept_ = 0;
    bool is_limit_owed_ = false;      // to be armed when more are posted
    std::size_t message_offset_ = 0;  // in a slot
    std::size_t stride_ = 0;
    std::vector<std::byte*> free_;  // places for all; addresses of messages, the warmest last
    std::size_t free_count_ = 0;
    bool has_told_ = false;  // that there is no memory
    ucs::ReserveVector<ReceiveRegion*> regions_;
    std::array<ibv_recv_wr, kRefillBatch> chain_;  // linked, each with its gather element
    std::array<ibv_sge, kRefillBatch> elements_;
};

}  // namespace tagwire::ib
