// SPDX-License-Identifier: BSD-3-Clause
// Operations do as tw_key_explain() says.
#include <cstdlib>
#include <string>

#include "protocols/rma_pair.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kWindowBytes = 1 << 20;

struct Asked {
    tw_rma_kind_t kind;
    tw_atomic_op_t operation;
    std::size_t length;
};
constexpr Asked kAsked[] = {
    {TW_RMA_PUT, TW_ATOMIC_ADD, 0},    {TW_RMA_PUT, TW_ATOMIC_ADD, 8},
    {TW_RMA_PUT, TW_ATOMIC_ADD, 1500}, {TW_RMA_PUT, TW_ATOMIC_ADD, kWindowBytes},
    {TW_RMA_GET, TW_ATOMIC_ADD, 8},    {TW_RMA_GET, TW_ATOMIC_ADD, kWindowBytes},
    {TW_RMA_ATOMIC, TW_ATOMIC_ADD, 8}, {TW_RMA_ATOMIC, TW_ATOMIC_CSWAP, 8},
    {TW_RMA_ATOMIC, TW_ATOMIC_MAX, 8}, {TW_RMA_ATOMIC, TW_ATOMIC_ADD, 4},
};

class MsgRmaExplain : public RmaTest {
  protected:
    static tw_rma_explanation_t explain(tw_key_h key, const Asked& asked, bool is_mapped = false) {
        tw_rma_explanation_t told{};
        EXPECT_EQ(tw_key_explain(key, asked.kind, asked.operation, asked.length, is_mapped ? 1 : 0,
                                 &told),
                  TW_OK);
        return told;
    }
    tw_status_t start(tw_ep_h ep, const Asked& asked, Bytes& bytes, std::uint64_t address,
                      tw_key_h key, tw_request_h* request) {
        tw_op_t how{};
        how.flags = TW_OP_DELIVERY_COMPLETE;
        if (asked.kind == TW_RMA_PUT)
            return tw_put(ep, bytes.data(), asked.length, address, key, &how, request);
        if (asked.kind == TW_RMA_GET)
            return tw_get(ep, bytes.data(), asked.length, address, key, nullptr, request);
        const tw_atomic_type_t type = asked.length == 4 ? TW_UINT32 : TW_UINT64;
        const std::uint64_t one = 1;
        if (asked.operation == TW_ATOMIC_CSWAP)
            return tw_atomic_cswap(ep, type, &one, &one, bytes.data(), address, key, nullptr,
                                   request);
        return tw_atomic(ep, asked.operation, type, &one, address, key, &how, request);
    }
};

TEST_F(MsgRmaExplain, what_does_not_need_the_peer_ends_without_its_progress) {
    // Between workers of one process shared memory asks nobody, whatever it has to do elsewhere.
    const tw_ep_h ep = connected(node(0), node(1));
    for (const auto kind : {Shared::Kind::kMapped, Shared::Kind::kAllocated}) {
        const Shared memory(context_.get(), kWindowBytes, kind);
        const tw_key_h key = memory.key_for(ep);
        for (const Asked& asked : kAsked) {
            const tw_rma_explanation_t told = explain(key, asked);
            EXPECT_NE(told.reason, nullptr);
            EXPECT_NE(transports().find(told.transport), std::string::npos) << told.transport;
            if (transports() == "ud") {
                EXPECT_STREQ(told.way, asked.length == 0 ? "nothing" : "messages");
            }
            // Messages of shared memory itself, where it may not read the peer, are not told.
            const bool is_by_messages = std::getenv("TAGWIRE_SM_CMA") != nullptr &&
                                        std::string(told.transport) == "sm" &&
                                        kind == Shared::Kind::kMapped;
            if (told.needs_peer != 0 || is_by_messages)
                continue;
            Bytes bytes(kWindowBytes);
            tw_request_h request = nullptr;
            tw_status_t status = start(ep, asked, bytes, memory.address(), key, &request);
            constexpr int kMost = 20'000'000;
            for (int i = 0; status == TW_INPROGRESS && i < kMost; ++i) {
                node(0).progress();
                status = tw_request_test(request, nullptr);
            }
            EXPECT_EQ(status, TW_OK) << told.way << ", " << asked.length << " bytes";
            if (request != nullptr)
                tw_request_free(request);
        }
        tw_key_free(key);
    }
}

TEST_F(MsgRmaExplain, long_data_over_several_rails_is_said_to_be_divided) {
    const Shared memory(context_.get(), kWindowBytes);
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h key = memory.key_for(ep);
    const Asked put{TW_RMA_PUT, TW_ATOMIC_ADD, kWindowBytes};
    EXPECT_EQ(explain(key, put, false).striped_from, SIZE_MAX);
    const tw_rma_explanation_t told = explain(key, put, true);
    EXPECT_EQ(std::string(told.way) == "striped", told.striped_from <= kWindowBytes) << told.way;
    tw_key_free(key);
}

/// A packed key without the keys of domains, as if all of them had found no room.
std::string stripped(const Shared& memory, std::uint64_t length) {
    constexpr std::size_t kRightsAndId = 7;
    std::string bytes = memory.packed().substr(0, kRightsAndId) + '\xff';
    const std::uint64_t address = memory.address();
    for (const std::uint64_t word : {address, length})
        bytes.append(reinterpret_cast<const char*>(&word), sizeof word);
    return bytes;
}

