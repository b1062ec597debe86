// SPDX-License-Identifier: BSD-3-Clause
// Connections by host and port of workers that are, or were, connected.
#include "protocols/listening.hpp"

namespace tagwire::test {
namespace {

using MsgListenAgain = ListenTest;

TEST_F(MsgListenAgain, a_second_endpoint_to_a_worker_is_refused) {
    connect();
    ASSERT_EQ(client_.status, TW_OK);
    Client again;
    ASSERT_EQ(again.connect(from(), server_.address()), TW_INPROGRESS);
    run_until([&] { return again.is_over(); });
    EXPECT_EQ(server_.status, TW_ERR_ALREADY_EXISTS);
    EXPECT_EQ(again.status, TW_ERR_ALREADY_EXISTS);
    EXPECT_EQ(tw_ep_close(server_.ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    EXPECT_EQ(tw_ep_close(client_.ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    expect_served();
}

TEST_F(MsgListenAgain, a_client_that_has_closed_comes_back_in_its_old_place) {
    for (const tw_flush_level_t how : {TW_FLUSH_DELIVERED, TW_CLOSE_FORCE}) {
        for (const bool server_sends : {false, true}) {
            destroy_nodes();
            server_ = {};
            client_ = {};
            ASSERT_NO_FATAL_FAILURE(connect());
            ASSERT_EQ(client_.status, TW_OK);
            const Bytes data = pattern(100, 1);
            ASSERT_GE(tw_tag_send(client_.ep, data.data(), data.size(), 1, nullptr, nullptr),
                      TW_OK);
            expect_message(at(), data, 1);
            if (server_sends) {
                ASSERT_GE(tw_tag_send(server_.ep, data.data(), data.size(), 2, nullptr, nullptr),
                          TW_OK);
                expect_message(from(), data, 2);
            }
            for (std::size_t times = 1; times <= 3; ++times) {
                const tw_ep_h old = server_.ep;
                int closed = 0;
                const tw_op_t closing = op(&closed);
                if (tw_ep_close(client_.ep, how, &closing, nullptr) == TW_INPROGRESS) {
                    EXPECT_EQ(end_of(from(), &closed).status, TW_OK);
                }
                client_.status = TW_INPROGRESS;
                ASSERT_EQ(client_.connect(from(), server_.address()), TW_INPROGRESS);
                run_until([&] { return client_.is_over() && at().failures.size() == times; });
                ASSERT_EQ(client_.status, TW_OK);
                ASSERT_EQ(server_.status, TW_OK);
                EXPECT_EQ(at().failures.back().first, old);
                EXPECT_EQ(at().failures.back().second,
                          how == 0 ? TW_ERR_NOT_CONNECTED : TW_ERR_CONNECTION_RESET);
                EXPECT_NE(server_.ep, old);
                EXPECT_EQ(tw_ep_close(old, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
                ASSERT_GE(tw_tag_send(client_.ep, data.data(), data.size(), 3, nullptr, nullptr),
                          TW_OK);
                expect_message(at(), data, 3);
                ASSERT_GE(tw_tag_send(server_.ep, data.data(), data.size(), 4, nullptr, nullptr),
                          TW_OK);
                expect_message(from(), data, 4);
            }
            run_some();
            EXPECT_TRUE(from().failures.empty());
            EXPECT_EQ(at().failures.size(), 3U);
        }
    }
}

TEST_F(MsgListenAgain, a_client_comes_back_when_the_server_has_closed_too) {
    connect();
    ASSERT_EQ(client_.status, TW_OK);
    const Bytes data = pattern(100, 1);
    for (int times = 0; times < 3; ++times) {
        int closed = 0, closed_there = 0;
        const tw_op_t closing = op(&closed), closing_there = op(&closed_there);
        const bool is_under_way =
            tw_ep_close(client_.ep, TW_FLUSH_DELIVERED, &closing, nullptr) == TW_INPROGRESS;
        const bool is_under_way_there =
            tw_ep_close(server_.ep, TW_FLUSH_DELIVERED, &closing_there, nullptr) == TW_INPROGRESS;
        if (is_under_way) {
            EXPECT_EQ(end_of(from(), &closed).status, TW_OK);
        }
        if (is_under_way_there) {
            EXPECT_EQ(end_of(at(), &closed_there).status, TW_OK);
        }
        client_.status = TW_INPROGRESS;
        ASSERT_EQ(client_.connect(from(), server_.address()), TW_INPROGRESS);
        run_until([&] { return client_.is_over(); });
        ASSERT_EQ(client_.status, TW_OK);
        ASSERT_GE(tw_tag_send(client_.ep, data.data(), data.size(), 3, nullptr, nullptr), TW_OK);
        expect_message(at(), data, 3);
        ASSERT_GE(tw_tag_send(server_.ep, data.data(), data.size(), 4, nullptr, nullptr), TW_OK);
        expect_message(from(), data, 4);
    }
    EXPECT_TRUE(at().failures.empty() && from().failures.empty());
}

}  // namespace
}  // namespace tagwire::test
