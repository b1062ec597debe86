// SPDX-License-Identifier: BSD-3-Clause
// Numbers of unfinished requests of one endpoint. The side that makes the requests stops at a
// number; its peer ends a connection on which the number is passed. Both use these constants, so a
// correct peer never passes one, however long this side waits.
// docs/internals/limits.md lists every place that ends a connection because of a number.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tagwire::proto {

/// One-sided operations by messages whose RmaReply has not come.
inline constexpr std::size_t kAskedMax = std::size_t{1} << 16;

/// Messages and flushes of the program that have begun and not ended. Each names a request, and the
/// peer replies to that.
inline constexpr std::size_t kNamedMax = std::size_t{1} << 20;

/// Messages of the program, and notices of puts, that have gone and whose Probed has not come, as
/// the memory that the peer takes at most to keep them. One more begins while they are no more than
/// this, so the peer keeps no more on top of its budget of a sender that has not read its Pause.
inline constexpr std::uint64_t kWindowBytes = std::uint64_t{8} << 20;
/// Bytes that each message counts beside its data, the program's header and its keys.
inline constexpr std::uint64_t kMessageBytes = 512;

/// Replies that may wait for the transport. To a request of the peer there are two at most (Cts and
/// Ats; or Canceled behind either), to a rendezvous of this side one (DataEnd), and one Probed.
inline constexpr std::size_t kRepliesMax = 3 * kNamedMax + kAskedMax + 1;

}  // namespace tagwire::proto
