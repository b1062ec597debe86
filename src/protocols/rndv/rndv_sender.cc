// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/rndv/rndv_sender.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "protocols/api/tw_am.h"
#include "protocols/cost/advisor.hpp"
#include "protocols/cost/copy_in.hpp"
#include "protocols/cost/options.hpp"
#include "protocols/request/envelope.hpp"
#include "protocols/request/keys.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/request/reg_leases.hpp"
#include "protocols/request/request_table.hpp"
#include "protocols/transfer/transfer.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

namespace {

/// Messages that are a stream if none from the peer's side comes in between: two sides that send at
/// the same time meet each other's now before and now after their own.
constexpr unsigned kStreamFrom = 3;

/// Its owner lets peers read the memory.
bool has_readable_handle(const Request& request) {
    return request.buffer.memory != nullptr && request.buffer.memory->may_be_read();
}

/// The handle by which the peer reads the buffer; a list has none that would do.
uct_mem_h source_of(const Request& request, std::size_t domain) {
    if (request.buffer.list != nullptr)
        return nullptr;
    if (request.registration != nullptr)
        return request.registration;
    if (has_readable_handle(request))
        return request.buffer.memory->handle(domain);
    return request.cached != nullptr ? request.cached->handle : nullptr;
}

struct RndvPacking {
    const Envelope* envelope;
    const Request* request;
    const Rts* rts;
    const Keys* keys;

    static std::size_t pack(void* to, void* arg) {
        const auto& packing = *static_cast<const RndvPacking*>(arg);
        auto* at = static_cast<std::byte*>(to);
        std::memcpy(at, packing.envelope, packing.envelope->bytes);
        at += packing.envelope->bytes;
        const std::size_t own_bytes = packing.request->am_header_bytes;
        if (own_bytes > 0)
            std::memcpy(at, packing.request->am_header, own_bytes);
        at += own_bytes;
        std::memcpy(at, packing.rts, sizeof(Rts));
        std::memcpy(at + sizeof(Rts), packing.keys->bytes, packing.keys->used);
        return packing.envelope->bytes + own_bytes + sizeof(Rts) + packing.keys->used;
    }
};

constexpr std::uint8_t flag_of(Pattern pattern) {
    return pattern == Pattern::kStream ? kRtsOfStream : 0;
}

bool has_gone_a_way(const Request& request) {
    return request.is_announced || request.offset != 0 || request.has_gone;
}

}  // namespace

bool can_put_from(const Request& request, const Domain& domain) {
    return request.buffer.memory != nullptr || request.cached != nullptr ||
           (domain.attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) == 0;
}

bool RndvSender::takes(const Request& request) {
    if (has_gone_a_way(request))  // asked again, at each step of the queue
        return request.is_announced && request.is_rndv;
    const bool is_learnt = is_learnt_of(request);
    const bool is_known = is_learnt && request.order == last_.order;
    const Pattern now = is_known ? last_.pattern : pattern();
    const Way way = choose(request.buffer.length, state_of(request, now));
    const bool is_trial = way.rule == WayRule::kTrial;
    if (is_learnt && !is_known && (is_trial || way.rule == WayRule::kLength)) {
        if (is_trial)
            --advised_[index_of(now)].trials;
        count_learnt(request, now, is_trial);
    }
    return way.is_rndv;
}

MessageState RndvSender::state_of(const Request& request, Pattern pattern) const {
    MessageState state = state_of(request.buffer, request.buffer.length, pattern);
    // The peer keeps a message that waits for its place in one buffer.
    if (goes_as_tagged(request, rail()))
        state.in_order_max = rail().bcopy_max - sizeof(Envelope);
    state.trial_max = rail().costs().eager_max;
    state.trial = is_learnt_of(request) ? trial_of(request, pattern) : Trial::kNone;
    state.has_begun = has_gone_a_way(request);
    state.is_rndv = request.is_announced && request.is_rndv;
    state.is_urgent = (request.flags & TW_OP_URGENT) != 0;
    state.is_eager_paused = to_.lane.eager_is_paused;
    return state;
}

/// `request` is_learnt_of().
Trial RndvSender::trial_of(const Request& request, Pattern pattern) const {
    if (request.order == last_.order)
        return last_.is_trial ? Trial::kSame : Trial::kNone;
    if (!wants_trial(request.buffer.length, pattern))
        return Trial::kNone;
    return advised_[index_of(pattern)].tries_rndv ? Trial::kRndv : Trial::kEager;
}

