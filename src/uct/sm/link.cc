// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/link.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "ucs/sys/futex.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

ucs_status_t RxSegment::attach(int ring_fd, int pool_fd, const RingGeometry& geometry,
                               RxSegment** segment_p) {
    const std::size_t bytes = geometry.bytes();
    const std::size_t pool_bytes = geometry.pool_bytes();
    ucs_status_t status = ucs::memfd_check_sealed(ring_fd, bytes);
    if (status == UCS_OK)
        status = ucs::memfd_check_for_readers(pool_fd, pool_bytes);
    if (status != UCS_OK)
        return status;
    auto segment = std::make_unique<RxSegment>();
    status = ucs::map_shared(ring_fd, bytes, &segment->mapping);
    if (status == UCS_OK) {
        status = ucs::map_behind_header(pool_fd, pool_bytes, ucs::page_bytes(),
                                        uct::kDescRegionBytes, &segment->pool);
    }
    if (status != UCS_OK)
        return status;
    segment->geometry = geometry;
    segment->returns = BufferReturns(geometry, segment->mapping.base());
    const auto release = [](uct::DescRegionHeader* header, void* desc) {
        RxSegment& owner = *static_cast<Region*>(header)->segment;
        const auto offset =
            static_cast<std::size_t>(static_cast<std::byte*>(desc) - owner.pool.base());
        TW_CHECK(owner.held > 0 && offset % kBlockBytes == 0);
        owner.returns.give_back(static_cast<std::uint32_t>(offset / kBlockBytes));
        if (--owner.held == 0 && owner.abandoned)
            delete &owner;
    };
    ::new (segment->pool.front()) Region{{uct::kDescRegionMagic, release}, segment.get()};
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
    // Only a sender that has come to the end of what it knew to be free gets here, so a ping-pong
    // leaves the back ring after a while, and stays in the front ring. A receiver that reads from
    // the back ring has read all of the front ring.
    const bool looks = !tx.has_room();
    Claim claimed = tx.refresh(count);
    if (tx_geometry.back_count() != 0 && looks &&
        (tx_is_back ? claimed == Claim::kOk && tx.head() - changed_at >= back_stay &&
                          tx.is_kept_up_with(changed_at)
                    : claimed == Claim::kFull)) {
        change_tx();
        claimed = tx.refresh(count);
    }
    switch (claimed) {
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

void Link::retire_buffers() {
    LentBuffers* lent = std::exchange(segs, nullptr);
    if (lent != nullptr) {
        const int pidfd = process == nullptr ? -1 : process->pidfd.get();
        iface.buffers.retire(*lent, std::move(tx_segment), pidfd);
    }
}

void Link::end_writing(bool is_ours) {
    if (is_ours)
        writer.leave();
    iface.sm_md().writers().take_back(std::exchange(peer_writer, kSharedWriter));
}

void Link::begin_tx(std::uint64_t start, HostFences fences) {
    auto* head = reinterpret_cast<RingHead*>(tx_segment.base());
    const auto slots = [&](std::size_t offset) {
        return reinterpret_cast<Slot<>*>(tx_segment.base() + offset);
    };
    // Nobody else looks at them before the first message.
    head->front.tail.store(start, std::memory_order_relaxed);
    head->back.tail.store(start, std::memory_order_relaxed);
    const bool has_back = tx_geometry.back_count() != 0;
    const std::uint32_t spare = has_back ? 1 : 0;
    tx = TxRing(slots(tx_geometry.front_offset()), &head->front, tx_geometry.front_count(), start,
                fences, spare);
    if (has_back) {
        other_tx = TxRing(slots(tx_geometry.back_offset()), &head->back, tx_geometry.back_count(),
                          start, fences, spare);
    }
    changed_at = start - kFrontStayMin;  // the first stay in the front ring is not a return
    tx_made = true;
}

void Link::begin_rx(std::uint64_t start, HostFences fences) {
    const RingGeometry& geometry = rx_segment->geometry;
    const auto slots = [&](std::size_t offset) {
        return reinterpret_cast<Slot<>*>(rx_segment->mapping.base() + offset);
    };
    rx = RxRing(slots(geometry.front_offset()), &rx_segment->head().front, geometry.front_count(),
                start, fences);
    if (geometry.back_count() != 0) {
        other_rx = RxRing(slots(geometry.back_offset()), &rx_segment->head().back,
                          geometry.back_count(), start, fences);
    }
}

// A stream whose receiver is as fast as its sender is kept up with in the back ring, and fills the
// front ring soon after each return: so it returns ever more rarely.
void Link::change_tx() {
    if (!tx_is_back) {
        const bool was_short = tx.head() - changed_at < kFrontStayMin;
        back_stay = was_short ? std::clamp(2 * back_stay, kBackStayMin, kBackStayMax) : 0;
    }
    tx.publish_last(Control::make(Kind::kOtherRing, 0, 0));
    after_publish();
    iface.count(SmCounter::kRingChanges);
    std::swap(tx, other_tx);
    tx_is_back = !tx_is_back;
    changed_at = tx.head();
}

bool Link::change_rx() {
    if (rx_segment->geometry.back_count() == 0)
        return false;
    rx.advance();
    rx.wake();
    std::swap(rx, other_rx);
    // The sender has looked at the other ring's `sleep` for what it wrote there already: nothing
    // rings for that.
    iface.rings.make_hot(*this);
    return true;
}

ucs_status_t Link::ring() {
    iface.count(SmCounter::kBells);
    // Before the peer's bell has arrived, a packet on the socket does as well.
    if (bell_page) {
        auto& bell = *reinterpret_cast<Bell<>*>(bell_page.base());
        const std::uint32_t sleeps = ring_bell(bell, bell_bit);
        if (sleeps == 0) [[likely]]
            return UCS_OK;
        iface.count(SmCounter::kWakeups);
        if ((sleeps & kArmedNap) != 0)
            ucs::wake_shared(bell.armed);
        if ((sleeps & kArmedPacket) == 0)
            return UCS_OK;
    } else {
        iface.count(SmCounter::kWakeups);
    }
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
    QueuedControl queued{control, {}};
    std::memcpy(queued.body, body, bytes);
    controls.push_back(queued);
    iface.add_work(*this);
}

}  // namespace tagwire::sm
