// SPDX-License-Identifier: BSD-3-Clause
// The initiator of one-sided operations of one endpoint. An operation goes
//
//   directly      by the lane, and long data by the lanes beside it (transfer.hpp), where the
//                 lane's transport reaches the memory;
//   by messages   to the owner, where it does not (rma_messages.hpp).
//
// An endpoint of a worker to itself needs no lane: the memory is of this process (rma_own.cc).
//
// Atomics on one number are atomic with each other: either processors carry out all of them (in
// shared memory, or the owner's, by messages), or the owner's device does. A device does by
// compare-and-swap what it does not have; numbers of 32 bits are the processors' in any case.
#pragma once

#include <ucs/type/status.h>

#include <cstddef>
#include <cstdint>

#include "protocols/api/tw_rma.h"
#include "protocols/match/match_peer.hpp"
#include "protocols/port/worker_port.hpp"
#include "protocols/request/lane_state.hpp"
#include "protocols/request/request.hpp"
#include "protocols/rma/rma_ops.hpp"
#include "protocols/transfer/flushes.hpp"
#include "protocols/transfer/send_window.hpp"
#include "protocols/wire/control_message.hpp"
#include "protocols/wire/limits.hpp"
#include "protocols/wire/memory_key.hpp"
#include "protocols/wire/rma_messages.hpp"

namespace tagwire::proto {

/// Parameters of a call.
struct RmaCall {
    RmaWish what;
    const void* base;  // of an atomic: nullptr
    std::size_t length;
    const tw_iov_t* list;
    std::size_t count;
    const tw_op_t* op;
    tw_request_h* request_p;
    const RmaList* pieces = nullptr;  // of a list, else null
};

struct LaneKey;
class MemTable;

/// The lane, for one-sided operations.
struct RmaLane {
    // Shorter puts and gets go at once, where calls take no lock; else 0: something waits.
    std::size_t put_end = 0;
    std::size_t get_end = 0;
    // The peer's memory domain that it leads to; no key is there of the last of these.
    std::uint8_t peer_domain = kKeyDomainsMax;
    // As RemoteKey::use of the keys that it may be used with.
    std::uint64_t key_use = 0;
};

/// The world of an initiator.
struct RmaSenderPorts {
    const WorkerPort& worker;
    RmaOps& ops;
    MatchPeer& peer;
    const LaneState& lane;
    const RmaLane& rma_lane;
    SendWindow& window;
    Flushes& flushes;
    MemTable* own_memory = nullptr;  // where the peer is the worker itself
};

class RmaSender {
  public:
    explicit RmaSender(const RmaSenderPorts& ports) : to_(ports) {}
    RmaSender(const RmaSender&) = delete;
    RmaSender& operator=(const RmaSender&) = delete;

    tw_status_t call(const RmaCall& call);
    /// An atomic on memory that loads and stores reach. False: call() is to do it.
    bool try_atomic(const RmaWish& wish, const LaneKey& key);
    /// UCS_OK: it has ended. UCS_INPROGRESS: it is outstanding; begun() follows.
    /// UCS_ERR_NO_RESOURCE: to be called again.
    ucs_status_t start(Request& request);
    /// The owner carries it out, asked by messages. With kReady.
    bool is_asked(const Request& request) const;
    /// One more operation may be asked for.
    bool may_ask() const { return unanswered_ < kAskedMax; }
    /// start() has begun it, and it is in no queue.
    void begun(Request& request);
    /// Takes the step that waited for room of the lane. UCS_ERR_NO_RESOURCE: it waits on.
    ucs_status_t resume(Request& request);
    /// One of its pieces has ended; of an atomic, `value` was there before.
    void piece_ended(Request& request, ucs_status_t status, std::uint64_t value);
    /// Operations by messages, whose effect on later ones of another way is not sure yet.
    bool awaits_replies() const { return unanswered_ > 0; }
    void begin_anew() { unanswered_ = 0; }
    /// The operation has ended, and its notice has not gone.
    void notice_is_off() {
        if (to_.lane.state != EpState::kFailed)
            to_.window.notice_is_off();
    }
    /// The way of one of `length` bytes, and the reason, a sentence; with kReady. `is_mapped`: its
    /// buffer has a handle.
    RmaWay way_of(const RmaWish& wish, std::size_t length, bool is_mapped,
                  const char** reason) const;

    /// Where loads and stores reach `address` of memory of this process; nullptr: it is no such.
    void* own_pointer(RemoteKey& key, std::uint64_t address) const;

    // ---- Messages of the owner. False: they fit nothing

    bool on_data(const GetMessage& message, Request* request);
    bool on_reply(RmaReply message, Request* request);
    bool on_flushed(Request& request);

  private:
    /// On memory of this process: the answer is in *status_p. False: it is to go the other way.
    bool call_here(const RmaCall& call, tw_status_t* status_p);
    bool move_here(const RmaCall& call) const;
    bool move_list_here(const RmaList& list, bool is_put) const;
    bool atomic_here(const RmaWish& wish) const;
    Request* make_request(const RmaCall& call, bool is_held);
    ucs_status_t advance(Request& request);
    ucs_status_t move(Request& request);
    ucs_status_t put(Request& request);
    ucs_status_t put_pieces(Request& request, const LaneKey& key);
    ucs_status_t put_by_messages(Request& request);
    ucs_status_t get(Request& request);
    ucs_status_t get_pieces(Request& request, const LaneKey& key);
    ucs_status_t make_transfer(Request& request, const LaneKey* key);
    void transfer_ended(Request& request, ucs_status_t status);
    void await_down(Request& request);
    ucs_status_t atomic(Request& request);
    ucs_status_t atomic_by_lane(Request& request, const LaneKey& key);
    ucs_status_t emulate(Request& request, const LaneKey& key);
    ucs_status_t ask(Request& request);
    bool is_list_reached(const RmaOp& op) const;
    ucs_status_t move_list(Request& request);
    ucs_status_t put_list_copied(Request& request);
    ucs_status_t get_list_copied(Request& request);
    ucs_status_t put_list_by_messages(Request& request);
    ucs_status_t ask_list(Request& request);
    bool on_list_data(const GetMessage& message, Request& request);
    void on_list_reply(Request& request, ucs_status_t status);
    ucs_status_t send_request(const RmaRequest& message);
    ucs_status_t send_notice(const Request& request);
    ucs_status_t acknowledge(Request& request);
    void settle(Request& request, ucs_status_t status);
    const LaneKey* key_for(const RmaWish& wish) const;
    static bool is_of_device(const RmaWish& atomic);
    bool may_transfer(RmaKind kind, std::size_t length, bool is_mapped) const;
    RmaWay way_of_atomic(const RmaWish& wish, const LaneKey* key, const char** reason) const;

    const RmaSenderPorts to_;
    std::uint64_t unanswered_ = 0;  // RmaReply that are to come
};

}  // namespace tagwire::proto
