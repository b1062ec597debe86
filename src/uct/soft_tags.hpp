// SPDX-License-Identifier: BSD-3-Clause
// Tag receives that software matches: those posted, those matched whose data is still to come, and
// those whose cancellation is to be reported. Every transport that matches in software has one
// SoftTags; it moves the data itself.
//
//            post()            match(), or taken over by adopt()
//   create() ------> posted -----------------------------------> matched --- complete() --> gone
//                      |                                            |
//                      | cancel                                     | forced: `if_matched` decides
//                      +--> cancelled --- report_cancelled() --> gone; at once when forced
//                               | forced: detached, and gone without a callback
//
// Threads: the owner thread of the interface only.
// Invariants
//  (1) A receive completes once: by complete(), by report_cancelled(), or without a callback when
//      it is cancelled by force.
//  (2) A buffer is in one posted or matched receive at a time; empty ones do not count.
//  (3) While a receive is ours its context's `priv` leads to it, and to nothing when it has ended:
//      a cancellation that comes late is refused. A device's list of tags may keep its own ticket
//      in the first bytes.
#pragma once

#include <uct/api/uct.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "ucs/datastruct/address_set.hpp"
#include "ucs/datastruct/tag_matcher.hpp"
#include "ucs/memory/mpool.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::uct {

/// One receive: all that a message which comes whole into one buffer needs, in one cache line. A
/// transport derives its record from it.
class SoftReceive : public ucs::PostedReceive {
  public:
    SoftReceive(uct_tag_t wanted, uct_tag_t wanted_mask, uct_tag_context_t* context, std::byte* to,
                std::size_t bytes)
        : ctx(context), buffer(to), room_(std::min(bytes, kBytesMask)) {
        tag = wanted;
        mask = wanted_mask;
    }

    uct_tag_context_t* ctx;  // null: cancelled by force after the match
    std::byte* buffer;       // where the data begins

    /// The program's, and read when it is matched (ucs/datastruct/tag_matcher_index.hpp).
    [[nodiscard]] const void* companion() const { return ctx; }
    [[nodiscard]] std::size_t capacity() const { return room_ & kBytesMask; }
    /// The receive is to complete: its data is on the way, or its cancellation is to be reported.
    [[nodiscard]] bool is_matched() const { return (room_ & kMatched) != 0; }
    /// The receive was cancelled, which is to be reported.
    [[nodiscard]] bool is_cancelled() const { return (room_ & kCancelled) != 0; }
    /// The buffer is among those in use.
    [[nodiscard]] bool holds_buffer() const { return capacity() != 0; }

    void set_matched() { room_ |= kMatched; }
    void set_cancelled() { room_ |= kCancelled; }
    /// The buffer is the program's again.
    void drop_buffer() { room_ &= ~kBytesMask; }

  protected:
    [[nodiscard]] bool has_extension() const { return (room_ & kExtended) != 0; }
    /// A flag of the transport's record: what it keeps behind this class is valid.
    void set_extension() { room_ |= kExtended; }

  private:
    static constexpr std::size_t kExtended = std::size_t{1} << 63;
    static constexpr std::size_t kMatched = std::size_t{1} << 62;
    static constexpr std::size_t kCancelled = std::size_t{1} << 61;
    static constexpr std::size_t kBytesMask = kCancelled - 1;

    std::size_t room_;
};
static_assert(sizeof(SoftReceive) == 64);

/// `Receive` derives from SoftReceive and is constructed from the same arguments.
template <class Receive>
class SoftTags {
  public:
    /// At most `depth` receives are posted at a time.
    ucs_status_t open(std::size_t depth, const char* pool_name) {
        constexpr unsigned kReceivesAtFirst = 256;
        depth_ = depth;
        if (!in_use_.reserve(kReceivesAtFirst))
            return UCS_ERR_NO_MEMORY;
        return receives_.init({.name = pool_name, .elements_per_chunk = kReceivesAtFirst});
    }

