// SPDX-License-Identifier: BSD-3-Clause
// Opening, closing and destroying in every order, with work outstanding.
#include <dirent.h>

#include <cstring>
#include <random>

#include "fixture.hpp"

namespace tagwire::test {
namespace {

TW_CONTRACT(Lifecycle);

std::size_t entries(const char* directory) {
    DIR* opened = opendir(directory);
    EXPECT_NE(nullptr, opened);
    std::size_t count = 0;
    while (readdir(opened) != nullptr)
        ++count;
    closedir(opened);
    return count;
}

std::size_t open_descriptors() {
    return entries("/proc/self/fd");
}
std::size_t threads() {
    return entries("/proc/self/task");
}

TEST_P(Lifecycle, opening_and_closing_leaves_no_descriptor_and_no_thread) {
    close();
    std::size_t descriptors = 0;
    const std::size_t threads_before = threads();
    for (int round = 0; round < 20; ++round) {
        if (round == 2)
            descriptors = open_descriptors();  // what is kept for the process is there by now
        reopen();
        if (sender().offers(UCT_IFACE_FLAG_AM_SHORT)) {
            ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, 1, nullptr, 0); }));
            ASSERT_EQ(UCS_OK,
                      retry([&] { return uct_ep_am_short(back_ep(), kId, 1, nullptr, 0); }));
            ASSERT_TRUE(until([&] { return receiver().am.size() + sender().am.size() >= 2; }));
        }
        EXPECT_EQ(threads_before, threads()) << "a thread was started behind our back";
        close();
    }
    EXPECT_EQ(descriptors, open_descriptors());
    reopen();
}

TEST_P(Lifecycle, endpoints_come_and_go) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    std::size_t descriptors = 0;
    for (std::uint64_t round = 0; round < 200; ++round) {
        if (round == 20)
            descriptors = open_descriptors();
        Connection link = connect(sender(), receiver());
        ASSERT_EQ(UCS_OK,
                  retry([&] { return uct_ep_am_short(link.forward, kId, round, nullptr, 0); }));
        if (round % 2 == 0) {
            ASSERT_TRUE(until([&] { return receiver().am.size() == round + 1; }));
        }
        flush_ep(link.forward);
    }
    ASSERT_TRUE(until([&] { return receiver().am.size() == 200; }));
    drain();
    EXPECT_LE(open_descriptors(), descriptors + 4);
}

TEST_P(Lifecycle, many_endpoints_to_one_peer_work_side_by_side) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    std::vector<uct_ep_h> endpoints;
    for (int i = 0; i < 64; ++i)
        endpoints.push_back(connect_more(sender(), receiver()));
    for (int round = 0; round < 20; ++round)
        for (uct_ep_h endpoint : endpoints)
            ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(endpoint, kId, 0, nullptr, 0); }));
    EXPECT_TRUE(until([&] { return receiver().am.size() == 64u * 20; }));
}

TEST_P(Lifecycle, flushed_messages_arrive_after_their_endpoint_is_gone) {
    TW_NEED(UCT_IFACE_FLAG_AM_BCOPY);
    for (std::uint64_t i = 0; i < 30; ++i) {
        const Bytes bytes = pattern(500, i);
        ASSERT_EQ(UCS_OK, retry([&] { return send_am_bytes(ep(), kId, bytes); }));
    }
    flush_ep(ep());
    destroy_ep();
    ASSERT_TRUE(until([&] { return receiver().am.size() == 30; }));
    for (std::uint64_t i = 0; i < 30; ++i)
        EXPECT_TRUE(has_pattern(receiver().am[i].bytes, i));
}

