// SPDX-License-Identifier: BSD-3-Clause
// TW_OP_QUEUE: operations that the library keeps where their calls would answer
// TW_ERR_NO_RESOURCE. Only the public API.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "protocols/rma_pair.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kKeptRequests = 64;  // the least there can be
constexpr std::uint64_t kKept = 100;
constexpr std::uint64_t kKeptAll = kKeptRequests + kKept;
constexpr std::uint64_t kKeptTag = 9;

/// Ends of operations by their numbers, as callbacks were told of them.
struct KeptEnds {
    struct One {
        KeptEnds* all;
        unsigned ends;
        tw_status_t status;
    };
    explicit KeptEnds(std::size_t number) : of(number, One{this, 0, TW_INPROGRESS}) {}
    KeptEnds(const KeptEnds&) = delete;
    KeptEnds& operator=(const KeptEnds&) = delete;

    tw_op_t op(std::size_t number, std::uint32_t flags) {
        tw_op_t how{};
        how.flags = flags | TW_OP_COMPLETION;
        how.context = &of[number];
        how.complete = [](const tw_completion_t* done) {
            One& one = *static_cast<One*>(done->context);
            ++one.ends;
            one.status = done->status;
            ++one.all->count;
        };
        return how;
    }
    /// Each of the first `number` has ended once, with `status`.
    void expect_once(std::size_t number, tw_status_t status) const {
        for (std::size_t i = 0; i < number; ++i) {
            EXPECT_EQ(of[i].ends, 1U) << i;
            EXPECT_EQ(of[i].status, status) << i;
        }
    }

    std::vector<One> of;
    std::uint64_t count = 0;
};

class KeptTest : private Settings, public RmaTest {
  protected:
    KeptTest()
        : Settings({{"TAGWIRE_REQUESTS_MAX", std::to_string(kKeptRequests)},
                    {"TAGWIRE_QUEUED_MAX", std::to_string(kKept)},
                    {"TAGWIRE_UNEXPECTED_BYTES", "256k"},
                    {"TAGWIRE_UNEXPECTED_MAX", "100"}}) {}

    std::uint64_t kept() { return node(0).counter("ops_kept"); }
    /// Kept operations that have not ended.
    bool has_kept() { return node(0).description().find("operations_kept") != std::string::npos; }
    /// Sends number i of `numbers_`.
    tw_status_t send_number(tw_ep_h ep, std::uint64_t i, const tw_op_t& how,
                            tw_request_h* request_p = nullptr) {
        return tw_tag_send(ep, &numbers_[i], sizeof numbers_[i], kKeptTag, &how, request_p);
    }
    /// The next number that comes. No receive of it is posted.
    std::uint64_t next_number(Node& at) {
        std::uint64_t number = UINT64_MAX;
        tw_op_t how = op(&number);
        tw_status_t status = TW_ERR_NO_RESOURCE;
        run_until([&] {
            if (status == TW_ERR_NO_RESOURCE)
                status =
                    tw_tag_recv(at.worker(), &number, sizeof number, kKeptTag, 0, &how, nullptr);
            return status != TW_ERR_NO_RESOURCE;
        });
        EXPECT_EQ(end_of(at, &number).status, TW_OK);
        return number;
    }
    /// Receives that nothing matches take all requests of node 0.
    void use_up_requests(std::vector<tw_request_h>& receives) {
        receives.assign(kKeptRequests, nullptr);
        for (tw_request_h& each : receives)
            ASSERT_EQ(tw_tag_recv(node(0).worker(), nullptr, 0, 1234, 0, nullptr, &each),
                      TW_INPROGRESS);
    }
    void give_back(std::vector<tw_request_h>& receives) {
        for (tw_request_h each : receives) {
            EXPECT_EQ(tw_request_cancel(each), TW_OK);
            tw_request_free(each);
        }
    }
    /// Both know each other.
    tw_ep_h connected_pair() {
        const tw_ep_h ep = connected(node(0), node(1));
        connected(node(1), node(0));
        return ep;
    }
    /// Node 1 has paused node 0. Returns how many messages node 0 has sent.
    std::uint64_t send_until_paused(tw_ep_h ep) {
        std::uint64_t sent = 0;
        const tw_op_t how{};
        run_until([&] {
            for (int i = 0; i < 10 && sent < numbers_.size() && !is_paused(); ++i)
                sent += send_number(ep, sent, how) >= TW_OK ? 1 : 0;
            return is_paused();
        });
        return sent;
    }
    bool is_paused() {
        return node(0).description().find("paused by the peer") != std::string::npos;
    }

