// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/rma/rma_target.hpp"

#include <algorithm>
#include <cstring>

#include "protocols/match/match_peer.hpp"
#include "protocols/request/envelope.hpp"
#include "protocols/request/keys.hpp"
#include "protocols/request/lane_state.hpp"
#include "protocols/request/mem_table.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/rma/atomics.hpp"
#include "protocols/wire/limits.hpp"
#include "ucs/log/log.hpp"
#include "ucs/sys/checked_copy.hpp"

namespace tagwire::proto {

namespace {

/// Calls `function(at)` with the memory, if the peer may do this there.
template <class Function>
ucs_status_t use(const RmaTargetPorts& to, const MemoryRange& range, std::uint64_t length,
                 std::uint32_t access, const Function& function) {
    ucs_status_t status = UCS_ERR_INVALID_ADDR;
    const bool is_there = to.memories.use(range.memory, [&](Memory& memory) {
        if (std::byte* const at = memory.reach(range.address, length, access))
            status = function(memory, at);
    });
    if (!is_there || status == UCS_ERR_INVALID_ADDR) {
        to.counters.add(WorkerCounter::kRmaRefused);
        TW_LOG_DEBUG("a peer's operation on memory %lx, [0x%lx, +%lu) is refused: %s", range.memory,
                     range.address, length,
                     is_there ? "its key gives no such right, or it cannot be accessed"
                              : "no key names this memory");
    }
    return status;
}

/// The status of a checked copy for the peer, whom UCS_ERR_NO_RESOURCE would tell to repeat it.
ucs_status_t final_status(ucs_status_t of_copy) {
    return of_copy == UCS_ERR_NO_RESOURCE ? UCS_ERR_NO_MEMORY : of_copy;
}

/// Data that cannot be read is sent as zeroes, and its status returned: the reply tells the peer.
ucs_status_t send_data(const LaneState& lane, const GetData& head, const std::byte* data,
                       std::size_t bytes) {
    struct Packing {
        GetData head;
        const std::byte* data;
        std::size_t bytes;
        ucs_status_t read;
        static std::size_t pack(void* to, void* arg) {
            auto& packing = *static_cast<Packing*>(arg);
            std::memcpy(to, &packing.head, sizeof packing.head);
            std::byte* const at = static_cast<std::byte*>(to) + sizeof packing.head;
            packing.read = ucs::read_checked(at, packing.data, packing.bytes);
            if (packing.read != UCS_OK)
                std::memset(at, 0, packing.bytes);
            return sizeof packing.head + packing.bytes;
        }
    } packing{head, data, bytes, UCS_OK};
    const ucs_status_t sent = status_of(uct_ep_am_bcopy(
        lane.ep, static_cast<std::uint8_t>(AmId::kGetData), Packing::pack, &packing, 0));
    return sent == UCS_OK ? final_status(packing.read) : sent;
}

}  // namespace

/// The peer asks for one more operation. False: it has not waited for replies, and the connection
/// has ended.
bool RmaTarget::admit() {
    if (owed_ < kAskedMax) {
        ++owed_;
        return true;
    }
    TW_LOG_WARN(
        "endpoint to worker %016lx fails: its peer has asked for more than %zu one-sided "
        "operations without waiting for a reply",
        to_.peer.worker_id, kAskedMax);
    to_.peer.lane.end(UCS_ERR_EXCEEDS_LIMIT);
    return false;
}

void RmaTarget::reply(std::uint32_t op_id, ucs_status_t status, std::uint64_t before) {
    to_.peer.lane.control(RmaReply{.op_id = op_id, .status = status, .before = before});
}

void RmaTarget::on_put(const PutMessage& message) {
    const PutPart& head = message.head;
    const ucs_status_t status =
        use(to_, head.to, message.data.size(), TW_ACCESS_WRITE, [&](const Memory&, std::byte* at) {
            return final_status(ucs::write_checked(at, message.data.data(), message.data.size()));
        });
    if (put_status_ == UCS_OK)
        put_status_ = status;
    if (head.is_last != 0 && admit())
        reply(head.op_id, std::exchange(put_status_, UCS_OK));
}

void RmaTarget::on_request(const RmaRequest& message) {
    if (!admit())
        return;
    if (message.kind == RmaKind::kAtomic)
        return on_atomic(message);
    const bool is_for_keys = message.kind == RmaKind::kKeys;
    gets_.push_back({message.op_id, message.at, message.length, 0, is_for_keys});
    to_.peer.lane.run();
}

ucs_status_t RmaTarget::send_piece() {
    Get& get = gets_.front();
    if (get.is_for_keys)
        return send_keys();
    const std::size_t bytes = std::min<std::uint64_t>(to_.lane.rail().bcopy_max - sizeof(GetData),
                                                      get.length - get.offset);
    // All of it is looked at each time: what is refused is refused as a whole.
    const ucs_status_t status =
        use(to_, get.from, get.length, TW_ACCESS_READ, [&](const Memory&, const std::byte* at) {
            return send_data(to_.lane, {to_.peer.peer_names, get.op_id, get.offset},
                             at + get.offset, bytes);
        });
    if (status == UCS_ERR_NO_RESOURCE)
        return status;
    get.offset += bytes;
    if (status == UCS_OK && get.offset < get.length)
        return UCS_OK;
    const std::uint32_t op_id = get.op_id;
    gets_.pop_front();
    reply(op_id, status);
    return UCS_OK;
}

/// In one message, as many as it has room for.
ucs_status_t RmaTarget::send_keys() {
    const Get& get = gets_.front();
    Keys keys;
    const bool is_there =
        to_.memories.use(get.from.memory, [&](const Memory& memory) { memory.list_keys(&keys); });
    const std::size_t bytes =
        std::min<std::size_t>({keys.used, get.length, to_.lane.rail().bcopy_max - sizeof(GetData)});
    if (bytes > 0) {
        const ucs_status_t status =
            send_data(to_.lane, {to_.peer.peer_names, get.op_id, 0}, keys.bytes, bytes);
        if (status == UCS_ERR_NO_RESOURCE)
            return status;
    }
    const std::uint32_t op_id = get.op_id;
    gets_.pop_front();
    reply(op_id, is_there ? UCS_OK : UCS_ERR_INVALID_ADDR);
    return UCS_OK;
}

void RmaTarget::on_atomic(const RmaRequest& message) {
    std::uint64_t before = 0;
    const ucs_status_t status =
        use(to_, message.at, message.length, TW_ACCESS_ATOMIC,
            [&](const Memory& memory, std::byte* at) {
                if (message.at.address % message.length != 0 || !ucs::is_writable_word(at))
                    return UCS_ERR_INVALID_ADDR;
                if (message.length == sizeof(std::uint32_t)) {
                    before = apply_atomic<std::uint32_t>(at, message.operation, message.type,
                                                         message.operand, message.compare);
                    return UCS_OK;
                }
                if (memory.atomics_by_device())
                    return UCS_ERR_UNSUPPORTED;  // not atomic with those
                before = apply_atomic<std::uint64_t>(at, message.operation, message.type,
                                                     message.operand, message.compare);
                return UCS_OK;
            });
    reply(message.op_id, status, before);
}

void RmaTarget::on_notice(const Notice& message) {
    bool is_counted = false;
    // Refused: so was the put, or the program has unmapped the memory since.
    const std::uint64_t there = message.is_list == 1 ? 0 : message.length;
    if (use(to_, message.at, there, TW_ACCESS_WRITE, [&](const Memory& memory, const std::byte*) {
            is_counted = memory.counts_puts();
            return UCS_OK;
        }) != UCS_OK)
        return;
    tw_completion_t done{};
    done.flags = TW_DONE_REMOTE | TW_DONE_PUT | TW_DONE_IMM;
    done.length = done.message_length = message.length;
    done.buffer = reinterpret_cast<void*>(message.at.address);
    done.imm = message.imm;
    done.source = to_.peer.worker_id;
    to_.tell(to_.owner, to_.peer, done, is_counted);
    // The memory is looked up again, because the callback may have unmapped it. Inside use() it
    // stays, and with it the counter.
    if (is_counted) {
        static_cast<void>(
            to_.memories.use(message.at.memory, [](Memory& memory) { memory.count_put(); }));
    }
}

}  // namespace tagwire::proto
