// SPDX-License-Identifier: BSD-3-Clause
// The receiver of a rendezvous after the match. It decides (scheme.hpp) whether it reads the data,
// lets the sender write it (Rtr: its buffer and the key to that), or asks for it in messages. A
// buffer that is lent is read without a key; when the loan has ended meanwhile, because the sender
// has taken back this buffer or another one, it is asked for the data.
#include <algorithm>
#include <cstring>
#include <memory>

#include "protocols/cost/advisor.hpp"
#include "protocols/cost/scheme.hpp"
#include "protocols/eager/receiver.hpp"
#include "protocols/request/envelope.hpp"
#include "protocols/request/keys.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/rndv/read_timing.hpp"
#include "protocols/transfer/stripe.hpp"
#include "protocols/transfer/transfer.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/worker_core.hpp"
#include "ucs/time/clock.hpp"
#include "ucs/topo/topology.hpp"

namespace tagwire::proto {

namespace {

/// A sender copies eager messages through so many second-level caches before its first buffers come
/// again.
constexpr std::size_t kCachesPerTurn = 2;

/// A message may overtake the peer's hello; then nothing is known of the peer's rails, and only a
/// copy is sure.
std::span<const std::byte> key_for(Endpoint& ep, std::span<const std::byte> keys) {
    if (ep.state() != EpState::kReady)
        return {};
    const auto key = key_of(keys, ep.connector().domain_of_peer(ep.peer_rail()));
    return key.size() == ep.rail().domain().attr.rkey_packed_size ? key
                                                                  : std::span<const std::byte>{};
}

/// Its owner lets peers write to the memory.
bool has_writable_handle(const Request& request) {
    return request.buffer.memory != nullptr && request.buffer.memory->may_be_written();
}

RndvFacts facts_of(const Request& request, const Endpoint& ep, const Rts& rts, bool has_key) {
    const Rail& rail = ep.rail();
    const Domain& domain = rail.domain();
    const Buffer& buffer = request.buffer;
    const bool has_handle = buffer.memory != nullptr;
    const bool gives_handle = has_writable_handle(request);
    const bool is_one_piece = buffer.list == nullptr;
    // Memory of the library's own is given back soon, and the cache would keep it.
    const bool may_cache =
        is_one_piece && !request.is_internal && ep.worker.context().cache() != nullptr;
    RndvFacts facts{};
    facts.can_write_here =
        has_handle || may_cache || (domain.attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) == 0;
    // A sender that had written the start of its message would take that for all of it.
    facts.can_give_key = is_one_piece && !request.is_start &&
                         (gives_handle || may_cache || domain.registers_cheaply);
    // A handle stays; its key ends with a connection of the endpoint's own.
    facts.takes_key_back =
        !domain.registers_cheaply && (!gives_handle || !rail.connects_to_iface());
    facts.has_peer_key = has_key;
    facts.peer_can_put = (rts.flags & kRtsCanPut) != 0;
    return facts;
}

/// The data is in the buffer, or a read by key or loan has failed.
void read_ended(Request& request, ucs_status_t status) {
    Receiver& receiver = request.worker->receiver();
    if (status == UCS_OK && request.transfer->timing.is_wanted())
        receiver.learn(*request.ep, true, request.wanted, request.transfer->timing);
    receiver.rndv_ended(request, status);
}

void count_lent_read(WorkerCore& worker) {
    worker.count(WorkerCounter::kRndvGet);
    worker.count(WorkerCounter::kRndvLent);
}

void lent_read_ended(Request& request, ucs_status_t status) {
    const bool has_ended = status == UCS_ERR_CANCELED || status == UCS_ERR_UNSUPPORTED;
    if (has_ended && request.ep->state() == EpState::kReady) {
        end_transfer(request);
        return request.worker->receiver().ask_for_data(request);
    }
    if (status == UCS_OK)
        count_lent_read(*request.worker);
    read_ended(request, status);
}

/// The receiver learns from such a message: data of active messages waits for the program.
bool learns_from(const Request& request, const Endpoint& ep) {
    return ep.lane_state().is_learning() && (request.done.flags & TW_DONE_AM) == 0;
}

/// Reads into a buffer of one piece where nothing waits for the lane. False: a Transfer is to do
/// it, since it takes longer than a call, or another reason, which that meets again.
bool try_read_lent(Request& request, Endpoint& ep, const Rts& rts, const tagwire_uct_loan_t& loan) {
    if (request.buffer.list != nullptr || request.wanted > kReadAtOnceMax ||
        !ep.queue().has_nothing())
        return false;
    const Timing timing = timing_of(learns_from(request, ep), rts, request.wanted);
    const uct_iov_t iov{request.buffer.base, request.wanted, UCT_MEM_HANDLE_NULL, 0, 1};
    if (tagwire_uct_ep_read_lent(ep.lane(), &iov, 1, &loan, nullptr) != UCS_OK)
        return false;
    count_lent_read(ep.worker);
    if (timing.is_wanted())
        ep.worker.receiver().learn(ep, true, request.wanted, timing);
    return true;
}

std::unique_ptr<Transfer> make_lent_read(Request& request, const Endpoint& ep, const Rts& rts,
                                         const tagwire_uct_loan_t& loan) {
    auto read = std::make_unique<Transfer>(request, lent_read_ended);
    read->is_lent = true;
    read->loan = loan;
    read->own.end = request.wanted;
    read->timing = timing_of(learns_from(request, ep), rts, request.wanted);
    return read;
}

/// nullptr: the cache has no room, or the key is none.
std::unique_ptr<Transfer> make_read(Request& request, const Endpoint& ep, const Rts& rts,
                                    std::span<const std::byte> key) {
    const Domain& domain = ep.rail().domain();
    const std::size_t index = ep.rail().domain_index();
    auto read = std::make_unique<Transfer>(request, read_ended);
    read->timing = timing_of(learns_from(request, ep), rts, request.wanted);
    TransferPart& own = read->own;
    if (uct_rkey_unpack(domain.component, key.data(), &own.key) != UCS_OK)
        return nullptr;
    own.component = domain.component;
    own.end = request.wanted;
    read->address = rts.address;
    if (request.buffer.memory != nullptr) {
        own.memh = request.buffer.memory->handle(index);
    } else if ((domain.attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) != 0) {
        own.cached = request.worker->cache_region(request, index, RegUse::kTarget);
        if (own.cached == nullptr)
            return nullptr;
        own.memh = own.cached->handle;
    }
    return read;
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

/// False: a copy must do.
bool register_target(Request& request, const Rail& rail) {
    const std::size_t index = rail.domain_index();
    if (rail.domain().attr.rkey_packed_size > UINT8_MAX)
        return false;
    if (!rail.domain().registers_cheaply) {
        if (has_writable_handle(request))
            return true;
        request.cached = request.worker->cache_region(request, index, RegUse::kTarget);
        return request.cached != nullptr;
    }
    request.registered_in = static_cast<std::uint32_t>(index);
    return uct_md_mem_reg(rail.domain().md, request.buffer.base, request.wanted,
                          UCT_MD_MEM_ACCESS_REMOTE_PUT | UCT_MD_MEM_ACCESS_LOCAL_WRITE,
                          &request.registration) == UCS_OK;
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
    tagwire_uct_loan_t loan;
    if (ep.state() == EpState::kReady && worker_.options().may_get() && loan_of(keys, rts, &loan)) {
        if (ep.rndv().keeps_receiver_busy(rts.length))
            loan.id = 0;
        if (try_read_lent(request, ep, rts, loan))
            return rndv_ended(request, UCS_OK);
        request.transfer = make_lent_read(request, ep, rts, loan).release();
        return ep.queue().push_data(request);
    }
    if (ep.state() == EpState::kReady) {
        const auto key = key_for(ep, keys);
        const RndvFacts facts = facts_of(request, ep, rts, !key.empty());
        scheme =
            pick_scheme(available_schemes(ep.rail(), facts), worker_.options().scheme(), facts);
        if (scheme == RndvScheme::kGet) {
            if (auto read = make_read(request, ep, rts, key)) {
                request.transfer = read.release();
                worker_.count(WorkerCounter::kRndvGet);
                return begin_transfer(request, keys, false);
            }
        }
    }
    if (scheme != RndvScheme::kPut)
        return ask_for_data(request);
    if (request.id == 0 && worker_.requests().assign_id(request) == 0)
        return rndv_ended(request, UCS_ERR_NO_MEMORY);
    if (!register_target(request, ep.rail()))
        return ask_for_data(request);
    request.is_offered = true;
    ep.queue().push_data(request);
}

void Receiver::ask_for_data(Request& request) {
    if (request.id == 0 && worker_.requests().assign_id(request) == 0)
        return rndv_ended(request, UCS_ERR_NO_MEMORY);
    count_copy();
    request.ep->control(
        Cts{.send_id = request.peer_id, .receive_id = request.id, .bytes = request.wanted});
}

ucs_status_t Receiver::send_rtr(Request& request) {
    Endpoint& ep = *request.ep;
    const Rail& rail = ep.rail();
    const Domain& domain = rail.domain();
    RtrPacking packing{};
    packing.rtr = {ep.peer_names,
                   request.peer_id,
                   request.id,
                   static_cast<std::uint8_t>(rail.domain_index()),
                   static_cast<std::uint8_t>(domain.attr.rkey_packed_size),
                   0,
                   0,
                   request.wanted,
                   reinterpret_cast<std::uintptr_t>(request.buffer.base)};
    ucs_status_t status =
        uct_md_mkey_pack(domain.md, target_of(request, rail.domain_index()), packing.key);
    // A handle's key ends with a connection of the endpoint's own, and with nothing else.
    if (has_writable_handle(request) && worker_.options().scheme() == RndvScheme::kAuto)
        packing.rtr.flags = kRtrByConnection;
    if (has_writable_handle(request) && request.wanted >= rail.striped_from()) {
        packing.others.add_others(*request.buffer.memory, rail.domain_index());
        packing.rtr.key_count = packing.others.count;
    }
    if (status == UCS_OK) {
        status = status_of(uct_ep_am_bcopy(ep.lane(), static_cast<std::uint8_t>(AmId::kRtr),
                                           RtrPacking::pack, &packing, 0));
    }
    if (status == UCS_ERR_NO_RESOURCE)
        return status;
    ep.queue().remove(request);
    if (status != UCS_OK)
        rndv_ended(request, status);
    return UCS_OK;
}

/// The sender says that it has written everything. False: it was not offered that.
bool Receiver::rndv_written(Request& request) {
    if (!request.is_offered || request.offset > 0)
        return false;
    worker_.count(WorkerCounter::kRndvPut);
    rndv_ended(request, UCS_OK);
    return true;
}

namespace {

/// Not for each message: until it is final, the length of a tick is measured anew each time.
Advice advice_of(const Advisor& advisor, Pattern pattern, std::size_t bytes) {
    const auto ps_of_byte = [&](bool rndv) {
        const double ps = advisor.time_of_byte(rndv, bytes) * ucs::tick_ns() * 1000;
        return static_cast<std::uint32_t>(std::min<double>(ps, UINT32_MAX));
    };
    Advice advice{};
    if (Advisor::is_threshold(advisor.threshold()))
        advice.rndv_from = static_cast<std::uint32_t>(advisor.threshold());
    advice.regime = static_cast<std::uint8_t>(advisor.regime());
    advice.regimes = static_cast<std::uint8_t>(advisor.regimes());
    advice.reason = static_cast<std::uint8_t>(advisor.reason());
    if (pattern == Pattern::kStream)
        advice.reason |= kAdviceOfStream;
    if (const unsigned rndv = advisor.trials(true); rndv != 0)
        advice.trials = static_cast<std::uint8_t>(rndv);
    else if (const unsigned eager = advisor.trials(false); eager != 0)
        advice.trials = static_cast<std::uint8_t>(eager + kTrialsOfEager);
    advice.eager_ps = ps_of_byte(false);
    advice.rndv_ps = ps_of_byte(true);
    return advice;
}

}  // namespace

/// A message of such a length is here now.
void Receiver::learn(Endpoint& ep, bool is_rndv, std::size_t bytes, const Timing& timing) {
    if (!ep.lane_state().is_learning())
        return;
    const Rail& rail = ep.rail();
    std::unique_ptr<Advisor>& own = ep.advisors[index_of(timing.pattern)];
    if (own == nullptr) {
        // The transport has read the topology when it was opened.
        own = std::make_unique<Advisor>(
            rail.selection().rndv_from(BufferKind::kPlain),
            kCachesPerTurn * ucs::system_topology().second_level_cache_bytes());
    }
    const auto time = static_cast<double>(timing.until(ucs::ticks_now()));
    const bool has_news = own->add(is_rndv, bytes, time, timing.is_sample);
    // From the first such message on, or both sides would begin by different ways. Messages of a
    // transmit context are answered by another endpoint.
    const bool leads =
        timing.pattern == Pattern::kTurns && worker_.id() < ep.peer_id && !is_to_tx_context(ep);
    const bool begins_to_lead = leads && !ep.rndv().has_own_advice();
    if (leads)
        ep.rndv().lead(own->threshold(), bytes);
    if (!has_news && !begins_to_lead)
        return;
    const Advice advice = advice_of(*own, timing.pattern, bytes);
    if (leads)
        ep.rndv().note_own_advice(advice);
    if (!has_news)
        return;
    worker_.count(WorkerCounter::kAdvice);
    ep.control(advice);
}

/// The data is here, or will not come: the sender is told, and the receive ends. A sender that has
/// taken its buffer back, by force, has ended the key of that; where the data goes by messages it
/// says so itself.
void Receiver::rndv_ended(Request& request, ucs_status_t status) {
    Endpoint& ep = *request.ep;
    const Ats ats{.send_id = request.peer_id, .status = status};
    const bool is_free = ep.state() == EpState::kReady && ep.queue().has_nothing();
    const bool is_for_sender = !request.is_start || status != UCS_OK;
    if (is_for_sender && (!is_free || ep.queue().send_now(Control::of(ats)) != UCS_OK))
        ep.control(ats);
    const bool was_read = request.transfer != nullptr && !request.transfer->is_put;
    if (was_read && status == UCS_ERR_INVALID_ADDR)
        status = UCS_ERR_CANCELED;
    request.done.length = request.wanted;
    if (status == UCS_OK && request.done.message_length > request.wanted)
        status = UCS_ERR_MESSAGE_TRUNCATED;
    worker_.finish(request, status);
}

}  // namespace tagwire::proto
