// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/message_ops.hpp"

#include <endian.h>

#include <algorithm>
#include <cstring>

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

// Data shorter than what a device takes is padded behind; data that lies elsewhere is not.
std::uint32_t MessageOps::frame_am(std::byte* message, std::uint8_t am_id, std::size_t bytes) {
    constexpr std::size_t kDataBytesMin = kMessageBytesMin - kPrefixBytes;
    const std::size_t padding = bytes < kDataBytesMin ? kDataBytesMin - bytes : 0;
    const Prefix head = prefix(MessageKind::kAm, am_id, static_cast<std::uint8_t>(padding));
    std::memcpy(message, &head, sizeof head);
    if (padding > 0)
        std::memset(message + sizeof head + bytes, 0, padding);
    return static_cast<std::uint32_t>(sizeof head + bytes + padding);
}

void MessageOps::make_bare(ibv_send_wr& request, std::uint8_t am_id, std::byte& first) {
    const BareHead head{static_cast<std::uint8_t>(first), am_id, released};
    first = std::byte{IBV_TMH_NO_TAG};
    told = released;
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.imm_data = htobe32(head.imm());
}

// ---- Active messages

ucs_status_t MessageOps::am_short(std::uint8_t am_id, std::uint64_t header, const void* payload,
                                  unsigned length) {
    const std::size_t limit = owner().limits.inline_max;
    if (kAmHeadBytes + length > limit) [[unlikely]]
        return refuse("am_short", length + sizeof header, limit - kPrefixBytes);
    if (am_id >= UCT_AM_ID_MAX) [[unlikely]]
        return refuse_am_id(am_id);
    const ucs_status_t status = room(1, 1);
    if (status != UCS_OK) [[unlikely]]
        return status;
    static_assert(kAmHeadBytes >= kMessageBytesMin);
    owner().short_send.head.am = {prefix(MessageKind::kAm, am_id, 0), header};
    return post_short(kAmHeadBytes, payload, length);
}

ucs_status_t MessageOps::am_short_iov(std::uint8_t am_id, const uct_iov_t* iov,
                                      std::size_t iovcnt) {
    const std::size_t limit = owner().limits.inline_max - kPrefixBytes;
    if (iovcnt > owner().limits.sges_max - 1) [[unlikely]]
        return refuse("am_short_iov: iov elements", iovcnt, owner().limits.sges_max - 1);
    const std::size_t bytes = gather_bytes(iov, iovcnt);
    if (bytes > limit) [[unlikely]]
        return refuse("am_short_iov", bytes, limit);
    if (am_id >= UCT_AM_ID_MAX) [[unlikely]]
        return refuse_am_id(am_id);
    const ucs_status_t status = room(1, 1);
    if (status != UCS_OK) [[unlikely]]
        return status;
    std::byte message[kInlineBytesMax + kMessageBytesMin];
    gather_copy(message + kPrefixBytes, iov, iovcnt);
    ibv_sge sge{address_of(message), frame_am(message, am_id, bytes), 0};
    ibv_send_wr request = send_of(&sge, 1);
    request.send_flags = IBV_SEND_INLINE;
    ++sent;
    return post(request, false);
}

ssize_t MessageOps::am_bcopy(std::uint8_t am_id, uct_pack_callback_t pack, void* arg,
                             unsigned flags) {
    if (am_id >= UCT_AM_ID_MAX) [[unlikely]]
        return refuse_am_id(am_id);
    SendOp* op = nullptr;
    const ssize_t packed = take_packed("am_bcopy: packed bytes", 1, kPrefixBytes, pack, arg, &op);
    if (packed < 0) [[unlikely]]
        return packed;
    std::byte* message = op->data();
    const auto bytes = static_cast<std::size_t>(packed);
    ibv_sge sge{0, 0, op->lkey};
    ibv_send_wr request = send_of(&sge, 1);
    if (owner().limits.goes_bare(bytes)) {
        sge.addr = address_of(message + kPrefixBytes);
        sge.length = static_cast<std::uint32_t>(bytes);
        make_bare(request, am_id, message[kPrefixBytes]);
    } else {
        sge.addr = address_of(message);
        sge.length = frame_am(message, am_id, bytes);
    }
    request.send_flags = flags_of(flags);
    ++sent;
    const ucs_status_t posted = post_op(op, SendOp::Kind::kBuffer, request, nullptr);
    return posted == UCS_OK ? packed : ssize_t{posted};
}

