// SPDX-License-Identifier: BSD-3-Clause
// Flow control: what a sender gets when the other side does not take, and how it gets its turn
// back.
#include <cstring>

#include "fixture.hpp"

namespace tagwire::test {
namespace {

TW_CONTRACT(Pending);

/// A pending request that does what it is told and remembers its turns.
struct Request : uct_pending_req_t {
    explicit Request(std::function<ucs_status_t()> work)
        : uct_pending_req_t{}, run(std::move(work)) {
        func = [](uct_pending_req_t* self) {
            auto& request = *static_cast<Request*>(self);
            ++request.calls;
            return request.run();
        };
    }
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;

    std::function<ucs_status_t()> run;
    int calls = 0;
};

class PendingCase : public Contract {
  protected:
    /// Sends numbered short messages until the endpoint refuses; nobody progresses meanwhile.
    /// Returns how many.
    std::uint64_t fill(uct_ep_h endpoint, std::uint64_t first = 0) {
        constexpr std::uint64_t kMost = 10'000'000;
        for (std::uint64_t i = 0; i < kMost; ++i) {
            const ucs_status_t status = uct_ep_am_short(endpoint, kId, first + i, nullptr, 0);
            if (status == UCS_ERR_NO_RESOURCE)
                return i;
            EXPECT_EQ(UCS_OK, status);
            if (status != UCS_OK)
                return i;
        }
        ADD_FAILURE() << "never refused: something takes an unbounded number of messages";
        return kMost;
    }

    std::uint64_t number(std::size_t i) {
        std::uint64_t value = ~std::uint64_t{0};
        std::memcpy(&value, receiver().am[i].bytes.data(), sizeof value);
        return value;
    }

    void expect_numbers_up_to(std::uint64_t count) {
        ASSERT_TRUE(until([&] { return receiver().am.size() >= count; })) << receiver().am.size();
        drain(100);
        ASSERT_EQ(count, receiver().am.size());
        for (std::size_t i = 0; i < count; ++i)
            ASSERT_EQ(i, number(i));
    }

    ucs_status_t send_number(std::uint64_t value) {
        return uct_ep_am_short(ep(), kId, value, nullptr, 0);
    }
};

class PendingRequests : public PendingCase {};
INSTANTIATE_TEST_SUITE_P(Contract, PendingRequests, ::testing::ValuesIn(all_setups()), setup_label);

TEST_P(PendingRequests, a_peer_that_does_not_progress_is_no_resource_and_loses_nothing) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    std::uint64_t sent = 0;
    for (int round = 0; round < 5; ++round) {
        sent += fill(ep(), sent);
        EXPECT_EQ(UCS_ERR_NO_RESOURCE, send_number(sent));
        if (sender().offers(UCT_IFACE_FLAG_TAG_EAGER_SHORT)) {
            EXPECT_EQ(UCS_ERR_NO_RESOURCE, uct_ep_tag_eager_short(ep(), 1, nullptr, 0));
        }
        ASSERT_TRUE(until([&] { return receiver().am.size() == sent; }));
    }
    expect_numbers_up_to(sent);
}

TEST_P(PendingRequests, large_messages_run_out_of_room_and_lose_nothing_either) {
    TW_NEED(UCT_IFACE_FLAG_AM_BCOPY);
    const std::size_t size = attr().cap.am.max_bcopy;
    std::uint64_t sent = 0;
    for (int round = 0; round < 3; ++round) {
        for (;; ++sent) {
            const Bytes bytes = pattern(size, sent);
            const ucs_status_t status = send_am_bytes(ep(), kId, bytes);
            if (status == UCS_ERR_NO_RESOURCE)
                break;
            ASSERT_EQ(UCS_OK, status);
            ASSERT_LT(sent, 1'000'000u);
        }
        ASSERT_TRUE(until([&] { return receiver().am.size() == sent; }));
    }
    for (std::uint64_t i = 0; i < sent; ++i)
        ASSERT_TRUE(has_pattern(receiver().am[i].bytes, i)) << i;
}

TEST_P(PendingRequests, add_is_busy_when_there_is_room) {
    TW_NEED(UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_AM_SHORT);
    Request request([] { return UCS_OK; });
    // Not yet at the beginning, perhaps, where a connection is still being made: then it gets its
    // turn.
    const auto is_busy = [&] {
        const int calls = request.calls;
        const ucs_status_t status = uct_ep_pending_add(ep(), &request, 0);
        EXPECT_TRUE(status == UCS_ERR_BUSY ||
                    (status == UCS_OK && until([&] { return request.calls == calls + 1; })));
        return status == UCS_ERR_BUSY;
    };
    ASSERT_EQ(UCS_OK, retry([&] { return send_number(0); }));
    EXPECT_TRUE(until(is_busy));

    fill(ep(), 1);
    drain();
    EXPECT_TRUE(until(is_busy));
    const int calls = request.calls;
    drain();
    EXPECT_EQ(calls, request.calls) << "called although it was refused";
}

TEST_P(PendingRequests, requests_of_an_endpoint_run_in_order) {
    TW_NEED(UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_AM_SHORT);
    const std::uint64_t sent = fill(ep());
    constexpr std::uint64_t kRequests = 200;
    std::vector<std::unique_ptr<Request>> requests;
    for (std::uint64_t i = 0; i < kRequests; ++i) {
        requests.push_back(
            std::make_unique<Request>([this, value = sent + i] { return send_number(value); }));
        ASSERT_EQ(UCS_OK, uct_ep_pending_add(ep(), requests.back().get(), 0));
    }
    for (const auto& request : requests)
        EXPECT_EQ(0, request->calls) << "ran before there was room";
    expect_numbers_up_to(sent + kRequests);
}

TEST_P(PendingRequests, new_sends_wait_behind_what_is_pending) {
    TW_NEED(UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_AM_SHORT);
    const std::uint64_t sent = fill(ep());
    Request request([&] { return send_number(sent); });
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(ep(), &request, 0));
    std::uint64_t next = sent + 1;
    bool overtook = false;
    ASSERT_TRUE(until([&] {
        const ucs_status_t status = send_number(next);
        if (status == UCS_OK) {
            overtook = overtook || request.calls == 0;
            ++next;
        }
        return next == sent + 50;
    }));
    EXPECT_FALSE(overtook);
    expect_numbers_up_to(next);
}

