// SPDX-License-Identifier: BSD-3-Clause
// UCX's side: compiled with UCX's headers only.
#include <uct/api/uct.h>

#include "side.inc"

SideReport run_ucx() {
    return run_side({"posix", "self"});
}
