// SPDX-License-Identifier: BSD-3-Clause
// The two halves of the tests at level msg: sends and receives by the public API, each completed
// one by one.
//
// 1. A send has no callback. Most end in their call; for the others a slot keeps the handle, and is
//    not used again before the send has ended.
// 2. A receive ends in its callback, or in the call that posts it when its message was there.
// 3. The destructors take back what has not ended: no callback comes later.
// 4. With a worker that several threads share, callbacks run in any of them, one at a time. Only
//    received() is for other threads meanwhile. Outside of callbacks a receive is posted while no
//    message for its receiver is under way.
#pragma once

#include <tagwire.h>
#include <uct/api/uct.h>
#include <tagwire_msg.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "cli/failure.hpp"
#include "tools/huge_allocator.hpp"
#include "tools/msg_link.hpp"
#include "tools/msg_memory.hpp"
#include "tools/pattern.hpp"
#include "tools/posted.hpp"
#include "tools/sender.hpp"

namespace tagwire::tools {

/// Progress until `done()`, but not for ever: what a failed peer keeps stays.
template <class Predicate>
void try_until(tw_worker_h worker, Predicate done) {
    constexpr unsigned kTriesMax = 1U << 20;
    for (unsigned i = 0; i < kTriesMax && !done(); ++i)
        tw_worker_progress(worker);
}

class MsgSender {
  public:
    MsgSender(MsgLink& link, const Job& job, std::uint64_t stream)
        : link_(link),
          size_(job.size),
          validate_(job.validate),
          stream_(stream),
          memory_(job.memory),
          fresh_(job),
          slots_(slots_of(job)),
          buffer_(link.context(), job.memory, buffer_bytes(job, slots_.size())) {
        if (job.memory == MemoryKind::kMapped)
            op_.mem = more_.mem = buffer_.handle();
        more_.flags = TW_OP_MORE;
        for (std::size_t i = 0; i < slots_.size(); ++i)
            slots_[i].data = buffer_.data() + i * stride_of(job);
    }

    ~MsgSender() {
        for (Slot& slot : slots_) {
            if (slot.request != nullptr) {
                tw_request_cancel(slot.request);
                try_until(link_.worker(), [&] { return has_ended(slot); });
            }
        }
    }

    MsgSender(const MsgSender&) = delete;
    MsgSender& operator=(const MsgSender&) = delete;

    /// UCS_OK or UCS_ERR_NO_RESOURCE, as Sender::try_send(). `has_more`: another one follows at
    /// once.
    ucs_status_t send_tagged(std::uint64_t sequence, std::uint64_t tag, bool has_more = false) {
        return try_post(
            sequence, "tw_tag_send",
            [this, tag](std::uint8_t* data, const tw_op_t* op, tw_request_h* request) {
                return memory_ == MemoryKind::kList
                           ? send_list(data, tag, op, request)
                           : tw_tag_send(link_.endpoint(), data, size_, tag, op, request);
            },
            has_more);
    }

    /// As send_tagged(), by post(data, op, request), which is the call named `call`. `op` has the
    /// handle of kMapped data, and TW_OP_MORE if another one of the same window follows at once;
    /// else it is null.
    template <class Post>
    ucs_status_t try_post(std::uint64_t sequence, const char* call, Post post,
                          bool has_more = false) {
        Slot& slot = slots_[next_];
        if (slot.request != nullptr && !has_ended(slot))
            return UCS_ERR_NO_RESOURCE;
        if (validate_) [[unlikely]]
            Pattern(stream_, sequence).fill(slot.data, size_);
        fresh_.write(sequence, slot.data);
        const bool is_last = !has_more || next_ + 1 == slots_.size();
        const tw_op_t* const plain = op_.mem == nullptr ? nullptr : &op_;
        const tw_status_t status = post(slot.data, is_last ? plain : &more_, &slot.request);
        if (status >= 0) [[likely]] {
            if (++next_ == slots_.size())
                next_ = 0;
            return UCS_OK;
        }
        if (status != TW_ERR_NO_RESOURCE) [[unlikely]]
            throw Failure(text("%s: %s", call, tw_status_string(status)));
        return UCS_ERR_NO_RESOURCE;
    }

    /// As Sender::refresh().
    void refresh(std::uint64_t sequence) { fresh_.write(sequence, slots_[next_].data); }

    void drain() {
        for (Slot& slot : slots_)
            link_.wait_until([&] { return slot.request == nullptr || has_ended(slot); });
    }

    /// Whether all that was sent has ended, without progress.
    bool has_ended() {
        return std::ranges::all_of(
            slots_, [this](Slot& slot) { return slot.request == nullptr || has_ended(slot); });
    }

    std::uint64_t errors() const { return errors_; }
    std::size_t size() const { return size_; }
    tw_ep_h endpoint() const { return link_.endpoint(); }

  private:
    struct Slot {
        tw_request_h request = nullptr;  // of a send that has not ended
        std::uint8_t* data = nullptr;
    };

    tw_status_t send_list(std::uint8_t* data, std::uint64_t tag, const tw_op_t* op,
                          tw_request_h* request) {
        const std::size_t half = size_ / 2;
        const tw_iov_t pieces[] = {{data, half}, {data + half, size_ - half}};
        return tw_tag_sendv(link_.endpoint(), pieces, 2, tag, op, request);
    }

