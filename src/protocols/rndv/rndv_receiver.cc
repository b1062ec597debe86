// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/rndv/rndv_receiver.hpp"

#include <algorithm>
#include <cstring>

#include "protocols/cost/options.hpp"
#include "protocols/request/envelope.hpp"
#include "protocols/request/keys.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/request/reg_leases.hpp"
#include "protocols/request/request_table.hpp"
#include "protocols/rndv/read_timing.hpp"
#include "protocols/wire/control_message.hpp"

namespace tagwire::proto {

namespace {

/// Its owner lets peers write to the memory.
bool has_writable_handle(const Request& request) {
    return request.buffer.memory != nullptr && request.buffer.memory->may_be_written();
}

RndvReceiver& receiver_of(const Request& request) {
    return *static_cast<RndvReceiver*>(request.transfer->mover);
}

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
    return has_writable_handle(request) ? request.buffer.memory->handle(domain)
                                        : request.cached->handle;
}

}  // namespace

/// Nothing waits for the lane: what is sent now overtakes nothing, nor is read before its turn.
bool RndvReceiver::is_free() const {
    return to_.lane.is_ready() && to_.peer.lane.is_free();
}

/// The sender may send the data of this receive, or say how that ended: it was asked to, and
/// nothing of this side is moving it.
bool RndvReceiver::awaits_data(const Request* request) const {
    return request != nullptr && to_.peer.lane.is_of(request->ep) &&
           request->kind == RequestKind::kReceive && request->is_outstanding &&
           !request->is_queued && request->transfer == nullptr;
}

void RndvReceiver::count_copy() {
    to_.worker.count(WorkerCounter::kRndvCopy);
    const RndvScheme wanted = to_.worker.options.scheme();
    if (wanted != RndvScheme::kAuto && wanted != RndvScheme::kCopy)
        to_.worker.count(WorkerCounter::kRndvFallback);
}

// ---- The way of the data

void RndvReceiver::begin(Request& request, const Rts& rts, std::span<const std::byte> keys) {
    to_.worker.count(WorkerCounter::kRxRndv);
    request.wanted = std::min<std::uint64_t>(rts.length, request.buffer.length);
    request.offset = 0;
    request.peer_id = rts.send_id;
    request.done.message_length = rts.length;
    to_.worker.set_outstanding(request, to_.peer);
    if (request.wanted == 0)
        return end(request, UCS_OK);
    if (begin_lent(request, rts, keys))
        return;
    const auto key = key_for(keys);
    const RndvScheme scheme = scheme_for(request, rts, !key.empty());
    if (scheme == RndvScheme::kGet) {
        if (auto read = make_read(request, rts, key)) {
            request.transfer = read.release();
            to_.worker.count(WorkerCounter::kRndvGet);
            return to_.peer.lane.begin_transfer(request, keys, false);
        }
    }
    if (scheme != RndvScheme::kPut)
        return ask_for_data(request);
    if (request.id == 0 && to_.worker.requests.assign_id(request) == 0)
        return end(request, UCS_ERR_NO_MEMORY);
    if (!register_target(request))
        return ask_for_data(request);
    request.is_offered = true;
    to_.peer.lane.push_data(request);
}

/// A message may overtake the peer's hello; then nothing is known of the peer's rails, and only a
/// copy is sure.
std::span<const std::byte> RndvReceiver::key_for(std::span<const std::byte> keys) const {
    if (!to_.lane.is_ready())
        return {};
    const auto key = key_of(keys, to_.lane.peer_domain);
    return key.size() == rail().domain().attr.rkey_packed_size ? key : std::span<const std::byte>{};
}

RndvScheme RndvReceiver::scheme_for(const Request& request, const Rts& rts, bool has_key) const {
    if (!to_.lane.is_ready())
        return RndvScheme::kCopy;
    const Domain& domain = rail().domain();
    const Buffer& buffer = request.buffer;
    const bool gives_handle = has_writable_handle(request);
    const bool is_one_piece = buffer.list == nullptr;
    // Memory of the library's own is given back soon, and the cache would keep it.
    const bool may_cache = is_one_piece && !request.is_internal && to_.worker.has_cache;
    RndvFacts facts{};
    facts.can_write_here = buffer.memory != nullptr || may_cache ||
                           (domain.attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) == 0;
    // A sender that had written the start of its message would take that for all of it.
    facts.can_give_key = is_one_piece && !request.is_start &&
                         (gives_handle || may_cache || domain.registers_cheaply);
    // A handle stays; its key ends with a connection of the endpoint's own.
    facts.takes_key_back =
        !domain.registers_cheaply && (!gives_handle || !rail().connects_to_iface());
    facts.has_peer_key = has_key;
    facts.peer_can_put = (rts.flags & kRtsCanPut) != 0;
    return pick_scheme(available_schemes(rail().costs(), facts), to_.worker.options.scheme(),
                       facts);
}

