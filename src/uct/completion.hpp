// SPDX-License-Identifier: BSD-3-Clause
// The transport's side of uct_completion_t.
#pragma once

#include <uct/api/uct.h>

namespace tagwire::uct {

/// One operation that `comp` counts has ended. Runs the user's callback when it was the last;
/// `comp` may be freed by it.
inline void invoke_completion(uct_completion_t* comp, ucs_status_t status) {
    uct_completion_update_status(comp, status);
    if (--comp->count == 0)
        comp->func(comp);
}

}  // namespace tagwire::uct
