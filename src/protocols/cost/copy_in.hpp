// SPDX-License-Identifier: BSD-3-Clause
// One copy into shared memory as the CopyChooser of a connection has planned it, which learns how
// long it took. Whatever a sender copies through the transport's buffers is copied so: eager
// messages and the pieces of rendezvous.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocols/cost/copy_chooser.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

struct CopyIn {
    CopyChooser* chooser = nullptr;
    CopyChooser::Plan plan{};

    static CopyIn of(CopyChooser& chooser, std::size_t message_bytes) {
        return {&chooser, chooser.plan(message_bytes)};
    }
    /// Calls `copy(CopyKind)`, which copies `bytes` bytes.
    template <class Copy>
    void run(std::size_t bytes, Copy&& copy) const {
        const std::uint64_t begun = plan.is_timed ? ucs::ticks_now() : 0;
        copy(plan.kind);
        if (plan.is_timed) [[unlikely]]
            chooser->took(plan.kind, bytes, static_cast<double>(ucs::ticks_now() - begun));
    }
};

}  // namespace tagwire::proto
