// SPDX-License-Identifier: BSD-3-Clause
// The options of verbs libraries, devices and memory domains.
#pragma once

#include <cstdint>

#include "ucs/config/config.hpp"

namespace tagwire::ib {

/// Read whenever devices are listed; the libraries' names once.
struct LibraryOptions {
    ucs::OptionString verbs_library;
    ucs::OptionString vhca_library;
    ucs::OptionString devices;
};

enum class ForkSupport : int { kNo, kYes, kTry };
enum class RelaxedOrdering : int { kNo, kYes, kAuto };

struct IbMdOptions {
    int fork;                     // ForkSupport
    int relaxed_ordering;         // RelaxedOrdering
    ucs::OptionString gid_index;  // "auto" or a number
    ucs::OptionString pkey;       // "auto" or hexadecimal digits
    std::uint64_t traffic_class;
    std::uint64_t service_level;
    int mtu_max;            // ibv_mtu less 1; the last is "auto"
    std::uint64_t tx_sges;  // gather elements of a request, one of them for its head
};

const ucs::OptionTable& library_options();
const ucs::OptionTable& md_options();

}  // namespace tagwire::ib
