// SPDX-License-Identifier: BSD-3-Clause
// The C API: lists of puts and gets. Each piece is checked here.
#include <cstdint>
#include <new>

#include "protocols/api/tw_list.h"
#include "protocols/facade/called_endpoint.hpp"
#include "protocols/facade/check_call.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/request/refuse.hpp"
#include "protocols/request/rma_list.hpp"
#include "protocols/rma/remote_key.hpp"
#include "protocols/worker/entry.hpp"
#include "ucs/memory/reserve.hpp"

using namespace tagwire::proto;

namespace {

/// The rules that the pieces of a list are checked by.
struct ListRules {
    const char* call;
    const Context& context;
    std::uint64_t use;  // the keys'
    bool has_use;       // else that of the first key holds, of `worker`
    std::uint64_t worker;
    std::uint32_t access;

    bool is_get() const { return access == TW_ACCESS_READ; }
};

/// `what`: "piece 7".
[[gnu::noinline, gnu::cold]] tw_status_t refuse_piece(const ListRules& rules, const char* what,
                                                      std::size_t index, const char* why,
                                                      tw_status_t status = TW_ERR_INVALID_PARAM) {
    TW_LOG_ERROR("%s: %s %zu %s", rules.call, what, index, why);
    return status;
}

[[gnu::noinline, gnu::cold]] tw_status_t refuse_range(const ListRules& rules, const char* what,
                                                      std::size_t index, const RemoteKey& key,
                                                      std::uint64_t address, std::size_t length) {
    const MemoryKey& memory = key.memory();
    if ((memory.access & rules.access) == 0) {
        return refuse_piece(rules, what, index,
                            rules.is_get() ? "has a key that does not give TW_ACCESS_READ"
                                           : "has a key that does not give TW_ACCESS_WRITE",
                            TW_ERR_INVALID_ADDR);
    }
    TW_LOG_ERROR("%s: %s %zu: [0x%lx, +%zu) is not inside the memory of its key, [0x%lx, +%lu)",
                 rules.call, what, index, address, length, memory.address, memory.length);
    return TW_ERR_INVALID_ADDR;
}

/// Handle and key of a piece or stride, which has bytes.
tw_status_t check_handles(const ListRules& rules, const char* what, std::size_t index,
                          const void* local, tw_key_h key, tw_mem_h mem) {
    if (key == nullptr)
        return refuse_piece(rules, what, index, "has no key");
    if (key_of(key).use != rules.use) {
        return refuse_piece(rules, what, index,
                            "has a key that was unpacked for another worker, or is to memory of "
                            "another owner");
    }
    if (local == nullptr)
        return refuse_piece(rules, what, index, "has bytes, and its local is NULL");
    if (mem == nullptr)
        return TW_OK;
    if (&memory_of(mem).context() != &rules.context)
        return refuse_piece(rules, what, index, "has a mem of another context");
    if (rules.is_get() && memory_of(mem).is_read_only())
        return refuse_piece(rules, what, index, "has a mem that was mapped read-only");
    return TW_OK;
}

tw_status_t check_bytes(const ListRules& rules, const char* what, std::size_t index,
                        const void* local, std::uint64_t remote, std::size_t length, tw_key_h key,
                        tw_mem_h mem) {
    if (!key_of(key).covers(remote, length, rules.access)) [[unlikely]]
        return refuse_range(rules, what, index, key_of(key), remote, length);
    if (mem != nullptr && !memory_of(mem).covers(local, length)) [[unlikely]]
        return refuse_piece(rules, what, index, "is not inside the memory of its mem");
    return TW_OK;
}

/// Both ends of a stride: what is between them is inside, too.
tw_status_t check_stride(const ListRules& rules, std::size_t index, const tw_stride_t& stride) {
    const auto last = static_cast<std::ptrdiff_t>(stride.count - 1);
    std::ptrdiff_t local = 0, remote = 0;
    if (stride.count > PTRDIFF_MAX || __builtin_mul_overflow(last, stride.local_distance, &local) ||
        __builtin_mul_overflow(last, stride.remote_distance, &remote)) {
        return refuse_piece(rules, "stride", index, "reaches beyond any memory",
                            TW_ERR_INVALID_ADDR);
    }
    const auto* const begin = static_cast<const std::byte*>(stride.local);
    const tw_status_t status = check_bytes(rules, "stride", index, begin, stride.remote,
                                           stride.length, stride.key, stride.mem);
    return status != TW_OK
               ? status
               : check_bytes(rules, "stride", index,
                             reinterpret_cast<const void*>(  // also where it is no memory
                                 reinterpret_cast<std::uintptr_t>(begin) +
                                 static_cast<std::uintptr_t>(local)),
                             stride.remote + static_cast<std::uint64_t>(remote), stride.length,
                             stride.key, stride.mem);
}

/// Checks all pieces. `rules.use` is set to that of the first where it is not given.
tw_status_t check_pieces(ListRules& rules, const tw_list_t& list, RmaList* out) {
    if ((list.pieces == nullptr && list.piece_count > 0) ||
        (list.strides == nullptr && list.stride_count > 0)) {
        TW_LOG_ERROR("%s: %s of the list is NULL, and its count is not 0", rules.call,
                     list.piece_count > 0 && list.pieces == nullptr ? "pieces" : "strides");
        return TW_ERR_INVALID_PARAM;
    }
    *out = {list.pieces, list.piece_count, list.strides, list.stride_count};
    if (!rules.has_use && !out->is_empty() && out->first_key() != nullptr)
        rules.use = key_use(rules.worker, key_of(out->first_key()).memory().owner);
    out->use = rules.use;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < list.piece_count; ++i) {
        const tw_piece_t& piece = list.pieces[i];
        tw_status_t status = TW_OK;
        if (piece.length == 0 && piece.key != nullptr && key_of(piece.key).use == rules.use)
            continue;
        const void* const local = piece.length == 0 ? &piece : piece.local;
        status = check_handles(rules, "piece", i, local, piece.key, piece.mem);
        if (status == TW_OK && piece.length > 0) {
            status = check_bytes(rules, "piece", i, piece.local, piece.remote, piece.length,
                                 piece.key, piece.mem);
        }
        if (status != TW_OK) [[unlikely]]
            return status;
        if (__builtin_add_overflow(bytes, piece.length, &bytes))
            return refuse_piece(rules, "piece", i, "makes the bytes of the list overflow size_t");
        out->has_all_handles = out->has_all_handles && piece.mem != nullptr;
    }
    for (std::size_t i = 0; i < list.stride_count; ++i) {
        const tw_stride_t& stride = list.strides[i];
        const bool has_bytes = stride.length > 0 && stride.count > 0;
        tw_status_t status = check_handles(rules, "stride", i, has_bytes ? stride.local : &stride,
                                           stride.key, stride.mem);
        if (status == TW_OK && has_bytes)
            status = check_stride(rules, i, stride);
        if (status != TW_OK) [[unlikely]]
            return status;
        std::size_t own = 0;
        if (__builtin_mul_overflow(stride.length, stride.count, &own) ||
            __builtin_add_overflow(bytes, own, &bytes))
            return refuse_piece(rules, "stride", i, "makes the bytes of the list overflow size_t");
        out->has_all_handles = out->has_all_handles && (!has_bytes || stride.mem != nullptr);
    }
    out->bytes = bytes;
    return TW_OK;
}

