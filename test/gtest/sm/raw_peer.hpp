// SPDX-License-Identifier: BSD-3-Clause
//
// A peer that speaks the shared-memory format by hand, so that it can break each rule by itself.
// Its messages are right until a test changes them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "sm/puppet.hpp"
#include "ucs/sys/fd.hpp"
#include "ucs/sys/shm.hpp"
#include "uct/sm/layout.hpp"
#include "uct/sm/messages.hpp"
#include "uct/sm/wire.hpp"
#include "uct/sm/writers.hpp"

namespace tagwire::test {

/** A message that the library sent to a RawPeer. */
struct RawMessage {
    sm::Control control;
    std::byte body[sm::kBodyBytes];

    bool is(sm::Kind kind) const { return control.kind() == static_cast<std::uint8_t>(kind); }
    template <class Body>
    Body as() const {
        Body value;
        std::memcpy(&value, body, sizeof value);
        return value;
    }
};

/** An active message in a buffer. */
inline sm::AmSegBody in_buffer(std::uint32_t seg) {
    return {seg, 0, {}};
}

class RawPeer {
  public:
    static constexpr std::size_t kArenaBytes = sm::kTablesBytes + (std::size_t{1} << 20);

    /** Connects to `victim`; says nothing yet. */
    RawPeer(const Puppet& puppet, const sm::IfaceAddress& victim);

    void send(std::span<const std::byte> packet, std::span<const int> fds = {}) const;
    void say_hello() const;
    /** Makes the segments of `geometry` and offers them. */
    void offer_ring();
    void make_ring();
    void send_offer(std::span<const int> fds) const;

    /** Closes the connection, of which nobody else has a copy. */
    void hang_up() { socket_.reset(); }
    /** The library has closed the connection. Reads what it sent before. */
    bool is_ended();

    // ---- To the library, after offer_ring()
    sm::Slot<>& slot(std::uint64_t ahead = 0) const;
    void publish(sm::Control control);
    template <class Body>
    void publish(sm::Kind kind, const Body& body, std::uint8_t id = 0,
                 std::size_t length = sizeof(Body)) {
        std::memcpy(slot().body, &body, sizeof body);
        publish(sm::Control::make(kind, id, static_cast<std::uint16_t>(length)));
    }
    /** Forgets all that was rung, and the library seems not to sleep. */
    void clear_their_bell();
    std::byte* buffer(std::uint32_t seg) const;
    sm::RndvWord& rndv(std::uint32_t op) const;

    // ---- From the library
    std::optional<RawMessage> receive();
    /** The library's ring; null until it made one. */
    sm::RingHead* their_head();
    std::byte* their_buffer(std::uint32_t seg);
    void give_back(std::uint32_t seg);
    /** The library said that it has no endpoint here any more. */
    bool was_left();

    sm::Hello hello{};
    sm::RingGeometry geometry{16, 1024, 64, 4096};
    sm::RingOffer offer{};
    ucs::UniqueFd bell_fd, arena_fd, ring_fd, pool_fd;

  private:
    void read_socket();
    /** The library watches the ring by its bell, or sleeps. */
    void ring_bell();

    ucs::UniqueFd socket_;
    bool is_ended_ = false;
    bool was_left_ = false;
    ucs::Mapping ring_, pool_;
    std::uint64_t position_ = 0;
    ucs::Mapping their_ring_, their_pool_, their_bell_;
    std::uint32_t bell_bit_ = 0;
    sm::RingGeometry their_geometry_;
    std::uint64_t their_position_ = 0;
    std::uint64_t returned_ = 0;
};

}  // namespace tagwire::test
