// SPDX-License-Identifier: BSD-3-Clause
// A verbs transport (rc, dc, ud) as the memory domain sees it: a row of constants. The list of rows
// is in the composition root (src/components.cc), so that ib/ does not depend on the transports
// built on it.
#pragma once

#include <span>
#include <string>

#include "ucs/config/config.hpp"
#include "uct/ib/ib_md.hpp"

namespace tagwire::ib {

struct Transport {
    uct::Transport tl;  // {"rc", 0}
    const ucs::OptionTable* (*options)();
    /// Whether it works on this device; when not, `*reason_p` gets half a sentence ("has no DC").
    bool (*usable)(const Device& device, std::string* reason_p);
    ucs_status_t (*open)(IbMd& md, uct::Worker& worker, const uct_iface_params_t& params,
                         const void* values, uct_iface_h* iface_p);
};

/// In the order of uct_md_query_tl_resources().
std::span<const Transport* const> transports();

}  // namespace tagwire::ib
