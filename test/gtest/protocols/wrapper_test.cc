// SPDX-License-Identifier: BSD-3-Clause
// The C++ wrapper of the messaging layer, over shared memory: a worker that sends to itself.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>
#include <tagwire.hpp>
#include <tagwire_msg.hpp>
#include <utility>
#include <vector>

#include "protocols/wrapper_fixture.hpp"

namespace {

namespace msg = tagwire::msg;
using Bytes = std::vector<std::byte>;

using tagwire::test::MsgWrapper;

std::span<const std::byte> bytes(std::string_view text) {
    return std::as_bytes(std::span(text));
}

TEST_F(MsgWrapper, wrong_transports_are_told_by_who_named_them_and_with_what_is_right) {
    const std::pair<const char*, const char*> cases[] = {{"roce", "or all"},
                                                         {"^roce", "or all"},
                                                         {"sm,SMM", "or all"},
                                                         {" sm , rc:", "behind its colon"},
                                                         {"^auto", "leaves out nothing"}};
    for (const auto& [wrong, says] : cases) {
        ::testing::internal::CaptureStderr();
        EXPECT_THROW(msg::Context{wrong}, msg::Error);
        const std::string log = ::testing::internal::GetCapturedStderr();
        EXPECT_NE(log.find(std::string("tw_context_params_t.transports=\"") + wrong + '"'),
                  std::string::npos)
            << log;
        EXPECT_EQ(log.find("TAGWIRE_TRANSPORTS="), std::string::npos) << log;
        EXPECT_NE(log.find(says), std::string::npos) << log;
    }
}

TEST_F(MsgWrapper, a_flag_that_a_call_does_not_take_is_named) {
    tw_op_t how{};
    how.flags = TW_OP_INJECT | 1U << 31;
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(tw_tag_recv(worker_.get(), nullptr, 0, 5, 0, &how, nullptr), TW_ERR_INVALID_PARAM);
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find("flags TW_OP_INJECT, 0x80000000 are not valid for this call; it accepts "
                       "TW_OP_COMPLETION, TW_OP_MORE"),
              std::string::npos)
        << log;
}

TEST_F(MsgWrapper, a_status_compares_converts_and_throws_with_the_name_of_its_call) {
    const msg::Status refused = worker_.tag_recv({}, 5, 0, msg::Op(TW_OP_INJECT));
    EXPECT_EQ(refused, TW_ERR_INVALID_PARAM);
    EXPECT_TRUE(refused.is_error());
    EXPECT_STREQ(refused.call(), "tw_tag_recv");
    const tw_status_t plain = refused;
    EXPECT_EQ(plain, refused.get());
    try {
        refused.or_throw();
        FAIL() << "no exception";
    } catch (const msg::Error& error) {
        EXPECT_EQ(error.status(), TW_ERR_INVALID_PARAM);
        EXPECT_NE(std::string_view(error.what()).find("tw_tag_recv"), std::string_view::npos);
    }
    msg::Request request;
    const msg::Status posted = worker_.tag_recv(buffer_, 5, 0, request);
    EXPECT_TRUE(posted.is_in_progress());
    EXPECT_FALSE(posted.is_error());
    EXPECT_EQ(posted.or_throw(), TW_INPROGRESS);
    request.cancel().or_throw();
    worker_.wait(TW_WAIT_SPIN, 0).ignore();
    EXPECT_EQ(worker_.finish(request).status, TW_ERR_CANCELED);
    static_assert(!std::is_convertible_v<tw_status_t, msg::Status>);
}

TEST_F(MsgWrapper, set_up_errors_are_exceptions_with_the_status) {
    try {
        const msg::Context none("no-such-transport");
        FAIL() << "opened";
    } catch (const msg::Error& error) {
        EXPECT_EQ(error.status(), TW_ERR_NO_DEVICE);
        EXPECT_NE(std::string_view(error.what()).find("tw_context_create"), std::string::npos);
    }
    EXPECT_THROW(msg::Endpoint(worker_, bytes("no address")), msg::Error);
    EXPECT_THROW((void)msg::worker_id(bytes("no address")), msg::Error);
    EXPECT_THROW((void)worker_.explain("rc", 8), msg::Error);
}