/// The receiver learns nothing of lists, nor of active messages: their data waits for the program.
bool RndvSender::is_learnt_of(const Request& request) const {
    return Advisor::is_learnt(request.buffer.length) && request.buffer.list == nullptr &&
           !request.is_am && to_.lane.is_learning();
}

Pattern RndvSender::pattern() const {
    const bool is_stream =
        to_.worker.arrivals() == last_.arrivals && last_.in_a_row + 1 >= kStreamFrom;
    return is_stream ? Pattern::kStream : Pattern::kTurns;
}

/// One more message that is_learnt_of(); asked again, it has gone that way.
void RndvSender::count_learnt(const Request& request, Pattern pattern, bool is_trial) {
    const std::uint64_t arrivals = to_.worker.arrivals();
    const unsigned in_a_row =
        arrivals == last_.arrivals ? std::min(last_.in_a_row + 1, kStreamFrom) : 0;
    last_ = {request.order, arrivals, in_a_row, pattern, is_trial};
    ++advised_[index_of(pattern)].messages;
}

Pattern RndvSender::pattern_of(const Request& request) const {
    return request.order == last_.order ? last_.pattern : Pattern::kTurns;
}

bool RndvSender::is_long_eager_untimed(std::size_t length) {
    const bool is_learnt = to_.lane.is_learning();
    const Pattern now = is_learnt ? pattern() : Pattern::kTurns;
    const bool is_eager = !choose(length, state_of(Buffer{}, length, now)).is_rndv;
    if (!is_learnt || !is_eager)
        return is_eager;
    if (wants_trial(length, now) || until_sample_ == 0)
        return false;
    --until_sample_;
    return true;
}

bool RndvSender::is_timed(const Request& request, std::uint64_t* begun) {
    if (!is_learnt_of(request) || request.order != last_.order)
        return false;
    const bool is_one_part = request.buffer.length + sizeof(Envelope) <= rail().bcopy_max;
    if (is_one_part && !last_.is_trial && until_sample_ > 0) {
        --until_sample_;
        return false;
    }
    until_sample_ = Advisor::kSampleEvery - 1;
    *begun = last_.pattern == Pattern::kStream ? 0 : ucs::ticks_now();
    return true;
}

void RndvSender::set_eager_max(std::uint64_t bytes) {
    const std::uint64_t kept = bytes - std::min<std::uint64_t>(bytes, TW_AM_HEADER_MAX);
    const bool is_set = to_.worker.options.has_rndv_threshold();
    eager_end_ = (is_set ? kept : kept / Options::kEagerShare) + 1;
}

void RndvSender::lead(std::size_t threshold, std::size_t bytes) {
    led_.from = learnt_from(threshold);
    led_.bytes = bytes;
    led_.at = advised_[index_of(Pattern::kTurns)].messages;
}

void RndvSender::note_own_advice(const Advice& own) {
    if (own.regime != led_.advice.regime)
        led_.regime_since = advised_[index_of(Pattern::kTurns)].messages;
    led_.advice = own;
}

/// A threshold of a receiver's, without what is not learnt.
std::size_t RndvSender::learnt_from(std::size_t threshold) const {
    return std::min({threshold, Advisor::learnt_end(), rail().costs().eager_max + 1});
}

bool RndvSender::on_advice(Advice message) {
    const unsigned trials = message.trials & ~unsigned{kTrialsOfEager};
    const Pattern pattern =
        (message.reason & kAdviceOfStream) != 0 ? Pattern::kStream : Pattern::kTurns;
    message.reason &= static_cast<std::uint8_t>(~kAdviceOfStream);
    const bool has_length =
        message.rndv_from == 0 ? trials != 0 : Advisor::is_threshold(message.rndv_from);
    static_assert(Advisor::kTrialMax == kTrialsOfEager - 1, "no number is too large");
    if (!to_.lane.is_learning() || !has_length ||
        !Advisor::is_regime(message.regime, message.regimes, message.reason))
        return false;
    Advised& advised = advised_[index_of(pattern)];
    if (message.regime != advised.advice.regime)
        advised.regime_since = advised.messages;
    advised.trials = trials;
    advised.tries_rndv = (message.trials & kTrialsOfEager) == 0;
    const std::uint32_t before = advised.advice.rndv_from;
    advised.advice = message;
    advised.advice.rndv_from = message.rndv_from == 0
                                   ? before
                                   : static_cast<std::uint32_t>(learnt_from(message.rndv_from));
    return true;
}

