// SPDX-License-Identifier: BSD-3-Clause
// Active messages and tagged messages. All are copied to the connection's queue, from where the
// kernel takes them: at once, or several with one system call.
#include <cstring>
#include <memory>

#include "ucs/debug/check.hpp"
#include "uct/tcp/send.hpp"

namespace tagwire::tcp {

namespace {

[[gnu::noinline, gnu::cold]] ucs_status_t refuse_id(unsigned id) {
    return refuse("active message id", id, UCT_AM_ID_MAX - 1);
}

}  // namespace

// ---- Active messages

ucs_status_t TcpEp::am_short(std::uint8_t id, std::uint64_t header, const void* payload,
                             unsigned length) {
    const std::size_t limit = connection_->iface.options().seg_bytes;
    if (length > limit - sizeof header) [[unlikely]]
        return refuse("am_short", length + sizeof header, limit);
    if (id >= UCT_AM_ID_MAX) [[unlikely]]
        return refuse_id(id);
    std::byte* to = nullptr;
    const ucs_status_t status = room<NoBody>(sizeof header + length, &to);
    if (status != UCS_OK) [[unlikely]]
        return status;
    std::byte* data = data_of<NoBody>(to);
    std::memcpy(data, &header, sizeof header);
    ucs::copy_short(data + sizeof header, payload, length);
    send(to, Kind::kAm, id, NoBody{}, sizeof header + length);
    return UCS_OK;
}

ucs_status_t TcpEp::am_short_iov(std::uint8_t id, const uct_iov_t* iov, std::size_t iovcnt) {
    const std::size_t limit = connection_->iface.options().seg_bytes;
    if (iovcnt > uct::kIovMax) [[unlikely]]
        return refuse("am_short_iov: iov elements", iovcnt, uct::kIovMax);
    const std::size_t bytes = uct::iov_bytes(iov, iovcnt);
    if (bytes > limit) [[unlikely]]
        return refuse("am_short_iov", bytes, limit);
    if (id >= UCT_AM_ID_MAX) [[unlikely]]
        return refuse_id(id);
    std::byte* to = nullptr;
    const ucs_status_t status = room<NoBody>(bytes, &to);
    if (status != UCS_OK) [[unlikely]]
        return status;
    uct::IovCursor(iov, iovcnt).gather(data_of<NoBody>(to), bytes);
    send(to, Kind::kAm, id, NoBody{}, bytes);
    return UCS_OK;
}

template <class Body>
ssize_t TcpEp::send_packed(Kind kind, std::uint8_t value, const Body& body,
                           uct_pack_callback_t pack, void* arg) {
    const std::size_t limit = connection_->iface.options().seg_bytes;
    std::byte* to = nullptr;
    const ucs_status_t status = room<Body>(limit, &to);
    if (status != UCS_OK) [[unlikely]]
        return status;
    const std::size_t bytes = pack(data_of<Body>(to), arg);
    if (bytes > limit) [[unlikely]]
        return refuse("packed bytes", bytes, limit);
    send(to, kind, value, body, bytes);
    return static_cast<ssize_t>(bytes);
}

ssize_t TcpEp::am_bcopy(std::uint8_t id, uct_pack_callback_t pack, void* arg, unsigned) {
    if (id >= UCT_AM_ID_MAX) [[unlikely]]
        return refuse_id(id);
    return send_packed(Kind::kAm, id, NoBody{}, pack, arg);
}

ucs_status_t TcpEp::am_zcopy(std::uint8_t id, const void* header, unsigned header_length,
                             const uct_iov_t* iov, std::size_t iovcnt, unsigned,
                             uct_completion_t*) {
    const std::size_t limit = connection_->iface.options().seg_bytes;
    if (iovcnt > uct::kIovMax) [[unlikely]]
        return refuse("am_zcopy: iov elements", iovcnt, uct::kIovMax);
    const std::size_t payload = uct::iov_bytes(iov, iovcnt);
    if (header_length > limit) [[unlikely]]
        return refuse("am_zcopy: header", header_length, limit);
    if (payload > limit - header_length) [[unlikely]]
        return refuse("am_zcopy: header and data", payload + header_length, limit);
    if (id >= UCT_AM_ID_MAX) [[unlikely]]
        return refuse_id(id);
    std::byte* to = nullptr;
    const ucs_status_t status = room<NoBody>(header_length + payload, &to);
    if (status != UCS_OK) [[unlikely]]
        return status;
    std::byte* data = data_of<NoBody>(to);
    if (header_length > 0)
        std::memcpy(data, header, header_length);
    uct::IovCursor(iov, iovcnt).gather(data + header_length, payload);
    send(to, Kind::kAm, id, NoBody{}, header_length + payload);
    return UCS_OK;
}

// ---- Eager tagged messages

ucs_status_t TcpEp::tag_eager_short(uct_tag_t tag, const void* data, std::size_t length) {
    const std::size_t limit = connection_->iface.options().seg_bytes;
    if (length > limit) [[unlikely]]
        return refuse("tag_eager_short", length, limit);
    std::byte* to = nullptr;
    const ucs_status_t status = room<TagEagerBody>(length, &to);
    if (status != UCS_OK) [[unlikely]]
        return status;
    ucs::copy_short(data_of<TagEagerBody>(to), data, length);
    send(to, Kind::kTagEager, 0, TagEagerBody{tag, 0}, length);
    return UCS_OK;
}

ssize_t TcpEp::tag_eager_bcopy(uct_tag_t tag, std::uint64_t imm, uct_pack_callback_t pack,
                               void* arg, unsigned) {
    return send_packed(Kind::kTagEager, 0, TagEagerBody{tag, imm}, pack, arg);
}

ucs_status_t TcpEp::tag_eager_zcopy(uct_tag_t tag, std::uint64_t imm, const uct_iov_t* iov,
                                    std::size_t iovcnt, unsigned, uct_completion_t*) {
    const std::size_t limit = connection_->iface.options().seg_bytes;
    if (iovcnt > uct::kIovMax) [[unlikely]]
        return refuse("tag_eager_zcopy: iov elements", iovcnt, uct::kIovMax);
    const std::size_t bytes = uct::iov_bytes(iov, iovcnt);
    if (bytes > limit) [[unlikely]]
        return refuse("tag_eager_zcopy", bytes, limit);
    std::byte* to = nullptr;
    const ucs_status_t status = room<TagEagerBody>(bytes, &to);
    if (status != UCS_OK) [[unlikely]]
        return status;
    uct::IovCursor(iov, iovcnt).gather(data_of<TagEagerBody>(to), bytes);
    send(to, Kind::kTagEager, 0, TagEagerBody{tag, imm}, bytes);
    return UCS_OK;
}

// ---- Rendezvous

ucs_status_ptr_t TcpEp::tag_rndv_zcopy(uct_tag_t tag, const void* header, unsigned header_length,
                                       const uct_iov_t* iov, std::size_t iovcnt, unsigned,
                                       uct_completion_t* comp) {
    TcpIface& owner = connection_->iface;
    const std::size_t header_max = owner.options().seg_bytes;
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
    std::byte* to = nullptr;
    ucs_status_t status = room<RtsBody>(header_length, &to);
    if (status != UCS_OK)
        return UCS_STATUS_PTR(status);
    void* buffer = iovcnt == 1 && iov->count == 1 ? iov->buffer : nullptr;
    const std::size_t length = buffer == nullptr ? 0 : iov->length;
    auto* registration = length > 0 ? static_cast<Registration*>(iov->memh) : nullptr;
    Registration* own = nullptr;
    const auto is_readable = [](const Registration& by) {
        return (by.flags & UCT_MD_MEM_ACCESS_REMOTE_GET) != 0;
    };
    if (length > 0 && (registration == nullptr || !is_readable(*registration))) {
        uct_mem_h memh = nullptr;
        status = owner.tcp_md().mem_reg(buffer, length, UCT_MD_MEM_ACCESS_REMOTE_GET, &memh);
        if (status != UCS_OK)
            return UCS_STATUS_PTR(status);
        own = registration = static_cast<Registration*>(memh);
    }
    Op* op = owner.ops.create(*connection_, OpKind::kRndvSend, this, comp);
    if (op == nullptr) {
        if (own != nullptr)
            owner.tcp_md().mem_dereg(own);
        return UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE);
    }
    op->own = own;
    if (header_length > 0)
        std::memcpy(data_of<RtsBody>(to), header, header_length);
    const Key key = registration != nullptr ? registration->key : Key{};
    send(to, Kind::kRts, 0,
         RtsBody{op->id, tag, reinterpret_cast<std::uintptr_t>(buffer), length, key},
         header_length);
    return op;
}

ucs_status_t TcpEp::tag_rndv_cancel(void* handle) {
    auto* op = static_cast<Op*>(handle);
    TW_ASSERT(op->connection == connection_);
    TcpIface& owner = connection_->iface;
    owner.guard().enter();  // flushes behind it end
    op->completion = nullptr;
    owner.sender.let_go(*op);
    owner.ops.abandon(*op, UCS_OK);
    owner.guard().leave();
    return UCS_OK;
}

ucs_status_t TcpEp::tag_rndv_request(uct_tag_t tag, const void* header, unsigned header_length,
                                     unsigned) {
    const std::size_t header_max = connection_->iface.options().seg_bytes;
    if (header_length > header_max)
        return refuse("tag_rndv_request: header", header_length, header_max);
    std::byte* to = nullptr;
    const ucs_status_t status = room<TagRequestBody>(header_length, &to);
    if (status != UCS_OK)
        return status;
    if (header_length > 0)
        std::memcpy(data_of<TagRequestBody>(to), header, header_length);
    send(to, Kind::kTagRequest, 0, TagRequestBody{tag}, header_length);
    return UCS_OK;
}

}  // namespace tagwire::tcp