    // ---- Posting
    /// A receive that is to be posted or destroyed. UCS_ERR_EXCEEDS_LIMIT: `depth` are posted.
    /// UCS_ERR_ALREADY_EXISTS: a receive has this buffer. UCS_ERR_NO_MEMORY.
    ucs_status_t create(uct_tag_t tag, uct_tag_t mask, uct_tag_context_t* ctx, std::byte* buffer,
                        std::size_t bytes, Receive** receive_p) {
        if (posted_.size() >= depth_) [[unlikely]]
            return refuse(ctx, UCS_ERR_EXCEEDS_LIMIT);
        if (bytes != 0) [[likely]] {
            if (const ucs_status_t status = in_use_.insert(buffer); status != UCS_OK) [[unlikely]]
                return refuse(ctx, status);
        }
        Receive* receive = receives_.create(tag, mask, ctx, buffer, bytes);
        if (receive == nullptr) [[unlikely]]
            return refuse_buffer(ctx, buffer, bytes);
        *receive_p = receive;
        return UCS_OK;
    }
    void post(Receive& receive) {
        set_receive(*receive.ctx, &receive);
        posted_.post(receive);
    }
    /// A receive that a device matched, and whose data software moves; `ctx` may be null. Its
    /// buffer is not among those in use: the record's holds_buffer() is to say so.
    Receive* adopt(uct_tag_t tag, uct_tag_context_t* ctx, std::byte* buffer, std::size_t bytes) {
        Receive* receive = receives_.create(tag, ucs::kExactMask, ctx, buffer, bytes);
        if (receive == nullptr)
            return nullptr;
        receive->set_matched();
        if (ctx != nullptr)
            set_receive(*ctx, receive);
        return receive;
    }

    /// `ctx` is posted elsewhere: has() denies it until it is adopted.
    static void disown(uct_tag_context_t& ctx) { set_receive(ctx, nullptr); }

    // ---- Matching
    /// The earliest receive that matches, no longer posted: for a message that is complete()d
    /// before the program is called with anything but tag_consumed_cb. Null: none matches.
    Receive* match(uct_tag_t tag) { return static_cast<Receive*>(posted_.match(tag)); }
    /// As match(), for a message that completes later; the program was told that it is consumed.
    Receive* consume(uct_tag_t tag) {
        Receive* receive = match(tag);
        if (receive == nullptr)
            return nullptr;
        receive->set_matched();
        receive->ctx->tag_consumed_cb(receive->ctx);
        return receive;
    }

    // ---- Completion
    /// The end of a matched receive, which is gone; `bytes` as sent.
    [[gnu::always_inline]] void complete(Receive& receive, uct_tag_t tag, std::uint64_t imm,
                                         std::size_t bytes, ucs_status_t status) {
        uct_tag_context_t* ctx = receive.ctx;
        if (status == UCS_OK && bytes > receive.capacity()) [[unlikely]]
            status = UCS_ERR_MESSAGE_TRUNCATED;
        destroy(receive);
        if (ctx == nullptr) [[unlikely]]  // cancelled by force after the match
            return;
        set_receive(*ctx, nullptr);
        ctx->completed_cb(ctx, tag, imm, bytes, nullptr, status);
    }
    /// As complete(), when the message is a rendezvous that the program carries out itself.
    void complete_rndv(Receive& receive, uct_tag_t tag, const void* header, unsigned bytes) {
        uct_tag_context_t* ctx = receive.ctx;
        destroy(receive);
        if (ctx == nullptr)
            return;
        set_receive(*ctx, nullptr);
        ctx->rndv_cb(ctx, tag, header, bytes, UCS_OK, UCT_TAG_RECV_CB_INLINE_DATA);
    }
    /// match() and complete_rndv() in one: the program may post the buffer anew in both of its
    /// callbacks. False: no receive matches.
    bool give_rndv(uct_tag_t tag, const void* header, unsigned bytes) {
        Receive* receive = match(tag);
        if (receive == nullptr)
            return false;
        uct_tag_context_t* ctx = receive->ctx;
        destroy(*receive);
        set_receive(*ctx, nullptr);
        ctx->tag_consumed_cb(ctx);
        ctx->rndv_cb(ctx, tag, header, bytes, UCS_OK, UCT_TAG_RECV_CB_INLINE_DATA);
        return true;
    }
    /// Without a callback.
    void destroy(Receive& receive) {
        if (receive.holds_buffer()) [[likely]]
            in_use_.erase(receive.buffer);
        receives_.destroy(&receive);
    }