/// Makes a buffer known for this message where that is cheap, whether it has a handle or not: so
/// its key ends with the message. Elsewhere one without a handle is kept known. The copy of an
/// injected message is the library's own, which is not kept.
void RndvSender::register_source(Request& request) {
    const Domain& domain = rail().domain();
    const std::size_t index = rail().domain_index();
    if (request.buffer.list != nullptr || request.registration != nullptr ||
        request.cached != nullptr)
        return;
    if (domain.registers_cheaply) {
        if (uct_md_mem_reg(domain.md, request.buffer.base, request.buffer.length,
                           UCT_MD_MEM_ACCESS_REMOTE_GET | UCT_MD_MEM_ACCESS_LOCAL_READ,
                           &request.registration) != UCS_OK)
            request.registration = nullptr;
        request.registered_in = static_cast<std::uint32_t>(index);
    } else if (!has_readable_handle(request) && (rail().can_get() || rail().can_put()) &&
               request.copy == nullptr) {
        request.cached = to_.worker.cache_region(request, index, RegUse::kSource);
    }
}

ucs_status_t RndvSender::start(Request& request) {
    if (request.id == 0 && to_.worker.requests.assign_id(request) == 0)
        return UCS_ERR_NO_MEMORY;
    if (!request.is_announced) {
        const ucs_status_t status = send_request(request);
        if (status != UCS_OK)
            return status;
        to_.worker.count(WorkerCounter::kTxRndv);
        request.is_rndv = true;
    }
    if (goes_as_tagged(request, rail())) {
        const ucs_status_t status = to_.peer.lane.send_placeholder(request);
        if (status != UCS_OK)
            return status;
    }
    to_.worker.set_outstanding(request, to_.peer);
    if (request.wants_cancel)
        to_.peer.lane.cancel(request);
    return UCS_INPROGRESS;
}

// ---- Buffers that are lent

/// A buffer with a handle has a key of its own; a list has several places.
bool RndvSender::may_lend(const Request& request) const {
    return request.buffer.list == nullptr && request.buffer.memory == nullptr && lends(rail()) &&
           to_.worker.options.may_get() && !goes_as_tagged(request, rail());
}

/// UCS_ERR_UNSUPPORTED: it is registered instead.
ucs_status_t RndvSender::lend(const Request& request, Pattern pattern, Rts* rts, Loan* loan) {
    tagwire_uct_loan_t lent;
    const ucs_status_t status =
        tagwire_uct_ep_lend(to_.lane.ep, request.buffer.base, request.buffer.length, &lent);
    if (status != UCS_OK)
        return status;
    *rts = {};
    rts->length = request.buffer.length;
    rts->address = lent.place;
    rts->send_id = request.id;
    rts->key_count = 1;
    rts->flags = flag_of(pattern);
    if (to_.worker.options.may_put() && rail().can_put() && can_put_from(request, rail().domain()))
        rts->flags |= kRtsCanPut;
    *loan = wire_of(lent);
    return UCS_OK;
}

/// As send_request(); UCS_ERR_UNSUPPORTED: nothing was sent.
ucs_status_t RndvSender::send_lent(Request& request, Pattern pattern) {
    Rts rts;
    Loan loan;
    const ucs_status_t status = lend(request, pattern, &rts, &loan);
    if (status != UCS_OK)
        return status;
    Envelope envelope = envelope_of(request, to_.peer.peer_names);
    if (request.is_am) {
        Keys keys;
        keys.add(loan);
        RndvPacking packing{&envelope, &request, &rts, &keys};
        return status_of(uct_ep_am_bcopy(to_.lane.ep, static_cast<std::uint8_t>(AmId::kAmRts),
                                         RndvPacking::pack, &packing, 0));
    }
    std::byte behind[LentRts::kBytes];
    LentRts::of(rts, loan).write(behind);
    const uct_iov_t iov[] = {{&envelope, envelope.bytes, nullptr, 0, 1},
                             {behind, sizeof behind, nullptr, 0, 1}};
    return uct_ep_am_short_iov(to_.lane.ep, static_cast<std::uint8_t>(AmId::kRts), iov, 2);
}

/// Its lane is free, and it goes by rendezvous. While messages are to be tried, takes() decides.
bool RndvSender::may_start_at_once(const Request& request) const {
    constexpr std::uint32_t kPlain = TW_OP_COMPLETION | TW_OP_MORE | TW_OP_TRANSMIT_COMPLETE |
                                     TW_OP_DELIVERY_COMPLETE | TW_OP_MATCH_COMPLETE |
                                     TW_OP_SENT_COMPLETE | TW_OP_QUEUE;
    const std::size_t length = request.buffer.length;
    return (request.flags & ~kPlain) == 0 && !request.is_am && length > 0 && may_lend(request);
}

