// SPDX-License-Identifier: BSD-3-Clause
// The options of verbs libraries, devices and memory domains.
#pragma once

#include "ucs/config/config.hpp"

namespace tagwire::ib {

/// Read whenever devices are listed; the libraries' names once.
struct LibraryOptions {
    ucs::OptionString verbs_library;
    ucs::OptionString vhca_library;
    ucs::OptionString devices;
};

struct IbMdOptions {
    bool fork;
};

const ucs::OptionTable& library_options();
const ucs::OptionTable& md_options();

}  // namespace tagwire::ib