ucs_status_t MessageOps::am_zcopy(std::uint8_t am_id, const void* header, unsigned header_length,
                                  const uct_iov_t* iov, std::size_t iovcnt, unsigned flags,
                                  uct_completion_t* comp) {
    MessageIface& own = owner();
    if (header_length > own.limits.am_header_max()) [[unlikely]]
        return refuse("am_zcopy: header", header_length, own.limits.am_header_max());
    if (am_id >= UCT_AM_ID_MAX) [[unlikely]]
        return refuse_am_id(am_id);
    Gather gather;
    gather.count = 1;  // the head
    const ucs_status_t checked = gather.add("am_zcopy", iov, iovcnt, own.limits.sges_max,
                                            own.limits.seg_bytes - header_length);
    if (checked != UCS_OK) [[unlikely]]
        return checked;
    SendOp* op = nullptr;
    const ucs_status_t status = take(own.small, 1, &op);
    if (status != UCS_OK) [[unlikely]]
        return status;
    std::byte* message = op->data();
    if (header_length > 0)
        std::memcpy(message + kPrefixBytes, header, header_length);
    const std::size_t bytes = header_length + gather.bytes;
    ibv_send_wr request = send_of(gather.sges, 1);
    if (own.limits.goes_bare(bytes)) {
        std::byte& first = message[kPrefixBytes];
        const std::size_t own_bytes = header_length > 0 ? header_length : gather.cut_first(first);
        gather.sges[0] = {address_of(&first), static_cast<std::uint32_t>(own_bytes), op->lkey};
        make_bare(request, am_id, first);
    } else {
        const std::uint32_t framed = frame_am(message, am_id, bytes);
        gather.sges[0] = {address_of(message),
                          static_cast<std::uint32_t>(kPrefixBytes + header_length), op->lkey};
        if (kPrefixBytes + bytes < framed) {
            // Too little to gather: it is copied behind its header.
            gather_copy(message + kPrefixBytes + header_length, iov, iovcnt);
            gather.sges[0].length = framed;
            gather.count = 1;
        }
    }
    request.num_sge = static_cast<int>(gather.count);
    request.send_flags = flags_of(flags);
    ++sent;
    const ucs_status_t posted = post_op(op, SendOp::Kind::kUser, request, comp);
    return posted == UCS_OK ? UCS_INPROGRESS : posted;
}

// ---- Eager tagged messages

ucs_status_t MessageOps::tag_eager_short(uct_tag_t tag, const void* data, std::size_t length) {
    const std::size_t limit = owner().limits.inline_max - kTmhBytes;
    if (length > limit) [[unlikely]]
        return refuse("tag_eager_short", length, limit);
    const ucs_status_t status = room(1, 1);
    if (status != UCS_OK) [[unlikely]]
        return status;
    owner().short_send.head.tagged = tagged(IBV_TMH_EAGER, tag);
    return post_short(kTmhBytes, data, static_cast<std::uint32_t>(length));
}

ssize_t MessageOps::tag_eager_bcopy(uct_tag_t tag, std::uint64_t imm, uct_pack_callback_t pack,
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
    ++sent;
    const ucs_status_t posted = post_op(op, SendOp::Kind::kBuffer, request, nullptr);
    return posted == UCS_OK ? packed : ssize_t{posted};
}

ucs_status_t MessageOps::tag_eager_zcopy(uct_tag_t tag, std::uint64_t imm, const uct_iov_t* iov,
                                         std::size_t iovcnt, unsigned flags,
                                         uct_completion_t* comp) {
    MessageIface& own = owner();
    Gather gather;
    gather.count = 1;  // the head
    const ucs_status_t checked = gather.add("tag_eager_zcopy", iov, iovcnt, own.limits.sges_max,
                                            own.limits.eager_parts_max * own.limits.seg_bytes);
    if (checked != UCS_OK) [[unlikely]]
        return checked;
    if (gather.bytes > own.limits.seg_bytes)
        return send_eager_parts(tag, imm, gather, comp);
    SendOp* op = nullptr;
    const ucs_status_t status = take(own.small, 1, &op);
    if (status != UCS_OK) [[unlikely]]
        return status;
    gather.sges[0] = {address_of(op->data()), kTmhBytes, op->lkey};
    ibv_send_wr request = send_of(gather.sges, gather.count);
    ibv_tmh head = tagged(IBV_TMH_EAGER, tag);
    set_imm(request, head, imm);
    std::memcpy(op->data(), &head, sizeof head);
    request.send_flags = flags_of(flags);
    ++sent;
    const ucs_status_t posted = post_op(op, SendOp::Kind::kUser, request, comp);
    return posted == UCS_OK ? UCS_INPROGRESS : posted;
}

