// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/reference.hpp"

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

namespace tagwire::test {

namespace {

/// In the buffer of a receive of many. A message without data has the place of the next one; of
/// several such the order is known by the order of their ends alone.
std::pair<std::size_t, bool> place_of(const RefMatch& match) {
    return {match.offset, match.envelope.length > 0};
}

}  // namespace

std::size_t Reference::add(const RefMessage& message) {
    messages_.push_back(message);
    return messages_.size() - 1;
}

std::size_t Reference::add(const RefReceive& receive) {
    receives_.push_back(receive);
    return receives_.size() - 1;
}

std::string Reference::check() {
    arrivals_.begin(messages_.size());
    unknown_.clear();
    wrong_.clear();
    pair();
    count_unknown();
    if (is_of_one_ && wrong_.empty()) {
        pair_unknown();
        pair_peeks();
    }
    check_senders();
    if (!wrong_.empty())
        return wrong_;
    order_senders();
    order_receives();
    arrivals_.order(
        [this](std::size_t i, const std::string& what) { wrong(name(i) + " " + what); });
    return wrong_;
}

// ---- Which receive got which message

void Reference::pair() {
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        arrivals_[i].after = messages_[i].call.begin;
        arrivals_[i].before = std::min(messages_[i].taken, messages_[i].matched);
    }
    for (std::size_t i = 0; i < receives_.size(); ++i) {
        RefReceive& receive = receives_[i];
        if (receive.kind == RefKind::kMany)
            std::ranges::stable_sort(receive.matches, {}, place_of);
        for (const RefMatch& match : receive.matches)
            pair_match(i, match);
    }
}

void Reference::pair_match(std::size_t receive, const RefMatch& match) {
    const RefReceive& by = receives_[receive];
    const bool is_peek = by.kind == RefKind::kPeek;
    if (!by.matches_envelope(match.envelope))
        wrong("receive " + std::to_string(receive) +
              " does not match what it got: " + text(match.envelope));
    if (match.message == kNone) {
        if (!is_peek)
            ++unknown_[class_of(match.envelope)];
        return;
    }
    if (messages_[match.message].envelope != match.envelope)
        wrong("receive " + std::to_string(receive) + " was told another envelope than that of " +
              name(match.message) + ": " + text(match.envelope));
    if (is_peek && is_of_one_)
        return;  // pair_peek() finds which it had to be
    Arrival& arrival = arrivals_[match.message];
    arrival.is_known = true;
    arrival.before = std::min(arrival.before, match.told);
    if (is_peek)
        return;
    if (arrival.receive != kNone)
        wrong(name(match.message) + " was received twice");
    arrival.receive = receive;
}

/// Senders were told nothing that disagrees with what was received.
void Reference::check_senders() {
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        if (arrivals_[i].receive == kNone)
            continue;
        if (messages_[i].is_cancelled)
            wrong(name(i) + " was received, and its sender was told that it was cancelled");
        if (messages_[i].matched <= posted_of(i))
            wrong(name(i) + " was said to be matched before its receive was called");
    }
}

/// As many messages that only their envelope tells were received as were sent.
void Reference::count_unknown() {
    std::map<Class, std::size_t> missing, possible;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        const RefMessage& message = messages_[i];
        if (arrivals_[i].receive != kNone || message.is_cancelled)
            continue;
        const Class of = class_of(message.envelope);
        ++possible[of];
        if (!message.is_excused && ++missing[of] > 0 && !unknown_.contains(of))
            wrong(name(i) + " was never received");
    }
    for (const auto& [envelope, count] : unknown_) {
        if (missing[envelope] > count)
            wrong("messages were lost, tag " + std::to_string(std::get<1>(envelope)));
        if (possible[envelope] < count)
            wrong("more was received than was sent, tag " + std::to_string(std::get<1>(envelope)));
    }
}

/// With one thread, messages with the same envelope are received in the order of their sending by
/// receives in the order of their posting. Where some may have been lost, nobody knows which.
void Reference::pair_unknown() {
    std::map<Class, std::vector<std::size_t>> unpaired;
    std::set<unsigned> excused;
    for (std::size_t i = messages_.size(); i-- > 0;)
        if (messages_[i].is_excused)
            excused.insert(messages_[i].envelope.sender);
        else if (arrivals_[i].receive == kNone && !messages_[i].is_cancelled)
            unpaired[class_of(messages_[i].envelope)].push_back(i);
    for (std::size_t i = 0; i < receives_.size(); ++i) {
        for (RefMatch& match : receives_[i].matches) {
            if (receives_[i].kind == RefKind::kPeek || match.message != kNone ||
                excused.contains(match.envelope.sender))
                continue;
            auto& candidates = unpaired[class_of(match.envelope)];
            match.message = candidates.back();  // there is one: count_unknown()
            candidates.pop_back();
            pair_match(i, match);
        }
    }
}

