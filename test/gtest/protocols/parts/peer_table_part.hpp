// SPDX-License-Identifier: BSD-3-Clause
// The table of peers of one worker, with real connectors and closings over rails without wires, and
// two such sides that exchange messages. For its tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "protocols/index/id_table.hpp"
#include "protocols/match/match_table.hpp"
#include "protocols/parts/fake_rail.hpp"
#include "protocols/parts/fake_worker.hpp"
#include "protocols/parts/fakes.hpp"
#include "protocols/request/callback_port.hpp"
#include "protocols/wire/wireup_messages.hpp"
#include "protocols/worker/peer_endpoint.hpp"
#include "protocols/worker/peer_table.hpp"
#include "ucs/log/repeats.hpp"

namespace tagwire::test {

class PeerSide;

/// In place of an endpoint: its lane writes messages down.
struct SideEndpoint : HasFakeLane, proto::PeerEndpoint {
    SideEndpoint(PeerSide& of, std::uint64_t peer, std::uint64_t worker);
    ~SideEndpoint();

    void disconnect();

    PeerSide& side;
    unsigned anew = 0, works = 0;
    std::vector<ucs_status_t> ended_receives;

  private:
    static const proto::PeerCalls kPeerCalls;
    const proto::PeerPort peer_port_{this, kPeerCalls};
    proto::Connector connector_;
};

/// In place of a worker.
class PeerSide {
  public:
    struct Event {
        std::uint64_t worker;
        tw_peer_event_t event;
        tw_status_t status;
        bool operator==(const Event&) const = default;
    };
    struct Failure {
        tw_ep_h ep;
        tw_status_t status;
        bool operator==(const Failure&) const = default;
    };

    /// Messages that had not come in full.
    struct Drop {
        std::uint64_t peer;
        ucs_status_t status;
        bool ends_receives;  // that name the peer, which has no other endpoint
        bool operator==(const Drop&) const = default;
    };

    explicit PeerSide(std::uint64_t own_id, std::size_t requests_max = 1000)
        : id(own_id), worker(requests_max) {
        WirelessSettings tcp;
        tcp.address = static_cast<std::uint8_t>(own_id);
        wireless.add(tcp);
        worker.options.unasked_peers_max = 1000;
        worker.options.unexpected_bytes = 1 << 20;
        worker.options.envelopes_max = 1000;
        events.reserve(8);
        failed.reserve(8);
        drops.reserve(32);
    }
    PeerSide(const PeerSide&) = delete;
    PeerSide& operator=(const PeerSide&) = delete;
    ~PeerSide() { clear(); }

    void clear() {
        table.clear();
        EXPECT_EQ(wireless.eps(), 0U);
        EXPECT_TRUE(live.empty());
    }

