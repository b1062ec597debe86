// SPDX-License-Identifier: BSD-3-Clause
// The receiving half of the tag tests: a set of receives, each with its own context, that are
// posted again and again.
//
// Invariants:
//  1. A slot is posted at most once at a time; its tag is that of the message that it waits for,
//  its length at least that message's (what the interface asks for, `min_recv`).
//  2. Every arrival is either the completion of a slot or, in --unexpected runs, one call of
//  on_unexpected().
//  3. A slot is one cache line and completing it reads nothing else of its own, since `match` has
//  very
//     many of them and would otherwise measure this class.
//  4. The destructor takes back what is still posted, by force: no callback comes later.
#pragma once

#include <uct/api/uct.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cli/failure.hpp"
#include "tools/huge_allocator.hpp"
#include "tools/link.hpp"
#include "tools/memory.hpp"
#include "tools/pattern.hpp"
#include "tools/posted.hpp"
#include "tools/sender.hpp"

namespace tagwire::tools {

class TagReceiver {
  public:
    TagReceiver(Link& link, const ReceiverOptions& options)
        : link_(link),
          options_(options),
          post_bytes_(std::max(options.size, link.attr().cap.tag.recv.min_recv)),
          stride_(stride(link, options)),
          buffer_(link, options.memory,
                  std::max(post_bytes_ + stride_ * (options.slots - 1), std::size_t{1})),
          slots_(options.slots),
          expected_(options.slots),
          posted_(options.slots) {
        for (Slot& slot : slots_) {
            slot.context.tag_consumed_cb = [](uct_tag_context_t*) {};
            slot.context.completed_cb = &TagReceiver::on_completed;
            slot.context.rndv_cb = &TagReceiver::on_software_rndv;
            slot.receiver = this;
        }
    }

    ~TagReceiver() {
        if (takes_unexpected_)
            link_.set_unexpected(nullptr, nullptr);
        on_received_ = nullptr;
        for (std::size_t i = 0; i < slots_.size(); ++i)
            if (posted_[i])
                take_back(i);
    }

    TagReceiver(const TagReceiver&) = delete;
    TagReceiver& operator=(const TagReceiver&) = delete;

    void set_on_received(OnReceived callback, void* arg) {
        on_received_ = callback;
        on_received_arg_ = arg;
    }

    /// A receive of `tag` for message `sequence`, which comes from that one of the peers in turn
    /// (kByArrival: from the first). Waits for resources; other refusals are Failures.
    Posted post(std::size_t index, uct_tag_t tag, std::uint64_t sequence,
                std::uint64_t ignore = 0) {
        for (;;) {
            const ucs_status_t status = begin(index, tag, sequence, ignore);
            if (status == UCS_OK)
                return Posted::kWaits;
            if (status != UCS_ERR_NO_RESOURCE) {
                throw Failure(
                    text("receive %zu cannot be posted: %s (the interface takes %zu at a time)",
                         index + 1, ucs_status_string(status),
                         link_.attr().cap.tag.recv.max_outstanding));
            }
            link_.progress();
        }
    }

    /// From inside OnReceived, where nothing may be thrown: any refusal but kNoResource counts as
    /// an error.
    Posted try_post(std::size_t index, uct_tag_t tag, std::uint64_t sequence) {
        const ucs_status_t status = begin(index, tag, sequence, 0);
        if (status != UCS_OK && status != UCS_ERR_NO_RESOURCE) [[unlikely]]
            ++errors_;
        return status == UCS_ERR_NO_RESOURCE ? Posted::kNoResource : Posted::kWaits;
    }

    /// No receives are posted: counts and checks messages without one.
    void take_unexpected() {
        takes_unexpected_ = true;
        link_.set_unexpected(&TagReceiver::on_unexpected, this);
    }

    std::uint64_t received() const { return received_; }
    std::uint64_t errors() const { return errors_; }
    std::uint8_t* data(std::size_t slot) const { return buffer_.data() + slot * stride_; }

  private:
    /// The message that one receive waits for.
    struct Expected {
        uct_iface_h iface;
        uct_tag_t tag;
        std::uint64_t sequence;  // for validation, or kByArrival
    };

    ucs_status_t begin(std::size_t index, uct_tag_t tag, std::uint64_t sequence,
                       std::uint64_t ignore) {
        const uct_iface_h iface = link_.interface(sequence == kByArrival ? 0 : sequence);
        const uct_iov_t iov{data(index), post_bytes_, buffer_.memh(), 0, 1};
        const ucs_status_t status =
            uct_iface_tag_recv_zcopy(iface, tag, ~ignore, &iov, 1, &slots_[index].context);
        posted_[index] = status == UCS_OK;
        if (status == UCS_OK)
            expected_[index] = {iface, tag, sequence};
        return status;
    }

