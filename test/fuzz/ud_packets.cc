// SPDX-License-Identifier: BSD-3-Clause
// Datagrams for a node of the ud protocol that has connections of its own: raw, and nearly right
// ones whose cookie and numbers are those of the node. On a virtual clock. Every packet and buffer
// comes back, once.
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "input.hpp"
#include "target.hpp"
#include "uct/ib/ud/ud_node_impl.hpp"

namespace tagwire::fuzz::ud_packets_fuzz {
namespace {

constexpr std::uint32_t kCookie = 0x1234567;
constexpr std::uint32_t kPeerCookie = 0x7654321;
constexpr std::size_t kPacketBytesMax = 128;
constexpr std::uint32_t kInboundMax = 8;
constexpr std::uint32_t kHeldMax = 16;

/// The node and its user.
class Host {
  public:
    struct Peer {
        std::uint32_t qp_num;
        std::uint32_t cookie;
        std::uint32_t owed = 0;
        unsigned users = 0;
    };
    using Outbound = ud::BasicOutbound<Peer>;

    Host() : node_(std::make_unique<ud::Node<Host>>(*this, params())) {}
    ~Host() {
        for (auto& outbound : outbounds_)
            close(*outbound);
        node_.reset();
        require(peers_.empty() && buffers_out_ == 0 && packets_out_ == 0);
    }

    ud::Node<Host>& node() { return *node_; }

    void open(std::uint64_t now) {
        ud::SenderParams sender = node_->params().sender;
        sender.first_psn = 100;
        outbounds_.push_back(std::make_unique<Outbound>(sender, now));
        outbounds_.back()->peer = get_peer(7, kPeerCookie);
        require(node_->open(*outbounds_.back()));
        node_->pump(*outbounds_.back(), now);
    }

    void push(std::size_t index, std::uint64_t now) {
        Outbound& outbound = *outbounds_[index % outbounds_.size()];
        if (!outbound.sender.has_room())
            return;
        outbound.sender.push(new ud::Header{});
        ++packets_out_;
        node_->pump(outbound, now);
    }

    void arrived(std::span<const std::byte> datagram, std::uint64_t now) {
        auto* message = new std::byte[datagram.size() + 1];  // an empty one is one, too
        std::copy(datagram.begin(), datagram.end(), message);
        ++buffers_out_;
        node_->arrived(message, static_cast<std::uint32_t>(datagram.size()), now);
        require(node_->inbounds() <= kInboundMax && node_->held() <= kHeldMax);
    }

    bool is_full = false;

    // ---- Requests of the node
    bool can_send(bool) const { return !is_full; }
    void send_control(Peer& peer, const ud::Header& header) { check_sent(peer, header); }
    void send_data(Peer& peer, const ud::Header& header, void* packet) {
        *static_cast<ud::Header*>(packet) = pack(header);
        check_sent(peer, header);
    }
    ud::Liveness liveness(const Peer& peer) { return static_cast<ud::Liveness>(peer.qp_num % 3); }
    void release(void* packet) {
        --packets_out_;
        delete static_cast<ud::Header*>(packet);
    }
    void deliver(std::uint8_t am_id, void* message, std::uint32_t bytes) {
        require(am_id < ud::kAmIdEnd && bytes >= ud::kHeaderBytes);
        drop(message);
    }
    void deliver_joined(std::uint8_t am_id, std::span<const std::byte> data) {
        require(am_id < ud::kAmIdEnd && data.size() <= ud::kJoinedBytesMax);
    }
    void drop(void* message) {
        --buffers_out_;
        delete[] static_cast<std::byte*>(message);
    }
    Peer* peer_of(const void* message) {
        ud::ReturnAddress from;
        std::memcpy(&from, static_cast<const std::byte*>(message) + ud::kHeaderBytes, sizeof from);
        // As the transport does: an address that cannot be is nobody's.
        std::string reason;
        const auto parsed =
            ud::parse_interface(std::as_bytes(std::span(&from.interface, 1)), &reason);
        return parsed ? get_peer(parsed->qp_num, parsed->cookie) : nullptr;
    }
    void put_peer(Peer& peer) {
        require(peer.users > 0);
        if (--peer.users == 0)
            peers_.erase({peer.qp_num, peer.cookie});
    }
    void advanced(Outbound&) {}
    void failed(Outbound& outbound, ud::Failure) { require(outbound.sender.is_dead()); }
    void count(ud::Event) {}

