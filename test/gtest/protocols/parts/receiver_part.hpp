// SPDX-License-Identifier: BSD-3-Clause
// The receiver with real tables of messages and requests, and peers and a worker that are fakes,
// for its tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "protocols/eager/receiver.hpp"
#include "protocols/match/arrival.hpp"
#include "protocols/parts/fake_worker.hpp"
#include "protocols/parts/match_table_part.hpp"
#include "protocols/parts/request_part.hpp"
#include "protocols/wire/control_message.hpp"

namespace tagwire::test {

class ReceiverPart : public MatchTablePart {
  protected:
    static constexpr std::uint64_t kExact = UINT64_MAX;
    static constexpr std::size_t kRoom = 4096;  // bytes of most buffers

    /// A peer that is connected. It goes when the library ends it, as an endpoint does.
    FakeMatchPeer& add_peer() {
        FakeMatchPeer& peer = MatchTablePart::add_peer();
        peer.fake.on_end = [this, &peer] { drop(peer, peer.fake.failures.back()); };
        return peer;
    }
    /// The connection has failed, and no other takes its place.
    void fail(FakeMatchPeer& peer, ucs_status_t status = UCS_ERR_CONNECTION_RESET) {
        peer.fake.state = proto::EpState::kFailed;
        peer.fake.failures.push_back(status);
        drop(peer, status);
    }

    /// The buffers are the test's, and live as long.
    std::vector<std::byte>& buffer(std::size_t bytes = kRoom) {
        buffers_.push_back(std::make_unique<std::vector<std::byte>>(bytes));
        return *buffers_.back();
    }
    proto::Incoming tagged(std::uint64_t tag, const tw_op_t& op, std::uint64_t mask = kExact,
                           std::size_t bytes = kRoom) {
        return {buffer(bytes).data(), bytes, nullptr, 0, tag, mask, true, &op, nullptr};
    }
    /// Ends are told to `told_`; TW_OP_COMPLETION: also of a call that ends.
    tw_op_t op(std::uint32_t flags = 0) {
        tw_op_t op{};
        op.flags = flags;
        op.complete = [](const tw_completion_t* done) {
            static_cast<std::vector<tw_completion_t>*>(done->context)->push_back(*done);
        };
        op.context = &told_;
        op.info = &info_;
        return op;
    }
    tw_op_t op_from(FakeMatchPeer& peer) {
        tw_op_t from = op();
        from.source = &peer;
        return from;
    }
    tw_status_t receive(std::uint64_t tag, std::uint32_t flags = 0, std::uint64_t mask = kExact,
                        std::size_t bytes = kRoom) {
        return note(receiver_.receive(tagged(tag, op(flags), mask, bytes)), bytes);
    }
    tw_status_t receive(std::uint64_t tag, const tw_op_t& how) {
        return note(receiver_.receive(tagged(tag, how)), kRoom);
    }
    /// A receive of any untagged message, of one of the kinds of receives.
    tw_status_t receive_untagged(std::uint32_t kind = 0, std::size_t bytes = kRoom) {
        const tw_op_t how = op();
        proto::Incoming wanted{buffer(bytes).data(), bytes, nullptr, 0, 0, 0, false, &how, nullptr};
        wanted.kind = kind;
        return note(receiver_.receive(wanted), bytes);
    }
    tw_status_t receive_message(proto::Unexpected* message, std::size_t bytes = kRoom) {
        const tw_op_t how = op();
        proto::Incoming wanted{buffer(bytes).data(), bytes, nullptr, 0, 0, 0, false, &how, nullptr};
        wanted.message = message;
        return note(receiver_.receive(wanted), bytes);
    }
    tw_status_t probe(std::uint64_t tag, std::uint64_t mask = kExact) {
        const proto::Unexpected* found = receiver_.probe(true, tag, mask, nullptr);
        if (found == nullptr)
            return TW_ERR_NO_MESSAGE;
        info_ = proto::Receiver::info_of(*found);
        return note(TW_OK, info_.length);
    }
    /// The program has the message. nullptr: there is none.
    proto::Unexpected* take(std::uint64_t tag, std::uint64_t mask = kExact, bool is_tagged = true) {
        proto::Unexpected* found = receiver_.probe(is_tagged, tag, mask, nullptr);
        if (found != nullptr)
            receiver_.claim(*found);
        return found;
    }
    void drop_all() {
        for (const bool is_tagged : {true, false})
            while (proto::Unexpected* message = take(0, 0, is_tagged))
                EXPECT_TRUE(table_.drop(message));
    }
    void send(FakeMatchPeer& peer, const proto::Arrival& arrival) {
        receiver_.arrive_unmatched(peer, arrival);
    }
    /// All of it is here.
    void send(FakeMatchPeer& peer, std::uint64_t tag, std::size_t bytes = kTableData) {
        send(peer, eager(tag, bytes, bytes));
    }
    proto::Arrival untagged(std::size_t here, std::size_t length) {
        proto::Arrival arrival = eager(0, here, length);
        arrival.flags = 0;
        return arrival;
    }
    proto::Arrival with_acks(proto::Arrival arrival, std::uint32_t acks) {
        arrival.flags |= acks;
        arrival.send_id = kSendId;
        return arrival;
    }
    proto::Arrival rendezvous(std::uint64_t tag, std::size_t length) {
        proto::Arrival arrival = eager(tag, kKeys, length);
        arrival.is_rndv = true;
        arrival.send_id = arrival.rts.send_id = kSendId;
        arrival.rts.length = length;
        return arrival;
    }
    bool part(FakeMatchPeer& peer, std::size_t bytes) {
        const std::vector<std::byte> data(bytes, std::byte{0x33});
        return receiver_.take_part(peer, data);
    }
    /// The rest of a message of which the first half is here.
    void send_rest(FakeMatchPeer& peer) {
        EXPECT_TRUE(part(peer, peer.incoming.length - peer.incoming.bytes));
    }

