// SPDX-License-Identifier: BSD-3-Clause
// The sending half of the data path: active and tagged messages.
#include <cstring>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "uct/sm/sm_ep.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

namespace {

[[gnu::noinline, gnu::cold]] ucs_status_t refuse(const char* call, std::size_t length,
                                                 std::size_t limit) {
    TW_LOG_ERROR("%s: %zu exceeds the limit of %zu", call, length, limit);
    return UCS_ERR_INVALID_PARAM;
}

[[gnu::noinline, gnu::cold]] ucs_status_t refuse_id(std::uint8_t id) {
    TW_LOG_ERROR("active message id %u is out of range: the largest is %u", id,
                 static_cast<unsigned>(UCT_AM_ID_MAX - 1));
    return UCS_ERR_INVALID_PARAM;
}

constexpr std::size_t kAmShortPayloadMax = kAmInlineMax - sizeof(std::uint64_t);

template <class Body>
Body& body_of(Slot<>& slot) {
    return *reinterpret_cast<Body*>(slot.body);
}

constexpr std::uint16_t length16(std::size_t bytes) {
    return static_cast<std::uint16_t>(bytes);
}

// An active message in a buffer; it is longer than a slot.
inline void publish_seg(Link& link, std::uint8_t id, std::uint32_t seg, const std::byte* buffer,
                        std::size_t bytes) {
    auto& body = body_of<AmSegBody>(link.tx.slot());
    body.seg = seg;
    std::memcpy(body.head, buffer, kAmHeadMax);
    link.publish(Control::make(Kind::kAmSeg, id, length16(bytes)));
    link.segs->prefetch_next(bytes);
}

// Puts the header into the slot or, when it does not fit, into a buffer that room was made for;
// then publishes.
void publish_header(Link& link, Kind kind, std::uint8_t flags, const void* header, unsigned length,
                    std::byte* inline_to, std::size_t inline_max, std::uint32_t* seg_to) {
    if (length > inline_max) {
        const std::uint32_t seg = link.segs->take();
        std::memcpy(link.segs->buffer(seg), header, length);
        link.segs->shrink(seg, length);
        *seg_to = seg;
        flags |= kHeaderInSeg;
    } else if (length > 0) {
        std::memcpy(inline_to, header, length);
    }
    link.publish(Control::make(kind, flags, length16(length)));
}

}  // namespace

ucs_status_t SmEp::make_room(std::uint64_t slots, std::uint64_t segs) {
    Link& l = link();
    if (l.failure != UCS_OK)
        return l.failure;
    if (l.fence_waits && l.blocking_ops == 0)
        l.fence_waits = false;
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    if (!group_.blocks_sends() && !l.fence_waits)
        status = l.claim(slots);
    if (status == UCS_OK && segs > 0 && !l.segs->has(segs))
        status = UCS_ERR_NO_RESOURCE;
    if (status == UCS_ERR_NO_RESOURCE)
        l.iface.count(SmCounter::kNoResource);
    // While anybody's request waits, every message comes through here, so that it cannot be
    // overtaken.
    if (l.tx_made && !l.iface.pending.empty())
        l.tx.limit(status == UCS_OK ? slots : 0);
    return status;
}

// ---- Active messages

// The fast path calls nothing that returns to it, so it saves no registers.
ucs_status_t SmEp::am_short(std::uint8_t id, std::uint64_t header, const void* payload,
                            unsigned length) {
    Link& to = link();
    if (length > kAmShortPayloadMax || id >= UCT_AM_ID_MAX || !to.tx.has_room()) [[unlikely]]
        return am_short_slow(id, header, payload, length);
    Slot<>& slot = to.tx.slot();
    std::memcpy(slot.body, &header, sizeof header);
    copy_short(slot.body + sizeof header, payload, length);
    return to.publish_short(slot, Control::make(Kind::kAm, id, length16(length + sizeof header)));
}

ucs_status_t SmEp::am_short_slow(std::uint8_t id, std::uint64_t header, const void* payload,
                                 unsigned length) {
    if (length > kAmShortPayloadMax)
        return refuse("am_short", length + sizeof header, kAmInlineMax);
    if (id >= UCT_AM_ID_MAX)
        return refuse_id(id);
    const ucs_status_t status = make_room(1, 0);
    return status == UCS_OK ? am_short(id, header, payload, length) : status;
}

