// SPDX-License-Identifier: BSD-3-Clause
// Sends eager messages of an endpoint: in one piece or in parts, or as a tagged message where the
// lane's device matches tags.
#pragma once

#include <ucs/type/status.h>

#include <cstdint>

#include "protocols/request/request.hpp"

namespace tagwire::proto {

struct Envelope;
struct Outgoing;

class EagerSender {
  public:
    explicit EagerSender(Endpoint& ep) : ep_(ep) {}
    EagerSender(const EagerSender&) = delete;
    EagerSender& operator=(const EagerSender&) = delete;

    /// Sends a plain message that fits one buffer of a free lane, without a request: messages that
    /// an urgent one passes may have them all. False: it is not plain, too long, or has to wait.
    bool try_send_at_once(const Outgoing& message);
    /// As try_send_at_once(), of a message that asks for nothing (is_plain_send()) and is longer
    /// than a short one; in a few steps, over lanes with nothing to do behind it.
    bool try_send_plain(const void* data, std::size_t length, std::uint64_t tag, bool is_tagged);
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

    Endpoint& ep_;
    std::uint32_t placeholders_ = 0;  // sent
};

}  // namespace tagwire::proto
