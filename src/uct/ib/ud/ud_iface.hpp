// SPDX-License-Identifier: BSD-3-Clause
// The interface of ud: the host of the protocol (ud_node.hpp) on one UD queue pair
// (ud_queue_pair.hpp).
//
// Threads: owner thread of the worker. Nothing runs in the background.
//
// One call of progress():
//   1. receive completions: packets go to the node, which delivers messages; what is owed is told
//   2. send completions: places in the send queue and buffers are free again
//   3. when there is any: waiters, pending requests, failed and destroyed endpoints
//   4. every few calls, the clock: packets that are sent again, acknowledgements that are due
#pragma once

#include <optional>
#include <vector>

#include "ucs/memory/reserve.hpp"
#include "ucs/stats/counters.hpp"
#include "uct/ib/receive_queue.hpp"
#include "uct/ib/ud/ud_ep.hpp"
#include "uct/ib/ud/ud_options.hpp"
#include "uct/ib/ud/ud_queue_pair.hpp"
#include "uct/progress_guard.hpp"

namespace tagwire::ud {

inline constexpr std::size_t kGrhBytes = 40;  // what the network puts in front of a datagram

enum class UdCounter {
    kDelivered,
    kDuplicates,
    kEarly,
    kBeyond,
    kGarbage,
    kForeign,
    kAcks,
    kResent,
    kResets,
    kProbes,
    kEvicted,
    kNoResource,
    kPeerFailures,
    kCount
};
extern const ucs::CounterTable<UdCounter> kUdCounterInfos;

class UdIface : public UdQueuePair {
  public:
    using Peer = UdPeer;
    using Outbound = BasicOutbound<UdPeer>;

    static ucs_status_t open(ib::IbMd& md, uct::Worker& worker, const uct_iface_params_t& params,
                             const void* values, uct_iface_h* iface_p);

    // ---- UCT operations (make_ops) ----
    ucs_status_t flush(unsigned flags, uct_completion_t* comp);
    ucs_status_t fence(unsigned flags);
    unsigned progress();
    ucs_status_t event_arm(unsigned events);
    void close();
    ucs_status_t query(uct_iface_attr_t* attr);
    ucs_status_t get_address(uct_iface_addr_t* addr);

    // ---- for tagwire's own queries ----
    bool reachable(const uct_device_addr_t* dev_addr, const uct_iface_addr_t* iface_addr,
                   std::string* reason) override;
    ucs::CounterSet counters() const override { return counters_.set(kUdCounterInfos); }
    void describe(const uct::DescribeSink& sink) const override;
    void describe_ep(uct_ep_h ep, const uct::DescribeSink& sink) const override;

    // ---- Requests of the node
    void send_data(UdPeer& peer, const Header& header, void* packet);
    void deliver(std::uint8_t am_id, void* message, std::uint32_t bytes);
    void deliver_joined(std::uint8_t am_id, std::span<const std::byte> data);
    void drop(void* message) { receives_.put_back(slot_of(message)); }
    UdPeer* peer_of(const void* message);
    void put_peer(UdPeer& peer) { peers_.put(peer, posted_); }
    Liveness liveness(UdPeer& peer);
    void advanced(Outbound& outbound);
    void failed(Outbound& outbound, Failure failure);
    void count(Event event) { counters_.add(static_cast<UdCounter>(event)); }

  private:
    friend class UdEp;
    static constexpr unsigned kCallsPerLook = 8;  // idle calls per look at the clock
    static constexpr std::uint64_t kLookNs = 1'000'000;
    static constexpr std::uint64_t kDrainNs = 1'000'000'000;  // between looks at who asks about us
    static constexpr std::uint64_t kFarewellNs = 100'000'000;
    static constexpr std::uint32_t kHeldEarlyMax = 1024;  // buffers with packets ahead of order

    UdIface(ib::IbMd& md, uct::Worker& worker, const UdOptions& options);
    ~UdIface() override;
    ucs_status_t init(const uct_iface_params_t& params);
    ucs_status_t open_queues();
    void make_node();
    void farewell();
    [[nodiscard]] InterfaceAddress own_interface() const;

    unsigned poll_receives();
    unsigned work();
    void look();
    void take_event(const ib::AsyncEvent& event);
    void break_down(const char* what, const char* why) override;
    void fail(UdEp& ep, ucs_status_t status, const char* why);
    unsigned settle_failing();
    void reap();
    static void released(void* iface, std::uint64_t owner);

    [[nodiscard]] static std::byte* slot_of(void* message) {
        return static_cast<std::byte*>(message) - kGrhBytes;
    }
    void count(UdCounter counter) { counters_.add(counter); }

    // The data path's.
    std::optional<Node<UdIface>> node_;
    ib::CompletionQueue receive_cq_;
    ib::ReceiveQueue receives_;
    std::size_t datagram_bytes_ = 0;        // the longest, header included
    ucs::ReserveVector<std::byte> joined_;  // a message that came in several, aligned
    unsigned calls_ = 0;
    uct::ProgressGuard guard_;
    bool has_work_ = false;
    bool is_broken_ = false;  // the queue pair
    PeerTable peers_;
    uct::PendingQueue pending_;
    Waiters waiters_;
    ucs::ReserveVector<UdEp*> eps_;
    std::size_t next_flushed_ = 0;  // index of an endpoint
    ucs::ReserveVector<UdEp*> advanced_;
    ucs::ReserveVector<UdEp*> failing_;
    ucs::ReserveVector<UdEp*> destroyed_;
    std::uint64_t next_look_ = 0;
    std::uint64_t next_drain_ = 0;
    ucs::CounterArray<UdCounter> counters_;
};

inline UdIface& UdEp::owner() const {
    return *static_cast<UdIface*>(static_cast<uct::BaseIface*>(iface));
}

}  // namespace tagwire::ud
