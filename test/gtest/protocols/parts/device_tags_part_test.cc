// SPDX-License-Identifier: BSD-3-Clause
// Receives that a device matches, alone: which are given to it, what comes back, in every order,
// and a device and peers that say anything.
#include "protocols/offload/device_tags.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/nomem.hpp"
#include "common/seeds.hpp"
#include "protocols/match/arrival.hpp"
#include "protocols/parts/fake_worker.hpp"
#include "protocols/request/context.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/wire/eager_header.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::test {
namespace {

using proto::Arrival;
using proto::MatchPeer;
using proto::Placeholder;
using proto::Request;
using proto::TagImm;
using proto::WorkerCounter;

/// In place of the rest of a worker.
struct FakeDeviceOwner {
    proto::IdTable<FakeMatchPeer> peers;
    struct Arrived {
        MatchPeer* from;
        std::uint64_t tag;
        std::vector<std::byte> bytes;
        Request* request;
        bool is_in_place = false;
    };
    std::vector<Arrived> arrived;
    std::vector<Request*> places;  // of messages that were announced; null: matched by software
    bool has_announced = true;
    unsigned garbage = 0, from_unknown = 0;

    static const proto::DeviceTagCalls kDeviceCalls;

  private:
    static FakeDeviceOwner& of(void* owner) { return *static_cast<FakeDeviceOwner*>(owner); }
    void arrive(MatchPeer& from, const Arrival& arrival, Request* request, bool is_in_place) {
        Arrived one{&from, arrival.tag, {}, request, is_in_place};
        if (!is_in_place)
            one.bytes.assign(arrival.bytes.begin(), arrival.bytes.end());
        arrived.push_back(std::move(one));
    }
};

constinit const proto::DeviceTagCalls FakeDeviceOwner::kDeviceCalls{
    .find = [](void* owner, std::uint32_t sender) -> MatchPeer* {
        return of(owner).peers.find(sender);
    },
    .arrive = [](void* owner, MatchPeer& from, const Arrival& arrival,
                 Request* request) { of(owner).arrive(from, arrival, request, false); },
    .arrive_unmatched =
        [](void* owner, MatchPeer& from, const Arrival& arrival) {
            of(owner).arrive(from, arrival, nullptr, false);
        },
    .end_in_place = [](void* owner, Request& request, MatchPeer& from,
                       const Arrival& arrival) { of(owner).arrive(from, arrival, &request, true); },
    .take_announced =
        [](void* owner, MatchPeer&, const Placeholder&, std::uint64_t, Request* request) {
            of(owner).places.push_back(request);
            return of(owner).has_announced;
        },
    .garbage =
        [](void* owner, const char*, std::size_t) {
            ++of(owner).garbage;
            return UCS_OK;
        },
    .drop_from_unknown =
        [](void* owner, std::uint32_t, const char*, std::size_t) {
            ++of(owner).from_unknown;
            return UCS_OK;
        },
};

class DeviceTagsPart : public testing::Test {
  protected:
    static constexpr std::uint64_t kSenderMask = 0xff00, kExact = UINT64_MAX;
    static constexpr std::size_t kRoom = 3;          // receives of the device
    static constexpr std::size_t kMessageMax = 512;  // bytes of an eager message

    explicit DeviceTagsPart(std::uint64_t sender_mask = kSenderMask) {
        EXPECT_EQ(proto::Context::create("sm", &context_), UCS_OK);
        rail_ = std::make_unique<FakeRail>(worker_.options);
        rail_->own_domain = context_->domains()[0];
        rail_->set_iface(&uct_);
        rail_->attributes().cap.tag.recv.min_recv = kMessageMax;
        rail_->attributes().cap.tag.recv.max_outstanding = kRoom;
        rail_->attributes().cap.tag.recv.max_zcopy = SIZE_MAX;
        tags_ = std::make_unique<proto::DeviceTags>(
            proto::DeviceTagPorts{worker_.port, space_, owner_.peers, *rail_, &owner_,
                                  FakeDeviceOwner::kDeviceCalls},
            sender_mask);
    }

