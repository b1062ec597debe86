// SPDX-License-Identifier: BSD-3-Clause
// Checks of arguments that calls of several kinds have; each logs what is wrong, and what would be
// right.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocols/api/tw_def.h"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/tx_contexts.hpp"
#include "protocols/worker/worker_core.hpp"

namespace tagwire::proto {

/// Flags that every operation accepts.
inline constexpr std::uint32_t kAnyFlags = TW_OP_COMPLETION | TW_OP_MORE | TW_OP_CQ | TW_OP_TALLY;

[[gnu::noinline, gnu::cold]] tw_status_t refuse_null(const char* call, const char* argument);
/// A list of elements; *length_p is their total length.
tw_status_t check_list(const char* call, const tw_iov_t* iov, std::size_t iovcnt,
                       std::size_t* length_p);
tw_status_t check_op(const char* call, const WorkerCore& worker, const tw_op_t& op,
                     std::uint32_t allowed);
/// The buffer, or each element of the list, is inside `op.mem`, if that is given.
tw_status_t check_memory(const char* call, const WorkerCore& worker, const tw_op_t& op,
                         const void* base, std::size_t length, const tw_iov_t* list,
                         std::size_t count);

/// The endpoint by which messages of the calling thread leave.
inline Endpoint& way_of(Endpoint& ep) {
    Endpoint* way = ep.tx.contexts == nullptr ? nullptr : ep.tx.contexts->of_this_thread();
    return way == nullptr ? ep : *way;
}

}  // namespace tagwire::proto
