// SPDX-License-Identifier: BSD-3-Clause
// Remote calls: replies of every length in any order, calls that end without one, and servers that
// take no more.
#include <array>
#include <cstring>
#include <deque>
#include <functional>

#include "protocols/pair_test.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kCallKinds[] = {0, kShort, kEager, kParts, kRndv};
constexpr std::uint32_t kMethod = 70000;

/// A call, what it gets, and how often it has ended.
struct Called {
    explicit Called(std::size_t room = 0) : reply(room) {}
    Called(const Called&) = delete;
    Called& operator=(const Called&) = delete;

    tw_call_params_t params(std::uint64_t timeout_ns = 0) {
        tw_call_params_t how{};
        how.context = this;
        how.timeout_ns = timeout_ns;
        how.reply = reply.data();
        how.reply_bytes = reply.size();
        how.done = [](const tw_call_done_t* end) {
            auto& self = *static_cast<Called*>(end->context);
            self.done = *end;
            ++self.ends;
            if (self.also)
                self.also();
        };
        return how;
    }

    Bytes request, reply;
    tw_call_done_t done{};
    std::uint64_t id = 0;
    int ends = 0;
    std::function<void()> also;
};

/// A method: what it does with each request; without that it keeps the requests' ids.
class Method {
  public:
    explicit Method(Node& at, std::uint32_t method = kMethod) {
        EXPECT_EQ(tw_call_register(at.worker(), method, &Method::take, this), TW_OK);
    }
    Method(const Method&) = delete;
    Method& operator=(const Method&) = delete;

    std::function<void(tw_call_request_t&)> act;
    std::deque<tw_call_request_t> seen;

  private:
    static void take(void* arg, tw_call_request_t* request) {
        auto& self = *static_cast<Method*>(arg);
        EXPECT_EQ(request->length == 0 || request->data != nullptr, true);
        if (self.act)
            self.act(*request);
        self.seen.push_back(*request);
    }
};

class MsgCall : public PairTest {
  protected:
    Node& client() { return node(0); }
    Node& server() { return node(1); }

    void call(Called& called, const Bytes& asked, std::uint64_t timeout_ns = 0,
              std::uint32_t method = kMethod) {
        const Bytes& data = called.request = asked;
        const tw_call_params_t params = called.params(timeout_ns);
        tw_status_t status = TW_ERR_NO_RESOURCE;
        run_until([&] {
            status = tw_call(client().to(server()), method, data.data(), data.size(), &params,
                             &called.id);
            return status != TW_ERR_NO_RESOURCE;
        });
        ASSERT_EQ(status, TW_OK);
    }
    tw_status_t reply(std::uint64_t request, std::int32_t status, const Bytes& told) {
        const Bytes& data = replies_.emplace_back(told);
        tw_status_t result = TW_ERR_NO_RESOURCE;
        run_until([&] {
            result = tw_reply(server().worker(), request, status, data.data(), data.size(), nullptr,
                              nullptr);
            return result != TW_ERR_NO_RESOURCE;
        });
        return result;
    }
    void wait(const Called& called) {
        run_until([&] { return called.ends > 0; });
        EXPECT_EQ(called.ends, 1);
    }

  private:
    std::deque<Bytes> replies_;  // until the workers have gone
};

TEST_F(MsgCall, requests_and_replies_of_all_lengths) {
    Method method(server());
    for (const std::size_t asked : kCallKinds) {
        for (const std::size_t told : kCallKinds) {
            const Bytes request = pattern(asked, 1), answer = pattern(told, 2);
            std::size_t equal = 0;
            method.act = [&](const tw_call_request_t& got) {
                equal += got.length == asked &&
                         (asked == 0 || std::memcmp(got.data, request.data(), asked) == 0);
                EXPECT_EQ(got.source, client().id());
                EXPECT_EQ(got.ep, nullptr);  // the server has made none
                EXPECT_GE(tw_reply(got.worker, got.id, -7, answer.data(), told, nullptr, nullptr),
                          TW_OK);
            };
            Called called(told);
            call(called, request);
            wait(called);
            EXPECT_EQ(equal, 1U);
            EXPECT_EQ(called.done.status, TW_OK) << asked << ' ' << told;
            EXPECT_EQ(called.done.reply_status, -7);
            EXPECT_EQ(called.done.id, called.id);
            EXPECT_EQ(called.done.length, told);
            EXPECT_EQ(called.done.message_length, told);
            EXPECT_EQ(called.reply, answer);
        }
    }
    EXPECT_EQ(client().counter("call_late"), 0U);
    EXPECT_EQ(server().counter("call_refused"), 0U);
}

