// SPDX-License-Identifier: BSD-3-Clause
// Channels, the send queues that endpoints post to. A channel is an initiator (DCI), or one stream
// of it where the device has streams: each stream keeps an order of its own.
//
//   owned (dcs, dcs_quota)    idle <-> of one endpoint, until all its requests are acknowledged
//   shared (rand, hash)       of each endpoint that was given it, for good
//
// Threads: owner of the interface.
// Invariants
//  (1) Completions of a channel come in order, and one counts for all requests before it.
//  (2) A shared channel keeps each request that is not acknowledged, as it was posted.
//  (3) Nothing is posted to a shared channel that is broken, nor to a DCI that is stopped or held:
//      it would be flushed, and a channel never has more to post again than its ring has places.
//  (4) A channel without a free place has asked for the completion of its newest request.
//  (5) In a DCI with streams, the newest request posted and the oldest that has not ended are no
//      further apart than the shares of its channels together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ucs/datastruct/queue.hpp"
#include "ucs/debug/check.hpp"
#include "ucs/memory/reserve.hpp"
#include "uct/ib/dc/dc_verbs.hpp"
#include "uct/ib/message_ep.hpp"
#include "uct/ib/work_queue.hpp"

namespace tagwire::dc {

class DcEp;

/// A request that is not acknowledged: what it takes to post it again.
struct SentRequest {
    DcEp* ep;
    ibv_send_wr request;           // alone; its list is `pieces`
    ibv_sge pieces[ib::kSgesMax];  // inline data: one piece, in `data`
    std::byte data[ib::kInlineBytesMax];
};

/// The requests of a shared channel, by their number.
class SentRing : public ucs::FromReserve {
  public:
    explicit SentRing(std::uint32_t depth);

    /// Request number `sn` of the channel, which takes the place of number sn - depth.
    void keep(std::uint32_t sn, DcEp& ep, const ibv_send_wr& request);
    /// Number `from` becomes number `to`, which is not larger.
    void move(std::uint32_t from, std::uint32_t to);
    [[nodiscard]] SentRequest& at(std::uint32_t sn) { return requests_[sn & mask_]; }
    [[nodiscard]] const SentRequest& at(std::uint32_t sn) const { return requests_[sn & mask_]; }

  private:
    std::uint32_t mask_;
    ucs::ReserveVector<SentRequest> requests_;
};

struct Channel;

/// An initiator. Its streams post to one ring, in which places come back by one tail: a place may
/// be used again when everything before it has ended, whatever stream that is of (ADR 15).
///
/// So ended requests of a stream give no places back by themselves. Time is cut into epochs. An
/// epoch has a mark in each stream: the newest request posted when the epoch began. When all
/// streams have ended the requests up to their marks, everything before that moment has ended, and
/// those places come back. Requests that a stream has posted since are at most its share of the
/// ring. A stream that is the only one with requests needs no mark: its oldest request is the
/// oldest of all.
struct Dci : ucs::FromReserve {
    Initiator initiator;
    ucs::ReserveVector<Channel*> channels;  // of it
    unsigned behind = 0;                    // those that have not ended what is before their marks
    bool is_breaking = false;  // stopped: it starts anew when all that was posted is flushed
    unsigned holders = 0;      // closed endpoints that keep others from sending there

    /// With streams: requests of `channel` up to this one have ended. Places may come back, of
    /// other channels, too.
    void ended(Channel& channel, std::uint32_t sn);
    /// The ring is empty, as far as it was that channel's.
    void reset(Channel& channel);
    /// Endpoints that have not failed have requests there.
    [[nodiscard]] bool serves_others() const;
    /// After a change of `is_breaking` or `holders`.
    void set_reserves();

  private:
    void next_epoch();
    [[nodiscard]] bool is_settled() const;
};

struct Channel : ib::WorkQueue, ucs::FromReserve {
    static constexpr std::uint32_t kNoMore = kStopped - 1;  // places kept: more than there are

    Dci* dci = nullptr;
    ucs::ListLink<Channel> idle_link;
    std::uint16_t stream = 0;
    std::uint16_t index = 0;       // in the pool
    std::uint32_t turn_begin = 0;  // owned: requests posted before the owner's turn
    bool was_granted = false;      // owned: to one that waited, whose request has not come yet
    bool is_turn_over = false;     // owned: but for the request that ends it
    std::uint32_t flushed = 0;  // shared and broken: the newest request that is known to have ended
    std::uint32_t stop_mark = 0;     // breaking: the request that was posted behind all others
    std::unique_ptr<SentRing> sent;  // shared

    // For a DCI with streams. Requests are numbered as they are posted to the ring, also when it is
    // for the second time: free = depth - (ring_end() - ring_base).
    std::uint32_t replayed = 0;    // requests that were posted again, of all time
    std::uint32_t ring_ended = 0;  // all up to this one
    std::uint32_t ring_base = 0;   // places up to this one came back
    std::uint32_t mark = 0;        // the newest when the epoch began
    bool is_behind = false;        // ring_ended is before the mark
    bool rests = false;            // owned: by nobody, until enough places have come back

    [[nodiscard]] std::uint32_t ring_end() const { return posted + replayed; }
    /// After a change of the state: sets what may be posted.
    void set_reserve();
    /// Breaking: nothing that was posted is still to complete.
    [[nodiscard]] bool is_flushed() const { return is_drained() || is_over(); }
    /// Shared and broken: the device has flushed all of it.
    [[nodiscard]] bool is_over() const { return is_shared && is_broken && flushed == posted; }
    [[nodiscard]] bool has_all_ended() const { return ring_ended == ring_end(); }
    /// Requests have ended whose places have not come back.
    [[nodiscard]] bool waits_for_others() const { return ring_base != ring_ended; }
    /// Requests without an acknowledgement were posted again up to number `end`: they have the
    /// places for it. The others are gone.
    void posted_again(std::uint32_t end) {
        TW_ASSERT(free >= end - acked);
        free -= end - acked;
        replayed += posted - acked;
        posted = end;
    }
    /// Over: requests behind number `end` are gone.
    void keep_up_to(std::uint32_t end) {
        if (dci->initiator.has_streams)
            replayed += posted - end;  // their places come back with the others'
        else
            free += posted - end;
        posted = flushed = end;
    }
    void give_places_up_to(std::uint32_t number);
};

}  // namespace tagwire::dc