TEST_P(Lifecycle, destroying_an_endpoint_completes_its_operations_once) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    const Buffer payload = make_payload(sender(), 200000, 1);
    const uct_iov_t iov = payload.iov();
    // A device may still hold a buffer that was matched: none is used twice.
    std::vector<std::unique_ptr<Receive>> receives;
    for (int steps = 0; steps < 20; ++steps) {
        Connection link = connect(sender(), receiver());
        Completion completions[6];
        receives.push_back(std::make_unique<Receive>(receiver(), 200000));
        Receive& receive = *receives.back();
        ASSERT_EQ(UCS_OK, receive.post(kTag + 2));  // one of them finds a receive
        for (uct_tag_t i = 0; i < 6; ++i) {
            ASSERT_EQ(UCS_OK, retry([&] {
                          const auto handle = uct_ep_tag_rndv_zcopy(link.forward, kTag + i, nullptr,
                                                                    0, &iov, 1, 0, &completions[i]);
                          return UCS_PTR_IS_ERR(handle) ? UCS_PTR_RAW_STATUS(handle) : UCS_OK;
                      }));
        }
        for (int i = 0; i < steps; ++i)
            step();
        link.forward.reset();
        drain(300);
        for (const Completion& completion : completions)
            EXPECT_EQ(1, completion.calls);
        if (receive.endings() == 0)
            receive.cancel(true);
        EXPECT_LE(receive.endings(), 1);
        drain(50);
    }
    // The other endpoint of the same interface was not disturbed.
    Receive receive(receiver(), 200000);
    ASSERT_EQ(UCS_OK, receive.post(kTag));
    Completion completion;
    ASSERT_EQ(UCS_OK, retry([&] {
                  const auto handle =
                      uct_ep_tag_rndv_zcopy(ep(), kTag, nullptr, 0, &iov, 1, 0, &completion);
                  return UCS_PTR_IS_ERR(handle) ? UCS_PTR_RAW_STATUS(handle) : UCS_OK;
              }));
    ASSERT_TRUE(until([&] { return completion.calls == 1 && receive.completed == 1; }));
    EXPECT_TRUE(has_pattern(receive.received(), 1));
}

TEST_P(Lifecycle, destroying_an_endpoint_with_a_full_ring_is_quiet) {
    TW_NEED(UCT_IFACE_FLAG_AM_BCOPY);
    for (int round = 0; round < 10; ++round) {
        Connection link = connect(sender(), receiver());
        const Bytes bytes = pattern(1000, 1);
        ucs_status_t status = UCS_OK;
        for (int i = 0; i < 100000 && status == UCS_OK; ++i)
            status = send_am_bytes(link.forward, kId, bytes);
        EXPECT_EQ(UCS_ERR_NO_RESOURCE, status);
        link.forward.reset();
        drain(100);
    }
    EXPECT_TRUE(sender().errors.empty());
    EXPECT_TRUE(receiver().errors.empty());
}

TEST_P(Lifecycle, closing_with_receives_posted_and_messages_waiting_is_quiet) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    std::vector<std::unique_ptr<Receive>> receives;
    const uct_tag_t count = std::min<uct_tag_t>(attr().cap.tag.recv.max_outstanding, 100);
    for (uct_tag_t i = 0; i < count; ++i) {
        receives.push_back(std::make_unique<Receive>(receiver(), attr().cap.tag.recv.min_recv));
        ASSERT_EQ(UCS_OK, receives.back()->post(i, i % 3 == 0 ? 0xff : ~uct_tag_t{0}));
    }
    for (uct_tag_t i = count / 2; i < count + 50; ++i)
        uct_ep_tag_eager_short(ep(), i, nullptr, 0);
    close_receiver_iface();
    destroy_ep();
    sender().close_iface();
    for (const auto& receive : receives)
        EXPECT_LE(receive->endings(), 1);
    receives.clear();
}

// And their memory is the program's again. Nobody else's callbacks run within it.
TEST_P(Lifecycle, operations_end_within_destroy) {
    TW_NEED(UCT_IFACE_FLAG_AM_ZCOPY);
    const Buffer payload =
        make_payload(sender(), std::min<std::size_t>(attr().cap.am.max_zcopy, 1 << 16), 1);
    const uct_iov_t iov = payload.iov();
    for (int round = 0; round < 10; ++round) {
        Connection link = connect(sender(), receiver());
        Completion of_other;
        const ucs_status_t other =
            retry([&] { return uct_ep_am_zcopy(ep(), kId, nullptr, 0, &iov, 1, 0, &of_other); });
        ASSERT_GE(other, UCS_OK);
        std::vector<std::unique_ptr<Completion>> completions;
        for (int refused = 0; refused < 100 && completions.size() < 64;) {
            auto completion = std::make_unique<Completion>();
            const ucs_status_t status =
                uct_ep_am_zcopy(link.forward, kId, nullptr, 0, &iov, 1, 0, completion.get());
            if (status == UCS_INPROGRESS)
                completions.push_back(std::move(completion));
            refused += status == UCS_ERR_NO_RESOURCE ? 1 : 0;
            if (status == UCS_ERR_NO_RESOURCE && completions.empty())
                step();
        }
        for (int i = 0; i < round; ++i)
            sender().progress();
        const int others_before = of_other.calls;
        Completion flushed;
        const ucs_status_t flush = uct_ep_flush(link.forward, UCT_FLUSH_FLAG_LOCAL, &flushed);
        link.forward.reset();
        for (const auto& completion : completions)
            ASSERT_EQ(1, completion->calls);
        EXPECT_EQ(flush == UCS_INPROGRESS ? 1 : 0, flushed.calls);
        EXPECT_EQ(others_before, of_other.calls);
        ASSERT_TRUE(until([&] { return other == UCS_OK || of_other.calls == 1; }));
        drain(200);
        for (const auto& completion : completions)
            EXPECT_EQ(1, completion->calls);
    }
    EXPECT_TRUE(sender().errors.empty());
    EXPECT_TRUE(receiver().errors.empty() || !receiver().offers(UCT_IFACE_FLAG_CONNECT_TO_IFACE));
}