TEST_F(MsgCall, replies_come_later_and_in_any_order_from_what_was_kept) {
    Method method(server());
    std::vector<const void*> kept;
    method.act = [&](tw_call_request_t& got) {
        EXPECT_EQ(tw_call_keep(&got), TW_OK);
        EXPECT_EQ(tw_call_keep(&got), TW_OK);
    };
    std::deque<Bytes> data;
    std::deque<Called> calls;
    for (std::size_t i = 0; i < 60; ++i) {
        data.push_back(pattern(kCallKinds[i % std::size(kCallKinds)], i));
        call(calls.emplace_back(8), data.back());
    }
    run_until([&] { return method.seen.size() == calls.size(); });
    for (std::size_t i = calls.size(); i-- > 0;) {
        const tw_call_request_t& one = method.seen[i];
        const auto found = std::ranges::find_if(data, [&](const Bytes& each) {
            return each.size() == one.length &&
                   (one.length == 0 || std::memcmp(each.data(), one.data, one.length) == 0);
        });
        ASSERT_NE(found, data.end()) << i;
        EXPECT_GE(reply(one.id, static_cast<std::int32_t>(one.length), pattern(8, one.length)),
                  TW_OK);
        EXPECT_EQ(reply(one.id, 0, {}), TW_ERR_NO_ELEM);  // once
    }
    for (std::size_t i = 0; i < calls.size(); ++i) {
        wait(calls[i]);
        EXPECT_EQ(calls[i].done.status, TW_OK);
        EXPECT_EQ(calls[i].done.reply_status, static_cast<std::int32_t>(data[i].size()));
        EXPECT_EQ(calls[i].reply, pattern(8, data[i].size()));
    }
    EXPECT_NE(server().description().find("unexpected: 0 messages in 0 bytes"), std::string::npos);
}

TEST_F(MsgCall, a_longer_reply_is_truncated_with_both_lengths) {
    Method method(server());
    for (const std::size_t told : {kShort, kEager, kParts, kRndv}) {
        const Bytes answer = pattern(told, 3);
        method.act = [&](const tw_call_request_t& got) {
            EXPECT_GE(tw_reply(got.worker, got.id, 0, answer.data(), told, nullptr, nullptr),
                      TW_OK);
        };
        Called called(10);
        call(called, {});
        wait(called);
        EXPECT_EQ(called.done.status, TW_ERR_MESSAGE_TRUNCATED);
        EXPECT_EQ(called.done.length, 10U);
        EXPECT_EQ(called.done.message_length, told);
        EXPECT_EQ(called.reply, Bytes(answer.begin(), answer.begin() + 10));
    }
}

TEST_F(MsgCall, a_call_ends_when_its_time_is_up_and_a_late_reply_is_dropped) {
    Method method(server());
    for (const std::size_t told : {kShort, kEager, kRndv}) {
        method.seen.clear();
        const Bytes answer = pattern(told, 3);
        const std::uint64_t late = client().counter("call_late");
        const std::uint64_t timeouts = client().counter("call_timeouts");
        Called called(told);
        call(called, pattern(kShort, 1), 20'000'000);
        run_until([&] { return !method.seen.empty(); });
        EXPECT_EQ(method.seen[0].timeout_ns, 20'000'000U);
        wait(called);
        EXPECT_EQ(called.done.status, TW_ERR_TIMED_OUT);
        EXPECT_EQ(called.done.length, 0U);
        EXPECT_EQ(client().counter("call_timeouts"), timeouts + 1);
        EXPECT_GE(reply(method.seen[0].id, 0, answer), TW_OK);
        run_until([&] { return client().counter("call_late") == late + 1; });
        EXPECT_EQ(called.ends, 1);
        EXPECT_EQ(called.reply, Bytes(told));
    }
}

TEST_F(MsgCall, a_request_that_nobody_takes_ends_in_time) {
    Method method(server());
    connect();
    const tw_ep_h ep = client().to(server());
    for (const std::size_t asked : {kShort, kRndv}) {
        Bytes data = pattern(asked, 1);
        Called called;
        const tw_call_params_t params = called.params(20'000'000);
        ASSERT_EQ(tw_call(ep, kMethod, data.data(), asked, &params, nullptr), TW_OK);
        while (called.ends == 0)
            client().progress();  // the server makes none
        EXPECT_EQ(called.done.status, TW_ERR_TIMED_OUT);
        data.clear();
        data.shrink_to_fit();  // it is the program's again
    }
    run_some();
    for (const tw_call_request_t& each : method.seen)
        EXPECT_GE(reply(each.id, 0, {}), TW_OK);
    run_some();
}

