// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dc_refusal.hpp"

#include <fmt/format.h>

namespace tagwire::dc {

namespace {

constexpr unsigned kFewRequests = 16;  // any device has them

InitiatorParams without_streams(InitiatorParams params) {
    params.streams_log = 0;
    return params;
}

std::string of_depth(const ibv_device_attr& attr, const InitiatorParams& params) {
    return fmt::format(
        "the send queue has {} requests (TAGWIRE_DC_TX_DEPTH, twice that with streams); the device "
        "reports at most {} (max_qp_wr), but fewer with {} gather elements and {} inline bytes "
        "each: set a smaller TAGWIRE_DC_TX_DEPTH or TAGWIRE_DC_INLINE_BYTES",
        params.depth, attr.max_qp_wr, params.sges_max, params.inline_bytes);
}

}  // namespace

std::string why_refused(const ib::Device& device, const InitiatorParams& params,
                        unsigned streams_log_max, const CanBeMade& can_be_made) {
    const ibv_device_attr& attr = device.attr().orig_attr;
    InitiatorParams less = params;
    less.inline_bytes = 0;
    if (params.inline_bytes > 0 && can_be_made(less))
        return fmt::format(
            "{} inline bytes per request (TAGWIRE_DC_INLINE_BYTES) are more than the device "
            "allows with {} requests of {} gather elements each: set a smaller value",
            params.inline_bytes, params.depth, params.sges_max);
    less = params;
    less.depth = kFewRequests;
    if (params.depth > kFewRequests && can_be_made(less))
        return of_depth(attr, params);
    less = params;
    less.sges_max = 1;
    if (params.sges_max > 1 && can_be_made(less))
        return fmt::format(
            "{} gather elements per request (TAGWIRE_IB_TX_SGES); the device reports {} (max_sge): "
            "set a smaller value",
            params.sges_max, attr.max_sge);
    if (params.streams_log > 0 && can_be_made(without_streams(params)))
        return fmt::format(
            "{} streams per DCI; the device reports {}: set TAGWIRE_DC_STREAMS=1 to use none",
            1U << params.streams_log, 1U << streams_log_max);
    less = without_streams(less);
    less.depth = kFewRequests;
    less.inline_bytes = 0;
    if (can_be_made(less))
        return fmt::format(
            "{} requests of {} gather elements and {} inline bytes each, with {} streams; the "
            "device reports at most {} requests (max_qp_wr), {} gather elements (max_sge) and {} "
            "streams, but does not allow all of them together",
            params.depth, params.sges_max, params.inline_bytes, 1U << params.streams_log,
            attr.max_qp_wr, attr.max_sge, 1U << streams_log_max);
    return fmt::format(
        "not even a DCI of {} short requests can be created; the device reports at most {} queue "
        "pairs (max_qp) for all processes together",
        kFewRequests, attr.max_qp);
}

}  // namespace tagwire::dc
