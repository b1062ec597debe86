// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/match/match_table.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "protocols/api/tw_am.h"
#include "protocols/match/arrival.hpp"
#include "protocols/wire/eager_header.hpp"
#include "protocols/wire/limits.hpp"
#include "ucs/log/log.hpp"
#include "ucs/memory/copy.hpp"
#include "ucs/memory/copy_short.hpp"

namespace tagwire::proto {

namespace {

/// Allocator overhead per block.
constexpr std::size_t kHeapBytes = 16;

// The sender's window counts at least what is kept here.
static_assert(sizeof(Unexpected) + kHeapBytes <= kMessageBytes);
static_assert(MatchTable::kNoticeBytes <= kMessageBytes);

/// The program's header is there as well; lengths are those of the data.
void add_header(Unexpected& message, std::span<const std::byte> header) {
    message.is_am = true;
    message.header_bytes = static_cast<std::uint16_t>(header.size());
    if (message.is_rndv) {
        if (!header.empty())
            std::memcpy(message.header(), header.data(), header.size());
    } else {
        message.length -= header.size();
        message.received -= header.size();
    }
}

/// The first part of a message that its sender may send however much is kept here. An endpoint has
/// one message in parts at a time, so this needs no other limit; one that is kept has it
/// (AmReceiver::keep()).
bool may_be_urgent(const Arrival& arrival) {
    return arrival.is_am && !arrival.is_rndv && arrival.bytes.size() < arrival.length &&
           arrival.length <= TW_AM_URGENT_MAX;
}

bool is_half(const Unexpected& message) {
    return message.is_rndv || message.received < message.length;
}

}  // namespace

// ---- Budget

/// If its peer keeps to the protocol, the message began while the window was open: all that came
/// before it, after the peer was told to pause, was within the window.
bool MatchTable::may_keep(MatchPeer& peer, std::uint64_t bytes) {
    if (!peer.budget.told_to_pause)
        return true;
    const std::uint64_t before = peer.budget.sent_on;
    peer.budget.sent_on += bytes;
    return before <= kWindowBytes || !budget_.would_be_passed(bytes);
}

bool MatchTable::admit(MatchPeer& peer, std::uint64_t bytes) {
    if (may_keep(peer, bytes))
        return true;
    TW_LOG_ERROR(
        "endpoint to worker %016lx fails, and its unexpected messages are dropped: its peer sent "
        "%zu bytes while it was paused; of TAGWIRE_UNEXPECTED_BYTES=%zu, %zu are in use",
        peer.worker_id, static_cast<std::size_t>(peer.budget.sent_on),
        static_cast<std::size_t>(options_.unexpected_bytes),
        static_cast<std::size_t>(budget_.bytes()));
    peer.budget.has_flooded = true;
    peer.lane.end(UCS_ERR_EXCEEDS_LIMIT);
    return false;
}

void MatchTable::pause_if_full(MatchPeer& peer) {
    drop_orphans();
    const bool is_data_full = peer.budget.held_bytes > share() / 2 || budget_.is_data_held();
    if (is_data_full && !peer.budget.told_to_pause_eager) {
        peer.budget.told_to_pause_eager = has_paused_eager_ = true;
        worker_.counters.add(WorkerCounter::kPausedEager);
        peer.lane.control(PauseEager{});
    }
    if (budget_.is_all_held() && !peer.budget.told_to_pause) {
        peer.budget.told_to_pause = has_paused_ = true;
        peer.budget.sent_on = 0;
        worker_.counters.add(WorkerCounter::kPaused);
        peer.lane.control(Pause{});
    }
}

void MatchTable::charge(MatchPeer& peer, std::size_t bytes) {
    budget_.add(bytes);
    peer.budget.held_bytes += bytes;
}

void MatchTable::refund(MatchPeer& peer, std::size_t bytes) {
    budget_.remove(bytes);
    peer.budget.held_bytes -= bytes;
}

/// The part of the budget that one peer has: with half of it in use, its eager data is paused.
std::size_t MatchTable::share() const {
    return options_.unexpected_bytes / (worker_.peers.size() + 1);
}

bool MatchTable::may_send_data(const MatchPeer& peer) const {
    return peer.budget.held_bytes <= share() / 4 && budget_.is_data_resumed();
}

void MatchTable::resume_if_free(MatchPeer* peer) {
    if (peer != nullptr && peer->budget.told_to_pause_eager && may_send_data(*peer)) {
        peer->budget.told_to_pause_eager = false;
        peer->lane.control(ResumeEager{});
    } else if (peer != nullptr && peer->budget.told_to_pause_eager) {
        has_paused_eager_ = true;
    }
    if (has_paused_eager_ && budget_.is_data_resumed()) {
        has_paused_eager_ = false;
        worker_.visit_peers(worker_.owner, *this, [](MatchTable& table, MatchPeer& held) {
            if (held.budget.told_to_pause_eager && table.may_send_data(held)) {
                held.budget.told_to_pause_eager = false;
                held.lane.control(ResumeEager{});
            }
        });
    }
    if (has_paused_ && budget_.is_all_resumed()) {
        has_paused_ = false;
        worker_.visit_peers(worker_.owner, *this, [](MatchTable&, MatchPeer& held) {
            if (std::exchange(held.budget.told_to_pause, false))
                held.lane.control(Resume{});
        });
    }
}

void MatchTable::drop_orphans() {
    while (budget_.is_passed() && !orphans_.empty()) {
        Unexpected& oldest = *orphans_.front();
        if (!std::exchange(has_dropped_orphans_, true)) {
            TW_LOG_WARN(
                "messages of worker %016lx, which is gone, are dropped: all of "
                "TAGWIRE_UNEXPECTED_BYTES=%zu or TAGWIRE_UNEXPECTED_MAX=%zu is used (logged once)",
                oldest.worker_id, static_cast<std::size_t>(options_.unexpected_bytes),
                static_cast<std::size_t>(options_.envelopes_max));
        }
        worker_.counters.add(WorkerCounter::kOrphansDropped);
        space(oldest.is_tagged).unexpected.remove(oldest);
        release(oldest);
    }
}

// ---- Kept

std::size_t MatchTable::bytes_of(std::size_t length) {
    return sizeof(Unexpected) + length + kHeapBytes;
}

MatchTable::~MatchTable() {
    while (spare_count_ > 0)
        ucs::reserve_free(spare_[--spare_count_]);
}

/// nullptr: there is no memory.
Unexpected* MatchTable::allocate(std::size_t behind) {
    const bool is_in_block = behind <= kShortBytes;
    void* memory =
        is_in_block && spare_count_ > 0
            ? spare_[--spare_count_]
            : ucs::reserve_try_allocate(sizeof(Unexpected) + std::max(behind, kShortBytes));
    if (memory == nullptr)
        return nullptr;
    auto* message = ::new (memory) Unexpected;
    message->is_in_block = is_in_block;
    return message;
}

void MatchTable::free(Unexpected& message) {
    // Threads that share a worker would pass the lines of a block around.
    const bool is_kept =
        kKeepsBlocks && message.is_in_block && !worker_.is_multi && spare_count_ < kSpareMax;
    message.~Unexpected();
    if (is_kept)
        spare_[spare_count_++] = &message;
    else
        ucs::reserve_free(&message);
}

Unexpected* MatchTable::make(MatchPeer& peer, const Arrival& arrival) {
    const bool is_limited = !may_be_urgent(arrival) && !arrival.is_admitted;
    if (is_limited && !arrival.is_rndv && arrival.length > options_.unexpected_bytes) {
        TW_LOG_ERROR(
            "an unexpected message of %zu bytes exceeds TAGWIRE_UNEXPECTED_BYTES=%zu: its "
            "endpoint fails",
            static_cast<std::size_t>(arrival.length),
            static_cast<std::size_t>(options_.unexpected_bytes));
        peer.lane.end(UCS_ERR_EXCEEDS_LIMIT);
        return nullptr;
    }
    const std::size_t behind =
        arrival.is_rndv ? arrival.bytes.size() + arrival.am_header.size() : arrival.length;
    const std::size_t held = bytes_of(behind);
    if (is_limited && !admit(peer, held))
        return nullptr;
    Unexpected* const message = allocate(behind);
    if (message == nullptr) {
        TW_LOG_ERROR("no memory for an unexpected message of %zu bytes: its endpoint fails",
                     behind);
        peer.lane.end(UCS_ERR_NO_MEMORY);
        return nullptr;
    }
    message->tag = arrival.tag;
    message->source = peer.source;
    message->peer = &peer;
    message->sender = peer.id;
    message->worker_id = peer.worker_id;
    message->imm = arrival.imm;
    message->length = arrival.length;
    message->flags = arrival.flags;
    message->send_id = arrival.send_id;
    message->is_rndv = arrival.is_rndv;
    message->is_tagged = (arrival.flags & kTagged) != 0;
    message->rts = arrival.rts;
    message->received = arrival.bytes.size();
    message->held = held;
    if (!arrival.bytes.empty())
        ucs::copy_plain(message->data(), arrival.bytes.data(), arrival.bytes.size());
    if (arrival.is_am)
        add_header(*message, arrival.am_header);
    if (!arrival.is_rndv && arrival.bytes.size() < arrival.length)
        peer.incoming.begin(*message, arrival.bytes.size(), arrival.length);
    budget_.add(held);
    peer.budget.held_bytes += held;
    peer.kept.push_back(*message);
    return message;
}

void MatchTable::add(MatchPeer& peer, const Arrival& arrival) {
    Unexpected* message = make(peer, arrival);
    if (message == nullptr)
        return;
    worker_.counters.add(WorkerCounter::kRxUnexpected);
    space(message->is_tagged).unexpected.add(*message);
    if (message->send_id != 0)
        name(*message);
    pause_if_full(peer);
}

bool MatchTable::add_plain(MatchPeer& peer, const Header& header, std::uint64_t imm,
                           std::span<const std::byte> data) {
    if (data.size() > kShortBytes || peer.budget.told_to_pause || spare_count_ == 0)
        return false;
    Unexpected& message = *allocate(data.size());
    message.tag = header.tag;
    message.source = peer.source;
    message.peer = &peer;
    message.sender = peer.id;
    message.worker_id = peer.worker_id;
    message.imm = imm;
    message.length = message.received = data.size();
    message.flags = header.flags;
    message.is_plain = true;
    message.is_tagged = (header.flags & kTagged) != 0;
    message.held = bytes_of(data.size());
    ucs::copy_short(message.behind(), data.data(), data.size());
    charge(peer, message.held);
    peer.kept.push_back(message);
    worker_.counters.add(WorkerCounter::kRxUnexpected);
    space(message.is_tagged).unexpected.add(message);
    pause_if_full(peer);
    return true;
}

void MatchTable::release_plain(Unexpected& message) {
    MatchPeer& peer = *message.peer;
    refund(peer, message.held);
    peer.kept.erase(message);
    free(message);
    if (peer.budget.told_to_pause_eager || has_paused_eager_ || has_paused_)
        resume_if_free(&peer);
}

void MatchTable::grow(Unexpected& message, std::size_t bytes) {
    message.held += bytes;
    budget_.grow(bytes);
    message.peer->budget.held_bytes += bytes;
}

/// Its sender cannot ask for it any more.
void MatchTable::release_send_id(Unexpected& message) {
    if (std::exchange(message.is_named, false))
        by_send_id_.erase(message);
}

void MatchTable::take(Unexpected& message) {
    release_send_id(message);
    if (!std::exchange(message.is_taken, true) && message.peer == nullptr)
        remove_orphan(message);
}

void MatchTable::remove_orphan(Unexpected& message) {
    orphans_.erase(message);
    budget_.remove_orphan(message.held);
}

void MatchTable::claim(Unexpected& message) {
    claimed_.insert(&message);  // may throw, and nothing has happened
    take(message);
}

/// Its sender is gone.
void MatchTable::add_orphan(Unexpected& message) {
    release_send_id(message);
    message.peer->kept.erase(message);
    message.peer->budget.held_bytes -= message.held;  // the peer may begin anew
    message.peer = nullptr;
    if (message.is_taken)
        return;
    orphans_.push_back(message);
    budget_.add_orphan(message.held);
}

void MatchTable::release(Unexpected& message) {
    release_send_id(message);
    if (message.is_in_handler) {
        message.is_over = true;
        return;
    }
    MatchPeer* peer = message.peer;
    if (peer != nullptr) {
        if (peer->incoming.message == &message)
            peer->incoming.message = nullptr;
        peer->budget.held_bytes -= message.held;
        peer->kept.erase(message);
    } else if (!message.is_taken) {
        remove_orphan(message);
    }
    budget_.remove(message.held);
    ucs::reserve_free(message.start);
    free(message);
    resume_if_free(peer);
}

// ---- Messages taken back, and ends

void MatchTable::discard(Unexpected& message) {
    take(message);
    if (const MatchPeer* peer = message.is_canceled ? nullptr : message.peer) {
        if (message.is_rndv)
            peer->lane.control(Ats{.send_id = message.send_id, .status = UCS_OK});
        else if ((message.flags & kAcks) != 0)
            peer->lane.control(Ack{message.send_id});
    }
    release(message);
}

bool MatchTable::withdraw(const MatchPeer& peer, std::uint32_t send_id) {
    Unexpected* message = by_send_id_.find({send_id, peer.id});
    if (message == nullptr)
        return false;
    if (message->is_taken) {
        release_send_id(*message);
        return message->is_canceled = true;
    }
    space(message->is_tagged).unexpected.remove(*message);
    release(*message);
    return true;
}

/// A message of a peer that is gone: it stays if all of it is here.
void MatchTable::end(Unexpected& message, bool is_dropped) {
    if (message.is_am && !message.is_taken)
        return release(message);  // parts of it were to come
    // Receives that wait for data end with the endpoint's others, and their messages with them.
    if (message.waiting != nullptr) {
        if (message.fetch != nullptr)
            message.fetch->done.message = nullptr;
        claimed_.erase(&message);
        return release(message);
    }
    if (message.is_taken) {
        message.has_failed = is_half(message);
    } else if (is_dropped || is_half(message)) {
        space(message.is_tagged).unexpected.remove(message);
        return release(message);
    }
    add_orphan(message);
}

void MatchTable::drop_messages_of(MatchPeer& peer) {
    while (Unexpected* message = peer.kept.front())
        end(*message, peer.budget.has_flooded);
}

Unexpected* MatchTable::claimed(tw_message_h message) const {
    const auto found = claimed_.find(static_cast<Unexpected*>(message));
    return found == claimed_.end() || (*found)->waiting != nullptr ? nullptr : *found;
}

bool MatchTable::drop(tw_message_h message) {
    Unexpected* const dropped = claimed(message);
    if (dropped == nullptr)
        return false;
    unclaim(*dropped);
    discard(*dropped);
    return true;
}

void MatchTable::name(Unexpected& message) {
    message.is_named = true;
    by_send_id_.insert(message);
}

void MatchTable::clear() {
    for (MatchSpace& in : spaces_) {
        while (auto* message = static_cast<Unexpected*>(in.unexpected.oldest())) {
            in.unexpected.remove(*message);
            release(*message);
        }
        while (auto* receive = static_cast<Request*>(in.posted.take_any()))
            worker_.release(worker_.owner, *receive);
    }
    for (Unexpected* message : claimed_)
        release(*message);
    claimed_.clear();
}

std::string MatchTable::description() const {
    return fmt::format("{} messages in {} bytes, {} of them from departed peers, {} claimed",
                       budget_.messages(), budget_.bytes(), orphans_.size(), claimed_.size());
}

}  // namespace tagwire::proto
