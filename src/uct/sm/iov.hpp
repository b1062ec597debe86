// SPDX-License-Identifier: BSD-3-Clause
// uct/iov.hpp by the names that this transport uses.
#pragma once

#include "uct/iov.hpp"

namespace tagwire::sm {

using ucs::copy_short;
using uct::first_piece;
using uct::iov_bytes;
using uct::IovCopy;
using uct::IovCursor;
using uct::kIovMax;

}  // namespace tagwire::sm
