// SPDX-License-Identifier: BSD-3-Clause
// Receive buffers of an interface and the shared receive queue that they are posted on, plain or
// tag matching.
//
// A buffer is a slot in a region that is aligned to uct::kDescRegionBytes (desc_region.hpp), so
// that the user can give a kept one back by its address:
//
//   region | header page | slot 0 | slot 1 | ...
//   slot   | pad | headroom | message: Prefix or TMH, data        |
//                           ^ posted address: (address + kPrefixBytes + offset) % alignment == 0
//
// Threads: owner of the interface.
// Invariants
//  (1) A slot is free, posted, or held (in a completion that is being handled, or by the user).
//  (2) posted() + what free slots allow is brought back to depth() by refill(), in chains of
//      kRefillBatch: one doorbell each.
//  (3) Regions outlive the queue while the user holds slots of them; the last release frees them.
#pragma once

#include <infiniband/verbs.h>
#include <ucs/type/status.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "uct/desc_region.hpp"
#include "uct/ib/ib_md.hpp"

namespace tagwire::ib {

struct ReceiveQueueParams {
    unsigned depth = 4096;           // buffers posted when all is well
    unsigned buffers_max = 0;        // in all, held ones included; at least depth
    std::size_t message_bytes = 0;   // the longest message, headers included
    std::size_t headroom = 0;
    std::size_t alignment = 1;       // of the data behind the prefix
    std::size_t align_offset = 0;
    unsigned tags = 0;               // > 0: a tag-matching SRQ with that many
    unsigned tag_ops = 0;            // outstanding list operations
    ibv_cq* cq = nullptr;            // of a tag-matching SRQ
    unsigned limit = 0;              // event when fewer are posted; 0: none
};

class ReceiveRegion;

class ReceiveQueue {
  public:
    /// What release of a kept slot tells: the credit that it held. `owner` is what take() was given.
    using Released = void (*)(void* arg, std::uint64_t owner);

    ReceiveQueue() = default;
    ~ReceiveQueue();
    ReceiveQueue(const ReceiveQueue&) = delete;
    ReceiveQueue& operator=(const ReceiveQueue&) = delete;

    /// UCS_ERR_EXCEEDS_LIMIT names the limit of the device; UCS_ERR_NO_MEMORY, UCS_ERR_IO_ERROR.
    ucs_status_t open(const IbMd& md, const ReceiveQueueParams& params, Released released,
                      void* arg);
    /// After the last queue pair is gone. Slots that the user holds stay valid.
    void close();

    [[nodiscard]] ibv_srq* srq() const { return srq_.get(); }
    [[nodiscard]] unsigned posted() const { return posted_; }
    [[nodiscard]] unsigned depth() const { return params_.depth; }

    /// The message of a receive completion: `wr_id` is that of the completion.
    [[nodiscard]] std::byte* message(std::uint64_t wr_id) const {
        return reinterpret_cast<std::byte*>(wr_id);
    }
    /// A completion with `wr_id` was polled: the slot is held.
    void consumed() { --posted_; }
    /// The slot of `message` is free again.
    void put_back(std::byte* message) { free_.push_back(message); }
    /// The user keeps the slot; uct_iface_release_desc() calls Released with `owner` and frees it.
    void keep(std::byte* message, std::uint64_t owner);

    /// Posts free slots when a batch of them is missing (`all`: any). UCS_ERR_IO_ERROR: the device
    /// refused (logged).
    ucs_status_t refill(bool all = false) {
        if (params_.depth - posted_ < kRefillBatch && !all) [[likely]]
            return UCS_OK;
        return post();
    }
    /// Arms the SRQ's limit event again after one was seen.
    void arm_limit();

  private:
    static constexpr unsigned kRefillBatch = 64;

    ucs_status_t post();
    bool grow();
    friend class ReceiveRegion;

    ReceiveQueueParams params_;
    const IbMd* md_ = nullptr;
    Released released_ = nullptr;
    void* arg_ = nullptr;
    OwnedSrq srq_{nullptr, nullptr};
    unsigned posted_ = 0;
    unsigned slots_ = 0;
    std::vector<std::byte*> free_;  // addresses of messages
    std::vector<ReceiveRegion*> regions_;
};

}  // namespace tagwire::ib