// More than a segment, which software matching alone takes: a chain of messages, one doorbell. The
// operation ends with the last of them.
ucs_status_t MessageOps::send_eager_parts(uct_tag_t tag, std::uint64_t imm, const Gather& gather,
                                          uct_completion_t* comp) {
    MessageIface& own = owner();
    const auto parts =
        static_cast<unsigned>((gather.bytes + own.limits.seg_bytes - 1) / own.limits.seg_bytes);
    const ucs_status_t status = room(parts, parts);
    if (status != UCS_OK)
        return status;
    SendOp* op = own.small.get();
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
        std::size_t left = own.limits.seg_bytes;
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
    sent += parts;
    op->kind = SendOp::Kind::kUser;
    op->ep = this;
    op->comp = comp;
    const std::uint32_t before = queue->posted;
    const ucs_status_t posted = post(requests[0], requests[parts - 1], parts, true);
    if (posted == UCS_OK) {
        queue->append(op);
        return UCS_INPROGRESS;
    }
    // The heads are read by what was taken of the chain, until it ends.
    op->kind = SendOp::Kind::kBuffer;
    op->comp = nullptr;
    if (queue->posted == before)
        op->pool->put(op);
    else
        queue->append(op);
    return posted;
}

// ---- Rendezvous

ucs_status_ptr_t MessageOps::tag_rndv_zcopy(uct_tag_t tag, const void* header,
                                            unsigned header_length, const uct_iov_t* iov,
                                            std::size_t iovcnt, unsigned flags,
                                            uct_completion_t* comp) {
    MessageIface& own = owner();
    if (header_length > own.limits.rndv_header_max())
        return UCS_STATUS_PTR(
            refuse("tag_rndv_zcopy: header", header_length, own.limits.rndv_header_max()));
    Gather source;
    ucs_status_t status = source.add("tag_rndv_zcopy", iov, iovcnt, 1, own.limits.rndv_bytes_max);
    if (status != UCS_OK)
        return UCS_STATUS_PTR(status);
    if (comp == nullptr) {
        TW_LOG_ERROR("tag_rndv_zcopy: comp is NULL; a completion is required");
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    }
    status = room(1, 1);
    if (status != UCS_OK)
        return UCS_STATUS_PTR(status);
    SendOp* op = own.buffers.get();
    RndvSend* send = op == nullptr ? nullptr : own.rndv_sends.begin(*this, comp, own.fins_queue());
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
    const std::size_t behind = std::min<std::size_t>(header_length, own.limits.rndv_behind_max);
    const std::size_t tail = header_length - behind;
    head.reserved[0] = static_cast<std::uint8_t>(tail);
    if (tail > 0)
        std::memcpy(&head.reserved[1], static_cast<const std::byte*>(header) + behind, tail);
    std::byte* message = op->data();
    std::memcpy(message, &head, sizeof head);
    std::memcpy(message + sizeof head, &from, sizeof from);
    const std::size_t headers = sizeof head + sizeof from + own.answer_to.size();
    std::ranges::copy(own.answer_to, message + sizeof head + sizeof from);
    if (behind > 0)
        std::memcpy(message + headers, header, behind);
    ibv_sge sge{address_of(message), static_cast<std::uint32_t>(headers + behind), op->lkey};
    ibv_send_wr request = send_of(&sge, 1);
    request.send_flags = flags_of(flags);
    ++sent;
    status = post_op(op, SendOp::Kind::kBuffer, request, nullptr);
    if (status != UCS_OK) {
        own.rndv_sends.drop(*send);
        return UCS_STATUS_PTR(status);
    }
    return send;
}

ucs_status_t MessageOps::tag_rndv_cancel(void* handle) {
    auto* send = static_cast<RndvSend*>(handle);
    TW_ASSERT(send->ep == this);
    MessageIface& own = owner();
    own.guard.enter();
    own.rndv_sends.drop(*send);
    OpEnds::settle_flushes(*this);  // a callback may destroy this endpoint
    own.guard.leave();
    return UCS_OK;
}

