// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/parts/fake_rail.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "ucs/debug/check.hpp"
#include "uct/component.hpp"
#include "uct/ops.hpp"

namespace tagwire::test {

namespace {

const uct::Component kWireless{
    .name = "wireless",
    .iface_options = [](const char*) -> const ucs::OptionTable* { return nullptr; }};

constexpr uct_iface_ops_t kWirelessOps = uct::make_ops<WirelessIface, WirelessEp>();

std::uint8_t byte_at(const void* address) {
    return *static_cast<const std::uint8_t*>(address);
}

class WirelessMd : public uct::Md {
  public:
    WirelessMd(WirelessSettings& settings, std::string device)
        : Md(kWireless), settings_(settings), device_(std::move(device)) {}

    ucs_status_t query(uct_md_attr_t*) override { return UCS_OK; }
    ucs_status_t query_tl_resources(std::vector<uct::TlDevice>* devices) override {
        devices->push_back(
            {settings_.transport, device_, UCT_DEVICE_TYPE_NET, UCS_SYS_DEVICE_ID_UNKNOWN});
        return UCS_OK;
    }
    ucs_status_t iface_open(uct::Worker& worker, const uct_iface_params_t&, const void*,
                            uct_iface_h* iface_p) override {
        *iface_p = new WirelessIface(*this, worker, settings_);
        return UCS_OK;
    }

