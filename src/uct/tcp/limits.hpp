// SPDX-License-Identifier: BSD-3-Clause
// Limits whose excess is a violation, and why no peer that keeps to the protocol reaches them.
//
//   violation                                 a correct peer
//   frame of an impossible kind or length     sends at most kSegBytesMax bytes of a message (the
//                                             limit of TAGWIRE_TCP_SEG_BYTES) and kFrameDataMax of
//                                             a put or get (TxStream::begin_frame)
//   more than kGetsServedMax gets             has kRequestsMax requests unanswered at most, its own
//                                             gets among them, and asks once for the data of each
//                                             rendezvous, of which this side has kRequestsMax at
//                                             most (OpTable::has_room)
//   more than kControlBytesMax of replies     has so few requests unanswered that the replies are
//                                             shorter, the sum below
//   reply that is longer than the request     sends what was asked for (GetRequestBody::length)
//   rendezvous of operation 0, get of no      has operations that begin at 1 (OpTable::create), and
//   bytes                                     no get of no bytes (TcpEp::get_zcopy, get_bcopy)
//
// Requests are counted until their reply has come, also when their operation was cancelled.
#pragma once

#include "uct/tcp/frames.hpp"
#include "uct/tcp/ops.hpp"

namespace tagwire::tcp {

/// A get of at most this length is replied to with a copy in the queue, while the queue is short;
/// a longer one, or one behind much else, is sent from its place.
constexpr std::size_t kCopiedGetMax = 8192;
constexpr std::size_t kCopiedRepliesMax = 256 * 1024;
constexpr std::uint32_t kGetsServedMax = 2 * kRequestsMax;

/// Bytes in a queue besides the messages of the program, which TAGWIRE_TCP_QUEUE_BYTES limits.
constexpr std::size_t kControlBytesMax = 512 * 1024;

constexpr std::size_t kDoneBytes = frame_bytes<DoneBody>(0);
/// Replies to the requests of the peer and to its recall; one report of puts that failed.
constexpr std::size_t kRepliesBytes =
    (kRequestsMax + 2) * kDoneBytes + kCopiedRepliesMax + frame_bytes<GetDataBody>(kCopiedGetMax);
/// Requests for the data of the peer's rendezvous, and ends of own ones that were cancelled, twice:
/// before a recall and behind it.
constexpr std::size_t kRendezvousBytes =
    kRequestsMax * frame_bytes<GetRequestBody>(0) + 2 * kRequestsMax * kDoneBytes;
/// Flushes, a recall and a ping.
constexpr std::size_t kFlushBytes =
    (kRequestsMax + 1) * frame_bytes<FlushRequestBody>(0) + frame_bytes<NoBody>(0);
static_assert(kRepliesBytes + kRendezvousBytes + kFlushBytes <= kControlBytesMax);

}  // namespace tagwire::tcp