// A header and one data element take the fast path; everything else takes the slow path.
ucs_status_t SmEp::am_short_iov(std::uint8_t id, const uct_iov_t* iov, std::size_t iovcnt) {
    if (iovcnt != 2 || iov[0].count != 1 || iov[1].count != 1 || id >= UCT_AM_ID_MAX)
        return am_short_iov_slow(id, iov, iovcnt);
    const std::size_t head = iov[0].length;
    const std::size_t data = iov[1].length;
    Link& to = link();
    if (head > kAmInlineMax || data > kAmInlineMax - head || !to.tx.has_room()) [[unlikely]]
        return am_short_iov_slow(id, iov, iovcnt);
    Slot<>& slot = to.tx.slot();
    copy_short(slot.body, iov[0].buffer, head);
    copy_short(slot.body + head, iov[1].buffer, data);
    return to.publish_short(slot, Control::make(Kind::kAm, id, length16(head + data)));
}

ucs_status_t SmEp::am_short_iov_slow(std::uint8_t id, const uct_iov_t* iov, std::size_t iovcnt) {
    if (iovcnt > kIovMax) [[unlikely]]
        return refuse("am_short_iov: iov elements", iovcnt, kIovMax);
    const std::size_t bytes = iov_bytes(iov, iovcnt);
    if (bytes > kAmInlineMax) [[unlikely]]
        return refuse("am_short_iov", bytes, kAmInlineMax);
    if (id >= UCT_AM_ID_MAX) [[unlikely]]
        return refuse_id(id);
    const ucs_status_t status = room(0);
    if (status != UCS_OK) [[unlikely]]
        return status;
    IovCursor(iov, iovcnt).gather(link().tx.slot().body, bytes);
    link().publish(Control::make(Kind::kAm, id, length16(bytes)));
    return UCS_OK;
}

ssize_t SmEp::am_bcopy(std::uint8_t id, uct_pack_callback_t pack, void* arg, unsigned) {
    if (id >= UCT_AM_ID_MAX) [[unlikely]]
        return refuse_id(id);
    const ucs_status_t status = room(1);
    if (status != UCS_OK) [[unlikely]]
        return status;
    Link& to = link();
    const std::uint32_t seg = to.segs->take();
    std::byte* buffer = to.segs->buffer(seg);
    const std::size_t bytes = pack(buffer, arg);
    if (bytes <= kAmInlineMax) {
        // The buffer is still only in our cache: a message this small travels in its slot.
        copy_short(to.tx.slot().body, buffer, bytes);
        to.segs->untake(seg);
        to.publish(Control::make(Kind::kAm, id, length16(bytes)));
    } else if (bytes <= to.iface.seg_bytes()) [[likely]] {
        to.segs->shrink(seg, bytes);
        publish_seg(to, id, seg, buffer, bytes);
    } else {
        to.segs->untake(seg);
        return refuse("am_bcopy: packed bytes", bytes, to.iface.seg_bytes());
    }
    return static_cast<ssize_t>(bytes);
}

ucs_status_t SmEp::am_zcopy(std::uint8_t id, const void* header, unsigned header_length,
                            const uct_iov_t* iov, std::size_t iovcnt, unsigned, uct_completion_t*) {
    const std::size_t limit = link().iface.seg_bytes();
    if (iovcnt > kIovMax) [[unlikely]]
        return refuse("am_zcopy: iov elements", iovcnt, kIovMax);
    const std::size_t payload = iov_bytes(iov, iovcnt);
    if (header_length > limit) [[unlikely]]
        return refuse("am_zcopy: header", header_length, limit);
    if (payload > limit - header_length) [[unlikely]]
        return refuse("am_zcopy: header and data", payload + header_length, limit);
    if (id >= UCT_AM_ID_MAX) [[unlikely]]
        return refuse_id(id);
    const std::size_t bytes = header_length + payload;
    const bool fits_slot = bytes <= kAmInlineMax;
    const ucs_status_t status = room(fits_slot ? 0 : 1);
    if (status != UCS_OK) [[unlikely]]
        return status;
    const std::uint32_t seg = fits_slot ? 0 : link().segs->take();
    std::byte* to = fits_slot ? link().tx.slot().body : link().segs->buffer(seg);
    if (header_length > 0)
        std::memcpy(to, header, header_length);
    IovCursor(iov, iovcnt).gather(to + header_length, payload);
    if (fits_slot) {
        link().publish(Control::make(Kind::kAm, id, length16(bytes)));
    } else {
        link().segs->shrink(seg, bytes);
        publish_seg(link(), id, seg, to, bytes);
    }
    return UCS_OK;
}