TEST_P(Lifecycle, a_callback_may_destroy_endpoints_with_operations_under_way) {
    TW_NEED(UCT_IFACE_FLAG_AM_ZCOPY);
    const Buffer payload = make_payload(sender(), 1000, 1);
    const uct_iov_t iov = payload.iov();
    Connection links[4];
    std::vector<std::unique_ptr<Completion>> completions;
    for (Connection& link : links)
        link = connect(sender(), receiver());
    for (int i = 0; i < 8; ++i) {
        for (Connection& link : links) {
            auto completion = std::make_unique<Completion>();
            const ucs_status_t status =
                uct_ep_am_zcopy(link.forward, kId, nullptr, 0, &iov, 1, 0, completion.get());
            if (status == UCS_INPROGRESS)
                completions.push_back(std::move(completion));
        }
    }
    if (completions.empty())
        return;  // all were done at once
    // Its own endpoint among them.
    completions.front()->on_done = [&] {
        for (Connection& link : links)
            link.forward.reset();
    };
    ASSERT_TRUE(until([&] {
        return std::ranges::all_of(completions, [](const auto& each) { return each->calls == 1; });
    }));
    drain(200);
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, 0, nullptr, 0); }));
    flush_ep(ep());
}

TEST_P(Lifecycle, what_ends_within_close_may_give_descriptors_back) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_PUT_ZCOPY);
    if (is_loopback())
        GTEST_SKIP() << "two sides";
    std::vector<void*> kept;
    sender().on_am = [&](const AmMessage& message) {
        if ((message.flags & UCT_CB_PARAM_FLAG_DESC) == 0)
            return UCS_OK;
        kept.push_back(message.data);
        return UCS_INPROGRESS;
    };
    // One endpoint each on either side of the one that has something under way.
    Connection links[3];
    for (Connection& link : links)
        link = connect(sender(), receiver());
    for (Connection& link : links) {
        uct_ep_h back = link.backward.get() != nullptr ? link.backward.get() : back_ep();
        ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(back, kId, 1, nullptr, 0); }));
    }
    ASSERT_TRUE(until([&] { return sender().am_count == 3; }));
    const Buffer from = make_payload(sender(), 4096, 1);
    const Buffer to(receiver(), 4096, remote_backings(receiver()).front());
    const RemoteKey key(sender(), to.packed_rkey());
    const uct_iov_t iov = from.iov();
    Completion completion;
    completion.on_done = [&] {
        for (void* descriptor : kept)
            uct_iface_release_desc(descriptor);
        kept.clear();
    };
    const ucs_status_t posted =
        uct_ep_put_zcopy(links[1].forward, &iov, 1, to.address(), key.get(), &completion);
    ASSERT_GE(posted, UCS_OK);
    destroy_ep();
    for (Connection& link : links)
        (void)link.forward.release();
    sender().close_iface();
    EXPECT_EQ(posted == UCS_INPROGRESS ? 1 : 0, completion.calls);
    for (void* descriptor : kept)
        uct_iface_release_desc(descriptor);
}

class PeerFailure : public Contract {
  protected:
    void SetUp() override {
        Contract::SetUp();
        TW_NEED(UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE | UCT_IFACE_FLAG_AM_SHORT);
    }

    void expect_reported_once(uct_ep_h endpoint) {
        ASSERT_TRUE(until([&] { return !sender().errors.empty(); }, 50'000'000));
        drain();
        ASSERT_EQ(1u, sender().errors.size());
        EXPECT_EQ(endpoint, sender().errors[0].ep);
        EXPECT_LT(sender().errors[0].status, UCS_OK);
    }
};
INSTANTIATE_TEST_SUITE_P(Contract, PeerFailure, ::testing::ValuesIn(pair_setups()), setup_label);

