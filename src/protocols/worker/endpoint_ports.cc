// SPDX-License-Identifier: BSD-3-Clause
// The ports of an endpoint, by which its parts reach it.
#include "protocols/worker/endpoint.hpp"

namespace tagwire::proto {

namespace {

Endpoint& as_endpoint(void* owner) {
    return *static_cast<Endpoint*>(owner);
}

}  // namespace

constinit const LaneCalls Endpoint::kLaneCalls{
    .control = [](void* ep,
                  const Control& message) { as_endpoint(ep).queue_.push_control(message); },
    .add_control = [](void* ep,
                      const Control& message) { as_endpoint(ep).queue_.add_control(message); },
    .update_direct = [](void* ep) { as_endpoint(ep).update_direct(); },
};

}  // namespace tagwire::proto