    std::vector<std::uint64_t> numbers_ = [] {
        std::vector<std::uint64_t> all(100'000);
        for (std::uint64_t i = 0; i < all.size(); ++i)
            all[i] = i;
        return all;
    }();
};
using MsgKept = KeptTest;

// ---- Beyond the requests

TEST_F(MsgKept, more_sends_than_requests_arrive_in_the_order_of_their_calls) {
    const tw_ep_h ep = node(0).to(node(1));  // not connected: all wait
    KeptEnds ends(kKeptAll);
    for (std::uint64_t i = 0; i < kKeptAll; ++i) {
        if (i == kKeptRequests) {
            const tw_op_t plain = ends.op(i, 0);
            EXPECT_EQ(send_number(ep, i, plain), TW_ERR_NO_RESOURCE);
        }
        const tw_op_t how = ends.op(i, TW_OP_QUEUE);
        ASSERT_EQ(send_number(ep, i, how), TW_INPROGRESS) << i;
    }
    EXPECT_EQ(kept(), kKept);
    EXPECT_TRUE(has_kept());
    for (std::uint64_t i = 0; i < kKeptAll; ++i)
        ASSERT_EQ(next_number(node(1)), i);
    run_until([&] { return ends.count == kKeptAll; });
    ends.expect_once(kKeptAll, TW_OK);
    EXPECT_FALSE(has_kept());
    // There is room again.
    const tw_op_t plain{};
    EXPECT_GE(send_number(ep, 7, plain), TW_OK);
    EXPECT_EQ(next_number(node(1)), 7U);
}

TEST_F(MsgKept, messages_of_all_kinds_wait_in_one_order) {
    const tw_ep_h ep = node(0).to(node(1));
    std::vector<Bytes> data;
    for (std::uint64_t i = 0; i < kKeptAll; ++i)
        data.push_back(pattern(i % 5 == 0 ? 300'000 : i % 3 == 0 ? 20'000 : 40, i));
    KeptEnds ends(kKeptAll);
    for (std::uint64_t i = 0; i < kKeptAll; ++i) {
        const tw_op_t how = ends.op(i, TW_OP_QUEUE);
        const std::array<tw_iov_t, 2> list{
            {{data[i].data(), 10}, {data[i].data() + 10, data[i].size() - 10}}};
        const tw_status_t status =
            i % 2 == 0 ? tw_msg_send(ep, data[i].data(), data[i].size(), &how, nullptr)
                       : tw_msg_sendv(ep, list.data(), list.size(), &how, nullptr);
        ASSERT_EQ(status, TW_INPROGRESS) << i;
    }
    for (std::uint64_t i = 0; i < kKeptAll; ++i) {
        Bytes received(data[i].size());
        int mark = 0;
        const tw_op_t how = op(&mark);
        ASSERT_EQ(tw_msg_recv(node(1).worker(), received.data(), received.size(), &how, nullptr),
                  TW_INPROGRESS);
        EXPECT_EQ(end_of(node(1), &mark).status, TW_OK);
        EXPECT_EQ(received, data[i]) << i;
    }
    run_until([&] { return ends.count == kKeptAll; });
    ends.expect_once(kKeptAll, TW_OK);
}

TEST_F(MsgKept, receives_beyond_the_requests_are_posted_in_order) {
    KeptEnds ends(kKeptAll);
    std::vector<std::uint64_t> got(kKeptAll, UINT64_MAX);
    for (std::uint64_t i = 0; i < kKeptAll; ++i) {
        const tw_op_t how = ends.op(i, TW_OP_QUEUE);
        ASSERT_EQ(tw_tag_recv(node(0).worker(), &got[i], sizeof got[i], kKeptTag, 0, &how, nullptr),
                  TW_INPROGRESS);
    }
    EXPECT_EQ(kept(), kKept);
    const tw_op_t more = ends.op(0, TW_OP_QUEUE);
    std::uint64_t last = 0;
    EXPECT_EQ(tw_tag_recv(node(0).worker(), &last, sizeof last, kKeptTag, 0, &more, nullptr),
              TW_ERR_NO_RESOURCE);
    const tw_ep_h ep = node(1).to(node(0));
    const tw_op_t plain{};
    for (std::uint64_t i = 0; i < kKeptAll; ++i)
        run_until([&] { return send_number(ep, i, plain) != TW_ERR_NO_RESOURCE; });
    run_until([&] { return ends.count == kKeptAll; });
    ends.expect_once(kKeptAll, TW_OK);
    for (std::uint64_t i = 0; i < kKeptAll; ++i)
        EXPECT_EQ(got[i], i);
    EXPECT_FALSE(has_kept());
}

TEST_F(MsgKept, beyond_the_bound_calls_are_refused_until_one_has_ended) {
    const tw_ep_h ep = node(0).to(node(1));
    KeptEnds ends(kKeptAll + 1);
    for (std::uint64_t i = 0; i < kKeptAll; ++i)
        ASSERT_EQ(send_number(ep, i, ends.op(i, TW_OP_QUEUE)), TW_INPROGRESS);
    const tw_op_t how = ends.op(kKeptAll, TW_OP_QUEUE);
    EXPECT_EQ(send_number(ep, kKeptAll, how), TW_ERR_NO_RESOURCE);
    EXPECT_EQ(kept(), kKept);
    EXPECT_EQ(next_number(node(1)), 0U);
    run_until([&] { return send_number(ep, kKeptAll, how) != TW_ERR_NO_RESOURCE; });
    for (std::uint64_t i = 1; i <= kKeptAll; ++i)
        ASSERT_EQ(next_number(node(1)), i);
    run_until([&] { return ends.count == kKeptAll + 1; });
    ends.expect_once(kKeptAll + 1, TW_OK);
}

TEST_F(MsgKept, injected_messages_are_copied_beyond_the_copies) {
    const tw_ep_h ep = node(0).to(node(1));
    std::array<std::uint64_t, 40> data{};
    tw_op_t how{};
    how.flags = TW_OP_INJECT | TW_OP_QUEUE;
    for (std::uint64_t i = 0; i < kKeptAll; ++i) {
        data.fill(i);
        ASSERT_EQ(tw_tag_send(ep, data.data(), sizeof data, kKeptTag, &how, nullptr),
                  TW_INPROGRESS);
        data.fill(UINT64_MAX);
    }
    EXPECT_EQ(tw_tag_send(ep, data.data(), sizeof data, kKeptTag, &how, nullptr),
              TW_ERR_NO_RESOURCE);
    EXPECT_EQ(kept(), kKept);
    for (std::uint64_t i = 0; i < kKeptAll; ++i) {
        int mark = 0;
        const tw_op_t reported = op(&mark);
        ASSERT_EQ(tw_tag_recv(node(1).worker(), data.data(), sizeof data, kKeptTag, 0, &reported,
                              nullptr),
                  TW_INPROGRESS);
        EXPECT_EQ(end_of(node(1), &mark).status, TW_OK);
        EXPECT_TRUE(std::ranges::all_of(data, [&](std::uint64_t each) { return each == i; })) << i;
    }
    EXPECT_FALSE(has_kept());
}

TEST_F(MsgKept, active_messages_keep_header_and_order) {
    struct Handled {
        std::vector<std::uint64_t> headers;
    } handled;
    const auto handler = [](void* arg, tw_am_t* am) {
        std::uint64_t header = UINT64_MAX;
        ASSERT_EQ(am->header_length, sizeof header);
        std::memcpy(&header, am->header, sizeof header);
        static_cast<Handled*>(arg)->headers.push_back(header);
    };
    ASSERT_EQ(tw_am_register(node(1).worker(), 5, handler, &handled), TW_OK);
    const tw_ep_h ep = node(0).to(node(1));
    tw_op_t how{};
    how.flags = TW_OP_INJECT | TW_OP_QUEUE;
    for (std::uint64_t i = 0; i < kKeptAll; ++i) {
        std::uint64_t header = i;
        ASSERT_EQ(tw_am_send(ep, 5, &header, sizeof header, "x", 1, &how, nullptr), TW_INPROGRESS);
    }
    EXPECT_EQ(kept(), kKept);
    run_until([&] { return handled.headers.size() == kKeptAll; });
    for (std::uint64_t i = 0; i < kKeptAll; ++i)
        EXPECT_EQ(handled.headers[i], i);
}

// ---- Ends of what waits

TEST_F(MsgKept, what_waits_is_cancelled_once_and_the_rest_arrives) {
    const tw_ep_h ep = node(0).to(node(1));
    KeptEnds ends(kKeptAll);
    std::vector<tw_request_h> requests(kKeptAll);
    for (std::uint64_t i = 0; i < kKeptAll; ++i)
        ASSERT_EQ(send_number(ep, i, ends.op(i, TW_OP_QUEUE), &requests[i]), TW_INPROGRESS);
    for (std::uint64_t i = kKeptRequests; i < kKeptAll; i += 2)
        EXPECT_EQ(tw_request_cancel(requests[i]), TW_OK);
    run_until([&] { return ends.count >= kKept / 2; });
    for (std::uint64_t i = kKeptRequests; i < kKeptAll; i += 2) {
        EXPECT_EQ(ends.of[i].ends, 1U);
        EXPECT_EQ(ends.of[i].status, TW_ERR_CANCELED);
    }
    for (std::uint64_t i = 0; i < kKeptAll; i += i < kKeptRequests - 1 ? 1 : 2)
        ASSERT_EQ(next_number(node(1)), i);
    run_until([&] { return ends.count == kKeptAll; });
    EXPECT_FALSE(has_kept());
}

TEST_F(MsgKept, a_receive_beyond_the_requests_is_cancelled_once) {
    std::vector<tw_request_h> receives;
    use_up_requests(receives);
    tw_op_t how{};
    EXPECT_EQ(tw_tag_recv(node(0).worker(), nullptr, 0, kKeptTag, 0, &how, nullptr),
              TW_ERR_NO_RESOURCE);
    how.flags = TW_OP_QUEUE;
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_recv(node(0).worker(), nullptr, 0, kKeptTag, 0, &how, &request),
              TW_INPROGRESS);
    EXPECT_EQ(tw_request_cancel(request), TW_OK);
    EXPECT_EQ(tw_request_test(request, nullptr), TW_ERR_CANCELED);
    EXPECT_TRUE(has_kept());
    tw_request_free(request);
    EXPECT_FALSE(has_kept());
    give_back(receives);
}