  private:
    WirelessSettings& settings_;
    const std::string device_;
};

}  // namespace

// ---- Endpoints

WirelessIface& WirelessEp::owner() const {
    return *static_cast<WirelessIface*>(iface);
}

ucs_status_t WirelessEp::create(const uct_ep_params_t* params, uct_ep_h* ep_p) try {
    auto& owner = *static_cast<WirelessIface*>(params->iface);
    if (owner.settings.create != UCS_OK)
        return owner.settings.create;
    auto ep = std::make_unique<WirelessEp>(params->iface);
    ep->number = ++owner.made;
    if ((params->field_mask & UCT_EP_PARAM_FIELD_DEV_ADDR) != 0)
        ep->leads_to = byte_at(params->dev_addr);
    owner.eps.insert(ep.get());
    *ep_p = ep.release();
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

void WirelessEp::destroy() {
    TW_CHECK(owner().eps.erase(this) == 1);
    std::erase_if(owner().sent, [this](const auto& message) { return message.by == this; });
    delete this;
}

ssize_t WirelessEp::am_bcopy(std::uint8_t id, uct_pack_callback_t pack, void* arg, unsigned) try {
    if (owner().settings.send != UCS_OK)
        return owner().settings.send;
    std::array<std::byte, 4096> room;
    const std::size_t bytes = pack(room.data(), arg);
    owner().sent.push_back({this, {room.begin(), room.begin() + static_cast<long>(bytes)}, id});
    return static_cast<ssize_t>(bytes);
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

ucs_status_t WirelessEp::get_address(uct_ep_addr_t* address) {
    if (owner().settings.address_status == UCS_OK)
        *reinterpret_cast<std::uint8_t*>(address) = number;
    return owner().settings.address_status;
}

ucs_status_t WirelessEp::connect_to_ep(const uct_device_addr_t*, const uct_ep_addr_t* address) {
    if (owner().settings.connect == UCS_OK)
        connected = byte_at(address);
    return owner().settings.connect;
}

ucs_status_t WirelessEp::check(unsigned, uct_completion_t*) {
    return UCS_OK;
}

ucs_status_t WirelessEp::flush(unsigned, uct_completion_t* comp) {
    if (owner().settings.flush == UCS_INPROGRESS)
        owner().flushes.push_back(comp);
    return owner().settings.flush;
}

ucs_status_t WirelessEp::put_zcopy(const uct_iov_t* iov, std::size_t, std::uint64_t remote,
                                   uct_rkey_t, uct_completion_t* comp) {
    if (owner().settings.move == UCS_INPROGRESS)
        owner().pieces.push_back({this, true, *iov, remote, comp});
    return owner().settings.move;
}

ucs_status_t WirelessEp::get_zcopy(const uct_iov_t* iov, std::size_t, std::uint64_t remote,
                                   uct_rkey_t, uct_completion_t* comp) {
    if (owner().settings.move == UCS_INPROGRESS)
        owner().pieces.push_back({this, false, *iov, remote, comp});
    return owner().settings.move;
}

ucs_status_t WirelessEp::pending_add(uct_pending_req_t* request, unsigned) {
    owner().waiting.push_back(request);
    return UCS_OK;
}

void WirelessEp::pending_purge(uct_pending_purge_callback_t, void*) {
    ++owner().purges;
    owner().waiting.clear();
}

// ---- Interfaces

WirelessIface::WirelessIface(uct::Md& domain, uct::Worker& engine, WirelessSettings& how)
    : BaseIface(domain, engine, kWirelessOps, &progress_callback<WirelessIface>), settings(how) {
    if (how.lends)
        set_lending(*this);
}

ucs_status_t WirelessIface::read(uct_ep_h, const uct_iov_t* iov, std::size_t iovcnt,
                                 const tagwire_uct_loan_t& loan, uct_completion_t*) {
    if (settings.read == UCS_OK) {
        for (std::size_t i = 0; i < iovcnt; ++i)
            std::memset(iov[i].buffer, static_cast<int>(kRead), iov[i].length);
        reads.push_back(loan);
    }
    return settings.read;
}

ucs_status_t WirelessIface::query(uct_iface_attr_t* attr) {
    attr->cap.flags =
        UCT_IFACE_FLAG_AM_BCOPY | (settings.connects_to_iface ? UCT_IFACE_FLAG_CONNECT_TO_IFACE
                                                              : UCT_IFACE_FLAG_CONNECT_TO_EP);
    if (settings.moves) {
        attr->cap.flags |= UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_PUT_ZCOPY;
        attr->cap.get.max_zcopy = attr->cap.put.max_zcopy = SIZE_MAX;
    }
    attr->cap.am.max_bcopy = 4096;
    attr->device_addr_len = 1;
    attr->iface_addr_len = 1;
    attr->ep_addr_len = settings.connects_to_iface ? 0 : 1;
    attr->latency.c = settings.latency;
    attr->overhead = settings.goes_through_kernel ? 1e-5 : 1e-8;
    attr->bandwidth.dedicated = settings.bandwidth;
    return UCS_OK;
}

ucs_status_t WirelessIface::get_device_address(uct_device_addr_t* address) {
    *reinterpret_cast<std::uint8_t*>(address) = settings.address;
    return UCS_OK;
}

ucs_status_t WirelessIface::get_address(uct_iface_addr_t* address) {
    *reinterpret_cast<std::uint8_t*>(address) = settings.address;
    return UCS_OK;
}

bool WirelessIface::reachable(const uct_device_addr_t* device, const uct_iface_addr_t*,
                              std::string* reason) {
    if (!settings.unreachable.contains(byte_at(device)))
        return true;
    if (reason != nullptr)
        *reason = "no wire leads there";
    return false;
}

bool WirelessIface::is_on_route(const uct_device_addr_t* device) {
    return !settings.off_route.contains(byte_at(device));
}

// ---- Rails

WirelessRails::WirelessRails() {
    options.unexpected_bytes = 1 << 20;
    TW_CHECK(ucs_async_context_create(UCS_ASYNC_MODE_POLL, &async_) == UCS_OK);
    TW_CHECK(uct_worker_create(async_, UCS_THREAD_MODE_SINGLE, &worker_) == UCS_OK);
}

WirelessRails::~WirelessRails() {
    rails.clear();
    for (const proto::Domain& domain : domains_)
        uct_md_close(domain.md);
    uct_worker_destroy(worker_);
    ucs_async_context_destroy(async_);
}

WirelessIface& WirelessRails::add(const WirelessSettings& how) {
    WirelessSettings& settings = settings_.emplace_back(how);
    const std::string device = "wireless" + std::to_string(rails.size());
    domains_.push_back({nullptr, new WirelessMd(settings, device), {}, false});
    proto::Resource resource{domains_.size() - 1, {}, settings.is_auxiliary};
    std::string_view(settings.transport).copy(resource.desc.tl_name, UCT_TL_NAME_MAX - 1);
    device.copy(resource.desc.dev_name, UCT_DEVICE_NAME_MAX - 1);
    resource.desc.dev_type = UCT_DEVICE_TYPE_NET;
    resources_.push_back(resource);
    rails.push_back(std::make_unique<proto::Rail>(
        proto::RailPorts{domains_.back(), options, calibration_, refusals_},
        static_cast<std::uint8_t>(rails.size()), resources_.back()));
    TW_CHECK(rails.back()->open(worker_, nullptr, nullptr, nullptr) == UCS_OK);
    return iface(rails.size() - 1);
}

std::size_t WirelessRails::eps() const {
    std::size_t number = 0;
    for (std::size_t i = 0; i < rails.size(); ++i)
        number += iface(i).eps.size();
    return number;
}

}  // namespace tagwire::test