/// The receiver learns from such a message: data of active messages waits for the program.
Timing RndvReceiver::timing_for(const Request& request, const Rts& rts) const {
    const bool learns = learning_.is_on() && (request.done.flags & TW_DONE_AM) == 0;
    return timing_of(learns, rts, request.wanted);
}

void RndvReceiver::ask_for_data(Request& request) {
    if (request.id == 0 && to_.worker.requests.assign_id(request) == 0)
        return end(request, UCS_ERR_NO_MEMORY);
    count_copy();
    to_.peer.lane.control(
        Cts{.send_id = request.peer_id, .receive_id = request.id, .bytes = request.wanted});
}

// ---- Reads

/// False: the sender has lent nothing that this side may read.
bool RndvReceiver::begin_lent(Request& request, const Rts& rts, std::span<const std::byte> keys) {
    tagwire_uct_loan_t loan;
    if (!to_.lane.is_ready() || !to_.worker.options.may_get() || !loan_of(keys, rts, &loan))
        return false;
    if (to_.sender.keeps_receiver_busy(rts.length))
        loan.id = 0;
    if (try_read_lent(request, rts, loan)) {
        end(request, UCS_OK);
        return true;
    }
    request.transfer = make_lent_read(request, rts, loan).release();
    to_.peer.lane.push_data(request);
    return true;
}

/// Reads into a buffer of one piece where nothing waits for the lane. False: a Transfer is to do
/// it, since it takes longer than a call, or another reason, which that meets again.
bool RndvReceiver::try_read_lent(Request& request, const Rts& rts, const tagwire_uct_loan_t& loan) {
    if (request.buffer.list != nullptr || request.wanted > kReadAtOnceMax || !is_free())
        return false;
    const Timing timing = timing_for(request, rts);
    const uct_iov_t iov{request.buffer.base, request.wanted, UCT_MEM_HANDLE_NULL, 0, 1};
    if (tagwire_uct_ep_read_lent(to_.lane.ep, &iov, 1, &loan, nullptr) != UCS_OK)
        return false;
    count_lent_read();
    if (timing.is_wanted())
        learning_.add(true, request.wanted, timing);
    return true;
}

std::unique_ptr<Transfer> RndvReceiver::make_lent_read(Request& request, const Rts& rts,
                                                       const tagwire_uct_loan_t& loan) {
    const TransferPorts ports{to_.worker, to_.peer.lane};
    auto read = std::make_unique<Transfer>(request, ports, [](Request& of, ucs_status_t status) {
        receiver_of(of).lent_read_ended(of, status);
    });
    read->mover = this;
    read->is_lent = true;
    read->loan = loan;
    read->own.end = request.wanted;
    read->timing = timing_for(request, rts);
    return read;
}

/// nullptr: the cache has no room, or the key is none.
std::unique_ptr<Transfer> RndvReceiver::make_read(Request& request, const Rts& rts,
                                                  std::span<const std::byte> key) {
    const Domain& domain = rail().domain();
    const std::size_t index = rail().domain_index();
    const TransferPorts ports{to_.worker, to_.peer.lane};
    auto read = std::make_unique<Transfer>(request, ports, [](Request& of, ucs_status_t status) {
        receiver_of(of).read_ended(of, status);
    });
    read->mover = this;
    read->timing = timing_for(request, rts);
    TransferPart& own = read->own;
    if (uct_rkey_unpack(domain.component, key.data(), &own.key) != UCS_OK)
        return nullptr;
    own.component = domain.component;
    own.end = request.wanted;
    read->address = rts.address;
    if (request.buffer.memory != nullptr) {
        own.memh = request.buffer.memory->handle(index);
    } else if ((domain.attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) != 0) {
        own.cached = to_.worker.cache_region(request, index, RegUse::kTarget);
        if (own.cached == nullptr)
            return nullptr;
        own.memh = own.cached->handle;
    }
    return read;
}

void RndvReceiver::count_lent_read() {
    to_.worker.count(WorkerCounter::kRndvGet);
    to_.worker.count(WorkerCounter::kRndvLent);
}

/// The data is in the buffer, or a read by key or loan has failed.
void RndvReceiver::read_ended(Request& request, ucs_status_t status) {
    if (status == UCS_OK && request.transfer->timing.is_wanted())
        learning_.add(true, request.wanted, request.transfer->timing);
    end(request, status);
}