// ---- Eager tagged messages

ucs_status_t SmEp::tag_eager_short(uct_tag_t tag, const void* data, std::size_t length) {
    Link& to = link();
    if (length > sizeof(TagShortBody::data) || !to.tx.has_room()) [[unlikely]]
        return tag_eager_short_slow(tag, data, length);
    Slot<>& slot = to.tx.slot();
    auto& body = body_of<TagShortBody>(slot);
    body.tag = tag;
    copy_short(body.data, data, length);
    return to.publish_short(slot, Control::make(Kind::kTagShort, 0, length16(length)));
}

ucs_status_t SmEp::tag_eager_short_slow(uct_tag_t tag, const void* data, std::size_t length) {
    if (length > sizeof(TagShortBody::data))
        return refuse("tag_eager_short", length, sizeof(TagShortBody::data));
    const ucs_status_t status = make_room(1, 0);
    return status == UCS_OK ? tag_eager_short(tag, data, length) : status;
}

ssize_t SmEp::tag_eager_bcopy(uct_tag_t tag, std::uint64_t imm, uct_pack_callback_t pack, void* arg,
                              unsigned) {
    const ucs_status_t status = room(1);
    if (status != UCS_OK) [[unlikely]]
        return status;
    const std::uint32_t seg = link().segs->take();
    std::byte* buffer = link().segs->buffer(seg);
    const std::size_t bytes = pack(buffer, arg);
    if (bytes <= sizeof(TagImmBody::data)) {
        auto& body = body_of<TagImmBody>(link().tx.slot());
        body.tag = tag;
        body.imm = imm;
        copy_short(body.data, buffer, bytes);
        link().segs->untake(seg);
        link().publish(Control::make(Kind::kTagImm, 0, length16(bytes)));
    } else if (bytes <= link().iface.seg_bytes()) [[likely]] {
        link().segs->shrink(seg, bytes);
        body_of<TagSegBody>(link().tx.slot()) = TagSegBody{tag, imm, bytes, seg};
        link().publish(Control::make(Kind::kTagSeg, kFirst, length16(bytes)));
        link().segs->prefetch_next(bytes);
    } else {
        link().segs->untake(seg);
        return refuse("tag_eager_bcopy: packed bytes", bytes, link().iface.seg_bytes());
    }
    return static_cast<ssize_t>(bytes);
}

ucs_status_t SmEp::tag_eager_zcopy(uct_tag_t tag, std::uint64_t imm, const uct_iov_t* iov,
                                   std::size_t iovcnt, unsigned, uct_completion_t*) {
    const std::size_t seg_bytes = link().iface.seg_bytes();
    if (iovcnt > kIovMax) [[unlikely]]
        return refuse("tag_eager_zcopy: iov elements", iovcnt, kIovMax);
    const std::size_t total = iov_bytes(iov, iovcnt);
    if (total > kFragmentCountMax * seg_bytes) [[unlikely]]
        return refuse("tag_eager_zcopy", total, kFragmentCountMax * seg_bytes);
    IovCursor cursor(iov, iovcnt);
    if (total <= sizeof(TagImmBody::data)) {
        const ucs_status_t status = room(0);
        if (status != UCS_OK) [[unlikely]]
            return status;
        auto& body = body_of<TagImmBody>(link().tx.slot());
        body.tag = tag;
        body.imm = imm;
        cursor.gather(body.data, total);
        link().publish(Control::make(Kind::kTagImm, 0, length16(total)));
        return UCS_OK;
    }
    const std::size_t count = (total + seg_bytes - 1) / seg_bytes;
    const ucs_status_t status = count == 1 ? room(1) : make_room(count, count);
    if (status != UCS_OK) [[unlikely]]
        return status;
    std::uint16_t lengths[kFragmentCountMax];
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t seg = link().segs->take();
        lengths[i] = length16(cursor.gather(link().segs->buffer(seg), seg_bytes));
        link().segs->shrink(seg, lengths[i]);
        body_of<TagSegBody>(link().tx.slot(i)) = TagSegBody{tag, imm, total, seg};
    }
    // The first one last: the receiver sees all of the message or, if we die here, none of it.
    for (std::size_t i = count; i > 0; --i) {
        const auto flags =
            static_cast<std::uint8_t>((i == 1 ? kFirst : 0) | (i < count ? kMore : 0));
        link().tx.publish_ahead(i - 1, Control::make(Kind::kTagSeg, flags, lengths[i - 1]));
    }
    link().tx.advance(count);
    link().after_publish();
    link().segs->prefetch_next(lengths[0]);
    return UCS_OK;
}

