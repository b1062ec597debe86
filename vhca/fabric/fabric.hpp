// SPDX-License-Identifier: BSD-3-Clause
// A fabric between processes, as the engine uses it: the wire, incoming packets, and a descriptor
// to sleep on.
//
// Threads: one at a time, by the lock of the device; only epoll_fd() may be waited for without it.
#pragma once

#include <cstdint>

#include "vhca/core/device.hpp"

namespace tagwire::vhca {

struct FabricCounters {
    std::uint64_t packets_sent = 0, packets_received = 0;
    std::uint64_t vanished = 0;  // sent to where nobody is, or where the system sends nothing
    // Shared memory
    std::uint64_t refused = 0;  // connections: other user, other version, not a hello
    std::uint64_t corrupt = 0;  // connections ended because of impossible ring contents
    std::uint64_t knocks_sent = 0, knocks_received = 0;
    std::uint64_t links_in = 0, links_out = 0;  // connections made
    // UDP: datagrams that were dropped
    std::uint64_t foreign = 0;    // not from the port of a node
    std::uint64_t malformed = 0;  // too short, too long, not a multiple of four bytes
    std::uint64_t bad_crc = 0;
};

class PacketTap;

class Fabric : public Wire {
  public:
    /// Sees what comes in, just before the device does. Before the first packet.
    void set_tap(PacketTap* tap) { tap_ = tap; }

    /// Hands packets that came in to the device, up to a bound. Returns how many there were.
    virtual unsigned deliver(Device& device, Time now) = 0;

    /// Sends what commit() gathered. False: some of it waits until there is room.
    virtual bool flush() = 0;

    /// Readable when service() has something to do.
    [[nodiscard]] virtual int epoll_fd() const = 0;
    virtual void service() = 0;

    /// Says that nobody will poll: what comes in next makes epoll_fd() readable. False: there are
    /// packets already, and nothing is armed.
    virtual bool arm() = 0;

    /// Packets wait, and no peer says so by way of epoll_fd(), as it would if it could.
    [[nodiscard]] virtual bool is_neglected() const = 0;

    /// Now and then: looks after peers that took nothing.
    virtual void knock_at_idle() = 0;

    /// In the child of a fork(): gives the descriptors back, so that the parent keeps its address
    /// for itself. From then on nothing is sent or received.
    virtual void abandon() = 0;

    [[nodiscard]] virtual const FabricCounters& counters() const = 0;

  protected:
    PacketTap* tap_ = nullptr;
};

}  // namespace tagwire::vhca
