// SPDX-License-Identifier: BSD-3-Clause
// Sends eager messages of an endpoint: in one piece or in parts, or as a tagged message where the
// lane's device matches tags. A plain message that fits one buffer of a free lane does without it
// (endpoint_send.cc).
#pragma once

#include <ucs/type/status.h>

#include <cstdint>

#include "protocols/cost/copy_chooser.hpp"
#include "protocols/match/match_peer.hpp"
#include "protocols/port/worker_port.hpp"
#include "protocols/request/lane_state.hpp"
#include "protocols/request/request.hpp"
#include "protocols/transfer/steps.hpp"

namespace tagwire::proto {

struct Envelope;

/// The world of a sender of eager messages.
struct EagerSenderPorts {
    const WorkerPort& worker;
    MatchPeer& peer;
    const LaneState& lane;
    CopyChooser& copies;
    Steps& steps;
    void* owner;
    /// The receiver is to time the message, which begins at `*begun`.
    bool (*is_timed)(void* owner, const Request& request, std::uint64_t* begun);
};

class EagerSender {
  public:
    explicit EagerSender(const EagerSenderPorts& ports) : to_(ports) {}
    EagerSender(const EagerSender&) = delete;
    EagerSender& operator=(const EagerSender&) = delete;

    /// UCS_OK: it has ended. UCS_INPROGRESS: it is outstanding. UCS_ERR_NO_RESOURCE: to be called
    /// again.
    ucs_status_t start(Request& request);
    /// The place of a message that was announced. Until it has gone, no other is announced.
    ucs_status_t send_placeholder(Request& request);
    void begin_anew() { placeholders_ = 0; }

  private:
    ucs_status_t send_parts(Request& request);
    ucs_status_t send_whole(Request& request, const Envelope& envelope);
    ucs_status_t send_tagged(Request& request);
    ucs_status_t track_transmission(Request& request);

    const EagerSenderPorts to_;
    std::uint32_t placeholders_ = 0;  // sent
};

}  // namespace tagwire::proto
