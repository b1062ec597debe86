// SPDX-License-Identifier: BSD-3-Clause
// The posting half of every test: data, a window of completions, and the peers in turn.
//
// Invariants:
//  1. At most `window` operations with a completion are outstanding; slot i is busy from post to
//  completion.
//  2. Without validation all messages are the same bytes at the same place. With validation, or
//     with fresh data, every slot has its own bytes, filled for its message and left alone while
//     busy.
//  3. An operation that is refused for lack of resources changes nothing: the same sequence number
//  is tried again.
#pragma once

#include <uct/api/uct.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cli/failure.hpp"
#include "tools/link.hpp"
#include "tools/memory.hpp"
#include "tools/pattern.hpp"

namespace tagwire::tools {

/// Whether each slot of the sender has its own bytes.
inline bool has_own_bytes(const Job& job) {
    return job.validate || job.data == DataKind::kFresh;
}

/// The job of a sender whose operations bring bytes back, or have none: there is nothing to fill.
inline Job without_data(Job job) {
    job.validate = false;
    return job;
}

/// The same of gets. Validated ones follow each other: each finds its bytes as it left them.
inline Job one_by_one(Job job) {
    job.window = job.validate ? 1 : job.window;
    return without_data(job);
}

/// Slots that the sender of such bytes cycles through: the window, unless that many messages would
/// need much memory.
inline std::size_t slots_of(const Job& job) {
    constexpr std::uint64_t kOwnBytesMax = 64 << 20;
    if (!has_own_bytes(job) || job.size == 0)
        return job.window;
    return std::clamp<std::uint64_t>(kOwnBytesMax / job.size, 1, job.window);
}

/// Distance between the slots' messages.
inline std::size_t stride_of(const Job& job) {
    return has_own_bytes(job) ? (job.size + 63) / 64 * 64 : 0;
}

/// Room for all slots' messages.
inline std::size_t buffer_bytes(const Job& job, std::size_t slots) {
    return has_own_bytes(job) ? stride_of(job) * slots : job.size;
}

/// Writes the bytes of a message once for each sequence number, however often it is tried.
class FreshData {
  public:
    explicit FreshData(const Job& job) : size_(job.size), on_(job.data == DataKind::kFresh) {}

    void write(std::uint64_t sequence, std::uint8_t* data) {
        if (on_ && written_ != sequence + 1) [[unlikely]] {
            written_ = sequence + 1;
            store(sequence, data);
        }
    }

  private:
    /// Words that differ, so that no compiler makes a memset() of it, which may bypass the caches.
    void store(std::uint64_t sequence, std::uint8_t* data) const {
        std::size_t offset = 0;
        for (; offset + sizeof sequence <= size_; offset += sizeof sequence) {
            const std::uint64_t word = sequence + offset;
            std::memcpy(data + offset, &word, sizeof word);
        }
        std::memcpy(data + offset, &sequence, size_ - offset);
    }

    std::size_t size_;
    bool on_;
    std::uint64_t written_ = 0;  // the last sequence number and 1
};

/// Data that a pack callback copies.
struct Packed {
    const void* data;
    std::size_t length;

    static std::size_t pack(void* destination, void* arg) {
        const auto* packed = static_cast<const Packed*>(arg);
        std::memcpy(destination, packed->data, packed->length);
        return packed->length;
    }
};

/// The status of a call that returns packed bytes or an error.
inline ucs_status_t status_of(ssize_t packed) {
    return packed >= 0 ? UCS_OK : static_cast<ucs_status_t>(packed);
}

/// The status of a call that returns a handle, or an error in its place.
inline ucs_status_t status_of(ucs_status_ptr_t handle) {
    if (UCS_PTR_IS_ERR(handle))
        return UCS_PTR_STATUS(handle);
    return handle == nullptr ? UCS_OK : UCS_INPROGRESS;
}

class Sender {
  public:
    Sender(Link& link, const Job& job, std::uint64_t stream)
        : link_(link),
          size_(job.size),
          stride_(stride_of(job)),
          validate_(job.validate),
          stream_(stream),
          fresh_(job),
          slots_(slots_of(job)),
          buffer_(link, job.memory, buffer_bytes(job, slots_.size())) {
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            slots_[i].sender = this;
            slots_[i].data = buffer_.data() + i * stride_;
        }
    }

    /// `post(ep, data, completion)` starts message `sequence`. Returns UCS_OK when it was started
    /// or done, or UCS_ERR_NO_RESOURCE; other errors are Failures.
    template <bool kCompletes, class Post>
    ucs_status_t try_send(std::uint64_t sequence, Post post) {
        Slot& slot = slots_[next_slot_];
        if constexpr (kCompletes) {
            if (slot.busy)
                return UCS_ERR_NO_RESOURCE;
            slot.completion.func = &Sender::on_complete;
            slot.completion.count = 1;
            slot.completion.status = UCS_OK;
            slot.busy = true;
            ++outstanding_;
        }
        if (validate_) [[unlikely]]
            Pattern(stream_, sequence).fill(slot.data, size_);
        fresh_.write(sequence, slot.data);
        const ucs_status_t status = post(link_.endpoint(next_peer_), slot.data, &slot.completion);
        if constexpr (kCompletes) {
            if (status != UCS_INPROGRESS) {
                slot.busy = false;
                --outstanding_;
            }
        }
        if (status == UCS_OK || status == UCS_INPROGRESS) {
            advance();
            return UCS_OK;
        }
        if (status != UCS_ERR_NO_RESOURCE) [[unlikely]]
            throw Failure(text("the transport refused a message: %s", ucs_status_string(status)));
        return status;
    }

    /// Writes the bytes of the next message, whose slot is not busy.
    void refresh(std::uint64_t sequence) { fresh_.write(sequence, slots_[next_slot_].data); }

    std::size_t outstanding() const { return outstanding_; }
    std::uint64_t errors() const { return errors_; }
    std::size_t size() const { return size_; }
    const Buffer& buffer() const { return buffer_; }

    void drain() {
        link_.wait_until([this] { return outstanding_ == 0; });
    }

  private:
    struct Slot {
        uct_completion_t completion{};  // first: the callback gets its address
        Sender* sender = nullptr;
        std::uint8_t* data = nullptr;
        bool busy = false;
    };

    static void on_complete(uct_completion_t* completion) {
        auto* slot = reinterpret_cast<Slot*>(completion);
        Sender* const self = slot->sender;
        slot->busy = false;
        --self->outstanding_;
        if (completion->status != UCS_OK)
            ++self->errors_;
    }

    void advance() {
        if (++next_slot_ == slots_.size())
            next_slot_ = 0;
        if (++next_peer_ == link_.peers())
            next_peer_ = 0;
    }

    Link& link_;
    std::size_t size_;
    std::size_t stride_;
    bool validate_;
    std::uint64_t stream_;
    FreshData fresh_;
    std::vector<Slot> slots_;
    Buffer buffer_;
    std::size_t next_slot_ = 0;
    std::size_t next_peer_ = 0;
    std::size_t outstanding_ = 0;
    std::uint64_t errors_ = 0;
};

}  // namespace tagwire::tools
