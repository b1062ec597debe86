// SPDX-License-Identifier: BSD-3-Clause
// Rendezvous after the match. The receiver decides: it reads the data where it has a key that its
// lane can use, else it asks the sender to send it.
#include <algorithm>
#include <cstring>
#include <memory>

#include "protocols/endpoint.hpp"
#include "protocols/memory.hpp"
#include "protocols/rail.hpp"
#include "protocols/worker.hpp"

namespace tagwire::proto {

namespace {

/// Pieces that are read at a time; larger ones would keep one peer's progress to themselves.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

}  // namespace

/// A rendezvous that is read.
struct RndvRead {
    uct_rkey_bundle_t key{};
    uct_component_h component = nullptr;
    uct_mem_h memh = UCT_MEM_HANDLE_NULL;  // of our buffer
    CachedRegion* cached = nullptr;        // whose it is
    RegCache* cache = nullptr;
    std::uint64_t address = 0;  // of the peer's
    OwnedBy<uct_completion_t, RndvRead> done{};
    Request* request = nullptr;  // null: it has ended, and only the pieces are waited for

    RndvRead() = default;
    RndvRead(const RndvRead&) = delete;
    RndvRead& operator=(const RndvRead&) = delete;
    ~RndvRead() {
        if (cached != nullptr)
            cache->release(*cached, true);
        if (component != nullptr)
            uct_rkey_release(component, &key);
    }

