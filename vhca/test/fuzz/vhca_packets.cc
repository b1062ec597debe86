// SPDX-License-Identifier: BSD-3-Clause
// Packets for a virtual HCA: raw, nearly right and damaged, from its peer and from others, straight
// to the device or as datagrams of the UDP fabric.
#include <arpa/inet.h>
#include <unistd.h>

#include "target.hpp"
#include "vhca/fabric/udp_fabric.hpp"
#include "vhca_victim.hpp"

namespace tagwire::fuzz::vhca_packets_fuzz {
namespace {

/** Takes everything, except when the input says that it is full. */
class Sink final : public vhca::Wire {
  public:
    bool is_full = false;
    std::byte* claim(vhca::Route, std::size_t bytes) override {
        require(bytes <= vhca::kPacketBytesMax);
        return is_full ? nullptr : place_.data();
    }
    void commit(vhca::Route, std::size_t bytes) override {
        vhca::Packet packet;
        require(vhca::parse({place_.data(), bytes}, &packet));  // we send nothing malformed
    }

  private:
    std::array<std::byte, vhca::kPacketBytesMax> place_{};
};

/// One for the process, at a loopback address of its own.
vhca::UdpFabric& fabric() {
    static const std::unique_ptr<vhca::UdpFabric> made = [] {
        std::unique_ptr<vhca::UdpFabric> fabric;
        const auto own = 127U << 24 | static_cast<std::uint32_t>(::getpid()) << 2 | 1U;
        require(vhca::UdpFabric::open(vhca::ipv4_text(own).c_str(), &fabric) == 0);
        return fabric;
    }();
    return *made;
}

/// The CRC is right, else nothing would get past it; sometimes other things are not.
void deliver_datagram(VhcaVictim& victim, Input& input, std::span<std::byte> bytes,
                      std::size_t packet_bytes) {
    const auto kind = input.take<std::uint8_t>();
    sockaddr_in from{};
    from.sin_family = kind % 32 == 1 ? sa_family_t{AF_INET6} : sa_family_t{AF_INET};
    from.sin_port = htons(kind % 32 == 2 ? 4792 : vhca::kRocePort);
    const vhca::Route source{kind % 32 == 3 ? kPeer.node + 1 : kPeer.node};
    from.sin_addr.s_addr = htonl(static_cast<std::uint32_t>(source.node));
    const vhca::UdpPath path{static_cast<std::uint32_t>(source.node), fabric().address(),
                             vhca::kRocePort, vhca::kRocePort};
    vhca::put_icrc(&bytes[packet_bytes], vhca::icrc_of(path, bytes.first(packet_bytes)));
    std::size_t total = packet_bytes + vhca::kIcrcBytes;
    if (kind % 32 == 4)
        bytes[input.below(static_cast<std::uint32_t>(total))] ^= std::byte{1};
    else if (kind % 32 == 5)
        total = input.below(static_cast<std::uint32_t>(total));
    fabric().take(victim.device(), victim.now(), {from, kind}, bytes.first(total));
}

void run(Input& input) {
    Sink sink;
    VhcaVictim victim(sink);
    const bool is_udp = input.take<std::uint8_t>() % 4 == 0;
    std::array<std::byte, vhca::UdpFabric::kDatagramBytesMax> buffer{};
    for (int acts = 0; acts < 300 && !input.at_end(); ++acts) {
        const auto what = input.take<std::uint8_t>();
        if (what % 4 == 3) {
            sink.is_full = what % 64 == 63;
            victim.act(input);
            continue;
        }
        std::size_t bytes = 0;
        if (what % 16 == 2) {
            bytes = std::min<std::size_t>(input.take<std::uint8_t>(), vhca::kPacketBytesMax);
            input.take_into(std::span(buffer).first(bytes));
        } else {
            bytes = victim.compose(input, std::span(buffer).first<vhca::kPacketBytesMax>());
        }
        if (is_udp) {
            deliver_datagram(victim, input, buffer, bytes);
        } else {
            // On the heap and exactly as long: reading on is seen.
            const std::vector<std::byte> packet(
                buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(bytes));
            victim.device().receive(what % 32 == 1 ? vhca::Route{1} : kPeer, packet, victim.now());
        }
        victim.device().progress(victim.now());
    }
}

void run_input(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    run(input);
}

}  // namespace

extern const Target kTarget{"vhca_packets", nullptr, run_input};

}  // namespace tagwire::fuzz::vhca_packets_fuzz