TEST_F(MsgWrapper, a_worker_hears_of_peers_and_replies_to_them) {
    std::vector<tw_peer_event_t> events;
    std::vector<tw_status_t> failures;
    std::uint64_t who = 0;
    auto told = [&](std::uint64_t id, tw_peer_event_t event, tw_status_t) {
        who = id;
        events.push_back(event);
    };
    auto failed = [&](tw_ep_h, tw_status_t status) { failures.push_back(status); };
    const msg::Worker server(context_, msg::WorkerParams().on_failure(failed).on_peer(told));
    const auto both_until = [&](const auto& holds) {
        run_until([&] {
            server.progress();
            return holds();
        });
    };
    try {
        (void)msg::Endpoint::to(server, worker_.attr().id);
        FAIL() << "it has not come yet";
    } catch (const msg::Error& error) {
        EXPECT_EQ(error.status(), TW_ERR_NO_ELEM);
    }
    msg::Endpoint to_server(worker_, server.address());
    ASSERT_GE(to_server.tag_send(bytes("question"), 1), TW_OK);
    both_until([&] { return events.size() == 1; });
    EXPECT_EQ(who, worker_.attr().id);
    msg::Endpoint reply = msg::Endpoint::to(server, who);
    ASSERT_GE(reply.tag_send(bytes("reply"), 2), TW_OK);
    both_until([&] { return has_message(); });
    EXPECT_GE(to_server.close_by_force(), TW_OK);
    both_until([&] { return events.size() == 2; });
    EXPECT_EQ(events, (std::vector{TW_PEER_UP, TW_PEER_FAILED}));
    EXPECT_EQ(failures, std::vector{TW_ERR_CONNECTION_RESET});
}

TEST_F(MsgWrapper, ends_are_told_to_callables_requests_and_within_the_call) {
    int ended = 0;
    auto count = [&](const tw_completion_t& done) { ended += done.status == TW_OK ? 1 : 100; };
    ASSERT_EQ(worker_.tag_recv(buffer_, 7, 0, msg::Op().on_complete(count)), TW_INPROGRESS);
    ASSERT_GE(self_.tag_send(bytes("by callable"), 7), TW_OK);
    run_until([&] { return ended == 1; });
    EXPECT_EQ(text(11), "by callable");

    msg::Request request;
    EXPECT_FALSE(request);
    ASSERT_EQ(worker_.recv(buffer_, request), TW_INPROGRESS);
    EXPECT_TRUE(request);
    ASSERT_GE(self_.send(bytes("by request"), msg::Op().immediate(5)), TW_OK);
    const tw_completion_t done = worker_.finish(request);
    EXPECT_FALSE(request);
    EXPECT_EQ(done.status, TW_OK);
    EXPECT_EQ(done.imm, 5U);
    EXPECT_EQ(done.ep, self_.get());
    EXPECT_EQ(text(done.length), "by request");

    EXPECT_EQ(msg::Op(TW_OP_INJECT).queue().flags, TW_OP_INJECT | TW_OP_QUEUE);
    ASSERT_GE(self_.tag_send(bytes("there already"), 8, msg::Op().queue()), TW_OK);
    run_until([&] { return has_message(); });
    tw_message_info_t now{};
    ASSERT_EQ(worker_.tag_recv(buffer_, 8, 0, msg::Op().tell(now).from(self_.get())), TW_OK);
    EXPECT_EQ(text(now.length), "there already");
}

TEST_F(MsgWrapper, completions_are_polled) {
    int context = 0;
    ASSERT_EQ(worker_.tag_recv(buffer_, 1, 0, msg::Op(TW_OP_COMPLETION).user_data(&context)),
              TW_INPROGRESS);
    ASSERT_GE(self_.tag_send(bytes("queue"), 1), TW_OK);
    std::array<tw_completion_t, 4> done{};
    unsigned count = 0;
    run_until([&] { return (count = worker_.poll(done)) > 0; });
    EXPECT_EQ(count, 1U);
    EXPECT_EQ(done[0].context, &context);
    EXPECT_EQ(done[0].length, 5U);
}