    bool has_ended(Slot& slot) {
        const tw_status_t status = tw_request_test(slot.request, nullptr);
        if (status == TW_INPROGRESS)
            return false;
        errors_ += status == TW_OK ? 0 : 1;
        tw_request_free(slot.request);
        slot.request = nullptr;
        return true;
    }

    MsgLink& link_;
    std::size_t size_;
    bool validate_;
    std::uint64_t stream_;
    MemoryKind memory_;
    FreshData fresh_;
    std::vector<Slot> slots_;
    MsgMemory buffer_;
    tw_op_t op_{};
    tw_op_t more_{};
    std::size_t next_ = 0;
    std::uint64_t errors_ = 0;
};

class MsgReceiver {
  public:
    MsgReceiver(MsgLink& link, const ReceiverOptions& options)
        : link_(link),
          options_(options),
          stride_(options.validate ? (options.size + 63) / 64 * 64 : 0),
          buffer_(link.context(), options.memory, options.size + stride_ * (options.slots - 1)),
          slots_(options.slots) {
        op_.mem = buffer_.handle();
        op_.complete = &MsgReceiver::on_complete;
        op_.info = &info_;
        for (Slot& slot : slots_)
            slot.receiver = this;
    }

    ~MsgReceiver() {
        is_closing_ = true;
        for (Slot& slot : slots_)
            if (slot.request != nullptr)
                tw_request_cancel(slot.request);
        try_until(link_.worker(), [this] { return posted_ == 0; });
    }

    MsgReceiver(const MsgReceiver&) = delete;
    MsgReceiver& operator=(const MsgReceiver&) = delete;

    void set_on_received(OnReceived callback, void* arg) {
        on_received_ = callback;
        on_received_arg_ = arg;
    }

    /// A receive of `tag`, for message `sequence` (kByArrival: as many as came before). kHasCome:
    /// it has ended and is counted, and the callback was not called. Other refusals than
    /// kNoResource are errors that are counted.
    Posted try_post(std::size_t index, std::uint64_t tag, std::uint64_t sequence,
                    std::uint64_t ignore = 0) {
        Slot& slot = slots_[index];
        op_.context = &slot;
        const tw_status_t status = tw_tag_recv(link_.worker(), data(index), options_.size, tag,
                                               ignore, &op_, &slot.request);
        if (status == TW_ERR_NO_RESOURCE) [[unlikely]]
            return Posted::kNoResource;
        slot.tag = tag;
        slot.sequence = sequence;
        if (status == TW_INPROGRESS) [[likely]] {
            ++posted_;
            return Posted::kWaits;
        }
        count(slot, msg::completion_of(status, info_, options_.size));
        return Posted::kHasCome;
    }

    /// Outside of callbacks; no resources is a Failure.
    Posted post(std::size_t index, std::uint64_t tag, std::uint64_t sequence,
                std::uint64_t ignore = 0) {
        const Posted posted = try_post(index, tag, sequence, ignore);
        if (posted == Posted::kNoResource) {
            throw Failure(
                text("receive %zu cannot be posted: the worker has no more requests (tagwire info "
                     "config lists the option that sets their number)",
                     index + 1));
        }
        return posted;
    }

    /// SYNC received(msg_receiver): pairs with count(). Data and completion of so many are visible.
    std::uint64_t received() const { return received_.load(std::memory_order_acquire); }
    std::uint64_t errors() const { return errors_; }
    std::uint8_t* data(std::size_t slot) const { return buffer_.data() + slot * stride_; }

  private:
    struct Slot {
        tw_request_h request = nullptr;  // of a receive that has not ended
        MsgReceiver* receiver = nullptr;
        std::uint64_t tag = 0;
        std::uint64_t sequence = 0;
    };

    void count(Slot& slot, const tw_completion_t& done) {
        if (done.status != TW_OK || done.message_length != options_.size) [[unlikely]] {
            ++errors_;
        } else if (options_.validate) [[unlikely]] {
            const std::uint64_t sequence = slot.sequence == kByArrival
                                               ? received_.load(std::memory_order_relaxed)
                                               : slot.sequence;
            const bool is_right =
                done.tag == slot.tag &&
                Pattern(options_.stream, sequence)
                    .matches(data(static_cast<std::size_t>(&slot - slots_.data())), options_.size);
            errors_ += is_right ? 0 : 1;
        }
        // SYNC received(msg_receiver): pairs with received(). One thread writes at a time, so no
        // atomic addition is needed.
        received_.store(received_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }

    static void on_complete(const tw_completion_t* done) {
        Slot& slot = *static_cast<Slot*>(done->context);
        MsgReceiver& self = *slot.receiver;
        slot.request = nullptr;
        --self.posted_;
        if (self.is_closing_) [[unlikely]]
            return;
        self.count(slot, *done);
        if (self.on_received_ != nullptr) {
            self.on_received_(self.on_received_arg_,
                              static_cast<std::size_t>(&slot - self.slots_.data()));
        }
    }

    MsgLink& link_;
    ReceiverOptions options_;
    std::size_t stride_;
    MsgMemory buffer_;
    HugeVector<Slot> slots_;
    tw_op_t op_{};
    tw_message_info_t info_{};  // of a receive that ended in its call
    std::size_t posted_ = 0;
    std::atomic<std::uint64_t> received_ = 0;
    std::uint64_t errors_ = 0;
    bool is_closing_ = false;
    OnReceived on_received_ = nullptr;
    void* on_received_arg_ = nullptr;
};

}  // namespace tagwire::tools
