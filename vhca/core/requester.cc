// SPDX-License-Identifier: BSD-3-Clause
// Requests as packets: what may be sent now, and in which form.
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

/// Packet `index` of a request: what follows from the request alone. The opcode is that of RC.
Packet packet_of(const SendRequest& request, std::uint32_t index, std::uint32_t mtu) {
    Packet packet;
    packet.address = request.remote_addr;
    packet.rkey = request.rkey;
    if (request.is_read()) {
        const std::uint64_t offset = std::uint64_t{index} * mtu;
        packet.opcode = Opcode::kRcReadRequest;
        packet.address += offset;
        packet.length = static_cast<std::uint32_t>(request.length - offset);
    } else if (request.is_atomic()) {
        const bool is_swap = request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
        packet.opcode = is_swap ? Opcode::kRcCompareSwap : Opcode::kRcFetchAdd;
        packet.swap_add = is_swap ? request.swap : request.compare_add;
        packet.compare = is_swap ? request.compare_add : 0;
    } else {
        const bool is_last = index + 1 == request.packets;
        packet.opcode = opcode_of(request.opcode, index == 0, is_last);
        packet.solicited = is_last && (request.flags & IBV_SEND_SOLICITED) != 0;
        packet.length = request.length;
        packet.imm = request.imm;
    }
    return packet;
}

constexpr std::uint32_t kControlledQkey = 0x80000000;  // in a request: use the queue pair's own

}  // namespace

void Requester::reset() {
    queue_.reset();
    flush();
}

void Requester::start(std::uint32_t psn) {
    una_ = sent_ = kSequenceBase + (psn & kPsnMask);
    queue_.start(una_);
    timer_.refill();
}

void Requester::flush() {
    while (queue_.done() != queue_.rung())
        queue_.complete_oldest(IBV_WC_WR_FLUSH_ERR);
    cursor_ = queue_.rung();
    cursor_packet_ = 0;
    una_ = sent_ = queue_.unrung_psn();
    data_requests_ = 0;
    data_packets_ = 0;
    fault_ = IBV_WC_SUCCESS;
    timer_.stop();
    session_.cancel_connect();
    if (placement_ != nullptr)
        placement_->drop();
}

bool Requester::transmit() {
    for (unsigned budget = kPacketsPerTurn; cursor_ != queue_.rung(); --budget) {
        if (budget == 0)
            return false;
        const Step result = step();
        if (result != Step::kSent) {
            if (result == Step::kRefused)
                timer_.arm();  // who never gets through fails like who never gets a reply
            return result == Step::kWaits;
        }
    }
    return true;
}

Requester::Step Requester::step() {
    if (timer_.is_paused() || fault_ != IBV_WC_SUCCESS)
        return Step::kWaits;
    if (session_.is_connect_due() && !session_.connect(una_))
        return Step::kRefused;
    SendRequest& request = queue_.at(cursor_);
    if (request.is_nop) [[unlikely]]
        return pass_nop();
    const std::uint64_t psn = request.first_psn + cursor_packet_;
    const bool is_new = psn >= sent_;
    if (is_new && cursor_packet_ == 0 && !may_start(request))
        return session_.is_connect_due() ? step() : Step::kWaits;
    if (qp_.context().is_reliable() && !is_window_open(request, psn))
        return Step::kWaits;
    return request.wants_data() ? ask_for_data(request, psn) : send_data(request, psn);
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
    while (static_cast<std::int32_t>(cursor_ - queue_.done()) > 0 && queue_.oldest().is_nop)
        queue_.complete_oldest(IBV_WC_SUCCESS);
}

bool Requester::may_start(SendRequest& request) {
    if (qp_.state() != IBV_QPS_RTS)
        return false;
    if (request.needs_care && !takes_care(request))
        return false;
    if (request.packets == 1 && !request.wants_data())  // sending it checks its keys
        return !request.has_fence() || data_requests_ == 0;
    if (!is_data_accessible(request)) {
        fault(IBV_WC_LOC_PROT_ERR);
        return false;
    }
    if (request.has_fence() && data_requests_ != 0)
        return false;
    if (!request.wants_data())
        return true;
    return data_requests_ < qp_.context().attr().max_rd_atomic &&
           (data_packets_ == 0 || data_packets_ + request.packets <= kReadPacketsMax);
}