TEST_F(MsgWrapper, operations_end_in_a_queue_and_are_counted) {
    const msg::CompletionQueue queue(context_, 16);
    const msg::Counter counter;
    const msg::Op op = msg::Op().completion_queue(queue.get()).count(counter.get());
    ASSERT_EQ(worker_.tag_recv(buffer_, 7, 0, op), TW_INPROGRESS);
    ASSERT_GE(self_.tag_send(bytes("queue"), 7, msg::Op().count(counter.get())), TW_OK);
    run_until([&] { return counter.read().successes == 2; });
    EXPECT_EQ(counter.add(0, 1), TW_OK);
    EXPECT_EQ(counter.wait(3), TW_OK);
    std::array<tw_completion_t, 4> done{};
    unsigned count = 0;
    ASSERT_EQ(queue.wait(done, count), TW_OK);
    ASSERT_EQ(count, 1U);
    EXPECT_EQ(text(done[0].length), "queue");
    EXPECT_EQ(queue.poll(done), 0U);
    EXPECT_EQ(queue.signal(), TW_OK);
    EXPECT_EQ(queue.wait(done, count), TW_ERR_CANCELED);
    EXPECT_THROW(msg::CompletionQueue(context_, 3), msg::Error);
}

TEST_F(MsgWrapper, lists_gather_and_scatter) {
    Bytes first(3), second(5);
    const tw_iov_t into[] = {msg::iov(first), msg::iov(second)};
    const tw_iov_t from[] = {msg::iov(bytes("12345")), msg::iov(bytes("678"))};
    for (const bool tagged : {true, false}) {
        msg::Request request;
        ASSERT_EQ(tagged ? worker_.tag_recvv(into, 3, 0, request) : worker_.recvv(into, request),
                  TW_INPROGRESS);
        ASSERT_GE(tagged ? self_.tag_sendv(from, 3) : self_.sendv(from), TW_OK);
        EXPECT_EQ(worker_.finish(request).status, TW_OK);
        EXPECT_EQ(first[2], std::byte{'3'});
        EXPECT_EQ(second[4], std::byte{'8'});
    }
}

// The library takes the handle of such an operation back by itself.
static_assert(!std::is_constructible_v<msg::OpArgs, msg::CallbackOp, msg::Request&>);
static_assert(std::is_constructible_v<msg::OpArgs, msg::CallbackOp, tw_request_h&>);
static_assert(std::is_constructible_v<msg::OpArgs, msg::Op, msg::Request&>);

TEST_F(MsgWrapper, active_messages_go_to_callables_and_are_kept_and_received) {
    std::vector<msg::KeptMessage> kept;
    const auto keep = [&](const msg::ActiveMessage& message) {
        EXPECT_EQ(message.ep(), self_.get());
        EXPECT_EQ(message.source(), worker_.attr().id);
        msg::KeptMessage its;
        ASSERT_EQ(message.keep(its), TW_OK);
        EXPECT_EQ(message.header().data(), its.header().data());
        kept.push_back(std::move(its));
    };
    ASSERT_EQ(worker_.on_am(5, keep), TW_OK);
    const Bytes data(300000, std::byte{7});
    msg::Request sent;
    ASSERT_EQ(self_.am_send(5, bytes("head"), bytes("data"), sent), TW_INPROGRESS);
    EXPECT_EQ(worker_.finish(sent).status, TW_OK);
    ASSERT_EQ(self_.am_send(5, bytes("longer"), data, sent), TW_INPROGRESS);
    run_until([&] { return kept.size() == 2; });
    EXPECT_FALSE(kept[0].is_rndv());
    EXPECT_TRUE(std::ranges::equal(kept[0].header(), bytes("head")));
    EXPECT_TRUE(std::ranges::equal(kept[0].data(), bytes("data")));
    ASSERT_TRUE(kept[1].is_rndv());
    EXPECT_TRUE(std::ranges::equal(kept[1].header(), bytes("longer")));
    EXPECT_TRUE(kept[1].data().empty());
    Bytes received(kept[1].length());
    msg::Request request;
    ASSERT_EQ(kept[1].receive(received, request), TW_INPROGRESS);
    EXPECT_FALSE(kept[1]);
    EXPECT_EQ(worker_.finish(request).status, TW_OK);
    EXPECT_EQ(received, data);
    EXPECT_EQ(worker_.finish(sent).status, TW_OK);
    EXPECT_TRUE(kept[0]);
    kept.clear();  // releases the other
    ASSERT_EQ(worker_.remove_am(5), TW_OK);
    const std::array<tw_iov_t, 1> list{msg::iov(bytes("more"))};
    ASSERT_GE(self_.am_sendv(5, {}, list), TW_OK);
    run_until([&] {
        return std::ranges::any_of(worker_.counters(), [](const tw_worker_counter_t& counter) {
            return std::string_view(counter.name) == "am_dropped" && counter.value == 1;
        });
    });
}