/// With one thread, a peek found the first of a sender's messages with that tag that no earlier
/// receive got.
void Reference::pair_peeks() {
    for (RefReceive& peek : receives_)
        if (peek.kind == RefKind::kPeek && !peek.matches.empty())
            pair_peek(peek, peek.matches.front());
}

void Reference::pair_peek(const RefReceive& peek, RefMatch& found) {
    const std::size_t told = std::exchange(found.message, kNone);
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        const RefMessage& message = messages_[i];
        const RefEnvelope& envelope = message.envelope;
        if (envelope.sender != found.envelope.sender || envelope.tag != found.envelope.tag)
            continue;
        if ((message.is_cancelled && message.cancelled > peek.call.begin) || message.is_excused)
            return;  // it may have been this one, which is gone
        if (message.is_cancelled || posted_of(i) < peek.call.begin)
            continue;
        if (envelope != found.envelope || (told != kNone && told != i))
            return wrong(name(i) + " should have been found by a peek that told another");
        found.message = i;
        arrivals_[i].before = std::min(arrivals_[i].before, peek.call.begin);
        return;
    }
    wrong("a peek found what was not there: " + text(found.envelope));
}

Tick Reference::posted_of(std::size_t message) const {
    const std::size_t receive = arrivals_[message].receive;
    return receive == kNone ? kNever : receives_[receive].call.begin;
}

// ---- Which arrived before which

void Reference::order_senders() {
    for (std::size_t first = 0; first < messages_.size(); ++first) {
        const RefMessage& one = messages_[first];
        if (!arrivals_[first].is_known)
            continue;
        const bool has_match = one.tells_match && arrivals_[first].receive != kNone;
        for (std::size_t second = 0; second < messages_.size(); ++second) {
            const RefMessage& other = messages_[second];
            if (!arrivals_[second].is_known || one.envelope.sender != other.envelope.sender ||
                one.way != other.way || !one.call.is_before(other.call))
                continue;
            const bool is_whole = !one.is_excused && !other.is_excused;
            if (one.connection != other.connection && !is_whole)
                continue;
            arrivals_.precede(first, second);
            if (other.is_fenced && has_match && !one.is_excused)
                arrivals_[second].after = std::max(arrivals_[second].after, posted_of(first));
        }
    }
}

void Reference::order_receives() {
    for (const RefReceive& receive : receives_) {
        const std::vector<RefMatch>& matches = receive.matches;
        for (std::size_t k = 1; receive.kind == RefKind::kMany && k < matches.size(); ++k)
            if (is_of_one_ || place_of(matches[k - 1]) != place_of(matches[k]))
                arrivals_.precede(matches[k - 1].message, matches[k].message);
        order_against(receive);
    }
}

/// The order that `earlier` imposes on messages that receives behind it got.
void Reference::order_against(const RefReceive& earlier) {
    const bool is_until_withdrawn = earlier.matches.empty() || earlier.kind == RefKind::kStream ||
                                    (earlier.kind == RefKind::kMany && earlier.withdrawn != kNever);
    // With one thread, every receive that got nothing was withdrawn.
    const bool says_nothing = is_until_withdrawn ? !is_of_one_ && earlier.withdrawn == kNever
                                                 : earlier.matches.back().message == kNone;
    if (earlier.is_excused || says_nothing)
        return;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        const std::size_t receive = arrivals_[i].receive;
        if (receive == kNone || !earlier.call.is_before(receives_[receive].call) ||
            !earlier.matches_envelope(messages_[i].envelope))
            continue;
        if (messages_[i].is_excused && earlier.source != kAnybody)
            continue;
        if (is_until_withdrawn)
            arrivals_[i].after = std::max(arrivals_[i].after, earlier.withdrawn);
        else
            arrivals_.precede(earlier.matches.back().message, i);
    }
}

std::string Reference::text(const RefEnvelope& envelope) {
    std::ostringstream out;
    out << "tag " << std::hex << envelope.tag << std::dec << ", " << envelope.length << " bytes of "
        << envelope.sender;
    return out.str();
}

std::string Reference::name(std::size_t message) const {
    const Span& call = messages_[message].call;
    return "message " + std::to_string(message) + " (" + text(messages_[message].envelope) +
           ", called " + std::to_string(call.begin) + " to " + std::to_string(call.end) + ")";
}

void Reference::wrong(const std::string& what) {
    constexpr std::size_t kSome = 2000;
    if (wrong_.size() < kSome)
        wrong_ += what + "\n";
}

}  // namespace tagwire::test
