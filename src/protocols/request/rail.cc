// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/request/rail.hpp"

#include <uct/api/tagwire_uct.h>

#include <utility>

#include "protocols/cost/rail_costs.hpp"
#include "protocols/cost/scheme.hpp"
#include "protocols/wire/eager_header.hpp"

namespace tagwire::proto {

namespace {

/// The longest sentence that says why a peer cannot be reached.
constexpr std::size_t kReasonBytes = 256;

}  // namespace

Rail::~Rail() {
    if (iface_ != nullptr)
        uct_iface_close(iface_);
}

ucs_status_t Rail::open_iface(uct_worker_h uct_worker, const uct_iface_params_t& params) {
    uct_iface_config_t* config = nullptr;
    ucs_status_t status =
        uct_md_iface_config_read(domain().md, transport(), nullptr, nullptr, &config);
    has_bad_option_ = status == UCS_ERR_INVALID_PARAM;
    if (status != UCS_OK)
        return status;
    if (to_.given != nullptr) {
        status = to_.given->apply_to_uct(config);
        has_bad_option_ = status == UCS_ERR_INVALID_PARAM;
    }
    if (status == UCS_OK)
        status = uct_iface_open(domain().md, uct_worker, &params, config, &iface_);
    uct_config_release(config);
    if (status == UCS_OK)
        status = uct_iface_query(iface_, &attr_);
    return status;
}

ucs_status_t Rail::open(uct_worker_h uct_worker, uct_error_handler_t failed, void* arg,
                        const TagCallbacks* tags) {
    uct_iface_params_t params{};
    params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                        UCT_IFACE_PARAM_FIELD_ERR_HANDLER | UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG |
                        UCT_IFACE_PARAM_FIELD_FEATURES;
    params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
    params.mode.device.tl_name = transport();
    params.mode.device.dev_name = device();
    params.err_handler = failed;
    params.err_handler_arg = arg;
    params.features = UCT_IFACE_FEATURE_AM | UCT_IFACE_FEATURE_GET | UCT_IFACE_FEATURE_PUT;
    ucs_status_t status = UCS_OK;
    if (tags != nullptr && resource_.desc.dev_type == UCT_DEVICE_TYPE_NET) {
        uct_iface_params_t with_tags = params;
        with_tags.field_mask |=
            UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_ARG | UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_CB |
            UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_ARG | UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_CB;
        with_tags.features |= UCT_IFACE_FEATURE_TAG;
        with_tags.eager_arg = with_tags.rndv_arg = arg;
        with_tags.eager_cb = tags->eager;
        with_tags.rndv_cb = tags->request;
        status = open_iface(uct_worker, with_tags);
        // One that matches in software takes buffers of any length; ours does that better.
        matches_tags_ =
            status == UCS_OK && (attr_.cap.flags & UCT_IFACE_FLAG_TAG_EAGER_BCOPY) != 0 &&
            attr_.cap.tag.recv.min_recv > 0 && attr_.cap.tag.rndv.max_hdr >= sizeof(Placeholder);
        if (!matches_tags_ && iface_ != nullptr)
            uct_iface_close(std::exchange(iface_, nullptr));
    }
    if (!matches_tags_)
        status = open_iface(uct_worker, params);
    if (status != UCS_OK)
        return status;
    select();
    if ((attr_.cap.flags & UCT_IFACE_FLAG_AM_SHORT) != 0)
        short_max = attr_.cap.am.max_short;
    bcopy_max = attr_.cap.am.max_bcopy;
    device_address_.resize(attr_.device_addr_len);
    status = uct_iface_get_device_address(
        iface_, reinterpret_cast<uct_device_addr_t*>(device_address_.data()));
    iface_address_.resize(attr_.iface_addr_len);
    if (status == UCS_OK && !iface_address_.empty())
        status = uct_iface_get_address(iface_,
                                       reinterpret_cast<uct_iface_addr_t*>(iface_address_.data()));
    return status;
}

void Rail::enable() {
    if (!std::exchange(is_enabled_, true))
        uct_iface_progress_enable(iface_, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
}

unsigned Rail::look() {
    const unsigned count = uct_iface_progress(iface_);
    if (count > 0)
        enable();
    return count;
}

void Rail::select() {
    const Options& options = to_.options;
    costs_ = start_costs({attr_, domain().attr, resource_.desc.dev_type, domain().registers_cheaply,
                          options.unexpected_bytes / Options::kEagerShare});
    if (const auto scheme = static_cast<RndvScheme>(options.rndv_scheme);
        scheme != RndvScheme::kAuto) {
        costs_.has_scheme = true;
        costs_.scheme = scheme == RndvScheme::kGet   ? Protocol::kRndvGet
                        : scheme == RndvScheme::kPut ? Protocol::kRndvPut
                                                     : Protocol::kRndvCopy;
    }
    // It was measured within this host, and the network may be slower.
    if (goes_through_kernel() && !is_loopback())
        costs_.measured_ns_per_byte_min = costs_.wire_ns_per_byte;
    to_.calibration.apply(transport(), device(), &costs_);
    selection_ = Selection(costs_, options.rndv_threshold);
    if (is_shared_memory()) {
        const CopyRules measured = to_.calibration.copies(transport(), device());
        copies_.in = Options::copy_rule(options.copy_in, measured.in);
        copies_.out = Options::copy_rule(options.copy_out, measured.out);
        chooses_copies_ =
            Options::is_auto(options.copy_in) && ucs::has_copy_kind(ucs::CopyKind::kNonTemporal);
    }
    is_learning_ = is_shared_memory() && can_get() && options.rndv_threshold == Selection::kNever &&
                   options.scheme() == RndvScheme::kAuto;
}

/// One port carries what all transports of its device have. Shared memory, the loopback and virtual
/// devices move bytes by this machine's processors, whatever their number.
std::string_view Rail::mover() const {
    const bool is_software = is_shared_memory() || is_loopback() || is_virtual(resource_.desc);
    return is_software ? std::string_view("processors") : resource_.desc.dev_name;
}

bool Rail::is_on_route(std::span<const std::byte> device) const {
    return tagwire_uct_iface_is_on_route(
               iface_, reinterpret_cast<const uct_device_addr_t*>(device.data())) != 0;
}

bool Rail::reaches(std::span<const std::byte> device, std::span<const std::byte> iface,
                   std::string* reason) const {
    if (device.size() != device_address_.size() || iface.size() != iface_address_.size()) {
        if (reason != nullptr)
            *reason = "the length of its address is not the one that this library uses";
        return false;
    }
    const auto* device_p = reinterpret_cast<const uct_device_addr_t*>(device.data());
    const auto* iface_p =
        iface.empty() ? nullptr : reinterpret_cast<const uct_iface_addr_t*>(iface.data());
    if (reason == nullptr)  // nothing allocates
        return uct_iface_is_reachable(iface_, device_p, iface_p) != 0;
    char text[kReasonBytes] = "";
    const bool is_reachable =
        tagwire_uct_iface_is_reachable_reason(iface_, device_p, iface_p, text, sizeof text) != 0;
    *reason = text;
    return is_reachable;
}

}  // namespace tagwire::proto
