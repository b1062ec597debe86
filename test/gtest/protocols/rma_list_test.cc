// SPDX-License-Identifier: BSD-3-Clause
// Lists of puts and gets. Only the public API.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "protocols/rma_pair.hpp"

namespace tagwire::test {
namespace {

/// Local memory with a handle, or without.
class Local {
  public:
    Local(tw_context_h context, std::size_t length, bool is_mapped)
        : bytes(length), context_(context) {
        if (is_mapped) {
            EXPECT_EQ(tw_mem_map(context, bytes.data(), length, nullptr, &mem), TW_OK);
        }
    }
    Local(const Local&) = delete;
    Local& operator=(const Local&) = delete;
    ~Local() {
        if (mem != nullptr) {
            EXPECT_EQ(tw_mem_unmap(context_, mem), TW_OK);
        }
    }

    Bytes bytes;
    tw_mem_h mem = nullptr;

  private:
    tw_context_h context_;
};

tw_list_t list_of(const std::vector<tw_piece_t>& pieces,
                  const std::vector<tw_stride_t>& strides = {}) {
    tw_list_t list{};
    list.pieces = pieces.data();
    list.piece_count = pieces.size();
    list.strides = strides.data();
    list.stride_count = strides.size();
    return list;
}

class MsgRmaList : public RmaTest {
  protected:
    static constexpr std::size_t kBytes = 4'000'000;