TEST_F(MsgWrapper, active_messages_have_objects_as_headers_and_are_replied_to) {
    struct Label {
        std::uint32_t number;
        std::uint16_t kind;
    };
    std::vector<tw_status_t> failures;
    auto failed = [&](tw_ep_h, tw_status_t status) { failures.push_back(status); };
    const msg::Worker server(context_, failed);
    unsigned wrong = 0;
    const auto serve = [&](const msg::ActiveMessage& message) {
        const auto label = message.header_as<Label>();
        wrong += message.header_as<std::uint32_t>() ? 1 : 0;
        if (!label)
            return;
        // The first of them makes the endpoint, the second one finds it, though ep() is still null.
        EXPECT_GE(message.reply(2, msg::bytes_of(label->number)), TW_OK);
        EXPECT_GE(message.reply(3, msg::bytes_of(label->kind), message.data()), TW_OK);
    };
    ASSERT_EQ(server.on_am(1, serve), TW_OK);
    std::vector<std::uint32_t> numbers;
    const auto take_number = [&](const msg::ActiveMessage& message) {
        numbers.push_back(message.header_as<std::uint32_t>().value_or(0));
    };
    std::vector<msg::KeptMessage> kinds;
    const auto keep_kind = [&](const msg::ActiveMessage& message) {
        ASSERT_EQ(message.keep(kinds.emplace_back()), TW_OK);
    };
    ASSERT_EQ(worker_.on_am(2, take_number), TW_OK);
    ASSERT_EQ(worker_.on_am(3, keep_kind), TW_OK);
    const msg::Endpoint to_server(worker_, server.address());
    for (const std::uint32_t number : {7U, 8U})
        ASSERT_GE(to_server.am_send(1, msg::bytes_of(Label{number, 9}), bytes("data")), TW_OK);
    ASSERT_GE(to_server.am_send(1, bytes("other"), {}), TW_OK);
    run_until([&] {
        server.progress();
        return numbers.size() == 2 && kinds.size() == 2;
    });
    EXPECT_EQ(numbers, (std::vector{7U, 8U}));
    for (const msg::KeptMessage& kind : kinds) {
        EXPECT_EQ(kind.header_as<std::uint16_t>(), std::uint16_t{9});
        EXPECT_FALSE(kind.header_as<std::uint64_t>());
        EXPECT_TRUE(std::ranges::equal(kind.data(), bytes("data")));
    }
    EXPECT_EQ(wrong, 0U);
    EXPECT_NE(server.find(worker_.attr().id), nullptr);
    EXPECT_TRUE(failures.empty());
}

TEST_F(MsgWrapper, progress_goes_on_until_a_condition_holds_or_time_is_up) {
    EXPECT_TRUE(msg::progress_until(
        worker_, [] { return true; }, TW_WAIT_YIELD, 0));
    unsigned looks = 0;
    const auto never = [&] { return ++looks > 1000; };
    EXPECT_FALSE(msg::progress_until(worker_, never, TW_WAIT_SLEEP, 1'000'000));
    EXPECT_GT(looks, 0U);
    // Nobody signals the worker: the condition is looked at all the same.
    looks = 0;
    EXPECT_TRUE(msg::progress_until(
        worker_, [&] { return ++looks > 3; }, TW_WAIT_SLEEP));
    bool has_come = false;
    const auto come = [&](const msg::ActiveMessage&) {
        has_come = true;
        EXPECT_FALSE(msg::progress_until(worker_, [] { return false; })) << "in a handler";
    };
    ASSERT_EQ(worker_.on_am(4, come), TW_OK);
    ASSERT_GE(self_.am_send(4, {}, bytes("data")), TW_OK);
    EXPECT_TRUE(msg::progress_until(worker_, [&] { return has_come; }));
}

