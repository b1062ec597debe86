// SPDX-License-Identifier: BSD-3-Clause
// The fabric between the processes of one user on one host: packet rings in shared memory.
//
// Every process is a node with a LID, which it holds by listening on an abstract socket named after
// user and LID. The first packet to a LID connects to its socket and passes the memory of a ring
// for that direction. Nothing has a name in the file system, so nothing remains of a process that
// is killed.
//
// Threads: one at a time, by the lock of the device; only epoll_fd() may be waited for without it.
// Invariants
//  (1) No call blocks. A packet to a LID without a node, or one that cannot be reached now, is
//      dropped and counted.
//  (2) Packets of one sender to one receiver arrive in order while the connection lives. Packets
//      sent before a sender died are delivered.
//  (3) Another user is refused by both sides, another version by the receiver.
//  (4) Nothing that a peer writes ends anything but its own connection.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ucs/sys/fd.hpp"
#include "ucs/sys/shm.hpp"
#include "vhca/fabric/fabric.hpp"
#include "vhca/fabric/fences.hpp"
#include "vhca/fabric/hello.hpp"
#include "vhca/fabric/ring.hpp"

namespace tagwire::vhca {

inline constexpr std::uint16_t kLidMax = 0xbfff;  // above are multicast LIDs

/// Where the node with this LID of this user listens: an abstract socket.
std::string node_socket_name(unsigned uid, std::uint16_t lid);

inline constexpr std::uint64_t kLinkLocalPrefix = 0xfe80000000000000;
/// The GID of the node with this GUID.
ibv_gid link_local_gid(std::uint64_t guid);

class ShmFabric final : public Fabric {
  public:
    static constexpr std::size_t kUnknownMax = 64;  // connections that have not said hello yet
    static constexpr std::size_t kLinksMax = 4096;  // from peers

    /// Takes a LID. 0 or an errno value: EADDRNOTAVAIL when no LID is free.
    static int open(std::unique_ptr<ShmFabric>* fabric_p);
    ~ShmFabric() override;
    ShmFabric(const ShmFabric&) = delete;
    ShmFabric& operator=(const ShmFabric&) = delete;

    [[nodiscard]] std::uint16_t lid() const { return lid_; }

    /// From now on datagrams come with a GRH, as on Ethernet: the GIDs are link-local, made of
    /// `guid_base` and the LIDs. Not 0.
    void add_grhs(std::uint64_t guid_base) { guid_base_ = guid_base; }

    std::byte* claim(Route to, std::size_t bytes) override;
    void commit(Route to, std::size_t bytes) override;
    Turn turn_of(Route to) override;
    bool has_had_turn(Route to, const Turn& since) override;
    /// As many visits as the longest ring needs, and one that finds it empty.
    [[nodiscard]] unsigned steps_to_catch_up() const override {
        return kRingSlots / kPacketsPerVisit + 1;
    }

    /// Calls take(Route from, std::span<const std::byte> packet) for packets that came in, up to a
    /// bound; what take() does not keep is gone afterwards. Calls gone(Route) for a process that
    /// ended, after its last packet and before the first of another one with its LID. Returns how
    /// many packets there were.
    template <typename Take, typename Gone>
    unsigned poll(Take&& take, Gone&& gone);

    unsigned deliver(Device& device, Time now) override;
    /// A packet is sent when it is committed.
    bool flush() override { return true; }

    /// Readable also when connections come and go, and when a peer knocks.
    [[nodiscard]] int epoll_fd() const override { return epoll_.get(); }
    void service() override;
    bool arm() override;
    [[nodiscard]] bool is_neglected() const override { return false; }  // peers knock
    /// Knocks at peers that took nothing since the last call though there was something.
    void knock_at_idle() override;
    void abandon() override;

    [[nodiscard]] const FabricCounters& counters() const override { return counters_; }

