// SPDX-License-Identifier: BSD-3-Clause
// Facts that components, interfaces and endpoints tell about themselves (tagwire_uct_*_describe).
#pragma once

#include <uct/api/uct.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tagwire::tools {

using Facts = std::vector<std::pair<std::string, std::string>>;

/// Empty when the object has nothing to tell.
Facts describe(uct_component_h component);
Facts describe(uct_worker_h worker);
Facts describe(uct_iface_h iface);
Facts describe(uct_ep_h ep);

/// The number that a fact starts with.
std::optional<std::uint64_t> number_in(const Facts& facts, const std::string& key);

}  // namespace tagwire::tools
