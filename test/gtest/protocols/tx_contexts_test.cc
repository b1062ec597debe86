// SPDX-License-Identifier: BSD-3-Clause
// Workers whose threads send by transmit contexts: what a program sees is one worker. Only the
// public API.
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr unsigned kContexts = 2;  // each has one other
constexpr std::uint64_t kPatienceNs = 60'000'000'000;

tw_worker_params_t params_with(unsigned contexts, tw_thread_mode_t mode = TW_THREAD_MULTI) {
    tw_worker_params_t params{};
    params.thread_mode = mode;
    params.tx_contexts = contexts;
    return params;
}

/// The number that a message begins with.
std::uint64_t number_in(const Bytes& bytes) {
    std::uint64_t number = 0;
    std::memcpy(&number, bytes.data(), sizeof number);
    return number;
}

class MsgTx : public MsgTest {
  public:
    /// Runs in a new thread, which has the next transmit context in turn.
    static void in_next_context(const std::function<void()>& act) { std::thread(act).join(); }
    void in_each_context(const std::function<void(unsigned)>& act) {
        for (unsigned i = 0; i < kContexts; ++i)
            in_next_context([&] { act(i); });
    }
    void run(const std::function<bool()>& is_over) {
        run_until([&] {
            at_.progress();
            from_.progress();
            return is_over();
        });
    }
    void run_some_rounds() {
        for (int i = 0; i < 2000; ++i) {
            at_.progress();
            from_.progress();
        }
    }
    /// The status of an operation when it has ended.
    tw_status_t status_of(tw_status_t answer, tw_request_h request) {
        if (answer != TW_INPROGRESS)
            return answer;
        run([&] { return tw_request_test(request, nullptr) != TW_INPROGRESS; });
        const tw_status_t status = tw_request_test(request, nullptr);
        tw_request_free(request);
        return status;
    }
    tw_status_t flush(tw_flush_level_t level = TW_FLUSH_DELIVERED) {
        tw_request_h request = nullptr;
        const tw_status_t answer = tw_ep_flush(ep_, level, nullptr, &request);
        return status_of(answer, request);
    }
    tw_status_t close(tw_flush_level_t level = TW_FLUSH_DELIVERED) {
        tw_request_h request = nullptr;
        const tw_status_t answer = tw_ep_close(ep_, level, nullptr, &request);
        return status_of(answer, request);
    }
    /// Sends as the calling thread, one at a time. The request of what goes on.
    tw_request_h send(const Bytes& bytes, std::uint64_t tag, std::uint32_t flags = 0) {
        const Bytes& data = *sent_.emplace_back(std::make_unique<Bytes>(bytes));
        tw_op_t how{};
        how.flags = flags;
        tw_request_h request = nullptr;
        tw_status_t status = TW_ERR_NO_RESOURCE;
        while (status == TW_ERR_NO_RESOURCE) {
            status = tw_tag_send(ep_, data.data(), data.size(), tag, &how, &request);
            if (status == TW_ERR_NO_RESOURCE)
                run_some_rounds();
        }
        EXPECT_GE(status, TW_OK);
        return status == TW_INPROGRESS ? request : nullptr;
    }
    tw_completion_t receive(Bytes& to, std::uint64_t tag, std::uint64_t ignore) {
        return receive_at(at_, to, tag, ignore);
    }
    tw_completion_t receive_at(const Node& at, Bytes& to, std::uint64_t tag, std::uint64_t ignore) {
        tw_completion_t done{};
        tw_message_info_t info{};
        tw_op_t how{};
        how.info = &info;
        tw_request_h request = nullptr;
        const tw_status_t answer =
            tw_tag_recv(at.worker(), to.data(), to.size(), tag, ignore, &how, &request);
        if (answer == TW_INPROGRESS) {
            run([&] { return tw_request_test(request, &done) != TW_INPROGRESS; });
            tw_request_free(request);
        } else {
            done.status = answer;
            done.tag = info.tag;
            done.length = done.message_length = info.length;
            done.imm = info.imm;
            done.source = info.source;
            done.ep = info.ep;
        }
        EXPECT_EQ(done.status, TW_OK);
        return done;
    }
    std::size_t peers_of(const Node& node) {
        tw_worker_attr_t attr{};
        EXPECT_EQ(tw_worker_query(node.worker(), &attr), TW_OK);
        return attr.endpoints;
    }
    void connect(std::uint32_t flags = 0) {
        const Bytes address = at_.address();
        tw_ep_params_t params{};
        params.address = address.data();
        params.address_length = address.size();
        params.flags = flags;
        ASSERT_EQ(tw_ep_create(from_.worker(), &params, &ep_), TW_OK);
    }

