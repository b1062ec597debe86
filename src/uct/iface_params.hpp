// SPDX-License-Identifier: BSD-3-Clause
// The parameters of uct_iface_open(), checked and with every default filled in: no code after this
// check looks at a field mask.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tagwire::uct {

/// Above this a headroom is taken for a mistake.
inline constexpr std::size_t kRxHeadroomBytesMax = 4096;
inline constexpr std::size_t kAmAlignmentMax = 4096;

struct IfaceParams {
    std::string tl_name;
    std::string dev_name;
    bool has_cpu_mask = false;
    ucs_cpu_set_t cpu_mask{};
    std::size_t rx_headroom = 0;
    uct_error_handler_t err_handler = nullptr;
    void* err_handler_arg = nullptr;
    uct_tag_unexp_eager_cb_t eager_cb = nullptr;  // both tag callbacks or none
    void* eager_arg = nullptr;
    uct_tag_unexp_rndv_cb_t rndv_cb = nullptr;
    void* rndv_arg = nullptr;
    std::uint64_t keepalive_interval_ns = 0;  // 0: the transport's default
    std::size_t am_alignment = 1;             // a power of two
    std::size_t am_align_offset = 0;          // below am_alignment
    std::uint64_t features = UCT_IFACE_FEATURE_LAST - 1;
};

/// Checks `params` and writes `*checked_p`. UCS_ERR_INVALID_PARAM, or UCS_ERR_UNSUPPORTED for open
/// modes by socket address; the reason is logged.
ucs_status_t check_iface_params(const uct_iface_params_t& params, IfaceParams* checked_p);

}  // namespace tagwire::uct
