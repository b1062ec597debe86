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
    static tw_rma_explanation_t explain(tw_ep_h ep, tw_key_h key, const Asked& asked,
                                        bool is_mapped = false) {
        tw_rma_explanation_t told{};
        EXPECT_EQ(tw_key_explain(ep, key, asked.kind, asked.operation, asked.length,
                                 is_mapped ? 1 : 0, &told),
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
        const tw_key_h key = memory.key_for(node(0));
        for (const Asked& asked : kAsked) {
            const tw_rma_explanation_t told = explain(ep, key, asked);
            EXPECT_NE(told.reason, nullptr);
            EXPECT_NE(transports().find(told.transport), std::string::npos) << told.transport;
            if (transports() == "ud") {
                EXPECT_STREQ(told.way, asked.length == 0 ? "nothing" : "messages");
            }
            const char* const calls = std::getenv("TAGWIRE_SM_CMA");
            if (calls != nullptr && std::string(calls) == "off" && asked.length > 0 &&
                kind == Shared::Kind::kMapped && std::string(told.transport) == "sm") {
                EXPECT_STREQ(told.way, "messages") << told.reason;
                EXPECT_EQ(told.needs_peer, 1);
            }
            if (told.needs_peer != 0)
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
    const tw_key_h key = memory.key_for(node(0));
    const Asked put{TW_RMA_PUT, TW_ATOMIC_ADD, kWindowBytes};
    EXPECT_EQ(explain(ep, key, put, false).striped_from, SIZE_MAX);
    const tw_rma_explanation_t told = explain(ep, key, put, true);
    EXPECT_EQ(std::string(told.way) == "striped", told.striped_from <= kWindowBytes) << told.way;
    tw_key_free(key);
}

TEST_F(MsgRmaExplain, bad_questions_are_refused) {
    const Shared memory(context_.get(), 64);
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h key = memory.key_for(node(0));
    tw_rma_explanation_t told{};
    const auto ask = [&](int kind, int operation, std::size_t length) {
        return tw_key_explain(ep, key, static_cast<tw_rma_kind_t>(kind),
                              static_cast<tw_atomic_op_t>(operation), length, 0, &told);
    };
    EXPECT_EQ(ask(TW_RMA_ATOMIC, TW_ATOMIC_ADD, 2), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(ask(TW_RMA_ATOMIC, TW_ATOMIC_CSWAP + 1, 8), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(ask(TW_RMA_ATOMIC + 1, TW_ATOMIC_ADD, 8), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(ask(TW_RMA_PUT, 99, 3), TW_OK);
    EXPECT_EQ(tw_key_explain(nullptr, key, TW_RMA_PUT, TW_ATOMIC_ADD, 8, 0, &told),
              TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_key_explain(ep, nullptr, TW_RMA_PUT, TW_ATOMIC_ADD, 8, 0, &told),
              TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_key_explain(ep, key, TW_RMA_PUT, TW_ATOMIC_ADD, 8, 0, nullptr),
              TW_ERR_INVALID_PARAM);
    forget_last_node();
    run_until([&] { return !node(0).failures.empty(); });
    EXPECT_EQ(ask(TW_RMA_PUT, TW_ATOMIC_ADD, 8), TW_ERR_NOT_CONNECTED);
    tw_key_free(key);
}

}  // namespace
}  // namespace tagwire::test
