// SPDX-License-Identifier: BSD-3-Clause
// Messages that nobody waited for are kept, within the worker's budget (budget.hpp), until they are
// received, taken back by their sender, or lost with it.
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "protocols/arrival.hpp"
#include "protocols/worker.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

namespace {

/// The heap takes so much for itself.
constexpr std::size_t kHeapBytes = 16;

bool is_half(const Unexpected& message) {
    return message.is_rndv || message.received < message.length;
}

}  // namespace

// ---- Budget. Peers are held back in two steps: first their data stays with them, and requests of
// rendezvous come in its place, so that an expected message gets through; then they send nothing.

/// Whether so many more bytes of that peer may be kept; it ends if it does not heed what it was
/// told.
bool Worker::admit(Endpoint& ep, std::uint64_t bytes) {
    if (!ep.told_to_pause)
        return true;
    ep.sent_on += bytes;
    if (ep.sent_on <= Budget::kOnItsWayBytes || !budget_.would_be_passed(bytes))
        return true;
    TW_LOG_ERROR(
        "endpoint to worker %016lx ends, and its unexpected messages are dropped: it was told to "
        "send nothing, and has sent %zu bytes; of TAGWIRE_UNEXPECTED_BYTES=%zu, %zu are in use",
        ep.worker_id, static_cast<std::size_t>(ep.sent_on),
        static_cast<std::size_t>(options().unexpected_bytes),
        static_cast<std::size_t>(budget_.bytes()));
    ep.has_flooded = true;
    ep.fail(UCS_ERR_EXCEEDS_LIMIT);
    return false;
}

/// Something of that peer is kept from now on; what was may go.
void Worker::hold_back(Endpoint& ep) {
    drop_orphans();
    const bool is_data_full = ep.held_bytes > share() / 2 || budget_.is_data_held();
    if (is_data_full && !ep.told_to_pause_eager) {
        ep.told_to_pause_eager = has_held_data_ = true;
        count(WorkerCounter::kHeldData);
        ep.control(PauseEager{});
    }
    if (budget_.is_all_held() && !ep.told_to_pause) {
        ep.told_to_pause = has_held_ = true;
        ep.sent_on = 0;
        count(WorkerCounter::kHeld);
        ep.control(Pause{});
    }
}

bool Worker::may_send_data(const Endpoint& ep) const {
    return ep.held_bytes <= share() / 4 && budget_.is_data_resumed();
}

/// Something of that peer is kept no more; null: it is gone.
void Worker::let_go_on(Endpoint* ep) {
    if (ep != nullptr && ep->told_to_pause_eager && may_send_data(*ep)) {
        ep->told_to_pause_eager = false;
        ep->control(ResumeEager{});
    } else if (ep != nullptr && ep->told_to_pause_eager) {
        has_held_data_ = true;
    }
    if (has_held_data_ && budget_.is_data_resumed()) {
        has_held_data_ = false;
        peers_.for_each([&](Endpoint& held) {
            if (held.told_to_pause_eager && may_send_data(held)) {
                held.told_to_pause_eager = false;
                held.control(ResumeEager{});
            }
        });
    }
    if (has_held_ && budget_.is_all_resumed()) {
        has_held_ = false;
        peers_.for_each([](Endpoint& held) {
            if (std::exchange(held.told_to_pause, false))
                held.control(Resume{});
        });
    }
}

/// Complete messages of peers that are gone give way to those of peers that are there.
void Worker::drop_orphans() {
    while (budget_.is_passed() && !orphans_.empty()) {
        Unexpected& oldest = *orphans_.front();
        if (!std::exchange(has_dropped_orphans_, true)) {
            TW_LOG_WARN(
                "messages of worker %016lx, which is gone, are dropped: all of "
                "TAGWIRE_UNEXPECTED_BYTES=%zu or TAGWIRE_UNEXPECTED_MAX=%zu is in use (told once)",
                oldest.worker_id, static_cast<std::size_t>(options().unexpected_bytes),
                static_cast<std::size_t>(options().envelopes_max));
        }
        count(WorkerCounter::kOrphansDropped);
        space(oldest.is_tagged).unexpected.remove(oldest);
        free_message(oldest);
    }
}

// ---- Kept

/// nullptr: it cannot be kept, and its endpoint has ended. Its peer is to be told (hold_back())
/// when the message is where it belongs.
Unexpected* Worker::make_message(Endpoint& ep, const Arrival& arrival) {
    if (!arrival.is_rndv && arrival.length > options().unexpected_bytes) {
        TW_LOG_ERROR(
            "an unexpected message announces %zu bytes, TAGWIRE_UNEXPECTED_BYTES is %zu: "
            "its endpoint ends",
            static_cast<std::size_t>(arrival.length),
            static_cast<std::size_t>(options().unexpected_bytes));
        ep.fail(UCS_ERR_EXCEEDS_LIMIT);
        return nullptr;
    }
    const std::size_t behind = arrival.is_rndv ? arrival.bytes.size() : arrival.length;
    const std::size_t held = sizeof(Unexpected) + behind + kHeapBytes;
    if (!admit(ep, held))
        return nullptr;
    void* memory = ucs::reserve_try_allocate(sizeof(Unexpected) + behind);
    if (memory == nullptr) {
        TW_LOG_ERROR("no memory for an unexpected message of %zu bytes: its endpoint ends", behind);
        ep.fail(UCS_ERR_NO_MEMORY);
        return nullptr;
    }
    auto* message = ::new (memory) Unexpected;
    message->tag = arrival.tag;
    message->source = ep.source;
    message->ep = &ep;
    message->worker_id = ep.worker_id;
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
        std::memcpy(message->data(), arrival.bytes.data(), arrival.bytes.size());
    if (!arrival.is_rndv && arrival.bytes.size() < arrival.length) {
        ep.has_incoming = true;
        ep.incoming_request = nullptr;
        ep.incoming_message = message;
        ep.incoming_bytes = arrival.bytes.size();
        ep.incoming_length = arrival.length;
    }
    budget_.add(held);
    ep.held_bytes += held;
    ep.kept.push_back(*message);
    return message;
}

