// SPDX-License-Identifier: BSD-3-Clause
// Fakes in place of the endpoint and worker of a part of the messaging layer that is tested alone:
// they write down what the part asks for, and answer what the test has set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <span>
#include <vector>

#include "protocols/match/match_peer.hpp"
#include "protocols/port/lane_port.hpp"
#include "protocols/port/peer_port.hpp"

namespace tagwire::test {

/// Messages that a part has sent, oldest first.
class Sent {
  public:
    void add(const proto::Control& message) { messages_.push_back(message); }
    bool empty() const { return messages_.empty(); }
    std::size_t size() const { return messages_.size(); }
    /// The number of those with that body.
    template <class Body>
    std::size_t count() const {
        return static_cast<std::size_t>(std::ranges::count_if(
            messages_,
            [](const proto::Control& message) { return message.operation() == Body::kOp; }));
    }
    proto::Control back() const { return messages_.back(); }
    proto::Control pop() {
        const proto::Control oldest = messages_.front();
        messages_.pop_front();
        return oldest;
    }
    const std::deque<proto::Control>& all() const { return messages_; }
    void clear() { messages_.clear(); }

  private:
    std::deque<proto::Control> messages_;
};

/// In place of an endpoint, for LanePort. A lane that has failed sends nothing.
struct FakeLane {
    FakeLane() = default;
    FakeLane(const FakeLane&) = delete;
    FakeLane& operator=(const FakeLane&) = delete;

    proto::EpState state = proto::EpState::kReady;
    bool is_quiet = true;
    bool has_waiting = false;
    bool is_free = true;
    ucs_status_t room = UCS_OK;     // of send_now()
    ucs_status_t arrived = UCS_OK;  // of flush()
    ucs_status_t left = UCS_OK;     // of flush_sent()
    bool has_controls = false;
    unsigned sent_flushes = 0;
    std::vector<uct_completion_t*> transmissions;  // that have not ended

    Sent sent, added;
    unsigned opened = 0, runs = 0, stalls = 0, flushes = 0;
    std::vector<ucs_status_t> failures;
    std::function<void()> on_update = [] {}, on_end = [] {}, on_ready = [] {};
    std::function<void(ucs_status_t)> on_fail = [](auto) {};
    std::vector<proto::Request*> adopted, pushed;
    uct_ep_h made = nullptr;  // by set_ready()
    proto::Rail* rail = nullptr;
    std::uint8_t peer_rail = 0;
    unsigned readies = 0;
    std::uint64_t eager_max = 0;
    tw_ep_h other_handle = nullptr;  // that the program has in place of this endpoint
    std::function<void(proto::Request&, ucs_status_t)> on_finish = [](auto&, auto) {};
    // Requests that were queued, left the queue, begin a transfer, are to be canceled.
    std::vector<proto::Request*> data, removed, transfers, canceled;
    std::vector<proto::Request*> submitted;  // operations that wait for their turn
    bool may_submit = true;
    unsigned sending = 0, written = 0, ended = 0;
    unsigned wanted = 0;  // keys that the packed one may lack
    std::function<ucs_status_t(proto::Request&)> on_placeholder = [](auto&) { return UCS_OK; };

    const proto::LanePort port{this, kCalls};
    static constexpr std::uint32_t kConnection = 7;

  private:
    static FakeLane& of(void* owner) { return *static_cast<FakeLane*>(owner); }
    static const FakeLane& of(const void* owner) { return *static_cast<const FakeLane*>(owner); }

    void add(Sent& to, const proto::Control& message) const {
        if (state != proto::EpState::kFailed)
            to.add(message);
    }
    ucs_status_t send_now(const proto::Control& message) {
        if (room == UCS_OK)
            sent.add(message);
        return room;
    }
    void set_ready(uct_ep_h to, proto::Rail& over, std::uint8_t of_peer) {
        state = proto::EpState::kReady;
        made = to;
        rail = &over;
        peer_rail = of_peer;
        ++readies;
        on_ready();
    }
    void fail(ucs_status_t status) {
        if (state == proto::EpState::kFailed)
            return;
        state = proto::EpState::kFailed;
        failures.push_back(status);
        on_fail(status);
    }

