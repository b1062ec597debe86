// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/reference.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

namespace tagwire::test {

std::size_t Reference::add(const RefMessage& message) {
    messages_.push_back(message);
    return messages_.size() - 1;
}

std::size_t Reference::add(const RefReceive& receive) {
    receives_.push_back(receive);
    return receives_.size() - 1;
}

std::string Reference::check() {
    wrong_.clear();
    arrivals_.begin(messages_.size());
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        arrivals_[i].after = messages_[i].sent;
        arrivals_[i].before = std::min(messages_[i].taken, messages_[i].matched);
    }
    sort_matches();
    pair();
    pair_unknown();
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        const bool is_received = arrivals_[i].receive != kNone;
        if (is_received && messages_[i].is_cancelled)
            wrong(name(i) + " was received, and its sender told that it was cancelled");
        if (!is_received && !messages_[i].is_cancelled && !messages_[i].is_excused)
            wrong(name(i) + " was never received");
        if (is_received && messages_[i].matched <= posted_of(i))
            wrong(name(i) + " was told to be matched before anything could match it");
    }
    if (!wrong_.empty())
        return wrong_;
    pair_peeks();
    order_senders();
    order_receives();
    if (wrong_.empty())
        arrivals_.order(
            [this](std::size_t i, const std::string& what) { wrong(name(i) + " " + what); });
    return wrong_;
}

// ---- Which message went where

/// Those of a receive of many in the order of its buffer; what has no bytes came before what begins
/// at the same place.
void Reference::sort_matches() {
    for (RefReceive& receive : receives_) {
        std::ranges::stable_sort(receive.matches, {}, [](const RefMatch& match) {
            return std::pair{match.offset, match.envelope.length > 0};
        });
    }
}

void Reference::pair() {
    for (std::size_t i = 0; i < receives_.size(); ++i) {
        const RefReceive& receive = receives_[i];
        for (const RefMatch& match : receive.matches) {
            if (!receive.matches_envelope(match.envelope))
                wrong("receive " + std::to_string(i) +
                      " does not match what it got: " + text(match.envelope));
            if (receive.kind == RefKind::kPeek || match.message == kNone)
                continue;
            Arrival& arrival = arrivals_[match.message];
            if (messages_[match.message].envelope != match.envelope)
                wrong("receive " + std::to_string(i) + " was told another envelope than that of " +
                      name(match.message) + ": " + text(match.envelope));
            if (arrival.receive != kNone)
                wrong(name(match.message) + " was received twice");
            arrival.receive = i;
            arrival.is_known = true;
            arrival.before = std::min(arrival.before, match.told);
        }
    }
}

/// Messages with the same envelope are received in the order of their sending by receives in the
/// order of their posting: rules (1) and (3).
void Reference::pair_unknown() {
    const auto key = [](const RefEnvelope& of) {
        return std::tuple{of.sender, of.tag, of.imm, of.length};
    };
    std::map<decltype(key({})), std::vector<std::size_t>> unpaired;
    std::set<unsigned> excused;  // who may have lost some: nobody knows which
    for (std::size_t i = messages_.size(); i-- > 0;)
        if (messages_[i].is_excused)
            excused.insert(messages_[i].envelope.sender);
        else if (arrivals_[i].receive == kNone && !messages_[i].is_cancelled)
            unpaired[key(messages_[i].envelope)].push_back(i);
    for (std::size_t i = 0; i < receives_.size(); ++i) {
        for (RefMatch& match : receives_[i].matches) {
            if (receives_[i].kind == RefKind::kPeek || match.message != kNone ||
                excused.contains(match.envelope.sender))
                continue;
            auto& candidates = unpaired[key(match.envelope)];
            if (candidates.empty()) {
                wrong("receive " + std::to_string(i) +
                      " got what nobody sent: " + text(match.envelope));
                continue;
            }
            match.message = candidates.back();
            candidates.pop_back();
            arrivals_[match.message].receive = i;
            arrivals_[match.message].is_known = true;
            arrivals_[match.message].before = std::min(arrivals_[match.message].before, match.told);
        }
    }
}

/// A peek found the first of a sender's messages with that tag that no earlier receive got.
void Reference::pair_peeks() {
    for (RefReceive& peek : receives_)
        if (peek.kind == RefKind::kPeek && !peek.matches.empty())
            pair_peek(peek, peek.matches.front());
}

void Reference::pair_peek(const RefReceive& peek, RefMatch& found) {
    const std::size_t told = found.message;
    found.message = kNone;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        const RefEnvelope& envelope = messages_[i].envelope;
        if (envelope.sender != found.envelope.sender || envelope.tag != found.envelope.tag)
            continue;
        const RefMessage& message = messages_[i];
        if ((message.is_cancelled && message.cancelled > peek.posted) || message.is_excused)
            return;  // it may have been this one, which is gone
        if (message.is_old && peek.source != kAnybody)
            return;
        if (message.is_cancelled || posted_of(i) < peek.posted)
            continue;
        if (envelope != found.envelope || (told != kNone && told != i))
            return wrong(name(i) + " should have been found by a peek that told another");
        found.message = i;
        arrivals_[i].before = std::min(arrivals_[i].before, peek.posted);
        return;
    }
    wrong("a peek found what was not there: " + text(found.envelope));
}

Tick Reference::posted_of(std::size_t message) const {
    const std::size_t receive = arrivals_[message].receive;
    return receive == kNone ? kNever : receives_[receive].posted;
}

// ---- Which arrived before which

void Reference::order_senders() {
    std::map<unsigned, std::size_t> last;
    std::map<unsigned, Tick> matched;  // of those that tell their match
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        if (arrivals_[i].receive == kNone)
            continue;
        const unsigned sender = messages_[i].envelope.sender;
        if (messages_[i].is_fenced)
            arrivals_[i].after = std::max(arrivals_[i].after, matched[sender]);
        if (messages_[i].tells_match && !messages_[i].is_excused)
            matched[sender] = std::max(matched[sender], posted_of(i));
        if (const auto found = last.find(sender); found != last.end())
            arrivals_.precede(found->second, i);
        last[sender] = i;
    }
}

void Reference::order_receives() {
    for (const RefReceive& receive : receives_) {
        for (std::size_t k = 1; receive.kind == RefKind::kMany && k < receive.matches.size(); ++k)
            arrivals_.precede(receive.matches[k - 1].message, receive.matches[k].message);
        order_against(receive);
    }
}

/// The order that `earlier` imposes on messages that receives posted after it got.
void Reference::order_against(const RefReceive& earlier) {
    const bool is_until_withdrawn = earlier.matches.empty() || earlier.kind == RefKind::kStream ||
                                    (earlier.kind == RefKind::kMany && earlier.withdrawn != kNever);
    const bool is_known = is_until_withdrawn || earlier.matches.back().message != kNone;
    if (earlier.is_excused || !is_known)
        return;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
        const std::size_t receive = arrivals_[i].receive;
        if (receive == kNone || receives_[receive].posted <= earlier.posted ||
            !earlier.matches_envelope(messages_[i].envelope))
            continue;
        const bool is_hidden = messages_[i].is_old || messages_[i].is_excused;
        if (is_hidden && earlier.source != kAnybody)
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
    return "message " + std::to_string(message) + " (" + text(messages_[message].envelope) + ")";
}

void Reference::wrong(const std::string& what) {
    constexpr std::size_t kSome = 2000;
    if (wrong_.size() < kSome)
        wrong_ += what + "\n";
}

}  // namespace tagwire::test
