// SPDX-License-Identifier: BSD-3-Clause
// The sending half of the data path: room, posting, active and eager messages.
#include <algorithm>
#include <cstring>
#include <utility>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "uct/ib/gather.hpp"
#include "uct/ib/message_iface.hpp"

namespace tagwire::ib {

namespace {

constexpr std::uint32_t kAmHeadBytes = kPrefixBytes + sizeof(std::uint64_t);

/// A send of `sges`; the immediate of a tagged message decides its opcode.
ibv_send_wr send_of(ibv_sge* sges, unsigned count) {
    ibv_send_wr request{};
    request.sg_list = sges;
    request.num_sge = static_cast<int>(count);
    request.opcode = IBV_WR_SEND;
    return request;
}

void set_imm(ibv_send_wr& request, ibv_tmh& header, std::uint64_t imm) {
    if (imm == 0)
        return;
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.imm_data = htobe32(static_cast<std::uint32_t>(imm));
    header.app_ctx = htobe32(static_cast<std::uint32_t>(imm >> 32));
}

ibv_tmh tagged(ibv_tmh_op opcode, uct_tag_t tag) {
    ibv_tmh header{};
    header.opcode = static_cast<std::uint8_t>(opcode);
    header.tag = htobe64(tag);
    return header;
}

unsigned flags_of(unsigned send_flags) {
    return (send_flags & UCT_SEND_FLAG_SIGNALED) != 0 ? unsigned{IBV_SEND_SOLICITED} : 0U;
}

}  // namespace

// ---- Room and posting

MessageEp::MessageEp(MessageIface& owner, SendQueue& queue) : BaseEp(&owner), queue_(&queue) {}

ucs_status_t MessageEp::make_room(unsigned requests, unsigned messages) {
    if (failure_ == UCS_OK && !blocks_sends() && owner().make_room(*this, requests, messages))
        return UCS_OK;
    return no_room();
}

ucs_status_t MessageEp::no_room() {
    if (failure_ != UCS_OK)
        return failure_;
    MessageIface& own = owner();
    if (state_ == State::kCreated) {
        TW_LOG_ERROR("endpoint used before uct_ep_connect_to_ep()");
        return UCS_ERR_NOT_CONNECTED;
    }
    if (!has_credit(1))
        own.count(MessageCounter::kNoCredit);
    if (own.cq_free_ < own.cq_reserve_ + own.eager_parts_max_ || own.buffers_.is_exhausted() ||
        own.small_.is_exhausted())
        own.ask_for_completions();  // those of others may be what it takes
    own.count(MessageCounter::kNoResource);
    own.gave_up(*this);
    return UCS_ERR_NO_RESOURCE;
}

ucs_status_t MessageEp::take(SendPool& pool, unsigned messages, SendOp** op_p) {
    const ucs_status_t status = room(1, messages);
    if (status != UCS_OK) [[unlikely]]
        return status;
    *op_p = pool.get();
    return *op_p != nullptr ? UCS_OK : no_room();
}

ssize_t MessageEp::take_packed(const char* what, unsigned messages, std::size_t offset,
                               uct_pack_callback_t pack, void* arg, SendOp** op_p) {
    MessageIface& own = owner();
    const ucs_status_t status = take(own.buffers_, messages, op_p);
    if (status != UCS_OK) [[unlikely]]
        return status;
    const std::size_t bytes = pack((*op_p)->data() + offset, arg);
    if (bytes > own.seg_bytes_) [[unlikely]] {
        own.buffers_.put(*op_p);
        own.gave_up(*this);
        return refuse(what, bytes, own.seg_bytes_);
    }
    return static_cast<ssize_t>(bytes);
}

// The flags of requests that take `count` places: the fence belongs to the first, the signal to the
// last.
inline unsigned MessageEp::take_places(unsigned count, bool signal) {
    MessageIface& own = owner();
    unsigned flags = std::exchange(queue_->fence_flag, 0U);
    queue_->unsignaled += count;
    queue_->free -= count;
    own.cq_free_ -= count;
    if (signal || queue_->unsignaled >= own.signal_every_) {
        if ((queue_->unsignaled & SendQueue::kUnlisted) != 0) {
            queue_->unsignaled &= ~SendQueue::kUnlisted;
            own.busy_.push_back(*queue_);
            if (!signal && queue_->unsignaled < own.signal_every_)
                return flags;
        }
        flags |= IBV_SEND_SIGNALED;
        queue_->unsignaled = 0;
        ++own.signals_out_;
    }
    return flags;
}

ucs_status_t MessageEp::post(ibv_send_wr& first, ibv_send_wr& last, unsigned count, bool signal) {
    // Each has a number of its own, because one that fails is told though it asked for nothing.
    for (ibv_send_wr* request = &first; request != nullptr; request = request->next)
        request->wr_id = queue_->next_wr_id();
    const unsigned flags = take_places(count, signal);
    first.send_flags |= flags & IBV_SEND_FENCE;
    last.send_flags |= flags & IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    const int error = queue_->post(*this, &first, &bad);
    return error == 0 ? UCS_OK : post_failed(bad, error);
}

[[gnu::always_inline]] inline ucs_status_t MessageEp::post_short(std::uint32_t head_bytes,
                                                                 const void* data,
                                                                 std::uint32_t length) {
    MessageIface& own = owner();
    ibv_send_wr& request = own.short_send_.request;
    request.wr_id = queue_->next_wr_id();
    request.num_sge = length == 0 ? 1 : 2;
    own.short_send_.sges[0].length = head_bytes;
    own.short_send_.sges[1].addr = address_of(data);
    own.short_send_.sges[1].length = length;
    request.send_flags = IBV_SEND_INLINE | take_places(1, false);
    ++sent_;
    ibv_send_wr* bad = nullptr;
    const int error = queue_->post(*this, &request, &bad);
    return error == 0 ? UCS_OK : post_failed(bad, error);
}

// Nothing that we post may be refused: what was taken of the chain ends with the queue pair.
ucs_status_t MessageEp::post_failed(const ibv_send_wr* bad, int error) {
    MessageIface& own = owner();
    TW_LOG_ERROR("ibv_post_send failed: %s", std::strerror(error));
    unsigned untaken = 0;
    for (const ibv_send_wr* request = bad; request != nullptr; request = request->next) {
        ++untaken;
        own.signals_out_ -= (request->send_flags & IBV_SEND_SIGNALED) != 0 ? 1 : 0;
    }
    queue_->posted -= untaken;
    queue_->free += untaken;
    own.cq_free_ += untaken;
    // The last one, which asked for the completion of all, may be among them.
    queue_->unsignaled = queue_->posted - queue_->acked;
    own.fail(*this, UCS_ERR_IO_ERROR, "ibv_post_send failed");
    return UCS_ERR_IO_ERROR;
}

ucs_status_t MessageEp::post_op(SendOp* op, SendOp::Kind kind, ibv_send_wr& request,
                                uct_completion_t* comp) {
    op->kind = kind;
    op->ep = this;
    op->comp = comp;
    const ucs_status_t status = post(request, kind != SendOp::Kind::kBuffer);
    if (status != UCS_OK) [[unlikely]] {
        op->pool->put(op);
        return status;
    }
    queue_->append(op);
    return UCS_OK;
}

Prefix MessageEp::prefix(MessageKind kind, std::uint8_t value, std::uint8_t padding) {
    told_ = released_;
    return {IBV_TMH_NO_TAG, kind, value, padding, htobe32(released_)};
}

// Data shorter than what a device takes is padded behind; data that lies elsewhere is not.
std::uint32_t MessageEp::frame_am(std::byte* message, std::uint8_t id, std::size_t bytes) {
    constexpr std::size_t kDataBytesMin = kMessageBytesMin - kPrefixBytes;
    const std::size_t padding = bytes < kDataBytesMin ? kDataBytesMin - bytes : 0;
    const Prefix head = prefix(MessageKind::kAm, id, static_cast<std::uint8_t>(padding));
    std::memcpy(message, &head, sizeof head);
    if (padding > 0)
        std::memset(message + sizeof head + bytes, 0, padding);
    return static_cast<std::uint32_t>(sizeof head + bytes + padding);
}

// ---- Active messages

ucs_status_t MessageEp::am_short(std::uint8_t id, std::uint64_t header, const void* payload,
                                 unsigned length) {
    const std::size_t limit = owner().inline_max_;
    if (kAmHeadBytes + length > limit) [[unlikely]]
        return refuse("am_short", length + sizeof header, limit - kPrefixBytes);
    if (id >= UCT_AM_ID_MAX) [[unlikely]]
        return refuse_am_id(id);
    const ucs_status_t status = room(1, 1);
    if (status != UCS_OK) [[unlikely]]
        return status;
    static_assert(kAmHeadBytes >= kMessageBytesMin);
    owner().short_send_.head.am = {prefix(MessageKind::kAm, id, 0), header};
    return post_short(kAmHeadBytes, payload, length);
}

ucs_status_t MessageEp::am_short_iov(std::uint8_t id, const uct_iov_t* iov, std::size_t iovcnt) {
    const std::size_t limit = owner().inline_max_ - kPrefixBytes;
    if (iovcnt > owner().sges_max_ - 1) [[unlikely]]
        return refuse("am_short_iov: iov elements", iovcnt, owner().sges_max_ - 1);
    const std::size_t bytes = gather_bytes(iov, iovcnt);
    if (bytes > limit) [[unlikely]]
        return refuse("am_short_iov", bytes, limit);
    if (id >= UCT_AM_ID_MAX) [[unlikely]]
        return refuse_am_id(id);
    const ucs_status_t status = room(1, 1);
    if (status != UCS_OK) [[unlikely]]
        return status;
    std::byte message[kInlineBytesMax + kMessageBytesMin];
    gather_copy(message + kPrefixBytes, iov, iovcnt);
    ibv_sge sge{address_of(message), frame_am(message, id, bytes), 0};
    ibv_send_wr request = send_of(&sge, 1);
    request.send_flags = IBV_SEND_INLINE;
    ++sent_;
    return post(request, false);
}

ssize_t MessageEp::am_bcopy(std::uint8_t id, uct_pack_callback_t pack, void* arg, unsigned flags) {
    if (id >= UCT_AM_ID_MAX) [[unlikely]]
        return refuse_am_id(id);
    SendOp* op = nullptr;
    const ssize_t packed = take_packed("am_bcopy: packed bytes", 1, kPrefixBytes, pack, arg, &op);
    if (packed < 0) [[unlikely]]
        return packed;
    std::byte* message = op->data();
    const auto bytes = static_cast<std::size_t>(packed);
    ibv_sge sge{address_of(message), frame_am(message, id, bytes), op->lkey};
    ibv_send_wr request = send_of(&sge, 1);
    request.send_flags = flags_of(flags);
    ++sent_;
    const ucs_status_t posted = post_op(op, SendOp::Kind::kBuffer, request, nullptr);
    return posted == UCS_OK ? packed : ssize_t{posted};
}

ucs_status_t MessageEp::am_zcopy(std::uint8_t id, const void* header, unsigned header_length,
                                 const uct_iov_t* iov, std::size_t iovcnt, unsigned flags,
                                 uct_completion_t* comp) {
    MessageIface& own = owner();
    if (header_length > own.am_header_max()) [[unlikely]]
        return refuse("am_zcopy: header", header_length, own.am_header_max());
    if (id >= UCT_AM_ID_MAX) [[unlikely]]
        return refuse_am_id(id);
    Gather gather;
    gather.count = 1;  // the head
    const ucs_status_t checked =
        gather.add("am_zcopy", iov, iovcnt, own.sges_max_, own.seg_bytes_ - header_length);
    if (checked != UCS_OK) [[unlikely]]
        return checked;
    SendOp* op = nullptr;
    const ucs_status_t status = take(own.small_, 1, &op);
    if (status != UCS_OK) [[unlikely]]
        return status;
    std::byte* message = op->data();
    if (header_length > 0)
        std::memcpy(message + kPrefixBytes, header, header_length);
    const std::size_t bytes = header_length + gather.bytes;
    const std::uint32_t framed = frame_am(message, id, bytes);
    gather.sges[0] = {address_of(message), static_cast<std::uint32_t>(kPrefixBytes + header_length),
                      op->lkey};
    if (kPrefixBytes + bytes < framed) {
        // Too little to gather: it is copied behind its header.
        gather_copy(message + kPrefixBytes + header_length, iov, iovcnt);
        gather.sges[0].length = framed;
        gather.count = 1;
    }
    ibv_send_wr request = send_of(gather.sges, gather.count);
    request.send_flags = flags_of(flags);
    ++sent_;
    const ucs_status_t posted = post_op(op, SendOp::Kind::kUser, request, comp);
    return posted == UCS_OK ? UCS_INPROGRESS : posted;
}

// ---- Eager tagged messages

ucs_status_t MessageEp::tag_eager_short(uct_tag_t tag, const void* data, std::size_t length) {
    const std::size_t limit = owner().inline_max_ - kTmhBytes;
    if (length > limit) [[unlikely]]
        return refuse("tag_eager_short", length, limit);
    const ucs_status_t status = room(1, 1);
    if (status != UCS_OK) [[unlikely]]
        return status;
    owner().short_send_.head.tagged = tagged(IBV_TMH_EAGER, tag);
    return post_short(kTmhBytes, data, static_cast<std::uint32_t>(length));
}

ssize_t MessageEp::tag_eager_bcopy(uct_tag_t tag, std::uint64_t imm, uct_pack_callback_t pack,
                                   void* arg, unsigned flags) {
    SendOp* op = nullptr;
    const ssize_t packed =
        take_packed("tag_eager_bcopy: packed bytes", 1, kTmhBytes, pack, arg, &op);
    if (packed < 0) [[unlikely]]
        return packed;
    std::byte* message = op->data();
    const auto bytes = static_cast<std::size_t>(packed);
    ibv_sge sge{address_of(message), static_cast<std::uint32_t>(kTmhBytes + bytes), op->lkey};
    ibv_send_wr request = send_of(&sge, 1);
    ibv_tmh head = tagged(IBV_TMH_EAGER, tag);
    set_imm(request, head, imm);
    std::memcpy(message, &head, sizeof head);
    request.send_flags = flags_of(flags);
    ++sent_;
    const ucs_status_t posted = post_op(op, SendOp::Kind::kBuffer, request, nullptr);
    return posted == UCS_OK ? packed : ssize_t{posted};
}

ucs_status_t MessageEp::tag_eager_zcopy(uct_tag_t tag, std::uint64_t imm, const uct_iov_t* iov,
                                        std::size_t iovcnt, unsigned flags,
                                        uct_completion_t* comp) {
    MessageIface& own = owner();
    Gather gather;
    gather.count = 1;  // the head
    const ucs_status_t checked = gather.add("tag_eager_zcopy", iov, iovcnt, own.sges_max_,
                                            own.eager_parts_max_ * own.seg_bytes_);
    if (checked != UCS_OK) [[unlikely]]
        return checked;
    if (gather.bytes > own.seg_bytes_)
        return send_eager_parts(tag, imm, gather, comp);
    SendOp* op = nullptr;
    const ucs_status_t status = take(own.small_, 1, &op);
    if (status != UCS_OK) [[unlikely]]
        return status;
    gather.sges[0] = {address_of(op->data()), kTmhBytes, op->lkey};
    ibv_send_wr request = send_of(gather.sges, gather.count);
    ibv_tmh head = tagged(IBV_TMH_EAGER, tag);
    set_imm(request, head, imm);
    std::memcpy(op->data(), &head, sizeof head);
    request.send_flags = flags_of(flags);
    ++sent_;
    const ucs_status_t posted = post_op(op, SendOp::Kind::kUser, request, comp);
    return posted == UCS_OK ? UCS_INPROGRESS : posted;
}

// More than a segment, which software matching alone takes: a chain of messages, one doorbell. The
// operation ends with the last of them.
ucs_status_t MessageEp::send_eager_parts(uct_tag_t tag, std::uint64_t imm, const Gather& gather,
                                         uct_completion_t* comp) {
    MessageIface& own = owner();
    const auto parts = static_cast<unsigned>((gather.bytes + own.seg_bytes_ - 1) / own.seg_bytes_);
    const ucs_status_t status = room(parts, parts);
    if (status != UCS_OK)
        return status;
    SendOp* op = own.small_.get();
    if (op == nullptr)
        return no_room();
    ibv_send_wr requests[kEagerPartsMax];
    ibv_sge sges[kEagerPartsMax][kSgesMax];
    std::byte* heads = op->data();  // 16 bytes each
    unsigned piece = 1;
    std::uint32_t offset = 0;
    for (unsigned i = 0; i < parts; ++i) {
        std::byte* head_at = heads + i * kTmhBytes;
        requests[i] = send_of(sges[i], 1);
        std::uint32_t head_bytes = kTmhBytes;
        if (i == 0) {
            ibv_tmh head = tagged(IBV_TMH_EAGER, tag);
            head.reserved[0] = kEagerHasMore;
            set_imm(requests[i], head, imm);
            std::memcpy(head_at, &head, sizeof head);
        } else {
            const Prefix head =
                prefix(MessageKind::kTagFragment, i + 1 == parts ? 1 : 0, kPrefixBytes);
            // The padding stands in front of the data here, so that a short rest needs none.
            std::memcpy(head_at, &head, sizeof head);
            std::memset(head_at + sizeof head, 0, kTmhBytes - sizeof head);
        }
        sges[i][0] = {address_of(head_at), head_bytes, op->lkey};
        unsigned count = 1;
        std::size_t left = own.seg_bytes_;
        while (left > 0 && piece < gather.count) {
            const ibv_sge& from = gather.sges[piece];
            const auto take =
                static_cast<std::uint32_t>(std::min<std::size_t>(left, from.length - offset));
            sges[i][count++] = {from.addr + offset, take, from.lkey};
            left -= take;
            offset += take;
            if (offset == from.length) {
                offset = 0;
                ++piece;
            }
        }
        requests[i].num_sge = static_cast<int>(count);
        if (i > 0)
            requests[i - 1].next = &requests[i];
    }
    sent_ += parts;
    op->kind = SendOp::Kind::kUser;
    op->ep = this;
    op->comp = comp;
    const std::uint32_t before = queue_->posted;
    const ucs_status_t posted = post(requests[0], requests[parts - 1], parts, true);
    if (posted == UCS_OK) {
        queue_->append(op);
        return UCS_INPROGRESS;
    }
    // The heads are read by what was taken of the chain, until it ends.
    op->kind = SendOp::Kind::kBuffer;
    op->comp = nullptr;
    if (queue_->posted == before)
        op->pool->put(op);
    else
        queue_->append(op);
    return posted;
}

// ---- Rendezvous

ucs_status_ptr_t MessageEp::tag_rndv_zcopy(uct_tag_t tag, const void* header,
                                           unsigned header_length, const uct_iov_t* iov,
                                           std::size_t iovcnt, unsigned flags,
                                           uct_completion_t* comp) {
    MessageIface& own = owner();
    if (header_length > own.rndv_header_max())
        return UCS_STATUS_PTR(
            refuse("tag_rndv_zcopy: header", header_length, own.rndv_header_max()));
    Gather source;
    ucs_status_t status = source.add("tag_rndv_zcopy", iov, iovcnt, 1, own.rndv_bytes_max_);
    if (status != UCS_OK)
        return UCS_STATUS_PTR(status);
    if (comp == nullptr) {
        TW_LOG_ERROR("tag_rndv_zcopy needs a completion");
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    }
    status = room(1, 1);
    if (status != UCS_OK)
        return UCS_STATUS_PTR(status);
    SendOp* op = own.buffers_.get();
    RndvSend* send = op == nullptr ? nullptr : own.new_rndv(*this, comp);
    if (send == nullptr) {
        if (op != nullptr)
            op->pool->put(op);
        return UCS_STATUS_PTR(no_room());
    }
    ibv_tmh head = tagged(IBV_TMH_RNDV, tag);
    head.app_ctx = htobe32(send->id);
    ibv_rvh from{};
    if (source.count > 0) {
        from.va = htobe64(source.sges[0].addr);
        from.rkey = htobe32(registration_of(iov->memh).mr->rkey);
        from.len = htobe32(source.sges[0].length);
    } else if (iovcnt == 1) {
        from.va = htobe64(address_of(iov->buffer));
    }
    // The end of a header that is too long for what a device takes travels within the TMH.
    const std::size_t behind = std::min<std::size_t>(header_length, own.rndv_behind_max_);
    const std::size_t tail = header_length - behind;
    head.reserved[0] = static_cast<std::uint8_t>(tail);
    if (tail > 0)
        std::memcpy(&head.reserved[1], static_cast<const std::byte*>(header) + behind, tail);
    std::byte* message = op->data();
    std::memcpy(message, &head, sizeof head);
    std::memcpy(message + sizeof head, &from, sizeof from);
    const std::size_t headers = sizeof head + sizeof from + own.answer_to_.size();
    std::ranges::copy(own.answer_to_, message + sizeof head + sizeof from);
    if (behind > 0)
        std::memcpy(message + headers, header, behind);
    ibv_sge sge{address_of(message), static_cast<std::uint32_t>(headers + behind), op->lkey};
    ibv_send_wr request = send_of(&sge, 1);
    request.send_flags = flags_of(flags);
    ++sent_;
    status = post_op(op, SendOp::Kind::kBuffer, request, nullptr);
    if (status != UCS_OK) {
        own.drop_rndv(*send);
        return UCS_STATUS_PTR(status);
    }
    return send;
}

ucs_status_t MessageEp::tag_rndv_cancel(void* handle) {
    auto* send = static_cast<RndvSend*>(handle);
    TW_ASSERT(send->ep == this);
    owner().drop_rndv(*send);
    owner().settle_flushes(*this);
    return UCS_OK;
}

ucs_status_t MessageEp::tag_rndv_request(uct_tag_t tag, const void* header, unsigned header_length,
                                         unsigned flags) {
    MessageIface& own = owner();
    if (header_length > own.rndv_header_max())
        return refuse("tag_rndv_request: header", header_length, own.rndv_header_max());
    SendOp* op = nullptr;
    const ucs_status_t status = take(own.buffers_, 1, &op);
    if (status != UCS_OK)
        return status;
    const ibv_tmh head = tagged(IBV_TMH_EAGER, tag);
    std::byte* message = op->data();
    std::memcpy(message, &head, sizeof head);
    if (header_length > 0)
        std::memcpy(message + sizeof head, header, header_length);
    ibv_sge sge{address_of(message), static_cast<std::uint32_t>(sizeof head + header_length),
                op->lkey};
    ibv_send_wr request = send_of(&sge, 1);
    // An immediate of 0 in both halves: no eager message has that.
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.send_flags = flags_of(flags);
    ++sent_;
    return post_op(op, SendOp::Kind::kBuffer, request, nullptr);
}

}  // namespace tagwire::ib
