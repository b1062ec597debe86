// SPDX-License-Identifier: BSD-3-Clause
// A message of the program as it came from the transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "protocols/wire/rndv_messages.hpp"

namespace tagwire::proto {

struct Arrival {
    std::uint64_t tag;
    std::uint64_t imm;
    std::uint64_t length;  // of the message
    std::uint32_t flags;   // HeaderFlag
    std::uint32_t send_id;
    std::span<const std::byte> bytes;  // data that came along; of a rendezvous, the keys
    bool is_rndv;
    Rts rts;
    bool was_kept;  // it waited for a receive
    bool is_am = false;
    std::span<const std::byte> am_header{};  // of the program; if eager, `bytes` begin with it
    bool is_admitted = false;                // it may be kept (MatchTable::may_keep())
    std::uint64_t begun = 0;                 // with kTimed (timing.hpp)
};

}  // namespace tagwire::proto
