// SPDX-License-Identifier: BSD-3-Clause
// Rendezvous by put: the receiver tells the sender where its buffer is and by which key, and the
// sender writes. When all pieces are written it tells the receiver, behind a fence.
#include <cstring>
#include <memory>
#include <span>

#include "protocols/endpoint.hpp"
#include "protocols/envelope.hpp"
#include "protocols/keys.hpp"
#include "protocols/memory.hpp"
#include "protocols/rail.hpp"
#include "protocols/receiver.hpp"
#include "protocols/transfer.hpp"
#include "protocols/worker_core.hpp"

namespace tagwire::proto {

namespace {

struct RtrPacking {
    Rtr rtr;
    std::byte key[UINT8_MAX];
    Keys others;

    static std::size_t pack(void* to, void* arg) {
        const auto& packing = *static_cast<const RtrPacking*>(arg);
        std::memcpy(to, &packing.rtr, sizeof packing.rtr);
        std::memcpy(static_cast<std::byte*>(to) + sizeof packing.rtr, packing.key,
                    packing.rtr.key_bytes);
        std::memcpy(static_cast<std::byte*>(to) + sizeof packing.rtr + packing.rtr.key_bytes,
                    packing.others.bytes, packing.others.used);
        return sizeof packing.rtr + packing.rtr.key_bytes + packing.others.used;
    }
};

/// The handle by which peers write the receiver's buffer.
uct_mem_h target_of(const Request& request, std::size_t domain) {
    if (request.registration != nullptr)
        return request.registration;
    return request.buffer.memory != nullptr ? request.buffer.memory->handle(domain)
                                            : request.cached->handle;
}

/// nullptr: the sender cannot write.
std::unique_ptr<Transfer> make_write(Request& request, const Rail& rail, const Rtr& rtr,
                                     std::span<const std::byte> key) {
    const Domain& domain = rail.domain();
    if (!rail.can_put() || key.size() != domain.attr.rkey_packed_size ||
        !can_put_from(request, domain))
        return nullptr;
    auto write = std::make_unique<Transfer>(
        request, [](Request& done, ucs_status_t status) { done.ep->all_is_written(done, status); });
    TransferPart& own = write->own;
    if (uct_rkey_unpack(domain.component, key.data(), &own.key) != UCS_OK)
        return nullptr;
    own.component = domain.component;
    own.end = rtr.length;
    write->is_put = true;
    write->address = rtr.address;
    if (request.buffer.memory != nullptr) {
        own.memh = request.buffer.memory->handle(rail.domain_index());
    } else if (request.cached != nullptr) {
        own.cache = request.worker->context().cache();
        own.cached = std::exchange(request.cached, nullptr);
        own.memh = own.cached->handle;
    }
    return write;
}

}  // namespace

bool can_put_from(const Request& request, const Domain& domain) {
    return request.buffer.memory != nullptr || request.cached != nullptr ||
           (domain.attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) == 0;
}

// ---- The receiver

/// False: a copy must do.
bool Receiver::register_target(Request& request, const Rail& rail) {
    const std::size_t index = rail.domain_index();
    if (rail.domain().attr.rkey_packed_size > UINT8_MAX)
        return false;
    if (!rail.domain().registers_cheaply) {
        if (request.buffer.memory != nullptr)
            return true;
        request.cached = worker_.cache_region(request, index, RegUse::kTarget);
        return request.cached != nullptr;
    }
    request.registered_in = static_cast<std::uint32_t>(index);
    return uct_md_mem_reg(rail.domain().md, request.buffer.base, request.wanted,
                          UCT_MD_MEM_ACCESS_REMOTE_PUT | UCT_MD_MEM_ACCESS_LOCAL_WRITE,
                          &request.registration) == UCS_OK;
}

Endpoint::Step Endpoint::send_rtr(Request& request) {
    const Domain& domain = rail_->domain();
    RtrPacking packing{};
    packing.rtr = {peer_names,
                   request.peer_id,
                   request.id,
                   static_cast<std::uint8_t>(rail_->domain_index()),
                   static_cast<std::uint8_t>(domain.attr.rkey_packed_size),
                   0,
                   0,
                   request.wanted,
                   reinterpret_cast<std::uintptr_t>(request.buffer.base)};
    ucs_status_t status =
        uct_md_mkey_pack(domain.md, target_of(request, rail_->domain_index()), packing.key);
    // A handle's key ends with a connection of the endpoint's own, and with nothing else.
    if (request.buffer.memory != nullptr && worker.options().scheme() == RndvScheme::kAuto)
        packing.rtr.flags = kRtrByConnection;
    if (request.buffer.memory != nullptr && request.wanted >= rail_->striped_from()) {
        packing.others.add_others(*request.buffer.memory, rail_->domain_index());
        packing.rtr.key_count = packing.others.count;
    }
    if (status == UCS_OK) {
        status = status_of(uct_ep_am_bcopy(lane_, static_cast<std::uint8_t>(AmId::kRtr),
                                           RtrPacking::pack, &packing, 0));
    }
    if (status == UCS_ERR_NO_RESOURCE)
        return Step::kFull;
    data_.pop_front();
    request.is_queued = false;
    if (status != UCS_OK)
        worker.receiver().rndv_ended(request, status);
    return Step::kDone;
}

/// The sender says that it has written everything. False: it was not offered that.
bool Receiver::rndv_written(Request& request) {
    if (!request.is_offered || request.offset > 0)
        return false;
    worker_.count(WorkerCounter::kRndvPut);
    rndv_ended(request, UCS_OK);
    return true;
}

// ---- The sender

void Endpoint::on_rtr(const RtrMessage& message) {
    const Rtr& rtr = message.rtr;
    Request* request = worker.requests().find(rtr.send_id);
    if (!awaits_receiver(request) || rtr.length > request->buffer.length)
        return worker.count(WorkerCounter::kGarbage);
    std::unique_ptr<Transfer> write;
    if (rtr.domain == domain_of_peer(peer_rail_)) {
        const WireBytes key = message.keys.all().subspan(sizeof(KeyHead), rtr.key_bytes);
        write = make_write(*request, *rail_, rtr, key);
    }
    if (write == nullptr) {
        send_data(*request, rtr.receive_id, rtr.length);
        return drain_and_arm();
    }
    request->peer_id = rtr.receive_id;
    request->wanted = rtr.length;
    request->offset = 0;
    request->transfer = write.release();
    begin_transfer(*request, message.keys.all(), (rtr.flags & kRtrByConnection) != 0);
}

/// The pieces are in the peer's memory, or one has failed. After a failure of the endpoint, fail()
/// ends the requests that wait.
void Endpoint::all_is_written(Request& request, ucs_status_t status) {
    if (state_ == EpState::kFailed)
        return;
    if (status == UCS_OK)
        status = uct_ep_fence(lane_, 0);
    end_transfer(request);
    control(DataEnd{.receive_id = request.peer_id, .status = status});
    if (status != UCS_OK)
        worker.finish(request, status);
}

}  // namespace tagwire::proto
