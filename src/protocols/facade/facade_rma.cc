// SPDX-License-Identifier: BSD-3-Clause
// The C API: keys and one-sided operations. Arguments are checked here.
#include <array>
#include <cstring>
#include <memory>

#include "protocols/api/tw_memory.h"
#include "protocols/api/tw_rma.h"
#include "protocols/facade/called_endpoint.hpp"
#include "protocols/facade/check_call.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/request/refuse.hpp"
#include "protocols/rma/remote_key.hpp"
#include "protocols/worker/entry.hpp"
#include "protocols/worker/fast_path.hpp"
#include "ucs/memory/reserve.hpp"

using namespace tagwire::proto;
using tagwire::ucs::write_sized;

namespace {

/// A kind of calls, for messages and checks.
struct Kind {
    const char* call;
    std::uint32_t access;
    std::uint32_t flags;
};

tw_status_t check_range(const char* call, const RemoteKey& key, std::uint64_t address,
                        std::uint64_t length, std::uint32_t access) {
    if (key.covers(address, length, access))
        return TW_OK;
    const MemoryKey& memory = key.memory();
    if ((memory.access & access) == 0) {
        TW_LOG_ERROR("%s: the key does not give this right; it gives%s%s%s", call,
                     (memory.access & TW_ACCESS_READ) != 0 ? " TW_ACCESS_READ" : "",
                     (memory.access & TW_ACCESS_WRITE) != 0 ? " TW_ACCESS_WRITE" : "",
                     (memory.access & TW_ACCESS_ATOMIC) != 0 ? " TW_ACCESS_ATOMIC" : "");
        return TW_ERR_INVALID_ADDR;
    }
    TW_LOG_ERROR("%s: [0x%lx, +%lu) is not inside the memory of the key, [0x%lx, +%lu)", call,
                 address, length, memory.address, memory.length);
    return TW_ERR_INVALID_ADDR;
}

/// The key may not be used with this endpoint.
[[gnu::noinline, gnu::cold]] tw_status_t refuse_use(const char* call, const RemoteKey& key,
                                                    const Endpoint& to) {
    const std::uint32_t owner = owner_of(to.worker_id);
    TW_LOG_ERROR("%s: the key %s", call,
                 key.memory().owner != owner
                     ? "is to memory of another context than the endpoint's peer is of"
                     : "was unpacked for another worker than the endpoint's");
    return TW_ERR_INVALID_PARAM;
}

/// Everything but the list, which is checked.
tw_status_t check_rma(const Kind& kind, const Endpoint& to, const RmaCall& call,
                      std::uint64_t length) {
    const RemoteKey& key = *call.what.key;
    if (key.use != to.rma_lane.key_use)
        return refuse_use(kind.call, key, to);
    if (call.op != nullptr) {
        const tw_op_t& op = *call.op;
        tw_status_t status = check_op(kind.call, to.worker.context(), op, kind.flags);
        if (status == TW_OK) {
            status = check_memory(kind.call, to.worker.context(), op, call.base, call.length,
                                  call.list, call.count);
        }
        if (status == TW_OK && kind.access == TW_ACCESS_READ)
            status = check_target(kind.call, op);
        if (status != TW_OK)
            return status;
        if ((op.flags & TW_OP_INJECT) != 0 && length > to.worker.options().inject_bytes) {
            TW_LOG_ERROR("%s: TW_OP_INJECT with %lu bytes; the limit is %lu", kind.call, length,
                         to.worker.options().inject_bytes);
            return TW_ERR_EXCEEDS_LIMIT;
        }
    }
    return check_range(kind.call, key, call.what.address, length, kind.access);
}

tw_status_t run(const Kind& kind, tw_ep_h handle, tw_key_h key, RmaCall call) try {
    if (handle == nullptr || key == nullptr) {
        TW_LOG_ERROR("%s: %s is NULL", kind.call, handle == nullptr ? "ep" : "key");
        return TW_ERR_INVALID_PARAM;
    }
    const bool is_atomic = call.what.kind == RmaKind::kAtomic;
    if (!is_atomic && call.base == nullptr && call.length > 0 && call.list == nullptr) {
        TW_LOG_ERROR("%s: buffer is NULL", kind.call);
        return TW_ERR_INVALID_PARAM;
    }
    if (tagwire::ucs::reserve_is_low())
        return TW_ERR_NO_MEMORY;
    const WholeOp op(call.op);
    if (const tw_status_t status = op.check(kind.call); status != TW_OK)
        return status;
    call.op = op.get();
    Endpoint& to = endpoint_of(handle);
    Endpoint& ep = way_of(to);
    call.what.key = &key_of(key);
    const Entry entry(ep.worker);
    const LeavesWork work(ep.worker);
    const std::uint64_t length = is_atomic ? call.what.number_bytes() : call.length;
    const tw_status_t status = check_rma(kind, to, call, length);
    return status == TW_OK ? ep.rma.call(call) : status;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(kind.call);
}

constexpr Kind kPutKind{"tw_put", TW_ACCESS_WRITE, kPutFlags};
constexpr Kind kPutListKind{"tw_putv", TW_ACCESS_WRITE, kPutFlags};
constexpr Kind kGetKind{"tw_get", TW_ACCESS_READ, kGetFlags};
constexpr Kind kGetListKind{"tw_getv", TW_ACCESS_READ, kGetFlags};

RmaWish what(RmaKind kind, std::uint64_t address) {
    RmaWish wish;
    wish.address = address;
    wish.kind = kind;
    return wish;
}

[[gnu::noinline]] tw_status_t put_slowly(tw_ep_h ep, const void* buffer, size_t length,
                                         uint64_t address, tw_key_h key, const tw_op_t* op,
                                         tw_request_h* request_p) {
    return run(kPutKind, ep, key,
               {what(RmaKind::kPut, address), buffer, length, nullptr, 0, op, request_p});
}

[[gnu::noinline]] tw_status_t get_slowly(tw_ep_h ep, void* buffer, size_t length, uint64_t address,
                                         tw_key_h key, const tw_op_t* op, tw_request_h* request_p) {
    return run(kGetKind, ep, key,
               {what(RmaKind::kGet, address), buffer, length, nullptr, 0, op, request_p});
}

tw_status_t run_list(const Kind& kind, RmaKind what_kind, tw_ep_h ep, const tw_iov_t* iov,
                     size_t iovcnt, uint64_t address, tw_key_h key, const tw_op_t* op,
                     tw_request_h* request_p) {
    size_t length = 0;
    const tw_status_t status = check_list(kind.call, iov, iovcnt, &length);
    if (status != TW_OK)
        return status;
    return run(kind, ep, key,
               {what(what_kind, address), nullptr, length, iov, iovcnt, op, request_p});
}

std::uint64_t number_at(const void* at, std::size_t bytes) {
    std::uint64_t number = 0;
    std::memcpy(&number, at, bytes);
    return number;
}

/// Plain but for a handle, which covers the buffer: what goes at once needs none.
[[gnu::always_inline]] inline bool is_plain_but_for_memory(const Endpoint& ep, const tw_op_t* op,
                                                           std::uint32_t flags, const void* buffer,
                                                           std::size_t length) {
    if (op == nullptr)
        return true;
    if (op->struct_bytes != sizeof(tw_op_t) || (op->flags & ~flags) != 0 ||
        !are_null(op->request, op->cq, op->counter))
        return false;
    return op->mem == nullptr || (&memory_of(op->mem).context() == &ep.worker.context() &&
                                  memory_of(op->mem).covers(buffer, length));
}

/// The lane's key of a plain operation that may go at once; nullptr: it takes the slow path.
[[gnu::always_inline]] inline const LaneKey* direct_key(const Endpoint& ep, const RemoteKey& key,
                                                        std::uint64_t address, std::size_t length,
                                                        std::uint32_t access) {
    return key.use == ep.rma_lane.key_use && key.covers(address, length, access)
               ? key.found(ep.rma_lane.peer_domain)
               : nullptr;
}

struct AtomicCall {
    int operation;
    int type;
    const void* operand;
    const void* compare;
    void* result;
    bool fetches;
};

tw_status_t run_atomic(const char* call, tw_ep_h ep, const AtomicCall& atomic, uint64_t address,
                       tw_key_h key, const tw_op_t* op, tw_request_h* request_p) {
    if (atomic.operation < 0 || atomic.operation > TW_ATOMIC_CSWAP || atomic.type < 0 ||
        atomic.type > TW_INT64) {
        TW_LOG_ERROR("%s: operation %d or type %d is unknown", call, atomic.operation, atomic.type);
        return TW_ERR_INVALID_PARAM;
    }
    const bool is_swap = atomic.operation == TW_ATOMIC_CSWAP;
    if (is_swap && atomic.compare == nullptr) {
        TW_LOG_ERROR("%s: TW_ATOMIC_CSWAP is for tw_atomic_cswap(), with compare not NULL", call);
        return TW_ERR_INVALID_PARAM;
    }
    if (atomic.operand == nullptr || (atomic.fetches && atomic.result == nullptr)) {
        TW_LOG_ERROR("%s: %s is NULL", call,
                     atomic.operand != nullptr ? "result"
                     : is_swap                 ? "swap"
                                               : "operand");
        return TW_ERR_INVALID_PARAM;
    }
    RmaWish wanted = what(RmaKind::kAtomic, address);
    wanted.operation = static_cast<std::uint8_t>(atomic.operation);
    wanted.type = static_cast<std::uint8_t>(atomic.type);
    const std::size_t bytes = wanted.number_bytes();
    if (address % bytes != 0) {
        TW_LOG_ERROR("%s: address 0x%lx is not a multiple of %zu", call, address, bytes);
        return TW_ERR_INVALID_ADDR;
    }
    wanted.operand = number_at(atomic.operand, bytes);
    wanted.compare = is_swap ? number_at(atomic.compare, bytes) : 0;
    wanted.result = atomic.result;
    if (ep != nullptr && key != nullptr && is_plain_send(op, TW_OP_MORE) &&
        endpoint_of(ep).rma_lane.put_end != 0) {
        Endpoint& to = endpoint_of(ep);
        const LaneKey* lane_key = direct_key(to, key_of(key), address, bytes, TW_ACCESS_ATOMIC);
        // Relaxed: it tells nothing else.
        if (lane_key != nullptr && lane_key->is_direct.load(std::memory_order_relaxed) &&
            to.rma.try_atomic(wanted, *lane_key)) {
            to.worker.count(WorkerCounter::kRmaShort);
            return TW_OK;
        }
    }
    const Kind kind{call, TW_ACCESS_ATOMIC, atomic.fetches ? kGetFlags : kAtomicFlags};
    // The number is the operation's own: it has no buffer that could have to be copied.
    return run(kind, ep, key, {wanted, nullptr, 0, nullptr, 0, op, request_p});
}

}  // namespace

