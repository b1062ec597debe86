// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dc_ep.hpp"

#include "ucs/log/log.hpp"
#include "uct/ib/dc/dc_iface.hpp"

namespace tagwire::dc {

DcEp::DcEp(DcIface& owner, Path& path_of_port, std::uint64_t target_key,
           std::uint32_t target_number)
    : MessageOps(owner, owner.lender().no_queue()),
      path(&path_of_port),
      key(target_key),
      number(target_number & 0xffffff) {
    ++path->endpoints;
    window = owner.dc_flow().half_window();
    state = State::kConnected;
}

DcEp::~DcEp() {
    --path->endpoints;
}

ucs_status_t DcEp::create(const uct_ep_params_t* params, uct_ep_h* ep_p) {
    constexpr std::uint64_t kNeeded =
        UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
    if ((params->field_mask & kNeeded) != kNeeded || params->dev_addr == nullptr ||
        params->iface_addr == nullptr) {
        TW_LOG_ERROR("uct_ep_create on dc needs iface, dev_addr and iface_addr (field_mask 0x%llx)",
                     static_cast<unsigned long long>(params->field_mask));
        return UCS_ERR_INVALID_PARAM;
    }
    auto& own = static_cast<DcIface&>(uct::iface_of(params->iface));
    std::string reason;
    const auto port = ib::parse_port(
        std::span(reinterpret_cast<const std::byte*>(params->dev_addr), sizeof(ib::PortAddress)),
        &reason);
    const auto target = parse_address(
        std::span(reinterpret_cast<const std::byte*>(params->iface_addr), sizeof(DcAddress)),
        &reason);
    ucs_status_t status = UCS_OK;
    if (!port || !target)
        status = UCS_ERR_INVALID_ADDR;
    else if (!ib::is_reachable(own.port(), *port, &reason) ||
             !ib::has_same_mtu(own.port(), *port, &reason) || !own.agrees(*target, &reason))
        status = UCS_ERR_UNREACHABLE;
    if (status != UCS_OK) {
        TW_LOG_ERROR("uct_ep_create on dc: %s", reason.c_str());
        return status;
    }
    DcEp* ep = own.endpoints().make(*port, target->key, target->number, &status);
    if (ep == nullptr)
        return status;
    *ep_p = ep;
    return UCS_OK;
}

void DcEp::destroy() {
    DcIface& own = owner();
    unsigned dropped = 0;
    purge([&](uct_pending_req_t*) { ++dropped; });
    if (dropped > 0)
        TW_LOG_WARN("dc endpoint destroyed with %u pending requests", dropped);
    is_destroyed = true;
    if (state == State::kFailed) {
        own.settled(*this);
        return;
    }
    if (failure == UCS_OK)
        own.fail(*this, UCS_ERR_CANCELED, "destroyed");
    own.end_now(*this);
}

}  // namespace tagwire::dc
