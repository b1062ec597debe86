// SPDX-License-Identifier: BSD-3-Clause
// The send queue of a queue pair with a tag-matching SRQ. It belongs to the device: for each
// matched rendezvous it holds the reads of the data and, behind a fence, the FIN to the sender.
// Requests of the program, if it may send (QpConfig::sends_beside_device), share its order.
//
// The device's requests have no completions to poll, so a place is free when its request is done.
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
constexpr std::uint32_t kPlacesMin = 64, kPlacesMax = 4096;
static_assert(std::has_single_bit(kPlacesMin) && std::has_single_bit(kPlacesMax));
// The length of a rendezvous has 32 bits.
constexpr std::uint32_t kReadsMax = 4;
static_assert(kReadsMax * kMessageBytesMax > UINT32_MAX);
constexpr std::size_t kDataBytes = std::max(sizeof(ibv_sge), kRendezvousBytes);
constexpr std::size_t kStride = sizeof(SendRequest) + kDataBytes;
static_assert(kDataBytes % alignof(SendRequest) == 0);
static_assert(std::is_trivially_copyable_v<SendRequest>);

}  // namespace

bool Requester::has_room_for_rendezvous() {
    if (qp_.state() < IBV_QPS_RTS)
        return false;  // what is sent has no sequence number yet
    // The queue that was made with the queue pair has other places: the first one replaces it.
    const std::uint32_t places = stride_ >= kStride ? mask_ + 1 : 0;
    if (places != 0 && places - (head_ - done_) > kReadsMax)
        return true;
    return places < kPlacesMax && grow_owned(std::max(kPlacesMin, 2 * places));
}

bool Requester::grow_owned(std::uint32_t places) {
    const std::size_t stride = std::max(stride_, kStride);
    places = std::max(places, mask_ + 1);
    std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[places * stride]);
    if (memory == nullptr)
        return false;
    for (std::uint32_t index = done_; index != head_; ++index)
        std::memcpy(memory.get() + (index & (places - 1)) * stride, &at(index), stride_);
    memory_ = std::move(memory);
    stride_ = stride;
    mask_ = places - 1;
    return true;
}

void Requester::enqueue_owned(const SendWork& work, const Rendezvous& rendezvous) {
    SendRequest& request = *new (&at(head_)) SendRequest;
    fill(request, work);
    request.is_owned = true;
    request.rendezvous = rendezvous;
    ++head_;
}

void Requester::enqueue_rendezvous(const Rendezvous& rendezvous, const ibv_sge& to, Route from,
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
        // The last one tells of all.
        read.wr_id = offset == source.length() ? kTells : 0;
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

void Requester::complete_owned(const SendRequest& request, ibv_wc_status status) {
    free_ = done_;
    if (request.wr_id == kTells)
        qp_.responder().finish_rendezvous(request.rendezvous, status);
}

void Requester::drop_owned() {
    for (std::uint32_t index = done_; index != head_; ++index)
        if (at(index).is_owned && at(index).wr_id == kTells)
            qp_.responder().drop_rendezvous(at(index).rendezvous);
}

}  // namespace tagwire::vhca
