// SPDX-License-Identifier: BSD-3-Clause
// The owner of memory, alone: a peer that puts, gets, changes numbers and asks for keys, with
// rights and without, in every order; and a peer that asks for anything.
#include "protocols/rma/rma_target.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/nomem.hpp"
#include "common/seeds.hpp"
#include "protocols/parts/fake_worker.hpp"
#include "protocols/request/context.hpp"
#include "protocols/request/keys.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/wire/limits.hpp"
#include "protocols/wire/memory_key.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::test {
namespace {

using proto::MemoryRange;
using proto::RmaKind;
using proto::RmaReply;
using proto::RmaRequest;
using proto::WorkerCounter;

class RmaTargetPart : public testing::Test {
  protected:
    static constexpr std::size_t kPage = 4096;
    static constexpr std::size_t kEach = FakeUct::kBufferBytes - sizeof(proto::GetData);

    RmaTargetPart() {
        lane_.ep = uct_.ep();
        lane_.over = &rail_;
        lane_.state = proto::EpState::kReady;
    }
    ~RmaTargetPart() override { memories_.clear(); }

    /// Memory that has a key, of these rights, over `bytes`.
    MemoryRange expose(std::span<std::byte> bytes, std::uint32_t access = TW_ACCESS_ALL) {
        std::unique_ptr<proto::Memory> memory;
        EXPECT_EQ(proto::Memory::make(*context_, bytes.data(), bytes.size(), access, &memory),
                  UCS_OK);
        std::array<std::byte, TW_KEY_BYTES_MAX> packed;
        std::size_t length = packed.size();
        EXPECT_EQ(memory->pack(packed.data(), &length), UCS_OK);
        proto::MemoryKeyMessage message;
        EXPECT_EQ(decode({packed.data(), length}, &message), nullptr);
        memories_.push_back(std::move(memory));
        return {message.key.memory, message.key.address};
    }
    void put(const MemoryRange& to, std::size_t length, bool is_last = true,
             std::uint32_t op_id = 1) {
        const std::vector<std::byte> data(length, std::byte{7});
        target_.on_put({{0, op_id, to, is_last ? 1U : 0U, 0}, data});
    }
    void ask(RmaKind kind, const MemoryRange& at, std::uint64_t length, std::uint32_t op_id = 1) {
        RmaRequest request{};
        request.op_id = op_id;
        request.at = at;
        request.length = length;
        request.kind = kind;
        target_.on_request(request);
    }
    ucs_status_t change(const MemoryRange& at, tw_atomic_op_t operation, tw_atomic_type_t type,
                        std::uint64_t operand, std::uint64_t* before, std::uint64_t compare = 0) {
        RmaRequest request{};
        request.op_id = 1;
        request.at = at;
        request.kind = RmaKind::kAtomic;
        request.operation = static_cast<std::uint8_t>(operation);
        request.type = static_cast<std::uint8_t>(type);
        request.length = proto::bytes_of_number(request.type);
        request.operand = operand;
        request.compare = compare;
        target_.on_request(request);
        const RmaReply reply = pop_reply();
        *before = reply.before;
        return static_cast<ucs_status_t>(reply.status);
    }
    /// Sends what is asked for, as far as the lane has room.
    void run() {
        while (target_.has_gets() && target_.send_piece() == UCS_OK) {
        }
    }
    RmaReply pop_reply() {
        EXPECT_FALSE(peer_.fake.sent.empty());
        if (peer_.fake.sent.empty())
            return {};
        target_.reply_has_gone();
        return peer_.fake.sent.pop().as<RmaReply>();
    }
    ucs_status_t reply() { return static_cast<ucs_status_t>(pop_reply().status); }
    /// The data of gets that has gone.
    std::vector<std::byte> data() const {
        std::vector<std::byte> all;
        for (const FakeUct::Message& message : uct_.sent) {
            EXPECT_EQ(message.id, proto::AmId::kGetData);
            proto::GetData head;
            std::memcpy(&head, message.bytes.data(), sizeof head);
            EXPECT_EQ(head.offset, all.size());
            all.insert(all.end(), message.bytes.begin() + sizeof head, message.bytes.end());
        }
        return all;
    }
    std::uint64_t refused() const { return worker_.count(WorkerCounter::kRmaRefused); }

    struct Told {
        std::uint64_t address, length, imm;
        bool is_counted;
        bool operator==(const Told&) const = default;
    };

    static std::unique_ptr<proto::Context> make_context() {
        std::unique_ptr<proto::Context> context;
        EXPECT_EQ(proto::Context::create("tcp", &context), UCS_OK);
        return context;
    }

