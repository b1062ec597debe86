// SPDX-License-Identifier: BSD-3-Clause
// The device's options: TAGWIRE_VHCA_*, which `tagwire vhca run` sets from its own.
#pragma once

#include <cstdint>

#include "ucs/config/config.hpp"

namespace tagwire::vhca {

struct Options {
    double loss, dup, reorder;
    std::uint64_t delay_ns;
    std::uint64_t seed;
    std::uint64_t tm;  // receives of a tag-matching SRQ
    int fabric;        // shm is all there is
    bool dc, dc_rendezvous;
    int dc_key_error;
};

/// What an initiator with a wrong access key gets: no answer, or an access error.
enum DcKeyError : int { kDcKeyErrorRetry, kDcKeyErrorAccess };

const ucs::OptionTable& option_table();

}  // namespace tagwire::vhca