    static SideEndpoint& of(proto::PeerEndpoint& ep) { return static_cast<SideEndpoint&>(ep); }
    /// nullptr: none.
    SideEndpoint* to(std::uint64_t peer_id) const {
        return static_cast<SideEndpoint*>(table.endpoint_to(peer_id));
    }
    proto::Address address() const {
        const proto::Rail& rail = *wireless.rails[0];
        return {id,
                {{rail.transport(),
                  {rail.device_address().begin(), rail.device_address().end()},
                  {rail.iface_address().begin(), rail.iface_address().end()}}}};
    }
    ucs_status_t connect(const PeerSide& other) {
        proto::PeerEndpoint* ep = nullptr;
        const ucs_status_t status = table.connect(other.address(), 0, nullptr, &ep);
        EXPECT_EQ(ep != nullptr, status == UCS_OK);
        return status;
    }
    /// The program closes its endpoint, and nothing was under way.
    static void close(SideEndpoint& ep) {
        ep.closing().begin();
        ep.closing().closed();
    }
    /// A call of progress, in the order of a worker's.
    void progress() {
        for (SideEndpoint* const ep : live)
            ep->fake.arrived = ep->fake.sent.empty() ? UCS_OK : UCS_INPROGRESS;
        worker.attention.begin_progress();
        if (worker.attention.has_slow_work()) {
            worker.attention.take_slow_work();
            table.fail_lanes();
            worker.requests.tell_ends();
            table.run_notices();
            table.run_wireup();
            table.end_connections();
            table.destroy_arrived();
            table.destroy_retired();
        }
        worker.attention.end_progress();
    }
    /// As a worker takes a wire-up message. False: the message is dropped.
    bool on_wireup(proto::WireBytes bytes) {
        proto::Wireup wireup;
        proto::WireBytes behind;
        if (!decode(bytes, &wireup, &behind) || wireup.to != id)
            return false;
        if (static_cast<proto::WireupOp>(wireup.op) != proto::WireupOp::kHello)
            return false;  // these rails need no offers
        proto::HelloMessage hello;
        return decode(behind, &hello) && table.on_hello(wireup.from, std::move(hello));
    }
    /// As an endpoint takes a control message.
    void on_control(SideEndpoint& ep, const proto::Control& message) {
        switch (message.operation()) {
            case proto::ControlOp::kBye:
                return ep.closing().on_bye();
            case proto::ControlOp::kBack:
                return ep.closing().on_back();
            case proto::ControlOp::kLeave:
                return ep.closing().on_leave();
            case proto::ControlOp::kLeft:
                return ep.closing().on_left(message.as<proto::Left>().is_gone != 0);
            case proto::ControlOp::kReset:
                return table.connection_is_over(ep, message.as<proto::Reset>().connection,
                                                message.as<proto::Reset>().is_in_order == 1
                                                    ? UCS_ERR_NOT_CONNECTED
                                                    : UCS_ERR_CONNECTION_RESET);
            default:
                return;
        }
    }
    void fail(SideEndpoint& ep, ucs_status_t status) {
        table.detach(ep);
        ep.disconnect();
        table.release_id(ep);
        table.report_failure(ep, status);
    }
    tw_worker_params_t reports() {
        tw_worker_params_t told{};
        told.ep_failed = [](void* side, tw_ep_h ep, tw_status_t status) {
            static_cast<PeerSide*>(side)->failed.push_back({ep, status});
        };
        told.ep_failed_arg = this;
        told.peer_event = [](void* side, std::uint64_t from, tw_peer_event_t event,
                             tw_status_t status) {
            static_cast<PeerSide*>(side)->events.push_back({from, event, status});
        };
        told.peer_event_arg = this;
        return told;
    }

    const std::uint64_t id;
    WirelessRails wireless;
    FakeWorker worker;
    bool has_ids = true;
    bool is_tx_context = false;
    ucs_status_t contexts = UCS_OK;  // of open_contexts()
    std::vector<Event> events;
    std::vector<Failure> failed;
    std::vector<Drop> drops;
    std::vector<ucs_status_t> fronts_failed;
    std::set<SideEndpoint*> live;
    proto::IdTable<SideEndpoint> ids;
    ucs::Repeats refusals;
    const proto::WireupWorld world{.id = id,
                                   .rails = wireless.rails,
                                   .options = wireless.options,
                                   .counters = worker.counters,
                                   .refusals = refusals,
                                   .tx = {},
                                   .owner = this,
                                   .may_greet = [](void*) { return true; }};
    const tw_worker_params_t params = reports();
    const proto::CallbackPort callbacks{.attention = worker.attention,
                                        .is_multi = false,
                                        .owner = this,
                                        .leave = nullptr,
                                        .enter_again = nullptr};
    proto::MatchTable matches{
        {.counters = worker.counters,
         .peers = ids,
         .is_multi = false,
         .owner = this,
         .visit_peers = [](void*, proto::MatchTable&,
                           void (*)(proto::MatchTable&, proto::MatchPeer&)) {},
         .release = nullptr},
        worker.options};
    proto::PeerTable table{{.id = id,
                            .options = worker.options,
                            .attention = worker.attention,
                            .requests = worker.requests,
                            .matches = matches,
                            .callbacks = callbacks,
                            .params = params,
                            .owner = this,
                            .calls = kCalls}};

  private:
    static PeerSide& of(void* owner) { return *static_cast<PeerSide*>(owner); }