    /// A peer that sends its tagged messages to the device, or to another rail.
    FakeMatchPeer& add_peer(bool is_direct = true) {
        all_.push_back(std::make_unique<FakeMatchPeer>(all_.size() + 1));
        FakeMatchPeer& peer = *all_.back();
        peer.id = owner_.peers.add(peer);
        tags_->on_lane(peer, is_direct ? 0 : 1);
        return peer;
    }
    /// A message tells which bits of a tag are its sender's.
    void learn(const FakeMatchPeer& peer, std::uint64_t tag) {
        const std::array<std::byte, 1> byte{};
        EXPECT_EQ(
            tags_->on_eager(byte.data(), byte.size(), 0, tag, TagImm::encode(peer.id, false, 0)),
            UCS_OK);
        owner_.arrived.clear();
    }
    Request& post(std::uint64_t tag, std::uint64_t mask = kExact, std::uint32_t flags = 0) {
        buffers_.push_back(std::make_unique<std::vector<std::byte>>(2 * kMessageMax));
        tw_op_t op{};
        op.flags = flags;
        Request& request = worker_.make(proto::RequestKind::kReceive, *buffers_.back(), op);
        request.tag = tag;
        request.mask = mask;
        request.source = proto::kAnySource;
        request.is_tagged = request.is_posted = true;
        space_.posted.post(request);
        requests_.push_back(&request);
        tags_->posted(request);
        return request;
    }
    /// Its buffer has a handle, so that the device writes to it.
    Request& post_mapped(std::uint64_t tag) {
        buffers_.push_back(std::make_unique<std::vector<std::byte>>(2 * kMessageMax));
        std::unique_ptr<proto::Memory> memory;
        EXPECT_EQ(proto::Memory::make(*context_, buffers_.back()->data(), 2 * kMessageMax,
                                      TW_ACCESS_NONE, &memory),
                  UCS_OK);
        Request& request = worker_.make(proto::RequestKind::kReceive, *buffers_.back());
        request.buffer.memory = memory.get();
        memories_.push_back(std::move(memory));
        request.tag = tag;
        request.mask = kExact;
        request.source = proto::kAnySource;
        request.is_tagged = request.is_posted = true;
        space_.posted.post(request);
        requests_.push_back(&request);
        tags_->posted(request);
        return request;
    }
    /// Software has matched it, or the program takes it back.
    void leave(Request& request) {
        space_.posted.cancel(request);
        request.is_posted = false;
        tags_->left(request);
    }
    uct_tag_context_t* last_given() { return uct_.given.back().receive; }
    void complete(uct_tag_context_t* receive, std::uint64_t tag, std::uint32_t sender,
                  std::size_t bytes, ucs_status_t status = UCS_OK) {
        receive->completed_cb(receive, tag, TagImm::encode(sender, false, 0), bytes, nullptr,
                              status);
    }
    std::uint64_t count(WorkerCounter counter) const { return worker_.count(counter); }

    void TearDown() override {
        for (Request* request : requests_)
            if (request->is_posted)
                leave(*request);
        tags_.reset();
        for (Request* request : requests_)
            worker_.requests.release(*request);
        EXPECT_EQ(worker_.requests.in_use(), 0U);
    }