void Worker::keep(Endpoint& ep, const Arrival& arrival) {
    Unexpected* message = make_message(ep, arrival);
    if (message == nullptr)
        return;
    count(WorkerCounter::kRxUnexpected);
    space(message->is_tagged).unexpected.add(*message);
    if (message->send_id != 0) {
        message->is_named = true;
        by_send_id_.insert(*message);
    }
    hold_back(ep);
}

/// More memory is needed for a message that is kept.
void Worker::grow_message(Unexpected& message, std::size_t bytes) {
    message.held += bytes;
    budget_.grow(bytes);
    message.ep->held_bytes += bytes;
}

/// Its sender cannot ask for it any more.
void Worker::unname(Unexpected& message) {
    if (std::exchange(message.is_named, false))
        by_send_id_.erase(message);
}

/// It has left its matcher. Whatever callbacks do from now on, it stays until it is freed.
void Worker::take_message(Unexpected& message) {
    unname(message);
    if (!std::exchange(message.is_taken, true) && message.ep == nullptr)
        remove_orphan(message);
}

void Worker::remove_orphan(Unexpected& message) {
    orphans_.erase(message);
    budget_.remove_orphan(message.held);
}

/// The program has it, or a buffered receive.
void Worker::claim_message(Unexpected& message) {
    take_message(message);
    claimed_.insert(&message);
}

/// Its sender is gone.
void Worker::orphan(Unexpected& message) {
    unname(message);
    message.ep->kept.erase(message);
    message.ep = nullptr;
    if (message.is_taken)
        return;
    orphans_.push_back(message);
    budget_.add_orphan(message.held);
}

/// `message` is in no matcher.
void Worker::free_message(Unexpected& message) {
    unname(message);
    Endpoint* ep = message.ep;
    if (ep != nullptr) {
        if (ep->incoming_message == &message)
            ep->incoming_message = nullptr;
        ep->held_bytes -= message.held;
        ep->kept.erase(message);
    } else if (!message.is_taken) {
        remove_orphan(message);
    }
    budget_.remove(message.held);
    ucs::reserve_free(message.start);
    message.~Unexpected();
    ucs::reserve_free(&message);
    let_go_on(ep);
}

// ---- Messages taken back, and ends

bool Worker::withdraw(Endpoint& ep, std::uint32_t send_id) {
    Unexpected* message = by_send_id_.find({send_id, ep.source});
    if (message == nullptr)
        return false;
    space(message->is_tagged).unexpected.remove(*message);
    free_message(*message);
    return true;
}

/// Receives of that source end, those that are posted now: what their callbacks post waits for the
/// next endpoint to it.
void Worker::end_directed(MatchSpace& in, std::uint32_t source, ucs_status_t status) {
    ucs::ReserveVector<Request*> ending;
    while (auto* receive = static_cast<Request*>(in.posted.take_directed(source))) {
        has_left(*receive);
        ending.push_back(receive);
    }
    for (Request* receive : ending)
        if ((receive->flags & TW_OP_MULTI_RECV) != 0)
            close_multi(*receive, status);
        else
            finish(*receive, status);
}

/// A message of a peer that is gone: it stays if all of it is here.
void Worker::end_kept(Unexpected& message, bool is_dropped) {
    // Receives that wait for data end with the endpoint's others, and their messages with them.
    if (message.waiting != nullptr) {
        if (message.fetch != nullptr)
            message.fetch->done.context = nullptr;
        claimed_.erase(&message);
        return free_message(message);
    }
    if (message.is_taken) {
        message.has_failed = is_half(message);
    } else if (is_dropped || is_half(message)) {
        space(message.is_tagged).unexpected.remove(message);
        return free_message(message);
    }
    orphan(message);
}

void Worker::drop_incoming(Endpoint& ep, ucs_status_t status, bool is_last) {
    ep.has_incoming = false;
    ep.incoming_message = nullptr;
    while (Unexpected* message = ep.kept.front())
        end_kept(*message, ep.has_flooded);
    while (!ep.announced.empty())
        drop_announced(ep);
    drop_orphans();
    let_go_on(nullptr);
    for (MatchSpace& in : spaces_)
        if (is_last)
            end_directed(in, ep.source, status);
}

}  // namespace tagwire::proto
