// SPDX-License-Identifier: BSD-3-Clause
// Set-up, tear-down and order of endpoints.
#include "uct/tcp/tcp_ep.hpp"

#include <cstring>

#include "uct/tcp/send.hpp"

namespace tagwire::tcp {

TcpEp::TcpEp(TcpIface& owner, Connection& to) : BaseEp(&owner) {
    attach(to);
}

void TcpEp::attach(Connection& to) {
    connection_ = &to;
    prev = nullptr;
    next = to.eps;
    if (next != nullptr)
        next->prev = this;
    to.eps = this;
}

ucs_status_t TcpEp::create(const uct_ep_params_t* params, uct_ep_h* ep_p) {
    constexpr std::uint64_t kNeeded =
        UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
    if ((params->field_mask & kNeeded) != kNeeded) {
        TW_LOG_ERROR(
            "uct_ep_create on tcp needs iface, dev_addr and iface_addr (field_mask 0x%llx)",
            static_cast<unsigned long long>(params->field_mask));
        return UCS_ERR_INVALID_PARAM;
    }
    auto& owner = static_cast<TcpIface&>(uct::iface_of(params->iface));
    std::string reason;
    if (!owner.reachable(params->dev_addr, params->iface_addr, &reason)) {
        TW_LOG_ERROR("uct_ep_create: %s", reason.c_str());
        return UCS_ERR_UNREACHABLE;
    }
    IfaceAddress address;
    std::memcpy(&address, params->iface_addr, sizeof address);
    Connection* connection = nullptr;
    const ucs_status_t status =
        owner.connections.connect(*parse_device_address(params->dev_addr), address, &connection);
    if (status != UCS_OK)
        return status;
    *ep_p = new TcpEp(owner, *connection);
    return UCS_OK;
}

void TcpEp::destroy() {
    TcpIface& owner = connection_->iface;
    unsigned dropped = 0;
    owner.pending.purge(group_, [&](uct_pending_req_t*) { ++dropped; });
    if (dropped > 0)
        TW_LOG_WARN("tcp endpoint destroyed with %u pending requests", dropped);
    owner.ops.cancel(*connection_, this, UCS_ERR_CANCELED);
    owner.failures.detach(*this);
    delete this;
}

ucs_status_t TcpEp::pending_add(uct_pending_req_t* request, unsigned) {
    if (connection_->failure != UCS_OK)
        return connection_->failure;
    TcpIface& owner = connection_->iface;
    // All that any operation may need: whoever is told BUSY must not find that it was not enough.
    if (group_.empty() && may_send(frame_bytes<RtsBody>(owner.options().seg_bytes)) &&
        owner.ops.has_room(*connection_))
        return UCS_ERR_BUSY;
    owner.pending.add(group_, request);
    owner.want_work();
    return UCS_OK;
}

void TcpEp::pending_purge(uct_pending_purge_callback_t callback, void* arg) {
    connection_->iface.pending.purge(group_, [&](uct_pending_req_t* request) {
        if (callback != nullptr)
            callback(request, arg);
    });
}

ucs_status_t TcpEp::flush(unsigned flags, uct_completion_t* comp) {
    TcpIface& owner = connection_->iface;
    if ((flags & UCT_FLUSH_FLAG_CANCEL) != 0) {
        owner.ops.cancel(*connection_, this, UCS_ERR_CANCELED);
        // From now on it only waits for its destruction. Messages that it sent before go on their
        // way.
        owner.failures.detach(*this);
        attach(owner.connections.cancelled());
        return UCS_OK;
    }
    if (connection_->failure != UCS_OK)
        return connection_->failure;
    if ((flags & TAGWIRE_UCT_FLUSH_FLAG_WRITE) != 0) {
        owner.sender.write(*connection_);
        return UCS_OK;
    }
    if ((flags & TAGWIRE_UCT_FLUSH_FLAG_SENT) != 0)
        return flush_sent(comp);
    if (!group_.empty())
        return UCS_ERR_NO_RESOURCE;
    const bool is_remote = (flags & TAGWIRE_UCT_FLUSH_FLAG_REMOTE) != 0;
    if (comp == nullptr || (!is_remote && connection_->tx.empty() && connection_->ops.empty()))
        return owner.sender.flush_of(*connection_, flags);  // asked again until it is done
    owner.sender.write(*connection_);
    if (is_remote && (connection_->puts_placed != connection_->puts || !connection_->tx.empty() ||
                      !connection_->ops.empty()))
        return owner.sender.start_remote_flush(*connection_, this, comp);
    if (connection_->tx.empty() && connection_->ops.empty())
        return std::exchange(connection_->put_failure, UCS_OK);
    Op* op = owner.ops.create(*connection_, OpKind::kFlush, this, comp);
    if (op == nullptr)
        return UCS_ERR_NO_RESOURCE;
    op->mark = connection_->tx.queued();
    owner.add_work(*connection_);
    return UCS_INPROGRESS;
}

// The socket has all that was queued; replies are not waited for.
ucs_status_t TcpEp::flush_sent(uct_completion_t* comp) {
    TcpIface& owner = connection_->iface;
    owner.sender.write(*connection_);
    if (connection_->failure != UCS_OK)
        return connection_->failure;
    if (connection_->tx.empty())
        return std::exchange(connection_->put_failure, UCS_OK);
    owner.add_work(*connection_);
    if (comp == nullptr)
        return UCS_INPROGRESS;  // asked again until it is done
    Op* op = owner.ops.create(*connection_, OpKind::kFlushSent, this, comp);
    if (op == nullptr)
        return UCS_ERR_NO_RESOURCE;
    op->mark = connection_->tx.queued();
    return UCS_INPROGRESS;
}

// The stream keeps the order of all but gets, whose data comes back later.
ucs_status_t TcpEp::fence(unsigned) {
    connection_->fence_waits = connection_->gets > 0;
    return UCS_OK;
}

// Data that is under way asks already; a ping asks when there is none.
ucs_status_t TcpEp::check(unsigned, uct_completion_t*) {
    if (connection_->failure != UCS_OK)
        return connection_->failure;
    if (connection_->tx.empty()) {
        connection_->iface.sender.ping(*connection_);
        connection_->iface.sender.after_send(*connection_);
    }
    return UCS_OK;
}

}  // namespace tagwire::tcp