void RndvReceiver::lent_read_ended(Request& request, ucs_status_t status) {
    const bool has_ended = status == UCS_ERR_CANCELED || status == UCS_ERR_UNSUPPORTED;
    if (has_ended && to_.lane.is_ready()) {
        end_transfer(request);
        return ask_for_data(request);
    }
    if (status == UCS_OK)
        count_lent_read();
    read_ended(request, status);
}

// ---- Writes of the sender

/// False: a copy must do.
bool RndvReceiver::register_target(Request& request) {
    const Domain& domain = rail().domain();
    const std::size_t index = rail().domain_index();
    if (domain.attr.rkey_packed_size > UINT8_MAX)
        return false;
    if (!domain.registers_cheaply) {
        if (has_writable_handle(request))
            return true;
        request.cached = to_.worker.cache_region(request, index, RegUse::kTarget);
        return request.cached != nullptr;
    }
    request.registered_in = static_cast<std::uint32_t>(index);
    return uct_md_mem_reg(domain.md, request.buffer.base, request.wanted,
                          UCT_MD_MEM_ACCESS_REMOTE_PUT | UCT_MD_MEM_ACCESS_LOCAL_WRITE,
                          &request.registration) == UCS_OK;
}

ucs_status_t RndvReceiver::send_rtr(Request& request) {
    const Domain& domain = rail().domain();
    const std::size_t index = rail().domain_index();
    RtrPacking packing{};
    packing.rtr = {to_.peer.peer_names,
                   request.peer_id,
                   request.id,
                   static_cast<std::uint8_t>(index),
                   static_cast<std::uint8_t>(domain.attr.rkey_packed_size),
                   0,
                   0,
                   request.wanted,
                   reinterpret_cast<std::uintptr_t>(request.buffer.base)};
    ucs_status_t status = uct_md_mkey_pack(domain.md, target_of(request, index), packing.key);
    // A handle's key ends with a connection of the endpoint's own, and with nothing else.
    if (has_writable_handle(request) && to_.worker.options.scheme() == RndvScheme::kAuto)
        packing.rtr.flags = kRtrByConnection;
    if (has_writable_handle(request) && request.wanted >= rail().striped_from()) {
        packing.others.add_others(*request.buffer.memory, index);
        packing.rtr.key_count = packing.others.count;
    }
    if (status == UCS_OK) {
        status = status_of(uct_ep_am_bcopy(to_.lane.ep, static_cast<std::uint8_t>(AmId::kRtr),
                                           RtrPacking::pack, &packing, 0));
    }
    if (status == UCS_ERR_NO_RESOURCE)
        return status;
    to_.peer.lane.remove(request);
    if (status != UCS_OK)
        end(request, status);
    return UCS_OK;
}

bool RndvReceiver::on_data_end(Request* request, ucs_status_t status) {
    if (!awaits_data(request))
        return false;
    if (status == UCS_OK) {
        if (!request->is_offered || request->offset > 0)
            return false;
        to_.worker.count(WorkerCounter::kRndvPut);
    }
    end(*request, status);
    return true;
}

// ---- Data in messages

bool RndvReceiver::on_data(const DataMessage& message, Request* request) {
    const WireBytes bytes = message.data;
    if (!awaits_data(request) || message.head.offset != request->offset ||
        bytes.size() > request->wanted - request->offset)
        return false;
    if (request->is_offered) {
        request->is_offered = false;
        count_copy();
    }
    request->buffer.scatter(request->offset, bytes.data(), bytes.size(),
                            to_.peer.copies.out.kind_for(request->wanted));
    request->offset += bytes.size();
    if (request->offset == request->wanted)
        end(*request, UCS_OK);
    return true;
}

// ---- Ends

/// The data is here, or will not come: the sender is told, and the receive ends. A sender that has
/// taken its buffer back, by force, has ended the key of that; where the data goes by messages it
/// says so itself.
void RndvReceiver::end(Request& request, ucs_status_t status) {
    const Ats ats{.send_id = request.peer_id, .status = status};
    const bool is_for_sender = !request.is_start || status != UCS_OK;
    if (is_for_sender && (!is_free() || to_.peer.lane.send_now(ats) != UCS_OK))
        to_.peer.lane.control(ats);
    const bool was_read = request.transfer != nullptr && !request.transfer->is_put;
    if (was_read && status == UCS_ERR_INVALID_ADDR)
        status = UCS_ERR_CANCELED;
    request.done.length = request.wanted;
    if (status == UCS_OK && request.done.message_length > request.wanted)
        status = UCS_ERR_MESSAGE_TRUNCATED;
    to_.worker.finish(request, status);
}

}  // namespace tagwire::proto
