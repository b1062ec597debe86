// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations of peers on memory of this side. An endpoint has one.
//
//     kAtomicAsk --> Arrival, in the order of arrival --> serve() --> kAtomicTell
//        '-- nothing waits, and its data is here -----------^  '-- no room: a Reply that waits
//
// 1. Requests are served in the order in which they arrived, so that those of one peer take effect
//    in the order of its calls.
// 2. A request is checked as a whole (form, keys, rights, ranges), then carried out as a whole; it
//    has one reply.
// 3. While kRepliesMax replies wait for room, requests wait as well. They are kept messages then,
//    whose number the messaging layer limits: it pauses their senders.
// 4. All of this runs with the domain's lock, in progress.
#pragma once

#include <tagwire.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "atomic_messages.hpp"
#include "provider.hpp"

namespace tagwire::fi {

class Ep;

class AtomicServer {
  public:
    explicit AtomicServer(Ep& owner) : owner_(owner) {}
    AtomicServer(const AtomicServer&) = delete;
    AtomicServer& operator=(const AtomicServer&) = delete;

    /// Prepares the endpoint's worker for requests, before anybody can know its address.
    tw_status_t listen();
    /// Nothing waits for a later progress.
    bool is_idle() const { return arrivals_.empty() && replies_.empty(); }
    /// Goes on with what waits.
    void resume();

  private:
    static constexpr std::size_t kRepliesMax = 1024;

    enum class State : std::uint8_t {
        kHere,      ///< Header and data are here.
        kKept,      ///< Its data is to be received.
        kReceiving  ///< Its data comes.
    };
    /// A request that waits for its data, or for others. It does not move.
    struct Arrival {
        AtomicServer* server = nullptr;
        std::uint64_t source = 0;
        State state = State::kHere;
        tw_status_t status = TW_OK;      ///< Else its data will not come.
        tw_message_h message = nullptr;  ///< To release, or to receive.
        AtomicBytes header;
        AtomicBytes data;
        std::unique_ptr<std::byte[]> memory;  ///< The header, and data that is received.
    };
    struct Reply {
        std::uint64_t to;
        AtomicReply header;
        std::vector<std::byte> results;
    };

    static void on_request(void* arg, tw_am_t* am);
    static void on_data(const tw_completion_t* done);
    void arrive(tw_am_t& am);
    tw_status_t keep(tw_am_t& am);
    tw_status_t receive(tw_am_t& am);
    tw_status_t start_receive(Arrival& arrival);

    void serve(std::uint64_t source, AtomicBytes header, AtomicBytes data);
    int carry_out(const AtomicRequest& request, std::byte* results);
    void refuse(std::uint64_t source, AtomicBytes header, tw_status_t status);
    void reply(std::uint64_t to, const AtomicReply& header, AtomicBytes results);
    tw_status_t try_reply(std::uint64_t to, const AtomicReply& header, AtomicBytes results);

    Ep& owner_;
    std::deque<Arrival> arrivals_;
    std::deque<Reply> replies_;
};

}  // namespace tagwire::fi
