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
        "a send queue of {} requests was asked for (TAGWIRE_DC_TX_DEPTH, twice that with streams); "
        "the device says {} (max_qp_wr), but holds fewer of {} pieces and {} inline bytes each: a "
        "smaller TAGWIRE_DC_TX_DEPTH or TAGWIRE_DC_INLINE_BYTES may help",
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
            "{} bytes within a request were asked for (TAGWIRE_DC_INLINE_BYTES); the "
            "device has fewer with {} requests of {} pieces each",
            params.inline_bytes, params.depth, params.sges_max);
    less = params;
    less.depth = kFewRequests;
    if (params.depth > kFewRequests && can_be_made(less))
        return of_depth(attr, params);
    less = params;
    less.sges_max = 1;
    if (params.sges_max > 1 && can_be_made(less))
        return fmt::format("{} pieces per request were asked for; the device says {} (max_sge)",
                           params.sges_max, attr.max_sge);
    if (params.streams_log > 0 && can_be_made(without_streams(params)))
        return fmt::format(
            "{} streams were asked for; the device says {}: TAGWIRE_DC_STREAMS=1 does without",
            1U << params.streams_log, 1U << streams_log_max);
    less = without_streams(less);
    less.depth = kFewRequests;
    less.inline_bytes = 0;
    if (can_be_made(less))
        return fmt::format(
            "{} requests of {} pieces and {} inline bytes each and {} streams were asked for; the "
            "device says {} requests (max_qp_wr), {} pieces (max_sge) and {} streams, but not all "
            "of it at a time",
            params.depth, params.sges_max, params.inline_bytes, 1U << params.streams_log,
            attr.max_qp_wr, attr.max_sge, 1U << streams_log_max);
    return fmt::format(
        "not even one of {} short requests can be made; the device says {} queue pairs "
        "(max_qp), all processes together",
        kFewRequests, attr.max_qp);
}

}  // namespace tagwire::dc