TEST_P(PeerFailure, a_closed_peer_is_reported_once_and_then_the_endpoint_refuses) {
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, 0, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return !receiver().am.empty(); }));
    close_receiver();
    // Some transports notice only when they send.
    ASSERT_TRUE(until(
        [&] {
            uct_ep_am_short(ep(), kId, 0, nullptr, 0);
            return !sender().errors.empty();
        },
        50'000'000));
    expect_reported_once(ep());
    const ucs_status_t status = uct_ep_am_short(ep(), kId, 0, nullptr, 0);
    EXPECT_LT(status, UCS_OK);
    EXPECT_NE(UCS_ERR_NO_RESOURCE, status);
    const ucs_status_t flush = uct_ep_flush(ep(), UCT_FLUSH_FLAG_CANCEL, nullptr);
    EXPECT_NE(UCS_INPROGRESS, flush);
    EXPECT_NE(UCS_ERR_NO_RESOURCE, flush);
}

TEST_P(PeerFailure, outstanding_operations_complete_once_with_the_error_before_it_is_reported) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    const Buffer payload = make_payload(sender(), 100000, 1);
    const uct_iov_t iov = payload.iov();
    Completion completions[10];
    for (Completion& completion : completions) {
        ASSERT_EQ(UCS_OK, retry([&] {
                      const auto handle =
                          uct_ep_tag_rndv_zcopy(ep(), kTag, nullptr, 0, &iov, 1, 0, &completion);
                      return UCS_PTR_IS_ERR(handle) ? UCS_PTR_RAW_STATUS(handle) : UCS_OK;
                  }));
    }
    drain(200);
    int complete_at_report = -1;
    sender().on_error = [&](const PeerError&) {
        complete_at_report = 0;
        for (const Completion& completion : completions)
            complete_at_report += completion.calls;
    };
    Completion flushed;
    const ucs_status_t flush = uct_ep_flush(ep(), UCT_FLUSH_FLAG_LOCAL, &flushed);
    close_receiver();
    expect_reported_once(ep());
    for (const Completion& completion : completions) {
        EXPECT_EQ(1, completion.calls);
        EXPECT_LT(completion.ended, UCS_OK);
    }
    EXPECT_EQ(10, complete_at_report);
    EXPECT_EQ(flush == UCS_INPROGRESS ? 1 : 0, flushed.calls);
}

TEST_P(PeerFailure, pending_requests_can_be_purged_after_it) {
    TW_NEED(UCT_IFACE_FLAG_PENDING);
    while (uct_ep_am_short(ep(), kId, 0, nullptr, 0) == UCS_OK) {
    }
    struct Counted : uct_pending_req_t {
        int calls = 0;
    } requests[5];
    for (Counted& request : requests) {
        request.func = [](uct_pending_req_t* self) {
            ++static_cast<Counted*>(self)->calls;
            return UCS_ERR_NO_RESOURCE;
        };
        ASSERT_EQ(UCS_OK, uct_ep_pending_add(ep(), &request, 0));
    }
    close_receiver();
    expect_reported_once(ep());
    int purged = 0;
    uct_ep_pending_purge(
        ep(), [](uct_pending_req_t*, void* arg) { ++*static_cast<int*>(arg); }, &purged);
    EXPECT_EQ(5, purged);
}

TEST_P(PeerFailure, every_endpoint_to_the_peer_is_reported_and_others_go_on) {
    uct_ep_h second = connect_more(sender(), receiver());
    Entity& other = add_entity();
    uct_ep_h to_other = connect_more(sender(), other);
    for (uct_ep_h endpoint : {ep(), second, to_other})
        ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(endpoint, kId, 0, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receiver().am.size() == 2 && other.am.size() == 1; }));
    close_receiver();
    ASSERT_TRUE(until([&] { return sender().errors.size() >= 2; }, 50'000'000));
    drain();
    ASSERT_EQ(2u, sender().errors.size());
    EXPECT_NE(sender().errors[0].ep, sender().errors[1].ep);
    EXPECT_NE(to_other, sender().errors[0].ep);
    EXPECT_NE(to_other, sender().errors[1].ep);
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(to_other, kId, 1, nullptr, 0); }));
    EXPECT_TRUE(until([&] { return other.am.size() == 2; }));
}

