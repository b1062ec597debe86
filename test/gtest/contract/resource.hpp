// SPDX-License-Identifier: BSD-3-Clause
// Resources to test: every (component, memory domain, transport, device) that the library lists,
// and the names of the few settings that differ between transports. Used by the contract suite and
// by the process tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <uct/api/uct.h>

namespace tagwire::test {

struct Resource {
    std::string component;
    std::string md;
    std::string transport;
    std::string device;

    std::string label() const;  // "sm_memory": letters, digits and underscores only
};

/// All resources of the library, in its own order. Asked once per process.
const std::vector<Resource>& all_resources();

/// The first resource of `transport`; throws std::runtime_error when the library has none.
const Resource& resource_of(const std::string& transport);

/// Names of the interface options that tests turn; an empty name means that the transport has no
/// such option.
struct Knobs {
    std::string posted_receives_max;
    std::pair<std::string, std::string> ring_start;  // option, and its text before a position
    std::size_t held_max = SIZE_MAX;  // descriptors that may be kept before senders must wait
    // The receiver reads the data of a rendezvous without asking: one that was cancelled in flight
    // may still be received.
    bool reads_unasked = false;
    // A callback's first send may find no room: few messages may be on their way.
    bool has_little_room = false;
    std::vector<std::pair<std::string, std::string>> iface_config = {};  // for all cases
};
Knobs knobs_of(const Resource& resource);

/// Finds the component's handle again (handles are static, so nothing needs to be released by the
/// caller).
uct_component_h component_handle(const std::string& name);

/// Throws std::runtime_error naming `what` and the status unless it is UCS_OK.
void require_ok(ucs_status_t status, const std::string& what);

}  // namespace tagwire::test
