// SPDX-License-Identifier: BSD-3-Clause
#include "hostile_peer.hpp"

#include <array>
#include <atomic>

#include "ucs/sys/unix_socket.hpp"
#include "uct/sm/writers.hpp"

namespace tagwire::fuzz {

namespace {

constexpr std::size_t kArenaBytes = sm::kTablesBytes + (1 << 20);
constexpr std::size_t kBellBytes = 4096;

}  // namespace

HostilePeer::HostilePeer(const test::Puppet& puppet, const sm::IfaceAddress& victim, Input& input)
    : victim_(victim), socket_(puppet.connect(victim.name)) {
    static std::uint64_t serial = 0x1000;
    name_ = ++serial;
    if (!socket_)
        return;
    say_hello(input);
    offer_ring(input);
}

void HostilePeer::say_hello(Input& input) {
    require(ucs::memfd_create_sealed("fuzz-bell", kBellBytes, &bell_fd_) == UCS_OK);
    require(ucs::map_shared(bell_fd_.get(), kBellBytes, &bell_) == UCS_OK);
    require(ucs::memfd_create_sealed("fuzz-arena", kArenaBytes, &arena_fd_) == UCS_OK);
    ucs::Mapping arena;
    require(ucs::map_shared(arena_fd_.get(), kArenaBytes, &arena) == UCS_OK);
    arena.base()[sizeof(std::uint64_t)] = std::byte{1};  // key 1 is good
    sm::Hello hello{};
    hello.magic = sm::kPacketMagic;
    hello.version = sm::kFormatVersion;
    hello.type = sm::PacketType::kHello;
    hello.cookie = victim_.cookie;
    hello.name = name_;
    hello.arena_id = name_;
    hello.arena_bytes = kArenaBytes;
    hello.bell_bytes = kBellBytes;
    const auto lie = input.take<std::uint8_t>();
    if (lie % 16 == 1)
        input.take_into(std::as_writable_bytes(std::span(&hello, 1)).subspan(input.below(64)));
    hello.bell_bit = lie % 16 == 2 ? input.take<std::uint32_t>() : 0;
    const int fds[] = {bell_fd_.get(), arena_fd_.get()};
    ucs::unix_send(socket_.get(), sm::bytes_of(hello), fds, lie % 16 == 3 ? input.below(3) : 2);
}

void HostilePeer::offer_ring(Input& input) {
    geometry_.slot_count = 16U << input.below(3);
    geometry_.seg_bytes = 64 * (1 + input.below(512));
    geometry_.pool_blocks = 1 + input.below(256);
    geometry_.page_bytes = 4096;
    ucs::UniqueFd fd, pool_fd;
    require(ucs::memfd_create_for_readers("fuzz-pool", geometry_.pool_bytes(), &pool_, &pool_fd) ==
            UCS_OK);
    require(ucs::memfd_create_sealed("fuzz-ring", geometry_.bytes(), &fd) == UCS_OK);
    require(ucs::map_shared(fd.get(), geometry_.bytes(), &ring_) == UCS_OK);
    position_ = input.take<std::uint8_t>() % 4 == 0 ? input.take<std::uint64_t>() : 0;
    sm::RingOffer offer{
        sm::kPacketMagic,    sm::kFormatVersion,    sm::PacketType::kRing, geometry_.slot_count,
        geometry_.seg_bytes, geometry_.pool_blocks, geometry_.page_bytes,  0,
        position_,           geometry_.bytes()};
    if (input.take<std::uint8_t>() % 16 == 1)
        input.take_into(std::as_writable_bytes(std::span(&offer, 1)).subspan(12 + input.below(16)));
    const int fds[] = {fd.get(), pool_fd.get()};
    ucs::unix_send(socket_.get(), sm::bytes_of(offer), fds, 2);
}

void HostilePeer::act(Input& input) {
    if (!socket_)
        return;
    const auto what = input.take<std::uint8_t>() % 16;
    if (what < 11) {
        write_message(input);
    } else if (what < 14) {
        scribble(input);
    } else if (what == 14) {
        read_socket();
    } else {
        std::array<std::byte, sm::kPacketBytesMax> packet{};
        input.take_into(packet);
        ucs::unix_send(socket_.get(), std::span(packet).first(input.below(sm::kPacketBytesMax)),
                       nullptr, 0);
    }
}

void HostilePeer::write_message(Input& input) {
    auto* slots = reinterpret_cast<sm::Slot<>*>(ring_.base() + geometry_.front_offset());
    sm::Slot<>& slot = slots[position_ & (geometry_.front_count() - 1)];
    const auto kind =
        static_cast<sm::Kind>(1 + input.below(static_cast<std::uint32_t>(sm::Kind::kLast) + 1));
    const auto id = input.take<std::uint8_t>();
    const auto length = static_cast<std::uint16_t>(input.take<std::uint8_t>() % 8 == 0
                                                       ? input.take<std::uint16_t>()
                                                       : input.below(sm::kBodyBytes + 1));
    input.take_into(std::span(slot.body).first(std::min<std::size_t>(length, sm::kBodyBytes)));
    // SYNC sm_slot: as an honest sender publishes; the victim is in this thread.
    slot.control.store(
        sm::Control::make(kind, id, length).word | static_cast<std::uint32_t>(position_ + 1),
        std::memory_order_release);
    ++position_;
}

/// Anything anywhere in the control parts of both rings and the bell.
void HostilePeer::scribble(Input& input) {
    struct Area {
        std::byte* base;
        std::size_t bytes;
    };
    Area areas[] = {
        {ring_.base(), geometry_.front_offset()},
        {ring_.base() + geometry_.front_offset(), geometry_.bytes() - geometry_.front_offset()},
        {bell_.base(), kBellBytes},
        {pool_.base(), pool_.bytes()},
        {their_ring_.base(), their_ring_.bytes()}};
    const Area& area = areas[input.below(5)];
    if (area.base == nullptr)
        return;
    const std::size_t at = input.below(static_cast<std::uint32_t>(area.bytes - 8)) / 8 * 8;
    const std::uint64_t value = input.take<std::uint8_t>() % 2 == 0 ? input.take<std::uint64_t>()
                                                                    : input.take<std::uint8_t>();
    std::memcpy(area.base + at, &value, sizeof value);
}

void HostilePeer::read_socket() {
    alignas(8) std::array<std::byte, sm::kPacketBytesMax> buffer;
    ucs::ReceivedMessage message;
    while (ucs::unix_receive(socket_.get(), buffer, &message) == UCS_OK) {
        std::string reason;
        const auto type = sm::check_packet(std::span(buffer).first(message.bytes), &reason);
        require(type.has_value());  // the library itself says only what it would accept
        if (*type == sm::PacketType::kRing) {
            sm::RingOffer offer;
            std::memcpy(&offer, buffer.data(), sizeof offer);
            require(sm::check_ring_offer(offer, &reason).has_value());
            require(ucs::map_shared(message.fds[0].get(), offer.bytes, &their_ring_) == UCS_OK);
        }
    }
}

}  // namespace tagwire::fuzz
