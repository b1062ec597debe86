// SPDX-License-Identifier: BSD-3-Clause
// Keys that the packed one has no room for: their owner is asked, in progress, and nothing that the
// program does meanwhile is in the way.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "protocols/rma_pair.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kAskedBytes = 1 << 20;

class MsgRmaAskedKeys : public RmaTest {
  protected:
    void SetUp() override {
        const char* const calls = std::getenv("TAGWIRE_SM_CMA");
        if (calls != nullptr && std::string(calls) == "off")
            GTEST_SKIP() << "puts go by messages whatever keys there are";
        RmaTest::SetUp();
    }
    /// The way of a put of 8 bytes; "messages": the owner has not told its keys yet.
    static std::string way_of(tw_ep_h ep, tw_key_h key) {
        tw_rma_explanation_t told{};
        EXPECT_EQ(tw_key_explain(ep, key, TW_RMA_PUT, TW_ATOMIC_ADD, 8, 0, &told), TW_OK);
        return told.way;
    }
    /// A packed key without the keys of domains, as if all of them had found no room.
    static std::string stripped(const Shared& memory, std::uint64_t length) {
        constexpr std::size_t kRightsAndOwner = 9;
        std::string bytes = memory.packed().substr(0, kRightsAndOwner) + '\xff';
        const std::uint64_t address = memory.address();
        for (const std::uint64_t word : {address, length})
            bytes.append(reinterpret_cast<const char*>(&word), sizeof word);
        return bytes;
    }
    static tw_key_h unpacked(const Node& user, const std::string& bytes) {
        tw_key_h key = nullptr;
        EXPECT_EQ(tw_key_unpack(user.worker(), bytes.data(), bytes.size(), &key), TW_OK);
        return key;
    }
};

TEST_F(MsgRmaAskedKeys, keys_that_the_packed_one_has_no_room_for_come_from_the_owner) {
    for (const bool is_connected : {false, true}) {
        const Shared memory(context_.get(), kAskedBytes, Shared::Kind::kAllocated);
        const std::string bytes = stripped(memory, kAskedBytes);
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
        if (is_connected && tw_ep_flush(ep, TW_FLUSH_DELIVERED, nullptr, &flush) == TW_INPROGRESS) {
            run_both([&] { return tw_request_test(flush, nullptr) != TW_INPROGRESS; });
            tw_request_free(flush);
        }
        const tw_key_h key = unpacked(from, bytes);
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
            EXPECT_EQ(way_of(ep, key), "messages");
        } else {
            run_both([&] { return way_of(ep, key) != "messages"; });
            put(4712, 16);
            void* pointer = nullptr;
            EXPECT_EQ(tw_key_pointer(ep, key, memory.address(), &pointer) == TW_OK,
                      way_of(ep, key) == "stores");
        }
        tw_key_free(key);
        EXPECT_EQ(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    }
}

TEST_F(MsgRmaAskedKeys, an_owner_has_no_keys_of_memory_that_it_has_unmapped) {
    Shared memory(context_.get(), 4096);
    const std::string bytes = stripped(memory, 4096);
    memory.unmap();
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h key = unpacked(node(0), bytes);
    EXPECT_EQ(flush(ep), TW_OK);
    EXPECT_EQ(way_of(ep, key), "messages");
    const std::uint64_t word = 1;
    EXPECT_EQ(put(ep, &word, 8, memory.address(), key, TW_OP_DELIVERY_COMPLETE),
              TW_ERR_INVALID_ADDR);
    tw_key_free(key);
}

