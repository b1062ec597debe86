// SPDX-License-Identifier: BSD-3-Clause
// Set-up, tear-down and order of endpoints.
#include "uct/sm/sm_ep.hpp"

#include <uct/api/tagwire_uct.h>

#include "ucs/log/log.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

SmEp::SmEp(SmIface& owner, Link& to) : BaseEp(&owner), link_p_(&to) {
    to.eps.push_back(this);
}

ucs_status_t SmEp::create(const uct_ep_params_t* params, uct_ep_h* ep_p) {
    constexpr std::uint64_t kNeeded =
        UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
    if ((params->field_mask & kNeeded) != kNeeded) {
        TW_LOG_ERROR("uct_ep_create on sm needs iface, dev_addr and iface_addr (field_mask 0x%llx)",
                     static_cast<unsigned long long>(params->field_mask));
        return UCS_ERR_INVALID_PARAM;
    }
    auto& owner = static_cast<SmIface&>(uct::iface_of(params->iface));
    std::string reason;
    if (!owner.reachable(params->dev_addr, params->iface_addr, &reason)) {
        TW_LOG_ERROR("uct_ep_create: %s", reason.c_str());
        return UCS_ERR_UNREACHABLE;
    }
    const auto address = parse_iface_address(
        std::span(reinterpret_cast<const std::byte*>(params->iface_addr), sizeof(IfaceAddress)),
        &reason);
    Link* link = nullptr;
    const ucs_status_t status = owner.connections.link_to(*address, &link);
    if (status != UCS_OK)
        return status;
    *ep_p = new SmEp(owner, *link);
    return UCS_OK;
}

void SmEp::destroy() {
    link().loan.end();  // what the peer reads from now on does not count
    SmIface& owner = link().iface;
    unsigned dropped = 0;
    owner.pending.purge(group_, [&](uct_pending_req_t*) { ++dropped; });
    if (dropped > 0)
        TW_LOG_WARN("sm endpoint destroyed with %u pending requests", dropped);
    owner.ops.cancel(link(), this, UCS_ERR_CANCELED);
    owner.ends.detach(link(), *this);
    delete this;
}

ucs_status_t SmEp::pending_add(uct_pending_req_t* request, unsigned) {
    Link& l = link();
    if (l.failure != UCS_OK)
        return l.failure;
    const bool waits = !group_.empty() || (l.fence_waits && l.blocking_ops > 0);
    // All that any operation may need: whoever is told BUSY must not find that it was not enough.
    if (!waits && l.iface.ops.has_room() && l.state == LinkState::kReady &&
        l.claim(kFragmentCountMax) == UCS_OK && l.segs->has(kFragmentCountMax) &&
        l.rndv_count < kRndvCount && l.controls.empty()) {
        return UCS_ERR_BUSY;
    }
    l.iface.pending.add(group_, request);
    if (l.tx_made)
        l.tx.hold();
    l.iface.want_work();
    return UCS_OK;
}

void SmEp::pending_purge(uct_pending_purge_callback_t callback, void* arg) {
    link().iface.pending.purge(group_, [&](uct_pending_req_t* request) {
        if (callback != nullptr)
            callback(request, arg);
    });
}

namespace {

/// Some data of puts is neither with the peer nor in its ring.
bool is_putting(const ucs::List<Op, &Op::link>& ops) {
    for (const Op* op = ops.front(); op != nullptr; op = ops.next(*op))
        if ((op->kind == OpKind::kPush || op->kind == OpKind::kCopyPut) && op->left > 0)
            return true;
    return false;
}

}  // namespace

ucs_status_t SmEp::flush(unsigned flags, uct_completion_t* comp) {
    SmIface& owner = link().iface;
    if ((flags & UCT_FLUSH_FLAG_CANCEL) != 0) {
        link().loan.end();  // as destroy()
        owner.ops.cancel(*link_p_, this, UCS_ERR_CANCELED);
        // From now on it only waits for its destruction. Messages that it sent before go on their
        // way.
        Link& left = *std::exchange(link_p_, &owner.connections.cancelled_link());
        link_p_->eps.push_back(this);
        owner.ends.detach(left, *this);
        return UCS_OK;
    }
    if (link().failure != UCS_OK)
        return link().failure;
    // Messages are in the peer's ring; requests that wait are none yet.
    if ((flags & TAGWIRE_UCT_FLUSH_FLAG_SENT) != 0 && !is_putting(link().ops))
        return UCS_OK;
    if (!group_.empty())
        return UCS_ERR_NO_RESOURCE;
    if (link().ops.empty())
        return UCS_OK;
    if (comp == nullptr)
        return UCS_INPROGRESS;  // asked again until it is done, so nothing is kept for it
    return owner.ops.start_flush(link(), this, comp);
}

ucs_status_t SmEp::fence(unsigned) {
    // Loads and stores are ordered by the barrier; what the peer or later steps of ours still have
    // to do is waited for by whatever comes next.
    if (link().blocking_ops > 0) {
        link().fence_waits = true;
        if (link().tx_made)
            link().tx.hold();
    }
    ucs::full_barrier();
    return UCS_OK;
}

ucs_status_t SmEp::check(unsigned, uct_completion_t*) {
    if (link().failure != UCS_OK)
        return link().failure;
    link().iface.connections.look_soon();
    return UCS_OK;
}

}  // namespace tagwire::sm
