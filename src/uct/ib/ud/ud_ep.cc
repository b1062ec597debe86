// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ud/ud_ep.hpp"

#include <algorithm>
#include <cstring>

#include "ucs/log/log.hpp"
#include "ucs/sys/process.hpp"
#include "ucs/time/clock.hpp"
#include "uct/ib/gather.hpp"
#include "uct/ib/ud/ud_iface.hpp"

namespace tagwire::ud {

using ib::SendOp;

UdEp::UdEp(UdIface& owner, const SenderParams& params, std::uint64_t now)
    : BaseEp(&owner), BasicOutbound(params, now) {}

UdEp::~UdEp() {
    if (peer != nullptr)
        owner().put_peer(*peer);
}

ucs_status_t UdEp::create(const uct_ep_params_t* params, uct_ep_h* ep_p) {
    constexpr std::uint64_t kNeeded =
        UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
    if ((params->field_mask & kNeeded) != kNeeded || params->dev_addr == nullptr ||
        params->iface_addr == nullptr) {
        TW_LOG_ERROR("uct_ep_create on ud needs iface, dev_addr and iface_addr (field_mask 0x%llx)",
                     static_cast<unsigned long long>(params->field_mask));
        return UCS_ERR_INVALID_PARAM;
    }
    auto& own = static_cast<UdIface&>(uct::iface_of(params->iface));
    std::string reason;
    const auto port = ib::parse_port(
        std::span(reinterpret_cast<const std::byte*>(params->dev_addr), sizeof(ib::PortAddress)),
        &reason);
    const auto interface = parse_interface(
        std::span(reinterpret_cast<const std::byte*>(params->iface_addr), sizeof(InterfaceAddress)),
        &reason);
    if (!port || !interface) {
        TW_LOG_ERROR("uct_ep_create on ud: %s", reason.c_str());
        return UCS_ERR_INVALID_ADDR;
    }
    if (!ib::is_reachable(own.port(), *port, &reason) ||
        !agrees(own.own_interface(), *interface, own.options_.window, &reason)) {
        TW_LOG_ERROR("uct_ep_create on ud: %s", reason.c_str());
        return UCS_ERR_UNREACHABLE;
    }
    if (own.is_broken_)
        return UCS_ERR_IO_ERROR;
    const std::uint64_t now = ucs::clock_now_ns();
    SenderParams sender = own.node_->params().sender;
    sender.first_psn = static_cast<std::uint32_t>(ucs::random_u64());
    auto* ep = new UdEp(own, sender, now);
    ep->peer = own.peers_.get(*port, *interface, own.acked_);
    if (ep->peer == nullptr || !own.node_->open(*ep)) {
        delete ep;
        return UCS_ERR_EXCEEDS_LIMIT;
    }
    ep->packets_ = packets_between(own.own_interface(), *interface);
    ep->part_bytes_ =
        std::min<std::size_t>(interface->datagram_bytes, own.datagram_bytes_) - kHeaderBytes;
    ep->index_ = own.eps_.size();
    own.eps_.push_back(ep);
    own.node_->pump(*ep, now);
    *ep_p = ep;
    return UCS_OK;
}

// It may be called by a callback of its own: the object goes at the end of progress.
void UdEp::destroy() {
    UdIface& own = owner();
    unsigned dropped = 0;
    own.pending_.purge(group_, [&](uct_pending_req_t*) { ++dropped; });
    if (dropped > 0)
        TW_LOG_WARN("ud endpoint destroyed with %u pending requests", dropped);
    is_destroyed_ = true;
    if (failure_ == UCS_OK)
        failure_ = UCS_ERR_CANCELED;
    own.node_->close(*this);
    own.guard_.enter();
    own.waiters_.end_all(waiters_, failure_);
    own.guard_.leave();
    own.destroyed_.push_back(this);
}

// ---- Active messages

ucs_status_t UdEp::room() {
    if (failure_ == UCS_OK && !group_.blocks_sends() && sender.has_room(packets_)) [[likely]]
        return UCS_OK;
    return no_room();
}

ucs_status_t UdEp::no_room() {
    if (failure_ != UCS_OK)
        return failure_;
    owner().count(UdCounter::kNoResource);
    return UCS_ERR_NO_RESOURCE;
}

void UdEp::push(SendOp* op, std::uint8_t am_id, std::size_t bytes, std::uint8_t flags) {
    Header header;
    header.value = am_id;
    header.flags = flags;
    std::memcpy(op->data(), &header, sizeof header);  // the rest when it is sent
    op->sn = owner().acked_;
    op->serial = kHeaderBytes + bytes;
    sender.push(op);
}

void UdEp::send(SendOp* op, std::uint8_t am_id, std::size_t bytes) {
    push(op, am_id, bytes, 0);
    owner().node_->pump(*this, ucs::clock_now_ns());
}

// ---- Messages that are longer than the peer's packets

bool UdEp::take_parts(SendOp** parts) {
    UdIface& own = owner();
    for (std::uint32_t i = 0; i < packets_; ++i) {
        parts[i] = own.long_.get();
        if (parts[i] != nullptr)
            continue;
        while (i > 0)
            own.long_.put(parts[--i]);
        return false;
    }
    return true;
}

bool UdEp::has_parts() {
    SendOp* parts[kPartsMax];
    const bool has_all = take_parts(parts);
    for (std::uint32_t i = 0; has_all && i < packets_; ++i)
        owner().long_.put(parts[i]);
    return has_all;
}

// The whole message lies in the first.
void UdEp::send_parts(SendOp** parts, std::uint8_t am_id, std::size_t bytes) {
    UdIface& own = owner();
    std::size_t offset = 0;
    std::uint32_t used = 0;
    do {
        SendOp* op = parts[used++];
        const std::size_t count = std::min(part_bytes_, bytes - offset);
        if (offset > 0)
            std::memcpy(op->data() + kHeaderBytes, parts[0]->data() + kHeaderBytes + offset, count);
        offset += count;
        push(op, am_id, count, offset < bytes ? kHasMore : std::uint8_t{0});
    } while (offset < bytes);
    while (used < packets_)
        own.long_.put(parts[used++]);
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
    SendOp* parts[kPartsMax];
    if (!take_parts(parts)) [[unlikely]]
        return no_room();
    SendOp* op = parts[0];
    const std::size_t bytes = pack_message(op->data() + kHeaderBytes, arg);
    if (bytes > own.datagram_bytes_ - kHeaderBytes) [[unlikely]] {
        for (std::uint32_t i = 0; i < packets_; ++i)
            own.long_.put(parts[i]);
        return ib::refuse("am_bcopy: packed bytes", bytes, own.datagram_bytes_ - kHeaderBytes);
    }
    if (packets_ == 1) [[likely]]
        send(op, am_id, bytes);
    else
        send_parts(parts, am_id, bytes);
    return static_cast<ssize_t>(bytes);
}

// ---- Pending requests

ucs_status_t UdEp::pending_add(uct_pending_req_t* request, unsigned) {
    if (failure_ != UCS_OK)
        return failure_;
    UdIface& own = owner();
    if (group_.empty() && sender.has_room(packets_) && own.long_.has_one() &&
        own.short_.has_one() && (packets_ == 1 || has_parts()))
        return UCS_ERR_BUSY;
    own.pending_.add(group_, request);
    own.has_work_ = true;
    return UCS_OK;
}

void UdEp::pending_purge(uct_pending_purge_callback_t callback, void* arg) {
    owner().pending_.purge(group_, [&](uct_pending_req_t* request) {
        if (callback != nullptr)
            callback(request, arg);
    });
}

// ---- Waiting

bool UdEp::has_ended(const Waiter& waiter) const {
    const std::uint32_t reached =
        waiter.kind == Waits::kCheck ? sender.last_answered() : sender.first_unacknowledged();
    return !is_before(reached, waiter.mark);
}

ucs_status_t UdEp::wait(uct_completion_t* comp, std::uint32_t mark, Waits kind) {
    if (comp == nullptr)
        return UCS_INPROGRESS;
    return owner().waiters_.add(waiters_, comp, mark, kind);
}

ucs_status_t UdEp::flush(unsigned flags, uct_completion_t* comp) {
    if ((flags & UCT_FLUSH_FLAG_CANCEL) != 0)
        return flush_cancel(comp);
    if (failure_ != UCS_OK)
        return failure_;
    if (!group_.empty() && group_.blocks_sends())
        return UCS_ERR_NO_RESOURCE;
    if (sender.is_idle() && waiters_ == nullptr)
        return UCS_OK;
    return wait(comp, sender.given(), Waits::kFlush);
}

ucs_status_t UdEp::flush_cancel(uct_completion_t* comp) {
    UdIface& own = owner();
    if (failure_ == UCS_OK) {
        own.fail(*this, UCS_ERR_CANCELED, "cancelled");
        own.node_->close(*this);
    }
    if (is_settled_ || waiters_ == nullptr)
        return UCS_OK;
    return wait(comp, 0, Waits::kCancel);
}

ucs_status_t UdEp::fence(unsigned) {
    return UCS_OK;  // messages of an endpoint are delivered in order
}

ucs_status_t UdEp::check(unsigned, uct_completion_t* comp) {
    if (failure_ != UCS_OK)
        return failure_;
    const std::uint32_t probe = sender.ask();
    const ucs_status_t status = wait(comp, probe, Waits::kCheck);
    owner().node_->pump(*this, ucs::clock_now_ns());
    return comp == nullptr ? UCS_OK : status;
}

}  // namespace tagwire::ud