    std::unique_ptr<proto::Context> context_;
    FakeWorker worker_;
    FakeUct uct_;
    FakeDeviceOwner owner_;
    proto::MatchSpace space_;
    std::unique_ptr<FakeRail> rail_;
    std::unique_ptr<proto::DeviceTags> tags_;
    std::vector<std::unique_ptr<FakeMatchPeer>> all_;
    std::vector<std::unique_ptr<std::vector<std::byte>>> buffers_;
    std::vector<std::unique_ptr<proto::Memory>> memories_;
    std::vector<Request*> requests_;
};

// ---- Which are given

TEST_F(DeviceTagsPart, a_receive_is_given_when_the_only_sender_that_it_can_match_sends_here) {
    FakeMatchPeer& peer = add_peer();
    post(0x100);
    EXPECT_EQ(count(WorkerCounter::kTagKeptPeers), 1U);  // nobody knows whose tag that is
    leave(*requests_[0]);
    learn(peer, 0x100);
    post(0x105);
    EXPECT_EQ(count(WorkerCounter::kTagGiven), 1U);
    ASSERT_EQ(uct_.given.size(), 1U);
    EXPECT_EQ(uct_.given[0].tag, 0x105U);
    EXPECT_EQ(count(WorkerCounter::kTagBounced), 1U);  // its buffer has no handle
    tags_->gone(peer);
    post(0x106);
    EXPECT_EQ(count(WorkerCounter::kTagKeptPeers), 2U);
}

TEST_F(DeviceTagsPart, a_receive_of_any_sender_is_given_when_all_of_them_send_here) {
    post(0, 0);
    EXPECT_EQ(count(WorkerCounter::kTagKeptPeers), 1U);
    leave(*requests_[0]);
    add_peer();
    post(0, 0);
    EXPECT_EQ(count(WorkerCounter::kTagGiven), 1U);
    FakeMatchPeer& other = add_peer(false);
    post(0, 0);
    EXPECT_EQ(count(WorkerCounter::kTagKeptPeers), 2U);
    leave(*requests_[2]);
    tags_->on_lane(other, 0);
    tags_->on_lane(other, 0);  // once is enough
    post(0, 0);
    EXPECT_EQ(count(WorkerCounter::kTagGiven), 2U);
}

TEST_F(DeviceTagsPart, no_receive_passes_one_that_is_held_and_could_match_the_same) {
    learn(add_peer(), 0x100);
    post(0x101, kExact, proto::kBufferedReceive);
    EXPECT_EQ(count(WorkerCounter::kTagKeptKind), 1U);
    post(0x101);
    EXPECT_EQ(count(WorkerCounter::kTagKeptOrder), 1U);
    post(0x100, 0xff00);
    EXPECT_EQ(count(WorkerCounter::kTagKeptOrder), 2U);
    for (Request* request : requests_)
        leave(*request);
    post(0x101);
    EXPECT_EQ(count(WorkerCounter::kTagGiven), 1U);
}

TEST_F(DeviceTagsPart, a_device_has_so_many_and_one_that_refuses_is_full) {
    learn(add_peer(), 0x100);
    for (std::uint64_t i = 0; i < kRoom; ++i)
        post(0x100 + i);
    EXPECT_EQ(count(WorkerCounter::kTagGiven), kRoom);
    leave(post(0x110));
    EXPECT_EQ(count(WorkerCounter::kTagKeptFull), 1U);
    leave(*requests_[0]);
    uct_.give_status = UCS_ERR_EXCEEDS_LIMIT;
    leave(post(0x111));
    EXPECT_EQ(count(WorkerCounter::kTagKeptFull), 2U);
    uct_.give_status = UCS_OK;
    post(0x112);
    EXPECT_EQ(count(WorkerCounter::kTagGiven), kRoom + 1);
}

// ---- Receives that come back

TEST_F(DeviceTagsPart, a_message_in_a_bounce_buffer_is_delivered_and_its_place_is_free) {
    FakeMatchPeer& peer = add_peer();
    learn(peer, 0x100);
    for (int i = 0; i < 3 * static_cast<int>(kRoom); ++i) {
        Request& request = post(0x101);
        uct_tag_context_t* const receive = last_given();
        std::memset(uct_.given.back().target.buffer, 5, 10);
        receive->tag_consumed_cb(receive);
        EXPECT_FALSE(request.is_posted);
        complete(receive, 0x101, peer.id, 10);
        ASSERT_EQ(owner_.arrived.size(), 1U);
        EXPECT_EQ(owner_.arrived[0].request, &request);
        EXPECT_EQ(owner_.arrived[0].bytes, std::vector<std::byte>(10, std::byte{5}));
        EXPECT_EQ(request.on_device, nullptr);
        owner_.arrived.clear();
    }
    EXPECT_EQ(count(WorkerCounter::kTagMatched), 3 * kRoom);
}

TEST_F(DeviceTagsPart, a_message_in_the_programs_buffer_is_at_its_end) {
    FakeMatchPeer& peer = add_peer();
    learn(peer, 0x100);
    Request& request = post_mapped(0x101);
    EXPECT_EQ(uct_.given.back().target.buffer, request.buffer.base);
    complete(last_given(), 0x101, peer.id, 10);
    ASSERT_EQ(owner_.arrived.size(), 1U);
    EXPECT_TRUE(owner_.arrived[0].is_in_place);
    EXPECT_EQ(count(WorkerCounter::kTagBounced), 0U);
}

TEST_F(DeviceTagsPart, a_message_that_failed_or_whose_sender_is_gone_ends_its_receive) {
    FakeMatchPeer& peer = add_peer();
    learn(peer, 0x100);
    Request& failed = post(0x101);
    complete(last_given(), 0x101, peer.id, 10, UCS_ERR_IO_ERROR);
    Request& orphan = post(0x102);
    complete(last_given(), 0x102, peer.id + 1, 10);
    EXPECT_EQ(worker_.ends, (std::vector<FakeWorker::End>{{&failed, UCS_ERR_IO_ERROR},
                                                          {&orphan, UCS_ERR_CONNECTION_RESET}}));
    EXPECT_TRUE(owner_.arrived.empty());
}

TEST_F(DeviceTagsPart, a_receive_that_software_matched_is_taken_back_also_while_it_is_written) {
    FakeMatchPeer& peer = add_peer();
    learn(peer, 0x100);
    leave(post(0x101));
    EXPECT_EQ(count(WorkerCounter::kTagTakenBack), 1U);
    EXPECT_TRUE(uct_.taken_back.back().is_forced);
    uct_.cancel_status = UCS_ERR_BUSY;
    for (std::size_t i = 0; i < kRoom; ++i)
        leave(post(0x101));
    uct_.cancel_status = UCS_OK;
    leave(post(0x101));
    EXPECT_EQ(count(WorkerCounter::kTagKeptFull), 1U);
    // The messages that were written meanwhile are nobody's, and free their places.
    for (std::size_t i = 0; i < kRoom; ++i)
        complete(uct_.given[1 + i].receive, 0x101, peer.id, 10);
    EXPECT_TRUE(owner_.arrived.empty());
    EXPECT_TRUE(worker_.ends.empty());
    for (std::size_t i = 0; i < kRoom; ++i)
        post(0x101);
    EXPECT_EQ(count(WorkerCounter::kTagKeptFull), 1U);
}

TEST_F(DeviceTagsPart, a_cancel_ends_with_its_status_or_with_the_message_that_came_first) {
    FakeMatchPeer& peer = add_peer();
    learn(peer, 0x100);
    Request& canceled = post(0x101);
    EXPECT_TRUE(proto::DeviceTags::cancel(canceled, UCS_ERR_CANCELED));
    EXPECT_FALSE(uct_.taken_back.back().is_forced);
    EXPECT_TRUE(worker_.ends.empty());
    complete(last_given(), 0, 0, 0, UCS_ERR_CANCELED);
    EXPECT_EQ(worker_.ends, (std::vector<FakeWorker::End>{{&canceled, UCS_ERR_CANCELED}}));
    EXPECT_FALSE(canceled.is_posted);
    Request& matched = post(0x101);
    EXPECT_TRUE(proto::DeviceTags::cancel(matched, UCS_ERR_CANCELED));
    complete(last_given(), 0x101, peer.id, 10);
    EXPECT_EQ(owner_.arrived.back().request, &matched);
    EXPECT_EQ(worker_.ends.size(), 1U);
    EXPECT_FALSE(proto::DeviceTags::cancel(matched, UCS_ERR_CANCELED));
}

TEST_F(DeviceTagsPart, a_peer_is_greeted_when_receives_that_it_could_match_have_come_back) {
    add_peer();
    EXPECT_TRUE(tags_->may_greet());
    Request& wide = post(0, 0);
    EXPECT_FALSE(tags_->may_greet());
    EXPECT_FALSE(tags_->may_greet());
    EXPECT_EQ(uct_.taken_back.size(), 1U);  // once is enough
    complete(last_given(), 0, 0, 0, UCS_ERR_CANCELED);
    EXPECT_TRUE(tags_->may_greet());
    EXPECT_TRUE(wide.is_posted);
    EXPECT_TRUE(wide.is_held);
    EXPECT_EQ(count(WorkerCounter::kTagRecalled), 1U);
    EXPECT_TRUE(worker_.ends.empty());
}

TEST_F(DeviceTagsPart, the_place_of_an_announced_message_gives_the_buffer_back_as_it_was) {
    FakeMatchPeer& peer = add_peer();
    learn(peer, 0x100);
    Request& request = post_mapped(0x101);
    const std::vector<std::byte> before(request.buffer.base, request.buffer.base + 64);
    const Placeholder place{peer.id, 0};
    std::memcpy(request.buffer.base, &place, sizeof place);  // the device has written it there
    last_given()->rndv_cb(last_given(), 0x101, request.buffer.base, sizeof place, UCS_OK, 0);
    EXPECT_EQ(owner_.places, std::vector{&request});
    EXPECT_EQ(std::memcmp(request.buffer.base, before.data(), before.size()), 0);
    EXPECT_TRUE(worker_.ends.empty());
}

TEST_F(DeviceTagsPart, a_place_of_no_message_ends_its_receive) {
    FakeMatchPeer& peer = add_peer();
    learn(peer, 0x100);
    for (const Placeholder& place : {Placeholder{peer.id + 1, 0}, Placeholder{peer.id, 7}}) {
        owner_.has_announced = false;
        Request& request = post(0x101);
        last_given()->rndv_cb(last_given(), 0x101, &place, sizeof place, UCS_OK, 0);
        EXPECT_EQ(worker_.ends.back().request, &request);
        EXPECT_EQ(worker_.ends.back().status, UCS_ERR_CONNECTION_RESET);
    }
    EXPECT_EQ(owner_.places.size(), 1U);
}

// ---- Messages that the device did not match

TEST_F(DeviceTagsPart, messages_that_the_device_did_not_match_are_checked) {
    FakeMatchPeer& peer = add_peer();
    const std::array<std::byte, 8> bytes{};
    const std::uint64_t ours = TagImm::encode(peer.id, true, 3);
    const std::uint64_t nobodys = TagImm::encode(peer.id + 1, false, 0);
    EXPECT_EQ(tags_->on_eager(bytes.data(), 8, UCT_CB_PARAM_FLAG_MORE, 1, ours), UCS_OK);
    EXPECT_EQ(owner_.garbage, 1U);
    EXPECT_EQ(tags_->on_eager(bytes.data(), 8, 0, 1, nobodys), UCS_OK);
    EXPECT_EQ(owner_.from_unknown, 1U);
    EXPECT_EQ(tags_->on_eager(bytes.data(), 8, 0, 1, ours), UCS_OK);
    ASSERT_EQ(owner_.arrived.size(), 1U);
    EXPECT_EQ(owner_.arrived[0].from, &peer);
    const Placeholder place{peer.id, 0}, from_unknown{peer.id + 1, 0};
    EXPECT_EQ(tags_->on_request(&place, sizeof place - 1, 1), UCS_OK);
    EXPECT_EQ(owner_.garbage, 2U);
    EXPECT_EQ(tags_->on_request(&from_unknown, sizeof from_unknown, 1), UCS_OK);
    EXPECT_EQ(owner_.from_unknown, 2U);
    EXPECT_EQ(tags_->on_request(&place, sizeof place, 1), UCS_OK);
    EXPECT_EQ(owner_.places, std::vector<Request*>{nullptr});
}

TEST_F(DeviceTagsPart, a_worker_that_ends_releases_what_the_device_has_consumed) {
    learn(add_peer(), 0x100);
    Request& consumed = post(0x101);
    uct_tag_context_t* const receive = last_given();
    receive->tag_consumed_cb(receive);
    post(0x102);
    tags_->close();
    std::erase(requests_, &consumed);  // it is free
    EXPECT_EQ(requests_[0]->on_device, nullptr);
    EXPECT_EQ(worker_.requests.in_use(), 1U);
}

/// Steps in any order: each receive is with the device, held, or over, and counts stay right.
TEST_F(DeviceTagsPart, receives_come_and_go_in_any_order) {
    FakeMatchPeer& peer = add_peer();
    learn(peer, 0x100);
    for_each_seed(50, [&](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        for (int i = 0; i < 200; ++i) {
            std::vector<Request*> posted;
            for (Request* request : requests_)
                if (request->is_posted)
                    posted.push_back(request);
            Request* const one = posted.empty() ? nullptr : posted[random() % posted.size()];
            switch (random() % 4) {
                case 0:
                    if (posted.size() < 2 * kRoom)
                        post(0x100 + random() % 4, random() % 4 == 0 ? kSenderMask : kExact);
                    break;
                case 1:
                    if (one != nullptr)
                        leave(*one);
                    break;
                case 2:
                    if (one != nullptr && one->on_device != nullptr)
                        complete(one->on_device, one->tag, peer.id, random() % kMessageMax);
                    break;
                default:
                    if (one != nullptr && proto::DeviceTags::cancel(*one, UCS_ERR_CANCELED))
                        complete(one->on_device, 0, 0, 0, UCS_ERR_CANCELED);
            }
            std::size_t given = 0;
            for (const Request* request : requests_) {
                given += request->on_device != nullptr ? 1U : 0U;
                EXPECT_TRUE(!request->is_posted ||
                            request->is_held != (request->on_device != nullptr));
            }
            EXPECT_LE(given, kRoom);
            EXPECT_NE(tags_->description().find(std::to_string(given) + " receives on the device"),
                      std::string::npos);
        }
        for (Request* request : requests_) {
            if (request->is_posted)
                leave(*request);
            worker_.requests.release(*request);
        }
        requests_.clear();
        buffers_.clear();
        EXPECT_TRUE(tags_->may_greet());
    });
}

// ---- Memory

/// Senders are learnt, and receives are given or kept, whatever allocation fails: none is lost.
TEST_F(DeviceTagsPart, what_has_no_memory_loses_no_receive) {
    ASSERT_TRUE(ucs::reserve_open());
    owner_.arrived.reserve(1000);
    uct_.given.reserve(1000);
    uct_.taken_back.reserve(1000);
    for (unsigned long which = 1; which < 12; ++which) {
        FakeMatchPeer& peer = add_peer();
        const std::uint64_t sender = which << 8;
        const std::array<std::byte, 1> byte{};
        {
            const FailingAllocation failing(which);
            EXPECT_EQ(tags_->on_eager(byte.data(), 0, 0, sender, TagImm::encode(peer.id, false, 0)),
                      UCS_OK);
        }
        Request& request = post(sender | 1);
        EXPECT_NE(request.on_device, nullptr) << which;  // its sender is known
        complete(request.on_device, sender | 1, peer.id, 8);
        EXPECT_EQ(request.on_device, nullptr);
    }
}

}  // namespace
}  // namespace tagwire::test