    static const proto::LaneCalls kCalls;
};

inline constexpr proto::LaneCalls FakeLane::kCalls{
    .control = [](void* lane,
                  const proto::Control& message) { of(lane).add(of(lane).sent, message); },
    .add_control = [](void* lane,
                      const proto::Control& message) { of(lane).add(of(lane).added, message); },
    .send_now = [](void* lane,
                   const proto::Control& message) { return of(lane).send_now(message); },
    .run = [](void* lane) { ++of(lane).runs; },
    .stall = [](void* lane) { ++of(lane).stalls; },
    .state = [](const void* lane) { return of(lane).state; },
    .is_quiet = [](const void* lane) { return of(lane).is_quiet; },
    .has_waiting = [](const void* lane) { return of(lane).has_waiting; },
    .is_free = [](const void* lane) { return of(lane).is_free; },
    .flush =
        [](void* lane) {
            ++of(lane).flushes;
            return of(lane).arrived;
        },
    .flush_sent =
        [](void* lane, uct_completion_t* done) {
            ++of(lane).sent_flushes;
            if (of(lane).left == UCS_INPROGRESS && done != nullptr)
                of(lane).transmissions.push_back(done);
            return of(lane).left;
        },
    .has_operations = [](const void* lane) { return of(lane).has_waiting; },
    .has_controls = [](const void* lane) { return of(lane).has_controls; },
    .connection = [](const void*) { return kConnection; },
    .opened = [](void* lane) { ++of(lane).opened; },
    .update_direct = [](void* lane) { of(lane).on_update(); },
    .fail = [](void* lane, ucs_status_t status) { of(lane).fail(status); },
    .end =
        [](void* lane, ucs_status_t status) {
            of(lane).fail(status);
            of(lane).on_end();
        },
    .failure =
        [](const void* lane) {
            return of(lane).failures.empty() ? UCS_OK : of(lane).failures.back();
        },
    .adopt = [](void* lane, proto::Request& request) { of(lane).adopted.push_back(&request); },
    .push = [](void* lane, proto::Request& request) { of(lane).pushed.push_back(&request); },
    .finish = [](void* lane, proto::Request& request,
                 ucs_status_t status) { of(lane).on_finish(request, status); },
    .add_data = [](void* lane, proto::Request& request) { of(lane).data.push_back(&request); },
    .remove = [](void* lane, proto::Request& request) { of(lane).removed.push_back(&request); },
    .begin_transfer = [](void* lane, proto::Request& request, std::span<const std::byte>,
                         bool) { of(lane).transfers.push_back(&request); },
    .send_placeholder = [](void* lane,
                           proto::Request& request) { return of(lane).on_placeholder(request); },
    .cancel = [](void* lane, proto::Request& request) { of(lane).canceled.push_back(&request); },
    .note_sending = [](void* lane) { ++of(lane).sending; },
    .write_out = [](void* lane, const tw_op_t*) { ++of(lane).written; },
    .submit =
        [](void* lane, proto::Request& request) {
            if (of(lane).may_submit)
                of(lane).submitted.push_back(&request);
            return of(lane).may_submit;
        },
    .push_data = [](void* lane, proto::Request& request) { of(lane).data.push_back(&request); },
    .request_ended = [](void* lane) { ++of(lane).ended; },
    .set_ready = [](void* lane, uct_ep_h to, proto::Rail& over,
                    std::uint8_t at_peer) { of(lane).set_ready(to, over, at_peer); },
    .lane = [](const void* lane) { return of(lane).made; },
    .set_eager_max = [](void* lane, std::uint64_t bytes) { of(lane).eager_max = bytes; },
    .handle = [](void* lane) { return of(lane).other_handle; },
    .want_keys = [](void* lane, proto::RemoteKey&) { ++of(lane).wanted; },
};

struct HasFakeLane {
    FakeLane fake;
};

/// In place of an endpoint, as messages name it.
struct FakeMatchPeer : HasFakeLane, proto::MatchPeer {
    explicit FakeMatchPeer(std::uint64_t worker) : MatchPeer(fake.port, worker) {
        source = static_cast<std::uint32_t>(worker);
    }
};

/// In place of an endpoint, for PeerPort.
struct FakePeer {
    FakePeer() = default;
    FakePeer(const FakePeer&) = delete;
    FakePeer& operator=(const FakePeer&) = delete;

    unsigned asked = 0, lingers = 0, reconnects = 0, told_anew = 0, released = 0;
    bool is_retired = false;  // progress asks for leave()
    unsigned context_flushes = 0, context_closes = 0;
    tw_status_t contexts = TW_OK;  // of flush_contexts()
    bool awaits_contexts = false;
    std::set<uct_ep_h> lanes;
    bool wants_wireup = false;  // progress asks for work()
    std::uint32_t connections = 0, retired_id = 0;
    std::vector<tw_peer_event_t> events;
    std::vector<ucs_status_t> ends;

    const proto::PeerPort port{this, kCalls};

  private:
    static FakePeer& of(void* owner) { return *static_cast<FakePeer*>(owner); }

    static const proto::PeerCalls kCalls;
};

inline constexpr proto::PeerCalls FakePeer::kCalls{
    .asked = [](void* peer) { ++of(peer).asked; },
    .retire = [](void* peer) { of(peer).is_retired = true; },
    .linger = [](void* peer) { ++of(peer).lingers; },
    .reconnect = [](void* peer) { ++of(peer).reconnects; },
    .tell_anew = [](void* peer) { ++of(peer).told_anew; },
    .tell_event = [](void* peer, tw_peer_event_t event) { of(peer).events.push_back(event); },
    .tell_end = [](void* peer, ucs_status_t status) { of(peer).ends.push_back(status); },
    .release_contexts = [](void* peer) { ++of(peer).released; },
    .flush_contexts =
        [](void* peer, bool closes, tw_flush_level_t, bool) {
            ++(closes ? of(peer).context_closes : of(peer).context_flushes);
            return of(peer).contexts;
        },
    .awaits_contexts =
        [](const void* peer) { return static_cast<const FakePeer*>(peer)->awaits_contexts; },
    .map_lane =
        [](void* peer, uct_ep_h lane, bool is_made) {
            is_made ? void(of(peer).lanes.insert(lane)) : void(of(peer).lanes.erase(lane));
        },
    .ask_wireup = [](void* peer) { of(peer).wants_wireup = true; },
    .next_connection = [](void* peer) { return ++of(peer).connections; },
    .retired_id = [](void* peer) { return of(peer).retired_id; },
};

}  // namespace tagwire::test