bool RndvSender::try_start_at_once(Request& request, std::uint64_t order) {
    const Pattern now = pattern();
    if (!may_start_at_once(request) ||
        !choose(request.buffer.length, state_of(request.buffer, request.buffer.length, now))
             .is_rndv ||
        wants_trial(request.buffer.length, now) || to_.worker.requests.assign_id(request) == 0)
        return false;
    if (send_lent(request, now) != UCS_OK) {
        to_.worker.requests.release_id(request);
        return false;
    }
    request.order = order;
    request.is_rndv = true;
    if (is_learnt_of(request))
        count_learnt(request, now, false);
    to_.worker.count(WorkerCounter::kTxRndv);
    to_.worker.set_outstanding(request, to_.peer);
    to_.window.add_message(kKeysBytesMax);
    return true;
}

ucs_status_t RndvSender::send_request(Request& request) {
    const bool may_get = to_.worker.options.may_get();
    const bool may_put = to_.worker.options.may_put();
    if (may_lend(request)) {
        const ucs_status_t status = send_lent(request, pattern_of(request));
        if (status != UCS_ERR_UNSUPPORTED)
            return status;
    }
    if (may_get || may_put)
        register_source(request);
    Keys keys;
    if (const uct_mem_h handle = source_of(request, rail().domain_index());
        may_get && handle != nullptr) {
        keys.add(rail().domain(), rail().domain_index(), handle);
        if (has_readable_handle(request) && request.buffer.length >= rail().striped_from())
            keys.add_others(*request.buffer.memory, rail().domain_index());
    }
    Envelope envelope = envelope_of(request, to_.peer.peer_names);  // the Ats acknowledges
    if (goes_as_tagged(request, rail()))
        envelope.header.flags |= kAnnounced;
    Rts rts{};
    rts.length = request.buffer.length;
    rts.address = reinterpret_cast<std::uintptr_t>(request.buffer.base);
    rts.send_id = request.id;
    rts.key_count = keys.count;
    rts.flags = flag_of(pattern_of(request));
    if (may_put && rail().can_put() && can_put_from(request, rail().domain()))
        rts.flags |= kRtsCanPut;
    RndvPacking packing{&envelope, &request, &rts, &keys};
    const AmId am = request.is_am ? AmId::kAmRts : AmId::kRts;
    return status_of(uct_ep_am_bcopy(to_.lane.ep, static_cast<std::uint8_t>(am), RndvPacking::pack,
                                     &packing, 0));
}

// ---- The receiver has answered

bool RndvSender::may_end(const Request* request) const {
    return request != nullptr && to_.peer.lane.is_of(request->ep) &&
           request->kind == RequestKind::kSend && request->is_outstanding && request->is_rndv &&
           !request->is_queued && request->transfer == nullptr;
}

/// A rendezvous of ours whose receiver may choose now how its data moves. Only such a buffer is the
/// library's to read: that of an eager message is its program's again, though its acknowledgement
/// is still to come.
bool RndvSender::awaits_receiver(const Request* request) const {
    return may_end(request) && request->peer_id == 0;
}

bool RndvSender::keeps_receiver_busy(std::uint64_t bytes) const {
    const Request* const last = to_.messages.back();
    return last != nullptr && awaits_receiver(last) && last->buffer.length >= bytes / 2;
}

/// `request` awaits_receiver().
void RndvSender::send_data(Request& request, std::uint32_t receive_id, std::uint64_t bytes) {
    request.peer_id = receive_id;
    request.wanted = bytes;
    request.offset = 0;
    to_.peer.lane.add_data(request);
}

/// The receiver asks for its data.
bool RndvSender::on_cts(Cts message, Request* request) {
    const bool is_there =
        request != nullptr && request->kind == RequestKind::kSend && request->is_outstanding;
    if (!is_there) {  // nobody waits for what is not there
        to_.peer.lane.control(
            DataEnd{.receive_id = message.receive_id, .status = UCS_ERR_CANCELED});
        return true;
    }
    if (!awaits_receiver(request) || message.receive_id == 0 || message.bytes == 0 ||
        message.bytes > request->buffer.length)
        return false;
    send_data(*request, message.receive_id, message.bytes);
    return true;
}