    static const proto::PeerTableCalls kCalls;
};

// ---- The endpoint

inline SideEndpoint::SideEndpoint(PeerSide& of, std::uint64_t peer, std::uint64_t worker)
    : PeerEndpoint({of.id, peer, worker}, fake.port, peer_port_, connector_),
      side(of),
      connector_({*this, peer, peer_port_, of.world}) {
    fake.state = proto::EpState::kConnecting;
    fake.on_fail = [this](ucs_status_t status) { side.fail(*this, status); };
    fake.on_ready = [this] { side.table.tell_up(*this); };
    fake.failures.reserve(4);
    ended_receives.reserve(4);
    side.live.insert(this);
}

inline SideEndpoint::~SideEndpoint() {
    disconnect();
    side.live.erase(this);
}

inline void SideEndpoint::disconnect() {
    if (const uct_ep_h old = std::exchange(fake.made, nullptr)) {
        connector().forget(old);
        connector().destroy_ep(old);
    }
    connector().disconnect();
}

namespace peer_side {

inline SideEndpoint& endpoint(void* owner) {
    return *static_cast<SideEndpoint*>(owner);
}
inline proto::PeerTable& table(void* owner) {
    return endpoint(owner).side.table;
}

}  // namespace peer_side

inline constexpr proto::PeerCalls SideEndpoint::kPeerCalls{
    .asked = [](void* ep) { peer_side::table(ep).asked(peer_side::endpoint(ep)); },
    .retire = [](void* ep) { peer_side::table(ep).retire(peer_side::endpoint(ep)); },
    .linger =
        [](void* ep) {
            SideEndpoint& self = peer_side::endpoint(ep);
            const uct_ep_h lane = std::exchange(self.fake.made, nullptr);
            self.connector().forget(lane);
            self.side.table.map_lane(lane, nullptr);
            self.side.table.linger(lane);
        },
    .reconnect = [](void* ep) { peer_side::table(ep).reconnect(peer_side::endpoint(ep)); },
    .tell_anew = [](void* ep) { peer_side::table(ep).tell_anew(peer_side::endpoint(ep)); },
    .tell_event =
        [](void* ep, tw_peer_event_t event) {
            peer_side::table(ep).tell_event(peer_side::endpoint(ep), event);
        },
    .tell_end =
        [](void* ep, ucs_status_t status) {
            peer_side::table(ep).tell_end(peer_side::endpoint(ep), status);
        },
    .release_contexts = [](void*) {},
    .flush_contexts = [](void*, bool, tw_flush_level_t, bool) { return TW_OK; },
    .awaits_contexts = [](const void*) { return false; },
    .map_lane =
        [](void* ep, uct_ep_h lane, bool is_made) {
            peer_side::table(ep).map_lane(lane, is_made ? &peer_side::endpoint(ep) : nullptr);
        },
    .ask_wireup = [](void* ep) { peer_side::table(ep).ask_wireup(peer_side::endpoint(ep)); },
    .next_connection = [](void* ep) { return peer_side::table(ep).next_connection(); },
    .retired_id =
        [](void* ep) {
            return peer_side::table(ep).retired_id_of(peer_side::endpoint(ep).peer_id);
        },
};

inline constexpr proto::PeerTableCalls PeerSide::kCalls{
    .make = [](void* side, std::uint64_t peer, std::uint64_t of_worker) -> proto::PeerEndpoint* {
        try {
            return new SideEndpoint(of(side), peer, of_worker);
        } catch (const std::bad_alloc&) {
            return new SideEndpoint(of(side), peer, of_worker);  // the reserve has it
        }
    },
    .destroy = [](proto::PeerEndpoint& ep) { delete &of(ep); },
    .add_id =
        [](void* side, proto::PeerEndpoint& ep) {
            return of(side).has_ids ? of(side).ids.add(of(ep)) : 0U;
        },
    .release_id =
        [](void* side, proto::PeerEndpoint& ep) {
            if (of(side).ids.find(ep.id) == &ep)
                of(side).ids.remove(ep.id);
        },
    .begin_anew =
        [](proto::PeerEndpoint& ep) {
            SideEndpoint& self = of(ep);
            ++self.anew;
            self.disconnect();
            self.fake.state = proto::EpState::kConnecting;
            self.fake.sent.clear();
            self.closing().begin_anew();
            self.connector().begin_anew();
        },
    .work =
        [](proto::PeerEndpoint& ep) {
            ++of(ep).works;
            return ep.connector().work();
        },
    .stripe_failed = [](proto::PeerEndpoint&, uct_ep_h, ucs_status_t) { return false; },
    .drop_incoming =
        [](void* side, proto::PeerEndpoint& ep, ucs_status_t status, bool is_last) {
            of(side).drops.push_back({ep.peer_id, status, is_last});
        },
    .end_receives = [](void*, proto::PeerEndpoint& ep,
                       ucs_status_t status) { of(ep).ended_receives.push_back(status); },
    .open_contexts = [](void* side, proto::PeerEndpoint&, unsigned) { return of(side).contexts; },
    .fail_front =
        [](void* side, proto::PeerEndpoint&, ucs_status_t status) {
            if (of(side).is_tx_context)
                of(side).fronts_failed.push_back(status);
            return of(side).is_tx_context;
        },
};

/// A hello of a worker of that number, as its connector would say it.
inline proto::HelloMessage hello_of(std::uint8_t peer, std::uint32_t id, std::uint32_t number = 1) {
    proto::HelloMessage message{};
    message.hello.id = id;
    message.hello.number = number;
    message.hello.from_rail = 1;
    message.hello.rails = 1;
    message.rails.push_back({"tcp", 0, 0, {std::byte{peer}}, {std::byte{peer}}});
    return message;
}

/// Two workers and what is on its way between them.
class PeerTablePart : public testing::Test {
  protected:
    PeerSide& other(const PeerSide& side) { return &side == &ours_ ? theirs_ : ours_; }