    /// A call has told of its message in info_; done_ has that as a completion.
    tw_status_t note(tw_status_t status, std::size_t room) {
        if (status != TW_OK && status != TW_ERR_MESSAGE_TRUNCATED)
            return status;
        done_ = {};
        done_.status = status;
        done_.flags = info_.flags;
        done_.tag = info_.tag;
        done_.message_length = info_.length;
        done_.length = std::min(info_.length, room);
        done_.imm = info_.imm;
        done_.source = info_.source;
        done_.ep = info_.ep;
        return status;
    }
    /// Ends that were not told before, oldest first.
    std::vector<tw_completion_t> told() {
        worker_.table.tell_ends();
        return std::exchange(told_, {});
    }
    /// The status of the one end that there is; TW_INPROGRESS: there is another number of them.
    tw_status_t told_one() {
        const auto ends = told();
        if (!ends.empty())
            done_ = ends[0];
        return ends.size() == 1 ? ends[0].status : TW_INPROGRESS;
    }

    /// A rendezvous has ended.
    void end_rndv(proto::Request& request, ucs_status_t status, std::size_t bytes) {
        request.done.length = bytes;
        finish(request, status);
    }

    struct Rndv {
        proto::Request* request;
        proto::MatchPeer* from;
        std::size_t keys;
    };

    static constexpr std::uint32_t kSendId = 9;
    static constexpr std::size_t kKeys = 20;  // bytes

    FakeRequestWorker worker_;
    std::vector<proto::Request*> outstanding_, posted_, unposted_;
    std::vector<Rndv> rndv_;
    std::vector<proto::Unexpected*> am_;
    unsigned learnt_ = 0;
    tw_worker_limits_t limits_{
        .multi_recv_bytes_min = 512, .buffered_bytes_limit = 8192, .buffered_bytes_min = 1024};
    std::vector<tw_completion_t> told_;
    tw_message_info_t info_{};
    tw_completion_t done_{};  // of a call that has ended, or the last that was told
    std::vector<std::unique_ptr<std::vector<std::byte>>> buffers_;

  private:
    static ReceiverPart& of(void* owner) { return *static_cast<ReceiverPart*>(owner); }

    void drop(FakeMatchPeer& peer, ucs_status_t status) {
        if (peers_.find(peer.id) != &peer)
            return;
        receiver_.drop_incoming(peer, status, true);
        std::erase_if(rndv_, [&](const Rndv& one) { return one.from == &peer; });
        peers_.remove(peer.id);
        const auto all = outstanding_;
        for (proto::Request* request : all)
            if (request->ep == as_endpoint(peer))
                finish(*request, status);
    }
    /// As WorkerCore::finish().
    void finish(proto::Request& request, ucs_status_t status) {
        if (!request.is_whole)
            request.make_whole();
        std::erase(outstanding_, &request);
        request.is_outstanding = false;
        for (const auto& peer : all_)
            if (peer->incoming.request == &request)
                peer->incoming.request = nullptr;
        proto::Request* const parent = request.parent;
        worker_.finish(request, status);
        if (parent != nullptr && --parent->children == 0 && parent->closing != UCS_INPROGRESS)
            finish(*parent, parent->closing);
    }

    static const proto::WorkerCalls kWorkerCalls;
    static const proto::ReceiverCalls kCalls;

  protected:
    const proto::WorkerPort port_{this,          kWorkerCalls,      counters_, options_,
                                  worker_.table, worker_.attention, false};
    proto::Receiver receiver_{{port_, table_, worker_.attention, limits_, this, kCalls}};

    /// No receive of the test is posted or outstanding any more.
    void TearDown() override {
        for (const auto& peer : all_)
            fail(*peer);
        told();
        EXPECT_TRUE(outstanding_.empty());
        MatchTablePart::TearDown();
        for (proto::Request* receive : std::exchange(released_, {}))
            worker_.table.release(*receive);
        worker_.table.clear();
        EXPECT_EQ(worker_.table.in_use(), 0U);
    }
};

inline constexpr proto::WorkerCalls ReceiverPart::kWorkerCalls{
    .set_outstanding =
        [](void* test, proto::Request& request, proto::MatchPeer& peer) {
            request.ep = as_endpoint(static_cast<FakeMatchPeer&>(peer));
            request.is_outstanding = true;
            of(test).outstanding_.push_back(&request);
        },
    .finish = [](void* test, proto::Request& request,
                 ucs_status_t status) { of(test).finish(request, status); },
    .cache_region = nullptr,
    .arrivals = nullptr,
    .drained = nullptr,
};

inline constexpr proto::ReceiverCalls ReceiverPart::kCalls{
    .begin_rndv =
        [](void* test, proto::Request& request, proto::MatchPeer& from, const proto::Rts& rts,
           std::span<const std::byte> keys) {
            request.wanted = std::min<std::uint64_t>(rts.length, request.buffer.length);
            request.ep = as_endpoint(static_cast<FakeMatchPeer&>(from));
            request.is_outstanding = true;
            of(test).outstanding_.push_back(&request);
            of(test).rndv_.push_back({&request, &from, keys.size()});
        },
    .learn = [](void* test, proto::MatchPeer&, std::size_t,
                const proto::Timing&) { ++of(test).learnt_; },
    .complete_am = [](void* test, proto::Unexpected& message) { of(test).am_.push_back(&message); },
    .posted = [](void* test, proto::Request& request) { of(test).posted_.push_back(&request); },
    .unposted = [](void* test, proto::Request& request) { of(test).unposted_.push_back(&request); },
};

}  // namespace tagwire::test