TEST_F(MsgCall, a_sleeping_worker_wakes_in_time) {
    const Method method(server());
    connect();
    Called called;
    call(called, {}, 30'000'000);
    tw_status_t status = TW_OK;
    for (int i = 0; i < 1000 && called.ends == 0; ++i)
        status = tw_worker_wait(client().worker(), TW_WAIT_SLEEP, 10'000'000'000);
    EXPECT_EQ(status, TW_OK);
    EXPECT_EQ(called.done.status, TW_ERR_TIMED_OUT);
}

TEST_F(MsgCall, a_cancelled_call_ends_in_progress_once) {
    Method method(server());
    for (const std::size_t asked : kCallKinds) {
        method.seen.clear();
        Called called(kShort);
        const Bytes data = pattern(asked, 1);
        call(called, data);
        run_until([&] { return !method.seen.empty(); });
        ASSERT_EQ(tw_call_cancel(client().worker(), called.id), TW_OK);
        EXPECT_EQ(called.ends, 0);
        EXPECT_EQ(tw_call_cancel(client().worker(), called.id), TW_ERR_NO_ELEM);
        wait(called);
        EXPECT_EQ(called.done.status, TW_ERR_CANCELED);
        const std::uint64_t late = client().counter("call_late");
        EXPECT_GE(reply(method.seen[0].id, 0, pattern(kShort, 1)), TW_OK);
        run_until([&] { return client().counter("call_late") == late + 1; });
        EXPECT_EQ(called.ends, 1);
    }
    EXPECT_EQ(tw_call_cancel(client().worker(), 77), TW_ERR_NO_ELEM);
}

TEST_F(MsgCall, a_method_that_the_server_lacks_is_an_error) {
    const Method method(server());
    for (const std::size_t asked : kCallKinds) {
        const Bytes data = pattern(asked, 1);
        Called called;
        call(called, data, 0, kMethod + 1);
        wait(called);
        EXPECT_EQ(called.done.status, TW_ERR_NO_ELEM);
        EXPECT_EQ(called.done.reply_status, 0);
    }
    EXPECT_EQ(server().counter("call_turned_away"), std::size(kCallKinds));
    ASSERT_EQ(tw_call_register(server().worker(), kMethod, nullptr, nullptr), TW_OK);
    Called called;
    call(called, {});
    wait(called);
    EXPECT_EQ(called.done.status, TW_ERR_NO_ELEM);
}

TEST_F(MsgCall, a_server_keeps_as_much_as_its_options_say) {
    const Settings settings({{"TAGWIRE_CALL_REQUESTS_MAX", "3"}, {"TAGWIRE_CALL_BYTES", "400000"}});
    destroy_nodes();
    renew_context();
    Method method(server());
    std::deque<Called> calls;
    for (int i = 0; i < 4; ++i)
        call(calls.emplace_back(), pattern(kShort, 1));
    wait(calls.back());
    EXPECT_EQ(calls.back().done.status, TW_ERR_NO_RESOURCE);
    EXPECT_EQ(method.seen.size(), 3U);
    for (const tw_call_request_t& each : method.seen)
        EXPECT_GE(reply(each.id, 0, {}), TW_OK);
    for (int i = 0; i < 3; ++i)
        wait(calls[static_cast<std::size_t>(i)]);
    // Data that comes by rendezvous: kRndv bytes once, and never more than the limit.
    const Bytes data = pattern(kRndv, 1), longer = pattern(500000, 2);
    Called first, second, third;
    call(first, data);
    run_until([&] { return method.seen.size() == 4; });
    call(second, data);
    wait(second);
    EXPECT_EQ(second.done.status, TW_ERR_NO_RESOURCE);
    call(third, longer);
    wait(third);
    EXPECT_EQ(third.done.status, TW_ERR_EXCEEDS_LIMIT);
    EXPECT_GE(reply(method.seen.back().id, 5, {}), TW_OK);
    wait(first);
    EXPECT_EQ(first.done.status, TW_OK);
}

TEST_F(MsgCall, the_death_of_a_peer_ends_all_its_calls_once) {
    const Method method(server());
    std::deque<Bytes> data;
    std::deque<Called> calls;
    for (int i = 0; i < 40; ++i) {
        data.push_back(pattern(kCallKinds[static_cast<std::size_t>(i) % std::size(kCallKinds)], 1));
        call(calls.emplace_back(kEager), data.back(), i % 2 == 0 ? 0 : 3'600'000'000'000);
    }
    run_until([&] { return method.seen.size() == calls.size(); });
    // A call of another peer goes on.
    Node& other = node(2);
    Method others(other);
    Called survives;
    const tw_call_params_t params = survives.params();
    ASSERT_EQ(tw_call(client().to(other), kMethod, nullptr, 0, &params, nullptr), TW_OK);
    run_until([&] { return others.seen.size() == 1; });
    server().destroy();
    while (std::ranges::any_of(calls, [](const Called& each) { return each.ends == 0; }))
        client().progress();
    for (const Called& each : calls) {
        EXPECT_EQ(each.ends, 1);
        EXPECT_LT(each.done.status, TW_OK);
        EXPECT_NE(each.done.status, TW_ERR_TIMED_OUT);
    }
    EXPECT_EQ(survives.ends, 0);
    ASSERT_GE(tw_reply(other.worker(), others.seen[0].id, 0, nullptr, 0, nullptr, nullptr), TW_OK);
    while (survives.ends == 0) {
        client().progress();
        other.progress();
    }
    EXPECT_EQ(survives.done.status, TW_OK);
}

TEST_F(MsgCall, an_endpoint_that_is_closed_by_force_ends_its_calls) {
    const Method method(server());
    const Bytes data = pattern(kRndv, 1);
    Called first(10), second(10);
    call(first, pattern(kShort, 1));
    call(second, data);
    run_until([&] { return method.seen.size() == 2; });
    ASSERT_EQ(tw_ep_close(client().to(server()), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    wait(first);
    wait(second);
    EXPECT_EQ(first.done.status, TW_ERR_CANCELED);
    EXPECT_EQ(second.done.status, TW_ERR_CANCELED);
    run_until([&] {
        return std::ranges::any_of(server().events,
                                   [](const auto& event) { return event.event != TW_PEER_UP; });
    });
    // The server need not know: its replies go nowhere.
    for (const tw_call_request_t& each : method.seen)
        EXPECT_LT(reply(each.id, 0, {}), TW_OK);
}

TEST_F(MsgCall, a_reply_comes_although_the_endpoint_was_closed_in_order) {
    const Method method(server());
    Called called(kShort);
    call(called, {});
    run_until([&] { return method.seen.size() == 1; });
    const tw_ep_h own = server().to(client());  // so that the connection stays
    ASSERT_NE(own, nullptr);
    int mark = 0;
    const tw_op_t how = op(&mark);
    ASSERT_EQ(tw_ep_close(client().to(server()), TW_FLUSH_DELIVERED, &how, nullptr), TW_INPROGRESS);
    EXPECT_EQ(end_of(client(), &mark).status, TW_OK);
    EXPECT_GE(reply(method.seen[0].id, 0, pattern(kShort, 1)), TW_OK);
    wait(called);
    EXPECT_EQ(called.done.status, TW_OK);
    EXPECT_EQ(called.reply, pattern(kShort, 1));
}

TEST_F(MsgCall, a_worker_calls_itself_and_handlers_call_and_reply) {
    Method own(client());
    own.act = [](const tw_call_request_t& got) {
        EXPECT_GE(tw_reply(got.worker, got.id, 1, nullptr, 0, nullptr, nullptr), TW_OK);
    };
    Called called;
    const tw_call_params_t params = called.params();
    ASSERT_EQ(tw_call(client().to(client()), kMethod, nullptr, 0, &params, nullptr), TW_OK);
    wait(called);
    EXPECT_EQ(called.done.reply_status, 1);
    // The server asks back before it replies, and the client calls again in the end of a call.
    Method method(server());
    Called back;
    const tw_ep_h to_client = server().to(client());
    const tw_call_params_t asks = back.params();
    std::uint64_t waiting = 0;
    method.act = [&](const tw_call_request_t& got) {
        waiting = got.id;
        ASSERT_EQ(tw_call(to_client, kMethod, nullptr, 0, &asks, nullptr), TW_OK);
    };
    back.also = [&] {
        EXPECT_GE(tw_reply(server().worker(), waiting, 2, nullptr, 0, nullptr, nullptr), TW_OK);
    };
    int rounds = 0;
    Called chain;
    const tw_call_params_t again = chain.params();
    const tw_ep_h to_server = client().to(server());
    chain.also = [&] {
        if (++rounds < 50) {
            EXPECT_EQ(tw_call(to_server, kMethod, nullptr, 0, &again, nullptr), TW_OK);
        }
    };
    ASSERT_EQ(tw_call(to_server, kMethod, nullptr, 0, &again, nullptr), TW_OK);
    run_until([&] { return rounds == 50; });
    EXPECT_EQ(chain.done.reply_status, 2);
}

TEST_F(MsgCall, calls_that_are_under_way_go_with_their_worker) {
    const Method method(server());
    const Bytes data = pattern(kRndv, 1);
    Called first, second;
    call(first, {}, 1'000'000'000);
    call(second, data, 1'000'000'000);
    run_until([&] { return method.seen.size() == 2; });
    client().destroy();
    EXPECT_EQ(first.ends + second.ends, 0);
    for (const tw_call_request_t& each : method.seen)
        static_cast<void>(tw_reply(server().worker(), each.id, 0, nullptr, 0, nullptr, nullptr));
    for (int i = 0; i < 1000; ++i)
        server().progress();
    EXPECT_EQ(first.ends + second.ends, 0);
}

TEST_F(MsgCall, memory_that_does_not_cover_a_buffer_is_refused) {
    Bytes mapped(4096);
    const Bytes other(4096);
    tw_mem_h mem = nullptr;
    ASSERT_EQ(tw_mem_map(context_.get(), mapped.data(), mapped.size(), nullptr, &mem), TW_OK);
    for (const std::uint64_t timeout_ns : {0UL, 1'000'000'000UL}) {  // the second is sent as a copy
        Called called(8);
        tw_call_params_t wrong = called.params(timeout_ns);
        wrong.mem = mem;
        tw_call_params_t wrong_reply = called.params(timeout_ns);
        wrong_reply.reply_mem = mem;
        for (const tw_call_params_t& params : {wrong, wrong_reply}) {
            EXPECT_EQ(tw_call(client().to(server()), kMethod, other.data(), other.size(), &params,
                              nullptr),
                      TW_ERR_INVALID_PARAM);
        }
        EXPECT_EQ(called.ends, 0);
    }
    EXPECT_EQ(tw_mem_unmap(context_.get(), mem), TW_OK);
}

TEST_F(MsgCall, wrong_arguments_are_refused) {
    Called called(10);
    tw_call_params_t params = called.params();
    const tw_ep_h ep = client().to(server());
    EXPECT_EQ(tw_call(nullptr, 1, nullptr, 0, &params, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_call(ep, 1, nullptr, 0, nullptr, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_call(ep, 1, nullptr, 5, &params, nullptr), TW_ERR_INVALID_PARAM);
    params.reply = nullptr;
    EXPECT_EQ(tw_call(ep, 1, nullptr, 0, &params, nullptr), TW_ERR_INVALID_PARAM);
    params = called.params();
    params.done = nullptr;
    EXPECT_EQ(tw_call(ep, 1, nullptr, 0, &params, nullptr), TW_ERR_INVALID_PARAM);
    params = called.params();
    params.struct_bytes = 0;
    EXPECT_EQ(tw_call(ep, 1, nullptr, 0, &params, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_call_register(nullptr, 1, nullptr, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_call_cancel(nullptr, 1), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_call_keep(nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_reply(nullptr, 1, 0, nullptr, 0, nullptr, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_reply(server().worker(), 1, 0, nullptr, 0, nullptr, nullptr), TW_ERR_NO_ELEM);
    EXPECT_EQ(tw_am_register(client().worker(), TW_AM_ID_MAX + 1, nullptr, nullptr),
              TW_ERR_INVALID_PARAM);
    Method method(server());
    tw_status_t twice = TW_OK;
    method.act = [&](tw_call_request_t& got) {
        EXPECT_GE(tw_reply(got.worker, got.id, 0, nullptr, 0, nullptr, nullptr), TW_OK);
        twice = tw_call_keep(&got);
    };
    call(called, pattern(kShort, 1));
    wait(called);
    EXPECT_EQ(twice, TW_ERR_INVALID_PARAM);
}

}  // namespace
}  // namespace tagwire::test
