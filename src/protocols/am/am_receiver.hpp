// SPDX-License-Identifier: BSD-3-Clause
// The receiving half of active messages: the handlers of a worker, messages that are given to them,
// and those that the program keeps (in the worker's MatchTable, in no name space).
//
//     one piece ------------------------> handler, with the data where the transport has it
//     parts -----> kept until all is here -> handler
//     rendezvous -> kept ----------------> handler
//                                             '-- tw_am_keep(): it stays; else it ends
//
// The fast path (worker_messages.cc) gives short messages to their handlers itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "protocols/api/tw_am.h"
#include "protocols/match/unexpected.hpp"
#include "protocols/wire/am_header.hpp"

namespace tagwire::proto {

class Endpoint;
class WorkerCore;

struct AmHandler {
    tw_am_cb_t callback;  // nullptr: the id has none
    void* arg;
};

/// A message while its handler runs. Data that the transport has follows the header.
struct AmCall : tw_am {
    Endpoint* from;
    Unexpected* kept;  // its memory; nullptr: the transport's
    bool is_kept;      // by the program, beyond the handler
};

class AmReceiver {
  public:
    explicit AmReceiver(WorkerCore& owner) : worker_(owner) {}
    AmReceiver(const AmReceiver&) = delete;
    AmReceiver& operator=(const AmReceiver&) = delete;

    // ---- Calls of the program

    /// `id` is at most TW_AM_ID_MAX. Throws std::bad_alloc, and nothing has changed.
    void set(unsigned id, tw_am_cb_t callback, void* arg);
    tw_status_t keep(AmCall& call, tw_message_h* message_p);
    /// Drops a message that the program has. False: it is none.
    bool release(tw_message_h message);

    // ---- Messages of peers

    /// nullptr: the id has none. Valid until the next call of set().
    const AmHandler* find(std::uint16_t id) const {
        return id < handlers_.size() && handlers_[id].callback != nullptr ? &handlers_[id]
                                                                          : nullptr;
    }
    /// `behind`: what follows the header. A malformed message is dropped.
    void take_eager(Endpoint& ep, const Header& header, WireBytes behind);
    void take_rndv(Endpoint& ep, const Header& header, WireBytes behind);
    /// The handler of a message that is kept has returned.
    void end(const AmCall& call);
    /// All parts of the message are here.
    void complete(Unexpected& message);

  private:
    void drop(std::uint16_t id);
    void give(AmCall& call);
    void give_message(Endpoint& ep, Unexpected& message);

    WorkerCore& worker_;
    std::vector<AmHandler> handlers_;  // by id, as far as the highest one
    bool has_dropped_ = false;
};

}  // namespace tagwire::proto