    tw_status_t put_list(tw_ep_h ep, const tw_list_t& list, std::uint32_t flags = 0,
                         std::uint64_t imm = 0) {
        tw_op_t how{};
        how.flags = flags;
        how.imm = imm;
        return run([&](tw_request_h* request) { return tw_put_list(ep, &list, &how, request); });
    }
    tw_status_t get_list(tw_ep_h ep, const tw_list_t& list) {
        return run([&](tw_request_h* request) { return tw_get_list(ep, &list, nullptr, request); });
    }
    /// Pieces of all sizes, in turns of both memories, without gaps in the local one and with some
    /// in the others; in any order.
    static std::vector<tw_piece_t> mixed(Local& local, const Shared& one, tw_key_h one_key,
                                         const Shared& other, tw_key_h other_key) {
        constexpr std::size_t kSizes[] = {8,    0,     1,    100,    4096,  9000,
                                          2048, 70001, 2049, 300000, 12345, 64};
        std::vector<tw_piece_t> pieces;
        std::size_t at = 0, there[2] = {3, 5};
        for (std::size_t i = 0;; ++i) {
            const std::size_t length = kSizes[i % std::size(kSizes)];
            const bool is_one = i % 3 != 0;
            std::size_t& place = there[is_one ? 0 : 1];
            if (at + length > local.bytes.size() || place + length > kBytes)
                break;
            const Shared& memory = is_one ? one : other;
            pieces.push_back({local.bytes.data() + at, memory.address() + place, length,
                              is_one ? one_key : other_key, local.mem});
            at += length;
            place += length + i % 7;
        }
        std::shuffle(pieces.begin(), pieces.end(), std::mt19937_64(7));
        return pieces;
    }
    static void expect_same(const std::vector<tw_piece_t>& pieces) {
        std::size_t wrong = 0;
        for (const tw_piece_t& piece : pieces)
            wrong += std::memcmp(piece.local, reinterpret_cast<const void*>(piece.remote),
                                 piece.length) != 0;
        EXPECT_EQ(wrong, 0U);
    }
    /// Pieces that a list has in a test: fewer where each is a message.
    std::size_t many(Shared::Kind kind) const {
        const char* const calls = std::getenv("TAGWIRE_SM_CMA");
        const bool is_by_messages = transports() == "ud" || transports() == "tcp" ||
                                    (calls != nullptr && std::string(calls) == "off");
        return is_by_messages || kind == Shared::Kind::kMapped ? 20'000 : 1'000'001;
    }
};

TEST_F(MsgRmaList, pieces_of_several_memories_move_as_one_operation) {
    for (const auto kind : {Shared::Kind::kMapped, Shared::Kind::kAllocated}) {
        const Shared one(context_.get(), kBytes, kind), other(context_.get(), kBytes);
        const tw_ep_h ep = connected(node(0), node(1));
        const tw_key_h one_key = one.key_for(node(0)), other_key = other.key_for(node(0));
        for (const bool is_mapped : {true, false}) {
            SCOPED_TRACE(is_mapped ? "with handles" : "without");
            Local local(context_.get(), kBytes, is_mapped);
            std::ranges::copy(pattern(kBytes, is_mapped ? 1 : 2), local.bytes.begin());
            const auto pieces = mixed(local, one, one_key, other, other_key);
            ASSERT_EQ(put_list(ep, list_of(pieces), TW_OP_DELIVERY_COMPLETE), TW_OK);
            expect_same(pieces);
            const Bytes before = local.bytes;
            std::ranges::fill(local.bytes, std::byte{0});
            ASSERT_EQ(get_list(ep, list_of(pieces)), TW_OK);
            expect_same(pieces);
            const auto& last = pieces.back();
            EXPECT_EQ(std::memcmp(before.data() +
                                      (static_cast<std::byte*>(last.local) - local.bytes.data()),
                                  last.local, last.length),
                      0);
        }
        tw_key_free(one_key);
        tw_key_free(other_key);
    }
}

TEST_F(MsgRmaList, strides_go_up_and_down) {
    constexpr std::size_t kCount = 1000, kLength = 24;
    for (const auto kind : {Shared::Kind::kMapped, Shared::Kind::kAllocated}) {
        const Shared memory(context_.get(), kCount * 64, kind);
        const tw_ep_h ep = connected(node(0), node(1));
        const tw_key_h key = memory.key_for(node(0));
        Local local(context_.get(), kCount * 32, true);
        std::iota(reinterpret_cast<std::uint32_t*>(local.bytes.data()),
                  reinterpret_cast<std::uint32_t*>(local.bytes.data()) + kCount * 8, 1U);
        // Up in local memory, and down in remote memory.
        tw_stride_t stride{};
        stride.local = local.bytes.data();
        stride.remote = memory.address() + (kCount - 1) * 64;
        stride.length = kLength;
        stride.count = kCount;
        stride.local_distance = 32;
        stride.remote_distance = -64;
        stride.key = key;
        stride.mem = local.mem;
        ASSERT_EQ(put_list(ep, list_of({}, {stride}), TW_OP_DELIVERY_COMPLETE), TW_OK);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < kCount; ++i)
            wrong += std::memcmp(local.bytes.data() + 32 * i, memory.at() + 64 * (kCount - 1 - i),
                                 kLength) != 0 ||
                     memory.at()[64 * i + kLength] != std::byte{0};
        EXPECT_EQ(wrong, 0U);
        // One number from everywhere: the local distance is 0.
        const std::uint64_t last = 4711;
        std::memcpy(memory.at(), &last, sizeof last);
        stride.length = sizeof last;
        stride.local_distance = 0;
        ASSERT_EQ(get_list(ep, list_of({}, {stride})), TW_OK);
        tw_key_free(key);
    }
}

TEST_F(MsgRmaList, lists_of_nothing_end_well) {
    const Shared memory(context_.get(), 64);
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h key = memory.key_for(node(0));
    std::uint64_t word = 0;
    tw_stride_t none{&word, memory.address(), 8, 0, 8, 8, key, nullptr};
    EXPECT_EQ(put_list(ep, list_of({}), TW_OP_DELIVERY_COMPLETE), TW_OK);
    EXPECT_EQ(get_list(ep, list_of({})), TW_OK);
    EXPECT_EQ(put_list(ep, list_of({{nullptr, 0, 0, key, nullptr}}, {none})), TW_OK);
    EXPECT_EQ(get_list(ep, list_of({{nullptr, 0, 0, key, nullptr}}, {none})), TW_OK);
    EXPECT_EQ(put_list(ep, list_of({}), TW_OP_IMM), TW_ERR_INVALID_PARAM);
    node(1).done.clear();
    EXPECT_EQ(put_list(ep, list_of({{nullptr, memory.address(), 0, key, nullptr}}), TW_OP_IMM, 5),
              TW_OK);
    run_until([&] { return !node(1).done.empty(); });
    EXPECT_EQ(node(1).done.front().imm, 5U);
    EXPECT_EQ(node(1).done.front().length, 0U);
    tw_key_free(key);
}

TEST_F(MsgRmaList, the_target_is_told_once_when_all_of_it_is_visible) {
    tw_counter_h counter = nullptr;
    ASSERT_EQ(tw_counter_create(&counter), TW_OK);
    {
        const Shared one(context_.get(), kBytes, Shared::Kind::kMapped, 0, counter);
        const Shared other(context_.get(), kBytes, Shared::Kind::kAllocated);
        const tw_ep_h ep = connected(node(0), node(1));
        const tw_key_h one_key = one.key_for(node(0)), other_key = other.key_for(node(0));
        Local local(context_.get(), kBytes, true);
        auto pieces = mixed(local, one, one_key, other, other_key);
        const auto told = [&] {
            std::uint64_t count = 0;
            EXPECT_EQ(tw_counter_read(counter, &count, nullptr), TW_OK);
            return count;
        };
        for (std::uint64_t round = 1; round <= 4; ++round) {
            // The first piece is in the memory that counts in even rounds, and in odd in the other.
            const auto first = std::ranges::find_if(pieces, [&](const tw_piece_t& piece) {
                return piece.key == (round % 2 == 0 ? one_key : other_key);
            });
            std::iter_swap(pieces.begin(), first);
            node(1).done.clear();
            for (std::size_t i = 0; i < kBytes; ++i)
                local.bytes[i] = static_cast<std::byte>(i * 7 + round);
            const std::uint64_t before = told();
            ASSERT_EQ(put_list(ep, list_of(pieces), TW_OP_IMM, round), TW_OK);
            const auto has_come = [&] { return told() > before || !node(1).done.empty(); };
            run_until(has_come);
            expect_same(pieces);
            run_some();
            EXPECT_EQ(told() - before, round % 2 == 0 ? 1U : 0U);
            ASSERT_EQ(node(1).done.size(), round % 2 == 0 ? 0U : 1U);
            if (round % 2 == 1) {
                const tw_completion_t& done = node(1).done.front();
                EXPECT_EQ(done.imm, round);
                EXPECT_EQ(reinterpret_cast<std::uintptr_t>(done.buffer), pieces.front().remote);
                EXPECT_EQ(done.length, std::accumulate(pieces.begin(), pieces.end(), std::size_t{0},
                                                       [](std::size_t sum, const tw_piece_t& each) {
                                                           return sum + each.length;
                                                       }));
            }
        }
        tw_key_free(one_key);
        tw_key_free(other_key);
    }
    tw_counter_destroy(counter);
}

TEST_F(MsgRmaList, more_than_a_million_pieces_are_one_operation) {
    for (const auto kind : {Shared::Kind::kMapped, Shared::Kind::kAllocated}) {
        const std::size_t count = many(kind);
        const Shared memory(context_.get(), count * 8, kind);
        const tw_ep_h ep = connected(node(0), node(1));
        const tw_key_h key = memory.key_for(node(0));
        Local local(context_.get(), count * 8, true);
        std::vector<tw_piece_t> pieces(count);
        for (std::size_t i = 0; i < count; ++i) {
            std::memcpy(local.bytes.data() + 8 * i, &i, 8);
            // Backwards in the other memory.
            pieces[i] = {local.bytes.data() + 8 * i, memory.address() + 8 * (count - 1 - i), 8, key,
                         local.mem};
        }
        ASSERT_EQ(put_list(ep, list_of(pieces), TW_OP_DELIVERY_COMPLETE), TW_OK);
        expect_same(pieces);
        std::ranges::fill(local.bytes, std::byte{0});
        ASSERT_EQ(get_list(ep, list_of(pieces)), TW_OK);
        expect_same(pieces);
        tw_key_free(key);
        destroy_nodes();
    }
}

TEST_F(MsgRmaList, overlapping_pieces_are_allowed) {
    const Shared memory(context_.get(), 4096);
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h key = memory.key_for(node(0));
    const Bytes zeroes(2048, std::byte{0x11}), ones(2048, std::byte{0x22});
    std::vector<tw_piece_t> pieces;
    for (std::size_t i = 0; i < 40; ++i)
        pieces.push_back({const_cast<std::byte*>(i % 2 == 0 ? zeroes.data() : ones.data()),
                          memory.address() + 16 * i, 2048, key, nullptr});
    ASSERT_EQ(put_list(ep, list_of(pieces), TW_OP_DELIVERY_COMPLETE), TW_OK);
    for (std::size_t i = 0; i < 39 * 16 + 2048; ++i)
        ASSERT_TRUE(memory.at()[i] == std::byte{0x11} || memory.at()[i] == std::byte{0x22}) << i;
    EXPECT_EQ(memory.at()[39 * 16 + 2048], std::byte{0});
    tw_key_free(key);
}

// ---- Refusals

TEST_F(MsgRmaList, a_wrong_piece_is_named_and_nothing_happens) {
    const Shared memory(context_.get(), 1000);
    const Shared readable(context_.get(), 1000, Shared::Kind::kMapped, TW_ACCESS_READ);
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h key = memory.key_for(node(0)), read_key = readable.key_for(node(0));
    const tw_key_h foreign = memory.key_for(node(2));
    Local local(context_.get(), 1000, true);
    std::ranges::fill(local.bytes, std::byte{1});
    const tw_piece_t good{local.bytes.data(), memory.address(), 8, key, local.mem};
    const auto expect = [&](tw_piece_t wrong, tw_status_t status, bool is_put = true) {
        std::vector<tw_piece_t> pieces(30, good);
        pieces[17] = wrong;
        ::testing::internal::CaptureStderr();
        EXPECT_EQ(is_put ? put_list(ep, list_of(pieces)) : get_list(ep, list_of(pieces)), status);
        EXPECT_NE(::testing::internal::GetCapturedStderr().find("piece 17"), std::string::npos);
    };
    const auto but = [&](auto change) {
        tw_piece_t piece = good;
        change(piece);
        return piece;
    };
    expect(but([&](tw_piece_t& p) { p.key = nullptr; }), TW_ERR_INVALID_PARAM);
    expect(but([&](tw_piece_t& p) { p.key = foreign; }), TW_ERR_INVALID_PARAM);
    expect(but([&](tw_piece_t& p) { p.local = nullptr; }), TW_ERR_INVALID_PARAM);
    expect(but([&](tw_piece_t& p) { p.remote += 993; }), TW_ERR_INVALID_ADDR);
    expect(but([&](tw_piece_t& p) { p.remote -= 1; }), TW_ERR_INVALID_ADDR);
    expect(but([&](tw_piece_t& p) { p.local = &p; }), TW_ERR_INVALID_PARAM);
    expect(but([&](tw_piece_t& p) { p.length = SIZE_MAX - 3; }), TW_ERR_INVALID_ADDR);
    expect(but([&](tw_piece_t& p) {
               p.key = read_key;
               p.remote = readable.address();
           }),
           TW_ERR_INVALID_ADDR);
    // Strides.
    const tw_stride_t stride{local.bytes.data(), memory.address(), 8, 10, 8, 8, key, local.mem};
    const auto expect_stride = [&](auto change, tw_status_t status) {
        tw_stride_t wrong = stride;
        change(wrong);
        ::testing::internal::CaptureStderr();
        EXPECT_EQ(put_list(ep, list_of({good}, {stride, wrong})), status);
        EXPECT_NE(::testing::internal::GetCapturedStderr().find("stride 1"), std::string::npos);
    };
    expect_stride([&](tw_stride_t& s) { s.remote_distance = 200; }, TW_ERR_INVALID_ADDR);
    expect_stride([&](tw_stride_t& s) { s.remote_distance = -8; }, TW_ERR_INVALID_ADDR);
    expect_stride([&](tw_stride_t& s) { s.remote_distance = PTRDIFF_MAX; }, TW_ERR_INVALID_ADDR);
    expect_stride([&](tw_stride_t& s) { s.local_distance = -8; }, TW_ERR_INVALID_PARAM);
    expect_stride([&](tw_stride_t& s) { s.count = SIZE_MAX; }, TW_ERR_INVALID_ADDR);
    expect_stride([&](tw_stride_t& s) { s.key = nullptr; }, TW_ERR_INVALID_PARAM);
    // The rest.
    tw_list_t list = list_of({good});
    list.pieces = nullptr;
    EXPECT_EQ(put_list(ep, list), TW_ERR_INVALID_PARAM);
    list = {};
    list.stride_count = 1;
    EXPECT_EQ(put_list(ep, list), TW_ERR_INVALID_PARAM);
    list = {};
    list.struct_bytes = 3;
    EXPECT_EQ(put_list(ep, list), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_put_list(ep, nullptr, nullptr, nullptr), TW_ERR_INVALID_PARAM);
    list = {};
    EXPECT_EQ(tw_put_list(nullptr, &list, nullptr, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(put_list(ep, list, TW_OP_INJECT), TW_ERR_INVALID_PARAM);
    tw_op_t how{};
    how.mem = local.mem;
    EXPECT_EQ(tw_put_list(ep, &list, &how, nullptr), TW_ERR_INVALID_PARAM);
    tw_prepared_h prepared = nullptr;
    EXPECT_EQ(tw_prepare(node(0).worker(), TW_RMA_ATOMIC, &list, &prepared), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_prepare(nullptr, TW_RMA_PUT, &list, &prepared), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_prepare(node(0).worker(), TW_RMA_PUT, nullptr, &prepared), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_run_prepared(ep, nullptr, nullptr, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(memory.number<std::uint64_t>(), 0U);
    for (const tw_key_h each : {key, read_key, foreign})
        tw_key_free(each);
}

// ---- Prepared lists

TEST_F(MsgRmaList, a_prepared_list_is_used_again_and_again) {
    const Shared one(context_.get(), kBytes), other(context_.get(), kBytes);
    const tw_ep_h ep = connected(node(0), node(1)), second = connected(node(0), node(2));
    const tw_key_h one_key = one.key_for(node(0)), other_key = other.key_for(node(0));
    Local local(context_.get(), 1'000'000, true);
    tw_prepared_h puts = nullptr, gets = nullptr;
    std::vector<tw_piece_t> kept;
    {
        const auto pieces = mixed(local, one, one_key, other, other_key);
        const tw_list_t list = list_of(pieces);
        ASSERT_EQ(tw_prepare(node(0).worker(), TW_RMA_PUT, &list, &puts), TW_OK);
        ASSERT_EQ(tw_prepare(node(0).worker(), TW_RMA_GET, &list, &gets), TW_OK);
        kept = pieces;
    }
    tw_key_free(one_key);
    tw_key_free(other_key);
    tw_op_t delivered{};
    delivered.flags = TW_OP_DELIVERY_COMPLETE;
    for (int round = 0; round < 6; ++round) {
        const tw_ep_h by = round % 2 == 0 ? ep : second;
        std::ranges::fill(local.bytes, static_cast<std::byte>(round + 1));
        ASSERT_EQ(run([&](tw_request_h* request) {
                      return tw_run_prepared(by, puts, &delivered, request);
                  }),
                  TW_OK);
        expect_same(kept);
        std::ranges::fill(local.bytes, std::byte{0});
        ASSERT_EQ(
            run([&](tw_request_h* request) { return tw_run_prepared(by, gets, nullptr, request); }),
            TW_OK);
        expect_same(kept);
    }
    EXPECT_EQ(tw_run_prepared(connected(node(1), node(2)), puts, nullptr, nullptr),
              TW_ERR_INVALID_PARAM);
    // Several at a time, and freed while they are under way.
    std::deque<tw_request_h> requests;
    for (int i = 0; i < 5; ++i) {
        tw_request_h& request = requests.emplace_back(nullptr);
        tw_run_prepared(ep, puts, &delivered, &request);
    }
    tw_prepared_free(puts);
    tw_prepared_free(gets);
    for (const tw_request_h request : requests) {
        if (request == nullptr)
            continue;
        run_until([&] { return tw_request_test(request, nullptr) != TW_INPROGRESS; });
        EXPECT_EQ(tw_request_test(request, nullptr), TW_OK);
        tw_request_free(request);
    }
    expect_same(kept);
}

// ---- Ends

/// A list under way for each test of ends.
class MsgRmaListEnds : public MsgRmaList {
  protected:
    static constexpr int kRounds[] = {0, 1, 2, 5, 30, 300};

    /// Begins lists, and lets both sides progress for some rounds.
    void begin(int rounds, bool is_connected) {
        memory_ = std::make_unique<Shared>(context_.get(), kBytes);
        other_ = std::make_unique<Shared>(context_.get(), kBytes, Shared::Kind::kAllocated);
        ep_ = is_connected ? connected(node(0), node(1)) : node(0).to(node(1));
        key_ = memory_->key_for(node(0));
        other_key_ = other_->key_for(node(0));
        local_ = std::make_unique<Local>(context_.get(), kBytes, true);
        pieces_ = mixed(*local_, *memory_, key_, *other_, other_key_);
        list_ = list_of(pieces_);
        node(0).done.clear();
        expected_ = 0;
        for (int i = 0; i < 4; ++i) {
            tw_op_t how =
                op(this, TW_OP_COMPLETION | (i % 2 == 0 ? unsigned{TW_OP_DELIVERY_COMPLETE} : 0U));
            tw_op_t plain = op(this, TW_OP_COMPLETION);
            const tw_status_t status = i < 2 ? tw_put_list(ep_, &list_, &how, &requests_[i])
                                             : tw_get_list(ep_, &list_, &plain, &requests_[i]);
            expected_ += status == TW_INPROGRESS;
        }
        for (int i = 0; i < rounds; ++i) {
            node(0).progress();
            node(1).progress();
        }
    }
    void expect_all_end() {
        run_until([&] { return node(0).done.size() >= expected_; });
        run_some();
        EXPECT_EQ(node(0).done.size(), expected_);
    }
    void clear() {
        for (tw_request_h& request : requests_)
            request = nullptr;  // reported by the queue
        tw_key_free(key_);
        tw_key_free(other_key_);
        destroy_nodes();
        local_.reset();
        memory_.reset();
        other_.reset();
    }

    std::unique_ptr<Shared> memory_, other_;
    std::unique_ptr<Local> local_;
    std::vector<tw_piece_t> pieces_;
    tw_list_t list_{};
    tw_ep_h ep_ = nullptr;
    tw_key_h key_ = nullptr, other_key_ = nullptr;
    tw_request_h requests_[4] = {};
    std::size_t expected_ = 0;
};

TEST_F(MsgRmaListEnds, lists_are_cancelled_in_each_phase) {
    for (const bool is_connected : {false, true}) {
        for (const int rounds : kRounds) {
            SCOPED_TRACE(testing::Message() << rounds << " rounds");
            begin(rounds, is_connected);
            if (node(0).done.empty()) {
                for (const tw_request_h request : requests_)
                    if (request != nullptr) {
                        EXPECT_EQ(tw_request_cancel(request), TW_OK);
                    }
            }
            expect_all_end();
            for (const tw_completion_t& done : node(0).done)
                EXPECT_TRUE(done.status == TW_OK || done.status == TW_ERR_CANCELED) << done.status;
            EXPECT_EQ(flush(ep_), TW_OK);  // the endpoint works on
            const std::vector<tw_piece_t> some(pieces_.begin(), pieces_.begin() + 5);
            EXPECT_EQ(put_list(ep_, list_of(some), TW_OP_DELIVERY_COMPLETE), TW_OK);
            expect_same(some);
            clear();
        }
    }
}

TEST_F(MsgRmaListEnds, lists_on_an_endpoint_that_is_closed_by_force_end_once) {
    for (const bool is_connected : {false, true}) {
        for (const int rounds : kRounds) {
            SCOPED_TRACE(testing::Message() << rounds << " rounds");
            begin(rounds, is_connected);
            EXPECT_EQ(tw_ep_close(ep_, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
            expect_all_end();
            clear();
        }
    }
}

TEST_F(MsgRmaListEnds, lists_whose_peer_goes_end_once) {
    for (const int rounds : kRounds) {
        SCOPED_TRACE(testing::Message() << rounds << " rounds");
        begin(rounds, true);
        forget_last_node();
        expect_all_end();
        clear();
    }
}

TEST_F(MsgRmaListEnds, a_list_into_memory_that_was_unmapped_fails) {
    begin(0, true);
    expect_all_end();
    memory_->unmap();
    EXPECT_NE(put_list(ep_, list_, TW_OP_DELIVERY_COMPLETE), TW_OK);
    clear();
}

// ---- Beside others

TEST_F(MsgRmaList, lists_and_messages_pass_each_other) {
    constexpr int kLists = 12, kMessages = 3000;
    const Shared one(context_.get(), kBytes), other(context_.get(), kBytes);
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h one_key = one.key_for(node(0)), other_key = other.key_for(node(0));
    Local local(context_.get(), kBytes, true);
    const auto pieces = mixed(local, one, one_key, other, other_key);
    const tw_list_t list = list_of(pieces);
    int lists = 0, ended = 0, sent = 0, received = 0;
    std::uint64_t got = 0;
    bool is_wrong = false;
    tw_op_t how{};
    how.flags = TW_OP_COMPLETION;
    how.context = &ended;
    how.complete = [](const tw_completion_t* done) {
        *static_cast<int*>(done->context) += done->status == TW_OK ? 1 : 1000;
    };
    tw_request_h receive = nullptr;
    const auto post = [&] {
        return tw_tag_recv(node(1).worker(), &got, sizeof got, 7, 0, nullptr, &receive);
    };
    tw_status_t status = post();
    run_until([&] {
        if (lists < kLists) {
            const tw_status_t begun = lists % 2 == 0 ? tw_put_list(ep, &list, &how, nullptr)
                                                     : tw_get_list(ep, &list, &how, nullptr);
            lists += begun >= TW_OK;
        }
        const auto number = static_cast<std::uint64_t>(sent);
        tw_op_t injected{};
        injected.flags = TW_OP_INJECT;
        if (sent < kMessages &&
            tw_tag_send(ep, &number, sizeof number, 7, &injected, nullptr) >= TW_OK)
            ++sent;
        if (status == TW_INPROGRESS && tw_request_test(receive, nullptr) != TW_INPROGRESS) {
            status = tw_request_test(receive, nullptr);
            tw_request_free(receive);
        }
        if (status == TW_OK) {
            is_wrong = is_wrong || got != static_cast<std::uint64_t>(received);
            if (++received < kMessages)
                status = post();
        }
        return received == kMessages && ended >= kLists;
    });
    EXPECT_FALSE(is_wrong);
    EXPECT_EQ(ended, kLists);
    tw_key_free(one_key);
    tw_key_free(other_key);
}

TEST_F(MsgRmaList, a_fence_waits_for_lists) {
    const Shared one(context_.get(), kBytes), other(context_.get(), kBytes);
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h one_key = one.key_for(node(0)), other_key = other.key_for(node(0));
    Local local(context_.get(), kBytes, true), read(context_.get(), kBytes, true);
    const auto puts = mixed(local, one, one_key, other, other_key);
    const auto gets = mixed(read, one, one_key, other, other_key);
    for (std::size_t i = 0; i < kBytes; ++i)
        local.bytes[i] = static_cast<std::byte>(i * 31 >> 3);
    const tw_list_t to = list_of(puts), from = list_of(gets);
    tw_request_h first = nullptr;
    const tw_status_t begun = tw_put_list(ep, &to, nullptr, &first);
    ASSERT_GE(begun, TW_OK);
    tw_op_t fenced{};
    fenced.flags = TW_OP_FENCE;
    EXPECT_EQ(run([&](tw_request_h* request) { return tw_get_list(ep, &from, &fenced, request); }),
              TW_OK);
    EXPECT_EQ(end(begun, first), TW_OK);
    const std::size_t moved = std::accumulate(
        puts.begin(), puts.end(), std::size_t{0},
        [](std::size_t sum, const tw_piece_t& piece) { return sum + piece.length; });
    EXPECT_TRUE(std::equal(local.bytes.begin(),
                           local.bytes.begin() + static_cast<std::ptrdiff_t>(moved),
                           read.bytes.begin()));
    tw_key_free(one_key);
    tw_key_free(other_key);
}

}  // namespace
}  // namespace tagwire::test
