// SPDX-License-Identifier: BSD-3-Clause
// The receiver of rendezvous, alone: the way that the data goes, its ends, and a sender that says
// anything.
#include "protocols/rndv/rndv_receiver.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/nomem.hpp"
#include "common/seeds.hpp"
#include "protocols/parts/fake_rail.hpp"
#include "protocols/parts/fake_worker.hpp"
#include "protocols/request/context.hpp"
#include "protocols/request/memory.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::test {
namespace {

using proto::AmId;
using proto::Ats;
using proto::Cts;
using proto::EpState;
using proto::Request;
using proto::RequestKind;
using proto::RndvScheme;
using proto::Rts;
using proto::WorkerCounter;

class RndvReceiverPart : public testing::Test {
  protected:
    static constexpr std::size_t kLength = 100'000;
    static constexpr std::uint32_t kPeerNames = 11, kSendId = 5;
    static constexpr std::uint8_t kDomain = 3;
    static constexpr std::byte kData{0x77};

    RndvReceiverPart() {
        EXPECT_EQ(proto::Context::create("sm", &context_), UCS_OK);
        domain_ = context_->domains()[0];
        domain_.registers_cheaply = false;
        iface_ = &rails_.add({.lends = true});
        uct_ep_params_t params{};
        params.iface = iface_;
        EXPECT_EQ(WirelessEp::create(&params, &lane_.ep), UCS_OK);
        rail_.set_flags(UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_PUT_ZCOPY |
                        UCT_IFACE_FLAG_CONNECT_TO_IFACE);
        lane_.over = &rail_;
        lane_.peer_domain = kDomain;
        lane_.state = EpState::kReady;
        peer_.peer_names = kPeerNames;
    }

    Request& receive(std::size_t length = kLength) {
        buffers_.emplace_back(length);
        Request& request = worker_.make(RequestKind::kReceive, buffers_.back());
        request.in_call = false;
        requests_.push_back(&request);
        return request;
    }
    /// Its buffer has a handle that gives peers such access.
    Request& mapped(std::uint32_t access) {
        Request& request = receive();
        std::unique_ptr<proto::Memory> memory;
        EXPECT_EQ(proto::Memory::make(*context_, request.buffer.base, kLength, access, &memory),
                  UCS_OK);
        request.buffer.memory = memory.get();
        memories_.push_back(std::move(memory));
        return request;
    }
    static Rts rts(std::size_t length = kLength, std::uint8_t flags = 0) {
        Rts message{};
        message.length = length;
        message.send_id = kSendId;
        message.flags = flags;
        return message;
    }
    static void add_key(std::vector<std::byte>& keys, std::uint8_t domain,
                        std::span<const std::byte> key) {
        keys.push_back(std::byte{domain});
        keys.push_back(static_cast<std::byte>(key.size()));
        keys.insert(keys.end(), key.begin(), key.end());
    }
    static std::vector<std::byte> lent() {
        const proto::Loan loan{7, {1, 0}};
        std::vector<std::byte> keys;
        add_key(keys, proto::kLoanDomain, std::as_bytes(std::span(&loan, 1)));
        return keys;
    }
    /// The key of memory that may be read.
    std::vector<std::byte> key(std::uint8_t domain = kDomain) {
        const Request& of = mapped(TW_ACCESS_READ);
        std::vector<std::byte> packed(domain_.attr.rkey_packed_size);
        EXPECT_EQ(uct_md_mkey_pack(domain_.md, of.buffer.memory->handle(0), packed.data()), UCS_OK);
        std::vector<std::byte> keys;
        add_key(keys, domain, packed);
        return keys;
    }
    /// A receive whose data the sender was asked for.
    Request& asked(std::size_t length = kLength) {
        Request& request = receive(length);
        receiver_.begin(request, rts(length), {});
        EXPECT_EQ(peer_.fake.sent.pop().operation(), proto::ControlOp::kCts);
        return request;
    }
    void set_scheme(RndvScheme scheme) { worker_.options.rndv_scheme = static_cast<int>(scheme); }
    /// Buffers are offered to senders that can write.
    void offer_all() {
        domain_.registers_cheaply = true;
        set_scheme(RndvScheme::kPut);
    }
    /// A receive that was offered to the sender, and the offer has gone.
    Request& offered() {
        offer_all();
        Request& request = receive();
        receiver_.begin(request, rts(kLength, proto::kRtsCanPut), {});
        EXPECT_TRUE(request.is_offered);
        EXPECT_EQ(peer_.fake.data, std::vector{&request});
        EXPECT_EQ(receiver_.send_rtr(request), UCS_OK);
        return request;
    }
    bool data(Request* request, std::uint64_t offset, std::size_t bytes) {
        data_.assign(bytes, kData);
        proto::DataMessage message{};
        message.head.offset = offset;
        message.data = data_;
        return receiver_.on_data(message, request);
    }
    bool has_ended(const Request& request, ucs_status_t status) const {
        return std::ranges::count(worker_.ends,
                                  FakeWorker::End{const_cast<Request*>(&request), status}) == 1 &&
               std::ranges::count(worker_.ends, &request, &FakeWorker::End::request) == 1;
    }
    /// Status that the sender was told last.
    std::int32_t told() {
        const proto::Control last = peer_.fake.sent.back();
        EXPECT_EQ(last.operation(), proto::ControlOp::kAts);
        EXPECT_EQ(last.as<Ats>().send_id, kSendId);
        return last.as<Ats>().status;
    }
    /// The sender was asked for the data of that receive.
    bool is_asked(const Request& request) const {
        const proto::Control last = peer_.fake.sent.back();
        return last.operation() == proto::ControlOp::kCts && last.as<Cts>().send_id == kSendId &&
               last.as<Cts>().receive_id == request.id && last.as<Cts>().bytes == request.wanted;
    }
    std::uint64_t count(WorkerCounter counter) const { return worker_.count(counter); }

