// SPDX-License-Identifier: BSD-3-Clause
// The interface of the transport tcp: ordinary sockets of the kernel, non-blocking, in one epoll
// instance.
//
// Threads: the owner thread of the worker only. Nothing runs in the background.
//
// One call of progress():
//   1. hot connections are read, each by one system call that takes many messages
//   2. epoll tells of the others, of new ones and of room in sockets: in each call where none is
//      hot or more are active than may be, else every kTurnsPerLook calls
//   3. connections with queued messages are written, flushes that are done end, failures are
//      reported, pending sends get their turn
// A connection that had nothing for kEmptyReadsMax calls turns cold, so many idle ones cost one
// system call.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ucs/memory/mpool.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/stats/counters.hpp"
#include "uct/base_iface.hpp"
#include "uct/pending.hpp"
#include "uct/progress_guard.hpp"
#include "uct/tcp/closing.hpp"
#include "uct/tcp/connection.hpp"
#include "uct/tcp/connections.hpp"
#include "uct/tcp/devices.hpp"
#include "uct/tcp/event_set.hpp"
#include "uct/tcp/failures.hpp"
#include "uct/tcp/frames.hpp"
#include "uct/tcp/keepalive.hpp"
#include "uct/tcp/listener.hpp"
#include "uct/tcp/local_peers.hpp"
#include "uct/tcp/ops.hpp"
#include "uct/tcp/options.hpp"
#include "uct/tcp/remote_memory.hpp"
#include "uct/tcp/rendezvous.hpp"
#include "uct/tcp/sender.hpp"
#include "uct/tcp/stream_reader.hpp"
#include "uct/tcp/tag_receives.hpp"
#include "uct/tcp/tcp_md.hpp"

namespace tagwire::tcp {

enum class TcpCounter {
    kDelivered,
    kUnexpected,
    kMatched,
    kNoResource,
    kBlocked,
    kCooled,
    kConnections,
    kCrossed,
    kRefused,
    kViolations,
    kPeerFailures,
    kCount
};
extern const ucs::CounterTable<TcpCounter> kTcpCounterInfos;

class alignas(64) TcpIface : public uct::BaseIface {
  public:
    static ucs_status_t open(TcpMd& md, uct::Worker& worker, const uct_iface_params_t& params,
                             const TcpOptions& options, uct_iface_h* iface_p);
    ~TcpIface() override;

    // ---- UCT operations (make_ops) ----
    ucs_status_t tag_recv_zcopy(uct_tag_t tag, uct_tag_t mask, const uct_iov_t* iov,
                                std::size_t iovcnt, uct_tag_context_t* ctx) {
        return tags.post(tag, mask, iov, iovcnt, ctx);
    }
    ucs_status_t tag_recv_cancel(uct_tag_context_t* ctx, int force) {
        const ucs_status_t status = tags.cancel(*ctx, force != 0);
        has_work_ |= tags.has_cancelled();
        return status;
    }
    ucs_status_t flush(unsigned flags, uct_completion_t* comp);
    ucs_status_t fence(unsigned flags);
    unsigned progress();
    ucs_status_t event_fd_get(int* fd_p);
    ucs_status_t event_arm(unsigned wanted);
    void close();
    ucs_status_t query(uct_iface_attr_t* attr);
    ucs_status_t get_device_address(uct_device_addr_t* addr);
    ucs_status_t get_address(uct_iface_addr_t* addr);

    // ---- for tagwire's own queries ----
    bool reachable(const uct_device_addr_t* dev_addr, const uct_iface_addr_t* iface_addr,
                   std::string* reason) override;
    bool is_on_route(const uct_device_addr_t* dev_addr) override;
    ucs::CounterSet counters() const override { return counters_.set(kTcpCounterInfos); }
    void describe(const uct::DescribeSink& sink) const override;
    void describe_ep(uct_ep_h ep, const uct::DescribeSink& sink) const override;
    uct::PeerWatch* peer_watch() override { return &local_peers_; }