    Node at_{context_.get()};
    std::vector<std::pair<tw_ep_h, tw_status_t>> failures_;
    Node from_{context_.get(), [this] {
                   tw_worker_params_t params = params_with(kContexts);
                   params.ep_failed = [](void* arg, tw_ep_h ep, tw_status_t status) {
                       static_cast<MsgTx*>(arg)->failures_.emplace_back(ep, status);
                   };
                   params.ep_failed_arg = this;
                   return params;
               }()};
    tw_ep_h ep_ = nullptr;
    std::vector<std::unique_ptr<Bytes>> sent_;
};

TEST_F(MsgTx, numbers_and_flags_are_checked) {
    tw_worker_h worker = nullptr;
    for (const tw_worker_params_t& wrong :
         {params_with(2, TW_THREAD_SINGLE), params_with(2, TW_THREAD_SERIALIZED),
          params_with(TW_TX_CONTEXTS_MAX + 1)})
        EXPECT_EQ(tw_worker_create(context_.get(), &wrong, &worker), TW_ERR_INVALID_PARAM);
    tw_worker_attr_t attr{};
    ASSERT_EQ(tw_worker_query(from_.worker(), &attr), TW_OK);
    EXPECT_EQ(attr.tx_contexts, kContexts);
    ASSERT_EQ(tw_worker_query(at_.worker(), &attr), TW_OK);
    EXPECT_EQ(attr.tx_contexts, 1U);
    const Bytes address = at_.address();
    tw_ep_params_t params{};
    params.address = address.data();
    params.address_length = address.size();
    params.flags = 0x80;
    EXPECT_EQ(tw_ep_create(from_.worker(), &params, &ep_), TW_ERR_INVALID_PARAM);
}

