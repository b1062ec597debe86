// SPDX-License-Identifier: BSD-3-Clause
// The C++ wrapper of connections by host and port.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tagwire_msg.hpp>
#include <utility>

namespace {

namespace msg = tagwire::msg;

std::span<const std::byte> bytes_of_text(std::string_view text) {
    return std::as_bytes(std::span(text));
}

std::string text(std::span<const std::byte> bytes_of_text) {
    return {reinterpret_cast<const char*>(bytes_of_text.data()), bytes_of_text.size()};
}

class MsgListenWrapper : public ::testing::Test {
  protected:
    void run_until(auto condition) {
        for (int i = 0; i < 10'000'000 && !condition(); ++i) {
            server_.progress();
            client_.progress();
        }
        ASSERT_TRUE(condition());
    }

    msg::Context context_{"sm"};
    msg::Worker server_{context_}, client_{context_};
};

TEST_F(MsgListenWrapper, two_workers_connect) {
    std::optional<msg::Endpoint> to_client, to_server;
    std::string asked_by, told;
    auto asked = [&](msg::ConnRequest request) {
        asked_by = text(request.private_data());
        EXPECT_EQ(request.peer().rfind("127.0.0.1:", 0), 0U);
        EXPECT_EQ(request.attr().worker_id, client_.attr().id);
        EXPECT_EQ(request.accept(to_client, bytes_of_text("welcome"), &asked_by), TW_OK);
    };
    auto connected = [&](std::optional<msg::Endpoint> ep, tw_status_t status,
                         std::span<const std::byte> data) {
        EXPECT_EQ(status, TW_OK);
        told = text(data);
        to_server = std::move(ep);
    };
    const msg::Listener listener(server_, "0", asked);
    EXPECT_EQ(listener.address().rfind("127.0.0.1:", 0), 0U);
    msg::connect(client_, listener.address(), connected,
                 {.private_data = bytes_of_text("a client")});
    run_until([&] { return to_server.has_value(); });
    EXPECT_EQ(asked_by, "a client");
    EXPECT_EQ(told, "welcome");
    EXPECT_EQ(to_client->user_data(), &asked_by);
    ASSERT_GE(to_server->tag_send(bytes_of_text("hello"), 7), TW_OK);
    std::array<std::byte, 5> buffer{};
    tw_completion_t done{};
    done.status = TW_INPROGRESS;
    auto keep = [&](const tw_completion_t& end) { done = end; };
    ASSERT_EQ(server_.tag_recv(buffer, 7, 0, msg::Op(TW_OP_COMPLETION).on_complete(keep)),
              TW_INPROGRESS);
    run_until([&] { return done.status == TW_OK; });
    EXPECT_EQ(text(buffer), "hello");
}

TEST_F(MsgListenWrapper, a_request_that_is_dropped_is_rejected) {
    std::optional<msg::ConnRequest> kept;
    auto asked = [&](msg::ConnRequest request) { kept = std::move(request); };
    std::optional<tw_status_t> status;
    auto connected = [&](const std::optional<msg::Endpoint>& ep, tw_status_t end,
                         std::span<const std::byte> data) {
        EXPECT_FALSE(ep.has_value());
        EXPECT_TRUE(data.empty());
        status = end;
    };
    {
        const msg::Listener listener(server_, "127.0.0.1:0", asked);
        msg::connect(client_, listener.address(), connected);
        run_until([&] { return kept.has_value(); });
    }
    kept.reset();
    run_until([&] { return status.has_value(); });
    EXPECT_EQ(*status, TW_ERR_REJECTED);
    EXPECT_THROW(msg::connect(client_, "nowhere", connected), msg::Error);
    EXPECT_THROW(msg::Listener(server_, "nowhere", asked), msg::Error);
}

}  // namespace
