// SPDX-License-Identifier: BSD-3-Clause
// A naive reference of matching: one name space of one receiving worker.
//
// The order in which messages of different senders arrive is not specified, so the reference does
// not predict what a receive gets. The program records what it did and what it was told, each at a
// tick of one clock, and check() asks afterwards: is there any order of arrival by which the rules
// give exactly this? With x < y for "x arrived before y", the rules say of message m, which went to
// receive r:
//
//   (1) messages of one sender arrive in the order in which they were sent;
//   (2) m arrives after it was sent, and before anything was told that shows it;
//   (3) a receive q that was posted before r and matches m got another message n, and n < m: had m
//       come first, q would have taken it, whether m found q waiting or q found m;
//   (4) or q was withdrawn at a tick, got nothing, and m arrived after that;
//   (5) a receive of many messages is (3) when it is full, by the last of them, else (4); its
//       messages arrived in the order of its buffer. One whose messages are shown one by one
//       (a stream) is (4), and they are told in any order;
//   (6) a peek is a receive that is withdrawn at once; one that found n without taking it says
//       n < m of each m that it matches and that a later receive got;
//   (7) a message after a fence arrives after the match of what waits for its match before it;
//   (8) a message of a connection that may have gone since need not be seen by a receive that names
//       its source.
//
// These are all there is: an order that keeps them yields the pairing. So it is consistent exactly
// if the graph of `<` has no cycle and no window of ticks is empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "protocols/arrivals.hpp"

namespace tagwire::test {

inline constexpr unsigned kAnybody = ~0U;

/// The envelope of a message, as reported to its receiver.
struct RefEnvelope {
    unsigned sender = 0;
    std::uint64_t tag = 0;
    std::uint64_t imm = 0;
    std::uint64_t length = 0;
    bool operator==(const RefEnvelope&) const = default;
};

struct RefMessage {
    RefEnvelope envelope;
    Tick sent = 0;
    Tick taken = kNever;    // by then it had arrived: a flush ended, a receive
    Tick matched = kNever;  // by then it had been matched: the sender was told
    bool is_fenced = false;
    bool tells_match = false;   // it ends for the sender when it was matched, or later
    bool is_cancelled = false;  // the sender was told that nobody got it
    Tick cancelled = kNever;
    bool has_asked_back = false;  // the sender asked to cancel it
    bool is_excused = false;      // an end of it died, or gave up: it may be lost
    bool is_old = false;          // an end of it has closed its endpoint since
};

/// One message that a receive got, or that a peek found.
struct RefMatch {
    RefEnvelope envelope;
    std::size_t message = kNone;  // kNone: its bytes do not tell; check() finds one
    Tick told = kNever;
    std::size_t offset = 0;  // in the buffer of a receive of many
};

enum class RefKind { kOne, kMany, kStream, kPeek };

struct RefReceive {
    RefKind kind = RefKind::kOne;
    std::uint64_t tag = 0;
    std::uint64_t mask = ~std::uint64_t{0};
    unsigned source = kAnybody;
    Tick posted = 0;
    Tick withdrawn = kNever;
    bool is_excused = false;  // it ended because somebody died
    std::vector<RefMatch> matches{};

    bool matches_envelope(const RefEnvelope& envelope) const {
        return ((envelope.tag ^ tag) & mask) == 0 &&
               (source == kAnybody || source == envelope.sender);
    }
};

class Reference {
  public:
    std::size_t add(const RefMessage& message);
    std::size_t add(const RefReceive& receive);
    RefMessage& message(std::size_t i) { return messages_[i]; }
    RefReceive& receive(std::size_t i) { return receives_[i]; }
    std::vector<RefMessage>& messages() { return messages_; }
    std::vector<RefReceive>& receives() { return receives_; }

    /// Empty: everything is as it may be. Else what is not.
    std::string check();

  private:
    void sort_matches();
    void pair();
    void pair_unknown();
    void pair_peeks();
    void pair_peek(const RefReceive& peek, RefMatch& found);
    void order_senders();
    void order_receives();
    void order_against(const RefReceive& earlier);
    Tick posted_of(std::size_t message) const;
    static std::string text(const RefEnvelope& envelope);
    std::string name(std::size_t message) const;
    void wrong(const std::string& what);

    std::vector<RefMessage> messages_;  // in the order of their sending
    std::vector<RefReceive> receives_;  // in the order of their posting
    Arrivals arrivals_;                 // of messages_
    std::string wrong_;
};

}  // namespace tagwire::test
