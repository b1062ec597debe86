// SPDX-License-Identifier: BSD-3-Clause
// Options that the program gives to a context (tw_context_params_t.options): each one is checked
// before the context opens anything, whatever part of the library has it.
//
// 1. A value of rank TW_OPTION_DEFAULT is applied only where the library would take its own
//    default: the environment and configuration files win. take() decides it, once.
// 2. Whoever reads options applies those that are left behind the environment.
//
// Threads: any, after take().
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocols/api/tw_context.h"
#include "ucs/config/config.hpp"

namespace tagwire::proto {

class GivenOptions {
  public:
    /// UCS_ERR_INVALID_PARAM: one of them is refused; the log says which, and what is accepted.
    static ucs_status_t take(std::span<const tw_option_t> given, GivenOptions* options_p);

    /// Sets the options that the table has.
    ucs_status_t apply(const ucs::OptionTable& table, void* values) const;
    /// Sets the options that a configuration of UCT has.
    ucs_status_t apply_to_uct(void* config) const;
    /// The value of an option that the program has given, and that holds; empty: there is none.
    /// `name` is without the prefix.
    std::string_view value_of(std::string_view name) const;
    bool empty() const { return all_.empty(); }
    /// "RNDV_THRESHOLD=64k, SM_RING_SLOTS=32 (environment wins)"
    std::string description() const;

  private:
    struct Given {
        std::string name;  // without the prefix
        std::string value;
        std::string winner;  // the source that wins over it; empty: it holds
    };

    static ucs_status_t check(const tw_option_t& option, std::size_t index);

    std::vector<Given> all_;
};

}  // namespace tagwire::proto