/// False: the request does not start now.
bool Requester::takes_care(const SendRequest& request) {
    if (request.refused != IBV_WC_SUCCESS) {
        fault(request.refused);
        return false;
    }
    if (session_.is_with(request))
        return true;
    if (cursor_ == queue_.done())
        session_.open(request);
    return false;
}

bool Requester::is_data_accessible(SendRequest& request) const {
    const unsigned access = request.wants_data() ? IBV_ACCESS_LOCAL_WRITE : 0;
    return request.is_inline() ||
           qp_.device.memory.opens(request.sges(), queue_.pd_of(request), access);
}

bool Requester::is_window_open(const SendRequest& request, std::uint64_t psn) const {
    return request.is_read() || psn - una_ < qp_.device.config.packets_ahead + data_packets_;
}

void Requester::fault(ibv_wc_status status) {
    fault_ = status;
    if (queue_.done() == cursor_)
        fail_oldest(status);
}

void Requester::commit(Route to, const std::byte* start, const std::byte* end) {
    qp_.device.wire.commit(to, static_cast<std::size_t>(end - start));
    ++qp_.device.counters.packets_sent;
}

Requester::Step Requester::send_data(SendRequest& request, std::uint64_t psn) {
    Device::Impl& device = qp_.device;
    const std::uint64_t offset = std::uint64_t{cursor_packet_} * qp_.context().mtu();
    const auto bytes = static_cast<std::size_t>(
        std::min<std::uint64_t>(qp_.context().mtu(), request.length - offset));
    const bool is_last = cursor_packet_ + 1 == request.packets;
    const std::uint64_t window = device.config.packets_ahead + data_packets_;
    const bool is_ud = qp_.config.type == IBV_QPT_UD;

    Packet packet = packet_of(request, cursor_packet_, qp_.context().mtu());
    packet.opcode = qp_.context().opcode(packet.opcode);
    packet.wants_ack =
        qp_.context().is_reliable() &&
        (is_last || (psn + 1) % device.config.ack_every == 0 || psn + 1 - una_ >= window);
    qp_.context().address(packet);
    packet.psn = static_cast<std::uint32_t>(psn & kPsnMask);
    if (is_ud) {
        packet.qpn = request.remote_qpn;
        packet.qkey = (request.remote_qkey & kControlledQkey) != 0 ? qp_.context().attr().qkey
                                                                   : request.remote_qkey;
    }

    const Route to = is_ud ? request.route : qp_.context().route();
    std::byte* start = device.wire.claim(to, packet_bytes(packet.opcode, bytes));
    if (start == nullptr)
        return Step::kRefused;
    std::byte* payload = put_headers(start, packet, bytes);
    if (request.is_inline()) {
        std::memcpy(payload, request.data() + offset, bytes);
    } else if (!device.memory.gather(request.sges(), queue_.pd_of(request), offset, payload,
                                     bytes)) {
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

/// A read asks for all packets that are left, an atomic for its one.
Requester::Step Requester::ask_for_data(SendRequest& request, std::uint64_t psn) {
    Packet packet = packet_of(request, cursor_packet_, qp_.context().mtu());
    packet.opcode = qp_.context().opcode(packet.opcode);
    packet.wants_ack = true;
    packet.outstanding = outstanding_with(psn);
    qp_.context().address(packet);
    packet.psn = static_cast<std::uint32_t>(psn & kPsnMask);
    std::byte* start = qp_.device.wire.claim(qp_.context().route(), packet_bytes(packet.opcode, 0));
    if (start == nullptr)
        return Step::kRefused;
    commit(qp_.context().route(), start, put_headers(start, packet, 0));
    note_sent(request, psn, request.packets - cursor_packet_);
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
    if (qp_.context().is_reliable()) {
        timer_.arm();
    } else if (is_whole) {
        queue_.complete_oldest(IBV_WC_SUCCESS);
        end_nops();
        una_ = sent_;
        if (qp_.state() == IBV_QPS_SQD)
            qp_.note_drained();
    }
}

}  // namespace tagwire::vhca
