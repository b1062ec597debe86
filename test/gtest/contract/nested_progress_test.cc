// SPDX-License-Identifier: BSD-3-Clause
// Callbacks that call progress, which they may not. It does nothing then: no message comes twice,
// out of its order or inside the callback of another one, and what a callback was given stays.
#include <algorithm>
#include <cstring>

#include "fixture.hpp"

namespace tagwire::test {
namespace {

class NestedProgress : public Contract {
  protected:
    /// In a callback of `entity`. Whoever hears of something meanwhile finds that it is inside.
    void progress_inside(Entity& entity) {
        ++callbacks;
        EXPECT_FALSE(is_inside) << "a callback ran inside a callback";
        is_inside = true;
        for (int i = 0; i < 20; ++i) {
            EXPECT_EQ(0U, uct_worker_progress(entity.worker()));
            EXPECT_EQ(0U, uct_iface_progress(entity.iface()));
        }
        is_inside = false;
    }

    void progress_in_completion(Completion& completion, Entity& entity) {
        completion.on_done = [this, &entity] { progress_inside(entity); };
    }

    /// Only where the device has room for more than one message.
    bool try_send(std::uint64_t number) {
        return uct_ep_am_short(ep(), kId, number, nullptr, 0) == UCS_OK;
    }

    static std::uint64_t number_of(const AmMessage& message) {
        std::uint64_t number = ~std::uint64_t{0};
        if (message.bytes.size() >= sizeof number)
            std::memcpy(&number, message.bytes.data(), sizeof number);
        return number;
    }

    bool is_inside = false;
    int callbacks = 0;
};
INSTANTIATE_TEST_SUITE_P(Contract, NestedProgress, ::testing::ValuesIn(all_setups()), setup_label);

TEST_P(NestedProgress, in_an_active_message_handler_delivers_nothing) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    receiver().on_am = [&](const AmMessage&) {
        progress_inside(receiver());
        return UCS_OK;
    };
    constexpr std::uint64_t kMessages = 300;  // more than one call delivers
    for (std::uint64_t i = 0; i < kMessages; ++i)
        ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, i, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receiver().am_count >= kMessages; }));
    drain();
    ASSERT_EQ(kMessages, receiver().am_count);
    EXPECT_EQ(kMessages, static_cast<std::uint64_t>(callbacks));
    for (std::uint64_t i = 0; i < kMessages; ++i)
        ASSERT_EQ(i, number_of(receiver().am[i]));
}

TEST_P(NestedProgress, leaves_every_kind_of_active_message_whole) {
    for (const MethodInfo& info : am_methods(sender())) {
        const std::size_t size = std::min<std::size_t>(info.bytes_max, 6000);
        const Buffer payload = make_payload(sender(), size, 1);
        receiver().am.clear();
        receiver().on_am = [&](const AmMessage& message) {
            progress_inside(receiver());
            EXPECT_EQ(0, std::memcmp(message.data, message.bytes.data(), message.bytes.size()));
            return UCS_OK;
        };
        for (int i = 0; i < 20; ++i) {
            ASSERT_EQ(UCS_OK, run([&](uct_completion_t* completion) {
                          return send_am(ep(), sender(), info.method, kId, payload, completion);
                      }));
        }
        ASSERT_TRUE(until([&] { return receiver().am.size() >= 20; }));
        drain();
        ASSERT_EQ(20U, receiver().am.size()) << name_of(info.method);
        for (const AmMessage& message : receiver().am)
            EXPECT_EQ(size, first_mismatch(message.bytes, 1)) << name_of(info.method);
    }
}

// As many more as there is room for, so that the sender would come round to the message's place.
TEST_P(NestedProgress, keeps_the_message_while_the_sender_goes_on) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    constexpr std::uint64_t kFirst = 0x0123456789abcdef;
    std::uint64_t sent = 0;
    receiver().on_am = [&](const AmMessage& message) {
        if (number_of(message) != kFirst)
            return UCS_OK;
        for (int round = 0; round < 3; ++round) {
            progress_inside(receiver());
            for (int i = 0; i < 100000 && try_send(sent); ++i)
                ++sent;
        }
        EXPECT_EQ(0, std::memcmp(message.data, &kFirst, sizeof kFirst));
        return UCS_OK;
    };
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, kFirst, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receiver().am_count >= 1 + sent && callbacks > 0; }));
    drain();
    ASSERT_EQ(1 + sent, receiver().am_count);
    for (std::uint64_t i = 0; i < sent; ++i)
        ASSERT_EQ(i, number_of(receiver().am[1 + i]));
}

