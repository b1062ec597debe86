// SPDX-License-Identifier: BSD-3-Clause
#include <random>

#include "fixture.hpp"

namespace tagwire::test {
namespace {

TW_CONTRACT(TagRndv);

class RndvSend {
  public:
    RndvSend(Entity& from, std::size_t size, std::uint64_t seed, Backing backing)
        : payload(from, size, backing) {
        fill_pattern(payload.span(), seed);
    }
    RndvSend(Entity& from, std::size_t size, std::uint64_t seed)
        : RndvSend(from, size, seed, plain_backing(from)) {}

    /// UCS_OK once it has been taken; the handle is checked here.
    ucs_status_t start(uct_ep_h ep, uct_tag_t tag, const Bytes& header = {},
                       std::size_t parts = 1) {
        const auto iov = split(payload, payload.size(), parts);
        handle = uct_ep_tag_rndv_zcopy(ep, tag, header.data(), static_cast<unsigned>(header.size()),
                                       iov.data(), iov.size(), 0, &completion);
        if (UCS_PTR_IS_ERR(handle))
            return UCS_PTR_RAW_STATUS(handle);
        EXPECT_NE(nullptr, handle) << "a null handle cannot be told from UCS_OK";
        return UCS_OK;
    }

    Buffer payload;
    Completion completion;
    ucs_status_ptr_t handle = nullptr;
};

TEST_P(TagRndv, a_posted_receive_gets_every_size) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    for (const std::size_t size : edge_sizes(0, attr().cap.tag.rndv.max_zcopy)) {
        SCOPED_TRACE(std::to_string(size) + " bytes");
        Receive receive(receiver(), std::max(size, attr().cap.tag.recv.min_recv));
        RndvSend send(sender(), size, size + 8);
        ASSERT_EQ(UCS_OK, receive.post(kTag));
        ASSERT_EQ(UCS_OK, retry([&] { return send.start(ep(), kTag); }));

        ASSERT_TRUE(until([&] { return receive.completed > 0 && send.completion.calls > 0; }));
        ASSERT_EQ(UCS_OK, receive.status);
        ASSERT_EQ(UCS_OK, send.completion.ended);
        ASSERT_EQ(1, receive.consumed);
        ASSERT_EQ(size, receive.length);
        ASSERT_EQ(kTag, receive.sender_tag);
        ASSERT_EQ(0u, receive.imm);
        ASSERT_EQ(size, first_mismatch(receive.received(), size + 8));
    }
    drain();
    EXPECT_TRUE(receiver().rndv.empty());
}

TEST_P(TagRndv, every_kind_of_memory_and_io_vector_works_on_both_sides) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    const std::size_t size = 300007;
    for (const Backing from : local_backings(sender())) {
        for (const Backing to : local_backings(receiver())) {
            for (const std::size_t send_parts : edge_parts(attr().cap.tag.rndv.max_iov)) {
                for (const std::size_t receive_parts : edge_parts(attr().cap.tag.recv.max_iov)) {
                    SCOPED_TRACE(std::string(name_of(from)) + " x" + std::to_string(send_parts) +
                                 " to " + name_of(to) + " x" + std::to_string(receive_parts));
                    RndvSend send(sender(), size, 19, from);
                    Receive receive(receiver(), size, to);
                    ASSERT_EQ(UCS_OK, receive.post_iov(kTag, kExact,
                                                       split(receive.buffer, size, receive_parts)));
                    ASSERT_EQ(UCS_OK,
                              retry([&] { return send.start(ep(), kTag, {}, send_parts); }));
                    ASSERT_TRUE(
                        until([&] { return receive.completed > 0 && send.completion.calls > 0; }));
                    ASSERT_EQ(UCS_OK, receive.status);
                    ASSERT_EQ(UCS_OK, send.completion.ended);
                    ASSERT_EQ(size, first_mismatch(receive.received(), 19));
                }
            }
        }
    }
}