// ---- Rendezvous

ucs_status_ptr_t SmEp::tag_rndv_zcopy(uct_tag_t tag, const void* header, unsigned header_length,
                                      const uct_iov_t* iov, std::size_t iovcnt, unsigned,
                                      uct_completion_t* comp) {
    const std::size_t header_max = link().iface.seg_bytes();
    if (header_length > header_max)
        return UCS_STATUS_PTR(refuse("tag_rndv_zcopy: header", header_length, header_max));
    if (iovcnt > 1)
        return UCS_STATUS_PTR(refuse("tag_rndv_zcopy: iov elements", iovcnt, 1));
    if (iovcnt == 1 && iov->count > 1)
        return UCS_STATUS_PTR(refuse("tag_rndv_zcopy: iov count", iov->count, 1));
    if (comp == nullptr) {
        TW_LOG_ERROR("tag_rndv_zcopy: comp is NULL; a completion is required");
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    }
    ucs_status_t status = room(header_length > sizeof(RndvBody::header) ? 1 : 0);
    if (status != UCS_OK)
        return UCS_STATUS_PTR(status);
    RndvOp* op = link().iface.rndv.start(link(), this, comp);
    if (op == nullptr)
        return UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE);
    SmMd& md = link().iface.sm_md();
    op->buffer = iovcnt == 1 && iov->count == 1 ? static_cast<std::byte*>(iov->buffer) : nullptr;
    op->length = op->buffer == nullptr ? 0 : iov->length;
    const std::uint64_t offset =
        op->length == 0 ? kNoOffset : md.arena().offset_of(op->buffer, op->length);
    std::uint32_t key = 0;
    std::uint64_t key_generation = 0;
    if (op->length > 0) {
        const auto* handle = static_cast<const MemHandle*>(iov->memh);
        if (handle == nullptr || (handle->flags & UCT_MD_MEM_ACCESS_REMOTE_GET) == 0) {
            status =
                md.mem_reg(op->buffer, op->length, UCT_MD_MEM_ACCESS_REMOTE_GET, &op->own_memh);
            if (status != UCS_OK) {
                op->op->completion = nullptr;
                link().iface.rndv.drop(*op, status);
                return UCS_STATUS_PTR(status);
            }
            handle = static_cast<const MemHandle*>(op->own_memh);
        }
        key = handle->key;
        key_generation = handle->generation;
    }
    auto& body = body_of<RndvBody>(link().tx.slot());
    body.tag = tag;
    body.address = reinterpret_cast<std::uintptr_t>(op->buffer);
    body.length = op->length;
    body.arena_offset = offset == kNoOffset ? 0 : offset;
    body.generation = op->generation;
    body.op = op->index;
    body.key = key;
    body.key_generation = key_generation;
    publish_header(link(), Kind::kRndv,
                   offset == kNoOffset ? std::uint8_t{0} : std::uint8_t{kInArena}, header,
                   header_length, body.header, sizeof body.header, &body.seg);
    return op;
}

ucs_status_t SmEp::tag_rndv_cancel(void* handle) {
    auto* op = static_cast<RndvOp*>(handle);
    TW_ASSERT(op->link == &link());
    SmIface& owner = link().iface;
    owner.guard().enter();  // flushes behind it end
    op->withdraw();
    op->op->completion = nullptr;
    owner.rndv.drop(*op, UCS_OK);
    owner.guard().leave();
    return UCS_OK;
}

ucs_status_t SmEp::tag_rndv_request(uct_tag_t tag, const void* header, unsigned header_length,
                                    unsigned) {
    const std::size_t header_max = link().iface.seg_bytes();
    if (header_length > header_max)
        return refuse("tag_rndv_request: header", header_length, header_max);
    const ucs_status_t status = room(header_length > sizeof(RndvRequestBody::header) ? 1 : 0);
    if (status != UCS_OK)
        return status;
    auto& body = body_of<RndvRequestBody>(link().tx.slot());
    body.tag = tag;
    publish_header(link(), Kind::kRndvRequest, 0, header, header_length, body.header,
                   sizeof body.header, &body.seg);
    return UCS_OK;
}

}  // namespace tagwire::sm
