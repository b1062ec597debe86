// SPDX-License-Identifier: BSD-3-Clause
// The send queue of a queue pair with a tag-matching SRQ. It belongs to the device: for each
// matched rendezvous it holds the reads of the data and, behind a fence, the FIN to the sender.
// Requests of the program, if it may send (QpConfig::sends_beside_device), share its order.
//
// The device's requests have no completions to poll, so a slot is free when its request is done.
#include <endian.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <type_traits>

#include "vhca/core/device_impl.hpp"
#include "vhca/core/sequence.hpp"
#include "vhca/core/tm_header.hpp"

namespace tagwire::vhca {

namespace {

// It grows, since few queue pairs have many rendezvous at a time; but one may have all that a list
// of 1023 receives takes, with a read and a FIN each.
constexpr std::uint32_t kSlotsMin = 64, kSlotsMax = 4096;
static_assert(std::has_single_bit(kSlotsMin) && std::has_single_bit(kSlotsMax));
// The length of a rendezvous has 32 bits.
constexpr std::uint32_t kReadsMax = 4;
static_assert(kReadsMax * kMessageBytesMax > UINT32_MAX);
constexpr std::size_t kDataBytes = std::max(sizeof(ibv_sge), kRendezvousBytes);
constexpr std::size_t kOwnedStride = sizeof(SendRequest) + kDataBytes;
static_assert(kDataBytes % alignof(SendRequest) == 0);
static_assert(std::is_trivially_copyable_v<SendRequest>);
constexpr std::uint64_t kCompletesRendezvous = 1;  // wr_id of the last read

}  // namespace

bool SendQueue::has_room_for_rendezvous() {
    if (qp_.state() < IBV_QPS_RTS)
        return false;  // what is sent has no sequence number yet
    // The queue that was made with the queue pair has other slots: the first one replaces it.
    const std::uint32_t slots = stride_ >= kOwnedStride ? mask_ + 1 : 0;
    if (slots != 0 && slots - (head_ - done_) > kReadsMax)
        return true;
    return slots < kSlotsMax && grow(std::max(kSlotsMin, 2 * slots));
}

bool SendQueue::grow(std::uint32_t slots) {
    const std::size_t stride = std::max(stride_, kOwnedStride);
    slots = std::max(slots, mask_ + 1);
    std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[slots * stride]);
    if (memory == nullptr)
        return false;
    for (std::uint32_t index = done_; index != head_; ++index)
        std::memcpy(memory.get() + (index & (slots - 1)) * stride, &at(index), stride_);
    memory_ = std::move(memory);
    stride_ = stride;
    mask_ = slots - 1;
    return true;
}

void SendQueue::enqueue_owned(const SendWork& work, const Rendezvous& rendezvous) {
    SendRequest& request = *new (&at(head_)) SendRequest;
    fill(request, work);
    request.is_owned = true;
    request.rendezvous = rendezvous;
    ++head_;
}

void SendQueue::enqueue_rendezvous(const Rendezvous& rendezvous, const ibv_sge& to, Route from,
                                   const RendezvousRequest& request) {
    const ReadHeader& source = request.source;
    const DcReadHeader& target = request.target;
    std::uint64_t offset = 0;
    do {
        const std::uint64_t bytes = std::min(source.length() - offset, kMessageBytesMax);
        const ibv_sge piece{to.addr + offset, static_cast<std::uint32_t>(bytes), to.lkey};
        SendWork read{.opcode = IBV_WR_RDMA_READ,
                      .remote_addr = source.address() + offset,
                      .rkey = source.rkey(),
                      .route = from,
                      .remote_qpn = target.dctn(),
                      .dc_key = target.key(),
                      .sges = {&piece, bytes == 0 ? 0U : 1U}};
        offset += bytes;
        // The last one completes all of it.
        read.wr_id = offset == source.length() ? kCompletesRendezvous : 0;
        enqueue_owned(read, rendezvous);
    } while (offset != source.length());

    TagHeader header = request.header;
    header.opcode = TagOpcode::kFin;
    std::array<std::byte, kRendezvousBytes> fin;
    std::memcpy(fin.data(), &header, sizeof header);
    std::memcpy(fin.data() + sizeof header, &source, sizeof source);
    const ibv_sge sge{reinterpret_cast<std::uint64_t>(fin.data()), fin.size(), 0};
    enqueue_owned({.flags = IBV_SEND_INLINE | IBV_SEND_FENCE,
                   .route = from,
                   .remote_qpn = target.dctn(),
                   .dc_key = target.key(),
                   .sges = {&sge, 1}},
                  rendezvous);
    ring();
    qp_.device.schedule(qp_);
}

void SendQueue::complete_owned(const SendRequest& request, ibv_wc_status status) {
    free_ = done_;
    if (request.wr_id != kCompletesRendezvous)
        return;
    const Rendezvous& rendezvous = request.rendezvous;
    Cqe cqe{};
    cqe.wc.status = status;
    cqe.wc.qp_num = qp_.dc().owner().number();
    cqe.wc.src_qp = qp_.context().attr().dest_qp_num;
    cqe.wc.slid = static_cast<std::uint16_t>(qp_.context().route().node);
    cqe.from = qp_.context().route();
    cqe.is_solicited = rendezvous.is_solicited;
    if (status == IBV_WC_SUCCESS) {
        cqe.wc.wc_flags = IBV_WC_TM_DATA_VALID;
        cqe.wc.byte_len = rendezvous.length;
    }
    TagMatching& matching = *qp_.matching();
    matching.complete(*matching.find(rendezvous.handle), cqe, true);
}

void SendQueue::drop_owned() {
    TagMatching& matching = *qp_.matching();
    for (std::uint32_t index = done_; index != head_; ++index)
        if (at(index).is_owned && at(index).wr_id == kCompletesRendezvous)
            matching.drop(*matching.find(at(index).rendezvous.handle));
}

}  // namespace tagwire::vhca
