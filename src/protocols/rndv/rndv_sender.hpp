// SPDX-License-Identifier: BSD-3-Clause
// The sender's side of a rendezvous. Its request carries address and key of the buffer. The
// receiver reads the buffer, offers its own for this side to write, or asks for the data in
// messages (rndv_messages.hpp).
#pragma once

#include <ucs/type/status.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "protocols/cost/advisor.hpp"
#include "protocols/cost/copy_chooser.hpp"
#include "protocols/cost/timing.hpp"
#include "protocols/cost/way.hpp"
#include "protocols/match/match_peer.hpp"
#include "protocols/port/worker_port.hpp"
#include "protocols/request/lane_state.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/request/request.hpp"
#include "protocols/transfer/send_window.hpp"
#include "protocols/wire/control_message.hpp"
#include "protocols/wire/rndv_messages.hpp"

namespace tagwire::proto {

/// The world of a sender of rendezvous.
struct RndvSenderPorts {
    const WorkerPort& worker;
    MatchPeer& peer;
    const LaneState& lane;
    CopyChooser& copies;
    SendWindow& window;
    const RequestList& messages;  // that have begun and not ended, in their order
};

class RndvSender {
  public:
    explicit RndvSender(const RndvSenderPorts& ports) : to_(ports) {}
    RndvSender(const RndvSender&) = delete;
    RndvSender& operator=(const RndvSender&) = delete;

    /// The message goes by rendezvous. It may be asked several times of one message, and of a later
    /// one only when it has gone.
    bool takes(const Request& request);
    /// A plain message of `length` bytes, which fits one part, goes eager now, and need not be
    /// timed. Active messages and urgent ones never are.
    bool is_eager_untimed(std::size_t length, bool is_am = false, bool is_urgent = false) {
        if (Advisor::is_learnt(length) && !is_am && !is_urgent)
            return is_long_eager_untimed(length);
        MessageState state = state_of(Buffer{}, length, Pattern::kTurns);
        state.is_urgent = is_urgent;
        return !choose(length, state).is_rndv;
    }
    /// The pattern of a message that comes now.
    Pattern pattern() const;
    /// The receiver is to time this eager message, which begins (Envelope::add_begun()).
    bool is_timed(const Request& request, std::uint64_t* begun);
    /// The peer can keep eager messages up to this length (Hello::eager_max).
    void set_eager_max(std::uint64_t bytes);
    /// Messages of this length and longer ones go by rendezvous because the peer cannot keep them.
    std::size_t eager_end() const { return eager_end_; }
    /// A long message of `bytes` bytes has come in turns, and this side's own times of such ones
    /// say that rendezvous are faster from `threshold` on. One of two peers leads: while such
    /// messages come, its own of about that length go by that, too, instead of by what the other
    /// one advises. An exchange whose two directions go different ways is slower than either, and
    /// no side gains alone by changing.
    void lead(std::size_t threshold, std::size_t bytes);
    /// The words of the threshold of lead(), for people.
    void note_own_advice(const Advice& own);
    bool has_own_advice() const { return led_.advice.regime != 0; }
    /// This side chooses for both directions.
    bool is_leading(Pattern pattern, std::size_t length) const {
        const std::uint64_t messages = advised_[index_of(Pattern::kTurns)].messages;
        return pattern == Pattern::kTurns && led_.from != 0 && messages - led_.at <= kLeads &&
               length / 2 < led_.bytes && led_.bytes / 2 < length;
    }
    /// Length from which a plain message of `length` bytes would go by rendezvous; 0: by the costs.
    std::size_t advised_from(Pattern pattern, std::size_t length) const {
        return is_leading(pattern, length) ? led_.from : advice(pattern).rndv_from;
    }
    /// The receiver's; rndv_from 0: it has given none.
    const Advice& advice(Pattern pattern) const { return advised_[index_of(pattern)].advice; }
    /// This side's own, where it is_leading(); regimes count from 1.
    const Advice& own_advice() const { return led_.advice; }
    std::uint64_t messages_in_own_regime() const {
        return advised_[index_of(Pattern::kTurns)].messages - led_.regime_since;
    }
    /// Messages of lengths that are advised on, since the receiver's times are of that regime.
    std::uint64_t messages_in_regime(Pattern pattern) const {
        const Advised& advised = advised_[index_of(pattern)];
        return advised.messages - advised.regime_since;
    }
    void begin_anew() {
        advised_ = {};
        led_ = {};
        last_ = {};
        until_sample_ = 0;
    }
    /// Sends the request. UCS_INPROGRESS: it is outstanding. UCS_ERR_NO_RESOURCE: to be called
    /// again.
    ucs_status_t start(Request& request);
    /// As start(), of a new message whose number would be `order`, over a lane that a short message
    /// may pass, when its buffer can be lent and nothing else was asked for. False: nothing has
    /// happened.
    bool try_start_at_once(Request& request, std::uint64_t order);
    /// Sends a piece of the data that the receiver asked for. UCS_ERR_NO_RESOURCE: call again.
    /// UCS_OK: after the last piece, or a failure, the request has left the queue.
    ucs_status_t send_piece(Request& request);