TEST_P(TagRndv, without_a_receive_the_callback_gets_header_address_and_key) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    for (const std::size_t header : edge_sizes(0, attr().cap.tag.rndv.max_hdr)) {
        SCOPED_TRACE("header of " + std::to_string(header));
        receiver().rndv.clear();
        RndvSend send(sender(), 100000, 3, remote_backings(sender()).front());
        ASSERT_EQ(UCS_OK, retry([&] { return send.start(ep(), kTag, pattern(header, 4)); }));
        ASSERT_TRUE(until([&] { return !receiver().rndv.empty(); }));
        const RndvMessage& message = receiver().rndv[0];
        EXPECT_EQ(kTag, message.tag);
        EXPECT_EQ(header, message.header.size());
        EXPECT_TRUE(has_pattern(message.header, 4));
        EXPECT_EQ(send.payload.address(), message.remote_addr);
        EXPECT_EQ(send.payload.size(), message.length);
        EXPECT_FALSE(message.rkey.empty());
        drain();
        EXPECT_EQ(0, send.completion.calls) << "complete, though nobody took the data";
        EXPECT_EQ(UCS_OK, uct_ep_tag_rndv_cancel(ep(), send.handle));
        drain();
        EXPECT_EQ(0, send.completion.calls);
    }
}

// A messaging layer takes an unexpected rendezvous this way: it gets by the key, then tells the
// sender, which cancels.
TEST_P(TagRndv, an_unexpected_rendezvous_can_be_fetched_with_its_key) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY | UCT_IFACE_FLAG_GET_ZCOPY);
    for (const Backing backing : remote_backings(sender())) {
        SCOPED_TRACE(name_of(backing));
        receiver().rndv.clear();
        RndvSend send(sender(), 250001, 5, backing);
        ASSERT_EQ(UCS_OK, retry([&] { return send.start(ep(), kTag); }));
        ASSERT_TRUE(until([&] { return !receiver().rndv.empty(); }));
        const RndvMessage message = receiver().rndv[0];
        const RemoteKey key(receiver(), message.rkey);
        const Buffer target(receiver(), message.length, plain_backing(receiver()));
        const uct_iov_t iov = target.iov();
        uct_ep_h back = back_ep();
        ASSERT_EQ(UCS_OK, run([&](uct_completion_t* completion) {
                      return uct_ep_get_zcopy(back, &iov, 1, message.remote_addr, key.get(),
                                              completion);
                  }));
        EXPECT_EQ(message.length, first_mismatch(target.span(), 5));
        EXPECT_EQ(UCS_OK, uct_ep_tag_rndv_cancel(ep(), send.handle));
        drain();
        EXPECT_EQ(0, send.completion.calls);
    }
}

TEST_P(TagRndv, truncation_is_reported_and_the_connection_goes_on) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    for (const std::size_t size : {std::size_t{1000}, std::size_t{100000}}) {
        const std::size_t room = std::max(size / 2, attr().cap.tag.recv.min_recv);
        if (room >= size)
            continue;
        Receive receive(receiver(), room);
        RndvSend send(sender(), size, 6);
        ASSERT_EQ(UCS_OK, receive.post(kTag));
        ASSERT_EQ(UCS_OK, retry([&] { return send.start(ep(), kTag); }));
        ASSERT_TRUE(until([&] { return receive.completed > 0 && send.completion.calls > 0; }));
        EXPECT_EQ(UCS_ERR_MESSAGE_TRUNCATED, receive.status);
        EXPECT_EQ(1, send.completion.calls);

        Receive next(receiver(), size);
        RndvSend again(sender(), size, 7);
        ASSERT_EQ(UCS_OK, next.post(kTag));
        ASSERT_EQ(UCS_OK, retry([&] { return again.start(ep(), kTag); }));
        ASSERT_TRUE(until([&] { return next.completed > 0 && again.completion.calls > 0; }));
        EXPECT_EQ(UCS_OK, next.status);
        EXPECT_TRUE(has_pattern(next.received(), 7));
        EXPECT_EQ(1, receive.completed);
    }
    EXPECT_TRUE(sender().errors.empty());
    EXPECT_TRUE(receiver().errors.empty());
}

TEST_P(TagRndv, a_software_request_reaches_a_posted_receive) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    for (const std::size_t header : edge_sizes(0, attr().cap.tag.rndv.max_hdr)) {
        SCOPED_TRACE("header of " + std::to_string(header));
        Receive receive(receiver(), attr().cap.tag.recv.min_recv);
        ASSERT_EQ(UCS_OK, receive.post(kTag));
        const Bytes bytes = pattern(header, 9);
        ASSERT_EQ(UCS_OK, retry([&] {
                      return uct_ep_tag_rndv_request(ep(), kTag, bytes.data(),
                                                     static_cast<unsigned>(header), 0);
                  }));
        ASSERT_TRUE(until([&] { return receive.endings() > 0; }));
        EXPECT_EQ(1, receive.rndv_requests);
        EXPECT_EQ(0, receive.completed);
        EXPECT_EQ(1, receive.consumed);
        EXPECT_EQ(UCS_OK, receive.status);
        EXPECT_EQ(kTag, receive.sender_tag);
        EXPECT_EQ(bytes, receive.header);
    }
    EXPECT_TRUE(receiver().rndv.empty());
}