TEST_F(MsgTx, messages_of_each_thread_stay_in_order) {
    constexpr std::uint64_t kMessages = 300;
    connect();
    std::atomic<unsigned> left{kContexts + 1};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i <= kContexts; ++i) {
        threads.emplace_back([&, i] {
            Bytes data(100'000);
            for (std::uint64_t number = 0; number < kMessages; ++number) {
                std::memcpy(data.data(), &number, sizeof number);
                const std::size_t length = number % 37 == 0 ? data.size() : number % 5 * 1000 + 8;
                tw_request_h request = nullptr;
                tw_status_t status = TW_ERR_NO_RESOURCE;
                while ((status = tw_tag_send(ep_, data.data(), length, i, nullptr, &request)) ==
                       TW_ERR_NO_RESOURCE)
                    tw_worker_progress(from_.worker());
                EXPECT_GE(status, TW_OK);
                if (status == TW_INPROGRESS) {
                    EXPECT_EQ(tw_request_wait(request, TW_WAIT_YIELD, kPatienceNs, nullptr), TW_OK);
                    tw_request_free(request);
                }
            }
            --left;
            while (left > 0)
                tw_worker_progress(from_.worker());
        });
    }
    std::array<std::uint64_t, kContexts + 1> next{};
    Bytes to(100'000);
    for (std::uint64_t i = 0; i < kMessages * (kContexts + 1); ++i) {
        const tw_completion_t done = receive(to, 0, UINT64_MAX);
        ASSERT_EQ(done.status, TW_OK);
        ASSERT_LE(done.tag, kContexts);
        EXPECT_EQ(number_in(to), next[done.tag]++);
        EXPECT_EQ(done.source, from_.id());
    }
    for (std::thread& thread : threads) {
        while (left > 0)
            tw_worker_progress(at_.worker());
        thread.join();
    }
}

TEST_F(MsgTx, their_source_is_the_worker) {
    connect();
    Bytes to(8);
    in_each_context([&](unsigned i) { send(pattern(8, i), i); });
    for (unsigned i = 0; i < kContexts; ++i) {
        const tw_completion_t done = receive(to, i, 0);
        EXPECT_EQ(done.source, from_.id());
        EXPECT_EQ(done.ep, nullptr);
        EXPECT_EQ(to, pattern(8, i));
    }
    tw_ep_h back = nullptr;
    ASSERT_EQ(tw_ep_create_to(at_.worker(), from_.id(), nullptr, &back), TW_OK);
    in_each_context([&](unsigned i) { send(pattern(8, i), i); });
    for (unsigned i = 0; i < kContexts; ++i)
        EXPECT_EQ(receive(to, i, 0).ep, back);
    EXPECT_EQ(at_.events, (std::vector<Node::PeerEvent>{{from_.id(), TW_PEER_UP, TW_OK}}));
}

/// The first operations of two contexts have the same number.
TEST_F(MsgTx, a_cancel_takes_the_message_of_its_own_context) {
    connect();
    for (unsigned cancelled = 0; cancelled < kContexts; ++cancelled) {
        std::array<tw_request_h, kContexts> requests{};
        const std::uint64_t before = at_.counter("rx_unexpected");
        in_each_context(
            [&](unsigned i) { requests[i] = send(pattern(8, i), i, TW_OP_MATCH_COMPLETE); });
        run([&] { return at_.counter("rx_unexpected") == before + kContexts; });
        ASSERT_EQ(tw_request_cancel(requests[cancelled]), TW_OK);
        EXPECT_EQ(status_of(TW_INPROGRESS, requests[cancelled]), TW_ERR_CANCELED);
        Bytes to(8);
        const unsigned other = 1 - cancelled;
        receive(to, other, 0);
        EXPECT_EQ(to, pattern(8, other));
        EXPECT_EQ(status_of(TW_INPROGRESS, requests[other]), TW_OK);
    }
    EXPECT_EQ(at_.counter("garbage") + from_.counter("garbage"), 0U);
}

TEST_F(MsgTx, a_flush_waits_for_all_of_them) {
    connect();
    in_each_context([&](unsigned i) { send(pattern(3000, i), i); });
    EXPECT_EQ(flush(), TW_OK);
    EXPECT_EQ(at_.counter("rx_unexpected"), kContexts);
}

TEST_F(MsgTx, at_level_sent_all_of_them_are_waited_for) {
    connect();
    EXPECT_EQ(tw_ep_flush(ep_, TW_FLUSH_SENT, nullptr, nullptr), TW_OK);
    in_each_context([&](unsigned i) { send(pattern(3000, i), i); });
    tw_request_h request = nullptr;
    const tw_status_t answer = tw_worker_flush(from_.worker(), TW_FLUSH_SENT, nullptr, &request);
    EXPECT_EQ(status_of(answer, request), TW_OK);
    EXPECT_EQ(flush(TW_FLUSH_SENT), TW_OK);
    EXPECT_EQ(tw_ep_flush(ep_, TW_FLUSH_SENT, nullptr, nullptr), TW_OK);
    run([&] { return at_.counter("rx_unexpected") == kContexts; });
    in_each_context([&](unsigned i) { send(pattern(3000, i), i); });
    EXPECT_EQ(close(TW_FLUSH_SENT), TW_OK);
    run([&] { return at_.counter("rx_unexpected") == 2 * kContexts; });
}

TEST_F(MsgTx, a_close_in_order_loses_nothing_and_leaves_nothing) {
    for (int round = 0; round < 3; ++round) {
        connect();
        in_each_context([&](unsigned i) { send(pattern(3000, i), i); });
        EXPECT_EQ(close(), TW_OK);
        Bytes to(3000);
        for (unsigned i = 0; i < kContexts; ++i) {
            receive(to, i, 0);
            EXPECT_EQ(to, pattern(3000, i));
        }
        run([&] { return peers_of(at_) == 0 && peers_of(from_) == 0; });
    }
    EXPECT_TRUE(failures_.empty());
    for (const Node::PeerEvent& event : at_.events)
        EXPECT_NE(event.event, TW_PEER_FAILED);
}

TEST_F(MsgTx, one_that_was_never_connected_can_be_closed) {
    connect();
    tw_request_h request = nullptr;
    const tw_status_t answer = tw_ep_close(ep_, TW_FLUSH_DELIVERED, nullptr, &request);
    EXPECT_EQ(status_of(answer, request), TW_OK);
    run_some_rounds();
    connect();
    in_each_context([&](unsigned i) { send(pattern(8, i), i); });
    Bytes to(8);
    for (unsigned i = 0; i < kContexts; ++i)
        receive(to, i, 0);
}

TEST_F(MsgTx, a_close_by_force_ends_what_is_under_way) {
    connect();
    std::array<tw_request_h, kContexts> requests{};
    const Bytes data = pattern(100'000, 1);
    in_each_context([&](unsigned i) { requests[i] = send(data, i, TW_OP_MATCH_COMPLETE); });
    EXPECT_EQ(tw_ep_close(ep_, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    for (tw_request_h request : requests)
        EXPECT_EQ(status_of(TW_INPROGRESS, request), TW_ERR_CANCELED);
    EXPECT_TRUE(failures_.empty());
}

TEST_F(MsgTx, the_peer_that_closes_by_force_hears_of_the_end_of_each_context) {
    connect();
    Bytes to(8);
    in_each_context([&](unsigned i) { send(pattern(8, i), i); });
    for (unsigned i = 0; i < kContexts; ++i)
        receive(to, i, 0);
    const tw_ep_h back = at_.to(from_);
    ASSERT_EQ(tw_tag_send(back, to.data(), to.size(), 7, nullptr, nullptr), TW_OK);
    receive_at(from_, to, 7, 0);
    EXPECT_EQ(tw_ep_close(back, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    run([&] { return failures_.size() == 1; });
    EXPECT_EQ(tw_ep_close(ep_, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    // It would receive for ever what they had begun to send.
    run([&] { return peers_of(at_) == 0 && peers_of(from_) == 0; });
}

TEST_F(MsgTx, what_ends_with_an_endpoint_may_make_the_next_one) {
    connect();
    Bytes to(8);
    in_each_context([&](unsigned i) { send(pattern(8, i), i); });
    for (unsigned i = 0; i < kContexts; ++i)
        receive(to, i, 0);
    tw_op_t directed = op(this);
    directed.source = ep_;
    directed.complete = [](const tw_completion_t* done) {
        static_cast<MsgTx*>(done->context)->connect();
    };
    Bytes never(8);
    ASSERT_EQ(tw_tag_recv(from_.worker(), never.data(), never.size(), 9, 0, &directed, nullptr),
              TW_INPROGRESS);
    const tw_ep_h before = ep_;
    const tw_ep_h back = at_.to(from_);
    EXPECT_EQ(tw_ep_close(back, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    run([&] { return ep_ != before && !failures_.empty(); });
    EXPECT_EQ(tw_ep_close(before, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    in_each_context([&](unsigned i) { send(pattern(8, i + 5), i); });
    for (unsigned i = 0; i < kContexts; ++i) {
        receive(to, i, 0);
        EXPECT_EQ(to, pattern(8, i + 5));
    }
    EXPECT_EQ(failures_.size(), 1U);
}

TEST_F(MsgTx, a_failure_is_told_once_and_behind_what_it_ends) {
    connect();
    struct End {
        MsgTx* test;
        std::atomic<int> count{0};
        std::atomic<bool> was_told_before{false};
    } end{this};
    const Bytes data = pattern(100'000, 1);
    in_each_context([&](unsigned i) {
        tw_op_t how = op(&end, TW_OP_MATCH_COMPLETE);
        how.complete = [](const tw_completion_t* done) {
            auto& one = *static_cast<End*>(done->context);
            EXPECT_LT(done->status, TW_OK);
            EXPECT_EQ(done->ep, one.test->ep_);
            ++one.count;
            one.was_told_before = one.was_told_before || !one.test->failures_.empty();
        };
        EXPECT_EQ(tw_tag_send(ep_, data.data(), data.size(), i, &how, nullptr), TW_INPROGRESS);
    });
    run([&] { return at_.counter("rx_unexpected") == kContexts; });
    at_.destroy();
    run_until([&] {
        from_.progress();
        return end.count == kContexts && !failures_.empty();
    });
    EXPECT_FALSE(end.was_told_before);
    for (int i = 0; i < 1000; ++i)
        from_.progress();
    ASSERT_EQ(failures_.size(), 1U);
    EXPECT_EQ(failures_[0].first, ep_);
    in_each_context([&](unsigned i) {
        EXPECT_EQ(tw_tag_send(ep_, data.data(), 8, i, nullptr, nullptr), failures_[0].second);
    });
    EXPECT_EQ(tw_ep_close(ep_, TW_FLUSH_DELIVERED, nullptr, nullptr), failures_[0].second);
}

TEST_F(MsgTx, threads_sleep_until_their_operations_end) {
    connect();
    Bytes to(100'000);
    const Bytes data = pattern(100'000, 1);
    std::atomic<bool> is_over{false};
    std::thread receiver([&] {
        for (unsigned i = 0; i < 10 * kContexts; ++i) {
            tw_request_h request = nullptr;
            tw_status_t status =
                tw_tag_recv(at_.worker(), to.data(), to.size(), 0, UINT64_MAX, nullptr, &request);
            if (status == TW_INPROGRESS) {
                status = tw_request_wait(request, TW_WAIT_SLEEP, kPatienceNs, nullptr);
                tw_request_free(request);
            }
            EXPECT_EQ(status, TW_OK);
        }
        while (!is_over)
            tw_worker_wait(at_.worker(), TW_WAIT_SLEEP, 1'000'000);
    });
    std::vector<std::thread> senders;
    for (unsigned thread = 0; thread < kContexts; ++thread) {
        senders.emplace_back([&] {
            Bytes back(8);
            for (unsigned i = 0; i < 10; ++i) {
                tw_request_h requests[2] = {nullptr, nullptr};
                tw_op_t how{};
                how.flags = TW_OP_DELIVERY_COMPLETE;
                EXPECT_EQ(tw_tag_send(ep_, data.data(), data.size(), 1, &how, &requests[0]),
                          TW_INPROGRESS);
                EXPECT_EQ(tw_tag_recv(from_.worker(), back.data(), back.size(), 9, 0, nullptr,
                                      &requests[1]),
                          TW_INPROGRESS);
                std::size_t first = 2;
                EXPECT_EQ(tw_wait_any(requests, 2, TW_WAIT_SLEEP, kPatienceNs, &first), TW_OK);
                EXPECT_EQ(first, 0U);
                EXPECT_EQ(tw_request_cancel(requests[1]), TW_OK);
                EXPECT_EQ(tw_wait_all(requests, 2, TW_WAIT_SLEEP, kPatienceNs), TW_OK);
                EXPECT_EQ(tw_request_test(requests[0], nullptr), TW_OK);
                for (tw_request_h request : requests)
                    tw_request_free(request);
            }
        });
    }
    for (std::thread& sender : senders)
        sender.join();
    is_over = true;
    receiver.join();
}

TEST_F(MsgTx, their_completions_are_polled_from_the_worker) {
    connect();
    int marks[kContexts] = {};
    in_each_context([&](unsigned i) {
        const tw_op_t how = op(&marks[i], TW_OP_COMPLETION);
        EXPECT_EQ(tw_tag_send(ep_, "x", 1, i, &how, nullptr), TW_INPROGRESS);
    });
    run([&] { return from_.done.size() == kContexts; });
    for (const tw_completion_t& done : from_.done) {
        EXPECT_EQ(done.ep, ep_);
        EXPECT_EQ(done.status, TW_OK);
    }
    EXPECT_GE(from_.counter("tx_eager") + from_.counter("tx_short"), kContexts);
}

TEST_F(MsgTx, a_callback_may_send_but_not_progress) {
    connect();
    struct Calls {
        MsgTx* test;
        std::atomic<int> count{0};
    } calls{this};
    in_each_context([&](unsigned i) {
        tw_op_t how = op(&calls, TW_OP_COMPLETION);
        how.complete = [](const tw_completion_t* done) {
            auto& all = *static_cast<Calls*>(done->context);
            EXPECT_EQ(tw_worker_progress(all.test->from_.worker()), 0U);
            EXPECT_EQ(tw_worker_wait(all.test->from_.worker(), TW_WAIT_SPIN, 0),
                      TW_ERR_INVALID_PARAM);
            EXPECT_GE(tw_tag_send(all.test->ep_, "y", 1, 7, nullptr, nullptr), TW_OK);
            ++all.count;
        };
        EXPECT_EQ(tw_tag_send(ep_, "x", 1, i, &how, nullptr), TW_INPROGRESS);
    });
    run([&] { return calls.count == kContexts; });
    Bytes to(1);
    for (unsigned i = 0; i < kContexts; ++i)
        receive(to, 7, 0);
}

TEST_F(MsgTx, a_callback_may_close_what_others_wait_for) {
    connect();
    struct Ends {
        MsgTx* test;
        std::atomic<int> count{0};
    } ends{this};
    const auto end = [](const tw_completion_t* done) {
        auto& all = *static_cast<Ends*>(done->context);
        if (all.count++ == 0) {
            EXPECT_EQ(tw_ep_close(all.test->ep_, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
        }
        // With the worker's own lock.
        EXPECT_EQ(tw_ep_find(all.test->from_.worker(), all.test->at_.id()), nullptr);
    };
    const Bytes data = pattern(100'000, 1);
    in_each_context([&](unsigned i) {
        tw_op_t waits = op(&ends, TW_OP_MATCH_COMPLETE);
        waits.complete = end;
        EXPECT_EQ(tw_tag_send(ep_, data.data(), data.size(), i, &waits, nullptr), TW_INPROGRESS);
    });
    run([&] { return at_.counter("rx_unexpected") == kContexts; });
    in_next_context([&] {
        tw_op_t is_over = op(&ends, TW_OP_COMPLETION);
        is_over.complete = end;
        EXPECT_EQ(tw_tag_send(ep_, "x", 1, 9, &is_over, nullptr), TW_INPROGRESS);
    });
    run([&] { return ends.count == kContexts + 1; });
}

TEST_F(MsgTx, endpoints_that_keep_the_order_of_all_threads_use_none) {
    connect(TW_EP_ORDERED);
    for (std::uint64_t number = 0; number < 10; ++number) {
        in_next_context([&] {
            Bytes data(8);
            std::memcpy(data.data(), &number, sizeof number);
            send(data, 1);
        });
    }
    Bytes to(8);
    for (std::uint64_t number = 0; number < 10; ++number) {
        receive(to, 1, 0);
        EXPECT_EQ(number_in(to), number);
    }
    EXPECT_EQ(peers_of(at_), 1U);
}

TEST_F(MsgTx, a_worker_sends_to_itself) {
    const Bytes address = from_.address();
    tw_ep_params_t params{};
    params.address = address.data();
    params.address_length = address.size();
    ASSERT_EQ(tw_ep_create(from_.worker(), &params, &ep_), TW_OK);
    in_each_context([&](unsigned i) { send(pattern(3000, i), i); });
    for (unsigned i = 0; i < kContexts; ++i) {
        Bytes to(3000);
        const tw_completion_t done = receive_at(from_, to, i, 0);
        EXPECT_EQ(done.ep, ep_);
        EXPECT_EQ(to, pattern(3000, i));
    }
}

}  // namespace
}  // namespace tagwire::test