tw_status_t check_list_op(const char* call, const Endpoint& to, const RmaList& list,
                          const WholeOp& whole, std::uint32_t flags) {
    const tw_op_t* const op = whole.get();
    if (op == nullptr)
        return whole.check(call);
    if (op->mem != nullptr) {
        TW_LOG_ERROR("%s: op->mem is not NULL; each piece names its own memory", call);
        return TW_ERR_INVALID_PARAM;
    }
    if ((op->flags & TW_OP_IMM) != 0 && list.is_empty()) {
        TW_LOG_ERROR("%s: TW_OP_IMM with a list of no pieces, which names no memory", call);
        return TW_ERR_INVALID_PARAM;
    }
    return check_op(call, to.worker.context(), *op, flags);
}

/// With the worker's lock.
tw_status_t run_list(Endpoint& ep, RmaKind kind, const RmaList& list, const tw_op_t* op,
                     tw_request_h* request_p) {
    RmaCall call{{}, nullptr, list.bytes, nullptr, 0, op, request_p};
    call.what.kind = kind;
    call.pieces = &list;
    if (!list.is_empty()) {
        call.what.key = &key_of(list.first_key());
        call.what.address = list.first_address();
    }
    return ep.rma.call(call);
}

tw_status_t move_list(const char* call, RmaKind kind, tw_ep_h handle, const tw_list_t* list,
                      const tw_op_t* op, tw_request_h* request_p) try {
    const WholeOp whole(op);
    if (handle == nullptr || list == nullptr)
        return refuse_null(call, handle == nullptr ? "ep" : "list");
    if (!tagwire::ucs::has_size(*list))
        return refuse_size(call, "list", list->struct_bytes, sizeof *list);
    if (tagwire::ucs::reserve_is_low())
        return TW_ERR_NO_MEMORY;
    const bool is_get = kind == RmaKind::kGet;
    Endpoint& to = endpoint_of(handle);
    Endpoint& ep = way_of(to);
    ListRules rules{call,
                    to.worker.context(),
                    to.rma_lane.key_use,
                    true,
                    0,
                    is_get ? unsigned{TW_ACCESS_READ} : unsigned{TW_ACCESS_WRITE}};
    RmaList pieces;
    tw_status_t status = check_pieces(rules, *list, &pieces);
    if (status == TW_OK)
        status = check_list_op(call, to, pieces, whole, is_get ? kGetListFlags : kPutListFlags);
    if (status != TW_OK)
        return status;
    const Entry entry(ep.worker);
    const LeavesWork work(ep.worker);
    return run_list(ep, kind, pieces, whole.get(), request_p);
} catch (const std::bad_alloc&) {
    return refuse_no_memory(call);
}