TEST_F(MsgRmaExplain, keys_that_the_packed_one_has_no_room_for_come_from_the_owner) {
    const Asked asked{TW_RMA_PUT, TW_ATOMIC_ADD, 8};
    for (const bool is_connected : {false, true}) {
        const Shared memory(context_.get(), kWindowBytes, Shared::Kind::kAllocated);
        const std::string bytes = stripped(memory, kWindowBytes);
        Node from(context_.get(), TW_THREAD_SINGLE), to(context_.get(), TW_THREAD_SINGLE);
        const tw_ep_h ep = from.to(to);
        const auto run_both = [&](const auto& is_over) {
            for (int i = 0; i < 50'000'000 && !is_over(); ++i) {
                from.progress();
                to.progress();
            }
            EXPECT_TRUE(is_over());
        };
        tw_request_h flush = nullptr;
        if (is_connected && tw_ep_flush(ep, nullptr, &flush) == TW_INPROGRESS) {
            run_both([&] { return tw_request_test(flush, nullptr) != TW_INPROGRESS; });
            tw_request_free(flush);
        }
        tw_key_h key = nullptr;
        ASSERT_EQ(tw_key_unpack(ep, bytes.data(), bytes.size(), &key), TW_OK);
        // It serves at once, by messages.
        const auto put = [&](std::uint64_t value, std::size_t at) {
            tw_request_h request = nullptr;
            tw_op_t how{};
            how.flags = TW_OP_DELIVERY_COMPLETE;
            tw_status_t status = TW_ERR_NO_RESOURCE;
            run_both([&] {
                if (status == TW_ERR_NO_RESOURCE)
                    status = tw_put(ep, &value, sizeof value, memory.address() + at, key, &how,
                                    &request);
                else if (status == TW_INPROGRESS)
                    status = tw_request_test(request, nullptr);
                return status != TW_ERR_NO_RESOURCE && status != TW_INPROGRESS;
            });
            if (request != nullptr)
                tw_request_free(request);
            EXPECT_EQ(status, TW_OK);
            EXPECT_EQ(memory.number<std::uint64_t>(at), value);
        };
        put(4711, 8);
        if (transports() == "ud") {
            EXPECT_STREQ(explain(key, asked).way, "messages");
        } else {
            run_both([&] { return std::string(explain(key, asked).way) != "messages"; });
            put(4712, 16);
            void* pointer = nullptr;
            EXPECT_EQ(tw_key_pointer(key, memory.address(), &pointer) == TW_OK,
                      std::string(explain(key, asked).way) == "stores");
        }
        tw_key_free(key);
        EXPECT_EQ(tw_ep_close(ep, TW_EP_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    }
}

TEST_F(MsgRmaExplain, an_owner_has_no_keys_of_memory_that_it_has_unmapped) {
    Shared memory(context_.get(), 4096);
    const std::string bytes = stripped(memory, 4096);
    memory.unmap();
    const tw_ep_h ep = connected(node(0), node(1));
    tw_key_h key = nullptr;
    ASSERT_EQ(tw_key_unpack(ep, bytes.data(), bytes.size(), &key), TW_OK);
    EXPECT_EQ(flush(ep), TW_OK);
    const Asked asked{TW_RMA_PUT, TW_ATOMIC_ADD, 8};
    EXPECT_STREQ(explain(key, asked).way, "messages");
    const std::uint64_t word = 1;
    EXPECT_EQ(put(ep, &word, 8, memory.address(), key, TW_OP_DELIVERY_COMPLETE),
              TW_ERR_INVALID_ADDR);
    tw_key_free(key);
}

TEST_F(MsgRmaExplain, bad_questions_are_refused) {
    const Shared memory(context_.get(), 64);
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h key = memory.key_for(ep);
    tw_rma_explanation_t told{};
    const auto ask = [&](int kind, int operation, std::size_t length) {
        return tw_key_explain(key, static_cast<tw_rma_kind_t>(kind),
                              static_cast<tw_atomic_op_t>(operation), length, 0, &told);
    };
    EXPECT_EQ(ask(TW_RMA_ATOMIC, TW_ATOMIC_ADD, 2), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(ask(TW_RMA_ATOMIC, TW_ATOMIC_CSWAP + 1, 8), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(ask(TW_RMA_ATOMIC + 1, TW_ATOMIC_ADD, 8), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(ask(TW_RMA_PUT, 99, 3), TW_OK);
    EXPECT_EQ(tw_key_explain(nullptr, TW_RMA_PUT, TW_ATOMIC_ADD, 8, 0, &told),
              TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_key_explain(key, TW_RMA_PUT, TW_ATOMIC_ADD, 8, 0, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_ep_close(ep, TW_EP_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    run_some();
    EXPECT_EQ(ask(TW_RMA_PUT, TW_ATOMIC_ADD, 8), TW_ERR_NOT_CONNECTED);
    tw_key_free(key);
}

}  // namespace
}  // namespace tagwire::test
