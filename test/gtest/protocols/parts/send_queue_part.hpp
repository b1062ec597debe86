// SPDX-License-Identifier: BSD-3-Clause
// A send queue over protocols, a worker and a transport that are fakes, for its tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "protocols/parts/fake_worker.hpp"
#include "protocols/request/rma_op.hpp"
#include "protocols/transfer/send_queue.hpp"
#include "protocols/transfer/transfer.hpp"

namespace tagwire::test {

/// A queue, and protocols that answer what the test has set.
class QueueBench {
  public:
    explicit QueueBench(std::size_t requests_max = 1000) : worker(requests_max) {
        lane.ep = uct.ep();
        lane.over = &rail;
        lane.state = proto::EpState::kReady;
        peer.peer_names = 11;
        rail.attributes().cap.put.max_zcopy = 100;
    }
    ~QueueBench() {
        queue.clear_controls();
        queue.clear_data();
        while (queue.pop() != nullptr)
            continue;
        for (proto::Request* request : all) {
            if (proto::RequestList::is_linked(*request))
                outstanding[proto::index_of(request->stream)].erase(*request);
            proto::end_transfer(*request);
            request->rma = nullptr;
            worker.requests.release(*request);
        }
        EXPECT_EQ(worker.requests.in_use(), 0U);
    }
    QueueBench(const QueueBench&) = delete;
    QueueBench& operator=(const QueueBench&) = delete;

    proto::Request& make(proto::RequestKind kind = proto::RequestKind::kSend,
                         std::uint32_t flags = 0) {
        tw_op_t op{};
        op.flags = flags;
        proto::Request& request = worker.make(kind, buffer, op);
        request.in_call = true;  // it stays until the test has looked at it
        all.push_back(&request);
        return request;
    }
    proto::Request& make_rma(std::uint32_t flags = 0, proto::RmaKind kind = proto::RmaKind::kPut) {
        proto::Request& request = make(proto::RequestKind::kRma, flags);
        proto::RmaWish wish;
        wish.kind = kind;
        request.rma = &ops.emplace_back(wish);
        return request;
    }
    /// A new operation is handed in.
    proto::Request& submit(proto::Request& request) {
        EXPECT_TRUE(queue.submit(request));
        return request;
    }
    proto::Request& send(std::uint32_t flags = 0) {
        return submit(make(proto::RequestKind::kSend, flags));
    }
    /// One that has begun, and has not ended.
    proto::Request& begun(std::uint32_t flags = 0) {
        proto::Request& request = make(proto::RequestKind::kSend, flags);
        answer(request, UCS_INPROGRESS);
        return submit(request);
    }
    void finish(proto::Request& request) {
        outstanding[proto::index_of(request.stream)].erase(request);
        request.is_outstanding = false;
    }
    /// A transfer that the lane is to move.
    proto::Request& transfer(std::size_t bytes) {
        proto::Request& request = make();
        request.buffer.base = moved.data();
        request.buffer.length = bytes;
        request.transfer = new proto::Transfer(request, {worker.port, peer.lane},
                                               [](proto::Request&, ucs_status_t) {});
        request.transfer->is_put = true;
        request.transfer->own.end = bytes;
        return request;
    }
    void answer(const proto::Request& request, ucs_status_t status) { answers[&request] = status; }
    bool has_started(const proto::Request& request) const {
        return std::ranges::find(started, &request) != started.end();
    }
    ucs_status_t end_of(const proto::Request& request) const {
        for (const auto& end : worker.ends)
            if (end.request == &request)
                return end.status;
        return UCS_INPROGRESS;
    }
    /// The transport has room again.
    void give_room() {
        uct.room_for = SIZE_MAX;
        uct.tell_room();
    }

    FakeWorker worker;
    FakeMatchPeer peer{1};
    FakePeer table;
    FakeUct uct;
    FakeRail rail{worker.options};
    proto::LaneState lane;
    proto::SendWindow window{peer.fake.port};
    proto::Outstanding outstanding;
    proto::EpHold hold;
    proto::Closing closing{peer.fake.port, table.port, hold, 1, 2};
    proto::Flushes flushes{{peer.fake.port, table.port, worker.requests, outstanding, closing}};

    std::vector<std::byte> buffer = std::vector<std::byte>(64);
    std::vector<std::byte> moved = std::vector<std::byte>(1024);  // by transfers
    std::deque<proto::RmaOp> ops;
    std::vector<proto::Request*> all, started, begun_calls, steps;
    std::map<const proto::Request*, ucs_status_t> answers;  // of start(); UCS_OK
    std::function<void(proto::Request&)> on_start = [](auto&) {};
    ucs_status_t step_status = UCS_OK;
    bool is_asked = false, may_ask = true, awaits_replies = false;
    unsigned gets = 0, gone_replies = 0;  // gets: pieces that are to be sent
    ucs_status_t get_status = UCS_OK;

  private:
    static QueueBench& of(void* owner) { return *static_cast<QueueBench*>(owner); }
    static const QueueBench& of(const void* owner) {
        return *static_cast<const QueueBench*>(owner);
    }
    ucs_status_t start(proto::Request& request) {
        const auto at = answers.find(&request);
        const ucs_status_t status = at == answers.end() ? UCS_OK : at->second;
        if (status != UCS_ERR_NO_RESOURCE)
            started.push_back(&request);
        on_start(request);
        if (status == UCS_INPROGRESS) {
            request.is_outstanding = true;
            outstanding[proto::index_of(request.stream)].push_back(request);
        }
        return status;
    }
    ucs_status_t step(proto::Request& request) {
        if (step_status != UCS_ERR_NO_RESOURCE) {
            steps.push_back(&request);
            queue.remove(request);
        }
        return step_status;
    }
    ucs_status_t send_get() {
        if (gets == 0)
            return UCS_ERR_NO_ELEM;
        if (get_status == UCS_OK)
            --gets;
        return get_status;
    }

    static const proto::SendCalls kCalls;

  public:
    proto::SendQueue queue{
        {worker.port, peer, table.port, lane, closing, outstanding, window, flushes, this, kCalls}};
};

inline constexpr proto::SendCalls QueueBench::kCalls{
    .start = [](void* self, proto::Request& request) { return of(self).start(request); },
    .begun = [](void* self, proto::Request& request) { of(self).begun_calls.push_back(&request); },
    .step = [](void* self, proto::Request& request) { return of(self).step(request); },
    .is_asked = [](const void* self, const proto::Request&) { return of(self).is_asked; },
    .may_ask = [](const void* self) { return of(self).may_ask; },
    .awaits_replies = [](const void* self) { return of(self).awaits_replies; },
    .send_get = [](void* self) { return of(self).send_get(); },
    .reply_has_gone = [](void* self) { ++of(self).gone_replies; },
};

}  // namespace tagwire::test