Prepared& prepared_of(tw_prepared_h handle) {
    return *static_cast<Prepared*>(handle);
}

}  // namespace

extern "C" {

tw_status_t tw_put_list(tw_ep_h ep, const tw_list_t* list, const tw_op_t* op,
                        tw_request_h* request_p) {
    return move_list(__func__, RmaKind::kPut, ep, list, op, request_p);
}

tw_status_t tw_get_list(tw_ep_h ep, const tw_list_t* list, const tw_op_t* op,
                        tw_request_h* request_p) {
    return move_list(__func__, RmaKind::kGet, ep, list, op, request_p);
}

tw_status_t tw_prepare(tw_worker_h worker, tw_rma_kind_t kind, const tw_list_t* list,
                       tw_prepared_h* prepared_p) try {
    TW_REFUSE_NULL(worker);
    TW_REFUSE_NULL(list);
    TW_REFUSE_NULL(prepared_p);
    TW_REFUSE_SIZE(list);
    if (kind != TW_RMA_PUT && kind != TW_RMA_GET)
        TW_REFUSE(TW_ERR_INVALID_PARAM, "kind %d is neither TW_RMA_PUT nor TW_RMA_GET",
                  static_cast<int>(kind));
    const WorkerCore& core = core_of(worker);
    ListRules rules{
        __func__,  core.context(),
        0,         false,
        core.id(), kind == TW_RMA_GET ? unsigned{TW_ACCESS_READ} : unsigned{TW_ACCESS_WRITE}};
    RmaList pieces;
    if (const tw_status_t status = check_pieces(rules, *list, &pieces); status != TW_OK)
        return status;
    *prepared_p = new Prepared(pieces, kind);
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_run_prepared(tw_ep_h handle, tw_prepared_h prepared, const tw_op_t* op,
                            tw_request_h* request_p) try {
    TW_REFUSE_NULL(handle);
    TW_REFUSE_NULL(prepared);
    if (tagwire::ucs::reserve_is_low())
        return TW_ERR_NO_MEMORY;
    const WholeOp whole(op);
    const Prepared& of = prepared_of(prepared);
    const bool is_get = of.kind == TW_RMA_GET;
    Endpoint& to = endpoint_of(handle);
    if (!of.list().is_empty() && of.list().use != to.rma_lane.key_use)
        TW_REFUSE(TW_ERR_INVALID_PARAM,
                  "the list was prepared for another worker than the endpoint's, or is of memory "
                  "of another owner than its peer");
    const tw_status_t status =
        check_list_op(__func__, to, of.list(), whole, is_get ? kGetListFlags : kPutListFlags);
    if (status != TW_OK)
        return status;
    Endpoint& ep = way_of(to);
    const Entry entry(ep.worker);
    const LeavesWork work(ep.worker);
    return run_list(ep, is_get ? RmaKind::kGet : RmaKind::kPut, of.list(), whole.get(), request_p);
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

void tw_prepared_free(tw_prepared_h prepared) {
    if (prepared != nullptr)
        prepared_of(prepared).let_go();
}

}  // extern "C"
