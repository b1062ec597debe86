// SPDX-License-Identifier: BSD-3-Clause
// Which method, where, who: from the caller's parameters and the options, checked.
#pragma once

#include <tagwire_bootstrap.h>

#include <cstdint>
#include <string>

#include "bootstrap/result.hpp"

namespace tagwire::bootstrap {

struct Settings {
    tw_bootstrap_method_t method = TW_BOOTSTRAP_SINGLE;  // never AUTO
    bool may_be_single = false;  // PMIX, but nobody insists: without a server it is a job of one
    std::string where;           // DIR: a path
    std::uint32_t rank = 0;      // PMIX: of no meaning when size is 0
    std::uint32_t size = 0;      // PMIX: 0, or what it has to be; others: at least 1
    std::string job;
    std::uint64_t timeout_ns = 0;
};

Result choose_settings(const tw_bootstrap_params_t* params, Settings* settings_p);

}  // namespace tagwire::bootstrap