TEST_P(TagRndv, an_unexpected_software_request_has_neither_address_nor_key) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    for (const std::size_t header : edge_sizes(0, attr().cap.tag.rndv.max_hdr)) {
        receiver().rndv.clear();
        const Bytes bytes = pattern(header, 10);
        ASSERT_EQ(UCS_OK, retry([&] {
                      return uct_ep_tag_rndv_request(ep(), kTag, bytes.data(),
                                                     static_cast<unsigned>(header), 0);
                  }));
        ASSERT_TRUE(until([&] { return !receiver().rndv.empty(); }));
        const RndvMessage& message = receiver().rndv[0];
        EXPECT_EQ(bytes, message.header);
        EXPECT_EQ(0u, message.remote_addr);
        EXPECT_EQ(0u, message.length);
        EXPECT_TRUE(message.rkey.empty());
    }
}

TEST_P(TagRndv, rendezvous_and_eager_keep_their_order) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY | UCT_IFACE_FLAG_TAG_EAGER_BCOPY);
    // All share one tag, so the i-th receive must get the i-th message whatever its protocol was.
    constexpr std::uint64_t kMessages = 600;
    std::mt19937_64 random(8);
    std::vector<std::unique_ptr<Receive>> receives;
    std::vector<std::unique_ptr<RndvSend>> sends;
    std::vector<std::size_t> sizes;
    const std::size_t most = std::min<std::size_t>(attr().cap.tag.eager.max_bcopy, 3000);
    const std::size_t posted_max = attr().cap.tag.recv.max_outstanding;
    for (std::uint64_t i = 0; i < kMessages; ++i) {
        const bool is_rndv = random() % 2 == 0;
        const std::size_t size = random() % (is_rndv ? 50000 : most);
        sizes.push_back(size);
        const std::size_t oldest = i < posted_max ? 0 : i - posted_max;
        ASSERT_TRUE(until([&] { return i < posted_max || receives[oldest]->completed == 1; }));
        receives.push_back(
            std::make_unique<Receive>(receiver(), std::max(size, attr().cap.tag.recv.min_recv)));
        ASSERT_EQ(UCS_OK, receives.back()->post(kTag));
        if (is_rndv) {
            sends.push_back(std::make_unique<RndvSend>(sender(), size, i));
            ASSERT_EQ(UCS_OK, retry([&] { return sends.back()->start(ep(), kTag); }));
        } else {
            const Bytes payload = pattern(size, i);
            ASSERT_EQ(UCS_OK, retry([&] { return send_eager_bytes(ep(), kTag, 0, payload); }));
        }
        if (random() % 4 == 0)
            step();
    }
    ASSERT_TRUE(until([&] {
        return std::all_of(receives.begin(), receives.end(),
                           [](const auto& receive) { return receive->completed == 1; }) &&
               std::all_of(sends.begin(), sends.end(),
                           [](const auto& send) { return send->completion.calls == 1; });
    }));
    for (std::uint64_t i = 0; i < kMessages; ++i) {
        ASSERT_EQ(UCS_OK, receives[i]->status) << i;
        ASSERT_EQ(sizes[i], receives[i]->length) << i;
        ASSERT_TRUE(has_pattern(receives[i]->received(), i)) << i;
    }
}

TEST_P(TagRndv, many_outstanding_rendezvous_complete_once_each) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    const std::uint64_t messages =
        std::min<std::uint64_t>(attr().cap.tag.recv.max_outstanding, 500);
    std::vector<std::unique_ptr<RndvSend>> sends;
    std::vector<std::unique_ptr<Receive>> receives;
    std::vector<ucs_status_ptr_t> handles;
    for (std::uint64_t i = 0; i < messages; ++i) {
        receives.push_back(std::make_unique<Receive>(
            receiver(), std::max<std::size_t>(20000, attr().cap.tag.recv.min_recv)));
        ASSERT_EQ(UCS_OK, receives.back()->post(i));
    }
    for (std::uint64_t i = messages; i-- > 0;) {
        sends.push_back(std::make_unique<RndvSend>(sender(), 20000, i));
        ASSERT_EQ(UCS_OK, retry([&] { return sends.back()->start(ep(), i); }));
    }
    ASSERT_TRUE(until([&] {
        return std::all_of(sends.begin(), sends.end(),
                           [](const auto& send) { return send->completion.calls == 1; });
    }));
    drain();
    for (std::uint64_t i = 0; i < messages; ++i) {
        ASSERT_EQ(1, receives[i]->completed);
        ASSERT_TRUE(has_pattern(receives[i]->received(), i));
    }
}

