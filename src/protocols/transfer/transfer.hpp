// SPDX-License-Identifier: BSD-3-Clause
// A transfer: reads or writes between the buffer of a request and memory of the peer, over the
// endpoint's own lane and, divided, over others beside it (stripe.hpp).
//
//     Transfer --- own part ----- pieces over the endpoint's lane
//              \-- other parts -- pieces over StripeLanes
//
// 1. It belongs to its request until end_transfer(). Pieces that are under way then end by
//    themselves, and the last of them frees it.
// 2. It has ended when each of its parts has; then `ended` is called, once.
// 3. A part whose lane has failed is lost: the own lane moves it again after its own.
// 4. A failure of the own lane is the end of the endpoint, and of the transfer.
#pragma once

#include <uct/api/tagwire_uct.h>
#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "protocols/cost/cost.hpp"
#include "protocols/cost/timing.hpp"
#include "protocols/port/lane_port.hpp"
#include "protocols/port/worker_port.hpp"
#include "protocols/request/reg_leases.hpp"
#include "protocols/request/request.hpp"
#include "protocols/request/rma_list.hpp"
#include "ucs/datastruct/queue.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

class Rail;
struct StripeLane;

inline constexpr unsigned kPiecesOut = 4;  // outstanding at a time on each rail
/// The most of what is lent that is read when its request is looked at; the rest, in pieces, when
/// its turn comes.
inline constexpr std::size_t kReadAtOnceMax = std::size_t{512} << 10;
/// A list whose elements are shorter than that on average is filled by one read, where it can be.
inline constexpr std::size_t kElementOfPieces = std::size_t{32} << 10;

/// The bytes [begin, end) of a transfer, which one lane moves.
struct TransferPart : ucs::FromReserve {
    Transfer* transfer = nullptr;
    StripeLane* lane = nullptr;  // null: the endpoint's own
    std::uint64_t begin = 0;
    std::uint64_t next = 0;  // where the next piece begins
    std::uint64_t end = 0;
    uct_rkey_bundle_t key{};  // of the peer's memory
    uct_component_h component = nullptr;
    uct_mem_h memh = UCT_MEM_HANDLE_NULL;  // of our buffer
    RegLease* cached = nullptr;            // the region of the cache that memh is of
    // A list: where `next` is in it, our domain, and the peer's that its keys are of.
    ListCursor cursor;
    std::size_t domain = 0;
    std::uint8_t peer_domain = 0;
    bool is_waiting = false;  // in the queue of `lane`
    bool is_lost = false;     // `lane` has failed
    bool has_ended = false;
    OwnedBy<uct_completion_t, TransferPart> done{};
    ucs::QueueLink<TransferPart> link;

    TransferPart();
    TransferPart(const TransferPart&) = delete;
    TransferPart& operator=(const TransferPart&) = delete;
    ~TransferPart();

    /// Begins as many pieces as may be under way at a time; they end together, after release().
    /// False: the transport has no room for the first.
    bool begin_pieces(uct_ep_h ep, const Rail& rail);
    /// As begin_pieces(), of a list of puts or gets.
    bool begin_list(uct_ep_h ep, const Rail& rail);
    /// As begin_pieces(), of a list into which all that is lent is read at once.
    bool read_whole(uct_ep_h ep);
    /// The caller has the part out of its queue: its pieces may end, also in this call.
    void release();
    bool is_busy() const { return done.count > 0; }

  private:
    ucs_status_t move_piece(uct_ep_h ep, const uct_iov_t& iov);
};

/// The world of a transfer. `lane`: of the endpoint, which may go before the pieces have ended.
struct TransferPorts {
    const WorkerPort& worker;
    const LanePort& lane;
};

struct Transfer : ucs::FromReserve {
    /// All parts have ended. May free the transfer.
    using Ended = void (*)(Request& request, ucs_status_t status);

    Transfer(Request& owner, const TransferPorts& ports, Ended on_end);
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;
    ~Transfer() = default;

    /// Pieces are under way.
    bool is_busy() const;
    bool has_lost() const;
    /// All elements of the request's list are filled by one read.
    bool reads_whole() const;
    /// The request is not ended by the parts any more.
    bool is_abandoned() const { return request == nullptr || ending != UCS_OK; }
    /// The pieces of `part` that were under way have ended.
    void pieces_ended(TransferPart& part, ucs_status_t status);
    /// Ends it if all parts have ended; gives a lost part to the own lane.
    void check();

    Request* request;  // null: it has ended, and only the pieces are waited for
    const Ended ended;
    void* mover = nullptr;  // for `ended`
    bool is_put = false;
    bool is_lent = false;           // read by `loan`, over the endpoint's lane alone
    bool has_lost_rail = false;     // the own lane has moved a lost part again
    Timing timing;                  // of a read that the receiver may learn from
    std::uint64_t address = 0;      // of the peer's memory
    const RmaList* list = nullptr;  // not null: pieces here and there in place of one range
    tagwire_uct_loan_t loan{};      // is_lent
    ucs_status_t ending = UCS_OK;   // not UCS_OK: the request ends so when the pieces have
    Endpoint* failed_ep = nullptr;  // whose failure is told after the end
    ucs_status_t status = UCS_OK;   // of all parts that have ended
    TransferPart own;
    ucs::ReserveVector<std::unique_ptr<TransferPart>> others;

  private:
    void idle();
    void lane_part_ended(TransferPart& part, ucs_status_t status);

    const TransferPorts to_;
};

}  // namespace tagwire::proto