TEST_P(PendingRequests, what_the_callback_returns_decides) {
    TW_NEED(UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_AM_SHORT);
    const std::uint64_t sent = fill(ep());
    Request stubborn([&] { return stubborn.calls < 5 ? UCS_ERR_NO_RESOURCE : send_number(sent); });
    std::uint64_t parts = 0;
    Request in_parts([&] {
        const ucs_status_t status = send_number(sent + 1 + parts);
        if (status != UCS_OK)
            return status;
        return ++parts == 4 ? UCS_OK : UCS_INPROGRESS;
    });
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(ep(), &stubborn, 0));
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(ep(), &in_parts, 0));
    expect_numbers_up_to(sent + 5);
    EXPECT_GE(stubborn.calls, 5);
    EXPECT_GE(in_parts.calls, 4);
    const int calls = stubborn.calls + in_parts.calls;
    drain();
    EXPECT_EQ(calls, stubborn.calls + in_parts.calls) << "called after it returned UCS_OK";
}

TEST_P(PendingRequests, a_callback_may_add_itself_anew) {
    TW_NEED(UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_AM_SHORT);
    std::uint64_t next = fill(ep());
    constexpr int kRounds = 20;
    Request request([&] {
        const ucs_status_t status = send_number(next);
        if (status != UCS_OK)
            return status;
        ++next;
        if (request.calls < kRounds && uct_ep_pending_add(ep(), &request, 0) == UCS_OK)
            return UCS_OK;
        return UCS_OK;
    });
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(ep(), &request, 0));
    ASSERT_TRUE(until([&] { return request.calls > 0; }));
    drain();
    expect_numbers_up_to(next);
}

TEST_P(PendingRequests, purge_hands_every_request_back_once_and_in_order) {
    TW_NEED(UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_AM_SHORT);
    const std::uint64_t sent = fill(ep());
    std::vector<std::unique_ptr<Request>> requests;
    for (std::uint64_t i = 0; i < 30; ++i) {
        requests.push_back(std::make_unique<Request>([] { return UCS_OK; }));
        ASSERT_EQ(UCS_OK, uct_ep_pending_add(ep(), requests.back().get(), 0));
    }
    std::vector<uct_pending_req_t*> purged;
    uct_ep_pending_purge(
        ep(),
        [](uct_pending_req_t* self, void* arg) {
            static_cast<std::vector<uct_pending_req_t*>*>(arg)->push_back(self);
        },
        &purged);
    ASSERT_EQ(requests.size(), purged.size());
    for (std::size_t i = 0; i < purged.size(); ++i)
        EXPECT_EQ(requests[i].get(), purged[i]);
    expect_numbers_up_to(sent);
    for (const auto& request : requests)
        EXPECT_EQ(0, request->calls);
    ASSERT_EQ(UCS_OK, retry([&] { return send_number(sent); }));
    expect_numbers_up_to(sent + 1);
}

