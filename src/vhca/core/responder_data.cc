// SPDX-License-Identifier: BSD-3-Clause
// Answers of a reliable connection: reads, atomics, acknowledgements.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "vhca/core/device_impl.hpp"
#include "vhca/core/guarded.hpp"
#include "vhca/core/sequence.hpp"

namespace tagwire::vhca {

int Responder::set_data_requests_max(std::uint32_t count) {
    constexpr std::size_t kIdleBytesMax = 2048;  // of a queue pair, besides its queues
    static_assert(sizeof(QueuePair) + DeviceConfig{}.rd_atom_max * sizeof(DataRequest) <=
                  kIdleBytesMax);
    std::unique_ptr<DataRequest[]> ring;
    if (count != 0) {
        ring.reset(new (std::nothrow) DataRequest[count]{});
        if (ring == nullptr)
            return ENOMEM;
    }
    data_ = std::move(ring);
    data_max_ = count;
    data_head_ = data_active_ = 0;
    return 0;
}

void Responder::drop_answers() {
    has_answer_ = false;
    data_active_ = 0;
    for (std::uint32_t i = 0; i < data_max_; ++i)
        data_[i].is_active = false;
}

void Responder::answer(std::uint8_t syndrome, std::uint64_t psn) {
    if (!qp_.is_reliable())
        return;
    has_answer_ = true;
    syndrome_ = syndrome;
    answer_psn_ = psn;
    qp_.device.schedule(qp_);
}

Responder::DataRequest* Responder::new_data_request(const Packet& packet, std::uint32_t packets) {
    if (packet.outstanding > data_max_ || data_max_ == 0)
        return nullptr;
    DataRequest& request = data_[data_head_ % data_max_];
    if (request.is_active) {
        if (!request.was_answered)
            return nullptr;
        --data_active_;  // who asks for a new one has the answer that he asked for twice
    }
    request = {.psn = expected_,
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
               .was_answered = false};
    // The ring holds the youngest data_max_; the index may wrap only at a multiple of that.
    data_head_ = data_head_ + 1 == 2 * data_max_ ? data_max_ : data_head_ + 1;
    ++data_active_;
    has_answer_ = false;  // the data acknowledges what came before
    qp_.device.schedule(qp_);
    return &request;
}

Responder::DataRequest* Responder::oldest_active() {
    if (data_active_ == 0)
        return nullptr;
    const std::uint32_t count = std::min(data_head_, data_max_);
    for (std::uint32_t i = data_head_ - count; i != data_head_; ++i)
        if (data_[i % data_max_].is_active)
            return &data_[i % data_max_];
    return nullptr;
}

Responder::Verdict Responder::execute_read(const Packet& packet) {
    if ((qp_.attr().qp_access_flags & IBV_ACCESS_REMOTE_READ) == 0)
        return Verdict::kAccess;
    if (packet.length > kMessageBytesMax)
        return Verdict::kInvalid;
    if (packet.length != 0 && !qp_.device.memory.opens(packet.rkey, qp_.config.pd, packet.address,
                                                       packet.length, IBV_ACCESS_REMOTE_READ)) {
        return Verdict::kAccess;
    }
    const std::uint32_t packets = packets_of(packet.length, qp_.mtu());
    if (new_data_request(packet, packets) == nullptr)
        return Verdict::kInvalid;
    expected_ += packets - 1;  // the caller adds one
    return Verdict::kDone;
}

Responder::Verdict Responder::execute_atomic(const Packet& packet) {
    if (!qp_.device.config.has_atomics)
        return Verdict::kInvalid;
    if ((qp_.attr().qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) == 0)
        return Verdict::kAccess;
    if (packet.address % sizeof(std::uint64_t) != 0)
        return Verdict::kInvalid;
    if (qp_.device.memory.resolve(packet.rkey, qp_.config.pd, packet.address, sizeof(std::uint64_t),
                                  IBV_ACCESS_REMOTE_ATOMIC) == nullptr) {
        return Verdict::kAccess;
    }
    DataRequest* request = new_data_request(packet, 1);
    if (request == nullptr)
        return Verdict::kInvalid;
    if (data_active_ == 1)  // else it waits until the reads before it have read
        static_cast<void>(perform(*request));
    return Verdict::kDone;
}

bool Responder::perform(DataRequest& request) {
    std::byte* at = qp_.device.memory.resolve(request.rkey, qp_.config.pd, request.address,
                                              sizeof(std::uint64_t), IBV_ACCESS_REMOTE_ATOMIC);
    if (at == nullptr || reinterpret_cast<std::uintptr_t>(at) % sizeof(std::uint64_t) != 0)
        return false;
    request.is_executed = guarded([&] {
        // Programs may use the counter with atomic instructions of their own.
        const std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(at));
        if (request.opcode == Opcode::kRcFetchAdd) {
            request.original = word.fetch_add(request.swap_add, std::memory_order_relaxed);
        } else {
            request.original = request.compare;
            word.compare_exchange_strong(request.original, request.swap_add,
                                         std::memory_order_relaxed);
        }
    });
    return request.is_executed;
}

