// SPDX-License-Identifier: BSD-3-Clause
#include "atomic_caller.hpp"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "datapath.hpp"
#include "ep.hpp"
#include "flags.hpp"
#include "send_copy.hpp"

namespace tagwire::fi {

namespace {

constexpr std::uint64_t kFlags = kLevels | FI_INJECT | FI_MORE | FI_FENCE | FI_COMPLETION;

/// Elements of a list; more than can be asked for, if there are so many.
std::size_t elements_of(AtomicList list) {
    std::size_t count = 0;
    for (const fi_ioc& part : list)
        count += std::min(part.count, kAtomicBytesMax + 1);
    return count;
}

std::byte* gather(AtomicList list, std::size_t element_bytes, std::byte* to) {
    for (const fi_ioc& part : list) {
        if (part.count > 0)
            std::memcpy(to, part.addr, part.count * element_bytes);
        to += part.count * element_bytes;
    }
    return to;
}

/// Copies results into their list.
void scatter(const tw_iov_t* list, std::size_t count, const std::byte* from) {
    for (std::size_t i = 0; i < count; ++i) {
        if (list[i].length > 0)
            std::memcpy(list[i].base, from, list[i].length);
        from += list[i].length;
    }
}

}  // namespace

tw_status_t AtomicCaller::listen() {
    return tw_am_register(owner_.worker, kAtomicTell, on_reply, this);
}

// ---- Beginning

int AtomicCaller::check(const AtomicCall& call, Checked* checked) const {
    if ((call.flags & ~kFlags) != 0)
        return -FI_EBADFLAGS;
    if (find_atomic(call.kind, call.op, call.datatype) == nullptr)
        return -FI_EOPNOTSUPP;
    const bool changes = call.op != FI_ATOMIC_READ;
    const std::uint64_t ways =
        (call.kind == AtomicKind::kWrite ? 0 : FI_READ) | (changes ? FI_WRITE : 0);
    if ((ways & ~owner_.tx_caps) != 0)
        return -FI_EOPNOTSUPP;
    if (call.targets.empty() || call.targets.size() > kAtomicSegmentsMax ||
        std::max({call.operands.size(), call.compares.size(), call.results.size()}) > TW_IOV_MAX)
        return -FI_EINVAL;
    checked->element_bytes = atomic_bytes_of(call.datatype);
    const std::size_t most = kAtomicBytesMax / checked->element_bytes;
    for (const fi_rma_ioc& target : call.targets) {
        if (target.count == 0)
            return -FI_EINVAL;
        if (target.count > most - checked->count)
            return -FI_EMSGSIZE;
        checked->count += target.count;
    }
    checked->bytes = checked->count * checked->element_bytes;
    const bool compares = call.kind == AtomicKind::kCompare;
    if ((changes && elements_of(call.operands) != checked->count) ||
        (compares && elements_of(call.compares) != checked->count) ||
        (call.kind != AtomicKind::kWrite && elements_of(call.results) != checked->count))
        return -FI_EINVAL;
    const std::size_t constant = (changes ? checked->bytes : 0) + (compares ? checked->bytes : 0);
    if ((call.flags & FI_INJECT) != 0 && constant > owner_.inject_bytes_max)
        return -FI_EMSGSIZE;
    return 0;
}

std::size_t AtomicCaller::write_data(const AtomicCall& call, const Checked& checked,
                                     std::byte* to) const {
    const std::byte* const begin = to;
    for (const fi_rma_ioc& target : call.targets) {
        const AtomicSegment segment = {target.addr, target.key, target.count};
        std::memcpy(to, &segment, sizeof segment);
        to += sizeof segment;
    }
    if (call.op != FI_ATOMIC_READ)
        to = gather(call.operands, checked.element_bytes, to);
    if (call.kind == AtomicKind::kCompare)
        to = gather(call.compares, checked.element_bytes, to);
    return static_cast<std::size_t>(to - begin);
}

ssize_t AtomicCaller::begin(const AtomicCall& call) {
    Checked checked;
    if (const int error = check(call, &checked); error != 0)
        return error;
    ssize_t error = 0;
    tw_ep_h const ep = owner_.peer(call.to, &error);
    if (ep == nullptr)
        return error;
    const bool is_fenced = (call.flags & FI_FENCE) != 0;
    const bool waits = is_fenced && (is_pending(ep) || Ep::peer_of(ep).waiting != 0);
    if (waits || Ep::peer_of(ep).atomics >= kAtomicsOfPeerMax ||
        (owner_.tx.cq != nullptr && owner_.tx.cq->refuses()))
        return owner_.try_again();
    Slot* slot = nullptr;
    if (const int refusal = take(call, checked, ep, &slot); refusal != 0)
        return refusal == -FI_EAGAIN ? owner_.try_again() : refusal;

    const AtomicHeader header = {.id = std::uint64_t{slot->use} << 32 | slot->number,
                                 .count = static_cast<std::uint32_t>(checked.count),
                                 .kind = static_cast<std::uint8_t>(call.kind),
                                 .op = static_cast<std::uint8_t>(call.op),
                                 .datatype = static_cast<std::uint8_t>(call.datatype),
                                 .segments = static_cast<std::uint8_t>(call.targets.size())};
    std::array<std::byte, kAtomicDataMax> data;
    const std::size_t bytes = write_data(call, checked, data.data());
    const tw_status_t status = send_copy(
        ep, kAtomicAsk, AtomicBytes(std::as_bytes(std::span(&header, 1))), {data.data(), bytes},
        {.flags = TW_OP_URGENT | flag_if(is_fenced, TW_OP_FENCE) |
                  flag_if((call.flags & FI_MORE) != 0, TW_OP_MORE),
         .inject_bytes_max = owner_.inject_bytes_max});
    if (status == TW_OK) {
        ++Ep::peer_of(ep).atomics;
        return 0;
    }
    put(*slot);
    return owner_.not_taken(status);
}

// ---- Slots

/// 0, -FI_EAGAIN: too many are under way, or -FI_ENOMEM.
int AtomicCaller::take(const AtomicCall& call, const Checked& checked, tw_ep_h ep, Slot** slot_p) {
    std::unique_ptr<tw_iov_t[]> more;
    const bool fetches = call.kind != AtomicKind::kWrite;
    const int error = without_exceptions([&] {
        if (free_ == nullptr && slots_.size() == kAtomicsMax)
            return -FI_EAGAIN;
        if (fetches && call.results.size() > 1)
            more = std::make_unique<tw_iov_t[]>(call.results.size());
        if (free_ == nullptr) {
            free_ = &slots_.emplace_back();
            free_->number = static_cast<std::uint32_t>(slots_.size() - 1);
        }
        return 0;
    });
    if (error != 0)
        return error;
    Slot& slot = *free_;
    free_ = slot.next_free;
    slot.ep = ep;
    slot.context = call.context;
    slot.reads = fetches;
    slot.is_reported = call.is_reported;
    slot.result_bytes = fetches ? checked.bytes : 0;
    slot.result_count = fetches ? call.results.size() : 0;
    slot.more = std::move(more);
    tw_iov_t* const list = slot.more != nullptr ? slot.more.get() : &slot.result;
    for (std::size_t i = 0; i < slot.result_count; ++i)
        list[i] = {call.results[i].addr, call.results[i].count * checked.element_bytes};
    ++under_way_;
    *slot_p = &slot;
    return 0;
}

void AtomicCaller::put(Slot& slot) {
    ++slot.use;
    slot.ep = nullptr;
    slot.more.reset();
    slot.next_free = free_;
    free_ = &slot;
    --under_way_;
}

/// nullptr: no operation of that id waits for a reply of that peer.
AtomicCaller::Slot* AtomicCaller::find(std::uint64_t id, tw_ep_h ep) {
    const auto number = static_cast<std::uint32_t>(id);
    if (ep == nullptr || number >= slots_.size())
        return nullptr;
    Slot& slot = slots_[number];
    return slot.ep == ep && slot.use == id >> 32 ? &slot : nullptr;
}

bool AtomicCaller::is_pending(tw_ep_h ep) const {
    return under_way_ != 0 &&
           std::ranges::any_of(slots_, [ep](const Slot& slot) { return slot.ep == ep; });
}

void AtomicCaller::drop(tw_ep_h ep, int error) {
    if (is_idle() || ep == nullptr)
        return;
    for (Slot& slot : slots_)
        if (slot.ep == ep)
            finish(slot, error);
}

int AtomicCaller::cancel(const void* context) {
    const auto found = std::ranges::find_if(slots_, [context](const Slot& slot) {
        return context != nullptr && slot.ep != nullptr && slot.context == context;
    });
    if (found == slots_.end())
        return -FI_ENOENT;
    finish(*found, FI_ECANCELED);
    return 0;
}

// ---- Ending

void AtomicCaller::on_reply(void* arg, tw_am_t* am) {
    auto& caller = *static_cast<AtomicCaller*>(arg);
    AtomicReply reply;
    if (am->header_length != sizeof reply)
        return caller.owner_.refusals.add(am->source, "a reply to an atomic has another length");
    std::memcpy(&reply, am->header, sizeof reply);
    Slot* const slot = caller.find(reply.id, am->ep);
    if (slot == nullptr && !caller.was_used(reply.id))
        return caller.owner_.refusals.add(am->source, "no atomic operation waits for this reply");
    if (am->ep != nullptr && Ep::peer_of(am->ep).atomics > 0)
        --Ep::peer_of(am->ep).atomics;
    if (slot == nullptr)
        return;
    if (reply.error != 0)
        return caller.finish(*slot, reply.error < FI_ERRNO_MAX ? int(reply.error) : FI_EOTHER);
    if (am->length != slot->result_bytes || (am->flags & TW_AM_RNDV) != 0)
        return caller.finish(*slot, FI_EIO);
    scatter(slot->more != nullptr ? slot->more.get() : &slot->result, slot->result_count,
            static_cast<const std::byte*>(am->data));
    caller.finish(*slot, 0);
}

void AtomicCaller::finish(Slot& slot, int error) {
    const std::uint64_t flags = FI_ATOMIC | (slot.reads ? FI_READ : FI_WRITE);
    Cntr* const cntr = slot.reads ? owner_.counters.reads : owner_.counters.writes;
    void* const context = slot.context;
    const bool is_reported = slot.is_reported;
    put(slot);
    if (cntr != nullptr && error == 0)
        cntr->count_success();
    if (cntr != nullptr && error != 0)
        cntr->count_error();
    if (error == 0 && is_reported)
        owner_.tx.cq->push({context, flags, 0, nullptr, 0, 0});
    if (error == 0 || owner_.tx.cq == nullptr)
        return;
    fi_cq_err_entry entry{};
    entry.op_context = context;
    entry.flags = flags;
    entry.err = error;
    owner_.tx.cq->push_error(entry);
}

}  // namespace tagwire::fi
