// SPDX-License-Identifier: BSD-3-Clause
// Messages that the C++ wrapper takes, shows and puts into one buffer.
#include <array>
#include <utility>

#include "protocols/wrapper_fixture.hpp"

namespace tagwire::test {
namespace {

TEST_F(MsgWrapper, messages_are_probed_taken_and_dropped) {
    tw_message_info_t found{};
    EXPECT_EQ(worker_.tag_probe(4, 0, found), TW_ERR_NO_MESSAGE);
    for (const char* data : {"taken", "dropped", "released"}) {
        ASSERT_GE(self_.tag_send(text_bytes(data), 4), TW_OK);
        ASSERT_GE(self_.send(text_bytes(data)), TW_OK);
    }
    run_until([&] { return has_message(); });
    run_until([&] { return worker_.tag_probe(4, 0, found) == TW_OK; });
    EXPECT_EQ(found.length, 5U);
    for (const bool tagged : {true, false}) {
        const auto take = [&](msg::Message& message) {
            return tagged ? worker_.tag_take(4, 0, found, message, self_.get())
                          : worker_.take(found, message);
        };
        run_until([&] { return worker_.probe(found) == TW_OK; });
        msg::Message message;
        EXPECT_FALSE(message);
        ASSERT_EQ(take(message), TW_OK);
        EXPECT_TRUE(message);
        EXPECT_EQ(found.length, 5U);
        found = {};
        ASSERT_EQ(message.receive(buffer_, msg::Op().tell(found)), TW_OK);
        EXPECT_FALSE(message);
        EXPECT_EQ(text(found.length), "taken");
        ASSERT_EQ(take(message), TW_OK);
        EXPECT_EQ(found.length, 7U);
        message.drop();
        EXPECT_FALSE(message);
        ASSERT_EQ(take(message), TW_OK);
        msg::Message other(std::move(message));
        EXPECT_EQ(tw_message_drop(worker_.get(), other.release()), TW_OK);
        EXPECT_EQ(take(message), TW_ERR_NO_MESSAGE);
    }
}

TEST_F(MsgWrapper, a_buffered_receive_shows_its_message) {
    for (const bool tagged : {true, false}) {
        tw_completion_t shown{};
        auto show = [&](const tw_completion_t& done) { shown = done; };
        const msg::CallbackOp op = msg::Op().on_complete(show);
        ASSERT_EQ(tagged ? worker_.tag_recv_buffered(4, 0, op) : worker_.recv_buffered(op),
                  TW_INPROGRESS);
        ASSERT_GE(tagged ? self_.tag_send(text_bytes("shown"), 4) : self_.send(text_bytes("shown")),
                  TW_OK);
        run_until([&] { return shown.message != nullptr; });
        EXPECT_EQ(std::string_view(static_cast<const char*>(shown.buffer), shown.length), "shown");
        const std::array<tw_iov_t, 1> list = {msg::iov(buffer_)};
        msg::Message message(worker_.get(), shown.message);
        EXPECT_EQ(message.receivev(list), TW_OK);
        EXPECT_EQ(text(5), "shown");
    }
}

TEST_F(MsgWrapper, one_receive_takes_many_messages) {
    unsigned shown = 0, placed = 0, over = 0;
    auto show = [&](const tw_completion_t& done) {
        shown += done.message != nullptr ? 1U : 0U;
        over += (done.flags & TW_DONE_MULTI_RECV) != 0 ? 1U : 0U;
        const msg::Message dropped(worker_.get(), done.message);
    };
    auto place = [&](const tw_completion_t& done) {
        placed += done.length == 3 ? 1U : 0U;
        over += (done.flags & TW_DONE_MULTI_RECV) != 0 ? 1U : 0U;
    };
    const msg::CallbackOp to_show = msg::Op().on_complete(show);
    const msg::CallbackOp to_place = msg::Op().on_complete(place);
    tw_request_h request = nullptr;
    ASSERT_EQ(worker_.recv_buffered_multi({to_show, request}), TW_INPROGRESS);
    for (int i = 0; i < 3; ++i)
        ASSERT_GE(self_.send(text_bytes("one")), TW_OK);
    run_until([&] { return shown == 3; });
    EXPECT_EQ(tw_request_cancel(request), TW_OK);
    run_until([&] { return over == 1; });
    std::vector<std::byte> room(1 << 16);
    ASSERT_EQ(worker_.recv_multi(room, {to_place, request}), TW_INPROGRESS);
    for (int i = 0; i < 3; ++i)
        ASSERT_GE(self_.send(text_bytes("two")), TW_OK);
    run_until([&] { return placed == 3; });
    EXPECT_EQ(tw_request_cancel(request), TW_OK);
    run_until([&] { return over == 2; });
}

TEST_F(MsgWrapper, the_receive_of_a_message_that_was_taken_may_have_a_callback) {
    for (const bool tagged : {true, false}) {
        ASSERT_GE(
            tagged ? self_.tag_send(text_bytes("claimed"), 4) : self_.send(text_bytes("claimed")),
            TW_OK);
        tw_message_info_t found{};
        msg::Message message;
        run_until([&] {
            return (tagged ? worker_.tag_take(4, 0, found, message)
                           : worker_.take(found, message)) == TW_OK;
        });
        std::size_t length = 0;
        auto end = [&](const tw_completion_t& done) { length = done.length; };
        const msg::CallbackOp op = msg::Op(TW_OP_COMPLETION).on_complete(end);
        ASSERT_EQ(message.receive(buffer_, op), TW_INPROGRESS);
        run_until([&] { return length == 7; });
        EXPECT_EQ(text(length), "claimed");
    }
}

}  // namespace
}  // namespace tagwire::test