ucs_status_t MessageOps::tag_rndv_request(uct_tag_t tag, const void* header, unsigned header_length,
                                          unsigned flags) {
    MessageIface& own = owner();
    if (header_length > own.limits.rndv_header_max())
        return refuse("tag_rndv_request: header", header_length, own.limits.rndv_header_max());
    SendOp* op = nullptr;
    const ucs_status_t status = take(own.buffers, 1, &op);
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
    ++sent;
    return post_op(op, SendOp::Kind::kBuffer, request, nullptr);
}

// ---- Pending requests

ucs_status_t MessageOps::pending_add(uct_pending_req_t* request, unsigned) {
    if (failure != UCS_OK)
        return failure;
    MessageIface& own = owner();
    // As much room as any operation may need: whoever is told BUSY must not find that it was not
    // enough.
    const unsigned parts = static_cast<unsigned>(own.limits.eager_parts_max);
    if ((group == nullptr || group->empty()) && state == State::kConnected && has_room(parts) &&
        has_credit(parts) && own.buffers.has_one() && own.small.has_one() &&
        own.rndv_sends.has_room())
        return UCS_ERR_BUSY;
    const ucs_status_t status = own.pending.add(*this, request);
    own.has_work |= status == UCS_OK;
    return status;
}

void MessageOps::pending_purge(uct_pending_purge_callback_t callback, void* arg) {
    purge([&](uct_pending_req_t* request) {
        if (callback != nullptr)
            callback(request, arg);
    });
}

// ---- Flush, fence, check

ucs_status_t MessageOps::flush(unsigned flags, uct_completion_t* comp) {
    MessageIface& own = owner();
    if ((flags & UCT_FLUSH_FLAG_CANCEL) != 0)
        return flush_cancel(comp);
    if (failure != UCS_OK)
        return failure;
    if (blocks_sends())
        return UCS_ERR_NO_RESOURCE;
    if (is_idle())
        return UCS_OK;
    if (comp == nullptr) {
        // Something signalled must be behind the last request, or it would never be acknowledged.
        if (queue->has_unsignaled() && queue->has_last_place() && own.sends.has_last_place())
            return post_signal() == UCS_OK ? UCS_INPROGRESS : failure;
        return UCS_INPROGRESS;
    }
    if (!queue->has_last_place())
        gets_room(1);  // it may have no queue yet
    SendOp* op = queue->has_last_place() && own.sends.has_last_place() ? own.small.get() : nullptr;
    if (op == nullptr)
        return no_room();
    op->serial = own.rndv_sends.newest_serial();
    const ucs_status_t posted = post_empty_write(op, SendOp::Kind::kFlush, comp);
    return posted == UCS_OK ? UCS_INPROGRESS : posted;
}

// The queue pairs go to error: each request then ends, and the peer can read no more.
ucs_status_t MessageOps::flush_cancel(uct_completion_t* comp) {
    MessageIface& own = owner();
    if (failure != UCS_OK && state == State::kFailed)
        return UCS_OK;
    if (failure == UCS_OK)
        own.cancel(*this);
    if (is_idle())
        return UCS_OK;
    if (comp != nullptr) {
        SendOp* op = own.small.get();
        if (op == nullptr)
            return UCS_ERR_NO_RESOURCE;
        op->kind = SendOp::Kind::kCancel;
        op->ep = this;
        op->comp = comp;
        op->serial = own.rndv_sends.newest_serial();
        // It ends with the last request before it, which may be under way no more.
        if (has_ended())
            own.op_ends.finish_later(*op, UCS_ERR_CANCELED);
        else
            queue->append(op);
    }
    return UCS_INPROGRESS;
}

ucs_status_t MessageOps::fence(unsigned) {
    if (!queue->is_drained())
        queue->fence_flag = IBV_SEND_FENCE;
    return UCS_OK;
}

ucs_status_t MessageOps::check(unsigned, uct_completion_t* comp) {
    if (comp == nullptr) {
        const ucs_status_t status = room(1, 0);
        return status == UCS_OK ? post_signal() : status;
    }
    SendOp* op = nullptr;
    const ucs_status_t status = take(owner().small, 0, &op);
    if (status != UCS_OK)
        return status;
    const ucs_status_t posted = post_empty_write(op, SendOp::Kind::kUser, comp);
    return posted == UCS_OK ? UCS_INPROGRESS : posted;
}

}  // namespace tagwire::ib