TEST_F(MsgKept, a_close_by_force_ends_each_once) {
    const tw_ep_h ep = node(0).to(node(1));
    KeptEnds ends(kKeptAll);
    for (std::uint64_t i = 0; i < kKeptAll; ++i)
        ASSERT_EQ(send_number(ep, i, ends.op(i, TW_OP_QUEUE)), TW_INPROGRESS);
    EXPECT_EQ(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    run_until([&] { return ends.count == kKeptAll; });
    run_some();
    ends.expect_once(kKeptAll, TW_ERR_CANCELED);
    EXPECT_FALSE(has_kept());
}

TEST_F(MsgKept, a_close_in_order_waits_for_them) {
    const tw_ep_h ep = node(0).to(node(1));
    KeptEnds ends(kKeptAll);
    for (std::uint64_t i = 0; i + 1 < kKeptAll; ++i)
        ASSERT_EQ(send_number(ep, i, ends.op(i, TW_OP_QUEUE)), TW_INPROGRESS);
    tw_op_t how = ends.op(kKeptAll - 1, 0);
    EXPECT_EQ(tw_ep_close(ep, TW_FLUSH_DELIVERED, &how, nullptr), TW_ERR_NO_RESOURCE);
    how.flags |= TW_OP_QUEUE;
    EXPECT_EQ(tw_ep_close(ep, TW_FLUSH_DELIVERED, &how, nullptr), TW_INPROGRESS);
    for (std::uint64_t i = 0; i + 1 < kKeptAll; ++i)
        ASSERT_EQ(next_number(node(1)), i);
    run_until([&] { return ends.count == kKeptAll; });
    ends.expect_once(kKeptAll, TW_OK);
}

TEST_F(MsgKept, the_end_of_the_peer_ends_each_once) {
    const tw_ep_h ep = connected_pair();
    const std::uint64_t sent = send_until_paused(ep);
    ASSERT_TRUE(is_paused());
    ASSERT_LT(sent + kKept, numbers_.size());
    KeptEnds ends(kKept);
    for (std::uint64_t i = 0; i < kKept; ++i)
        ASSERT_EQ(send_number(ep, sent + i, ends.op(i, TW_OP_QUEUE)), TW_INPROGRESS);
    EXPECT_EQ(kept(), kKept);
    forget_last_node();
    run_until([&] { return ends.count == kKept; });
    run_some();
    for (const KeptEnds::One& one : ends.of) {
        EXPECT_EQ(one.ends, 1U);
        EXPECT_LT(one.status, TW_OK);
    }
    EXPECT_FALSE(has_kept());
}

TEST_F(MsgKept, a_worker_that_is_destroyed_takes_them_along) {
    const tw_ep_h ep = node(0).to(node(1));
    std::uint64_t byte = 0;
    tw_op_t how{};
    how.flags = TW_OP_QUEUE | TW_OP_INJECT;
    for (std::uint64_t i = 0; i < kKeptAll; ++i)
        ASSERT_EQ(tw_tag_send(ep, &byte, sizeof byte, kKeptTag, &how, nullptr), TW_INPROGRESS);
    destroy_nodes();
}

// ---- While the peer has paused this side

TEST_F(MsgKept, messages_to_a_peer_that_has_paused_wait_in_order) {
    const tw_ep_h ep = connected_pair();
    const std::uint64_t sent = send_until_paused(ep);
    ASSERT_TRUE(is_paused());
    ASSERT_LT(sent + kKept, numbers_.size());
    const tw_op_t plain{};
    EXPECT_EQ(send_number(ep, sent, plain), TW_ERR_NO_RESOURCE);
    KeptEnds ends(kKept);
    for (std::uint64_t i = 0; i < kKept; ++i)
        ASSERT_EQ(send_number(ep, sent + i, ends.op(i, TW_OP_QUEUE)), TW_INPROGRESS);
    EXPECT_EQ(kept(), kKept);
    EXPECT_EQ(send_number(ep, sent, ends.op(0, TW_OP_QUEUE)), TW_ERR_NO_RESOURCE);
    run_some();
    EXPECT_EQ(ends.count, 0U);
    for (std::uint64_t i = 0; i < sent + kKept; ++i)
        ASSERT_EQ(next_number(node(1)), i);
    run_until([&] { return ends.count == kKept; });
    ends.expect_once(kKept, TW_OK);
    EXPECT_FALSE(has_kept());
}

TEST_F(MsgKept, a_put_with_a_notice_to_a_peer_that_has_paused_waits) {
    const Shared memory(context_.get(), 64);
    const tw_ep_h ep = connected_pair();
    const std::uint64_t sent = send_until_paused(ep);
    ASSERT_TRUE(is_paused());
    const tw_key_h key = memory.key_for(node(0));
    KeptEnds ends(1);
    tw_op_t how = ends.op(0, TW_OP_IMM);
    how.imm = 77;
    const std::uint64_t number = 5;
    EXPECT_EQ(tw_put(ep, &number, sizeof number, memory.address(), key, &how, nullptr),
              TW_ERR_NO_RESOURCE);
    how.flags |= TW_OP_QUEUE;
    EXPECT_EQ(tw_put(ep, &number, sizeof number, memory.address(), key, &how, nullptr),
              TW_INPROGRESS);
    EXPECT_EQ(kept(), 1U);
    for (std::uint64_t i = 0; i < sent; ++i)
        ASSERT_EQ(next_number(node(1)), i);
    run_until([&] { return ends.count == 1; });
    ends.expect_once(1, TW_OK);
    ASSERT_EQ(flush(ep), TW_OK);
    EXPECT_EQ(memory.number<std::uint64_t>(), number);
    tw_key_free(key);
}

// ---- Other operations

TEST_F(MsgKept, puts_gets_and_atomics_beyond_the_requests_take_effect) {
    const Shared memory(context_.get(), (kKeptAll + 1) * sizeof(std::uint64_t));
    std::vector<tw_request_h> receives;
    use_up_requests(receives);
    const tw_ep_h ep = node(0).to(node(1));  // not connected: all wait
    const tw_key_h key = memory.key_for(node(0));
    const auto at = [&](std::uint64_t i) { return memory.address() + i * sizeof i; };
    const std::uint32_t one = 1;
    tw_op_t plain{};
    EXPECT_EQ(tw_put(ep, &numbers_[1], 8, at(1), key, &plain, nullptr), TW_ERR_NO_RESOURCE);
    EXPECT_EQ(tw_atomic(ep, TW_ATOMIC_ADD, TW_UINT32, &one, at(0), key, &plain, nullptr),
              TW_ERR_NO_RESOURCE);
    KeptEnds ends(kKept);
    std::uint64_t i = 0;
    for (; i < 40; ++i) {
        tw_op_t how = ends.op(i, TW_OP_QUEUE | TW_OP_DELIVERY_COMPLETE);
        ASSERT_EQ(tw_put(ep, &numbers_[i + 1], 8, at(i + 1), key, &how, nullptr), TW_INPROGRESS);
    }
    for (; i < 80; ++i) {
        tw_op_t how = ends.op(i, TW_OP_QUEUE);
        ASSERT_EQ(tw_atomic(ep, TW_ATOMIC_ADD, TW_UINT32, &one, at(0), key, &how, nullptr),
                  TW_INPROGRESS);
    }
    std::array<std::uint64_t, 10> got{};
    for (; i < 90; ++i) {
        tw_op_t how = ends.op(i, TW_OP_QUEUE | TW_OP_FENCE);
        ASSERT_EQ(tw_get(ep, &got[i - 80], 8, at(i - 79), key, &how, nullptr), TW_INPROGRESS);
    }
    const tw_piece_t piece{
        .local = &numbers_[100], .remote = at(100), .length = 8, .key = key, .mem = nullptr};
    tw_list_t list{};
    list.pieces = &piece;
    list.piece_count = 1;
    tw_op_t how = ends.op(i++, TW_OP_QUEUE);
    ASSERT_EQ(tw_put_list(ep, &list, &how, nullptr), TW_INPROGRESS);
    how = ends.op(i++, TW_OP_QUEUE);
    ASSERT_EQ(tw_ep_flush(ep, TW_FLUSH_DELIVERED, &how, nullptr), TW_INPROGRESS);
    how = ends.op(i++, TW_OP_QUEUE);
    ASSERT_EQ(tw_worker_flush(node(0).worker(), TW_FLUSH_DELIVERED, &how, nullptr), TW_INPROGRESS);
    EXPECT_EQ(kept(), i);
    run_until([&] { return ends.count == i; });
    ends.expect_once(i, TW_OK);
    for (std::uint64_t n = 1; n <= 40; ++n)
        EXPECT_EQ(memory.number<std::uint64_t>(n * sizeof n), n);
    EXPECT_EQ(memory.number<std::uint32_t>(), 40U);
    EXPECT_EQ(memory.number<std::uint64_t>(100 * sizeof i), 100U);
    for (std::uint64_t n = 0; n < got.size(); ++n)
        EXPECT_EQ(got[n], n + 1);
    EXPECT_FALSE(has_kept());
    tw_key_free(key);
    give_back(receives);
}

TEST_F(MsgKept, an_operation_that_waits_is_cancelled_whatever_it_is) {
    const Shared memory(context_.get(), 64);
    std::vector<tw_request_h> receives;
    use_up_requests(receives);
    const tw_ep_h ep = node(0).to(node(1));
    const tw_key_h key = memory.key_for(node(0));
    KeptEnds ends(3);
    std::array<tw_request_h, 3> requests{};
    const std::uint32_t one = 1;
    std::uint64_t got = 0;
    tw_op_t how = ends.op(0, TW_OP_QUEUE);
    ASSERT_EQ(tw_put(ep, &one, sizeof one, memory.address(), key, &how, &requests[0]),
              TW_INPROGRESS);
    how = ends.op(1, TW_OP_QUEUE);
    ASSERT_EQ(tw_get(ep, &got, sizeof got, memory.address(), key, &how, &requests[1]),
              TW_INPROGRESS);
    how = ends.op(2, TW_OP_QUEUE);
    ASSERT_EQ(
        tw_atomic(ep, TW_ATOMIC_ADD, TW_UINT32, &one, memory.address(), key, &how, &requests[2]),
        TW_INPROGRESS);
    for (tw_request_h each : requests)
        EXPECT_EQ(tw_request_cancel(each), TW_OK);
    run_until([&] { return ends.count == 3; });
    ends.expect_once(3, TW_ERR_CANCELED);
    EXPECT_FALSE(has_kept());
    give_back(receives);
    ASSERT_EQ(flush(ep), TW_OK);
    EXPECT_EQ(memory.number<std::uint32_t>(), 0U);
    tw_key_free(key);
}

TEST_F(MsgKept, where_there_is_room_nothing_is_kept) {
    const tw_ep_h ep = connected_pair();
    tw_op_t how{};
    how.flags = TW_OP_QUEUE;
    EXPECT_EQ(send_number(ep, 3, how), TW_OK);
    EXPECT_EQ(next_number(node(1)), 3U);
    const Bytes data = pattern(300'000, 1);
    how.flags = TW_OP_QUEUE | TW_OP_COMPLETION;
    how.context = &how;
    ASSERT_EQ(tw_tag_send(ep, data.data(), data.size(), kKeptTag, &how, nullptr), TW_INPROGRESS);
    expect_message(node(1), data, kKeptTag);
    EXPECT_EQ(end_of(node(0), &how).status, TW_OK);
    EXPECT_EQ(kept(), 0U);
}

}  // namespace
}  // namespace tagwire::test
