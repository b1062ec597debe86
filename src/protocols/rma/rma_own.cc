// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations of a worker on memory of its own context, by its endpoint to itself: they
// have ended when the call returns, whatever transports there are, and while these connect.
//
// An operation with a fence or a notice goes the way of all, as do those behind operations that
// wait, and those that the memory refuses: its owner tells why.
#include <algorithm>

#include "protocols/request/mem_table.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/request/request_table.hpp"
#include "protocols/request/rma_list.hpp"
#include "protocols/rma/atomics.hpp"
#include "protocols/rma/remote_key.hpp"
#include "protocols/rma/rma_sender.hpp"
#include "ucs/sys/checked_copy.hpp"

namespace tagwire::proto {

namespace {

/// `function(at)` with memory of the key's owner. False: the key gives no such right, or that says
/// so.
template <class Function>
bool use(MemTable& memories, tw_key_h key, std::uint64_t address, std::uint64_t length,
         std::uint32_t access, const Function& function) {
    bool is_done = false;
    return memories.use(key_of(key).memory().memory, [&](Memory& memory) {
        std::byte* const at = memory.reach(address, length, access);
        is_done = at != nullptr && function(at);
    }) && is_done;
}

/// Memory with a key may have been unmapped, or protected, since.
bool copied(bool is_put, std::byte* at, void* local, std::size_t bytes) {
    return (is_put ? ucs::write_checked(at, local, bytes) : ucs::read_checked(local, at, bytes)) ==
           UCS_OK;
}

}  // namespace

void* RmaSender::own_pointer(RemoteKey& key, std::uint64_t address) const {
    void* pointer = nullptr;
    const auto note = [&](std::byte* at) { return (pointer = at) != nullptr; };
    if (to_.own_memory != nullptr)
        use(*to_.own_memory, &key, address, 0, TW_ACCESS_ALL, note);
    return pointer;
}

/// A device changes numbers of the memory, and not atomically with processors.
bool RmaSender::is_of_device(const RmaWish& atomic) {
    return atomic.key->memory().by_device && atomic.number_bytes() == sizeof(std::uint64_t);
}

bool RmaSender::move_here(const RmaCall& call) const {
    const RmaWish& wish = call.what;
    if (wish.kind == RmaKind::kAtomic)
        return atomic_here(wish);
    const bool is_put = wish.kind == RmaKind::kPut;
    if (call.pieces != nullptr)
        return move_list_here(*call.pieces, is_put);
    if (call.length == 0)
        return true;
    const Buffer buffer{static_cast<std::byte*>(const_cast<void*>(call.base)), call.length,
                        const_cast<tw_iov_t*>(call.list), call.count, nullptr};
    return use(*to_.own_memory, wish.key, wish.address, call.length,
               is_put ? TW_ACCESS_WRITE : TW_ACCESS_READ, [&](std::byte* at) {
                   for (std::size_t offset = 0, bytes = 0; offset < call.length; offset += bytes) {
                       std::byte* const local = buffer.piece(offset, &bytes);
                       bytes = std::min(bytes, call.length - offset);
                       if (!copied(is_put, at + offset, local, bytes))
                           return false;
                   }
                   return true;
               });
}

/// Where a piece is refused, those before it are moved once more by the other way.
bool RmaSender::move_list_here(const RmaList& list, bool is_put) const {
    ListCursor cursor;
    ListPart part{};
    while (cursor.take(list, SIZE_MAX, &part)) {
        const bool is_done = use(*to_.own_memory, part.key, part.remote, part.length,
                                 is_put ? TW_ACCESS_WRITE : TW_ACCESS_READ, [&](std::byte* at) {
                                     return copied(is_put, at, part.local, part.length);
                                 });
        if (!is_done)
            return false;
    }
    return true;
}

bool RmaSender::atomic_here(const RmaWish& wish) const {
    const std::size_t bytes = wish.number_bytes();
    if (is_of_device(wish) || wish.address % bytes != 0)
        return false;
    std::uint64_t before = 0;
    const bool is_done =
        use(*to_.own_memory, wish.key, wish.address, bytes, TW_ACCESS_ATOMIC, [&](std::byte* at) {
            if (!ucs::is_writable_word(at))
                return false;
            before = bytes == sizeof(std::uint32_t)
                         ? apply_atomic<std::uint32_t>(at, wish.operation, wish.type, wish.operand,
                                                       wish.compare)
                         : apply_atomic<std::uint64_t>(at, wish.operation, wish.type, wish.operand,
                                                       wish.compare);
            return true;
        });
    if (is_done)
        store_result(wish, before);
    return is_done;
}

bool RmaSender::call_here(const RmaCall& call, tw_status_t* status_p) {
    constexpr std::uint32_t kOthers = TW_OP_FENCE | TW_OP_IMM;
    const std::uint32_t flags = call.op == nullptr ? 0 : call.op->flags;
    if ((flags & kOthers) != 0 || to_.peer.lane.has_operations())
        return false;
    // Somebody is told of the end.
    const bool is_told =
        call.op != nullptr && ((flags & TW_OP_COMPLETION) != 0 || call.op->counter != nullptr);
    Request* const request = is_told ? make_request(call, false) : nullptr;
    *status_p = TW_ERR_NO_RESOURCE;
    if (is_told && request == nullptr)
        return true;
    const bool is_done = move_here(call);
    if (request == nullptr) {
        *status_p = TW_OK;
    } else if (is_done) {
        request->done.ep = handle_of(to_.peer);
        to_.worker.finish(*request, UCS_OK);
        *status_p = to_.worker.requests.answer(*request, call.op, call.request_p);
    } else {
        to_.worker.requests.release(*request);
    }
    return is_done;
}

}  // namespace tagwire::proto