    /// Handler for Link::set_unexpected: `arg` is the TagReceiver. A message may come in pieces.
    static ucs_status_t on_unexpected(void* arg, void* data, std::size_t length, unsigned flags,
                                      uct_tag_t, std::uint64_t, void**) {
        auto* self = static_cast<TagReceiver*>(arg);
        const bool first = (flags & UCT_CB_PARAM_FLAG_FIRST) != 0;
        const std::size_t offset = first ? 0 : self->collected_bytes_;
        if (self->options_.validate && offset <= self->buffer_.bytes() &&
            length <= self->buffer_.bytes() - offset) {
            std::memcpy(self->buffer_.data() + offset, data, length);
        }
        self->collected_bytes_ = offset + length;
        if ((flags & UCT_CB_PARAM_FLAG_MORE) == 0) {
            if (self->options_.validate)
                self->check_bytes(self->buffer_.data(), self->collected_bytes_, self->received_);
            ++self->received_;
        }
        return UCS_OK;
    }

    /// Distance between the slots' buffers: at least so much that no two begin at the same place,
    /// which is refused. Where software matches they lie close to each other, so that without
    /// validation few cache lines are written.
    static std::size_t stride(const Link& link, const ReceiverOptions& options) {
        constexpr std::size_t kLine = 64;
        const bool by_device = (link.md_attr().cap.flags & UCT_MD_FLAG_NEED_MEMH) != 0;
        const std::size_t lines = (options.size + kLine - 1) / kLine;
        return std::max(options.validate ? lines * kLine : 0,
                        by_device ? kLine : sizeof(uct_tag_t));
    }

    void take_back(std::size_t index) {
        constexpr unsigned kTriesMax = 1U << 20;
        for (unsigned i = 0; i < kTriesMax && posted_[index]; ++i) {
            const ucs_status_t status =
                uct_iface_tag_recv_cancel(expected_[index].iface, &slots_[index].context, 1);
            if (status != UCS_ERR_NO_RESOURCE && status != UCS_ERR_BUSY)
                return;
            uct_worker_progress(link_.worker());
        }
    }

    struct alignas(64) Slot {
        uct_tag_context_t context{};  // first: the callbacks get its address
        TagReceiver* receiver = nullptr;
    };
    static_assert(sizeof(Slot) == 64);

    void check_bytes(const void* data, std::size_t length, std::uint64_t sequence) {
        const bool right =
            length == options_.size && Pattern(options_.stream, sequence).matches(data, length);
        errors_ += right ? 0 : 1;
    }

    static void on_completed(uct_tag_context_t* context, uct_tag_t tag, std::uint64_t,
                             std::size_t length, void* inline_data, ucs_status_t status) {
        auto* slot = reinterpret_cast<Slot*>(context);
        TagReceiver* const self = slot->receiver;
        const auto index = static_cast<std::size_t>(slot - self->slots_.data());
        self->posted_[index] = false;
        if (status != UCS_OK || length != self->options_.size) [[unlikely]]
            ++self->errors_;
        else if (inline_data != nullptr)
            std::memcpy(self->data(index), inline_data, length);
        if (self->options_.validate) [[unlikely]] {
            const Expected& expected = self->expected_[index];
            self->errors_ += tag == expected.tag ? 0 : 1;
            self->check_bytes(
                self->data(index), length,
                expected.sequence == kByArrival ? self->received_ : expected.sequence);
        }
        ++self->received_;
        if (self->on_received_ != nullptr)
            self->on_received_(self->on_received_arg_, index);
    }

    static void on_software_rndv(uct_tag_context_t* context, uct_tag_t, const void*, unsigned,
                                 ucs_status_t, unsigned) {
        auto* slot = reinterpret_cast<Slot*>(context);
        TagReceiver* const self = slot->receiver;
        self->posted_[static_cast<std::size_t>(slot - self->slots_.data())] = false;
        ++self->errors_;  // no test sends such requests
    }

    Link& link_;
    ReceiverOptions options_;
    std::size_t post_bytes_;  // of one receive
    std::size_t stride_;
    Buffer buffer_;
    HugeVector<Slot> slots_;
    HugeVector<Expected> expected_;
    HugeVector<std::uint8_t> posted_;
    bool takes_unexpected_ = false;
    std::size_t collected_bytes_ = 0;  // of an unexpected message
    std::uint64_t received_ = 0;
    std::uint64_t errors_ = 0;
    OnReceived on_received_ = nullptr;
    void* on_received_arg_ = nullptr;
};

}  // namespace tagwire::tools
