// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/link.hpp"

#include <cstring>
#include <new>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

ucs_status_t RxSegment::attach(int fd, const RingGeometry& geometry, std::size_t bytes,
                               RxSegment** segment_p) {
    ucs_status_t status = ucs::memfd_check_sealed(fd, bytes);
    if (status != UCS_OK)
        return status;
    auto segment = std::make_unique<RxSegment>();
    const std::size_t page = ucs::page_bytes();
    status = ucs::map_behind_header(fd, bytes, page, uct::kDescRegionBytes, &segment->mapping);
    if (status != UCS_OK)
        return status;
    segment->geometry = geometry;
    segment->returns = SegmentReturns(geometry, segment->mapping.base());
    const auto release = [](uct::DescRegionHeader* header, void* desc) {
        RxSegment& owner = *static_cast<Region*>(header)->segment;
        const auto offset =
            static_cast<std::size_t>(static_cast<std::byte*>(desc) - owner.buffer(0));
        TW_CHECK(owner.held > 0 && offset % owner.geometry.seg_bytes == 0);
        owner.release(static_cast<std::uint32_t>(offset / owner.geometry.seg_bytes));
        if (--owner.held == 0 && owner.abandoned)
            delete &owner;
    };
    ::new (segment->mapping.front()) Region{{uct::kDescRegionMagic, release}, segment.get()};
    *segment_p = segment.release();
    return UCS_OK;
}

void RxSegment::abandon() {
    abandoned = true;
    if (held == 0)
        delete this;
}

void RndvOp::withdraw() {
    std::uint64_t pending = rndv_word(generation, RndvState::kPending);
    // SYNC sm_rndv: before this the receiver may still finish (its end is then ignored), afterwards
    // it cannot.
    link->tx_rndv(index).state.compare_exchange_strong(
        pending, rndv_word(generation, RndvState::kCancelled), std::memory_order_acq_rel);
}

bool Link::has_words(std::size_t count) {
    if (!rndv_ops) {
        rndv_ops = std::make_unique<RndvOp[]>(kRndvCount);
        for (std::uint32_t i = kRndvCount; i > 0; --i)
            rndv_free.push_back(i - 1);
    }
    return rndv_free.size() >= count;
}

RndvOp& Link::take_word() {
    const std::uint32_t number = rndv_free.back();
    rndv_free.pop_back();
    RndvOp& op = rndv_ops[number];
    op.link = this;
    op.index = number;
    op.op = nullptr;
    ++op.generation;
    op.helping = false;
    ++rndv_count;
    RndvWord& word = tx_rndv(number);
    word.next.store(rndv_word(op.generation, 0), std::memory_order_relaxed);
    word.done.store(rndv_word(op.generation, 0), std::memory_order_relaxed);
    word.failed.store(0, std::memory_order_relaxed);
    // Relaxed: the message that follows publishes the word.
    word.state.store(rndv_word(op.generation, RndvState::kPending), std::memory_order_relaxed);
    return op;
}

void Link::give_word(RndvOp& op) {
    op.link = nullptr;
    --rndv_count;
    rndv_free.push_back(op.index);
}

ucs_status_t Link::claim(std::uint64_t count) {
    if (!tx_made) {
        const ucs_status_t status = iface.connections.make_tx(*this);
        if (status != UCS_OK)
            return status;
    }
    switch (tx.refresh(count)) {
        case Claim::kOk:
            return UCS_OK;
        case Claim::kFull:
            break;
        case Claim::kCorrupt:
            iface.ends.violation(*this, "impossible position of the receiver");
            return failure;
    }
    return UCS_ERR_NO_RESOURCE;
}

ucs_status_t Link::ring() {
    iface.count(SmCounter::kBells);
    // Before the peer's bell has arrived, a packet on the socket does as well.
    if (bell_page && !ring_bell(*reinterpret_cast<Bell<>*>(bell_page.base()), bell_bit))
        return UCS_OK;
    iface.count(SmCounter::kWakeups);
    const Notice wake{kPacketMagic, kFormatVersion, PacketType::kWake, 0};
    // A full socket has unread packets, so the receiver wakes up anyway.
    ucs::unix_send(socket.get(), bytes_of(wake), nullptr, 0);
    return UCS_OK;
}

void Link::send_control_bytes(Control control, const void* body, std::size_t bytes) {
    if (failure != UCS_OK)
        return;
    if (controls.empty() && claim(1) == UCS_OK) {
        std::memcpy(tx.slot().body, body, bytes);
        tx.publish(control);
        if (!iface.pending.empty() || fence_waits)
            tx.hold();
        after_publish();
        return;
    }
    if (controls.size() >= kControlsMax)
        return iface.ends.violation(*this, "more requests than the peer reads replies to");
    QueuedControl queued{control, {}};
    std::memcpy(queued.body, body, bytes);
    controls.push_back(queued);
    iface.add_work(*this);
}

}  // namespace tagwire::sm