TEST_P(TagRndv, a_cancelled_rendezvous_never_completes_and_is_never_received) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY | UCT_IFACE_FLAG_TAG_EAGER_BCOPY);
    Receive receive(receiver(), std::max<std::size_t>(60000, attr().cap.tag.recv.min_recv));
    ASSERT_EQ(UCS_OK, receive.post(kTag));
    RndvSend send(sender(), 60000, 1);
    ASSERT_EQ(UCS_OK, retry([&] { return send.start(ep(), kTag); }));
    ASSERT_EQ(UCS_OK, uct_ep_tag_rndv_cancel(ep(), send.handle));  // before the receiver looked

    drain(100000);  // the first message of a connection may take a while
    EXPECT_EQ(0, send.completion.calls);
    if (receive.endings() > 0) {
        if (reads_unasked()) {
            EXPECT_TRUE(receive.status != UCS_OK || has_pattern(receive.received(), 1));
        } else {
            EXPECT_NE(UCS_OK, receive.status) << "success of a cancelled rendezvous";
        }
    } else {
        const Bytes payload = pattern(100, 2);
        ASSERT_EQ(UCS_OK, retry([&] { return send_eager_bytes(ep(), kTag, 0, payload); }));
        ASSERT_TRUE(until([&] { return receive.completed == 1; }));
        EXPECT_EQ(UCS_OK, receive.status);
        EXPECT_EQ(100u, receive.length);
        EXPECT_TRUE(has_pattern(receive.received(), 2));
    }
    flush_ep(ep());
}

// The race, at every step: the receiver has progressed k times when the sender cancels. The
// operation is either complete by then, and may not be cancelled any more, or it never completes
// and the receiver never succeeds.
TEST_P(TagRndv, cancel_against_arrival_at_every_step) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    for (const std::size_t size : {std::size_t{0}, std::size_t{3000}, std::size_t{900000}}) {
        for (unsigned steps = 0; steps < 40; ++steps) {
            SCOPED_TRACE(std::to_string(size) + " bytes, cancelled after " + std::to_string(steps));
            Receive receive(receiver(), std::max(size, attr().cap.tag.recv.min_recv));
            RndvSend send(sender(), size, steps);
            ASSERT_EQ(UCS_OK, receive.post(kTag));
            ASSERT_EQ(UCS_OK, retry([&] { return send.start(ep(), kTag); }));
            for (unsigned i = 0; i < steps && send.completion.calls == 0; ++i)
                (i % 2 == 0 ? receiver() : sender()).progress();
            // Success that was reported before the cancel is no breach: the sender just has not
            // been told yet.
            const bool reported_before = receive.completed == 1 && receive.status == UCS_OK;
            const bool is_cancelled = send.completion.calls == 0;
            if (is_cancelled) {
                ASSERT_EQ(UCS_OK, uct_ep_tag_rndv_cancel(ep(), send.handle));
            }
            drain(200);
            ASSERT_EQ(is_cancelled ? 0 : 1, send.completion.calls);
            if (is_cancelled && !reported_before && receive.endings() > 0 && !reads_unasked()) {
                ASSERT_NE(UCS_OK, receive.status) << "success of a cancelled rendezvous";
            }
            if (!is_cancelled || reported_before) {
                ASSERT_EQ(1, receive.completed);
                ASSERT_EQ(size, first_mismatch(receive.received(), steps));
            }
            if (receive.endings() == 0) {
                ASSERT_EQ(UCS_OK, receive.cancel(true));
            }
            ASSERT_LE(receive.endings(), 1);
        }
    }
}

TEST_P(TagRndv, completion_callbacks_may_send) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY | UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    Receive receive(receiver(), std::max<std::size_t>(60000, attr().cap.tag.recv.min_recv));
    RndvSend send(sender(), 60000, 1);
    send.completion.on_done = [&] {
        send_inside(ep(), [&] { return uct_ep_tag_eager_short(ep(), kTag + 1, nullptr, 0); });
    };
    ASSERT_EQ(UCS_OK, receive.post(kTag));
    ASSERT_EQ(UCS_OK, retry([&] { return send.start(ep(), kTag); }));
    EXPECT_TRUE(until([&] { return receiver().eager.size() == 1 && receive.completed == 1; }));
    EXPECT_EQ(1, send.completion.calls);
}

}  // namespace
}  // namespace tagwire::test