  private:
    static ud::NodeParams params() {
        ud::NodeParams params;
        params.cookie = kCookie;
        params.inbound_max = kInboundMax;
        params.held_max = kHeldMax;
        params.ahead_max = 8;
        return params;
    }

    void close(Outbound& outbound) {
        node_->close(outbound);
        put_peer(*std::exchange(outbound.peer, nullptr));
    }

    Peer* get_peer(std::uint32_t qp_num, std::uint32_t cookie) {
        auto& peer = peers_[{qp_num, cookie}];
        if (peer == nullptr)
            peer = std::make_unique<Peer>(Peer{.qp_num = qp_num, .cookie = cookie});
        ++peer->users;
        return peer.get();
    }

    /// We send nothing malformed.
    void check_sent(const Peer& peer, const ud::Header& header) const {
        require(header.to_cookie == peer.cookie && peer.users > 0);
        const ud::Header packed = pack(header);
        std::byte datagram[ud::kControlBytesMax] = {};
        std::memcpy(datagram, &packed, sizeof packed);
        require(ud::parse_header(datagram).has_value());
    }

    std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<Peer>> peers_;
    std::vector<std::unique_ptr<Outbound>> outbounds_;
    std::size_t buffers_out_ = 0;
    std::size_t packets_out_ = 0;
    std::unique_ptr<ud::Node<Host>> node_;
};

void deliver_raw(Host& host, Input& input, std::uint64_t now) {
    std::byte bytes[kPacketBytesMax];
    const std::span datagram = std::span(bytes).first(input.take<std::uint8_t>() % kPacketBytesMax);
    input.take_into(datagram);
    host.arrived(datagram, now);
}

/// A right header with numbers near those that the node gave, and a return address.
void deliver_near(Host& host, Input& input, std::uint64_t now) {
    const auto small = [&] { return std::uint32_t{input.take<std::uint8_t>()} % 4; };
    const std::uint32_t own_id = (kCookie & ~0xfffffU) | small();
    ud::Header header;
    header.kind = static_cast<ud::Kind>(1 + input.take<std::uint8_t>() % 7);
    const auto id = static_cast<std::uint8_t>(input.take<std::uint8_t>() % 32);
    header.value = header.kind == ud::Kind::kData ? id : std::uint8_t{0};
    header.to_cookie = small() == 3 ? input.take<std::uint32_t>() : kCookie;
    header.to_id = small() == 3 ? small() : own_id + (small() << 20);
    header.from_id = small();
    header.psn = small() == 3 ? input.take<std::uint32_t>() : input.take<std::uint8_t>();
    header.ack_id = small() == 0 ? 0 : own_id;
    header.ack_psn = 96 + input.take<std::uint8_t>();
    header.flags = input.take<std::uint8_t>() % 8;
    ud::ReturnAddress from{};
    from.interface = pack(ud::InterfaceAddress{
        .datagram_bytes = 4096, .qp_num = 7 + small(), .cookie = small() == 3 ? 5 : kPeerCookie});
    const ud::Header packed = pack(header);
    std::byte bytes[ud::kControlBytesMax];
    std::memcpy(bytes, &packed, sizeof packed);
    std::memcpy(bytes + sizeof packed, &from, sizeof from);
    const bool is_cut = input.take<std::uint8_t>() % 16 == 0;
    host.arrived(std::span(bytes).first(is_cut ? input.below(sizeof bytes) : sizeof bytes), now);
}

void run_input(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    Host host;
    std::uint64_t now = 1'000'000;
    host.open(now);
    host.open(now);
    while (!input.at_end()) {
        const auto step = input.take<std::uint8_t>();
        switch (step % 8) {
            case 0:
                deliver_raw(host, input, now);
                break;
            case 1:
                host.push(step / 8, now);
                break;
            case 2:
                now += std::uint64_t{input.take<std::uint16_t>()} << (step / 8);
                host.node().settle();
                host.node().expire(now);
                break;
            case 3:
                host.is_full = step / 8 % 2 != 0;
                host.node().resume(now);
                break;
            case 4:
                host.node().tell_all(now);
                break;
            default:
                deliver_near(host, input, now);
                break;
        }
    }
}

}  // namespace

extern const Target kTarget{"ud_packets", nullptr, run_input};

}  // namespace tagwire::fuzz::ud_packets_fuzz