TEST_P(NestedProgress, does_not_stop_the_replies_of_a_handler) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_PENDING);
    if (is_loopback())
        GTEST_SKIP() << "two sides";
    uct_ep_h back = back_ep();
    receiver().on_am = [&](const AmMessage& message) {
        progress_inside(receiver());
        send_inside(back, [back, number = number_of(message)] {
            return uct_ep_am_short(back, kId, number, nullptr, 0);
        });
        progress_inside(receiver());
        return UCS_OK;
    };
    constexpr std::uint64_t kMessages = 100;
    for (std::uint64_t i = 0; i < kMessages; ++i) {
        ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, i, nullptr, 0); }));
        ASSERT_TRUE(until([&] { return sender().am_count == i + 1; }));
    }
    drain();
    ASSERT_EQ(kMessages, sender().am_count);
    for (std::uint64_t i = 0; i < kMessages; ++i)
        ASSERT_EQ(i, number_of(sender().am[i]));
}

// ---- Tags

TEST_P(NestedProgress, in_callbacks_of_unexpected_messages_delivers_nothing) {
    receiver().on_eager = [&](const EagerFragment& fragment) {
        const std::size_t bytes = fragment.length;
        const Bytes before(static_cast<std::byte*>(fragment.data),
                           static_cast<std::byte*>(fragment.data) + bytes);
        progress_inside(receiver());
        EXPECT_EQ(0, bytes == 0 ? 0 : std::memcmp(fragment.data, before.data(), bytes));
        return UCS_OK;
    };
    for (const MethodInfo& info : eager_methods(sender())) {
        receiver().eager.clear();
        const Buffer payload = make_payload(sender(), info.bytes_max, 7);
        for (std::uint64_t i = 0; i < 20; ++i) {
            ASSERT_EQ(UCS_OK, run([&](uct_completion_t* completion) {
                          return send_eager(ep(), info.method, kTag + i, 0, payload, completion);
                      }));
        }
        ASSERT_TRUE(until([&] { return receiver().eager.size() >= 20; }));
        drain();
        ASSERT_EQ(20U, receiver().eager.size()) << name_of(info.method);
        for (std::uint64_t i = 0; i < 20; ++i) {
            EXPECT_EQ(kTag + i, receiver().eager[i].tag);
            EXPECT_EQ(payload.size(), first_mismatch(receiver().eager[i].bytes, 7));
        }
    }
}

TEST_P(NestedProgress, in_callbacks_of_receives_delivers_nothing) {
    for (const MethodInfo& info : eager_methods(sender())) {
        const Buffer payload = make_payload(sender(), info.bytes_max, 8);
        const std::size_t count = std::min<std::size_t>(8, attr().cap.tag.recv.max_outstanding);
        std::vector<std::unique_ptr<Receive>> receives;
        for (std::size_t i = 0; i < count; ++i) {
            receives.push_back(std::make_unique<Receive>(
                receiver(), std::max(payload.size(), attr().cap.tag.recv.min_recv)));
            receives.back()->on_done = [&](Receive&) { progress_inside(receiver()); };
            ASSERT_EQ(UCS_OK, post_again(*receives.back(), kTag + i));
        }
        for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(UCS_OK, run([&](uct_completion_t* completion) {
                          return send_eager(ep(), info.method, kTag + i, 0, payload, completion);
                      }));
        }
        drain();
        for (const auto& receive : receives) {
            ASSERT_EQ(1, receive->consumed) << name_of(info.method);
            ASSERT_EQ(1, receive->completed) << name_of(info.method);
            EXPECT_EQ(payload.size(), first_mismatch(receive->received(), 8));
        }
    }
    EXPECT_TRUE(receiver().eager.empty());
}

TEST_P(NestedProgress, in_callbacks_of_a_rendezvous_delivers_nothing) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    TW_NEED_RECEIVES(2);
    constexpr std::size_t kBytes = 300000;
    // In the callback of one, progress would find the other.
    RendezvousSend sends[] = {{sender(), kBytes}, {sender(), kBytes}};
    Receive receives[] = {{receiver(), kBytes}, {receiver(), kBytes}};
    for (uct_tag_t i = 0; i < 2; ++i) {
        receives[i].on_done = [&](Receive&) { progress_inside(receiver()); };
        ASSERT_EQ(UCS_OK, receives[i].post(kTag + i));
    }
    for (uct_tag_t i = 0; i < 2; ++i) {
        progress_in_completion(sends[i].completion, sender());
        ASSERT_EQ(UCS_OK, retry([&] { return sends[i].start(ep(), kTag + i); }));
    }
    ASSERT_TRUE(until([&] { return callbacks == 4; }));
    drain();
    for (const RendezvousSend& send : sends)
        EXPECT_EQ(1, send.completion.calls);
    for (const Receive& receive : receives) {
        EXPECT_EQ(1, receive.endings());
        EXPECT_EQ(kBytes, first_mismatch(receive.received(), kBytes));
    }
}

