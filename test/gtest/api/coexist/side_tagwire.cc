// SPDX-License-Identifier: BSD-3-Clause
// Our side: compiled with our headers only.
#include <uct/api/uct.h>

#include "side.inc"

#if defined(UCT_H_)
#error "this is UCX's header"
#endif

SideReport run_tagwire() {
    return run_side({"sm"});
}