extern "C" {

tw_status_t tw_mem_pack(tw_mem_h mem, void* key, size_t* length_p) try {
    TW_REFUSE_NULL(mem);
    TW_REFUSE_NULL(key);
    TW_REFUSE_NULL(length_p);
    if (!memory_of(mem).is_remote())
        TW_REFUSE(TW_ERR_INVALID_PARAM, "mem was mapped with TW_ACCESS_NONE: it has no key");
    std::array<std::byte, TW_KEY_BYTES_MAX> packed{};
    size_t length = 0;
    const ucs_status_t status = memory_of(mem).pack(packed.data(), &length);
    if (status != UCS_OK)
        TW_REFUSE(tw(status), "the context has given keys to 1048576 memories: unmap some first");
    const bool fits = *length_p >= length;
    *length_p = length;
    if (!fits)
        return TW_ERR_BUFFER_TOO_SMALL;
    std::memcpy(key, packed.data(), length);
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_key_unpack(tw_worker_h worker, const void* packed, size_t length,
                          tw_key_h* key_p) try {
    TW_REFUSE_NULL(worker);
    TW_REFUSE_NULL(packed);
    TW_REFUSE_NULL(key_p);
    MemoryKeyMessage message;
    if (const char* wrong = decode({static_cast<const std::byte*>(packed), length}, &message))
        TW_REFUSE(TW_ERR_INVALID_PARAM, "%zu bytes at %p are no packed key: %s", length, packed,
                  wrong);
    *key_p = new RemoteKey(core_of(worker).id(), message);
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

void tw_key_free(tw_key_h handle) {
    if (handle != nullptr)
        key_of(handle).let_go();
}

tw_status_t tw_key_query(tw_key_h key, tw_key_attr_t* attr) {
    TW_REFUSE_NULL(key);
    TW_REFUSE_NULL(attr);
    TW_REFUSE_SIZE(attr);
    const MemoryKey& memory = key_of(key).memory();
    tw_key_attr_t all{};
    all.struct_bytes = attr->struct_bytes;
    all.address = memory.address;
    all.length = memory.length;
    all.access = memory.access;
    write_sized(all, attr);
    return TW_OK;
}

tw_status_t tw_key_pointer(tw_ep_h handle, tw_key_h of, uint64_t address, void** pointer_p) try {
    TW_REFUSE_NULL(handle);
    TW_REFUSE_NULL(of);
    TW_REFUSE_NULL(pointer_p);
    RemoteKey& key = key_of(of);
    Endpoint& ep = endpoint_of(handle);
    if (key.use != ep.rma_lane.key_use)
        return refuse_use(__func__, key, ep);
    const BriefEntry entry(ep.worker);
    if (const tw_status_t status = check_range(__func__, key, address, 0, TW_ACCESS_ALL);
        status != TW_OK)
        return status;
    if (ep.failure() != UCS_OK)
        return tw(ep.failure());
    if (void* const own = ep.rma.own_pointer(key, address)) {
        *pointer_p = own;
        return TW_OK;
    }
    if (ep.state() != EpState::kReady)
        return TW_ERR_NO_RESOURCE;
    const LaneKey* lane = key.resolve(ep.rma_lane.peer_domain, ep.rail().domain());
    if (lane == nullptr) {
        ep.want_keys(key);
        return key.is_asked() ? TW_ERR_NO_RESOURCE : TW_ERR_UNREACHABLE;
    }
    uct_rkey_bundle_t bundle = lane->bundle;
    const ucs_status_t status = uct_rkey_ptr(lane->component, &bundle, address, pointer_p);
    return status == UCS_ERR_UNSUPPORTED ? TW_ERR_UNREACHABLE : tw(status);
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_put(tw_ep_h ep, const void* buffer, size_t length, uint64_t address, tw_key_h key,
                   const tw_op_t* op, tw_request_h* request_p) {
    if (ep == nullptr || key == nullptr || buffer == nullptr) [[unlikely]]
        return put_slowly(ep, buffer, length, address, key, op, request_p);
    if (length < endpoint_of(ep).rma_lane.put_end &&
        is_plain_but_for_memory(endpoint_of(ep), op, kPlainSendFlags, buffer, length)) [[likely]] {
        Endpoint& to = endpoint_of(ep);
        const LaneKey* lane_key = direct_key(to, key_of(key), address, length, TW_ACCESS_WRITE);
        if (lane_key != nullptr &&
            uct_ep_put_short(to.lane(), buffer, static_cast<unsigned>(length), address,
                             lane_key->bundle.rkey) == UCS_OK) [[likely]] {
            to.worker.count(WorkerCounter::kRmaShort);
            return TW_OK;
        }
    }
    return put_slowly(ep, buffer, length, address, key, op, request_p);
}

tw_status_t tw_putv(tw_ep_h ep, const tw_iov_t* iov, size_t iovcnt, uint64_t address, tw_key_h key,
                    const tw_op_t* op, tw_request_h* request_p) {
    return run_list(kPutListKind, RmaKind::kPut, ep, iov, iovcnt, address, key, op, request_p);
}

tw_status_t tw_get(tw_ep_h ep, void* buffer, size_t length, uint64_t address, tw_key_h key,
                   const tw_op_t* op, tw_request_h* request_p) {
    if (ep == nullptr || key == nullptr || buffer == nullptr) [[unlikely]]
        return get_slowly(ep, buffer, length, address, key, op, request_p);
    if (length < endpoint_of(ep).rma_lane.get_end &&
        is_plain_but_for_memory(endpoint_of(ep), op, TW_OP_MORE | TW_OP_QUEUE, buffer, length))
        [[likely]] {
        Endpoint& to = endpoint_of(ep);
        const LaneKey* lane_key = direct_key(to, key_of(key), address, length, TW_ACCESS_READ);
        if (lane_key != nullptr && lane_key->is_direct.load(std::memory_order_relaxed) &&
            uct_ep_get_short(to.lane(), buffer, static_cast<unsigned>(length), address,
                             lane_key->bundle.rkey) == UCS_OK) [[likely]] {
            to.worker.count(WorkerCounter::kRmaShort);
            return TW_OK;
        }
    }
    return get_slowly(ep, buffer, length, address, key, op, request_p);
}

tw_status_t tw_getv(tw_ep_h ep, const tw_iov_t* iov, size_t iovcnt, uint64_t address, tw_key_h key,
                    const tw_op_t* op, tw_request_h* request_p) {
    return run_list(kGetListKind, RmaKind::kGet, ep, iov, iovcnt, address, key, op, request_p);
}

tw_status_t tw_atomic(tw_ep_h ep, tw_atomic_op_t operation, tw_atomic_type_t type,
                      const void* operand, uint64_t address, tw_key_h key, const tw_op_t* op,
                      tw_request_h* request_p) {
    return run_atomic(
        __func__, ep,
        {static_cast<int>(operation), static_cast<int>(type), operand, nullptr, nullptr, false},
        address, key, op, request_p);
}

tw_status_t tw_atomic_fetch(tw_ep_h ep, tw_atomic_op_t operation, tw_atomic_type_t type,
                            const void* operand, void* result, uint64_t address, tw_key_h key,
                            const tw_op_t* op, tw_request_h* request_p) {
    return run_atomic(
        __func__, ep,
        {static_cast<int>(operation), static_cast<int>(type), operand, nullptr, result, true},
        address, key, op, request_p);
}

tw_status_t tw_atomic_cswap(tw_ep_h ep, tw_atomic_type_t type, const void* compare,
                            const void* swap, void* result, uint64_t address, tw_key_h key,
                            const tw_op_t* op, tw_request_h* request_p) {
    if (compare == nullptr) {
        TW_LOG_ERROR("%s: compare is NULL", __func__);
        return TW_ERR_INVALID_PARAM;
    }
    return run_atomic(__func__, ep,
                      {TW_ATOMIC_CSWAP, static_cast<int>(type), swap, compare, result, true},
                      address, key, op, request_p);
}

}  // extern "C"