// The endpoint that has asked goes before the reply: the next one asks.
TEST_F(MsgRmaAskedKeys, another_endpoint_asks_where_the_first_has_gone) {
    const Shared memory(context_.get(), kAskedBytes);
    const tw_key_h key = unpacked(node(0), stripped(memory, kAskedBytes));
    tw_ep_h ep = connected(node(0), node(1));
    std::uint64_t word = 0;
    tw_get(ep, &word, sizeof word, memory.address(), key, nullptr, nullptr);
    node(0).progress();
    EXPECT_EQ(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    run_some();
    ep = connected(node(0), node(2));
    ASSERT_EQ(get(ep, &word, sizeof word, memory.address(), key), TW_OK);
    if (transports() != "ud")
        run_until([&] { return way_of(ep, key) != "messages"; });
    tw_key_free(key);
}

// The callback of a send that waited for the connection, as the questions of the keys do.
TEST_F(MsgRmaAskedKeys, a_callback_may_free_keys_while_their_endpoint_connects) {
    const Shared memory(context_.get(), kAskedBytes);
    const tw_ep_h ep = node(0).to(node(1));
    struct State {
        std::vector<tw_key_h> keys;
        bool is_over;
    } state{{}, false};
    std::uint64_t word = 0;
    for (int i = 0; i < 5; ++i) {
        state.keys.push_back(unpacked(node(0), stripped(memory, kAskedBytes)));
        ASSERT_EQ(
            tw_get(ep, &word, sizeof word, memory.address(), state.keys.back(), nullptr, nullptr),
            TW_INPROGRESS);
    }
    tw_op_t how{};
    how.context = &state;
    how.complete = [](const tw_completion_t* done) {
        auto& [keys, is_over] = *static_cast<State*>(done->context);
        for (std::size_t i = 1; i < keys.size(); ++i)
            tw_key_free(keys[i]);
        keys.resize(1);
        is_over = true;
    };
    ASSERT_EQ(tw_tag_send(ep, "x", 1, 1, &how, nullptr), TW_INPROGRESS);
    run_until([&] { return state.is_over; });
    if (transports() != "ud")
        run_until([&] { return way_of(ep, state.keys.front()) != "messages"; });
    tw_key_free(state.keys.front());
}

// The callback of such a send closes the endpoint.
TEST_F(MsgRmaAskedKeys, a_callback_may_close_an_endpoint_that_has_just_connected) {
    const Shared memory(context_.get(), kAskedBytes);
    const tw_ep_h ep = node(0).to(node(1));
    const tw_key_h key = unpacked(node(0), stripped(memory, kAskedBytes));
    std::uint64_t word = 0;
    ASSERT_EQ(tw_get(ep, &word, sizeof word, memory.address(), key, nullptr, nullptr),
              TW_INPROGRESS);
    struct State {
        tw_ep_h ep;
        int ends;
    } state{ep, 0};
    tw_op_t how{};
    how.context = &state;
    how.complete = [](const tw_completion_t* done) {
        auto& [closed, ends] = *static_cast<State*>(done->context);
        if (ends++ == 0) {
            EXPECT_EQ(tw_ep_close(closed, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
        }
    };
    for (int i = 0; i < 10; ++i)
        ASSERT_EQ(tw_tag_send(ep, "x", 1, 1, &how, nullptr), TW_INPROGRESS);
    run_until([&] { return state.ends == 10; });
    run_some();
    EXPECT_EQ(state.ends, 10);
    tw_key_free(key);
}

class MsgRmaFewRequests : private Settings, public MsgRmaAskedKeys {
  protected:
    MsgRmaFewRequests() : Settings({{"TAGWIRE_REQUESTS_MAX", "64"}}) {}
};

TEST_F(MsgRmaFewRequests, keys_are_asked_for_while_the_program_uses_all_requests) {
    const Shared memory(context_.get(), kAskedBytes);
    const tw_ep_h ep = connected(node(0), node(1));
    char byte = 0;
    std::vector<tw_request_h> posted;
    tw_request_h request = nullptr;
    while (tw_tag_recv(node(0).worker(), &byte, 1, 7, 0, nullptr, &request) == TW_INPROGRESS)
        posted.push_back(request);
    ASSERT_GE(posted.size(), 64U);
    std::vector<tw_key_h> keys;
    void* pointer = nullptr;
    for (std::size_t i = 0; i < 100; ++i) {
        keys.push_back(unpacked(node(0), stripped(memory, kAskedBytes)));
        EXPECT_NE(tw_key_pointer(ep, keys.back(), memory.address(), &pointer), TW_OK);
    }
    if (transports() != "ud")
        run_until([&] {
            return std::ranges::all_of(keys,
                                       [&](auto key) { return way_of(ep, key) != "messages"; });
        });
    for (const tw_key_h key : keys)
        tw_key_free(key);
    for (const tw_request_h each : posted) {
        EXPECT_EQ(tw_request_cancel(each), TW_OK);
        run_until([&] { return tw_request_test(each, nullptr) != TW_INPROGRESS; });
        tw_request_free(each);
    }
}

}  // namespace
}  // namespace tagwire::test
