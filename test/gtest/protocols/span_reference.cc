// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/span_reference.hpp"

#include <algorithm>
#include <utility>

namespace tagwire::test {

namespace {

/// In the buffer of a receive of many. A message without data has the place of the next one; of
/// several such the order is not known.
std::pair<std::size_t, bool> place_of(const RefMatch& match) {
    return {match.offset, match.envelope.length > 0};
}

}  // namespace

std::size_t SpanReference::add(const SpanMessage& message) {
    messages_.push_back(message);
    return messages_.size() - 1;
}

std::size_t SpanReference::add(const SpanReceive& receive) {
    receives_.push_back(receive);
    return receives_.size() - 1;
}

std::string SpanReference::check() {
    arrivals_.begin(messages_.size());
    unknown_.clear();
    wrong_.clear();
    pair();
    count_unknown();
    order_connections();
    order_receives();
    arrivals_.order(
        [this](std::size_t i, const std::string& what) { wrong(name(i) + " " + what); });
    return wrong_;
}

// ---- Which receive got which message

void SpanReference::pair() {
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        arrivals_[i].after = messages_[i].call.begin;
        arrivals_[i].before = messages_[i].taken;
    }
    for (std::size_t i = 0; i < receives_.size(); ++i) {
        SpanReceive& receive = receives_[i];
        if (receive.kind == RefKind::kMany)
            std::ranges::sort(receive.matches, {}, place_of);
        for (const RefMatch& match : receive.matches)
            pair_match(i, match);
    }
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        const SpanMessage& message = messages_[i];
        if (arrivals_[i].receive == kNone)
            continue;
        if (message.is_cancelled)
            wrong(name(i) + " was received, and its sender was told that it was cancelled");
        if (message.matched < receives_[arrivals_[i].receive].call.begin)
            wrong(name(i) + " was said to be matched before its receive was called");
    }
}

void SpanReference::pair_match(std::size_t receive, const RefMatch& match) {
    const SpanReceive& by = receives_[receive];
    if (!by.matches_envelope(match.envelope))
        wrong("a receive got what it does not match: tag " + std::to_string(match.envelope.tag));
    if (match.message == kNone) {
        if (by.takes)
            ++unknown_[class_of(match.envelope)];
        return;
    }
    Arrival& arrival = arrivals_[match.message];
    if (messages_[match.message].envelope != match.envelope)
        wrong(name(match.message) + " came with another envelope");
    arrival.is_known = true;
    arrival.before = std::min(arrival.before, match.told);
    if (!by.takes)
        return;
    if (arrival.receive != kNone)
        wrong(name(match.message) + " was received twice");
    arrival.receive = receive;
}

/// As many messages that only their envelope tells were received as were sent.
void SpanReference::count_unknown() {
    std::map<Class, std::size_t> missing, possible;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        const SpanMessage& message = messages_[i];
        if (arrivals_[i].receive != kNone || message.is_cancelled)
            continue;
        ++possible[class_of(message.envelope)];
        if (!message.is_excused && ++missing[class_of(message.envelope)] > 0 &&
            !unknown_.contains(class_of(message.envelope)))
            wrong(name(i) + " was lost");
    }
    for (const auto& [envelope, count] : unknown_) {
        if (missing[envelope] > count)
            wrong("messages were lost, tag " + std::to_string(std::get<1>(envelope)));
        if (possible[envelope] < count)
            wrong("more was received than was sent, tag " + std::to_string(std::get<1>(envelope)));
    }
}

// ---- Which arrived before which

void SpanReference::order_connections() {
    for (std::size_t first = 0; first < messages_.size(); ++first) {
        const SpanMessage& one = messages_[first];
        if (!arrivals_[first].is_known)
            continue;
        const std::size_t receive = arrivals_[first].receive;
        for (std::size_t second = 0; second < messages_.size(); ++second) {
            const SpanMessage& other = messages_[second];
            if (!arrivals_[second].is_known || one.envelope.sender != other.envelope.sender ||
                one.way != other.way || !one.call.is_before(other.call))
                continue;
            const bool is_whole = !one.is_excused && !other.is_excused;
            if (one.connection == other.connection || is_whole)
                arrivals_.precede(first, second);
            if (is_whole && other.is_fenced && one.tells_match && receive != kNone)
                arrivals_[second].after =
                    std::max(arrivals_[second].after, receives_[receive].call.begin);
        }
    }
}

void SpanReference::order_receives() {
    for (std::size_t i = 0; i < receives_.size(); ++i) {
        const std::vector<RefMatch>& matches = receives_[i].matches;
        for (std::size_t k = 1; receives_[i].kind == RefKind::kMany && k < matches.size(); ++k)
            if (place_of(matches[k - 1]) != place_of(matches[k]))
                arrivals_.precede(matches[k - 1].message, matches[k].message);
        order_against(i);
    }
}

/// The order that `earlier` imposes on messages that receives behind it got.
void SpanReference::order_against(std::size_t earlier) {
    const SpanReceive& by = receives_[earlier];
    const bool is_until_withdrawn = by.matches.empty() || by.kind == RefKind::kStream ||
                                    (by.kind == RefKind::kMany && by.withdrawn != kNever);
    const bool says_nothing =
        is_until_withdrawn ? by.withdrawn == kNever : by.matches.back().message == kNone;
    if (by.is_excused || says_nothing)
        return;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        const std::size_t receive = arrivals_[i].receive;
        if (receive == kNone || !by.call.is_before(receives_[receive].call) ||
            !by.matches_envelope(messages_[i].envelope))
            continue;
        if (is_until_withdrawn)
            arrivals_[i].after = std::max(arrivals_[i].after, by.withdrawn);
        else
            arrivals_.precede(by.matches.back().message, i);
    }
}

std::string SpanReference::name(std::size_t message) const {
    const SpanMessage& it = messages_[message];
    return "message " + std::to_string(message) + " (tag " + std::to_string(it.envelope.tag) +
           ", " + std::to_string(it.envelope.length) + " bytes of " +
           std::to_string(it.envelope.sender) + ", called " + std::to_string(it.call.begin) +
           " to " + std::to_string(it.call.end) + ")";
}

void SpanReference::wrong(const std::string& what) {
    constexpr std::size_t kSome = 2000;
    if (wrong_.size() < kSome)
        wrong_ += what + "\n";
}

}  // namespace tagwire::test