    /// Delivers the oldest wire-up message or control message of that side. False: there is none.
    bool deliver_of(PeerSide& from) {
        PeerSide& to = other(from);
        auto& hellos = from.wireless.iface(0).sent;
        if (!hellos.empty()) {
            const std::vector<std::byte> bytes = std::move(hellos.front().bytes);
            hellos.pop_front();
            to.on_wireup(bytes);
            return true;
        }
        for (SideEndpoint* const ep : from.live) {
            Sent& sent = ep->fake.sent;
            if (sent.empty())
                continue;
            const proto::Control message = sent.pop();
            // By the id that the peer gave: that of a connection which is over finds nobody.
            if (SideEndpoint* const at = to.ids.find(ep->peer_names))
                to.on_control(*at, message);
            return true;
        }
        return false;
    }
    void settle() {
        for (unsigned quiet = 0; quiet < 70;) {
            bool moved = false;
            for (PeerSide* const side : {&ours_, &theirs_}) {
                side->progress();
                moved |= deliver_of(*side);
            }
            quiet = moved ? 0 : quiet + 1;
        }
    }
    /// Both programs have the endpoint.
    void connect_both() {
        EXPECT_EQ(ours_.connect(theirs_), UCS_OK);
        settle();
        EXPECT_EQ(theirs_.connect(ours_), UCS_OK);
        settle();
        ASSERT_TRUE(is_connected());
        ours_.events.clear();
        theirs_.events.clear();
    }
    bool is_connected() const {
        const SideEndpoint* const near = ours_.to(kTheirs);
        const SideEndpoint* const far = theirs_.to(kOurs);
        return near != nullptr && far != nullptr && near->fake.state == proto::EpState::kReady &&
               far->fake.state == proto::EpState::kReady && near->peer_names == far->id &&
               far->peer_names == near->id;
    }
    bool hear(const proto::HelloMessage& message, std::uint64_t from = kTheirs) {
        return ours_.table.on_hello(from, message);
    }

    static constexpr std::uint64_t kOurs = 1, kTheirs = 2;
    PeerSide ours_{kOurs};
    PeerSide theirs_{kTheirs};
};

}  // namespace tagwire::test
