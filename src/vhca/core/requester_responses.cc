// SPDX-License-Identifier: BSD-3-Clause
// Responses to the requester of a reliable connection, and its timeouts.
#include <array>
#include <cstring>

#include "vhca/core/device_impl.hpp"
#include "vhca/core/sequence.hpp"

namespace tagwire::vhca {

namespace {

constexpr Time kMicrosecond = 1000;

/// IBTA table 45: how long to wait, by the code of the responder.
constexpr std::array<Time, 32> kRnrDelays = {
    655'360'000, 10'000,      20'000,      30'000,     40'000,     60'000,     80'000,
    120'000,     160'000,     240'000,     320'000,    480'000,    640'000,    960'000,
    1'280'000,   1'920'000,   2'560'000,   3'840'000,  5'120'000,  7'680'000,  10'240'000,
    15'360'000,  20'480'000,  30'720'000,  40'960'000, 61'440'000, 81'920'000, 122'880'000,
    163'840'000, 245'760'000, 327'680'000, 491'520'000};
static_assert(kRnrDelays[0] == 655'360 * kMicrosecond && kRnrDelays[31] == 491'520 * kMicrosecond);

constexpr std::uint8_t kForeverRnr = 7;

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
    if (cursor_ != rung_)
        qp_.device.schedule(qp_);
}

/// Requests before `end` are done, but one that wants data is not done without its data: false.
bool Requester::acknowledge(std::uint64_t end) {
    const std::uint64_t before = una_;
    while (una_ < end) {
        const SendRequest& request = at(done_);
        if (request.wants_data())
            break;
        const std::uint64_t request_end = request.first_psn + request.packets;
        if (end < request_end) {
            una_ = end;
            break;
        }
        una_ = request_end;
        complete_oldest(IBV_WC_SUCCESS);
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
    if ((hold_ & kPaused) == 0)  // else it is older than the RNR NAK
        retry();
}

void Requester::receive_rnr(std::uint8_t timer_code) {
    if ((hold_ & kPaused) != 0)
        return;
    if (qp_.attr().rnr_retry != kForeverRnr) {
        if (rnr_retries_left_ == 0) {
            fail_oldest(IBV_WC_RNR_RETRY_EXC_ERR);
            return;
        }
        --rnr_retries_left_;
    }
    go_back();
    hold_ |= kPaused;
    deadline_ = qp_.device.now + qp_.device.wait_of(kRnrDelays[timer_code]);
    qp_.device.schedule_timer(qp_, deadline_);
}

void Requester::receive_data(const Packet& packet, std::uint64_t psn) {
    if (!acknowledge(psn) || una_ != psn)
        return;
    SendRequest& request = at(done_);
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
    if (una_ == request.first_psn + request.packets) {
        --data_requests_;
        complete_oldest(IBV_WC_SUCCESS,
                        goes_into_cqe(request) ? data : std::span<const std::byte>());
        end_nops();
    }
    note_progress();
}

bool Requester::goes_into_cqe(const SendRequest& request) const {
    return request.length <= qp_.config.data_in_cqe.read && request.packets == 1 &&
           !request.is_owned && is_signaled(request);
}

ibv_wc_status Requester::take_data(SendRequest& request, const Packet& packet,
                                   std::span<const std::byte> data) {
    if (request.is_atomic()) {
        const bool is_taken =
            goes_into_cqe(request) ||
            qp_.device.memory.scatter(request.sges(), pd_of(request), 0, data.data(), data.size());
        return is_taken ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
    }
    const std::uint64_t offset = (una_ - request.first_psn) * qp_.mtu();
    const std::uint64_t left = request.length - offset;
    const std::uint64_t bytes = left < qp_.mtu() ? left : qp_.mtu();
    if (packet.payload.size() != bytes || packet.has(kIsEnd) != (bytes == left))
        return IBV_WC_BAD_RESP_ERR;
    return goes_into_cqe(request) || place(request, offset, packet) ? IBV_WC_SUCCESS
                                                                    : IBV_WC_LOC_PROT_ERR;
}

bool Requester::place(SendRequest& request, std::uint64_t offset, const Packet& packet) {
    const MemoryTable& memory = qp_.device.memory;
    if (!qp_.device.config.shuffles_reads) [[likely]] {
        return memory.scatter(request.sges(), pd_of(request), offset, packet.payload.data(),
                              packet.payload.size());
    }
    if (placement_ == nullptr)
        placement_ = std::make_unique<ReadPlacement>(qp_.device.random);
    const ReadTarget to{memory, request.sges(), pd_of(request)};
    return placement_->take(to, offset, packet.payload) &&
           (!packet.has(kIsEnd) || placement_->finish(to));
}

void Requester::note_progress() {
    retries_left_ = qp_.attr().retry_cnt;
    rnr_retries_left_ = qp_.attr().rnr_retry;
    hold_ = 0;
    // Requests that were acknowledged after going back are not sent again.
    if (static_cast<std::int32_t>(cursor_ - done_) < 0) {
        cursor_ = done_;
        cursor_packet_ = 0;
    }
    if (cursor_ == done_ && done_ != head_ && una_ > at(done_).first_psn + cursor_packet_)
        cursor_packet_ = static_cast<std::uint32_t>(una_ - at(done_).first_psn);
    deadline_ = kNever;
    if (una_ < sent_)
        arm_timer();
    if (fault_ != IBV_WC_SUCCESS && done_ == cursor_)
        fail_oldest(fault_);
    else if (qp_.state() == IBV_QPS_SQD && is_idle())
        qp_.note_drained();
}

void Requester::go_back() {
    ++qp_.device.counters.retransmits;
    cursor_ = done_;
    cursor_packet_ = static_cast<std::uint32_t>(una_ - at(done_).first_psn);
    fault_ = IBV_WC_SUCCESS;  // it is found again when its turn comes
    if (may_connect_again())
        hold_ |= kConnects;
    qp_.device.schedule(qp_);
}

void Requester::retry() {
    if (retries_left_ == 0) {
        fail_oldest(IBV_WC_RETRY_EXC_ERR);
        return;
    }
    --retries_left_;
    deadline_ = kNever;  // sending starts it anew
    go_back();
}

Time Requester::next_timeout() const {
    constexpr Time kUnit = 4096;
    return qp_.device.now + qp_.device.wait_of(kUnit << qp_.attr().timeout);
}

void Requester::arm_timer() {
    if (deadline_ == kNever && qp_.is_reliable() && qp_.attr().timeout != 0) {
        deadline_ = next_timeout();
        handed_over_ = qp_.device.wire.handed_over(qp_.route());
        qp_.device.schedule_timer(qp_, deadline_);
    }
}

Time Requester::run_timer() {
    if (qp_.device.now >= deadline_) {
        deadline_ = kNever;
        if ((hold_ & kPaused) != 0) {
            hold_ &= static_cast<std::uint8_t>(~kPaused);
            qp_.device.schedule(qp_);
        } else if (!qp_.device.wire.have_left(qp_.route(), handed_over_)) {
            deadline_ = next_timeout();
        } else {
            ++qp_.device.counters.timeouts;
            retry();
        }
    }
    return deadline_;
}

}  // namespace tagwire::vhca
