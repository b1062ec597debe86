// SPDX-License-Identifier: BSD-3-Clause
// Put and get as their initiator sees them. Long puts are sent from the program's memory and end
// when the peer has placed them, so that a key that has ended is an error of the operation; short
// ones are copied, and the next flush tells.
#include <cstring>

#include "uct/tcp/send.hpp"

namespace tagwire::tcp {

namespace {

/// Shorter puts from the program's memory are copied to the queue.
constexpr std::size_t kCopiedPutMax = 8192;
constexpr std::size_t kZcopyMax = std::size_t{1} << 40;

}  // namespace

ucs_status_t TcpEp::resolve(uct_rkey_t rkey, std::uint64_t remote_addr, std::size_t length,
                            const PackedRkey** key_p) const {
    if (rkey == UCT_INVALID_RKEY || rkey == 0) {
        TW_LOG_ERROR("remote access: rkey is UCT_INVALID_RKEY or 0");
        return UCS_ERR_INVALID_PARAM;
    }
    const PackedRkey& packed = reinterpret_cast<const TcpRemoteKey*>(rkey)->packed;
    if (remote_addr < packed.address || remote_addr - packed.address > packed.length ||
        length > packed.length - (remote_addr - packed.address)) {
        TW_LOG_ERROR(
            "remote access to [0x%llx, +%zu) is outside of its key's range [0x%llx, +%llu)",
            static_cast<unsigned long long>(remote_addr), length,
            static_cast<unsigned long long>(packed.address),
            static_cast<unsigned long long>(packed.length));
        return UCS_ERR_INVALID_ADDR;
    }
    *key_p = &packed;
    return UCS_OK;
}

// ---- Put

ucs_status_t TcpEp::put_short(const void* buffer, unsigned length, std::uint64_t remote_addr,
                              uct_rkey_t rkey) {
    const std::size_t limit = connection_->iface.options().seg_bytes;
    if (length > limit)
        return refuse("put_short", length, limit);
    const PackedRkey* key = nullptr;
    ucs_status_t status = resolve(rkey, remote_addr, length, &key);
    std::byte* to = nullptr;
    if (status == UCS_OK)
        status = room<PutBody>(length, &to);
    if (status != UCS_OK)
        return status;
    ucs::copy_short(data_of<PutBody>(to), buffer, length);
    ++connection_->puts;
    send(to, Kind::kPut, 0, PutBody{0, remote_addr, key->key()}, length);
    return UCS_OK;
}

ssize_t TcpEp::put_bcopy(uct_pack_callback_t pack, void* arg, std::uint64_t remote_addr,
                         uct_rkey_t rkey) {
    const std::size_t limit = connection_->iface.options().seg_bytes;
    const PackedRkey* key = nullptr;
    ucs_status_t status = resolve(rkey, remote_addr, 0, &key);
    std::byte* to = nullptr;
    if (status == UCS_OK)
        status = room<PutBody>(limit, &to);
    if (status != UCS_OK)
        return status;
    const std::size_t bytes = pack(data_of<PutBody>(to), arg);
    if (bytes > limit)
        return refuse("put_bcopy: packed bytes", bytes, limit);
    status = resolve(rkey, remote_addr, bytes, &key);
    if (status != UCS_OK)
        return status;
    ++connection_->puts;
    send(to, Kind::kPut, 0, PutBody{0, remote_addr, key->key()}, bytes);
    return static_cast<ssize_t>(bytes);
}

ucs_status_t TcpEp::put_zcopy(const uct_iov_t* iov, std::size_t iovcnt, std::uint64_t remote_addr,
                              uct_rkey_t rkey, uct_completion_t* comp) {
    TcpIface& owner = connection_->iface;
    if (iovcnt > uct::kIovMax)
        return refuse("put_zcopy: iov elements", iovcnt, uct::kIovMax);
    const std::size_t bytes = uct::iov_bytes(iov, iovcnt);
    if (bytes > kZcopyMax)
        return refuse("put_zcopy", bytes, kZcopyMax);
    const PackedRkey* key = nullptr;
    ucs_status_t status = resolve(rkey, remote_addr, bytes, &key);
    if (status == UCS_OK)
        status = has_room(frame_bytes<PutBody>(std::min(bytes, kCopiedPutMax)));
    if (status != UCS_OK || bytes == 0)
        return status;
    Op* op = owner.ops.create(*connection_, OpKind::kPut, this, comp);
    if (op == nullptr)
        return UCS_ERR_NO_RESOURCE;
    std::byte* to = nullptr;
    if (bytes <= kCopiedPutMax && room<PutBody>(bytes, &to) == UCS_OK) {
        uct::IovCursor(iov, iovcnt).gather(data_of<PutBody>(to), bytes);
        send(to, Kind::kPut, 0, PutBody{op->id, remote_addr, key->key()}, bytes);
        return UCS_INPROGRESS;
    }
    TxStream* stream = owner.pools.streams.create();
    if (stream == nullptr) {
        op->completion = nullptr;
        owner.ops.finish(*op, UCS_ERR_NO_MEMORY);
        return UCS_ERR_NO_RESOURCE;
    }
    stream->is_put = true;
    stream->op = op->id;
    stream->address = remote_addr;
    stream->key = key->key();
    if (bytes > kFrameDataMax)
        stream->key.part = OpTable::serial_of(op->id);
    stream->left = bytes;
    stream->iov.assign(iov, iovcnt);
    stream->cursor = stream->iov.cursor();
    connection_->tx.push(*stream);
    owner.sender.after_send(*connection_);
    return UCS_INPROGRESS;
}

// ---- Get

ucs_status_t TcpEp::start_get(Op& op, const PackedRkey& key, std::uint64_t remote_addr) {
    std::byte* to = nullptr;
    const ucs_status_t status = room<GetRequestBody>(0, &to);
    if (status != UCS_OK) {
        op.completion = nullptr;
        connection_->iface.ops.finish(op, status);
        return status;
    }
    send(to, Kind::kGetRequest, 0, GetRequestBody{op.id, 0, remote_addr, op.left, key.key()}, 0);
    return UCS_INPROGRESS;
}

ucs_status_t TcpEp::get_bcopy(uct_unpack_callback_t unpack, void* arg, std::size_t length,
                              std::uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t* comp) {
    TcpIface& owner = connection_->iface;
    const std::size_t limit = owner.options().seg_bytes;
    if (length > limit)
        return refuse("get_bcopy", length, limit);
    const PackedRkey* key = nullptr;
    ucs_status_t status = resolve(rkey, remote_addr, length, &key);
    if (status == UCS_OK)
        status = has_room(frame_bytes<GetRequestBody>(0));
    if (status != UCS_OK)
        return status;
    if (length == 0) {
        const std::byte nothing{};  // not null: the program may call memcpy(3)
        unpack(arg, &nothing, 0);
        return UCS_OK;
    }
    Op* op = owner.ops.create(*connection_, OpKind::kGetBcopy, this, comp);
    if (op == nullptr)
        return UCS_ERR_NO_RESOURCE;
    op->staging = static_cast<std::byte*>(owner.staging.get());
    if (op->staging == nullptr) {
        op->completion = nullptr;
        owner.ops.finish(*op, UCS_ERR_NO_MEMORY);
        return UCS_ERR_NO_RESOURCE;
    }
    op->unpack = unpack;
    op->unpack_arg = arg;
    op->left = op->length = length;
    const uct_iov_t one{op->staging, length, nullptr, 0, 1};
    op->iov.assign(&one, 1);
    op->cursor = op->iov.cursor();
    return start_get(*op, *key, remote_addr);
}

ucs_status_t TcpEp::get_zcopy(const uct_iov_t* iov, std::size_t iovcnt, std::uint64_t remote_addr,
                              uct_rkey_t rkey, uct_completion_t* comp) {
    TcpIface& owner = connection_->iface;
    if (iovcnt > uct::kIovMax)
        return refuse("get_zcopy: iov elements", iovcnt, uct::kIovMax);
    const std::size_t bytes = uct::iov_bytes(iov, iovcnt);
    if (bytes > kZcopyMax)
        return refuse("get_zcopy", bytes, kZcopyMax);
    const PackedRkey* key = nullptr;
    ucs_status_t status = resolve(rkey, remote_addr, bytes, &key);
    if (status == UCS_OK)
        status = has_room(frame_bytes<GetRequestBody>(0));
    if (status != UCS_OK || bytes == 0)
        return status;
    Op* op = owner.ops.create(*connection_, OpKind::kGetZcopy, this, comp);
    if (op == nullptr)
        return UCS_ERR_NO_RESOURCE;
    op->left = op->length = bytes;
    op->iov.assign(iov, iovcnt);
    op->cursor = op->iov.cursor();
    return start_get(*op, *key, remote_addr);
}

}  // namespace tagwire::tcp