TEST_F(MsgWrapper, a_request_beside_an_end_that_is_told_elsewhere_stays_empty) {
    int ended = 0;
    auto count = [&](const tw_completion_t& done) { ended += done.status == TW_OK ? 1 : 100; };
    msg::Op disguised;
    disguised.on_complete(count);
    msg::Request first, second, third;
    ASSERT_EQ(worker_.recv(buffer_, {disguised, first}), TW_INPROGRESS);
    ASSERT_EQ(worker_.recv(buffer_, {msg::Op(TW_OP_COMPLETION), second}), TW_INPROGRESS);
    EXPECT_FALSE(first);
    EXPECT_FALSE(second);
    for (int i = 0; i < 2; ++i)
        ASSERT_GE(self_.send(bytes("told")), TW_OK);
    std::array<tw_completion_t, 1> done{};
    run_until([&] { return ended == 1 && worker_.poll(done) == 1; });
    ASSERT_EQ(worker_.recv(buffer_, third), TW_INPROGRESS);
    first.reset();
    second.reset();
    EXPECT_EQ(third.test(), TW_INPROGRESS);
    EXPECT_EQ(third.cancel(), TW_OK);
}

TEST_F(MsgWrapper, requests_are_waited_for_one_any_or_all) {
    std::array<msg::Request, 3> requests;
    for (std::uint64_t tag = 1; tag < 3; ++tag)
        ASSERT_EQ(worker_.tag_recv(buffer_, tag, 0, requests[tag]), TW_INPROGRESS);
    std::size_t index = 0;
    EXPECT_EQ(msg::wait_any(requests, index, TW_WAIT_SPIN, 1000), TW_INPROGRESS);
    ASSERT_GE(self_.tag_send(bytes("second"), 2), TW_OK);
    EXPECT_EQ(msg::wait_any(requests, index), TW_OK);
    EXPECT_EQ(index, 2U);
    EXPECT_EQ(msg::wait_all(requests, TW_WAIT_SLEEP, 1000), TW_INPROGRESS);
    EXPECT_EQ(requests[1].wait(TW_WAIT_SLEEP, 1000), TW_INPROGRESS);
    ASSERT_GE(self_.tag_send(bytes("first"), 1), TW_OK);
    EXPECT_EQ(msg::wait_all(requests), TW_OK);
    EXPECT_EQ(requests[1].wait(), TW_OK);
}

TEST_F(MsgWrapper, a_receive_is_cancelled) {
    msg::Request request;
    ASSERT_EQ(worker_.tag_recv(buffer_, 1, 0, request), TW_INPROGRESS);
    EXPECT_EQ(request.test(), TW_INPROGRESS);
    EXPECT_EQ(request.cancel(), TW_OK);
    EXPECT_EQ(worker_.finish(request).status, TW_ERR_CANCELED);

    tw_request_h handle = nullptr;
    std::optional<tw_status_t> ended;
    auto end = [&](const tw_completion_t& done) { ended = done.status; };
    ASSERT_EQ(worker_.recv(buffer_, {msg::Op().on_complete(end), handle}), TW_INPROGRESS);
    EXPECT_EQ(tw_request_cancel(handle), TW_OK);
    run_until([&] { return ended.has_value(); });
    EXPECT_EQ(*ended, TW_ERR_CANCELED);
}

TEST_F(MsgWrapper, memory_has_handles_and_requests_a_place) {
    Bytes big(1 << 20, std::byte{7}), copy(big.size());
    const msg::Memory from(context_, big), into(context_, copy);
    const msg::RequestMemory places(2);
    int ended = 0;
    auto count = [&](const tw_completion_t& done) { ended += done.status == TW_OK ? 1 : 100; };
    ASSERT_EQ(worker_.tag_recv(
                  copy, 1, 0,
                  msg::Op().on_complete(count).memory(into.get()).request_memory(places.at(0))),
              TW_INPROGRESS);
    ASSERT_EQ(self_.tag_send(big, 1,
                             msg::Op(TW_OP_COMPLETION)
                                 .with(TW_OP_DELIVERY_COMPLETE)
                                 .on_complete(count)
                                 .memory(from.get())
                                 .request_memory(places.at(1))),
              TW_INPROGRESS);
    run_until([&] { return ended == 2; });
    EXPECT_EQ(copy, big);
    EXPECT_EQ(context_.invalidate(big), TW_OK);
}

