// SPDX-License-Identifier: BSD-3-Clause
// Posted receives, matched by the device or here, and rendezvous.
#include <cstring>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "uct/ib/rc/rc_iface.hpp"

namespace tagwire::rc {

using ib::SendOp;
using ib::TagEntry;
using ib::TagEvent;

namespace {

/// What a posted receive's context carries while software has it. While the device has it,
/// TagList's ticket lies there: an index of at most 24 bits where the magic has its lower half.
struct SoftPriv {
    std::uint64_t magic;
    SoftReceive* receive;
};
static_assert(sizeof(SoftPriv) <= UCT_TAG_PRIV_LEN);
constexpr std::uint64_t kSoftMagic = 0x7477'7263'736f'6674;
static_assert((kSoftMagic & UINT32_MAX) > 1 << 24, "RC_TAG_DEPTH at most");

SoftReceive* soft_of(const uct_tag_context_t* ctx) {
    SoftPriv priv;
    std::memcpy(&priv, ctx->priv, sizeof priv);
    return priv.magic == kSoftMagic ? priv.receive : nullptr;
}

void set_soft(uct_tag_context_t* ctx, SoftReceive* receive) {
    const SoftPriv priv{receive == nullptr ? 0 : kSoftMagic, receive};
    std::memcpy(ctx->priv, &priv, sizeof priv);
}

}  // namespace

// ---- Posting

ucs_status_t RcIface::tag_recv_zcopy(uct_tag_t tag, uct_tag_t mask, const uct_iov_t* iov,
                                     std::size_t iovcnt, uct_tag_context_t* ctx) {
    if (!has_tag_callbacks())
        return UCS_ERR_UNSUPPORTED;
    ibv_sge target{};
    if (iovcnt == 1 && iov->count == 1 && iov->memh != nullptr && iov->length <= rndv_bytes_max_)
        [[likely]] {
        target.length = static_cast<std::uint32_t>(iov->length);
        target.lkey = ib::registration_of(iov->memh).mr->lkey;
    } else {
        ib::Gather gather;
        const ucs_status_t status = gather.add("tag_recv_zcopy", iov, iovcnt, 1, rndv_bytes_max_);
        if (status != UCS_OK)
            return status;
        if (gather.count > 0)
            target = gather.sges[0];
    }
    const std::size_t capacity = target.length;
    if (capacity < receive_bytes_min_) [[unlikely]]
        return refuse_receive(capacity);
    void* buffer = capacity == 0 ? nullptr : iov->buffer;
    const std::uint32_t lkey = target.lkey;
    if (has_device_tags_)
        return tag_list_.add(tag, mask, buffer, capacity, lkey, ctx);
    if (posted_.size() >= options_.tag_depth) [[unlikely]]
        return UCS_ERR_EXCEEDS_LIMIT;
    SoftReceive* receive = new_receive(ctx, buffer, capacity, lkey);
    if (receive == nullptr) [[unlikely]]
        return UCS_ERR_NO_MEMORY;
    receive->tag = tag;
    receive->mask = mask;
    posted_.post(*receive);
    return UCS_OK;
}

ucs_status_t RcIface::refuse_receive(std::size_t capacity) const {
    TW_LOG_ERROR(
        "tag_recv_zcopy: a buffer of %zu bytes is below cap.tag.recv.min_recv, %zu: a longer eager "
        "message would break the connection (see TAGWIRE_RC_SEG_BYTES)",
        capacity, receive_bytes_min_);
    return UCS_ERR_INVALID_PARAM;
}

SoftReceive* RcIface::new_receive(uct_tag_context_t* ctx, void* buffer, std::size_t capacity,
                                  std::uint32_t lkey) {
    SoftReceive* receive = soft_receives_.create();
    if (receive == nullptr)
        return nullptr;
    receive->ctx = ctx;
    receive->buffer = static_cast<std::byte*>(buffer);
    receive->capacity = capacity;
    receive->lkey = lkey;
    receive->is_matched = false;
    if (ctx != nullptr)
        set_soft(ctx, receive);
    return receive;
}

ucs_status_t RcIface::tag_recv_cancel(uct_tag_context_t* ctx, int force) {
    SoftReceive* receive = soft_of(ctx);
    if (receive == nullptr)
        return has_device_tags_ ? tag_list_.cancel(ctx, force != 0) : UCS_ERR_NO_ELEM;
    if (receive->is_matched) {
        // Its message is on the way. Unless nobody wants to hear of it, its real end is the answer.
        if (force != 0) {
            set_soft(ctx, nullptr);
            receive->ctx = nullptr;
        }
        return UCS_OK;
    }
    posted_.cancel(*receive);
    if (force != 0) {
        set_soft(ctx, nullptr);
        soft_receives_.destroy(receive);
        return UCS_OK;
    }
    receive->is_matched = true;
    cancelled_.push_back(receive);
    has_work_ = true;
    return UCS_OK;
}

unsigned RcIface::report_cancelled() {
    unsigned reported = 0;
    while (!cancelled_.empty()) {
        SoftReceive* receive = cancelled_.back();
        cancelled_.pop_back();
        complete(*receive, receive->tag, 0, 0, UCS_ERR_CANCELED);
        ++reported;
    }
    return reported;
}

// The earliest receive that matches, told that it is consumed. Where the device matches, what comes
// here has been looked at already.
SoftReceive* RcIface::match(uct_tag_t tag) {
    if (has_device_tags_)
        return nullptr;
    auto* receive = static_cast<SoftReceive*>(posted_.match(tag));
    if (receive == nullptr)
        return nullptr;
    receive->is_matched = true;
    receive->ctx->tag_consumed_cb(receive->ctx);
    return receive;
}

void RcIface::complete(SoftReceive& receive, uct_tag_t tag, std::uint64_t imm, std::size_t bytes,
                       ucs_status_t status) {
    uct_tag_context_t* ctx = receive.ctx;
    if (status == UCS_OK && bytes > receive.capacity)
        status = UCS_ERR_MESSAGE_TRUNCATED;
    soft_receives_.destroy(&receive);
    count(RcCounter::kMatched);
    if (ctx == nullptr)
        return;
    set_soft(ctx, nullptr);
    ctx->completed_cb(ctx, tag, imm, bytes, nullptr, status);
}

// ---- What the device matched

void RcIface::tag_event(const ib::Completion& completion) {
    const TagEvent event = tag_list_.handle(completion);
    if (event.kind == TagEvent::Kind::kNone && !event.was_consumed_now)
        return;
    RcEp* ep = of_qp(event.entry == nullptr ? completion.qp_num : event.entry->qp_num);
    if (event.was_consumed_now && ep != nullptr) {
        ep->was_heard_ = true;
        release_credit(*ep);
    }
    if (event.was_consumed_now && event.entry != nullptr && !event.entry->forced)
        event.entry->ctx->tag_consumed_cb(event.entry->ctx);
    switch (event.kind) {
        case TagEvent::Kind::kArrived:
            arrived(*event.entry);
            break;
        case TagEvent::Kind::kIncomplete:
            go_on(*event.entry, ep);
            break;
        case TagEvent::Kind::kCanceled:
            end_entry(*event.entry, UCS_ERR_CANCELED);
            break;
        case TagEvent::Kind::kFailed:
            end_entry(*event.entry, event.status);
            if (ep != nullptr)
                fail(*ep, UCS_ERR_CONNECTION_RESET);
            break;
        default:
            break;
    }
}

void RcIface::end_entry(TagEntry& entry, ucs_status_t status) {
    uct_tag_context_t* ctx = entry.ctx;
    const uct_tag_t tag = entry.tag;
    tag_list_.finish(entry);
    if (ctx != nullptr)
        ctx->completed_cb(ctx, tag, 0, 0, nullptr, status);
}

// A rendezvous that does not fit: its headers lie in the buffer, and the rest is ours.
void RcIface::go_on(TagEntry& entry, RcEp* ep) {
    const TagEntry message = entry;
    tag_list_.finish(entry);
    ibv_tmh head{};
    ibv_rvh from{};
    const bool is_whole = message.byte_len >= sizeof head + sizeof from &&
                          message.capacity >= sizeof head + sizeof from;
    if (message.forced) {
        // The buffer may be used for something else by now; the sender is told all the same.
        head.app_ctx = htobe32(message.app_ctx);
        from.len = UINT32_MAX;
    } else if (is_whole) {
        std::memcpy(&head, message.buffer, sizeof head);
        std::memcpy(&from, static_cast<std::byte*>(message.buffer) + sizeof head, sizeof from);
    }
    SoftReceive* receive = new_receive(message.ctx, message.buffer, message.capacity, message.lkey);
    TW_CHECK(receive != nullptr);  // the pool has no limit
    receive->is_matched = true;
    if ((!is_whole && !message.forced) || ep == nullptr)
        return complete(*receive, message.tag, 0, 0, UCS_ERR_IO_ERROR);
    start_read(*ep, *receive, message.tag, head, from);
}

// ---- Rendezvous sends

RndvSend* RcIface::new_rndv(RcEp& ep, uct_completion_t* comp) {
    if (!rndv_room())
        return nullptr;
    if (rndv_free_ == nullptr) {
        // A buffer for the message that ends it is there before it begins.
        if ((has_device_tags_ ? ends_ : receives_).want(1) != UCS_OK)
            return nullptr;
        rndvs_.push_back(std::make_unique<RndvSend>());
        rndv_free_ = rndvs_.back().get();
        rndv_free_->id = static_cast<std::uint32_t>(rndvs_.size() - 1);
        rndv_free_->next = nullptr;
    }
    RndvSend* send = rndv_free_;
    rndv_free_ = send->next;
    ++rndvs_under_way_;
    send->id += kRndvGeneration;
    send->ep = &ep;
    send->comp = comp;
    send->serial = ++ep.rndv_serial_;
    send->next = nullptr;
    send->prev = ep.rndv_last_;
    (ep.rndv_last_ == nullptr ? ep.rndv_first_ : ep.rndv_last_->next) = send;
    ep.rndv_last_ = send;
    return send;
}

void RcIface::drop_rndv(RndvSend& send) {
    RcEp& ep = *send.ep;
    (send.prev == nullptr ? ep.rndv_first_ : send.prev->next) = send.next;
    (send.next == nullptr ? ep.rndv_last_ : send.next->prev) = send.prev;
    send.ep = nullptr;
    send.next = rndv_free_;
    rndv_free_ = &send;
    --rndvs_under_way_;
}

RndvSend* RcIface::rndv_of(std::uint32_t id) const {
    const std::uint32_t index = id & (kRndvGeneration - 1);
    RndvSend* send = index < rndvs_.size() ? rndvs_[index].get() : nullptr;
    return send != nullptr && send->ep != nullptr && send->id == id ? send : nullptr;
}

// ---- Rendezvous that software carries out: reads, then a message that tells the sender

void RcIface::start_read(RcEp& ep, SoftReceive& receive, uct_tag_t tag, const ibv_tmh& head,
                         const ibv_rvh& from) {
    RndvRead* read = reads_.create();
    TW_CHECK(read != nullptr);  // the pool has no limit
    *read = RndvRead{.receive = &receive,
                     .ep = &ep,
                     .tag = tag,
                     .remote_addr = be64toh(from.va),
                     .length = be32toh(from.len),
                     .wanted = 0,
                     .asked = 0,
                     .rkey = be32toh(from.rkey),
                     .id = head.app_ctx,
                     .under_way = 0,
                     .status = UCS_OK};
    if (read->length <= receive.capacity)
        read->wanted = read->length;
    else
        read->status = UCS_ERR_MESSAGE_TRUNCATED;  // nothing is read, and the sender is told
    count(RcCounter::kSoftwareReads);
    ++reads_under_way_;
    if (!step_read(*read)) {
        reads_waiting_.push_back(read);
        has_work_ = true;
    }
}

// False: it waits for room. A read that failed tells the sender nothing: its endpoint fails, too.
bool RcIface::step_read(RndvRead& read) {
    RcEp& ep = *read.ep;
    while (ep.failure_ == UCS_OK && read.asked < read.wanted) {
        if (!ep.has_room(1))
            return read.under_way > 0;  // the next step comes with a completion
        SendOp* op = small_.get();
        if (op == nullptr)
            return read.under_way > 0;
        const std::size_t bytes = std::min(read.wanted - read.asked, message_max_);
        op->read = &read;
        ibv_sge sge{ib::address_of(read.receive->buffer + read.asked),
                    static_cast<std::uint32_t>(bytes), read.receive->lkey};
        ibv_send_wr request{};
        request.sg_list = &sge;
        request.num_sge = 1;
        request.opcode = IBV_WR_RDMA_READ;
        request.wr.rdma.remote_addr = read.remote_addr + read.asked;
        request.wr.rdma.rkey = read.rkey;
        if (ep.post_op(op, SendOp::Kind::kRndvRead, request, nullptr) != UCS_OK)
            break;
        read.asked += bytes;
        ++read.under_way;
    }
    if (read.under_way > 0)
        return true;
    if (ep.failure_ != UCS_OK)
        read.status = ep.failure_;
    else if (!tell_end(read))
        return false;
    finish_read(read);
    return true;
}

bool RcIface::tell_end(const RndvRead& read) {
    RcEp& ep = *read.ep;
    if (!ep.has_room(1))
        return false;
    ibv_tmh end{};
    end.opcode = IBV_TMH_FIN;
    end.app_ctx = read.id;
    ibv_sge sge{ib::address_of(&end), sizeof end, 0};
    ibv_send_wr request{};
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_INLINE;
    ep.post(request, false);
    return true;
}

void RcIface::finish_read(RndvRead& read) {
    SoftReceive& receive = *read.receive;
    const uct_tag_t tag = read.tag;
    const std::size_t length = read.length;
    const ucs_status_t status = read.status;
    --reads_under_way_;
    reads_.destroy(&read);
    complete(receive, tag, 0, length, status);
}

void RcIface::read_part_done(RndvRead& read, ucs_status_t status) {
    --read.under_way;
    if (status != UCS_OK && read.status == UCS_OK)
        read.status = status;
    if (!step_read(read)) {
        reads_waiting_.push_back(&read);
        has_work_ = true;
    }
}

unsigned RcIface::step_reads() {
    unsigned moved = 0;
    std::vector<RndvRead*> waiting;
    waiting.swap(reads_waiting_);
    for (RndvRead* read : waiting) {
        if (step_read(*read))
            ++moved;
        else
            reads_waiting_.push_back(read);
    }
    return moved;
}

void RcIface::end_reads(RcEp& ep) {
    std::vector<RndvRead*> ended;
    std::erase_if(reads_waiting_, [&](RndvRead* read) {
        if (read->ep == &ep)
            ended.push_back(read);
        return read->ep == &ep;
    });
    for (RndvRead* read : ended) {
        read->status = ep.failure_;
        finish_read(*read);
    }
}

}  // namespace tagwire::rc
