// SPDX-License-Identifier: BSD-3-Clause
// The composition root's two lists: every transport family, and every table of options. Any thread.
#pragma once

#include <span>
#include <vector>

#include "ucs/config/config.hpp"
#include "uct/component.hpp"

namespace tagwire::uct {

/// In the order of uct_query_components().
std::span<const Component* const> all_components();

/// Is this one of them? A handle of somebody else's (UCX's, say) is not.
bool is_component(uct_component_h handle);

/// The library's own options, those of the bootstrap and of the messaging layer, then per component
/// those of the family, of its domains and of its transports; each table once.
std::vector<const ucs::OptionTable*> all_option_tables();

}  // namespace tagwire::uct
