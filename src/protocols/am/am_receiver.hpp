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

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "protocols/api/tw_am.h"
#include "protocols/match/match_peer.hpp"
#include "protocols/match/match_table.hpp"
#include "protocols/match/unexpected.hpp"
#include "protocols/port/worker_port.hpp"
#include "protocols/wire/am_header.hpp"

namespace tagwire::proto {

struct AmHandler {
    tw_am_cb_t callback;  // nullptr: the id has none
    void* arg;
};

/// A message while its handler runs. Data that the transport has follows the header.
struct AmCall : tw_am {
    MatchPeer* from;
    Unexpected* kept;  // its memory; nullptr: the transport's
    bool is_kept;      // by the program, beyond the handler
};

/// A message whose `length` bytes of data follow the program's header at `header`. `ep`: of its
/// sender, as the program knows it.
[[gnu::always_inline]] inline AmCall am_call(tw_worker_h worker, MatchPeer& from, tw_ep_h ep,
                                             AmWord word, const std::byte* header,
                                             std::size_t length) {
    AmCall call;
    call.worker = worker;
    call.header = header;
    call.header_length = word.header_bytes;
    call.data = header + word.header_bytes;
    call.length = length;
    call.source = from.worker_id;
    call.ep = ep;
    call.message = nullptr;
    call.id = word.id();
    call.flags = 0;
    call.from = &from;
    call.kept = nullptr;
    call.is_kept = false;
    return call;
}

/// The world of a receiver of active messages.
struct AmReceiverPorts {
    const WorkerPort& worker;
    MatchTable& matches;
    tw_worker_h handle;
    void* owner;
    /// Runs the handler, which may be replaced meanwhile.
    void (*call)(void* owner, const AmHandler& handler, AmCall& call);
};

class AmReceiver {
  public:
    explicit AmReceiver(const AmReceiverPorts& ports) : to_(ports) {}
    AmReceiver(const AmReceiver&) = delete;
    AmReceiver& operator=(const AmReceiver&) = delete;

    // ---- Calls of the program

    /// `id` is at most TW_AM_ID_MAX. Throws std::bad_alloc, and nothing has changed.
    void set(unsigned id, tw_am_cb_t callback, void* arg);
    /// An id of the library's; its messages take the slow path.
    void set_own(std::uint32_t id, tw_am_cb_t callback, void* arg) {
        own_.at(id - kFirstOwnAmId) = {callback, arg};
    }
    /// The library's ids have no handler any more.
    void clear_own() { own_ = {}; }
    tw_status_t keep(AmCall& call, tw_message_h* message_p);

    // ---- Messages of peers

    /// nullptr: the id has none. Valid until the next call of set().
    const AmHandler* find(std::uint32_t id) const {
        return id < handlers_.size() && handlers_[id].callback != nullptr ? &handlers_[id]
                                                                          : nullptr;
    }
    /// `behind`: what follows the header. A malformed message is dropped.
    void take_eager(MatchPeer& from, const Header& header, WireBytes behind);
    void take_rndv(MatchPeer& from, const Header& header, WireBytes behind);
    /// The handler of a message that is kept has returned.
    void end(const AmCall& call);
    /// All parts of the message are here.
    void complete(Unexpected& message);

  private:
    static constexpr std::size_t kOwn = 2;

    /// As find(), of the library's ids, too.
    const AmHandler* handler_of(std::uint32_t id) const {
        if (id < kFirstOwnAmId)
            return find(id);
        const std::size_t own = id - kFirstOwnAmId;
        return own < kOwn && own_[own].callback != nullptr ? &own_[own] : nullptr;
    }
    void drop(std::uint32_t id);
    void give(AmCall& call);
    void give_message(MatchPeer& from, Unexpected& message);

    const AmReceiverPorts to_;
    std::vector<AmHandler> handlers_;  // by id, as far as the highest one
    std::array<AmHandler, kOwn> own_{};
    bool has_dropped_ = false;
};

}  // namespace tagwire::proto