    const std::unique_ptr<proto::Context> context_ = make_context();
    std::vector<std::unique_ptr<proto::Memory>> memories_;
    FakeWorker worker_{4};
    FakeMatchPeer peer_{5};
    FakeUct uct_;
    FakeRail rail_{worker_.options};
    proto::LaneState lane_;
    std::vector<Told> told_;
    proto::RmaTarget target_{
        {context_->memories(), worker_.counters, peer_, lane_, this,
         [](void* test, proto::MatchPeer& from, const tw_completion_t& done, bool is_counted) {
             EXPECT_EQ(done.source, from.worker_id);
             static_cast<RmaTargetPart*>(test)->told_.push_back(
                 {reinterpret_cast<std::uintptr_t>(done.buffer), done.length, done.imm,
                  is_counted});
         }}};
    alignas(8) std::array<std::byte, kPage> bytes_{};
};

// ---- Puts

TEST_F(RmaTargetPart, a_put_writes_and_is_answered_behind_its_last_part) {
    const MemoryRange at = expose(bytes_);
    put(at, 100, false);
    EXPECT_TRUE(peer_.fake.sent.empty());
    put({at.memory, at.address + 100}, 50);
    const RmaReply reply = pop_reply();
    EXPECT_EQ(reply.status, UCS_OK);
    EXPECT_EQ(reply.op_id, 1U);
    EXPECT_EQ(std::ranges::count(bytes_, std::byte{7}), 150);
}

TEST_F(RmaTargetPart, the_first_failure_of_a_put_is_the_one_that_its_reply_has) {
    const MemoryRange at = expose(bytes_);
    put({at.memory + 1, at.address}, 8, false);
    put(at, 8);
    EXPECT_EQ(reply(), UCS_ERR_INVALID_ADDR);
    put(at, 8);
    EXPECT_EQ(reply(), UCS_OK);  // the next one has not failed
    EXPECT_EQ(refused(), 1U);
}

TEST_F(RmaTargetPart, operations_without_a_right_or_outside_of_memory_are_refused) {
    const MemoryRange readable = expose(bytes_, TW_ACCESS_READ);
    std::array<std::byte, 64> other{};
    const MemoryRange writable = expose(other, TW_ACCESS_WRITE);
    put(readable, 8);
    EXPECT_EQ(reply(), UCS_ERR_INVALID_ADDR);
    for (const std::uint64_t past : {other.size() - 7, other.size(), SIZE_MAX - 3}) {
        put({writable.memory, writable.address + past}, 8);
        EXPECT_EQ(reply(), UCS_ERR_INVALID_ADDR) << past;
    }
    ask(RmaKind::kGet, writable, 8);
    run();
    EXPECT_EQ(reply(), UCS_ERR_INVALID_ADDR);
    std::uint64_t before = 0;
    EXPECT_EQ(change(writable, TW_ATOMIC_ADD, TW_UINT64, 1, &before), UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(refused(), 6U);
    EXPECT_TRUE(std::ranges::all_of(other, [](std::byte one) { return one == std::byte{}; }));
    EXPECT_TRUE(uct_.sent.empty());
}

TEST_F(RmaTargetPart, memory_that_is_not_mapped_any_more_is_an_error_of_the_peer) {
    void* const pages =
        ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    const MemoryRange at = expose({static_cast<std::byte*>(pages), kPage});
    ::munmap(pages, kPage);
    put(at, 8);
    EXPECT_NE(reply(), UCS_OK);
    ask(RmaKind::kGet, at, 8);
    run();
    EXPECT_NE(reply(), UCS_OK);
    std::uint64_t before = 0;
    EXPECT_NE(change(at, TW_ATOMIC_ADD, TW_UINT64, 1, &before), UCS_OK);
}

// ---- Gets

TEST_F(RmaTargetPart, a_get_is_answered_piece_by_piece_as_the_lane_has_room) {
    for (std::size_t i = 0; i < bytes_.size(); ++i)
        bytes_[i] = static_cast<std::byte>(i % 251);
    const MemoryRange at = expose(bytes_);
    ask(RmaKind::kGet, at, bytes_.size());
    EXPECT_EQ(peer_.fake.runs, 1U);
    EXPECT_TRUE(target_.has_gets());
    uct_.room_for = 2;
    run();
    EXPECT_TRUE(target_.has_gets());
    EXPECT_EQ(uct_.sent.size(), 2U);
    EXPECT_TRUE(peer_.fake.sent.empty());
    uct_.room_for = SIZE_MAX;
    run();
    EXPECT_FALSE(target_.has_gets());
    EXPECT_EQ(uct_.sent.size(), (bytes_.size() + kEach - 1) / kEach);
    EXPECT_TRUE(std::ranges::equal(data(), bytes_));
    EXPECT_EQ(reply(), UCS_OK);
}

TEST_F(RmaTargetPart, gets_are_answered_in_their_order) {
    const MemoryRange at = expose(bytes_);
    for (std::uint32_t op_id = 1; op_id <= 5; ++op_id)
        ask(RmaKind::kGet, at, 10, op_id);
    run();
    for (std::uint32_t op_id = 1; op_id <= 5; ++op_id)
        EXPECT_EQ(pop_reply().op_id, op_id);
}

TEST_F(RmaTargetPart, a_get_whose_memory_goes_meanwhile_ends_with_an_error) {
    const MemoryRange at = expose(bytes_);
    ask(RmaKind::kGet, at, bytes_.size());
    EXPECT_EQ(target_.send_piece(), UCS_OK);
    memories_.clear();
    EXPECT_EQ(target_.send_piece(), UCS_OK);
    EXPECT_FALSE(target_.has_gets());
    EXPECT_EQ(reply(), UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(uct_.sent.size(), 1U);
}

TEST_F(RmaTargetPart, a_connection_that_ends_has_no_gets_left) {
    const MemoryRange at = expose(bytes_);
    ask(RmaKind::kGet, at, bytes_.size());
    put({at.memory + 1, at.address}, 8, false);
    target_.clear();
    EXPECT_FALSE(target_.has_gets());
    put(at, 8);
    EXPECT_EQ(reply(), UCS_OK);  // of another connection
}

TEST_F(RmaTargetPart, keys_are_told_in_one_message_and_no_more_than_was_asked_for) {
    const MemoryRange at = expose(bytes_);
    proto::Keys keys;
    memories_.back()->list_keys(&keys);
    ask(RmaKind::kKeys, at, sizeof keys.bytes);
    run();
    EXPECT_EQ(data(), std::vector<std::byte>(keys.bytes, keys.bytes + keys.used));
    EXPECT_EQ(reply(), UCS_OK);
    uct_.sent.clear();
    ask(RmaKind::kKeys, {at.memory + 1, 0}, sizeof keys.bytes);
    run();
    EXPECT_TRUE(uct_.sent.empty());
    EXPECT_EQ(reply(), UCS_ERR_INVALID_ADDR);
    if (keys.used > 0) {
        uct_.room_for = 0;
        ask(RmaKind::kKeys, at, 1);
        run();
        EXPECT_TRUE(target_.has_gets());  // it waits for room
        uct_.room_for = SIZE_MAX;
        run();
        EXPECT_EQ(data().size(), 1U);
        EXPECT_EQ(reply(), UCS_OK);
    }
}

// ---- Atomics

TEST_F(RmaTargetPart, atomics_change_numbers_of_both_lengths_and_tell_what_was_there) {
    alignas(8) std::uint64_t number = 40;
    const MemoryRange at = expose(std::as_writable_bytes(std::span(&number, 1)));
    std::uint64_t before = 0;
    EXPECT_EQ(change(at, TW_ATOMIC_ADD, TW_UINT64, 2, &before), UCS_OK);
    EXPECT_EQ(before, 40U);
    EXPECT_EQ(number, 42U);
    EXPECT_EQ(change(at, TW_ATOMIC_CSWAP, TW_UINT64, 7, &before, 41), UCS_OK);
    EXPECT_EQ(number, 42U);
    EXPECT_EQ(change(at, TW_ATOMIC_CSWAP, TW_UINT64, 7, &before, 42), UCS_OK);
    EXPECT_EQ(number, 7U);
    EXPECT_EQ(change(at, TW_ATOMIC_MAX, TW_INT32, 9, &before), UCS_OK);
    EXPECT_EQ(before, 7U);
    EXPECT_EQ(number, 9U);
}

TEST_F(RmaTargetPart, atomics_on_what_is_no_number_or_cannot_be_written_are_refused) {
    const MemoryRange at = expose(bytes_);
    std::uint64_t before = 0;
    EXPECT_EQ(change({at.memory, at.address + 4}, TW_ATOMIC_ADD, TW_UINT64, 1, &before),
              UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(change({at.memory, at.address + 2}, TW_ATOMIC_ADD, TW_UINT32, 1, &before),
              UCS_ERR_INVALID_ADDR);
    void* const pages =
        ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    const MemoryRange protect = expose({static_cast<std::byte*>(pages), kPage});
    ASSERT_EQ(::mprotect(pages, kPage, PROT_READ), 0);
    EXPECT_EQ(change(protect, TW_ATOMIC_ADD, TW_UINT64, 1, &before), UCS_ERR_INVALID_ADDR);
    memories_.pop_back();
    ::munmap(pages, kPage);
}

// ---- Notices, and the limit

TEST_F(RmaTargetPart, a_notice_is_told_if_the_peer_may_write_there) {
    const MemoryRange at = expose(bytes_, TW_ACCESS_WRITE);
    std::array<std::byte, 64> other{};
    const MemoryRange readable = expose(other, TW_ACCESS_READ);
    proto::Notice notice{};
    notice.kind = RmaKind::kPut;
    notice.length = 24;
    notice.imm = 99;
    notice.at = readable;
    target_.on_notice(notice);
    EXPECT_TRUE(told_.empty());
    notice.at = at;
    target_.on_notice(notice);
    EXPECT_EQ(told_, (std::vector{Told{at.address, 24, 99, false}}));
}

TEST_F(RmaTargetPart, a_peer_that_waits_for_no_replies_loses_its_connection) {
    const MemoryRange at = expose(bytes_);
    for (std::size_t i = 0; i < proto::kAskedMax; ++i)
        put(at, 1);
    EXPECT_TRUE(peer_.fake.failures.empty());
    target_.reply_has_gone();
    put(at, 1);
    EXPECT_TRUE(peer_.fake.failures.empty());
    put(at, 1);
    EXPECT_EQ(peer_.fake.failures, std::vector{UCS_ERR_EXCEEDS_LIMIT});
    ask(RmaKind::kGet, at, 1);
    EXPECT_FALSE(target_.has_gets());
}

// ---- A peer that says anything

TEST_F(RmaTargetPart, whatever_a_peer_asks_for_no_other_memory_is_touched_and_each_is_answered) {
    for_each_seed(50, [&](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        const auto pick = [&](std::uint64_t below) { return random() % below; };
        // The middle alone has a key.
        alignas(8) std::array<std::byte, 3 * 64> around;
        around.fill(std::byte{3});
        const MemoryRange at = expose(std::span(around).subspan(64, 64), TW_ACCESS_ALL);
        std::size_t wanted = 0;
        for (unsigned step = 0; step < 300; ++step) {
            const MemoryRange range{at.memory + (pick(4) == 0 ? pick(4) : 0),
                                    at.address + pick(160) - 48};
            switch (pick(4)) {
                case 0: {
                    const bool is_last = pick(2) == 0;
                    put(range, 1 + pick(100), is_last);
                    wanted += is_last ? 1U : 0U;
                    break;
                }
                case 1:
                    ask(RmaKind::kGet, range, pick(100));
                    ++wanted;
                    break;
                case 2:
                    ask(RmaKind::kKeys, range, pick(5000));
                    ++wanted;
                    break;
                default: {
                    std::uint64_t before = 0;
                    run();
                    while (!peer_.fake.sent.empty()) {
                        pop_reply();
                        --wanted;
                    }
                    static_cast<void>(change(range, static_cast<tw_atomic_op_t>(pick(8)),
                                             static_cast<tw_atomic_type_t>(pick(4)), random(),
                                             &before, random()));
                }
            }
            uct_.room_for = pick(3);
            run();
        }
        uct_.room_for = SIZE_MAX;
        run();
        EXPECT_EQ(peer_.fake.sent.size(), wanted);
        while (!peer_.fake.sent.empty())
            pop_reply();
        uct_.sent.clear();
        for (std::size_t i = 0; i < 64; ++i) {
            ASSERT_EQ(around[i], std::byte{3});
            ASSERT_EQ(around[128 + i], std::byte{3});
        }
        memories_.clear();
    });
}

TEST_F(RmaTargetPart, whatever_has_no_memory_each_request_is_answered_once) {
    ASSERT_TRUE(ucs::reserve_open());
    const MemoryRange at = expose(bytes_);
    for (unsigned long which = 1; which < 12; ++which) {
        constexpr std::uint32_t kMany = 200;
        {
            const FailingAllocation failing(which);
            for (std::uint32_t op_id = 1; op_id <= kMany; ++op_id)
                ask(RmaKind::kGet, at, 10, op_id);
        }
        run();
        EXPECT_EQ(peer_.fake.sent.size(), kMany) << which;
        while (!peer_.fake.sent.empty())
            EXPECT_EQ(reply(), UCS_OK);
        uct_.sent.clear();
        target_.clear();
    }
}

}  // namespace
}  // namespace tagwire::test
