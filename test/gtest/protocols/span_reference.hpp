// SPDX-License-Identifier: BSD-3-Clause
// A naive reference of matching for workers that threads share: one name space of one receiving
// worker. reference.hpp has the rules of one thread; here each call takes effect at some moment
// between its begin and its end, in an order that nobody knows. check() asks: is there an order of
// all calls and arrivals, each call at a moment of its span, by which the rules give exactly this?
// It knows a < b ("a before b") of two calls only if a ended before b began. With m < n for "m
// arrived before n" it demands of message m, which went to receive r:
//
//   (1) messages of one connection, the call of one before that of the other, arrive in this order,
//       whichever threads called; of threads with transmit contexts, those of one thread do;
//   (2) m arrives after its call began, and before anything was told that shows it: a receive, a
//       peek, the end of a flush behind it; a sender that was told of the match knows that the call
//       of r had begun;
//   (3) of a receive q < r that matches m and got n: n < m;
//   (4) of a receive q < r that matches m, was withdrawn and got nothing: m arrived after the
//       withdrawal began;
//   (5) a receive of many messages is (3) when it is full, by the last of them, else (4); its
//       messages arrived in the order of its buffer. A stream is (4);
//   (6) a peek is a receive that is withdrawn at once; one that found n without taking it says
//       n < m of each m that it matches and that a receive behind the peek got;
//   (7) a message behind a fence arrives after the begin of the receives of those messages that end
//       with their match, and whose calls ended before its own;
//   (8) each message is received once; one that its sender was told to be cancelled, by nobody; one
//       of a connection that was broken, at most once.
//
// A cycle of `<`, or a message that had to arrive after it was seen, is a violation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "protocols/reference.hpp"

namespace tagwire::test {

/// The begin and the end of a call, by a clock that all threads advance.
struct Span {
    Tick begin = 0;
    Tick end = kNever;
    bool is_before(const Span& later) const { return end < later.begin; }
};

struct SpanMessage {
    RefEnvelope envelope;
    std::uint64_t connection = 0;  // messages of one keep their order
    std::uint64_t way = 0;         // ... if they left by the same one
    Span call;
    Tick taken = kNever;        // by then it had arrived: a flush behind it has ended
    Tick matched = kNever;      // by then it had been matched: the sender was told
    bool is_fenced = false;     // it waits for all before it
    bool tells_match = false;   // it ends with its match, or later
    bool is_cancelled = false;  // the sender was told that nobody got it
    bool is_excused = false;    // its connection was broken: it may be lost
};

struct SpanReceive {
    RefKind kind = RefKind::kOne;
    bool takes = true;  // a peek that only looks does not
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

class SpanReference {
  public:
    std::size_t add(const SpanMessage& message);
    std::size_t add(const SpanReceive& receive);

    /// Empty: everything is as it may be. Else what is not.
    std::string check();

  private:
    /// Messages that only their envelope tells.
    using Class = std::tuple<unsigned, std::uint64_t, std::uint64_t>;

    static Class class_of(const RefEnvelope& envelope) {
        return {envelope.sender, envelope.tag, envelope.length};
    }
    void pair();
    void pair_match(std::size_t receive, const RefMatch& match);
    void count_unknown();
    void order_connections();
    void order_receives();
    void order_against(std::size_t earlier);
    std::string name(std::size_t message) const;
    void wrong(const std::string& what);

    std::vector<SpanMessage> messages_;
    std::vector<SpanReceive> receives_;
    Arrivals arrivals_;
    std::map<Class, std::size_t> unknown_;
    std::string wrong_;
};

}  // namespace tagwire::test
