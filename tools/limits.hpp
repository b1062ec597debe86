// SPDX-License-Identifier: BSD-3-Clause
// Chooses the kind of operation that carries a message of some size over an interface, from the
// interface's own attributes.
#pragma once

#include <uct/api/uct.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tools/job.hpp"

namespace tagwire::tools {

struct SizeRange {
    std::uint64_t min;
    std::uint64_t max;
};

/// The operation that the user asks for.
struct Wanted {
    Wanted(Op wanted_op, bool is_eager_only = false)  // NOLINT(google-explicit-constructor)
        : op(wanted_op), eager_only(is_eager_only) {}

    Op op;
    /// The receiver posts nothing, so that a rendezvous would never end: it would have to fetch the
    /// data itself.
    bool eager_only;
};

/// Sizes that `op` can carry in this test; nothing when the interface does not have it.
std::optional<SizeRange> size_range(TestId test, Op op, const uct_iface_attr_t& attr);

/// Why the test cannot run at all over this interface, whatever the size: the capabilities that are
/// missing, by their names in `tagwire info`. Empty when it can.
std::string missing_capability(TestId test, const Wanted& wanted, const uct_iface_attr_t& attr);

/// The operation for this size: `wanted` itself, or for kAuto the cheapest that carries it (tagged
/// messages of 64 KiB and more: rendezvous, unless only eager operations are possible). On failure
/// returns nothing and `*why` says what the interface can do.
std::optional<Op> choose_op(TestId test, const Wanted& wanted, std::uint64_t size,
                            const uct_iface_attr_t& attr, std::string* why);

/// Why the test cannot have this size at level msg, over any transport. Empty when it can.
std::string refusal_at_level_msg(TestId test, std::uint64_t size);

}  // namespace tagwire::tools
