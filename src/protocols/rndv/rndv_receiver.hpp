// SPDX-License-Identifier: BSD-3-Clause
// The receiver of rendezvous of one endpoint, after the match. It decides (scheme.hpp) whether it
// reads the data, lets the sender write it (Rtr: its buffer and the key to that), or asks for it in
// messages. A buffer that is lent is read without a key; when the loan has ended meanwhile, because
// the sender has taken back this buffer or another one, it is asked for the data.
//
//                   read by loan ---- at once, or by a Transfer -------------.
//     begin() ----> read by key ----- by a Transfer ------------------------>| ended: Ats
//                   offered --------- waits for the lane, Rtr, DataEnd ----->|
//                   asked for ------- Cts, RndvData ... -------------------->'
//
// 1. While it moves the data itself the sender ends nothing; otherwise the sender may say that it
//    has failed, and data may come where it was asked for or offered to.
// 2. The request ends once, by the worker, and the sender hears of that unless it has told it.
#pragma once

#include <ucs/type/status.h>
#include <uct/api/tagwire_uct.h>
#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "protocols/cost/scheme.hpp"
#include "protocols/cost/timing.hpp"
#include "protocols/match/match_peer.hpp"
#include "protocols/port/worker_port.hpp"
#include "protocols/request/lane_state.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/request/request.hpp"
#include "protocols/rndv/learning.hpp"
#include "protocols/rndv/rndv_sender.hpp"
#include "protocols/transfer/transfer.hpp"
#include "protocols/wire/rndv_messages.hpp"

namespace tagwire::proto {

/// The world of a receiver of rendezvous.
struct RndvReceiverPorts {
    const WorkerPort& worker;
    MatchPeer& peer;
    const LaneState& lane;
    RndvSender& sender;   // of the same endpoint
    const bool may_lead;  // Learning's
};

class RndvReceiver {
  public:
    explicit RndvReceiver(const RndvReceiverPorts& ports)
        : to_(ports),
          learning_({ports.worker, ports.peer.lane, ports.lane, ports.sender, ports.may_lead}) {}
    RndvReceiver(const RndvReceiver&) = delete;
    RndvReceiver& operator=(const RndvReceiver&) = delete;

    /// The request has matched a message. `keys`: those behind its `rts`.
    void begin(Request& request, const Rts& rts, std::span<const std::byte> keys);
    /// Offers the buffer of a request to the sender. UCS_ERR_NO_RESOURCE: to be called again.
    /// UCS_OK: the request has left the queue, and a failure has ended it.
    ucs_status_t send_rtr(Request& request);

    // ---- Messages of the sender. `request`: the one that it names, or null. False: it cannot come
    // now

    bool on_data(const DataMessage& message, Request* request);
    /// UCS_OK: the sender has written all of what it was offered; else it has failed.
    bool on_data_end(Request* request, ucs_status_t status);

    Learning& learning() { return learning_; }

  private:
    bool is_free() const;
    Rail& rail() const { return to_.lane.rail(); }
    bool awaits_data(const Request* request) const;
    void count_copy();
    void ask_for_data(Request& request);
    bool begin_lent(Request& request, const Rts& rts, std::span<const std::byte> keys);
    RndvScheme scheme_for(const Request& request, const Rts& rts, bool has_key) const;
    Timing timing_for(const Request& request, const Rts& rts) const;
    std::span<const std::byte> key_for(std::span<const std::byte> keys) const;
    bool try_read_lent(Request& request, const Rts& rts, const tagwire_uct_loan_t& loan);
    std::unique_ptr<Transfer> make_lent_read(Request& request, const Rts& rts,
                                             const tagwire_uct_loan_t& loan);
    std::unique_ptr<Transfer> make_read(Request& request, const Rts& rts,
                                        std::span<const std::byte> key);
    bool register_target(Request& request);
    void count_lent_read();
    void read_ended(Request& request, ucs_status_t status);
    void lent_read_ended(Request& request, ucs_status_t status);
    void end(Request& request, ucs_status_t status);

    const RndvReceiverPorts to_;
    Learning learning_;
};

}  // namespace tagwire::proto