  private:
    static constexpr unsigned kPacketsPerVisit = 16;
    /// A node that looked so often had the time to answer all that it had taken.
    static constexpr std::uint64_t kVisitsOfTurn = 16;

    using Sender = RingSender<std::atomic, HostFences>;
    using Receiver = RingReceiver<std::atomic, HostFences>;
    struct OutLink {
        std::uint16_t lid = 0;
        ucs::UniqueFd socket;
        ucs::Mapping memory;
        Sender ring;
        // State of the last knock_at_idle(); it knocks ever more rarely.
        std::uint64_t tail_seen = 0;
        bool has_waited = false;
        unsigned visits_to_skip = 0, patience = 0;
    };
    struct InLink {
        std::uint16_t lid = 0;
        bool is_closing = false;  // the peer hung up: ends when the ring is empty
        bool is_dead = false;
        ucs::UniqueFd socket;
        ucs::Mapping memory;
        Receiver ring;
    };
    ShmFabric() = default;
    void deliver_datagram(Device& device, Route from, std::span<const std::byte> packet, Time now);
    int listen();
    bool watch(int fd);

    OutLink* link_to(std::uint64_t node);
    [[nodiscard]] const OutLink* standing_link(std::uint64_t node) const;
    OutLink* connect(std::uint16_t lid);
    ucs_status_t make_segment(OutLink& link, ucs::UniqueFd* fd_p);
    ucs_status_t make_loopback(OutLink& link);
    ucs_status_t reach(OutLink& link);
    void drop_out(OutLink& link, std::uint64_t pause_ns);
    void knock(OutLink& link);

    void accept_all();
    void serve(int fd);
    void serve_unknown(int fd);
    void serve_out(OutLink& link);
    void serve_in(InLink& link);
    bool admit(int fd, const Hello& hello, const ucs::UniqueFd& segment);
    void tell_version(unsigned lid, const Refusal& theirs);
    void sweep();

    HostFences fences_;
    std::uint16_t lid_ = 0;
    std::uint64_t guid_base_ = 0;  // 0: datagrams come without a GRH
    ucs::UniqueFd listener_, epoll_;
    FabricCounters counters_;

    OutLink* last_ = nullptr;  // where the last packet went
    std::unordered_map<std::uint64_t, std::unique_ptr<OutLink>> out_;
    std::unordered_map<int, OutLink*> out_by_fd_;
    std::unordered_map<std::uint64_t, std::uint64_t> paused_until_ns_;  // LIDs not to be tried
    std::vector<std::unique_ptr<InLink>> in_;
    bool has_dead_ = false;
    bool is_abandoned_ = false;
    std::unordered_map<int, ucs::UniqueFd> unknown_;
    bool has_told_version_ = false;

    std::unique_ptr<std::byte[]> scratch_;  // for packets that vanish
};

template <typename Take, typename Gone>
unsigned ShmFabric::poll(Take&& take, Gone&& gone) {
    unsigned total = 0;
    // By index: what take() does may not change the list, but nothing here depends on that.
    for (std::size_t i = 0; i < in_.size(); ++i) {
        InLink& link = *in_[i];
        std::span<const std::byte> packet;
        link.ring.begin_visit();
        for (unsigned count = 0; count < kPacketsPerVisit; ++count) {
            const Peek seen = link.ring.peek(&packet);
            if (seen != Peek::kPacket) [[unlikely]] {
                if (seen == Peek::kCorrupt || link.is_closing) {
                    counters_.corrupt += seen == Peek::kCorrupt ? 1 : 0;
                    link.is_dead = has_dead_ = true;
                    if (seen != Peek::kCorrupt)
                        gone(Route{link.lid});
                }
                break;
            }
            take(Route{link.lid}, packet);
            link.ring.advance();
            ++total;
        }
    }
    counters_.packets_received += total;
    if (has_dead_) [[unlikely]]
        sweep();
    return total;
}

}  // namespace tagwire::vhca