/// Repeats `operation` until it is refused, then asks for room. False: it was told again and again
/// that there is room, and again and again found none. Nobody progresses.
testing::AssertionResult gets_room_or_a_turn(uct_ep_h endpoint,
                                             const std::function<ucs_status_t()>& operation) {
    constexpr int kAttemptsMax = 20'000;
    constexpr int kRounds = 3;  // what is refused for a reason that is gone passes the next time
    int told_busy = 0;
    for (int i = 0; i < kAttemptsMax && told_busy < kRounds; ++i) {
        const ucs_status_t status = operation();
        if (status != UCS_ERR_NO_RESOURCE) {
            if (status < 0)
                return testing::AssertionFailure() << ucs_status_string(status);
            told_busy = 0;
            continue;
        }
        Request request([] { return UCS_ERR_NO_RESOURCE; });
        if (uct_ep_pending_add(endpoint, &request, 0) == UCS_OK) {
            uct_ep_pending_purge(
                endpoint, [](uct_pending_req_t*, void*) {}, nullptr);
            return testing::AssertionSuccess();
        }
        ++told_busy;
    }
    if (told_busy == 0)
        return testing::AssertionSuccess();  // it is never refused
    return testing::AssertionFailure() << "told that there is room, and there is none";
}

// Each table that an operation needs a place in can be the one that is full.
TEST_P(PendingRequests, whoever_is_refused_gets_a_turn_or_room) {
    TW_NEED(UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_AM_SHORT);
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, 0, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receiver().am_count == 1; }));
    drain();
    constexpr int kMany = 1 << 30;
    Completion flushes(kMany), transfers(kMany);
    const Buffer payload = make_payload(sender(), 1000, 1);
    const uct_iov_t iov = payload.iov();
    if (sender().offers(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY)) {
        const auto rendezvous = [&] {
            const auto op = uct_ep_tag_rndv_zcopy(ep(), kTag, nullptr, 0, &iov, 1, 0, &transfers);
            return UCS_PTR_IS_ERR(op) ? UCS_PTR_RAW_STATUS(op) : UCS_OK;
        };
        // One first, so that flushes have something to wait for.
        ASSERT_EQ(UCS_OK, rendezvous());
        EXPECT_TRUE(gets_room_or_a_turn(ep(), [&] {
            return uct_ep_flush(ep(), UCT_FLUSH_FLAG_LOCAL, &flushes);
        })) << "flush";
        EXPECT_TRUE(gets_room_or_a_turn(ep(), rendezvous)) << "rendezvous";
    }
    if (sender().offers(UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_PUT_ZCOPY)) {
        const Buffer memory(receiver(), 1000, remote_backings(receiver()).front());
        const RemoteKey key(sender(), memory.packed_rkey());
        const std::uint64_t at = memory.address();
        EXPECT_TRUE(gets_room_or_a_turn(ep(), [&] {
            return uct_ep_get_zcopy(ep(), &iov, 1, at, key.get(), &transfers);
        })) << "get";
        EXPECT_TRUE(gets_room_or_a_turn(ep(), [&] {
            return uct_ep_put_zcopy(ep(), &iov, 1, at, key.get(), &transfers);
        })) << "put";
        destroy_ep();
        drain();
        return;
    }
    EXPECT_TRUE(gets_room_or_a_turn(ep(), [&] { return send_number(0); })) << "message";
    destroy_ep();
    drain();
}

TEST_P(PendingRequests, purge_of_nothing_calls_nobody) {
    TW_NEED(UCT_IFACE_FLAG_PENDING);
    int calls = 0;
    uct_ep_pending_purge(
        ep(), [](uct_pending_req_t*, void* arg) { ++*static_cast<int*>(arg); }, &calls);
    EXPECT_EQ(0, calls);
}

