// SPDX-License-Identifier: BSD-3-Clause
// The functions of Node.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "ucs/memory/reserve.hpp"
#include "uct/ib/ud/ud_node.hpp"

namespace tagwire::ud {

template <class Host>
Node<Host>::~Node() {
    for (std::size_t i = 0; i < inbounds_.size(); ++i)
        if (Inbound* inbound = inbounds_.at(i); inbound != nullptr)
            forget(*inbound);
}

// ---- Connections

template <class Host>
typename Node<Host>::Key Node<Host>::key_of(const Header& header, const void* message) {
    ReturnAddress from;
    std::memcpy(&from, static_cast<const std::byte*>(message) + sizeof header, sizeof from);
    return {from.interface.cookie, from.interface.qp_num, header.from_id};
}

template <class Host>
bool Node<Host>::open(Outbound& outbound) {
    if (!outbounds_.take(&outbound.id))
        return false;
    outbounds_.place(outbound.id) = &outbound;
    timers_.reserve(outbounds_.size());
    return true;
}

template <class Host>
void Node<Host>::close(Outbound& outbound) {
    if (outbounds_.find(outbound.id) != &outbound)
        return;
    outbound.sender.drop_all([this](void* packet) { host_.release(packet); });
    if (!outbound.sender.is_dead() && host_.can_send(true)) {
        Header header{.kind = Kind::kClose};
        header.to_cookie = outbound.peer->cookie;
        header.to_id = outbound.sender.peer_id();
        header.from_id = outbound.id;
        host_.send_control(*outbound.peer, header);
    }
    outbound.sender.kill();
    timers_.remove(outbound);
    outbounds_.give_back(outbound.id);
}

template <class Host>
typename Node<Host>::Inbound* Node<Host>::make_inbound(const Header& header, const Key& key,
                                                       Peer& peer, std::uint64_t now) {
    std::uint32_t id = 0;
    if ((by_key_.size() >= params_.inbound_max && !evict(now)) || !inbounds_.take(&id))
        return nullptr;
    auto& place = inbounds_.place(id);
    place.reset(new Inbound{{}, Receiver(header.psn, params_.ahead_max), {}, &peer, key, id, now});
    by_key_.emplace(key, id);
    return place.get();
}

template <class Host>
void Node<Host>::forget(Inbound& inbound) {
    held_ -= inbound.receiver.held();
    inbound.receiver.drop_all([this](void* message) { host_.drop(message); });
    if (inbound.peer->owed == inbound.id)
        inbound.peer->owed = 0;
    host_.put_peer(*inbound.peer);
    by_key_.erase(inbound.key);
    inbounds_.give_back(inbound.id);
}

// A few at a time, so that a flood of CONNECT costs little each.
template <class Host>
bool Node<Host>::evict(std::uint64_t now) {
    Inbound* oldest = nullptr;
    for (unsigned i = 0; i < kEvictLooks && inbounds_.size() > 0; ++i) {
        evict_hand_ = (evict_hand_ + 1) % static_cast<std::uint32_t>(inbounds_.size());
        Inbound* inbound = inbounds_.at(evict_hand_);
        const bool is_silent =
            inbound != nullptr && now - inbound->heard_ns >= params_.sender.remote_timeout_ns;
        if (is_silent && (oldest == nullptr || inbound->heard_ns < oldest->heard_ns))
            oldest = inbound;
    }
    if (oldest == nullptr)
        return false;
    host_.count(Event::kEvicted);
    forget(*oldest);
    return true;
}

// ---- Sending

template <class Host>
void Node<Host>::pump(Outbound& outbound, std::uint64_t now) {
    if (!outbound.is_waiting)
        take_turn(outbound, now);
    note(outbound);
}

// Nobody fills the send queue while others have something to send.
template <class Host>
void Node<Host>::take_turn(Outbound& outbound, std::uint64_t now) {
    for (unsigned i = 0; i < kPacketsPerTurn; ++i) {
        const Sender::Next next = outbound.sender.next();
        if (next.step == Sender::Step::kNothing || next.step == Sender::Step::kDead)
            return;
        if (!step(outbound, next, now))
            break;
    }
    outbound.is_waiting = true;
    waiting_.push_back(outbound.id);
}

template <class Host>
bool Node<Host>::step(Outbound& outbound, const Sender::Next& next, std::uint64_t now) {
    const bool is_data = next.step == Sender::Step::kData;
    if (!host_.can_send(!is_data))
        return false;
    Sender& sender = outbound.sender;
    Header header;
    header.to_cookie = outbound.peer->cookie;
    header.to_id = sender.peer_id();
    header.from_id = outbound.id;
    header.psn = next.psn;
    add_ack(header, *outbound.peer);
    const std::uint64_t resent = sender.resent();
    if (is_data) {
        header.flags |= next.wants_ack ? kWantsAck : std::uint8_t{0};
        void* packet = sender.packet(next.psn);
        sender.did(next, now);
        host_.send_data(*outbound.peer, header, packet);
        if (sender.resent() != resent)
            host_.count(Event::kResent);
        return true;
    }
    header.kind = next.step == Sender::Step::kConnect ? Kind::kConnect : Kind::kProbe;
    if (header.kind == Kind::kProbe)
        host_.count(Event::kProbe);
    sender.did(next, now);
    host_.send_control(*outbound.peer, header);
    return true;
}

template <class Host>
void Node<Host>::resume(std::uint64_t now) {
    settle();
    for (std::size_t turns = waiting_.size(); turns > 0 && host_.can_send(false); --turns) {
        Outbound* outbound = outbounds_.find(waiting_.front());
        waiting_.pop_front();
        if (outbound == nullptr)
            continue;
        outbound->is_waiting = false;
        pump(*outbound, now);
    }
}

// ---- Acknowledgements

template <class Host>
void Node<Host>::add_ack(Header& header, Peer& peer) {
    if (peer.owed == 0) [[likely]]
        return;
    Inbound* inbound = inbounds_.find(std::exchange(peer.owed, 0));
    if (inbound == nullptr)
        return;
    header.ack_id = inbound->key.id;
    header.ack_psn = inbound->receiver.next();
    header.flags |= inbound->receiver.has_gap() ? kHasGap : std::uint8_t{0};
    inbound->receiver.told();
    told_ = inbound->id;
}

template <class Host>
void Node<Host>::did_not_tell() {
    if (Inbound* inbound = inbounds_.find(told_); inbound != nullptr)
        owe(*inbound, true, 0);
}

template <class Host>
bool Node<Host>::tell(Inbound& inbound, std::uint8_t flags, std::uint32_t probe) {
    if (!host_.can_send(true))
        return false;
    inbound.peer->owed = inbound.id;
    Header header{.kind = Kind::kAck};
    header.to_cookie = inbound.peer->cookie;
    header.to_id = inbound.key.id;
    header.from_id = inbound.id;
    header.psn = probe;
    header.flags = flags;
    add_ack(header, *inbound.peer);
    host_.count(Event::kAckSent);
    host_.send_control(*inbound.peer, header);
    return true;
}

template <class Host>
void Node<Host>::owe(Inbound& inbound, bool at_once, std::uint64_t now) {
    inbound.peer->owed = inbound.id;
    if (at_once || inbound.receiver.untold() >= std::max(params_.ahead_max / 2, 1U)) {
        if (!std::exchange(inbound.is_urgent, true))
            urgent_.push_back(inbound.id);
    } else if (!std::exchange(inbound.is_later, true)) {
        later_.push_back({inbound.id, now + params_.ack_delay_ns});
    }
}

template <class Host>
void Node<Host>::settle() {
    std::size_t kept = 0;
    for (const std::uint32_t id : urgent_) {
        Inbound* inbound = inbounds_.find(id);
        if (inbound == nullptr)
            continue;
        inbound->is_urgent = tell(*inbound, 0, 0) ? false : true;
        if (inbound->is_urgent)
            urgent_[kept++] = id;
    }
    urgent_.resize(kept);
}

template <class Host>
void Node<Host>::tell_due(std::uint64_t until, std::uint64_t now) {
    while (!later_.empty() && later_.front().due_ns <= until) {
        Inbound* inbound = inbounds_.find(later_.front().id);
        later_.pop_front();
        if (inbound == nullptr)
            continue;
        inbound->is_later = false;
        if (inbound->receiver.untold() > 0)
            owe(*inbound, true, now);
    }
    settle();
}

template <class Host>
void Node<Host>::tell_all(std::uint64_t now) {
    tell_due(kNever, now);
}

// ---- Time

template <class Host>
void Node<Host>::expire(std::uint64_t now) {
    tell_due(now, now);
    for (std::size_t turns = timers_.size(); turns > 0 && timers_.earliest() <= now; --turns)
        expire(timers_.take(), now);
}

template <class Host>
void Node<Host>::expire(Outbound& outbound, std::uint64_t now) {
    Sender& sender = outbound.sender;
    if (sender.is_dead())
        return;
    Liveness known = Liveness::kUnknown;
    if (sender.expire(now)) {
        known = host_.liveness(*outbound.peer);
        sender.judged(known, now);
    }
    if (sender.is_dead())
        return host_.failed(outbound,
                            known == Liveness::kDead ? Failure::kDeath : Failure::kSilence);
    pump(outbound, now);
}

template <class Host>
void Node<Host>::farewell() {
    is_gone_ = true;
    for (std::size_t i = 0; i < inbounds_.size(); ++i) {
        Inbound* inbound = inbounds_.at(i);
        if (inbound == nullptr || !host_.can_send(true))
            continue;
        Header header{.kind = Kind::kReset};
        header.to_cookie = inbound->peer->cookie;
        header.to_id = inbound->key.id;
        header.from_id = inbound->id;
        host_.count(Event::kResetSent);
        host_.send_control(*inbound->peer, header);
    }
}

// ---- Arrivals

template <class Host>
void Node<Host>::arrived(void* message, std::uint32_t bytes, std::uint64_t now) {
    const auto header = parse_header(std::span(static_cast<const std::byte*>(message), bytes));
    if (!header) [[unlikely]] {
        host_.count(Event::kGarbage);
        return host_.drop(message);
    }
    if (header->to_cookie != params_.cookie || is_gone_) [[unlikely]] {
        host_.count(Event::kForeign);
        if (header->kind == Kind::kConnect || header->kind == Kind::kProbe)
            say_reset(*header, message, now);
        return host_.drop(message);
    }
    if (header->ack_id != 0)
        take_ack(*header, now);
    switch (header->kind) {
        case Kind::kData:
            return take_data(*header, message, bytes, now);
        case Kind::kAck:
            if (Outbound* outbound = outbounds_.find(header->to_id);
                outbound != nullptr && (header->flags & kAnswersProbe) != 0 &&
                outbound->sender.peer_id() == header->from_id) {
                outbound->sender.answered(header->psn, now);
                note(*outbound);
                host_.advanced(*outbound);
            }
            break;
        case Kind::kConnect:
            take_connect(*header, message, now);
            break;
        case Kind::kAccept:
            take_accept(*header, now);
            break;
        case Kind::kProbe:
            take_probe(*header, message, now);
            break;
        case Kind::kClose:
            take_close(*header, message);
            break;
        case Kind::kReset:
            take_reset(*header);
            break;
    }
    host_.drop(message);
}

template <class Host>
void Node<Host>::take_connect(const Header& header, void* message, std::uint64_t now) {
    const Key key = key_of(header, message);
    const auto found = by_key_.find(key);
    Inbound* inbound = found == by_key_.end() ? nullptr : inbounds_.find(found->second);
    if (inbound == nullptr) {
        Peer* peer = header.from_id == 0 ? nullptr : host_.peer_of(message);
        if (peer == nullptr)
            return host_.count(Event::kGarbage);
        inbound = make_inbound(header, key, *peer, now);
        if (inbound == nullptr)
            return host_.put_peer(*peer);
    }
    if (!host_.can_send(true))
        return;  // the opener asks again
    Header answer{.kind = Kind::kAccept};
    answer.to_cookie = inbound->peer->cookie;
    answer.to_id = key.id;
    answer.from_id = inbound->id;
    answer.psn = params_.ahead_max;
    host_.send_control(*inbound->peer, answer);
}

template <class Host>
void Node<Host>::take_accept(const Header& header, std::uint64_t now) {
    Outbound* outbound = outbounds_.find(header.to_id);
    if (outbound == nullptr || header.from_id == 0)
        return;
    if (outbound->sender.accepted(header.from_id, header.psn, now))
        pump(*outbound, now);
}

template <class Host>
void Node<Host>::take_ack(const Header& header, std::uint64_t now) {
    Outbound* outbound = outbounds_.find(header.ack_id);
    if (outbound == nullptr || outbound->sender.is_dead())
        return;
    const std::uint32_t before = outbound->sender.first_unacknowledged();
    const bool is_possible =
        outbound->sender.acknowledged(header.ack_psn, (header.flags & kHasGap) != 0, now,
                                      [this](void* packet) { host_.release(packet); });
    if (!is_possible)
        return;  // an old one, overtaken by others
    pump(*outbound, now);
    if (outbound->sender.first_unacknowledged() != before)
        host_.advanced(*outbound);
}

template <class Host>
void Node<Host>::take_data(const Header& header, void* message, std::uint32_t bytes,
                           std::uint64_t now) {
    Inbound* inbound = inbounds_.find(header.to_id);
    if (inbound == nullptr || inbound->key.id != header.from_id) [[unlikely]] {
        host_.count(Event::kForeign);
        return host_.drop(message);
    }
    inbound->heard_ns = now;
    switch (inbound->receiver.judge(header.psn)) {
        case Receiver::Verdict::kNext:
            return take_next(*inbound, header, message, bytes, now);
        case Receiver::Verdict::kEarly:
            if (held_ < params_.held_max) {
                ++held_;
                inbound->receiver.hold(header.psn, {message, bytes});
                host_.count(Event::kEarly);
                return owe(*inbound, true, now);
            }
            [[fallthrough]];
        case Receiver::Verdict::kBeyond:
            host_.count(Event::kBeyond);
            break;
        case Receiver::Verdict::kKnown:
            // The packet's acknowledgement was lost, perhaps.
            host_.count(Event::kDuplicate);
            break;
    }
    owe(*inbound, true, now);
    host_.drop(message);
}

// The message's callback may send: so what it acknowledges is known before. It may not end this
// connection.
template <class Host>
void Node<Host>::take_next(Inbound& inbound, const Header& header, void* message,
                           std::uint32_t bytes, std::uint64_t now) {
    inbound.receiver.took_next();
    owe(inbound, (header.flags & kWantsAck) != 0, now);
    give(inbound, header, message, bytes);
    for (auto held = inbound.receiver.take_held(); held.message != nullptr;
         held = inbound.receiver.take_held()) {
        --held_;
        owe(inbound, true, now);
        Header of_held;
        std::memcpy(&of_held, held.message, sizeof of_held);  // was checked when it came
        give(inbound, of_held, held.message, held.bytes);
    }
}

// A message that is longer than the packets of the receiver's port comes in several.
template <class Host>
void Node<Host>::give(Inbound& inbound, const Header& header, void* message, std::uint32_t bytes) {
    const bool has_more = (header.flags & kHasMore) != 0;
    if (!has_more && inbound.parts.empty()) [[likely]] {
        host_.count(Event::kDelivered);
        return host_.deliver(header.value, message, bytes);
    }
    const auto* data = static_cast<const std::byte*>(message) + sizeof header;
    const std::size_t more = bytes - sizeof header;
    const bool is_too_long = inbound.parts.size() + more > kJoinedBytesMax;
    if (!is_too_long)
        inbound.parts.insert(inbound.parts.end(), data, data + more);
    host_.drop(message);
    if (is_too_long) {
        inbound.parts.clear();  // no peer of ours sends that
        return host_.count(Event::kGarbage);
    }
    if (has_more)
        return;
    const ucs::ReserveVector<std::byte> whole = std::exchange(inbound.parts, {});
    host_.count(Event::kDelivered);
    host_.deliver_joined(header.value, whole);
}

template <class Host>
void Node<Host>::take_probe(const Header& header, const void* message, std::uint64_t now) {
    Inbound* inbound = inbounds_.find(header.to_id);
    if (inbound == nullptr || inbound->key.id != header.from_id)
        return say_reset(header, message, now);
    inbound->heard_ns = now;
    tell(*inbound, kAnswersProbe, header.psn);
}

template <class Host>
void Node<Host>::take_close(const Header& header, const void* message) {
    const auto found = by_key_.find(key_of(header, message));
    Inbound* inbound = found == by_key_.end() ? nullptr : inbounds_.find(found->second);
    if (inbound != nullptr && (header.to_id == 0 || header.to_id == inbound->id))
        forget(*inbound);
}

template <class Host>
void Node<Host>::take_reset(const Header& header) {
    Outbound* outbound = outbounds_.find(header.to_id);
    if (outbound == nullptr || outbound->sender.is_dead() ||
        (outbound->sender.peer_id() != header.from_id && outbound->sender.is_open()))
        return;
    outbound->sender.kill();
    host_.failed(*outbound, Failure::kReset);
}

// The sender of a packet may be invented: answers to strangers have a rate. A peer that asks in
// earnest asks again.
template <class Host>
bool Node<Host>::may_reset(std::uint64_t now) {
    if (resets_paid_ > now + params_.reset_burst * params_.reset_interval_ns)
        return false;
    resets_paid_ = std::max(resets_paid_, now) + params_.reset_interval_ns;
    return host_.can_send(true);
}

template <class Host>
void Node<Host>::say_reset(const Header& header, const void* message, std::uint64_t now) {
    Peer* peer = may_reset(now) ? host_.peer_of(message) : nullptr;
    if (peer == nullptr)
        return;
    Header answer{.kind = Kind::kReset};
    answer.to_cookie = peer->cookie;
    answer.to_id = header.from_id;
    answer.from_id = header.to_id;
    host_.count(Event::kResetSent);
    host_.send_control(*peer, answer);
    host_.put_peer(*peer);
}

}  // namespace tagwire::ud