void Responder::receive_duplicate(const Packet& packet) {
    ++qp_.device.counters.duplicates;
    if (packet.has(kHasPayload)) {
        if (!has_answer_)
            answer(kAckSyndrome, expected_ - 1);
        return;
    }
    const std::uint64_t psn =
        expected_ - static_cast<std::uint32_t>(-distance(packet.psn, expected_));
    for (std::uint32_t i = 0; i < std::min(data_head_, data_max_); ++i) {
        DataRequest& request = data_[i];
        if (psn < request.psn || psn >= request.psn + request.packets)
            continue;
        const auto from = static_cast<std::uint32_t>(psn - request.psn);
        if (packet.opcode != request.opcode ||
            packet.address != request.address + std::uint64_t{from} * qp_.mtu()) {
            return;
        }
        if (!request.is_active) {
            request.is_active = true;
            ++data_active_;
            request.first = request.next = from;
        } else if (from < request.next) {
            request.first = request.next = from;
        }
        qp_.device.schedule(qp_);
        return;
    }
}

bool Responder::transmit() {
    unsigned budget = kPacketsPerTurn;
    while (DataRequest* request = oldest_active())
        if (budget-- == 0 || !transmit_data(*request))
            return false;
    return !has_answer_ || transmit_answer();
}

bool Responder::transmit_data(DataRequest& request) {
    const bool is_read = request.opcode == Opcode::kRcReadRequest;
    return is_read ? transmit_read(request) : transmit_atomic(request);
}

void Responder::commit(const std::byte* start, const std::byte* end) {
    qp_.device.wire.commit(qp_.route(), static_cast<std::size_t>(end - start));
    ++qp_.device.counters.packets_sent;
}

/// The requested memory is gone: the region was deregistered meanwhile.
void Responder::fail_data(const DataRequest& request) {
    const std::uint64_t psn = request.psn + request.next;
    drop_answers();
    answer(kNakSyndrome | kNakRemoteAccess, psn);
    if (qp_.state() != IBV_QPS_ERR) {
        qp_.enter_error(true);
        qp_.report(IBV_EVENT_QP_ACCESS_ERR);
    }
}

void Responder::note_answered(DataRequest& request) {
    request.is_active = false;
    request.was_answered = true;
    --data_active_;
}

bool Responder::transmit_read(DataRequest& request) {
    const std::uint64_t offset = std::uint64_t{request.next} * qp_.mtu();
    const auto bytes =
        static_cast<std::size_t>(std::min<std::uint64_t>(qp_.mtu(), request.length - offset));
    const bool is_last = request.next + 1 == request.packets;
    const bool is_first = request.next == request.first;
    Packet packet;
    packet.opcode = qp_.opcode(is_last ? (is_first ? Opcode::kRcReadOnly : Opcode::kRcReadLast)
                                       : (is_first ? Opcode::kRcReadFirst : Opcode::kRcReadMiddle));
    qp_.address(packet);
    packet.psn = static_cast<std::uint32_t>((request.psn + request.next) & kPsnMask);
    packet.syndrome = kAckSyndrome;
    packet.msn = msn_;
    std::byte* start = qp_.device.wire.claim(qp_.route(), packet_bytes(packet.opcode, bytes));
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
        fail_data(request);  // the claim is not committed: it never was
        return true;
    }
    commit(start, put_padding(payload + bytes, bytes));
    qp_.device.counters.payload_bytes_sent += bytes;
    ++request.next;
    if (is_last)
        note_answered(request);
    return true;
}

bool Responder::transmit_atomic(DataRequest& request) {
    if (!request.is_executed && !perform(request)) {
        fail_data(request);
        return true;
    }
    Packet packet;
    packet.opcode = qp_.opcode(Opcode::kRcAtomicAck);
    qp_.address(packet);
    packet.psn = static_cast<std::uint32_t>(request.psn & kPsnMask);
    packet.syndrome = kAckSyndrome;
    packet.msn = msn_;
    packet.original = request.original;
    std::byte* start = qp_.device.wire.claim(qp_.route(), packet_bytes(packet.opcode, 0));
    if (start == nullptr)
        return false;
    commit(start, put_headers(start, packet, 0));
    note_answered(request);
    return true;
}

bool Responder::transmit_answer() {
    Packet packet;
    packet.opcode = qp_.opcode(Opcode::kRcAck);
    qp_.address(packet);
    packet.psn = static_cast<std::uint32_t>(answer_psn_ & kPsnMask);
    packet.syndrome = syndrome_;
    packet.msn = msn_;
    std::byte* start = qp_.device.wire.claim(qp_.route(), packet_bytes(packet.opcode, 0));
    if (start == nullptr)
        return false;
    commit(start, put_headers(start, packet, 0));
    has_answer_ = false;
    return true;
}

}  // namespace tagwire::vhca