// The call that arms a sleeping process must not report failures to it: the handler destroys its
// endpoint, and only progress expects that.
TEST_P(PeerFailure, is_told_inside_progress_to_who_sleeps) {
    if ((attr().cap.event_flags & UCT_IFACE_FLAG_EVENT_FD) == 0)
        GTEST_SKIP() << "not offered: UCT_IFACE_FLAG_EVENT_FD";
    uct_ep_h second = connect_more(sender(), receiver());
    for (uct_ep_h endpoint : {ep(), second})
        ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(endpoint, kId, 0, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receiver().am.size() == 2; }));
    drain();
    bool is_arming = false;
    sender().on_error = [&](const PeerError& error) {
        EXPECT_FALSE(is_arming) << "told by uct_iface_event_arm()";
        if (error.ep == ep())
            destroy_ep();
    };
    close_receiver();
    const auto is_told = [&] {
        for (int i = 0; i < 100 && sender().progress() != 0; ++i) {
        }
        uct_ep_am_short(second, kId, 0, nullptr, 0);  // some notice only when they send
        is_arming = true;
        const ucs_status_t status = uct_iface_event_arm(sender().iface(), UCT_EVENT_RECV);
        is_arming = false;
        EXPECT_TRUE(status == UCS_OK || status == UCS_ERR_BUSY) << ucs_status_string(status);
        return sender().errors.size() == 2;
    };
    ASSERT_TRUE(until(is_told, 50'000'000));
    drain();
    EXPECT_EQ(2u, sender().errors.size());
}

TEST_P(PeerFailure, a_new_endpoint_to_a_new_peer_works_after_it) {
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, 0, nullptr, 0); }));
    close_receiver();
    expect_reported_once(ep());
    destroy_ep();
    Entity& next = add_entity();
    uct_ep_h endpoint = connect_more(sender(), next);
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(endpoint, kId, 7, nullptr, 0); }));
    EXPECT_TRUE(until([&] { return next.am.size() == 1; }));
}

TEST_P(PeerFailure, connecting_to_a_closed_interface_is_an_error_and_no_hang) {
    TW_NEED(UCT_IFACE_FLAG_CONNECT_TO_IFACE);
    const Bytes device = receiver().device_address();
    const Bytes iface = receiver().iface_address();
    destroy_ep();
    close_receiver();
    sender().errors.clear();
    ucs_status_t status = UCS_OK;
    const Endpoint endpoint = connect_to_address(sender(), device, iface, &status);
    if (status == UCS_OK) {
        ASSERT_TRUE(until(
            [&] {
                uct_ep_am_short(endpoint, kId, 0, nullptr, 0);
                return !sender().errors.empty();
            },
            50'000'000));
        EXPECT_EQ(endpoint.get(), sender().errors[0].ep);
    } else {
        EXPECT_EQ(UCS_ERR_UNREACHABLE, status);
    }
}

TEST_P(Lifecycle, own_addresses_are_reachable_and_garbage_is_not) {
    TW_NEED(UCT_IFACE_FLAG_CONNECT_TO_IFACE);
    const Bytes device = receiver().device_address();
    const Bytes iface = receiver().iface_address();
    const auto reachable = [&](const Bytes& device_bytes, const Bytes& iface_bytes) {
        return uct_iface_is_reachable(
                   sender().iface(),
                   reinterpret_cast<const uct_device_addr_t*>(device_bytes.data()),
                   reinterpret_cast<const uct_iface_addr_t*>(iface_bytes.data())) != 0;
    };
    EXPECT_TRUE(reachable(device, iface));
    if (device.empty())
        return;
    std::mt19937_64 random(1);
    for (int i = 0; i < 100; ++i) {
        const Bytes other_device = pattern(device.size(), random());
        const Bytes other_iface = pattern(iface.size(), random());
        EXPECT_FALSE(reachable(other_device, iface));
        ucs_status_t status = UCS_OK;
        const Endpoint endpoint = connect_to_address(sender(), other_device, other_iface, &status);
        EXPECT_LT(status, UCS_OK);
    }
}

TEST_P(Lifecycle, without_progress_enabled_nothing_is_delivered) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    uct_iface_progress_disable(receiver().iface(), UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    ASSERT_EQ(UCS_OK, uct_ep_am_short(ep(), kId, 1, nullptr, 0));
    for (int i = 0; i < 1000; ++i)
        receiver().progress();
    EXPECT_TRUE(receiver().am.empty());
    uct_iface_progress_enable(receiver().iface(), UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    EXPECT_TRUE(until([&] { return receiver().am.size() == 1; }));
}

TEST_P(Lifecycle, progress_says_whether_something_moved) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, 1, nullptr, 0); }));
    unsigned moved = 0;
    for (std::uint64_t i = 0; i < kStepsMax && receiver().am.empty(); ++i) {
        moved += receiver().progress();
        if (&sender() != &receiver())
            sender().progress();  // it may have to connect first
    }
    EXPECT_GE(moved, 1u);
    EXPECT_EQ(1u, receiver().am.size());
    drain();
    EXPECT_EQ(0u, receiver().progress());
}

}  // namespace
}  // namespace tagwire::test