    // ---- Messages of the receiver. False: it cannot come now

    bool on_advice(Advice message);
    bool on_cts(Cts message, Request* request);
    /// `peer_domain`: the peer's memory domain that the lane leads to.
    bool on_rtr(const RtrMessage& message, Request* request, std::uint8_t peer_domain);
    /// The request is a rendezvous of this endpoint whose data is in no queue and with no device:
    /// the receiver may end it.
    bool may_end(const Request* request) const;
    /// The buffer of the request is lent at the moment, and its receiver may ask this side to write
    /// parts of it.
    bool has_lent(const Request& request) const {
        return awaits_receiver(&request) && may_lend(request);
    }

    /// The peer is about to read a message of ours that is about as long as one of its own: each
    /// side does best to read alone.
    bool keeps_receiver_busy(std::uint64_t bytes) const;

  private:
    /// Long messages that a leading side sends until one comes: of eager ones some are not timed.
    static constexpr std::uint64_t kLeads = 2 * Advisor::kSampleEvery;

    /// The receiver's words of one pattern.
    struct Advised {
        Advice advice{};
        unsigned trials = 0;  // next messages that go the way that is tried
        bool tries_rndv = false;
        std::uint64_t messages = 0;      // of lengths that are advised on
        std::uint64_t regime_since = 0;  // of these, at the first of the present regime
    };
    /// The last words to lead().
    struct Led {
        Advice advice{};
        std::size_t from = 0;   // threshold; 0: nothing
        std::size_t bytes = 0;  // length of the message that had come
        std::uint64_t at = 0;   // Advised::messages then
        std::uint64_t regime_since = 0;
    };
    /// The last message of a length that is advised on.
    struct LastLong {
        std::uint64_t order = UINT64_MAX;
        std::uint64_t arrivals = UINT64_MAX;  // at the worker, until then
        unsigned in_a_row = 0;                // without an arrival in between
        Pattern pattern = Pattern::kTurns;
        bool is_trial = false;
    };

    bool is_long_eager_untimed(std::size_t length);
    void register_source(Request& request);
    bool may_start_at_once(const Request& request) const;
    bool may_lend(const Request& request) const;
    ucs_status_t lend(const Request& request, Pattern pattern, Rts* rts, Loan* loan);
    ucs_status_t send_lent(Request& request, Pattern pattern);
    ucs_status_t send_request(Request& request);
    bool is_learnt_of(const Request& request) const;
    std::size_t learnt_from(std::size_t threshold) const;
    void count_learnt(const Request& request, Pattern pattern, bool is_trial);
    /// Thresholds of a message that comes now.
    MessageState state_of(const Buffer& buffer, std::size_t length, Pattern pattern) const {
        return {.rndv_from = rail().rndv_from(buffer),
                .advised_from = buffer.list == nullptr ? advised_from(pattern, length) : 0,
                .eager_end = eager_end_};
    }
    MessageState state_of(const Request& request, Pattern pattern) const;
    bool wants_trial(std::size_t length, Pattern pattern) const {
        return advised_[index_of(pattern)].trials != 0 && !is_leading(pattern, length);
    }
    Trial trial_of(const Request& request, Pattern pattern) const;
    Pattern pattern_of(const Request& request) const;
    bool awaits_receiver(const Request* request) const;
    void send_data(Request& request, std::uint32_t receive_id, std::uint64_t bytes);
    void all_is_written(Request& request, ucs_status_t status);
    std::unique_ptr<Transfer> make_write(Request& request, const Rtr& rtr,
                                         std::span<const std::byte> key);

    const Rail& rail() const { return to_.lane.rail(); }

    const RndvSenderPorts to_;
    std::size_t eager_end_ = SIZE_MAX;
    std::array<Advised, kPatterns> advised_;
    Led led_;
    LastLong last_;
    unsigned until_sample_ = 0;  // eager messages that need not be timed
};

}  // namespace tagwire::proto
