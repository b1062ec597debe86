// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/reply_queue.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>

#include "vhca/core/device_impl.hpp"
#include "vhca/core/guarded.hpp"
#include "vhca/core/sequence.hpp"

namespace tagwire::vhca {

int ReplyQueue::set_requests_max(std::uint32_t count) {
    constexpr std::size_t kIdleBytesMax = 2048;  // of a queue pair, besides its queues
    static_assert(sizeof(QueuePair) + DeviceConfig{}.rd_atom_max * sizeof(DataRequest) <=
                  kIdleBytesMax);
    std::unique_ptr<DataRequest[]> ring;
    if (count != 0) {
        ring.reset(new (std::nothrow) DataRequest[count]{});
        if (ring == nullptr)
            return ENOMEM;
    }
    ring_ = std::move(ring);
    size_ = count;
    head_ = active_ = 0;
    return 0;
}

void ReplyQueue::reset() {
    drop();
    ring_.reset();
    size_ = head_ = 0;
    msn_ = 0;
}

void ReplyQueue::drop() {
    has_ack_ = false;
    active_ = 0;
    for (std::uint32_t i = 0; i < size_; ++i)
        ring_[i].is_active = false;
}

void ReplyQueue::acknowledge(std::uint8_t syndrome, std::uint64_t psn) {
    if (!qp_.context().is_reliable())
        return;
    has_ack_ = true;
    syndrome_ = syndrome;
    ack_psn_ = psn;
    qp_.device.schedule(qp_);
}

bool ReplyQueue::add(const Packet& packet, std::uint64_t psn, std::uint32_t packets) {
    if (packet.outstanding > size_ || size_ == 0)
        return false;
    DataRequest& request = ring_[head_ % size_];
    if (request.is_active) {
        if (!request.was_replied)
            return false;
        --active_;  // who asks for a new one has the reply that he asked for twice
    }
    request = {.psn = psn,
               .address = packet.address,
               .swap_add = packet.swap_add,
               .compare = packet.compare,
               .original = 0,
               .packets = packets,
               .first = 0,
               .next = 0,
               .length = packet.length,
               .rkey = packet.rkey,
               .opcode = packet.opcode,
               .is_active = true,
               .is_executed = false,
               .was_replied = false};
    // The ring holds the youngest size_; the index may wrap only at a multiple of that.
    head_ = head_ + 1 == 2 * size_ ? size_ : head_ + 1;
    ++active_;
    has_ack_ = false;  // the data acknowledges what came before
    qp_.device.schedule(qp_);
    // An atomic behind reads waits until they have read.
    if (request.opcode != Opcode::kRcReadRequest && active_ == 1)
        static_cast<void>(execute(request));
    return true;
}

ReplyQueue::DataRequest* ReplyQueue::oldest_active() {
    if (active_ == 0)
        return nullptr;
    const std::uint32_t count = std::min(head_, size_);
    for (std::uint32_t i = head_ - count; i != head_; ++i)
        if (ring_[i % size_].is_active)
            return &ring_[i % size_];
    return nullptr;
}

bool ReplyQueue::execute(DataRequest& atomic) {
    std::byte* at = qp_.device.memory.resolve(atomic.rkey, qp_.config.pd, atomic.address,
                                              sizeof(std::uint64_t), IBV_ACCESS_REMOTE_ATOMIC);
    if (at == nullptr || reinterpret_cast<std::uintptr_t>(at) % sizeof(std::uint64_t) != 0)
        return false;
    atomic.is_executed = guarded([&] {
        // Programs may use the counter with atomic instructions of their own.
        const std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(at));
        if (atomic.opcode == Opcode::kRcFetchAdd) {
            atomic.original = word.fetch_add(atomic.swap_add, std::memory_order_relaxed);
        } else {
            atomic.original = atomic.compare;
            word.compare_exchange_strong(atomic.original, atomic.swap_add,
                                         std::memory_order_relaxed);
        }
    });
    return atomic.is_executed;
}

void ReplyQueue::repeat(const Packet& packet, std::uint64_t psn) {
    for (std::uint32_t i = 0; i < std::min(head_, size_); ++i) {
        DataRequest& request = ring_[i];
        if (psn < request.psn || psn >= request.psn + request.packets)
            continue;
        const auto from = static_cast<std::uint32_t>(psn - request.psn);
        if (packet.opcode != request.opcode ||
            packet.address != request.address + std::uint64_t{from} * qp_.context().mtu()) {
            return;
        }
        if (!request.is_active) {
            request.is_active = true;
            ++active_;
            request.first = request.next = from;
        } else if (from < request.next) {
            request.first = request.next = from;
        }
        qp_.device.schedule(qp_);
        return;
    }
}