TEST_P(PendingRequests, endpoints_to_one_peer_take_turns) {
    TW_NEED(UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_AM_SHORT);
    uct_ep_h second = connect_more(sender(), receiver());
    fill(ep());
    fill(second);
    // One may be ahead by what its own queue or window holds, as that may have been emptied first.
    constexpr int kEach = 10000;
    int done[2] = {0, 0};
    int largest_lead = 0;
    std::vector<std::unique_ptr<Request>> requests;
    for (int i = 0; i < kEach; ++i) {
        for (int which = 0; which < 2; ++which) {
            uct_ep_h endpoint = which == 0 ? ep() : second;
            requests.push_back(std::make_unique<Request>([&done, &largest_lead, which, endpoint] {
                const ucs_status_t status = uct_ep_am_short(endpoint, kId, 0, nullptr, 0);
                if (status != UCS_OK)
                    return status;
                ++done[which];
                largest_lead = std::max(largest_lead, std::abs(done[0] - done[1]));
                return UCS_OK;
            }));
            ASSERT_EQ(UCS_OK, uct_ep_pending_add(endpoint, requests.back().get(), 0));
        }
    }
    ASSERT_TRUE(until([&] { return done[0] == kEach && done[1] == kEach; }));
    EXPECT_LE(largest_lead, kEach / 4) << "one endpoint waited for the other";
}

TEST_P(PendingRequests, a_stuck_peer_does_not_hold_up_another) {
    TW_NEED(UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_AM_SHORT);
    Entity stuck(GetParam().resource);  // nobody progresses it
    Connection to_stuck = connect(sender(), stuck);
    std::uint64_t refused = 0;
    ASSERT_TRUE(until([&] {  // a connection may need the other side before it takes anything
        const ucs_status_t status = uct_ep_am_short(to_stuck.forward, kId, 0, nullptr, 0);
        refused = status == UCS_ERR_NO_RESOURCE ? refused + 1 : 0;
        return refused > 100;
    }));
    Request waits([&] { return uct_ep_am_short(to_stuck.forward, kId, 0, nullptr, 0); });
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(to_stuck.forward, &waits, 0));

    std::uint64_t sent = 0;
    for (int round = 0; round < 3; ++round) {
        sent += fill(ep(), sent);
        Request request([&] { return send_number(sent); });
        ASSERT_EQ(UCS_OK, uct_ep_pending_add(ep(), &request, 0));
        ASSERT_TRUE(until([&] { return receiver().am.size() == sent + 1; }))
            << "held up in round " << round;
        ++sent;
    }
    expect_numbers_up_to(sent);
    uct_ep_pending_purge(
        to_stuck.forward, [](uct_pending_req_t*, void*) {}, nullptr);
}

TEST_P(PendingRequests, refused_operations_leave_their_completion_alone) {
    TW_NEED(UCT_IFACE_FLAG_AM_ZCOPY | UCT_IFACE_FLAG_AM_SHORT);
    const std::uint64_t sent = fill(ep());
    const Buffer payload = make_payload(sender(), 1000, 1);
    Completion completion;
    const ucs_status_t status = send_am(ep(), sender(), Method::kZcopy, kId, payload, &completion);
    if (status == UCS_ERR_NO_RESOURCE) {
        drain();
        EXPECT_EQ(0, completion.calls);
        EXPECT_EQ(1, completion.count);
        expect_numbers_up_to(sent);
    } else {  // zero copy has room of its own
        EXPECT_GE(status, UCS_OK);
        drain();
    }
}

// Positions of rings and counters pass the widths that code likes to get wrong.
TEST_P(Pending, nothing_changes_where_ring_positions_wrap) {
    TW_NEED(UCT_IFACE_FLAG_AM_BCOPY);
    const auto [option, before] = knobs_of(GetParam().resource).ring_start;
    if (option.empty())
        GTEST_SKIP() << "the first ring position is not an option of this transport";
    for (const std::uint64_t wrap :
         {std::uint64_t{1} << 31, std::uint64_t{1} << 32, std::uint64_t{0}}) {
        SCOPED_TRACE("wrap at " + std::to_string(wrap));
        EntityOptions options;
        options.iface_config = {{option, before + std::to_string(wrap - 500)}};
        reopen(options);
        for (std::uint64_t i = 0; i < 2000; ++i) {
            const Bytes bytes = pattern(i % 5 == 0 ? 3000 : i % 100, i);
            ASSERT_EQ(UCS_OK, retry([&] { return send_am_bytes(ep(), kId, bytes); }));
        }
        ASSERT_TRUE(until([&] { return receiver().am.size() == 2000; }));
        for (std::uint64_t i = 0; i < 2000; ++i) {
            ASSERT_EQ(i % 5 == 0 ? 3000 : i % 100, receiver().am[i].bytes.size());
            ASSERT_TRUE(has_pattern(receiver().am[i].bytes, i)) << i;
        }
    }
}

}  // namespace
}  // namespace tagwire::test
