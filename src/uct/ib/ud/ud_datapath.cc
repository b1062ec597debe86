// SPDX-License-Identifier: BSD-3-Clause
// The sending half of the data path: active messages into packets, packets into the send queue.
#include <cstring>

#include "ucs/time/clock.hpp"
#include "uct/ib/gather.hpp"
#include "uct/ib/ud/ud_iface.hpp"

namespace tagwire::ud {

using ib::SendOp;

// ---- Active messages

ucs_status_t UdEp::room() {
    if (failure_ == UCS_OK && !group_.blocks_sends() && sender.has_room()) [[likely]]
        return UCS_OK;
    return no_room();
}

ucs_status_t UdEp::no_room() {
    if (failure_ != UCS_OK)
        return failure_;
    owner().count(UdCounter::kNoResource);
    return UCS_ERR_NO_RESOURCE;
}

void UdEp::send(SendOp* op, std::uint8_t am_id, std::size_t bytes) {
    UdIface& own = owner();
    Header header;
    header.value = am_id;
    std::memcpy(op->data(), &header, sizeof header);  // the rest when it is sent
    op->sn = own.acked_;
    op->serial = kHeaderBytes + bytes;
    sender.push(op);
    own.node_->pump(*this, ucs::clock_now_ns());
}

ucs_status_t UdEp::am_short(std::uint8_t am_id, std::uint64_t header, const void* payload,
                            unsigned length) {
    if (sizeof header + length > kShortBytes) [[unlikely]]
        return ib::refuse("am_short", sizeof header + length, kShortBytes);
    if (am_id >= UCT_AM_ID_MAX) [[unlikely]]
        return ib::refuse_am_id(am_id);
    const ucs_status_t status = room();
    if (status != UCS_OK) [[unlikely]]
        return status;
    SendOp* op = owner().short_.get();
    if (op == nullptr) [[unlikely]]
        return no_room();
    std::byte* data = op->data() + kHeaderBytes;
    std::memcpy(data, &header, sizeof header);
    if (length > 0)
        std::memcpy(data + sizeof header, payload, length);
    send(op, am_id, sizeof header + length);
    return UCS_OK;
}

ucs_status_t UdEp::am_short_iov(std::uint8_t am_id, const uct_iov_t* iov, std::size_t iovcnt) {
    const std::size_t bytes = ib::gather_bytes(iov, iovcnt);
    if (bytes > kShortBytes) [[unlikely]]
        return ib::refuse("am_short_iov", bytes, kShortBytes);
    if (am_id >= UCT_AM_ID_MAX) [[unlikely]]
        return ib::refuse_am_id(am_id);
    const ucs_status_t status = room();
    if (status != UCS_OK) [[unlikely]]
        return status;
    SendOp* op = owner().short_.get();
    if (op == nullptr) [[unlikely]]
        return no_room();
    ib::gather_copy(op->data() + kHeaderBytes, iov, iovcnt);
    send(op, am_id, bytes);
    return UCS_OK;
}

ssize_t UdEp::am_bcopy(std::uint8_t am_id, uct_pack_callback_t pack_message, void* arg, unsigned) {
    UdIface& own = owner();
    if (am_id >= UCT_AM_ID_MAX) [[unlikely]]
        return ib::refuse_am_id(am_id);
    const ucs_status_t status = room();
    if (status != UCS_OK) [[unlikely]]
        return status;
    SendOp* op = own.long_.get();
    if (op == nullptr) [[unlikely]]
        return no_room();
    const std::size_t bytes = pack_message(op->data() + kHeaderBytes, arg);
    if (bytes > own.datagram_bytes_ - kHeaderBytes) [[unlikely]] {
        op->pool->put(op);
        return ib::refuse("am_bcopy: packed bytes", bytes, own.datagram_bytes_ - kHeaderBytes);
    }
    send(op, am_id, bytes);
    return static_cast<ssize_t>(bytes);
}

// ---- Into the send queue

void UdIface::post(UdPeer& peer, ibv_sge sge) {
    ibv_send_wr request{};
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = sge.length <= inline_max_ ? unsigned{IBV_SEND_INLINE} : 0U;
    request.wr.ud.ah = peer.path;
    request.wr.ud.remote_qpn = peer.qp_num;
    request.wr.ud.remote_qkey = kQkey;
    request.wr_id = ++posted_;
    --sq_free_;
    if (++unsignaled_ >= signal_every_) {
        request.send_flags |= IBV_SEND_SIGNALED;
        unsignaled_ = 0;
    }
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(qp_.get(), &request, &bad);
    if (error != 0) [[unlikely]]
        break_down("ibv_post_send", std::strerror(error));
}

void UdIface::send_data(UdPeer& peer, const Header& header, void* packet) {
    auto* op = static_cast<SendOp*>(packet);
    const auto bytes = static_cast<std::uint32_t>(op->serial);
    // A packet that the device still reads goes again as it is: an old acknowledgement does no
    // harm, and one that is owed goes by itself.
    if (is_read(*op)) [[unlikely]] {
        if (header.ack_id != 0)
            node_->did_not_tell();
    } else {
        Header filled = pack(header);
        filled.value = std::to_integer<std::uint8_t>(op->data()[offsetof(Header, value)]);
        std::memcpy(op->data(), &filled, sizeof filled);
    }
    post(peer, {ib::address_of(op->data()), bytes, op->lkey});
    if (bytes > inline_max_)
        op->sn = posted_;
}

void UdIface::send_control(UdPeer& peer, const Header& header) {
    struct [[gnu::packed]] {
        Header header;
        ReturnAddress from;
    } message{pack(header), own_address_};
    static_assert(sizeof message == kControlBytesMax);
    const std::uint32_t bytes = has_return_address(header.kind) ? sizeof message : sizeof header;
    if (bytes <= inline_max_) [[likely]]
        return post(peer, {ib::address_of(&message), bytes, 0});
    SendOp* op = short_.get();
    if (op == nullptr)
        return;  // as if it had been lost on the way
    std::memcpy(op->data(), &message, bytes);
    post(peer, {ib::address_of(op->data()), bytes, op->lkey});
    op->sn = posted_;
    release(op);
}

void UdIface::release(void* packet) {
    auto* op = static_cast<SendOp*>(packet);
    if (!is_read(*op)) [[likely]]
        return op->pool->put(op);
    op->next = nullptr;
    (zombies_ == nullptr ? zombies_ : zombies_last_->next) = op;
    zombies_last_ = op;
}

}  // namespace tagwire::ud