    // ---- Cancelling
    [[nodiscard]] bool has(const uct_tag_context_t& ctx) const {
        return receive_of(ctx) != nullptr;
    }
    /// uct_iface_tag_recv_cancel. UCS_ERR_NO_ELEM: it has ended. `if_matched(receive)` is called
    /// for a forced one whose data is on the way; when it returns UCS_OK it has let go of the
    /// context, by detach() or complete(). A receive that was cancelled before, and is not reported
    /// yet, is never given to it: report_cancelled() will destroy it.
    template <class IfMatched>
    ucs_status_t cancel(uct_tag_context_t& ctx, bool forced, IfMatched&& if_matched) {
        Receive* receive = receive_of(ctx);
        if (receive == nullptr)
            return UCS_ERR_NO_ELEM;
        if (receive->is_matched()) {
            if (!forced)
                return UCS_OK;  // its real completion replies
            ucs_status_t status = UCS_OK;
            if (receive->is_cancelled())
                detach(*receive);
            else
                status = if_matched(*receive);
            if (status == UCS_OK)
                set_receive(ctx, nullptr);
            return status;
        }
        posted_.cancel(*receive);
        if (forced) {
            set_receive(ctx, nullptr);
            destroy(*receive);
            return UCS_OK;
        }
        receive->set_matched();
        receive->set_cancelled();
        cancelled_.push_back(receive);
        return UCS_OK;
    }
    /// The rest of the data of a matched receive is dropped: context and buffer are the program's.
    void detach(Receive& receive) {
        receive.ctx = nullptr;
        if (receive.holds_buffer())
            in_use_.erase(receive.buffer);
        receive.drop_buffer();
    }
    [[nodiscard]] bool has_cancelled() const { return !cancelled_.empty(); }
    /// Runs the callbacks of cancelled receives; how many. They may cancel more, which wait for the
    /// next call.
    unsigned report_cancelled() {
        const ucs::ReserveVector<Receive*> receives = std::exchange(cancelled_, {});
        for (Receive* receive : receives) {
            complete(*receive, receive->tag & receive->mask, 0, receive->capacity(),
                     UCS_ERR_CANCELED);
        }
        return static_cast<unsigned>(receives.size());
    }

    [[nodiscard]] std::size_t posted() const { return posted_.size(); }
    [[nodiscard]] std::size_t depth() const { return depth_; }
    /// For tear-down: those that are posted or cancelled end without a callback.
    void destroy_all() {
        while (auto* receive = static_cast<Receive*>(posted_.take_any()))
            destroy(*receive);
        for (Receive* receive : std::exchange(cancelled_, {}))
            destroy(*receive);
    }

  private:
    // Behind the ticket of a device's list.
    static constexpr std::size_t kPlace = 8;
    static_assert(kPlace + sizeof(Receive*) <= UCT_TAG_PRIV_LEN);

    static void set_receive(uct_tag_context_t& ctx, Receive* receive) {
        std::memcpy(ctx.priv + kPlace, &receive, sizeof(Receive*));
    }
    static Receive* receive_of(const uct_tag_context_t& ctx) {
        Receive* receive;
        std::memcpy(&receive, ctx.priv + kPlace, sizeof(Receive*));
        return receive;
    }
    /// A context that is not posted leads to no receive: its cancellation is refused.
    [[gnu::noinline, gnu::cold]] static ucs_status_t refuse(uct_tag_context_t* ctx,
                                                            ucs_status_t status) {
        if (ctx != nullptr && status != UCS_ERR_ALREADY_EXISTS)
            set_receive(*ctx, nullptr);
        return status;
    }
    /// There is no memory for a receive whose buffer is in the set already.
    [[gnu::noinline, gnu::cold]] ucs_status_t refuse_buffer(uct_tag_context_t* ctx,
                                                            const void* buffer, std::size_t bytes) {
        if (bytes != 0)
            in_use_.erase(buffer);
        return refuse(ctx, UCS_ERR_NO_MEMORY);
    }

    std::size_t depth_ = 0;  // 0: none is taken
    ucs::PostedReceivesOf<SoftReceive> posted_;
    ucs::AddressSet in_use_;
    ucs::ObjectPool<Receive> receives_;
    ucs::ReserveVector<Receive*> cancelled_;
};

}  // namespace tagwire::uct