    // ---- for endpoints and parts: progress
    void add_work(Connection& connection);
    /// The connection is not progressed any more.
    void drop_work(Connection& connection);
    void want_work() { has_work_ = true; }
    [[nodiscard]] uct::ProgressGuard& guard() { return guard_; }
    void note_deadline(std::uint64_t at_ns) { deadline_ = std::min(deadline_, at_ns); }
    void set_socket_options(int fd) const;
    void count(TcpCounter counter, std::uint64_t amount = 1) { counters_.add(counter, amount); }

    // ---- for parts
    [[nodiscard]] TcpMd& tcp_md() const { return md_; }
    [[nodiscard]] Registrations& registrations() const { return md_.registrations(); }
    [[nodiscard]] const TcpOptions& options() const { return options_; }
    [[nodiscard]] const Device& device() const { return device_; }
    [[nodiscard]] std::uint16_t port() const { return listener.port(); }
    using BaseIface::invoke_am;
    using BaseIface::invoke_unexpected_eager;
    using BaseIface::invoke_unexpected_rndv;
    using BaseIface::report_failure;

  private:
    static constexpr std::size_t kHotMax = 4;
    static constexpr std::uint8_t kEmptyReadsMax = 250;
    static constexpr unsigned kTurnsPerLook = 64;
    static constexpr unsigned kLooksInARow = 256;
    static constexpr unsigned kTurnsPerClock = 64;
    static constexpr unsigned kPollBudget = 32;
    static constexpr std::size_t kEventsPerLook = 32;
    /// A peer that waits is accepted by the first, and its Hello is read by the second.
    static constexpr unsigned kSweeps = 2;

    TcpIface(TcpMd& md, uct::Worker& worker, const TcpOptions& options);
    ucs_status_t init(const uct_iface_params_t& params);
    ucs_status_t find_device();

    // tcp_progress.cc
    unsigned read_hot();
    unsigned look_after_miss();
    unsigned read(Connection& connection);
    unsigned look();
    unsigned on_event(Connection& connection, std::uint32_t told);
    unsigned work();
    /// Ends rendezvous whose data the kernel has.
    unsigned end_sent();
    void look_at_clock();
    void end_sweep(std::size_t taken);
    void set_timer();
    [[nodiscard]] bool is_pending_blocked() const;
    [[nodiscard]] std::size_t watched() const;

    TcpMd& md_;
    TcpOptions options_;
    Device device_;
    Speed speed_;
    ucs::PrivateFd timer_;
    std::uint64_t turns_ = 0;
    unsigned looks_left_ = 0;              // more connections are active than may be hot
    std::uint64_t deadline_ = UINT64_MAX;  // ns; something is to be looked at then
    std::uint64_t timer_set_ = UINT64_MAX;
    // From a deadline on, until all events that were there then have been taken: late progress ends
    // nobody who was in time.
    bool is_sweeping_ = false;
    unsigned sweeps_left_ = 0;
    std::size_t swept_ = 0;        // events
    std::uint64_t sweep_for_ = 0;  // ns
    bool has_work_ = false;
    uct::ProgressGuard guard_;
    std::array<Connection*, kHotMax> hot_{};
    std::size_t hot_count_ = 0;
    std::size_t next_hot_ = 0;
    bool has_missed_ = false;   // epoll told of a connection that the turn had no frames left for
    bool looks_first_ = false;  // behind the last such turn
    ucs::ReserveVector<Connection*> working_;
    ucs::CounterArray<TcpCounter> counters_;
    LocalPeers local_peers_{*this};

  public:
    // ---- Parts
    EventSet events;
    TxPools pools;
    ucs::Mpool staging;  // of gets by copy
    uct::PendingQueue pending;
    Sender sender{*this};
    OpTable ops{*this};
    StreamReader reader{*this};
    TagReceives tags{*this};
    Rendezvous rendezvous{*this};
    RemoteMemory remote{*this};
    Failures failures{*this};
    Listener listener{*this};
    Keepalive keepalive{*this};
    Connections connections{*this};
    Closing closing{*this};
};

}  // namespace tagwire::tcp
