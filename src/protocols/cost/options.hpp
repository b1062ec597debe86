// SPDX-License-Identifier: BSD-3-Clause
// Options of the messaging layer.
#pragma once

#include <cstdint>

#include "protocols/cost/copy_rules.hpp"
#include "protocols/cost/scheme.hpp"
#include "ucs/config/config.hpp"

namespace tagwire::proto {

struct Options {
    ucs::OptionString transports;
    std::uint64_t rndv_threshold;
    std::uint64_t inject_bytes;
    std::uint64_t requests_max;
    std::uint64_t queued_max;
    std::uint64_t tx_contexts;
    std::uint64_t unexpected_bytes;
    std::uint64_t envelopes_max;
    std::uint64_t unasked_peers_max;
    std::uint64_t reg_cache_bytes;
    int rndv_scheme;  // RndvScheme
    int rndv_rails;   // 0: auto
    std::uint64_t rndv_rail_min;

    /// One message may need this fraction (1/n) of the memory that a receiver has for unexpected
    /// ones, unless a setting says where rendezvous begin.
    static constexpr std::uint64_t kEagerShare = 4;
    bool has_rndv_threshold() const { return rndv_threshold != UINT64_MAX; }
    RndvScheme scheme() const { return static_cast<RndvScheme>(rndv_scheme); }
    /// A receiver may read the buffer of a sender; a sender may write that of a receiver.
    bool may_get() const { return scheme() == RndvScheme::kAuto || scheme() == RndvScheme::kGet; }
    bool may_put() const { return scheme() == RndvScheme::kAuto || scheme() == RndvScheme::kPut; }
    std::uint64_t call_requests_max;
    std::uint64_t call_bytes;
    bool tag_offload;
    std::uint64_t liveness_interval_ns;
    ucs::OptionString calibration;
    int copy_in;  // 0: auto, else that CopyKind + 1
    int copy_out;

    /// `setting`: copy_in or copy_out.
    static bool is_auto(int setting) { return setting == 0; }
    static ucs::CopyKind copy_kind(int setting) { return static_cast<ucs::CopyKind>(setting - 1); }
    static CopyRule copy_rule(int setting, const CopyRule& measured) {
        return is_auto(setting) ? measured : CopyRule{CopyRule::kNamedFrom, copy_kind(setting)};
    }
};

const ucs::OptionTable& option_table();

}  // namespace tagwire::proto