    static void pieces_done(uct_completion_t* self) {
        RndvRead* read = static_cast<OwnedBy<uct_completion_t, RndvRead>*>(self)->owner;
        if (read->request == nullptr) {
            delete read;
        } else if (self->status != UCS_OK) {
            read->request->worker->rndv_ended(*read->request, self->status);
        } else if (read->request->offset == read->request->wanted) {
            read->request->worker->rndv_ended(*read->request, UCS_OK);
        } else {
            read->request->ep->queue_read(*read->request);
        }
    }
};

namespace {

/// The key of `domain` among those of a request for rendezvous.
std::span<const std::byte> key_of(std::span<const std::byte> keys, std::uint8_t domain) {
    while (keys.size() >= sizeof(KeyHead)) {
        KeyHead head{};
        std::memcpy(&head, keys.data(), sizeof head);
        if (keys.size() - sizeof head < head.bytes)
            break;
        if (head.domain == domain)
            return keys.subspan(sizeof head, head.bytes);
        keys = keys.subspan(sizeof head + head.bytes);
    }
    return {};
}

/// The handle of the receiver's buffer: it has one, or needs none, or the cache has.
bool local_handle(Request& request, const Domain& domain, std::size_t index, RndvRead& read) {
    if (request.buffer.memory != nullptr) {
        read.memh = request.buffer.memory->handle(index);
        return true;
    }
    if ((domain.attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) == 0)
        return true;
    read.cache = request.worker->context().cache();
    read.cached = request.worker->cache_region(request, index, RegUse::kTarget);
    if (read.cached == nullptr)
        return false;
    read.memh = read.cached->handle;
    return true;
}

/// nullptr: the data cannot be read from here. A message may overtake the peer's hello; then
/// nothing is known of the peer's rails.
std::unique_ptr<RndvRead> make_read(Request& request, const Endpoint& ep, const Rndv& rndv,
                                    std::span<const std::byte> keys) {
    if (ep.state() != EpState::kReady || !ep.rail().can_get())
        return nullptr;
    const Rail& rail = ep.rail();
    const std::span<const std::byte> key = key_of(keys, ep.domain_of_peer(ep.peer_rail()));
    auto read = std::make_unique<RndvRead>();
    if (key.size() != rail.domain().attr.rkey_packed_size ||
        uct_rkey_unpack(rail.domain().component, key.data(), &read->key) != UCS_OK)
        return nullptr;
    read->component = rail.domain().component;
    if (!local_handle(request, rail.domain(), rail.domain_index(), *read))
        return nullptr;
    read->address = rndv.address;
    read->request = &request;
    return read;
}

}  // namespace

void Worker::begin_rndv(Request& request, Endpoint& ep, const Rndv& rndv,
                        std::span<const std::byte> keys) {
    count(WorkerCounter::kRxRndv);
    request.wanted = std::min<std::uint64_t>(rndv.length, request.buffer.length);
    request.offset = 0;
    request.peer_id = rndv.send_id;
    request.done.message_length = rndv.length;
    set_outstanding(request, ep);
    if (request.wanted == 0)
        return rndv_ended(request, UCS_OK);
    if (auto read = make_read(request, ep, rndv, keys)) {
        request.read = read.release();
        count(WorkerCounter::kRndvGet);
        return ep.queue_read(request);
    }
    count(WorkerCounter::kRndvCopy);
    if (request.id == 0 && name(request) == 0)
        return rndv_ended(request, UCS_ERR_NO_MEMORY);
    ep.control(ControlOp::kCts, rndv.send_id, static_cast<std::int32_t>(request.id),
               request.wanted);
}

/// The data is here, or will not come: the sender is told, and the receive ends.
void Worker::rndv_ended(Request& request, ucs_status_t status) {
    Endpoint& ep = *request.ep;
    ep.control(ControlOp::kAts, request.peer_id, status);
    request.done.length = request.wanted;
    if (status == UCS_OK && request.done.message_length > request.wanted)
        status = UCS_ERR_MESSAGE_TRUNCATED;
    finish(request, status);
}

/// Lets go of what a read needs; pieces under way end by themselves.
void end_read(Request& request) {
    if (request.read == nullptr)
        return;
    RndvRead* read = std::exchange(request.read, nullptr);
    if (read->done.count > 0) {
        read->request = nullptr;
    } else {
        delete read;
    }
}

void Endpoint::queue_read(Request& request) {
    request.is_queued = true;
    data_.push_back(request);
    drain_and_arm();
}

void Endpoint::send_data(Request& request, std::uint32_t receive_id, std::uint64_t bytes) {
    if (request.is_queued || request.peer_id != 0 || bytes > request.buffer.length || bytes == 0)
        return worker.count(WorkerCounter::kGarbage);
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
ucs_status_t Endpoint::drain_data() {
    Request* request = data_.front();
    if (request == nullptr)
        return UCS_OK;
    return request->kind == RequestKind::kReceive ? read_pieces(*request) : send_piece(*request);
}

ucs_status_t Endpoint::send_piece(Request& request) {
    struct Piece {
        Data head;
        const Request* request;
        std::size_t bytes;
    } piece{{request.offset, request.peer_id, peer_names}, &request, 0};
    piece.bytes =
        std::min<std::uint64_t>(rail_->bcopy_max - sizeof(Data), request.wanted - request.offset);
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
        return UCS_ERR_NO_RESOURCE;
    request.offset += piece.bytes;
    if (sent < 0 || request.offset == request.wanted) {
        data_.pop_front();
        request.is_queued = false;
    }
    if (sent < 0) {
        control(ControlOp::kDataEnd, request.peer_id, static_cast<std::int32_t>(sent));
        worker.finish(request, static_cast<ucs_status_t>(sent));
    }
    return UCS_INPROGRESS;
}

/// Begins as many pieces as may be under way at a time; they end together.
ucs_status_t Endpoint::read_pieces(Request& request) {
    RndvRead& read = *request.read;
    const std::size_t most = std::min(rail_->attr().cap.get.max_zcopy, kPieceBytes);
    read.done.func = RndvRead::pieces_done;
    read.done.owner = &read;
    read.done.status = UCS_OK;
    read.done.count = 1;  // ours, so that it does not fire before all are begun
    ucs_status_t status = UCS_OK;
    for (std::uint64_t i = 0;
         i < worker.options().rndv_fragments && request.offset < request.wanted; ++i) {
        uct_iov_t iov{nullptr, 0, read.memh, 0, 1};
        iov.buffer = request.buffer.piece(request.offset, &iov.length);
        iov.length = std::min({iov.length, most, request.wanted - request.offset});
        ++read.done.count;
        status = uct_ep_get_zcopy(lane_, &iov, 1, read.address + request.offset, read.key.rkey,
                                  &read.done);
        if (status != UCS_INPROGRESS)
            --read.done.count;
        if (status != UCS_OK && status != UCS_INPROGRESS)
            break;
        request.offset += iov.length;
    }
    const bool has_begun = read.done.count > 1;
    if (status == UCS_ERR_NO_RESOURCE && !has_begun) {
        read.done.count = 0;
        return status;
    }
    if (status < 0 && status != UCS_ERR_NO_RESOURCE)
        uct_completion_update_status(&read.done, status);
    data_.pop_front();
    request.is_queued = false;
    if (--read.done.count == 0)
        RndvRead::pieces_done(&read.done);
    return UCS_INPROGRESS;
}

}  // namespace tagwire::proto
