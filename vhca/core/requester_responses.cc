// SPDX-License-Identifier: BSD-3-Clause
// Responses to the requester of a reliable connection, and its timeouts.
#include <array>
#include <cstring>

#include "vhca/core/device_impl.hpp"
#include "vhca/core/sequence.hpp"

namespace tagwire::vhca {

namespace {

ibv_wc_status status_of_nak(std::uint8_t code) {
    switch (code) {
        case kNakInvalidRequest:
            return IBV_WC_REM_INV_REQ_ERR;
        case kNakRemoteAccess:
            return IBV_WC_REM_ACCESS_ERR;
        default:
            return IBV_WC_REM_OP_ERR;
    }
}

}  // namespace

void Requester::receive(const Packet& packet) {
    const std::int32_t ahead = distance(packet.psn, una_);
    if (ahead < 0 || una_ + static_cast<std::uint32_t>(ahead) >= sent_) {
        ++qp_.device.counters.duplicates;
        return;
    }
    const std::uint64_t psn = una_ + static_cast<std::uint32_t>(ahead);
    if (packet.opcode == Opcode::kRcAck)
        receive_ack(packet, psn);
    else
        receive_data(packet, psn);
    if (cursor_ != queue_.rung())
        qp_.device.schedule(qp_);
}

/// Requests before `end` are done, but one that wants data is not done without its data: false.
bool Requester::acknowledge(std::uint64_t end) {
    const std::uint64_t before = una_;
    while (una_ < end) {
        const SendRequest& request = queue_.oldest();
        if (request.wants_data())
            break;
        const std::uint64_t request_end = request.end_psn();
        if (end < request_end) {
            una_ = end;
            break;
        }
        una_ = request_end;
        queue_.complete_oldest(IBV_WC_SUCCESS);
        end_nops();
    }
    if (una_ != before)
        note_progress();
    if (una_ < end && implied_ != una_) {
        implied_ = una_;  // its answer was lost: ask again, once; then the timeout decides
        go_back();
    }
    return una_ >= end;
}

void Requester::receive_ack(const Packet& packet, std::uint64_t psn) {
    const auto value = static_cast<std::uint8_t>(packet.syndrome & ~kSyndromeKindMask);
    switch (packet.syndrome & kSyndromeKindMask) {
        case 0:
            acknowledge(psn + 1);
            break;
        case kRnrSyndrome:
            ++qp_.device.counters.rnr_naks;
            if (acknowledge(psn) && una_ == psn)
                receive_rnr(value);
            break;
        case kNakSyndrome:
            if (acknowledge(psn) && una_ == psn)
                receive_nak(value);
            break;
        default:
            ++qp_.device.counters.malformed;
    }
}

void Requester::receive_nak(std::uint8_t code) {
    if (code != kNakSequence) {
        fail_oldest(status_of_nak(code));
        return;
    }
    ++qp_.device.counters.sequence_naks;
    if (!timer_.is_paused())  // else it is older than the RNR NAK
        retry();
}

void Requester::receive_rnr(std::uint8_t timer_code) {
    if (timer_.is_paused())
        return;
    if (!timer_.take_rnr_retry()) {
        fail_oldest(IBV_WC_RNR_RETRY_EXC_ERR);
        return;
    }
    go_back();
    timer_.pause(timer_code);
}

void Requester::receive_data(const Packet& packet, std::uint64_t psn) {
    if (!acknowledge(psn) || una_ != psn)
        return;
    SendRequest& request = queue_.oldest();
    const bool is_result = packet.opcode == Opcode::kRcAtomicAck;
    if (!(is_result ? request.is_atomic() : request.is_read())) {
        ++qp_.device.counters.malformed;
        return;
    }
    std::array<std::byte, sizeof packet.original> old;
    std::memcpy(old.data(), &packet.original, old.size());
    const auto data = is_result ? std::span<const std::byte>(old) : packet.payload;
    if (const ibv_wc_status status = take_data(request, packet, data); status != IBV_WC_SUCCESS) {
        fail_oldest(status);
        return;
    }
    ++una_;
    --data_packets_;
    if (una_ == request.end_psn()) {
        --data_requests_;
        queue_.complete_oldest(IBV_WC_SUCCESS,
                               queue_.goes_into_cqe(request) ? data : std::span<const std::byte>());
        end_nops();
    }
    note_progress();
}

ibv_wc_status Requester::take_data(SendRequest& request, const Packet& packet,
                                   std::span<const std::byte> data) {
    if (request.is_atomic()) {
        const bool is_taken = queue_.goes_into_cqe(request) ||
                              qp_.device.memory.scatter(request.sges(), queue_.pd_of(request), 0,
                                                        data.data(), data.size());
        return is_taken ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
    }
    const std::uint64_t offset = (una_ - request.first_psn) * qp_.context().mtu();
    const std::uint64_t left = request.length - offset;
    const std::uint64_t bytes = left < qp_.context().mtu() ? left : qp_.context().mtu();
    if (packet.payload.size() != bytes || packet.has(kIsEnd) != (bytes == left))
        return IBV_WC_BAD_RESP_ERR;
    return queue_.goes_into_cqe(request) || place(request, offset, packet) ? IBV_WC_SUCCESS
                                                                           : IBV_WC_LOC_PROT_ERR;
}

bool Requester::place(SendRequest& request, std::uint64_t offset, const Packet& packet) {
    const MemoryTable& memory = qp_.device.memory;
    if (!qp_.device.config.shuffles_reads) [[likely]] {
        return memory.scatter(request.sges(), queue_.pd_of(request), offset, packet.payload.data(),
                              packet.payload.size());
    }
    if (placement_ == nullptr)
        placement_ = std::make_unique<ReadPlacement>(qp_.device.random);
    const ReadTarget to{memory, request.sges(), queue_.pd_of(request)};
    return placement_->take(to, offset, packet.payload) &&
           (!packet.has(kIsEnd) || placement_->finish(to));
}

void Requester::note_progress() {
    timer_.refill();
    timer_.stop();
    session_.cancel_connect();
    // Requests that were acknowledged after going back are not sent again.
    if (static_cast<std::int32_t>(cursor_ - queue_.done()) < 0) {
        cursor_ = queue_.done();
        cursor_packet_ = 0;
    }
    if (cursor_ == queue_.done() && queue_.has_undone()) {
        const std::uint64_t first = queue_.oldest().first_psn;
        if (una_ > first + cursor_packet_)
            cursor_packet_ = static_cast<std::uint32_t>(una_ - first);
    }
    if (una_ < sent_)
        timer_.arm();
    if (fault_ != IBV_WC_SUCCESS && queue_.done() == cursor_)
        fail_oldest(fault_);
    else if (qp_.state() == IBV_QPS_SQD && is_idle())
        qp_.note_drained();
}

void Requester::go_back() {
    ++qp_.device.counters.retransmits;
    cursor_ = queue_.done();
    cursor_packet_ = static_cast<std::uint32_t>(una_ - queue_.oldest().first_psn);
    fault_ = IBV_WC_SUCCESS;  // it is found again when its turn comes
    session_.connect_again();
    qp_.device.schedule(qp_);
}

void Requester::retry() {
    if (!timer_.take_retry()) {
        fail_oldest(IBV_WC_RETRY_EXC_ERR);
        return;
    }
    timer_.stop();  // sending starts it anew
    go_back();
}

Time Requester::run_timer() {
    switch (timer_.run()) {
        case RetryTimer::Due::kNothing:
            break;
        case RetryTimer::Due::kResume:
            qp_.device.schedule(qp_);
            break;
        case RetryTimer::Due::kTimeout:
            ++qp_.device.counters.timeouts;
            retry();
    }
    return timer_.deadline();
}

void Requester::fail_oldest(ibv_wc_status status) {
    queue_.complete_oldest(status);
    if (qp_.context().is_reliable())
        qp_.enter_error(false);
    else
        qp_.enter_send_error();
}

// ---- DC ----------------------------------------------------------------------------------------

void Requester::receive_refusal(const Packet& packet) {
    if (una_ == sent_ || distance(packet.psn, una_) != 0)
        return;
    const auto value = static_cast<std::uint8_t>(packet.syndrome & ~kSyndromeKindMask);
    if ((packet.syndrome & kSyndromeKindMask) == kRnrSyndrome) {
        ++qp_.device.counters.rnr_naks;
        timer_.refill_retries();  // the target is there, and the wait may be long
        session_.note_no_room();
        receive_rnr(value);
    } else {
        receive_nak(value);
    }
}

void Requester::receive_inquiry(Route from, const Packet& packet, bool is_current) {
    if (!is_current || !session_.is_open())
        qp_.device.answer_inquiry(from, packet);  // again: the disconnect was lost
    else if (queue_.done() != queue_.rung() || una_ != sent_)
        static_cast<void>(session_.connect(una_));  // still in use
    else
        session_.close();
}

// A session begins when its first request goes, not when that is enqueued.
bool Requester::goes_to(Route route, std::uint32_t qpn) {
    if (!queue_.has_undone())
        return qp_.context().route() == route && qp_.context().attr().dest_qp_num == qpn;
    const SendRequest& newest = queue_.newest();
    return newest.route == route && newest.remote_qpn == qpn;
}

void Requester::fail_overwritten() {
    queue_.ring();
    fail_oldest(IBV_WC_LOC_QP_OP_ERR);
}

}  // namespace tagwire::vhca