TEST_P(NestedProgress, in_the_callback_of_an_unexpected_rendezvous_delivers_nothing) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    receiver().on_rndv = [&](const RndvMessage&) {
        progress_inside(receiver());
        return UCS_OK;
    };
    RendezvousSend sends[] = {{sender(), 100000}, {sender(), 100000}};
    for (uct_tag_t i = 0; i < 2; ++i)
        ASSERT_EQ(UCS_OK, retry([&] { return sends[i].start(ep(), kTag + i); }));
    ASSERT_TRUE(until([&] { return receiver().rndv.size() >= 2; }));
    drain();
    ASSERT_EQ(2U, receiver().rndv.size());
    EXPECT_EQ(kTag, receiver().rndv[0].tag);
    EXPECT_EQ(kTag + 1, receiver().rndv[1].tag);
    for (RendezvousSend& send : sends)
        EXPECT_EQ(UCS_OK, uct_ep_tag_rndv_cancel(ep(), send.handle));
    drain();
}

TEST_P(NestedProgress, in_the_callback_of_a_cancelled_receive_ends_no_other) {
    TW_NEED_RECEIVES(4);
    const std::size_t bytes = std::max<std::size_t>(4096, attr().cap.tag.recv.min_recv);
    Receive receives[] = {{receiver(), bytes}, {receiver(), bytes}, {receiver(), bytes}};
    for (uct_tag_t i = 0; i < 3; ++i) {
        receives[i].on_done = [&](Receive&) { progress_inside(receiver()); };
        ASSERT_EQ(UCS_OK, receives[i].post(kTag + i));
    }
    for (Receive& receive : receives)
        ASSERT_EQ(UCS_OK, receive.cancel(false));
    ASSERT_TRUE(until([&] { return callbacks == 3; }));
    drain();
    for (const Receive& receive : receives) {
        EXPECT_EQ(1, receive.completed);
        EXPECT_EQ(UCS_ERR_CANCELED, receive.status);
    }
}

// ---- Operations

TEST_P(NestedProgress, in_completions_ends_nothing_else) {
    TW_NEED(UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_GET_ZCOPY);
    constexpr std::size_t kBytes = 60000;
    Buffer remote(receiver(), kBytes, remote_backings(receiver()).front());
    const RemoteKey key(sender(), remote.packed_rkey());
    const Buffer from = make_payload(sender(), kBytes, 5);
    Buffer to(sender(), kBytes, plain_backing(sender()));
    const uct_iov_t put = from.iov(), get = to.iov();
    Completion completions[9];
    int expected = 0;
    const auto start = [&](Completion& completion, const auto& operation) {
        progress_in_completion(completion, sender());
        const ucs_status_t status = retry([&] { return operation(&completion); });
        ASSERT_GE(status, UCS_OK);
        expected += status == UCS_INPROGRESS ? 1 : 0;
    };
    for (std::size_t i = 0; i < 9; i += 3) {
        start(completions[i], [&](uct_completion_t* comp) {
            return uct_ep_put_zcopy(ep(), &put, 1, remote.address(), key.get(), comp);
        });
        start(completions[i + 1], [&](uct_completion_t* comp) {
            return uct_ep_get_zcopy(ep(), &get, 1, remote.address(), key.get(), comp);
        });
        start(completions[i + 2], [&](uct_completion_t* comp) {
            return uct_ep_flush(ep(), UCT_FLUSH_FLAG_LOCAL, comp);
        });
    }
    ASSERT_TRUE(until([&] { return callbacks == expected; }));
    drain();
    EXPECT_EQ(expected, callbacks);
    EXPECT_EQ(kBytes, first_mismatch(remote.span(), 5));
}

