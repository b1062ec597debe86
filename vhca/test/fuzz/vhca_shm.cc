// SPDX-License-Identifier: BSD-3-Clause
// A node of the virtual HCA's shared-memory fabric against a peer that writes nonsense: into its
// socket, into the ring that it sends through, and into the ring that the node sends through. It
// may end its own connections, and nothing else.
#include <unistd.h>

#include "target.hpp"
#include "ucs/sys/unix_socket.hpp"
#include "vhca/fabric/shm_fabric.hpp"
#include "vhca_victim.hpp"

namespace tagwire::fuzz::vhca_shm_fuzz {
namespace {

constexpr std::uint16_t kPeerLid = static_cast<std::uint16_t>(kPeer.node);

/** Listens as the node kPeer, and connects as whoever the input says. */
class Hostile {
  public:
    explicit Hostile(std::uint16_t victim_lid) : victim_lid_(victim_lid) {
        const ucs::UnixAddress own{"", vhca::node_socket_name(::geteuid(), kPeerLid)};
        // Where another process has the name, the node's packets vanish, and the rest goes on.
        static_cast<void>(ucs::unix_listen(own, &listener_));
    }

    void act(VhcaVictim& victim, Input& input) {
        switch (input.take<std::uint8_t>() % 8) {
            case 0:
                connect(input);
                break;
            case 1:
                accept();
                break;
            case 2:
                talk(input);
                break;
            case 3:
                scribble(input);
                break;
            case 4:
                hold(input);
                break;
            default:
                send(victim, input);
        }
    }

  private:
    void connect(Input& input) {
        const ucs::UnixAddress there{"", vhca::node_socket_name(::geteuid(), victim_lid_)};
        const auto kind = input.take<std::uint8_t>();
        const std::size_t bytes = kind % 16 == 1 ? 4096 : vhca::kSegmentBytes;
        ucs::UniqueFd segment;
        ucs::Mapping memory;
        if (ucs::unix_connect(there, &out_) != UCS_OK ||
            ucs::memfd_create_sealed("hostile", bytes, &segment) != UCS_OK ||
            ucs::map_shared(segment.get(), bytes, &memory) != UCS_OK) {
            return;
        }
        if (bytes == vhca::kSegmentBytes) {
            out_memory_ = std::move(memory);
            ring_ = vhca::ring_in(out_memory_.base());
            position_ = 0;
        }
        vhca::Hello hello{.segment_bytes = vhca::kSegmentBytes, .lid = kPeerLid};
        if (kind % 16 == 2)
            input.take_into(std::as_writable_bytes(std::span(&hello, 1)));
        const std::size_t said = kind % 16 == 3 ? input.below(sizeof hello) : sizeof hello;
        const int fd = segment.get();
        static_cast<void>(ucs::unix_send(out_.get(),
                                         std::as_bytes(std::span(&hello, 1)).first(said), &fd,
                                         kind % 16 == 4 ? 0 : 1));
    }

    /// Takes the memory of the ring that the node sends to us through.
    void accept() {
        std::array<std::byte, 256> buffer;
        ucs::ReceivedMessage message;
        if (!listener_ || ucs::unix_accept(listener_.get(), &in_) != UCS_OK ||
            ucs::unix_receive(in_.get(), buffer, &message) != UCS_OK || message.fd_count != 1) {
            return;
        }
        static_cast<void>(ucs::map_shared(message.fds[0].get(), vhca::kSegmentBytes, &in_memory_));
    }

    void talk(Input& input) {
        std::array<std::byte, 64> words{};
        const std::size_t bytes = 1 + input.below(words.size() - 1);
        input.take_into(std::span(words).first(bytes));
        const ucs::UniqueFd& to = input.take<std::uint8_t>() % 2 == 0 ? out_ : in_;
        if (to)
            static_cast<void>(ucs::unix_send(to.get(), std::span(words).first(bytes), nullptr, 0));
    }

    /// Anywhere in a ring, also where only the other side writes.
    void scribble(Input& input) {
        const ucs::Mapping& memory = input.take<std::uint8_t>() % 2 == 0 ? out_memory_ : in_memory_;
        const std::size_t offset = input.take<std::uint8_t>() % 2 == 0
                                       ? input.below(vhca::kSlotsOffset)
                                       : input.below(vhca::kSegmentBytes - 64);
        const std::size_t bytes = 1 + input.below(63);
        if (memory.base() != nullptr)
            input.take_into({memory.base() + offset, bytes});
    }

    void hold(Input& input) {
        if (input.take<std::uint8_t>() % 4 == 0)
            out_.reset();
        else if (input.take<std::uint8_t>() % 4 == 0)
            in_.reset();
        else if (in_memory_.base() != nullptr)
            vhca::ring_in(in_memory_.base()).consumer->tail.store(input.below(512));
    }

    /// A packet whose control word may lie about its size.
    void send(VhcaVictim& victim, Input& input) {
        if (ring_.slots == nullptr)
            return;
        std::array<std::byte, vhca::kPacketBytesMax> packet;
        std::size_t bytes = victim.compose(input, packet);
        const auto kind = input.take<std::uint8_t>();
        bool is_long = bytes > vhca::kSlotBodyBytes;
        vhca::Slot<>& slot = ring_.slots[position_ % vhca::kRingSlots];
        std::memcpy(is_long ? ring_.chunk(position_) : slot.body, packet.data(), bytes);
        if (kind % 16 == 1)
            bytes = input.take<std::uint32_t>() & vhca::detail::kSizeMask;
        else if (kind % 16 == 2)
            is_long = !is_long;
        std::uint64_t word = std::uint64_t{bytes} << vhca::detail::kSizeShift |
                             (is_long ? vhca::detail::kInChunk : 0);
        word |= static_cast<std::uint32_t>(kind % 16 == 3 ? input.take<std::uint32_t>()
                                                          : position_ + 1);
        slot.control.store(word, std::memory_order_release);
        ++position_;
    }

    std::uint16_t victim_lid_;
    ucs::UniqueFd listener_, out_, in_;
    ucs::Mapping out_memory_, in_memory_;
    vhca::RingMemory<> ring_{};
    std::uint64_t position_ = 0;
};

void run(Input& input) {
    static const std::unique_ptr<vhca::ShmFabric> fabric = [] {
        std::unique_ptr<vhca::ShmFabric> made;
        require(vhca::ShmFabric::open(&made) == 0);
        return made;
    }();
    {
        VhcaVictim victim(*fabric);
        Hostile peer(fabric->lid());
        for (int acts = 0; acts < 300 && !input.at_end(); ++acts) {
            const auto what = input.take<std::uint8_t>();
            if (what % 4 != 3)
                peer.act(victim, input);
            else
                victim.act(input);
            if (what % 8 < 3) {
                fabric->service();
                fabric->deliver(victim.device(), victim.now());
                fabric->knock_at_idle();
            }
        }
        fabric->service();
        fabric->deliver(victim.device(), victim.now());
    }
    // The connections of this run end before the next one: what they still hold goes nowhere.
    fabric->service();
    const auto drop = [](vhca::Route, std::span<const std::byte>) {};
    while (fabric->poll(drop, [](vhca::Route) {}) != 0) {
    }
}

void run_input(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    run(input);
}

}  // namespace

extern const Target kTarget{"vhca_shm", nullptr, run_input};

}  // namespace tagwire::fuzz::vhca_shm_fuzz
