// SPDX-License-Identifier: BSD-3-Clause
// The program's hold on an endpoint. Closing writes it, and Endpoint that the program has sent; the
// ends of receives read it.
#pragma once

namespace tagwire::proto {

struct EpHold {
    bool is_open = false;  // the program has the endpoint; closing counts
    bool is_closing = false;
    bool has_sent = false;  // the program, since it has the endpoint

    /// The program may be told of the endpoint.
    bool is_held() const { return is_open && !is_closing; }
};

}  // namespace tagwire::proto
