// SPDX-License-Identifier: BSD-3-Clause
// The receiver of a rendezvous after the match. It decides (scheme.hpp) whether it reads the data,
// lets the sender write it, or asks for it in messages.
#include <algorithm>
#include <cstring>
#include <memory>

#include "protocols/endpoint.hpp"
#include "protocols/keys.hpp"
#include "protocols/memory.hpp"
#include "protocols/rail.hpp"
#include "protocols/receiver.hpp"
#include "protocols/scheme.hpp"
#include "protocols/transfer.hpp"
#include "protocols/worker_core.hpp"

namespace tagwire::proto {

namespace {

/// Steps of Endpoint::kStepsMax that beginning some pieces takes: they may move at once.
constexpr unsigned kStepsOfPieces = 8;

/// A message may overtake the peer's hello; then nothing is known of the peer's rails, and only a
/// copy is sure.
std::span<const std::byte> key_for(const Endpoint& ep, std::span<const std::byte> keys) {
    if (ep.state() != EpState::kReady)
        return {};
    const auto key = key_of(keys, ep.domain_of_peer(ep.peer_rail()));
    return key.size() == ep.rail().domain().attr.rkey_packed_size ? key
                                                                  : std::span<const std::byte>{};
}

RndvFacts facts_of(const Request& request, const Endpoint& ep, const Rts& rts, bool has_key) {
    const Rail& rail = ep.rail();
    const Domain& domain = rail.domain();
    const Buffer& buffer = request.buffer;
    const bool has_handle = buffer.memory != nullptr;
    const bool is_one_piece = buffer.list == nullptr;
    // Memory of the library's own is given back soon, and the cache would keep it.
    const bool may_cache =
        is_one_piece && !request.is_internal && ep.worker.context().cache() != nullptr;
    RndvFacts facts{};
    facts.can_write_here =
        has_handle || may_cache || (domain.attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) == 0;
    // A sender that had written the start of its message would take that for all of it.
    facts.can_give_key =
        is_one_piece && !request.is_start && (has_handle || may_cache || domain.registers_cheaply);
    // A handle stays; its key ends with a connection of the endpoint's own.
    facts.takes_key_back = !domain.registers_cheaply && (!has_handle || !rail.connects_to_iface());
    facts.has_peer_key = has_key;
    facts.peer_can_put = (rts.flags & kRtsCanPut) != 0;
    return facts;
}

/// nullptr: the cache has no room, or the key is none.
std::unique_ptr<Transfer> make_read(Request& request, const Endpoint& ep, std::uint64_t address,
                                    std::span<const std::byte> key) {
    const Domain& domain = ep.rail().domain();
    const std::size_t index = ep.rail().domain_index();
    auto read = std::make_unique<Transfer>(request, [](Request& done, ucs_status_t status) {
        done.worker->receiver().rndv_ended(done, status);
    });
    TransferPart& own = read->own;
    if (uct_rkey_unpack(domain.component, key.data(), &own.key) != UCS_OK)
        return nullptr;
    own.component = domain.component;
    own.end = request.wanted;
    read->address = address;
    if (request.buffer.memory != nullptr) {
        own.memh = request.buffer.memory->handle(index);
    } else if ((domain.attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) != 0) {
        own.cache = request.worker->context().cache();
        own.cached = request.worker->cache_region(request, index, RegUse::kTarget);
        if (own.cached == nullptr)
            return nullptr;
        own.memh = own.cached->handle;
    }
    return read;
}

}  // namespace

void Receiver::count_copy() {
    worker_.count(WorkerCounter::kRndvCopy);
    if (worker_.options().scheme() != RndvScheme::kAuto &&
        worker_.options().scheme() != RndvScheme::kCopy)
        worker_.count(WorkerCounter::kRndvFallback);
}

void Receiver::begin_rndv(Request& request, Endpoint& ep, const Rts& rts,
                          std::span<const std::byte> keys) {
    worker_.count(WorkerCounter::kRxRndv);
    request.wanted = std::min<std::uint64_t>(rts.length, request.buffer.length);
    request.offset = 0;
    request.peer_id = rts.send_id;
    request.done.message_length = rts.length;
    worker_.set_outstanding(request, ep);
    if (request.wanted == 0)
        return rndv_ended(request, UCS_OK);
    RndvScheme scheme = RndvScheme::kCopy;
    if (ep.state() == EpState::kReady) {
        const auto key = key_for(ep, keys);
        const RndvFacts facts = facts_of(request, ep, rts, !key.empty());
        scheme =
            pick_scheme(available_schemes(ep.rail(), facts), worker_.options().scheme(), facts);
        if (scheme == RndvScheme::kGet) {
            if (auto read = make_read(request, ep, rts.address, key)) {
                request.transfer = read.release();
                worker_.count(WorkerCounter::kRndvGet);
                return ep.begin_transfer(request, keys, false);
            }
        }
    }
    if (request.id == 0 && worker_.requests().assign_id(request) == 0)
        return rndv_ended(request, UCS_ERR_NO_MEMORY);
    if (scheme == RndvScheme::kPut && register_target(request, ep.rail())) {
        request.is_offered = true;
        return ep.queue_transfer(request);
    }
    count_copy();
    ep.control(Cts{.send_id = rts.send_id, .receive_id = request.id, .bytes = request.wanted});
}

/// The data is here, or will not come: the sender is told, and the receive ends.
void Receiver::rndv_ended(Request& request, ucs_status_t status) {
    Endpoint& ep = *request.ep;
    if (!request.is_start || status != UCS_OK)
        ep.control(Ats{.send_id = request.peer_id, .status = status});
    request.done.length = request.wanted;
    if (status == UCS_OK && request.done.message_length > request.wanted)
        status = UCS_ERR_MESSAGE_TRUNCATED;
    worker_.finish(request, status);
}

/// A rendezvous of ours whose receiver may choose now how its data moves. Only such a buffer is the
/// library's to read: that of an eager message is its program's again, though its acknowledgement
/// is still to come.
bool Endpoint::awaits_receiver(const Request* request) const {
    return is_rndv_of_ours(request) && request->peer_id == 0;
}

/// ... whose data no device and no queue of ours has: it may be said to have ended.
bool Endpoint::is_rndv_of_ours(const Request* request) const {
    return request != nullptr && request->ep == this && request->kind == RequestKind::kSend &&
           request->is_outstanding && request->is_rndv && !request->is_queued &&
           request->transfer == nullptr;
}

/// `request` awaits_receiver().
void Endpoint::send_data(Request& request, std::uint32_t receive_id, std::uint64_t bytes) {
    request.peer_id = receive_id;
    request.wanted = bytes;
    request.offset = 0;
    request.is_queued = true;
    data_.push_back(request);
}

void Endpoint::drop_data(Request& request) {
    data_.remove_if([&](Request& queued) { return &queued == &request; });
    request.is_queued = false;
}

/// One step of the first that waits.
Endpoint::Step Endpoint::drain_data() {
    Request* request = data_.front();
    if (request == nullptr)
        return Step::kIdle;
    if (request->transfer != nullptr)
        return move_pieces(*request);
    return request->kind == RequestKind::kReceive ? send_rtr(*request) : send_piece(*request);
}

/// Pieces of a transfer, or an offer to the sender to write it, wait for room.
void Endpoint::queue_transfer(Request& request) {
    request.is_queued = true;
    data_.push_back(request);
    drain_and_arm();
}

/// Pieces of the own lane's part of a transfer.
Endpoint::Step Endpoint::move_pieces(Request& request) {
    TransferPart& part = request.transfer->own;
    steps_left_ -= std::min(steps_left_, kStepsOfPieces);
    if (!part.begin_pieces(lane_, *rail_))
        return Step::kFull;
    data_.pop_front();
    request.is_queued = false;
    part.release();
    return Step::kDone;
}

Endpoint::Step Endpoint::send_piece(Request& request) {
    struct Piece {
        RndvData head;
        const Request* request;
        std::size_t bytes;
    } piece{{request.offset, request.peer_id, peer_names}, &request, 0};
    piece.bytes = std::min<std::uint64_t>(rail_->bcopy_max - sizeof(RndvData),
                                          request.wanted - request.offset);
    const auto pack = [](void* to, void* arg) {
        const auto& packed = *static_cast<const Piece*>(arg);
        std::memcpy(to, &packed.head, sizeof packed.head);
        packed.request->buffer.gather(static_cast<std::byte*>(to) + sizeof packed.head,
                                      packed.request->offset, packed.bytes);
        return sizeof packed.head + packed.bytes;
    };
    const ssize_t sent =
        uct_ep_am_bcopy(lane_, static_cast<std::uint8_t>(AmId::kData), pack, &piece, 0);
    if (sent == UCS_ERR_NO_RESOURCE)
        return Step::kFull;
    request.offset += piece.bytes;
    if (sent < 0 || request.offset == request.wanted) {
        data_.pop_front();
        request.is_queued = false;
        if (request.wanted < request.buffer.length)
            request.peer_id = 0;  // it may have been the start that a buffered receive shows
    }
    if (sent < 0) {
        control(DataEnd{.receive_id = request.peer_id, .status = static_cast<std::int32_t>(sent)});
        worker.finish(request, static_cast<ucs_status_t>(sent));
    }
    return Step::kDone;
}

}  // namespace tagwire::proto
