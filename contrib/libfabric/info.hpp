// SPDX-License-Identifier: BSD-3-Clause
// fi_getinfo(3): the capabilities and limits of the provider, and whether they meet the hints.
#pragma once

#include <rdma/fi_domain.h>

#include <optional>

#include "atomic_messages.hpp"
#include "provider.hpp"

namespace tagwire::fi {

/// Kinds of operations: with a buffer that the peer posts, and on memory that it has registered.
inline constexpr std::uint64_t kMessages = FI_MSG | FI_TAGGED;
inline constexpr std::uint64_t kOneSided = FI_RMA | FI_ATOMIC;
/// Ways of them, at the initiator and at the target.
inline constexpr std::uint64_t kTxWays = FI_READ | FI_WRITE;
inline constexpr std::uint64_t kRxWays = FI_REMOTE_READ | FI_REMOTE_WRITE;

inline constexpr std::uint64_t kTxCaps = kMessages | kOneSided | FI_SEND | kTxWays | FI_FENCE;
inline constexpr std::uint64_t kRxCaps = kMessages | kOneSided | FI_RECV | kRxWays | FI_MULTI_RECV |
                                         FI_SOURCE | FI_DIRECTED_RECV | FI_VARIABLE_MSG |
                                         FI_RMA_EVENT;
inline constexpr std::uint64_t kDomainCaps = FI_LOCAL_COMM | FI_REMOTE_COMM;
inline constexpr std::uint64_t kCaps = kTxCaps | kRxCaps | kDomainCaps;
/// Capabilities that cost nothing: always there.
inline constexpr std::uint64_t kFreeCaps = FI_MULTI_RECV | FI_FENCE | kDomainCaps;

/// Atomics of one endpoint on memory of one peer take effect in the order of their calls.
inline constexpr std::uint64_t kAtomicOrders =
    FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
/// The orders of an endpoint with these capabilities; 0: all of them.
constexpr std::uint64_t orders_of(std::uint64_t caps) {
    return FI_ORDER_SAS | (caps == 0 || (caps & FI_ATOMIC) != 0 ? kAtomicOrders : 0);
}
/// The longest operations on memory that keep them.
constexpr std::size_t ordered_bytes_of(std::uint64_t caps) {
    return (orders_of(caps) & kAtomicOrders) != 0 ? kAtomicBytesMax : 0;
}

inline constexpr std::uint64_t kLevels =
    FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
/// Defaults that an endpoint may have for its operations.
inline constexpr std::uint64_t kTxOpFlags = kLevels | FI_COMPLETION | FI_INJECT | FI_MORE;
inline constexpr std::uint64_t kRxOpFlags =
    FI_COMPLETION | FI_MULTI_RECV | FI_TRANSMIT_COMPLETE | FI_MORE;

inline constexpr std::size_t kQueueDefault = 1024;
inline constexpr std::size_t kQueueMax = std::size_t{1} << 20;
inline constexpr std::size_t kObjectsMax = 65536;  ///< Endpoints, queues, counters of a domain.

/// The limit of a worker with the present settings; nothing: none can be made. It is tried once,
/// and again where there was no memory for it, which throws.
std::optional<std::size_t> inject_bytes_max();
void forget_limits();

/// Says in the log what of the hints cannot be met. False: something.
bool meets(std::uint32_t api_version, const fi_info& hints);

int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
             const fi_info* hints, fi_info** info);

}  // namespace tagwire::fi
