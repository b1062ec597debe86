// SPDX-License-Identifier: BSD-3-Clause
// The connections of an interface: its socket and identity, the links to peers, the exchange of
// hellos and rings, and disconnection. A link's states are in link.hpp.
//
// No callback of the program runs here, because event_arm() calls look(), too. A link that fails
// waits in LinkEnds for progress.
#pragma once

#include <memory>

#include "ucs/log/repeats.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/sys/unix_socket.hpp"
#include "uct/sm/event_set.hpp"
#include "uct/sm/link.hpp"
#include "uct/sm/options.hpp"
#include "uct/sm/peer_processes.hpp"
#include "uct/sm/wire.hpp"

namespace tagwire::sm {

class SmConnections {
  public:
    SmConnections(SmIface& owner, const SmOptions& options, const SmForce& force);
    SmConnections(const SmConnections&) = delete;
    SmConnections& operator=(const SmConnections&) = delete;
    ~SmConnections();
    /// Listens for peers.
    ucs_status_t open();

    // ---- Links
    /// The link to a peer interface, which is connected if need be.
    ucs_status_t link_to(const IfaceAddress& address, Link** link_p);
    /// The link of endpoints after flush(CANCEL): it refuses everything.
    [[nodiscard]] Link& cancelled_link() { return cancelled_link_; }
    /// By index; null where free.
    [[nodiscard]] const ucs::ReserveVector<std::unique_ptr<Link>>& links() const { return links_; }
    /// Our ring. UCS_ERR_NO_RESOURCE: the peer has yet to answer.
    ucs_status_t make_tx(Link& link);
    void send_leave(Link& link);
    void set_retry(Link& link, bool wanted);
    void close_socket(Link& link);
    /// New endpoints do not find it any more.
    void forget_name(const Link& link);
    void remove(Link& link);

    // ---- Looks at the sockets
    /// True: something was.
    bool look();
    void look_soon() { next_look_ = 0; }
    [[nodiscard]] bool is_time_to_look(std::uint64_t now) const {
        return static_cast<std::int64_t>(now - next_look_) >= 0;
    }
    /// is_time_to_look() is true, and other processes wait for the processor: at most once per
    /// kLooksCrowded intervals, unless somebody is getting to know us.
    [[nodiscard]] bool is_time_to_look_crowded(std::uint64_t now) const {
        return now - next_look_ >= (kLooksCrowded - 1) * look_ticks_ || is_retrying() ||
               static_cast<std::int64_t>(contact_until_ - now) > 0;
    }
    /// At most once per 16 look intervals, under constant load.
    [[nodiscard]] bool is_look_overdue(std::uint64_t now) const {
        return now - next_look_ + look_ticks_ > 16 * look_ticks_;
    }
    [[nodiscard]] bool is_retrying() const { return !retrying_.empty(); }
    /// The event descriptor becomes readable then.
    void set_timer(std::uint64_t ns);

    // ---- Descriptions
    [[nodiscard]] int event_fd() const { return events_.fd(); }
    [[nodiscard]] PeerProcesses& processes() { return processes_; }
    [[nodiscard]] const PeerProcesses& processes() const { return processes_; }
    [[nodiscard]] const ucs::UnixAddress& address() const { return address_; }
    /// In which abstract names are found: that of the thread that opened the interface.
    [[nodiscard]] std::uint64_t network_namespace() const { return network_namespace_; }
    [[nodiscard]] DeviceAddress device_address() const;
    [[nodiscard]] IfaceAddress iface_address() const;

  private:
    Link& new_link();
    void accept_peers();
    bool read_socket(Link& link);
    void process_died(std::uint32_t id);
    void peer_leaves(Link& link);
    ucs_status_t take_hello(Link& link, const Hello& hello, ucs::ReceivedMessage& message);
    ucs_status_t take_ring(Link& link, const RingOffer& offer, ucs::ReceivedMessage& message);
    ucs_status_t send_hello(Link& link, std::uint64_t cookie);
    ucs_status_t connect(Link& link);
    static ucs_status_t reach(Link& link);
    void retry(Link& link);
    void await_contact();
    void choose_copy_path(Link& link, const Hello& hello) const;
    void bind_near(ucs::Mapping& segment, std::uint8_t numa_node) const;

    SmIface& iface_;
    const SmOptions& options_;
    const std::uint64_t ring_start_;  // position
    PoolSizes pool_sizes_{};
    EventSet events_;
    PeerProcesses processes_;
    Link cancelled_link_{iface_, 0};
    ucs::ReserveVector<std::unique_ptr<Link>> links_;
    ucs::ReserveVector<std::uint32_t> free_links_;
    ucs::ReserveHashMap<std::uint64_t, Link*> by_name_;
    ucs::ReserveVector<Link*> retrying_;  // what they wait for comes without an event
    static constexpr std::uint64_t kLooksCrowded = 4;

    std::uint64_t next_look_ = 0;      // ticks
    std::uint64_t look_ticks_ = 0;     // between looks
    std::uint64_t accept_after_ = 0;   // ticks; no descriptors were left
    std::uint64_t contact_until_ = 0;  // ticks; somebody is getting to know us: look more often
    ucs::Repeats refusals_;
    ucs::UniqueFd listener_;
    ucs::UniqueFd timer_;
    ucs::UnixAddress address_;
    std::uint64_t network_namespace_ = 0;
    std::uint64_t name_ = 0;
    std::uint64_t cookie_ = 0;
    ucs::OwnProof proof_;
    std::uint8_t numa_node_ = 0xff;
};

}  // namespace tagwire::sm