TEST_F(MsgWrapper, an_endpoint_flushes_closes_and_comes_again) {
    const Bytes address = worker_.address();
    EXPECT_EQ(msg::worker_id(address), worker_.attr().id);
    EXPECT_EQ(worker_.find(worker_.attr().id), self_.get());
    msg::Request request;
    ASSERT_EQ(worker_.tag_recv(buffer_, 1, 0, request), TW_INPROGRESS);
    ASSERT_GE(self_.tag_send(bytes("last"), 1), TW_OK);
    msg::Request flush;
    if (self_.flush(flush) == TW_INPROGRESS) {
        EXPECT_EQ(worker_.finish(flush).status, TW_OK);
    }
    if (self_.close(flush) == TW_INPROGRESS) {
        EXPECT_EQ(worker_.finish(flush).status, TW_OK);
    }
    EXPECT_EQ(self_.get(), nullptr);
    EXPECT_EQ(worker_.finish(request).status, TW_OK);
    int data = 0;
    self_ = msg::Endpoint(worker_, address, &data);
    EXPECT_EQ(self_.user_data(), &data);
    EXPECT_GE(self_.close_by_force(), TW_OK);
}

TEST_F(MsgWrapper, a_sleeping_worker_is_woken) {
    pollfd readable{worker_.fd(), POLLIN, 0};
    while (worker_.arm() == TW_ERR_BUSY)
        worker_.progress();
    EXPECT_EQ(worker_.signal(), TW_OK);
    EXPECT_EQ(poll(&readable, 1, 10000), 1);
    while (worker_.progress() != 0) {
    }
    EXPECT_EQ(worker_.wait(TW_WAIT_SPIN, 1000), TW_OK);  // the signal
    EXPECT_EQ(worker_.wait(TW_WAIT_SPIN, 1000), TW_ERR_TIMED_OUT);
}

TEST_F(MsgWrapper, facts_counters_and_explanations_are_there) {
    ASSERT_GE(self_.send(bytes("connects")), TW_OK);
    run_until([&] { return has_message(); });
    bool names_sm = false, tells_interface = false;
    worker_.describe([&](const char* key, const char* value) {
        names_sm |= std::string_view(value).find("sm") != std::string_view::npos;
        tells_interface |= std::string_view(key) == "iface_0_pool_bytes";
    });
    EXPECT_TRUE(names_sm);
    EXPECT_TRUE(tells_interface);
    EXPECT_FALSE(worker_.counters().empty());
    EXPECT_STREQ(worker_.explain("sm", 8).transport, "sm");
    EXPECT_STREQ(self_.explain(8).transport, "sm");
}

TEST_F(MsgWrapper, failures_go_to_a_callable_and_owners_move) {
    int failures = 0;
    auto failed = [&](tw_ep_h, tw_status_t) { ++failures; };
    msg::Worker other(context_, failed, TW_THREAD_MULTI);
    EXPECT_EQ(other.attr().thread_mode, TW_THREAD_MULTI);
    msg::Worker moved = std::move(other);
    // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what a move leaves
    EXPECT_EQ(other.get(), nullptr);
    EXPECT_NE(moved.get(), nullptr);
    EXPECT_EQ(failures, 0);
}

TEST_F(MsgWrapper, a_destroyed_endpoint_still_sends) {
    msg::Request request;
    ASSERT_EQ(worker_.tag_recv(buffer_, 9, 0, request), TW_INPROGRESS);
    {
        const msg::Endpoint gone = std::move(self_);
        ASSERT_GE(gone.tag_send(bytes("on its way"), 9), TW_OK);
        // The owner ends here.
    }
    EXPECT_EQ(worker_.finish(request).status, TW_OK);
    EXPECT_EQ(text(10), "on its way");
}