TEST_P(NestedProgress, in_a_pending_request_gives_no_other_its_turn) {
    TW_NEED(UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_AM_SHORT);
    std::uint64_t sent = 0;
    while (sent < 1'000'000 && try_send(sent))
        ++sent;
    struct Request : uct_pending_req_t {
        std::function<ucs_status_t()> run;
    } requests[3];
    for (std::uint64_t i = 0; i < 3; ++i) {
        requests[i].run = [this, number = sent + i] {
            progress_inside(sender());
            return uct_ep_am_short(ep(), kId, number, nullptr, 0);
        };
        requests[i].func = [](uct_pending_req_t* self) {
            return static_cast<Request*>(self)->run();
        };
        ASSERT_EQ(UCS_OK, uct_ep_pending_add(ep(), &requests[i], 0));
    }
    ASSERT_TRUE(until([&] { return receiver().am_count >= sent + 3; }));
    drain();
    ASSERT_EQ(sent + 3, receiver().am_count);
    for (std::uint64_t i = 0; i < sent + 3; ++i)
        ASSERT_EQ(i, number_of(receiver().am[i]));
}

// ---- The end of an endpoint

TEST_P(NestedProgress, in_what_ends_within_destroy_delivers_nothing) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    for (const bool is_cancel : {false, true}) {
        Connection link = connect(sender(), receiver());
        Completion completions[8];
        int expected = 0;
        const Buffer payload = make_payload(sender(), 300000, 1);
        const uct_iov_t iov = payload.iov();
        std::uint64_t sent = 0;
        while (sent < 10 && uct_ep_am_short(link.forward, kId, sent, nullptr, 0) == UCS_OK)
            ++sent;
        for (uct_tag_t i = 0; i < 8; ++i) {
            progress_in_completion(completions[i], sender());
            if (i % 2 == 1 || !sender().offers(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY)) {
                const ucs_status_t status =
                    uct_ep_flush(link.forward, UCT_FLUSH_FLAG_LOCAL, &completions[i]);
                expected += status == UCS_INPROGRESS ? 1 : 0;
            } else {
                const auto handle = uct_ep_tag_rndv_zcopy(link.forward, kTag + i, nullptr, 0, &iov,
                                                          1, 0, &completions[i]);
                expected += UCS_PTR_IS_ERR(handle) ? 0 : 1;
            }
        }
        callbacks = 0;
        if (is_cancel) {
            const ucs_status_t status =
                retry([&] { return uct_ep_flush(link.forward, UCT_FLUSH_FLAG_CANCEL, nullptr); });
            EXPECT_TRUE(status == UCS_OK || status == UCS_INPROGRESS) << status;
        }
        link.forward.reset();
        EXPECT_EQ(expected, callbacks);
        drain();
        for (const Completion& completion : completions)
            EXPECT_LE(completion.calls, 1);
    }
    EXPECT_TRUE(sender().errors.empty());
}

TEST_P(NestedProgress, in_what_a_cancelled_rendezvous_ends_delivers_nothing) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY | UCT_IFACE_FLAG_AM_SHORT);
    RendezvousSend send(sender(), 100000);
    ASSERT_EQ(UCS_OK, retry([&] { return send.start(ep(), kTag); }));
    drain();
    Completion flushed;
    progress_in_completion(flushed, sender());
    ASSERT_EQ(UCS_INPROGRESS,
              retry([&] { return uct_ep_flush(ep(), UCT_FLUSH_FLAG_LOCAL, &flushed); }));
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(back_ep(), kId, 1, nullptr, 0); }));
    ASSERT_EQ(UCS_OK, uct_ep_tag_rndv_cancel(ep(), send.handle));
    ASSERT_TRUE(until([&] { return flushed.calls == 1 && sender().am_count == 1; }));
}

class NestedProgressOfTwo : public NestedProgress {};
INSTANTIATE_TEST_SUITE_P(Contract, NestedProgressOfTwo, ::testing::ValuesIn(pair_setups()),
                         setup_label);

TEST_P(NestedProgressOfTwo, in_the_error_handler_reports_nothing_again) {
    TW_NEED(UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE | UCT_IFACE_FLAG_AM_SHORT);
    const uct_ep_h other = connect_more(sender(), receiver());
    for (uct_ep_h endpoint : {ep(), other})
        ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(endpoint, kId, 0, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receiver().am_count == 2; }));
    sender().on_error = [&](const PeerError&) { progress_inside(sender()); };
    close_receiver();
    ASSERT_TRUE(until(
        [&] {
            for (uct_ep_h endpoint : {ep(), other})
                uct_ep_am_short(endpoint, kId, 0, nullptr, 0);
            return sender().errors.size() >= 2;
        },
        50'000'000));
    drain();
    ASSERT_EQ(2U, sender().errors.size());
    EXPECT_EQ(2, callbacks);
    EXPECT_NE(sender().errors[0].ep, sender().errors[1].ep);
}

}  // namespace
}  // namespace tagwire::test