/// The pieces are in the peer's memory, or one has failed: the receiver is told, behind a fence.
/// After a failure of the endpoint, fail() ends the requests that wait.
void RndvSender::all_is_written(Request& request, ucs_status_t status) {
    if (to_.lane.state == EpState::kFailed)
        return;
    if (status == UCS_OK)
        status = uct_ep_fence(to_.lane.ep, 0);
    end_transfer(request);
    to_.peer.lane.control(DataEnd{.receive_id = request.peer_id, .status = status});
    if (status != UCS_OK)
        to_.worker.finish(request, status);
}

/// nullptr: the sender cannot write.
std::unique_ptr<Transfer> RndvSender::make_write(Request& request, const Rtr& rtr,
                                                 std::span<const std::byte> key) {
    const Domain& domain = rail().domain();
    if (!rail().can_put() || key.size() != domain.attr.rkey_packed_size ||
        !can_put_from(request, domain))
        return nullptr;
    const TransferPorts ports{to_.worker, to_.peer.lane};
    auto write = std::make_unique<Transfer>(request, ports, [](Request& of, ucs_status_t status) {
        static_cast<RndvSender*>(of.transfer->mover)->all_is_written(of, status);
    });
    write->mover = this;
    TransferPart& own = write->own;
    if (uct_rkey_unpack(domain.component, key.data(), &own.key) != UCS_OK)
        return nullptr;
    own.component = domain.component;
    own.end = rtr.length;
    write->is_put = true;
    write->address = rtr.address;
    if (request.buffer.memory != nullptr) {
        own.memh = request.buffer.memory->handle(rail().domain_index());
    } else if (request.cached != nullptr) {
        own.cached = std::exchange(request.cached, nullptr);
        own.memh = own.cached->handle;
    }
    return write;
}

/// The receiver offers its buffer.
bool RndvSender::on_rtr(const RtrMessage& message, Request* request, std::uint8_t peer_domain) {
    const Rtr& rtr = message.rtr;
    if (!awaits_receiver(request) || rtr.length > request->buffer.length)
        return false;
    std::unique_ptr<Transfer> write;
    if (rtr.domain == peer_domain) {
        const WireBytes key = message.keys.all().subspan(sizeof(KeyHead), rtr.key_bytes);
        write = make_write(*request, rtr, key);
    }
    if (write == nullptr) {
        send_data(*request, rtr.receive_id, rtr.length);
        to_.peer.lane.run();
        return true;
    }
    request->peer_id = rtr.receive_id;
    request->wanted = rtr.length;
    request->offset = 0;
    request->transfer = write.release();
    to_.peer.lane.begin_transfer(*request, message.keys.all(), (rtr.flags & kRtrByConnection) != 0);
    return true;
}

ucs_status_t RndvSender::send_piece(Request& request) {
    struct Piece {
        RndvData head;
        const Request* request;
        std::size_t bytes;
        CopyIn copy;
    } piece{{request.offset, request.peer_id, to_.peer.peer_names},
            &request,
            0,
            CopyIn::of(to_.copies, request.wanted)};
    piece.bytes = std::min<std::uint64_t>(rail().bcopy_max - sizeof(RndvData),
                                          request.wanted - request.offset);
    const auto pack = [](void* to, void* arg) {
        const auto& packed = *static_cast<const Piece*>(arg);
        std::memcpy(to, &packed.head, sizeof packed.head);
        packed.copy.run(packed.bytes, [&](ucs::CopyKind kind) {
            packed.request->buffer.gather(static_cast<std::byte*>(to) + sizeof packed.head,
                                          packed.request->offset, packed.bytes, kind);
        });
        return sizeof packed.head + packed.bytes;
    };
    const ssize_t sent =
        uct_ep_am_bcopy(to_.lane.ep, static_cast<std::uint8_t>(AmId::kData), pack, &piece, 0);
    if (sent == UCS_ERR_NO_RESOURCE)
        return UCS_ERR_NO_RESOURCE;
    request.offset += piece.bytes;
    if (sent < 0 || request.offset == request.wanted) {
        to_.peer.lane.remove(request);
        if (request.wanted < request.buffer.length)
            request.peer_id = 0;  // it may have been the start that a buffered receive shows
    }
    if (sent < 0) {
        to_.peer.lane.control(
            DataEnd{.receive_id = request.peer_id, .status = static_cast<std::int32_t>(sent)});
        to_.worker.finish(request, static_cast<ucs_status_t>(sent));
    }
    return UCS_OK;
}

}  // namespace tagwire::proto