TEST_F(MsgWrapper, memory_of_a_peer_is_written_read_and_changed) {
    const msg::Memory memory = msg::Memory::allocate(context_, 4096);
    EXPECT_EQ(memory.bytes().size(), 4096U);
    EXPECT_EQ(memory.bytes()[4095], std::byte{0});
    const msg::RemoteMemory remote(worker_, memory.pack());
    EXPECT_EQ(remote.length(), 4096U);
    EXPECT_EQ(remote.access(), unsigned{TW_ACCESS_ALL});
    const auto end = [&](const auto& call) {
        msg::Request request;
        tw_status_t status = TW_ERR_NO_RESOURCE;
        run_until([&] {
            status = call(request);
            return status != TW_ERR_NO_RESOURCE;
        });
        return request ? request.wait() : status;
    };
    ASSERT_EQ(
        end([&](msg::Request& request) { return remote.put(self_, bytes("hello"), 8, request); }),
        TW_OK);
    EXPECT_EQ(std::memcmp(memory.bytes().data() + 8, "hello", 5), 0);
    ASSERT_NE(remote.pointer(self_, 8), nullptr);
    msg::Request greeting;
    ASSERT_EQ(worker_.tag_recv(buffer_, 1, 0, greeting), TW_INPROGRESS);
    ASSERT_GE(self_.tag_send(bytes("connected now"), 1), TW_OK);
    EXPECT_EQ(greeting.wait(), TW_OK);
    EXPECT_STREQ(remote.explain(self_, TW_RMA_PUT, 8).way, "stores");
    EXPECT_THROW((void)remote.explain(self_, TW_RMA_ATOMIC, 3), msg::Error);
    EXPECT_EQ(std::memcmp(remote.pointer(self_, 8), "hello", 5), 0);
    EXPECT_EQ(end([&](msg::Request& request) {
                  return remote.get(self_, std::span(buffer_).first(5), 8, request);
              }),
              TW_OK);
    EXPECT_EQ(text(5), "hello");
    std::int32_t before = 1;
    EXPECT_EQ(end([&](msg::Request& request) {
                  return remote.fetch(self_, TW_ATOMIC_MIN, std::int32_t{-5}, before, 64, request);
              }),
              TW_OK);
    EXPECT_EQ(before, 0);
    EXPECT_EQ(end([&](msg::Request& request) {
                  return remote.cswap(self_, std::int32_t{-5}, std::int32_t{9}, before, 64,
                                      request);
              }),
              TW_OK);
    EXPECT_EQ(before, -5);
    EXPECT_EQ(end([&](msg::Request& request) {
                  return remote.atomic(self_, TW_ATOMIC_ADD, std::uint64_t{3}, 72, request);
              }),
              TW_OK);
    std::uint64_t sum = 0;
    const tw_iov_t list[] = {{&sum, sizeof sum}};
    EXPECT_EQ(end([&](msg::Request& request) { return remote.getv(self_, list, 72, request); }),
              TW_OK);
    EXPECT_EQ(sum, 3U);
    EXPECT_EQ(end([&](msg::Request& request) { return remote.putv(self_, list, 80, request); }),
              TW_OK);
    const tw_piece_t piece[] = {remote.piece(std::as_bytes(std::span(&sum, 1)), 200)};
    const msg::Prepared put(worker_, TW_RMA_PUT, piece);
    EXPECT_EQ(end([&](auto& request) { return put.run(self_, request); }), TW_OK);
    EXPECT_EQ(end([&](auto& request) { return msg::get_list(self_, piece, {}, request); }), TW_OK);
    EXPECT_EQ(sum, 3U);
    EXPECT_EQ(end([&](auto& request) { return msg::put_list(self_, piece, {}, request); }), TW_OK);
    EXPECT_THROW(msg::RemoteMemory(worker_, bytes("no key")), msg::Error);
    EXPECT_THROW(msg::Memory::allocate(context_, 0), msg::Error);
}

TEST_F(MsgWrapper, memory_counts_puts_that_arrive) {
    const msg::Counter counter;
    Bytes own(64);
    const msg::Memory mapped(context_, own, TW_ACCESS_ALL, counter.get());
    const msg::Memory allocated =
        msg::Memory::allocate(context_, 4096, TW_ACCESS_WRITE, counter.get());
    for (const msg::Memory* memory : {&mapped, &allocated}) {
        const msg::RemoteMemory remote(worker_, memory->pack());
        const std::uint64_t before = counter.read().successes;
        run_until([&] {
            return remote.put(self_, bytes("hello"), 8, msg::Op().immediate(1)) !=
                   TW_ERR_NO_RESOURCE;
        });
        run_until([&] { return counter.read().successes == before + 1; });
        EXPECT_EQ(std::memcmp(memory->bytes().data() + 8, "hello", 5), 0);
    }
    EXPECT_THROW(msg::Memory(context_, own, TW_ACCESS_READ, counter.get()), msg::Error);
}

}  // namespace