    void TearDown() override {
        for (Request* request : requests_) {
            proto::end_transfer(*request);
            if (request->registration != nullptr) {
                EXPECT_EQ(uct_md_mem_dereg(domain_.md, request->registration), UCS_OK);
            }
            worker_.requests.release_id(*request);
            worker_.requests.release(*request);
        }
        EXPECT_EQ(worker_.requests.in_use(), 0U);
        static_cast<WirelessEp*>(lane_.ep)->destroy();
    }

    std::unique_ptr<proto::Context> context_;
    FakeWorker worker_;
    FakeMatchPeer peer_{1};
    WirelessRails rails_;
    WirelessIface* iface_ = nullptr;
    FakeRail rail_{worker_.options};
    proto::Domain& domain_ = rail_.own_domain;
    proto::LaneState lane_;
    proto::CopyChooser copies_;
    proto::SendWindow window_{peer_.fake.port};
    proto::RequestList messages_;
    proto::RndvSender sender_{{worker_.port, peer_, lane_, copies_, window_, messages_}};
    proto::RndvReceiver receiver_{{worker_.port, peer_, lane_, sender_, true}};
    std::deque<std::vector<std::byte>> buffers_;
    std::vector<std::unique_ptr<proto::Memory>> memories_;
    std::vector<Request*> requests_;
    std::vector<std::byte> data_;
};

// ---- Reads of what is lent

TEST_F(RndvReceiverPart, nothing_is_moved_where_nothing_fits) {
    Request& request = receive(0);
    receiver_.begin(request, rts(), lent());
    EXPECT_TRUE(has_ended(request, UCS_ERR_MESSAGE_TRUNCATED));
    EXPECT_EQ(told(), UCS_OK);
    EXPECT_TRUE(iface_->reads.empty());
    EXPECT_EQ(count(WorkerCounter::kRxRndv), 1U);
}

TEST_F(RndvReceiverPart, a_lent_buffer_is_read_at_once_and_its_sender_told) {
    Request& request = receive(2 * kLength);
    receiver_.begin(request, rts(), lent());
    EXPECT_TRUE(has_ended(request, UCS_OK));
    EXPECT_EQ(request.done.length, kLength);
    EXPECT_EQ(told(), UCS_OK);
    EXPECT_EQ(buffers_.back()[kLength - 1], WirelessIface::kRead);
    EXPECT_EQ(buffers_.back()[kLength], std::byte{});
    EXPECT_EQ(count(WorkerCounter::kRndvLent), 1U);
    EXPECT_EQ(count(WorkerCounter::kRndvGet), 1U);
}

TEST_F(RndvReceiverPart, a_longer_message_is_cut) {
    Request& request = receive(kLength / 2);
    receiver_.begin(request, rts(), lent());
    EXPECT_TRUE(has_ended(request, UCS_ERR_MESSAGE_TRUNCATED));
    EXPECT_EQ(request.done.length, kLength / 2);
    EXPECT_EQ(request.done.message_length, kLength);
}

TEST_F(RndvReceiverPart, a_read_waits_for_its_turn_where_it_cannot_be_at_once) {
    Request& behind = receive();
    peer_.fake.is_free = false;  // something waits for the lane
    receiver_.begin(behind, rts(), lent());
    peer_.fake.is_free = true;
    const std::size_t long_bytes = proto::kReadAtOnceMax + 1;
    Request& longer = receive(long_bytes);
    receiver_.begin(longer, rts(long_bytes), lent());
    Request& list = receive();
    tw_iov_t element{list.buffer.base, kLength};
    list.buffer.list = &element;
    list.buffer.count = 1;
    receiver_.begin(list, rts(), lent());
    Request& full = receive();
    iface_->settings.read = UCS_ERR_NO_RESOURCE;
    receiver_.begin(full, rts(), lent());
    EXPECT_EQ(peer_.fake.data, (std::vector{&behind, &longer, &list, &full}));
    EXPECT_TRUE(worker_.ends.empty());
    for (Request* each : {&behind, &longer, &list, &full}) {
        ASSERT_NE(each->transfer, nullptr);
        each->transfer->ended(*each, UCS_OK);
        EXPECT_TRUE(has_ended(*each, UCS_OK));
        EXPECT_EQ(told(), UCS_OK);
    }
    list.buffer.list = nullptr;
    EXPECT_EQ(count(WorkerCounter::kRndvLent), 4U);
}

TEST_F(RndvReceiverPart, data_is_asked_for_when_the_loan_has_ended) {
    for (const ucs_status_t status : {UCS_ERR_CANCELED, UCS_ERR_UNSUPPORTED}) {
        Request& request = receive();
        iface_->settings.read = status;
        receiver_.begin(request, rts(), lent());
        ASSERT_NE(request.transfer, nullptr);
        request.transfer->ended(request, status);
        EXPECT_EQ(request.transfer, nullptr);
        EXPECT_TRUE(is_asked(request));
        EXPECT_TRUE(data(&request, 0, kLength));
        EXPECT_TRUE(has_ended(request, UCS_OK));
    }
    EXPECT_EQ(count(WorkerCounter::kRndvCopy), 2U);
    EXPECT_EQ(count(WorkerCounter::kRndvLent), 0U);
}

TEST_F(RndvReceiverPart, a_read_ends_with_its_lane) {
    Request& request = receive();
    peer_.fake.is_free = false;
    receiver_.begin(request, rts(), lent());
    lane_.state = EpState::kFailed;
    request.transfer->ended(request, UCS_ERR_CANCELED);
    EXPECT_TRUE(has_ended(request, UCS_ERR_CANCELED));
    EXPECT_EQ(count(WorkerCounter::kRndvCopy), 0U);
}

TEST_F(RndvReceiverPart, one_that_sends_as_long_a_message_itself_reads_alone) {
    std::vector<std::byte> own(kLength);
    Request& message = worker_.make(RequestKind::kSend, own);
    message.ep = as_endpoint(peer_);
    message.is_outstanding = message.is_rndv = true;
    messages_.push_back(message);
    ASSERT_TRUE(sender_.keeps_receiver_busy(kLength));
    receiver_.begin(receive(), rts(), lent());
    EXPECT_EQ(iface_->reads.back().id, 0U);
    messages_.erase(message);
    worker_.requests.release(message);
    receiver_.begin(receive(), rts(), lent());
    EXPECT_EQ(iface_->reads.back().id, kSendId);
}

// ---- Reads by key

TEST_F(RndvReceiverPart, a_buffer_whose_key_the_lane_can_use_is_read) {
    const auto keys = key();
    Request& request = mapped(TW_ACCESS_WRITE);
    receiver_.begin(request, rts(), keys);
    EXPECT_EQ(peer_.fake.transfers, std::vector{&request});
    ASSERT_NE(request.transfer, nullptr);
    EXPECT_EQ(request.transfer->own.memh, request.buffer.memory->handle(0));
    EXPECT_FALSE(request.transfer->is_lent);
    request.transfer->ended(request, UCS_OK);
    EXPECT_TRUE(has_ended(request, UCS_OK));
    EXPECT_EQ(told(), UCS_OK);
    EXPECT_EQ(count(WorkerCounter::kRndvGet), 1U);
    EXPECT_EQ(count(WorkerCounter::kRndvLent), 0U);
}

TEST_F(RndvReceiverPart, a_sender_that_has_revoked_its_key_has_canceled_the_message) {
    const auto keys = key();
    Request& request = mapped(TW_ACCESS_WRITE);
    receiver_.begin(request, rts(), keys);
    request.transfer->ended(request, UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(told(), UCS_ERR_INVALID_ADDR);
    EXPECT_TRUE(has_ended(request, UCS_ERR_CANCELED));
}

TEST_F(RndvReceiverPart, data_is_asked_for_without_a_key_that_fits) {
    const auto ask = [&](std::span<const std::byte> keys) {
        Request& request = mapped(TW_ACCESS_WRITE);
        receiver_.begin(request, rts(), keys);
        EXPECT_TRUE(is_asked(request));
        EXPECT_EQ(request.transfer, nullptr);
    };
    ask({});
    ask(key(kDomain + 1));  // of another domain
    auto cut = key();
    cut.pop_back();
    ask(cut);
    std::vector<std::byte> none;  // of the right length
    add_key(none, kDomain, std::vector(domain_.attr.rkey_packed_size, std::byte{0xee}));
    ask(none);
    rail_.set_flags(0);  // a lane without reads
    ask(key());
    lane_.state = EpState::kConnecting;  // the message has overtaken the hello
    ask(key());
    ask(lent());
    EXPECT_EQ(count(WorkerCounter::kRndvGet), 0U);
    EXPECT_EQ(count(WorkerCounter::kRndvCopy), 7U);
}

TEST_F(RndvReceiverPart, a_buffer_that_cannot_be_read_into_is_asked_for) {
    domain_.attr.cap.flags |= UCT_MD_FLAG_NEED_MEMH;
    const auto keys = key();
    Request& request = receive();  // no handle, and no cache
    receiver_.begin(request, rts(), keys);
    EXPECT_TRUE(is_asked(request));
}

// ---- Offers

TEST_F(RndvReceiverPart, an_offer_names_both_requests_and_has_the_key_of_the_buffer) {
    Request& request = offered();
    ASSERT_EQ(iface_->sent.size(), 1U);
    EXPECT_EQ(iface_->sent[0].id, static_cast<std::uint8_t>(AmId::kRtr));
    proto::RtrMessage message;
    ASSERT_TRUE(proto::decode(iface_->sent[0].bytes, &message));
    EXPECT_EQ(message.rtr.sender, kPeerNames);
    EXPECT_EQ(message.rtr.send_id, kSendId);
    EXPECT_EQ(message.rtr.receive_id, request.id);
    EXPECT_EQ(message.rtr.length, kLength);
    EXPECT_EQ(peer_.fake.removed, std::vector{&request});
    EXPECT_TRUE(receiver_.on_data_end(&request, UCS_OK));
    EXPECT_TRUE(has_ended(request, UCS_OK));
    EXPECT_EQ(told(), UCS_OK);
    EXPECT_EQ(count(WorkerCounter::kRndvPut), 1U);
}

TEST_F(RndvReceiverPart, an_offer_waits_for_room_and_a_failure_ends_the_receive) {
    offer_all();
    Request& request = receive();
    receiver_.begin(request, rts(kLength, proto::kRtsCanPut), {});
    iface_->settings.send = UCS_ERR_NO_RESOURCE;
    EXPECT_EQ(receiver_.send_rtr(request), UCS_ERR_NO_RESOURCE);
    EXPECT_TRUE(peer_.fake.removed.empty());
    iface_->settings.send = UCS_ERR_IO_ERROR;
    EXPECT_EQ(receiver_.send_rtr(request), UCS_OK);
    EXPECT_EQ(peer_.fake.removed, std::vector{&request});
    EXPECT_TRUE(has_ended(request, UCS_ERR_IO_ERROR));
    EXPECT_EQ(told(), UCS_ERR_IO_ERROR);
}

TEST_F(RndvReceiverPart, only_a_buffer_with_a_key_of_its_own_is_offered) {
    const auto is_offered = [&](Request& request, std::uint8_t flags = proto::kRtsCanPut) {
        receiver_.begin(request, rts(kLength, flags), {});
        EXPECT_NE(request.is_offered, is_asked(request));
        return static_cast<bool>(request.is_offered);
    };
    EXPECT_FALSE(is_offered(receive()));                // its registration is dear
    EXPECT_FALSE(is_offered(mapped(TW_ACCESS_WRITE)));  // the key would stay
    rail_.attributes().cap.flags &= ~std::uint64_t{UCT_IFACE_FLAG_CONNECT_TO_IFACE};
    EXPECT_TRUE(is_offered(mapped(TW_ACCESS_WRITE)));
    domain_.registers_cheaply = true;
    EXPECT_FALSE(is_offered(receive()));
    set_scheme(RndvScheme::kPut);
    EXPECT_TRUE(is_offered(receive()));
    EXPECT_FALSE(is_offered(receive(), 0));  // the sender cannot write
    Request& start = receive();
    start.is_start = true;
    EXPECT_FALSE(is_offered(start));
    Request& list = receive();
    tw_iov_t element{list.buffer.base, kLength};
    list.buffer.list = &element;
    list.buffer.count = 1;
    EXPECT_FALSE(is_offered(list));
    list.buffer.list = nullptr;
    domain_.registers_cheaply = false;
    EXPECT_FALSE(is_offered(mapped(TW_ACCESS_READ)));
    domain_.registers_cheaply = true;
    domain_.md = rails_.rails[0]->domain().md;  // which refuses to register
    EXPECT_FALSE(is_offered(receive()));
    domain_.md = context_->domains()[0].md;
    EXPECT_EQ(count(WorkerCounter::kRndvFallback), 5U);
}

// ---- Data in messages, and a sender that says anything

TEST_F(RndvReceiverPart, data_comes_in_pieces_until_all_is_here) {
    Request& request = asked();
    EXPECT_TRUE(data(&request, 0, kLength / 2));
    EXPECT_TRUE(worker_.ends.empty());
    EXPECT_TRUE(data(&request, kLength / 2, kLength / 2));
    EXPECT_TRUE(has_ended(request, UCS_OK));
    EXPECT_EQ(told(), UCS_OK);
    EXPECT_EQ(buffers_.back()[kLength - 1], kData);
    EXPECT_FALSE(data(&request, kLength, 1));
}

TEST_F(RndvReceiverPart, a_sender_may_send_what_it_was_offered_to_write) {
    Request& request = offered();
    EXPECT_TRUE(data(&request, 0, 1));
    EXPECT_FALSE(request.is_offered);
    EXPECT_FALSE(receiver_.on_data_end(&request, UCS_OK));
    EXPECT_TRUE(data(&request, 1, kLength - 1));
    EXPECT_TRUE(has_ended(request, UCS_OK));
    EXPECT_EQ(count(WorkerCounter::kRndvCopy), 1U);
    EXPECT_EQ(count(WorkerCounter::kRndvPut), 0U);
}

TEST_F(RndvReceiverPart, a_sender_may_fail) {
    Request& request = asked();
    EXPECT_TRUE(data(&request, 0, 1));
    EXPECT_TRUE(receiver_.on_data_end(&request, UCS_ERR_IO_ERROR));
    EXPECT_TRUE(has_ended(request, UCS_ERR_IO_ERROR));
    EXPECT_FALSE(receiver_.on_data_end(&request, UCS_ERR_IO_ERROR));
}

TEST_F(RndvReceiverPart, data_that_cannot_come_now_is_refused) {
    EXPECT_FALSE(data(nullptr, 0, 1));
    EXPECT_FALSE(receiver_.on_data_end(nullptr, UCS_ERR_IO_ERROR));
    Request& request = asked();
    EXPECT_FALSE(data(&request, 1, 1));
    EXPECT_FALSE(data(&request, 0, kLength + 1));
    EXPECT_FALSE(receiver_.on_data_end(&request, UCS_OK));  // it was offered nothing
    request.is_queued = true;
    EXPECT_FALSE(data(&request, 0, 1));
    request.is_queued = false;
    FakeMatchPeer other(2);
    request.ep = as_endpoint(other);
    EXPECT_FALSE(data(&request, 0, 1));
    request.ep = as_endpoint(peer_);
    request.kind = RequestKind::kSend;
    EXPECT_FALSE(data(&request, 0, 1));
    request.kind = RequestKind::kReceive;
    Request& read = receive();
    peer_.fake.is_free = false;
    receiver_.begin(read, rts(), lent());
    EXPECT_FALSE(data(&read, 0, kLength));
    EXPECT_FALSE(receiver_.on_data_end(&read, UCS_ERR_IO_ERROR));
    EXPECT_TRUE(worker_.ends.empty());
}

TEST_F(RndvReceiverPart, the_end_of_a_start_is_told_if_it_is_a_failure) {
    Request& request = receive(16);
    request.is_start = true;
    receiver_.begin(request, rts(), lent());
    EXPECT_TRUE(has_ended(request, UCS_ERR_MESSAGE_TRUNCATED));
    EXPECT_TRUE(peer_.fake.sent.empty());
    Request& failing = receive(16);
    failing.is_start = true;
    receiver_.begin(failing, rts(), {});
    EXPECT_TRUE(receiver_.on_data_end(&failing, UCS_ERR_IO_ERROR));
    EXPECT_EQ(told(), UCS_ERR_IO_ERROR);
}

TEST_F(RndvReceiverPart, an_end_is_told_behind_what_waits) {
    Request& request = asked();
    peer_.fake.room = UCS_ERR_NO_RESOURCE;
    EXPECT_TRUE(data(&request, 0, kLength));
    EXPECT_EQ(told(), UCS_OK);
    EXPECT_EQ(peer_.fake.sent.size(), 1U);
}

TEST_F(RndvReceiverPart, each_receive_ends_once_whatever_the_sender_says) {
    offer_all();
    for_each_seed(5, [this](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        const auto below = [&](std::size_t end) {
            return static_cast<std::size_t>(random() % end);
        };
        const std::size_t first = requests_.size();
        for (unsigned i = 0; i < 40; ++i) {
            const std::uint8_t flags = below(2) != 0 ? proto::kRtsCanPut : 0;
            set_scheme(below(4) == 0 ? RndvScheme::kAuto : RndvScheme::kPut);
            receiver_.begin(receive(1000), rts(1 + below(1500), flags), lent());
        }
        for (unsigned step = 0; step < 4000; ++step) {
            Request& request = *requests_[first + below(40)];
            const std::size_t ended = worker_.ends.size();
            const bool was_under_way = request.is_outstanding;
            const auto status = below(8) == 0 ? UCS_ERR_IO_ERROR : UCS_OK;
            const bool is_taken = below(4) == 0   ? receiver_.on_data_end(&request, status)
                                  : below(4) != 0 ? data(&request, request.offset, 1 + below(300))
                                                  : data(&request, below(1000), 1 + below(1500));
            EXPECT_TRUE(was_under_way || !is_taken);
            EXPECT_TRUE(is_taken || worker_.ends.size() == ended);
        }
        for (std::size_t i = first; i < requests_.size(); ++i) {
            const auto ends =
                std::ranges::count(worker_.ends, requests_[i], &FakeWorker::End::request);
            EXPECT_EQ(ends, requests_[i]->is_outstanding ? 0 : 1);
        }
    });
}

// ---- Memory

TEST_F(RndvReceiverPart, without_memory_a_receive_ends_or_its_data_is_asked_for) {
    ASSERT_TRUE(ucs::reserve_open());
    domain_.registers_cheaply = true;
    const auto by_key = key();
    const auto by_loan = lent();
    for (unsigned long which = 1; which < 12; ++which) {
        const std::size_t first = requests_.size();
        std::array<Request*, 4> all = {&receive(), &mapped(TW_ACCESS_WRITE), &receive(),
                                       &receive()};
        worker_.ends.reserve(64);
        worker_.outstanding.reserve(64);
        peer_.fake.data.reserve(64);
        peer_.fake.transfers.reserve(64);
        iface_->settings.read = UCS_ERR_NO_RESOURCE;
        {
            const FailingAllocation failing(which);
            receiver_.begin(*all[0], rts(), by_loan);
            receiver_.begin(*all[1], rts(), by_key);
            set_scheme(RndvScheme::kPut);
            receiver_.begin(*all[2], rts(kLength, proto::kRtsCanPut), {});
            receiver_.begin(*all[3], rts(), {});
            set_scheme(RndvScheme::kAuto);
        }
        for (std::size_t i = first; i < requests_.size(); ++i) {
            Request& request = *requests_[i];
            if (request.transfer != nullptr) {
                request.transfer->ended(request, UCS_OK);
            } else if (request.is_outstanding) {
                EXPECT_TRUE(data(&request, 0, kLength)) << which;
            }
            EXPECT_FALSE(request.is_outstanding) << which;
            EXPECT_EQ(std::ranges::count(worker_.ends, &request, &FakeWorker::End::request), 1)
                << which;
        }
        worker_.ends.clear();
        worker_.outstanding.clear();
        peer_.fake.data.clear();
        peer_.fake.transfers.clear();
    }
}

}  // namespace
}  // namespace tagwire::test