bool ReplyQueue::transmit() {
    unsigned budget = kPacketsPerTurn;
    while (DataRequest* request = oldest_active()) {
        const bool is_read = request->opcode == Opcode::kRcReadRequest;
        if (budget-- == 0 || !(is_read ? transmit_read(*request) : transmit_atomic(*request)))
            return false;
    }
    return !has_ack_ || transmit_acknowledgement();
}

void ReplyQueue::commit(const std::byte* start, const std::byte* end) {
    qp_.device.wire.commit(qp_.context().route(), static_cast<std::size_t>(end - start));
    ++qp_.device.counters.packets_sent;
}

/// The requested memory is gone: the region was deregistered meanwhile.
void ReplyQueue::fail(const DataRequest& request) {
    const std::uint64_t psn = request.psn + request.next;
    drop();
    acknowledge(kNakSyndrome | kNakRemoteAccess, psn);
    if (qp_.state() != IBV_QPS_ERR) {
        qp_.enter_error(true);
        qp_.report(IBV_EVENT_QP_ACCESS_ERR);
    }
}

void ReplyQueue::note_replied(DataRequest& request) {
    request.is_active = false;
    request.was_replied = true;
    --active_;
}

bool ReplyQueue::transmit_read(DataRequest& request) {
    const std::uint64_t offset = std::uint64_t{request.next} * qp_.context().mtu();
    const auto bytes = static_cast<std::size_t>(
        std::min<std::uint64_t>(qp_.context().mtu(), request.length - offset));
    const bool is_last = request.next + 1 == request.packets;
    const bool is_first = request.next == request.first;
    Packet packet;
    packet.opcode =
        qp_.context().opcode(is_last ? (is_first ? Opcode::kRcReadOnly : Opcode::kRcReadLast)
                                     : (is_first ? Opcode::kRcReadFirst : Opcode::kRcReadMiddle));
    qp_.context().address(packet);
    packet.psn = static_cast<std::uint32_t>((request.psn + request.next) & kPsnMask);
    packet.syndrome = kAckSyndrome;
    packet.msn = msn_;
    std::byte* start =
        qp_.device.wire.claim(qp_.context().route(), packet_bytes(packet.opcode, bytes));
    if (start == nullptr)
        return false;
    std::byte* payload = put_headers(start, packet, bytes);
    std::byte* to = payload;
    const auto copy = [&to](const std::byte* from, std::size_t count) {
        std::byte* part = to;
        to += count;
        return copy_from_region(part, from, count);
    };
    if (bytes != 0 &&
        !qp_.device.memory.visit(request.rkey, qp_.config.pd, request.address + offset, bytes,
                                 IBV_ACCESS_REMOTE_READ, copy)) {
        fail(request);  // the claim is not committed: it never was
        return true;
    }
    commit(start, put_padding(payload + bytes, bytes));
    qp_.device.counters.payload_bytes_sent += bytes;
    ++request.next;
    if (is_last)
        note_replied(request);
    return true;
}

bool ReplyQueue::transmit_atomic(DataRequest& request) {
    if (!request.is_executed && !execute(request)) {
        fail(request);
        return true;
    }
    Packet packet;
    packet.opcode = qp_.context().opcode(Opcode::kRcAtomicAck);
    qp_.context().address(packet);
    packet.psn = static_cast<std::uint32_t>(request.psn & kPsnMask);
    packet.syndrome = kAckSyndrome;
    packet.msn = msn_;
    packet.original = request.original;
    std::byte* start = qp_.device.wire.claim(qp_.context().route(), packet_bytes(packet.opcode, 0));
    if (start == nullptr)
        return false;
    commit(start, put_headers(start, packet, 0));
    note_replied(request);
    return true;
}

bool ReplyQueue::transmit_acknowledgement() {
    Packet packet;
    packet.opcode = qp_.context().opcode(Opcode::kRcAck);
    qp_.context().address(packet);
    packet.psn = static_cast<std::uint32_t>(ack_psn_ & kPsnMask);
    packet.syndrome = syndrome_;
    packet.msn = msn_;
    std::byte* start = qp_.device.wire.claim(qp_.context().route(), packet_bytes(packet.opcode, 0));
    if (start == nullptr)
        return false;
    commit(start, put_headers(start, packet, 0));
    has_ack_ = false;
    return true;
}

}  // namespace tagwire::vhca
