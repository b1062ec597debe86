// SPDX-License-Identifier: BSD-3-Clause
// A naive reference of matching: one name space of one receiving worker.
//
// The order in which messages of different senders arrive is not specified, so the reference does
// not predict what a receive gets. The program records what it called and what it was told, each at
// ticks of one clock, and check() asks afterwards: is there an order of all calls and arrivals,
// each call at a moment of its span, by which the rules give exactly this? A call a comes before a
// call b only if a ended before b began. With m < n for "m arrived before n" it demands of message
// m, which went to receive r:
//
//   (1) messages of one connection and way, the call of one before that of the other, arrive in
//       this order;
//   (2) m arrives after its call began, and before anything was told that shows it: a receive, a
//       peek, the end of a flush behind it; a sender that was told of the match knows that the call
//       of r had begun;
//   (3) of a receive q before r that matches m and got n: n < m. Had m come first, q would have
//       taken it, whether m found q waiting or q found m;
//   (4) of a receive q before r that matches m, was withdrawn and got nothing: m arrived after the
//       withdrawal began;
//   (5) a receive of many messages is (3) when it is full, by the last of them, else (4); its
//       messages arrived in the order of its buffer. One whose messages are shown one by one
//       (a stream) is (4), and they are told in any order;
//   (6) a peek is a receive that is withdrawn at once; one that found n without taking it says
//       n < m of each m that it matches and that a receive behind the peek got;
//   (7) a message behind a fence arrives after the begin of the receives of those messages that end
//       with their match, and whose calls ended before its own;
//   (8) each message is received once; one that its sender was told to be cancelled, by nobody; one
//       of a connection that was broken, at most once, and a receive that names its source need not
//       see it.
//
// A cycle of `<`, or a message that had to arrive after it was seen, is a violation.
//
// With one thread the order of the calls is known: each is a moment, and they are added in their
// order. Then messages that only their envelope tells are told apart by (1) and (3), and a peek
// found the first message that was there. With several threads such messages are counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "protocols/arrivals.hpp"

namespace tagwire::test {

inline constexpr unsigned kAnybody = ~0U;

/// The begin and the end of a call.
struct Span {
    Tick begin = 0;
    Tick end = kNever;
    bool is_before(const Span& later) const { return end < later.begin; }
};

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
    std::uint64_t connection = 0;  // messages of one keep their order
    std::uint64_t way = 0;         // ... if they left by the same one
    Span call;
    Tick taken = kNever;        // by then it had arrived: a flush behind it has ended
    Tick matched = kNever;      // by then it had been matched: the sender was told
    bool is_fenced = false;     // it waits for all before it
    bool tells_match = false;   // it ends with its match, or later
    bool is_cancelled = false;  // the sender was told that nobody got it
    Tick cancelled = kNever;    // ... at this tick
    bool is_excused = false;    // its connection was broken: it may be lost
};

/// One message that a receive got, or that a peek found.
struct RefMatch {
    RefEnvelope envelope;
    std::size_t message = kNone;  // kNone: its bytes do not tell
    Tick told = kNever;
    std::size_t offset = 0;  // in the buffer of a receive of many
};

/// kPeek: one that only looks; one that takes its message is kOne.
enum class RefKind { kOne, kMany, kStream, kPeek };

struct RefReceive {
    RefKind kind = RefKind::kOne;
    std::uint64_t tag = 0;
    std::uint64_t mask = ~std::uint64_t{0};
    unsigned source = kAnybody;
    Span call;
    Tick withdrawn = kNever;  // a withdrawal began
    bool is_excused = false;  // it says nothing of others: a connection was broken
    std::vector<RefMatch> matches{};

    bool matches_envelope(const RefEnvelope& envelope) const {
        return ((envelope.tag ^ tag) & mask) == 0 &&
               (source == kAnybody || source == envelope.sender);
    }
};

class Reference {
  public:
    enum class Calls { kOfOneThread, kOfThreads };
    explicit Reference(Calls calls) : is_of_one_(calls == Calls::kOfOneThread) {}

    std::size_t add(const RefMessage& message);
    std::size_t add(const RefReceive& receive);
    RefMessage& message(std::size_t i) { return messages_[i]; }
    RefReceive& receive(std::size_t i) { return receives_[i]; }

    /// Empty: everything is as it may be. Else what is not.
    std::string check();

  private:
    /// Messages that only their envelope tells.
    using Class = std::tuple<unsigned, std::uint64_t, std::uint64_t, std::uint64_t>;

    static Class class_of(const RefEnvelope& envelope) {
        return {envelope.sender, envelope.tag, envelope.imm, envelope.length};
    }
    void pair();
    void pair_match(std::size_t receive, const RefMatch& match);
    void check_senders();
    void count_unknown();
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

    const bool is_of_one_;
    std::vector<RefMessage> messages_;
    std::vector<RefReceive> receives_;
    Arrivals arrivals_;  // of messages_
    std::map<Class, std::size_t> unknown_;
    std::string wrong_;
};

}  // namespace tagwire::test
