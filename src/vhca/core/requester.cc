// SPDX-License-Identifier: BSD-3-Clause
// Requests as packets: what may be sent now, and how it looks.
#include "vhca/core/requester.hpp"

#include <algorithm>
#include <cstring>

#include "vhca/core/device_impl.hpp"
#include "vhca/core/sequence.hpp"

namespace tagwire::vhca {

namespace {

/// The opcodes of SEND and WRITE are in the same order: first, middle, last, last with immediate,
/// only, only with immediate.
Opcode opcode_of(ibv_wr_opcode work, bool is_first, bool is_last) {
    if (work == IBV_WR_SEND_WITH_INV && is_last)
        return is_first ? Opcode::kRcSendOnlyInv : Opcode::kRcSendLastInv;
    const bool is_write = work == IBV_WR_RDMA_WRITE || work == IBV_WR_RDMA_WRITE_WITH_IMM;
    const bool has_imm = work == IBV_WR_SEND_WITH_IMM || work == IBV_WR_RDMA_WRITE_WITH_IMM;
    auto code = static_cast<unsigned>(is_write ? Opcode::kRcWriteFirst : Opcode::kRcSendFirst);
    if (is_last)
        code += (is_first ? 4U : 2U) + (has_imm ? 1U : 0U);
    else if (!is_first)
        code += 1;
    return static_cast<Opcode>(code);
}

constexpr std::uint32_t kControlledQkey = 0x80000000;  // in a request: use the queue pair's own

}  // namespace

bool Requester::transmit() {
    for (unsigned budget = kPacketsPerTurn; cursor_ != rung_; --budget) {
        if (budget == 0)
            return false;
        const Step result = step();
        if (result != Step::kSent) {
            if (result == Step::kRefused)
                arm_timer();  // who never gets through gives up like who never gets an answer
            return result == Step::kWaits;
        }
    }
    return true;
}

Requester::Step Requester::step() {
    if (hold_ != 0 || fault_ != IBV_WC_SUCCESS) {
        if (hold_ != kConnects || fault_ != IBV_WC_SUCCESS)
            return Step::kWaits;
        if (!send_connect())
            return Step::kRefused;
    }
    SendRequest& request = at(cursor_);
    if (request.is_nop) [[unlikely]]
        return pass_nop();
    const std::uint64_t psn = request.first_psn + cursor_packet_;
    const bool is_new = psn >= sent_;
    if (is_new && cursor_packet_ == 0 && !may_start(request))
        return hold_ == kConnects ? step() : Step::kWaits;
    if (qp_.is_reliable() && !is_window_open(request, psn))
        return Step::kWaits;
    if (request.wants_data())
        return request.is_read() ? send_read(request, psn) : send_atomic(request, psn);
    return send_data(request, psn);
}

Requester::Step Requester::pass_nop() {
    if (qp_.state() != IBV_QPS_RTS)
        return Step::kWaits;
    ++cursor_;
    end_nops();
    return Step::kSent;
}

/// Those that are passed and have nothing before them any more.
void Requester::end_nops() {
    while (static_cast<std::int32_t>(cursor_ - done_) > 0 && at(done_).is_nop)
        complete_oldest(IBV_WC_SUCCESS);
}

bool Requester::may_start(SendRequest& request) {
    if (qp_.state() != IBV_QPS_RTS)
        return false;
    if (request.needs_care && !takes_care(request))
        return false;
    if (request.packets == 1 && !request.wants_data())  // sending it checks its keys
        return (request.flags & IBV_SEND_FENCE) == 0 || data_requests_ == 0;
    if (!is_data_accessible(request)) {
        fault(IBV_WC_LOC_PROT_ERR);
        return false;
    }
    if ((request.flags & IBV_SEND_FENCE) != 0 && data_requests_ != 0)
        return false;
    if (!request.wants_data())
        return true;
    return data_requests_ < qp_.attr().max_rd_atomic &&
           (data_packets_ == 0 || data_packets_ + request.packets <= kReadPacketsMax);
}

bool Requester::is_data_accessible(SendRequest& request) const {
    const unsigned access = request.wants_data() ? IBV_ACCESS_LOCAL_WRITE : 0;
    return request.is_inline() || qp_.device.memory.opens(request.sges(), pd_of(request), access);
}

bool Requester::is_window_open(const SendRequest& request, std::uint64_t psn) const {
    return request.is_read() || psn - una_ < qp_.device.config.packets_ahead + data_packets_;
}

void Requester::fault(ibv_wc_status status) {
    fault_ = status;
    if (done_ == cursor_)
        fail_oldest(status);
}

void Requester::commit(Route to, const std::byte* start, const std::byte* end) {
    qp_.device.wire.commit(to, static_cast<std::size_t>(end - start));
    ++qp_.device.counters.packets_sent;
}

Requester::Step Requester::send_data(SendRequest& request, std::uint64_t psn) {
    Device::Impl& device = qp_.device;
    const std::uint64_t offset = std::uint64_t{cursor_packet_} * qp_.mtu();
    const auto bytes =
        static_cast<std::size_t>(std::min<std::uint64_t>(qp_.mtu(), request.length - offset));
    const bool is_last = cursor_packet_ + 1 == request.packets;
    const std::uint64_t window = device.config.packets_ahead + data_packets_;
    const bool is_ud = qp_.config.type == IBV_QPT_UD;

    Packet packet;
    packet.opcode = qp_.opcode(opcode_of(request.opcode, cursor_packet_ == 0, is_last));
    packet.solicited = is_last && (request.flags & IBV_SEND_SOLICITED) != 0;
    packet.wants_ack = qp_.is_reliable() && (is_last || (psn + 1) % device.config.ack_every == 0 ||
                                             psn + 1 - una_ >= window);
    qp_.address(packet);
    packet.psn = static_cast<std::uint32_t>(psn & kPsnMask);
    packet.address = request.remote_addr;
    packet.rkey = request.rkey;
    packet.length = request.length;
    packet.imm = request.imm;
    if (is_ud) {
        packet.qpn = request.remote_qpn;
        packet.qkey =
            (request.remote_qkey & kControlledQkey) != 0 ? qp_.attr().qkey : request.remote_qkey;
    }

    const Route to = is_ud ? request.route : qp_.route();
    std::byte* start = device.wire.claim(to, packet_bytes(packet.opcode, bytes));
    if (start == nullptr)
        return Step::kRefused;
    std::byte* payload = put_headers(start, packet, bytes);
    if (request.is_inline()) {
        std::memcpy(payload, request.data() + offset, bytes);
    } else if (!device.memory.gather(request.sges(), pd_of(request), offset, payload, bytes)) {
        fault(IBV_WC_LOC_PROT_ERR);
        return Step::kWaits;
    }
    commit(to, start, put_padding(payload + bytes, bytes));
    device.counters.payload_bytes_sent += bytes;
    note_sent(request, psn, 1);
    return Step::kSent;
}

/// Reads and atomics that are waited for when the one with this number was sent.
std::uint8_t Requester::outstanding_with(std::uint64_t psn) const {
    const std::uint32_t count = data_requests_ + (psn >= sent_ ? 1 : 0);
    return static_cast<std::uint8_t>(std::min(count, kOutstandingMax));
}

Requester::Step Requester::send_read(SendRequest& request, std::uint64_t psn) {
    const std::uint64_t offset = std::uint64_t{cursor_packet_} * qp_.mtu();
    Packet packet;
    packet.opcode = qp_.opcode(Opcode::kRcReadRequest);
    packet.wants_ack = true;
    packet.outstanding = outstanding_with(psn);
    qp_.address(packet);
    packet.psn = static_cast<std::uint32_t>(psn & kPsnMask);
    packet.address = request.remote_addr + offset;
    packet.rkey = request.rkey;
    packet.length = static_cast<std::uint32_t>(request.length - offset);
    std::byte* start = qp_.device.wire.claim(qp_.route(), packet_bytes(packet.opcode, 0));
    if (start == nullptr)
        return Step::kRefused;
    commit(qp_.route(), start, put_headers(start, packet, 0));
    note_sent(request, psn, request.packets - cursor_packet_);
    return Step::kSent;
}

Requester::Step Requester::send_atomic(SendRequest& request, std::uint64_t psn) {
    const bool is_swap = request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    Packet packet;
    packet.opcode = qp_.opcode(is_swap ? Opcode::kRcCompareSwap : Opcode::kRcFetchAdd);
    packet.wants_ack = true;
    packet.outstanding = outstanding_with(psn);
    qp_.address(packet);
    packet.psn = static_cast<std::uint32_t>(psn & kPsnMask);
    packet.address = request.remote_addr;
    packet.rkey = request.rkey;
    packet.swap_add = is_swap ? request.swap : request.compare_add;
    packet.compare = is_swap ? request.compare_add : 0;
    std::byte* start = qp_.device.wire.claim(qp_.route(), packet_bytes(packet.opcode, 0));
    if (start == nullptr)
        return Step::kRefused;
    commit(qp_.route(), start, put_headers(start, packet, 0));
    note_sent(request, psn, 1);
    return Step::kSent;
}

void Requester::note_sent(SendRequest& request, std::uint64_t psn, std::uint32_t packets) {
    if (psn + packets > sent_) {
        sent_ = psn + packets;
        if (request.wants_data()) {
            ++data_requests_;
            data_packets_ += packets;
        }
    }
    cursor_packet_ += packets;
    const bool is_whole = cursor_packet_ == request.packets;
    if (is_whole) {
        ++cursor_;
        cursor_packet_ = 0;
    }
    if (qp_.is_reliable()) {
        arm_timer();
    } else if (is_whole) {
        complete_oldest(IBV_WC_SUCCESS);
        end_nops();
        una_ = sent_;
        if (qp_.state() == IBV_QPS_SQD)
            qp_.note_drained();
    }
}

}  // namespace tagwire::vhca
