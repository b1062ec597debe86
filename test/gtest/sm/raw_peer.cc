// SPDX-License-Identifier: BSD-3-Clause
#include "sm/raw_peer.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>

#include "ucs/sys/unix_socket.hpp"

namespace tagwire::test {

RawPeer::RawPeer(const Puppet& puppet, const sm::IfaceAddress& victim)
    : socket_(puppet.connect(victim.name)) {
    EXPECT_TRUE(socket_) << "nobody accepts connections";
    static std::uint64_t serial = 0x7261770000000000ULL;
    EXPECT_EQ(ucs::memfd_create_sealed("raw-bell", ucs::page_bytes(), &bell_fd), UCS_OK);
    EXPECT_EQ(ucs::memfd_create_sealed("raw-arena", kArenaBytes, &arena_fd), UCS_OK);
    hello.magic = sm::kPacketMagic;
    hello.version = sm::kFormatVersion;
    hello.type = sm::PacketType::kHello;
    hello.has_membarrier = 1;
    hello.cookie = victim.cookie;
    hello.name = hello.arena_id = ++serial;
    hello.arena_bytes = kArenaBytes;
    hello.bell_bytes = ucs::page_bytes();
}

void RawPeer::send(std::span<const std::byte> packet, std::span<const int> fds) const {
    ucs::unix_send(socket_.get(), packet, fds.data(), fds.size());
}

void RawPeer::say_hello() const {
    const int fds[] = {bell_fd.get(), arena_fd.get()};
    send(sm::bytes_of(hello), fds);
}

void RawPeer::make_ring() {
    EXPECT_EQ(ucs::memfd_create_sealed("raw-ring", geometry.bytes(), &ring_fd), UCS_OK);
    EXPECT_EQ(ucs::map_shared(ring_fd.get(), geometry.bytes(), &ring_), UCS_OK);
    EXPECT_EQ(ucs::memfd_create_for_readers("raw-pool", geometry.pool_bytes(), &pool_, &pool_fd),
              UCS_OK);
    offer = {sm::kPacketMagic,   sm::kFormatVersion,   sm::PacketType::kRing, geometry.slot_count,
             geometry.seg_bytes, geometry.pool_blocks, geometry.page_bytes,   0,
             position_,          geometry.bytes()};
}

void RawPeer::send_offer(std::span<const int> fds) const {
    send(sm::bytes_of(offer), fds);
}

void RawPeer::offer_ring() {
    make_ring();
    const int fds[] = {ring_fd.get(), pool_fd.get()};
    send_offer(fds);
}

sm::Slot<>& RawPeer::slot(std::uint64_t ahead) const {
    auto* slots = reinterpret_cast<sm::Slot<>*>(ring_.base() + geometry.front_offset());
    return slots[(position_ + ahead) & (geometry.slot_count - 1)];
}

void RawPeer::publish(sm::Control control) {
    // SYNC sm_slot: as an honest sender publishes; the library is in this thread.
    slot().control.store(control.word | static_cast<std::uint32_t>(position_ + 1),
                         std::memory_order_release);
    ++position_;
    ring_bell();
}

void RawPeer::ring_bell() {
    // SYNC sm_sleep: as an honest sender asks; the library is in this thread.
    const auto& front = reinterpret_cast<const sm::RingHead*>(ring_.base())->front;
    if (front.sleep.load(std::memory_order_relaxed) == sm::kAwake)
        return;
    if (!their_bell_)
        read_socket();
    if (their_bell_)
        sm::ring_bell(*reinterpret_cast<sm::Bell<>*>(their_bell_.base()), bell_bit_);
}

void RawPeer::clear_their_bell() {
    read_socket();
    ASSERT_TRUE(their_bell_);
    auto& bell = *reinterpret_cast<sm::Bell<>*>(their_bell_.base());
    for (auto& word : bell.words)
        word.store(0, std::memory_order_relaxed);
    bell.summary.store(0, std::memory_order_relaxed);
    bell.armed.store(0, std::memory_order_relaxed);
}

std::byte* RawPeer::buffer(std::uint32_t seg) const {
    return pool_.base() + std::size_t{seg} * sm::kBlockBytes;
}

sm::RndvWord& RawPeer::rndv(std::uint32_t op) const {
    return reinterpret_cast<sm::RndvWord*>(ring_.base() + geometry.rndv_offset())[op];
}

void RawPeer::read_socket() {
    alignas(8) std::array<std::byte, sm::kPacketBytesMax> buffer;
    ucs_status_t status = UCS_OK;
    while (!is_ended_) {
        ucs::ReceivedMessage message;
        status = ucs::unix_receive(socket_.get(), buffer, &message);
        if (status == UCS_ERR_NO_PROGRESS)
            return;
        is_ended_ = status == UCS_ERR_CONNECTION_RESET;
        if (status != UCS_OK)
            continue;
        const auto packet = std::span(buffer).first(message.bytes);
        const auto type = sm::check_packet(packet, nullptr);
        ASSERT_TRUE(type) << "the library says only what it would accept";
        was_left_ |= *type == sm::PacketType::kLeave;
        if (*type == sm::PacketType::kHello) {
            sm::Hello theirs;
            std::memcpy(&theirs, packet.data(), sizeof theirs);
            bell_bit_ = theirs.bell_bit;
            ASSERT_EQ(ucs::map_shared(message.fds[0].get(), theirs.bell_bytes, &their_bell_),
                      UCS_OK);
        }
        if (*type != sm::PacketType::kRing)
            continue;
        sm::RingOffer theirs;
        std::memcpy(&theirs, packet.data(), sizeof theirs);
        const auto their_geometry = sm::check_ring_offer(theirs, nullptr);
        ASSERT_TRUE(their_geometry);
        ASSERT_EQ(ucs::memfd_check_sealed(message.fds[0].get(), theirs.bytes), UCS_OK);
        ASSERT_EQ(ucs::map_shared(message.fds[0].get(), theirs.bytes, &their_ring_), UCS_OK);
        their_geometry_ = *their_geometry;
        ASSERT_EQ(their_geometry_.back_count(), 0U) << "the victim's rings are small";
        const int pool = message.fds[1].get();
        const std::size_t pool_bytes = their_geometry_.pool_bytes();
        ASSERT_EQ(ucs::memfd_check_for_readers(pool, pool_bytes), UCS_OK);
        ASSERT_EQ(ucs::map_behind_header(pool, pool_bytes, ucs::page_bytes(), std::size_t{64} << 20,
                                         &their_pool_),
                  UCS_OK);
        their_position_ = theirs.start;
    }
}

bool RawPeer::is_ended() {
    read_socket();
    return is_ended_;
}

bool RawPeer::was_left() {
    read_socket();
    return was_left_;
}

std::optional<RawMessage> RawPeer::receive() {
    read_socket();
    if (!their_ring_)
        return std::nullopt;
    auto* slots =
        reinterpret_cast<sm::Slot<>*>(their_ring_.base() + their_geometry_.front_offset());
    const sm::Slot<>& slot = slots[their_position_ & (their_geometry_.slot_count - 1)];
    // SYNC sm_slot: as an honest receiver polls.
    const sm::Control control{slot.control.load(std::memory_order_acquire)};
    if (control.word == 0 || control.sequence() != static_cast<std::uint32_t>(their_position_ + 1))
        return std::nullopt;
    RawMessage message{control, {}};
    std::memcpy(message.body, slot.body, sizeof message.body);
    ++their_position_;
    // SYNC sm_reuse: what the slot had was copied.
    their_head()->front.tail.store(their_position_, std::memory_order_release);
    return message;
}

sm::RingHead* RawPeer::their_head() {
    read_socket();
    return their_ring_ ? reinterpret_cast<sm::RingHead*>(their_ring_.base()) : nullptr;
}

std::byte* RawPeer::their_buffer(std::uint32_t seg) {
    if ((seg & sm::kReserveBit) != 0)
        return their_ring_.base() + their_geometry_.reserve_offset() +
               std::size_t{seg & ~sm::kReserveBit} * their_geometry_.seg_bytes;
    EXPECT_LT(seg, their_geometry_.pool_blocks);
    return their_pool_.base() + std::size_t{seg} * sm::kBlockBytes;
}

void RawPeer::give_back(std::uint32_t seg) {
    auto* entries =
        reinterpret_cast<std::uint32_t*>(their_ring_.base() + their_geometry_.returns_offset());
    entries[returned_ % sm::kReturnCount] = seg;
    // SYNC sm_return: the entry comes before the count.
    their_head()->returns.count.store(++returned_, std::memory_order_release);
}

}  // namespace tagwire::test
