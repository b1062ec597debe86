// SPDX-License-Identifier: BSD-3-Clause
#include "uct/iface_params.hpp"

#include <bit>
#include <cinttypes>
#include <cstring>
#include <utility>

#include "uct/refuse.hpp"

namespace tagwire::uct {

namespace {

constexpr const char* kCall = "uct_iface_open";
constexpr std::uint64_t kFieldsKnown = UCS_MASK(19);
static_assert(kFieldsKnown + 1 == UCT_IFACE_PARAM_FIELD_FEATURES << 1);

/// Reads the fields that the mask names.
class Fields {
  public:
    explicit Fields(const uct_iface_params_t& params) : mask_(params.field_mask) {}

    [[nodiscard]] bool has(std::uint64_t field) const { return (mask_ & field) != 0; }

    template <class T>
    void take(std::uint64_t field, const T& given, T* kept) const {
        if (has(field))
            *kept = given;
    }

  private:
    std::uint64_t mask_;
};

ucs_status_t check_name(const char* what, const char* name, std::size_t bytes_max) {
    if (name == nullptr)
        return refuse(UCS_ERR_INVALID_PARAM, kCall, "%s is NULL", what);
    if (*name == '\0' || std::strlen(name) >= bytes_max) {
        return refuse(UCS_ERR_INVALID_PARAM, kCall, "%s \"%.64s\" is not 1 to %zu characters long",
                      what, name, bytes_max - 1);
    }
    return UCS_OK;
}

ucs_status_t check_device(const Fields& fields, const uct_iface_params_t& params,
                          IfaceParams* checked) {
    if (!fields.has(UCT_IFACE_PARAM_FIELD_OPEN_MODE)) {
        return refuse(UCS_ERR_INVALID_PARAM, kCall,
                      "open_mode is not given (UCT_IFACE_PARAM_FIELD_OPEN_MODE)");
    }
    if (params.open_mode != UCT_IFACE_OPEN_MODE_DEVICE) {
        return refuse(UCS_ERR_UNSUPPORTED, kCall,
                      "open_mode 0x%" PRIx64 ": only UCT_IFACE_OPEN_MODE_DEVICE is supported",
                      params.open_mode);
    }
    if (!fields.has(UCT_IFACE_PARAM_FIELD_DEVICE)) {
        return refuse(UCS_ERR_INVALID_PARAM, kCall,
                      "transport and device are not given (UCT_IFACE_PARAM_FIELD_DEVICE)");
    }
    ucs_status_t status =
        check_name("mode.device.tl_name", params.mode.device.tl_name, UCT_TL_NAME_MAX);
    if (status != UCS_OK)
        return status;
    status = check_name("mode.device.dev_name", params.mode.device.dev_name, UCT_DEVICE_NAME_MAX);
    if (status != UCS_OK)
        return status;
    checked->tl_name = params.mode.device.tl_name;
    checked->dev_name = params.mode.device.dev_name;
    return UCS_OK;
}

ucs_status_t check_callbacks(const Fields& fields, const uct_iface_params_t& params,
                             IfaceParams* checked) {
    fields.take(UCT_IFACE_PARAM_FIELD_ERR_HANDLER, params.err_handler, &checked->err_handler);
    fields.take(UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG, params.err_handler_arg,
                &checked->err_handler_arg);
    if (fields.has(UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS) &&
        (params.err_handler_flags & ~std::uint32_t{UCT_CB_FLAG_ASYNC}) != 0) {
        return refuse(UCS_ERR_INVALID_PARAM, kCall,
                      "err_handler_flags 0x%x has bits besides UCT_CB_FLAG_ASYNC",
                      params.err_handler_flags);
    }
    fields.take(UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_CB, params.eager_cb, &checked->eager_cb);
    fields.take(UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_ARG, params.eager_arg, &checked->eager_arg);
    fields.take(UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_CB, params.rndv_cb, &checked->rndv_cb);
    fields.take(UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_ARG, params.rndv_arg, &checked->rndv_arg);
    if ((checked->eager_cb == nullptr) != (checked->rndv_cb == nullptr)) {
        return refuse(
            UCS_ERR_INVALID_PARAM, kCall,
            "%s is missing: set both eager_cb and rndv_cb to use tagged messages, or neither",
            checked->eager_cb == nullptr ? "eager_cb" : "rndv_cb");
    }
    return UCS_OK;
}

ucs_status_t check_layout(const Fields& fields, const uct_iface_params_t& params,
                          IfaceParams* checked) {
    fields.take(UCT_IFACE_PARAM_FIELD_RX_HEADROOM, params.rx_headroom, &checked->rx_headroom);
    if (checked->rx_headroom > kRxHeadroomBytesMax) {
        return refuse(UCS_ERR_INVALID_PARAM, kCall, "rx_headroom is %zu; the limit is %zu bytes",
                      checked->rx_headroom, kRxHeadroomBytesMax);
    }
    fields.take(UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT, params.am_alignment, &checked->am_alignment);
    if (!std::has_single_bit(checked->am_alignment) || checked->am_alignment > kAmAlignmentMax) {
        return refuse(UCS_ERR_INVALID_PARAM, kCall,
                      "am_alignment %zu is not a power of two up to %zu", checked->am_alignment,
                      kAmAlignmentMax);
    }
    fields.take(UCT_IFACE_PARAM_FIELD_AM_ALIGN_OFFSET, params.am_align_offset,
                &checked->am_align_offset);
    if (checked->am_align_offset >= checked->am_alignment) {
        return refuse(UCS_ERR_INVALID_PARAM, kCall,
                      "am_align_offset %zu is not below am_alignment %zu%s",
                      checked->am_align_offset, checked->am_alignment,
                      fields.has(UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT)
                          ? ""
                          : ", which is not given (UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT)");
    }
    return UCS_OK;
}

}  // namespace

ucs_status_t check_iface_params(const uct_iface_params_t& params, IfaceParams* checked_p) {
    if ((params.field_mask & ~kFieldsKnown) != 0) {
        return refuse(UCS_ERR_INVALID_PARAM, kCall, "field_mask has unknown bits 0x%" PRIx64,
                      params.field_mask & ~kFieldsKnown);
    }
    const Fields fields(params);
    IfaceParams checked;
    ucs_status_t status = check_device(fields, params, &checked);
    if (status == UCS_OK)
        status = check_callbacks(fields, params, &checked);
    if (status == UCS_OK)
        status = check_layout(fields, params, &checked);
    if (status != UCS_OK)
        return status;
    fields.take(UCT_IFACE_PARAM_FIELD_FEATURES, params.features, &checked.features);
    if (checked.features >= UCT_IFACE_FEATURE_LAST) {
        return refuse(UCS_ERR_INVALID_PARAM, kCall, "features 0x%" PRIx64 " has unknown bits",
                      checked.features);
    }
    checked.has_cpu_mask = fields.has(UCT_IFACE_PARAM_FIELD_CPU_MASK);
    fields.take(UCT_IFACE_PARAM_FIELD_CPU_MASK, params.cpu_mask, &checked.cpu_mask);
    fields.take(UCT_IFACE_PARAM_FIELD_KEEPALIVE_INTERVAL, params.keepalive_interval,
                &checked.keepalive_interval_ns);
    *checked_p = std::move(checked);
    return UCS_OK;
}

}  // namespace tagwire::uct
