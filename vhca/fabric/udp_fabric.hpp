// SPDX-License-Identifier: BSD-3-Clause
// The fabric between hosts: RoCEv2 packets over UDP.
//
//     IPv4 (20) | UDP (8): port 4791 to port 4791 | BTH ... payload, padding | invariant CRC (4)
//
// A node is an IPv4 address, and belongs to the process that is bound to port 4791 there. The
// number of a route is that address.
//
// Threads: as of every fabric.
// Invariants
//  (1) No call blocks. Packets that the system does not take now are kept, up to kBatch; then
//      claim() refuses.
//  (2) A datagram is a packet of the node that its source address names only if it came from port
//      4791: on that machine no other process can send from there. A sender that can put datagrams
//      with a false address on the network can forge anything; that is so for RoCE, too.
//  (3) Nothing is fragmented: mtu() leaves room for all headers.
//  (4) Packets of one node to another keep their order as far as the network keeps it.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <memory>

#include "ucs/sys/fd.hpp"
#include "vhca/fabric/fabric.hpp"
#include "vhca/fabric/icrc.hpp"
#include "vhca/fabric/interface.hpp"

namespace tagwire::vhca {

inline constexpr std::uint16_t kRocePort = 4791;

/// The largest MTU of InfiniBand with which every packet fits an interface of `interface_bytes`.
ibv_mtu roce_mtu(std::uint32_t interface_bytes);

class UdpFabric final : public Fabric {
  public:
    static constexpr unsigned kBatch = 32;  // packets of one system call
    static constexpr std::size_t kDatagramBytesMax = kPacketBytesMax + kIcrcBytes;

    /// Binds to `address` in dots; "": default_address(). 0 or an errno value, which the log
    /// explains: EINVAL (not an address of a host), EADDRINUSE, EADDRNOTAVAIL.
    static int open(const char* address, std::unique_ptr<UdpFabric>* fabric_p);
    ~UdpFabric() override;
    UdpFabric(const UdpFabric&) = delete;
    UdpFabric& operator=(const UdpFabric&) = delete;

    [[nodiscard]] std::uint32_t address() const { return address_; }
    [[nodiscard]] const Interface& interface() const { return interface_; }
    [[nodiscard]] ibv_mtu mtu() const { return roce_mtu(interface_.mtu_bytes); }
    /// So many packets of `mtu` fit the system's buffer of a receiver like this one.
    [[nodiscard]] std::uint32_t packets_buffered(ibv_mtu mtu) const;

    std::byte* claim(Route to, std::size_t bytes) override;
    void commit(Route to, std::size_t bytes) override;
    bool flush() override;
    unsigned deliver(Device& device, Time now) override;

    /// Readable only after arm(), once: while somebody polls, packets wake nobody.
    [[nodiscard]] int epoll_fd() const override { return epoll_.get(); }
    void service() override;
    bool arm() override;
    [[nodiscard]] bool is_neglected() const override;
    void knock_at_idle() override {}
    void abandon() override;
    [[nodiscard]] const FabricCounters& counters() const override { return counters_; }

    /// Where a datagram came from, and its traffic class.
    struct Sender {
        sockaddr_in address;
        std::uint8_t traffic_class = 0;
    };
    /// One datagram that came from `from`, as deliver() treats it: checked, counted, handed on.
    void take(Device& device, Time now, const Sender& from, std::span<const std::byte> datagram);

  private:
    /// Ancillary data of one message: its traffic class.
    struct Control {
        alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> bytes;
    };
    struct Batch {
        std::array<Control, kBatch> controls;
        std::array<mmsghdr, kBatch> messages;
        std::array<iovec, kBatch> pieces;
        std::array<sockaddr_in, kBatch> peers;
        std::array<std::array<std::byte, kDatagramBytesMax>, kBatch> bytes;
    };

    UdpFabric() = default;
    int bind(std::uint32_t address);
    int watch(unsigned events, int operation);
    void set_buffers();
    void set_class(unsigned index, std::uint8_t traffic_class);
    static std::unique_ptr<Batch> make_batch();

    std::uint32_t address_ = 0;
    Interface interface_;
    ucs::UniqueFd socket_, epoll_;
    std::uint32_t buffer_bytes_ = 0;  // of the socket, for what came in
    FabricCounters counters_;
    // Packets first_ .. count_ of `out_` are to be sent.
    unsigned first_ = 0, count_ = 0;
    std::unique_ptr<Batch> out_, in_;
};

}  // namespace tagwire::vhca
