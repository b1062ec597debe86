// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <random>

#include "fixture.hpp"

namespace tagwire::test {
namespace {

TW_CONTRACT(TagEager);

constexpr std::uint64_t kImm = 0x0102030405060708;

// A short message has no room for an immediate: the receiver sees 0.
std::uint64_t imm_of(Method method) {
    return method == Method::kShort ? 0 : kImm;
}

std::string trace(const MethodInfo& info, std::size_t size) {
    return std::string(name_of(info.method)) + ", " + std::to_string(size) + " bytes";
}

TEST_P(TagEager, a_posted_receive_gets_every_size_by_every_method) {
    const std::size_t min_recv = attr().cap.tag.recv.min_recv;
    for (const MethodInfo& info : eager_methods(sender())) {
        for (const std::size_t size : edge_sizes(info.bytes_min, info.bytes_max)) {
            SCOPED_TRACE(trace(info, size));
            Receive receive(receiver(), std::max(size, min_recv));
            const Buffer payload = make_payload(sender(), size, size + 3);
            ASSERT_EQ(UCS_OK, receive.post(kTag));

            ASSERT_EQ(UCS_OK, run([&](uct_completion_t* completion) {
                          return send_eager(ep(), info.method, kTag, kImm, payload, completion);
                      }));

            ASSERT_TRUE(until([&] { return receive.completed > 0; }));
            ASSERT_EQ(UCS_OK, receive.status);
            ASSERT_EQ(1, receive.consumed);
            ASSERT_EQ(1, receive.completed);
            ASSERT_EQ(0, receive.rndv_requests);
            ASSERT_EQ(kTag, receive.sender_tag);
            ASSERT_EQ(imm_of(info.method), receive.imm);
            ASSERT_EQ(size, receive.length);
            ASSERT_EQ(size, first_mismatch(receive.received(), size + 3));
            ASSERT_TRUE(receiver().eager.empty());
        }
    }
}

TEST_P(TagEager, without_a_receive_the_callback_gets_every_size_by_every_method) {
    for (const MethodInfo& info : eager_methods(sender())) {
        for (const std::size_t size : edge_sizes(info.bytes_min, info.bytes_max)) {
            SCOPED_TRACE(trace(info, size));
            receiver().eager.clear();
            const Buffer payload = make_payload(sender(), size, size + 4);

            ASSERT_EQ(UCS_OK, run([&](uct_completion_t* completion) {
                          return send_eager(ep(), info.method, kTag, kImm, payload, completion);
                      }));

            ASSERT_TRUE(until([&] { return !receiver().eager.empty(); }));
            ASSERT_EQ(1u, receiver().eager.size());
            const EagerMessage& message = receiver().eager[0];
            ASSERT_EQ(kTag, message.tag);
            ASSERT_EQ(imm_of(info.method), message.imm);
            ASSERT_EQ(size, message.bytes.size());
            ASSERT_EQ(size, first_mismatch(message.bytes, size + 4));
        }
    }
}

TEST_P(TagEager, data_is_gathered_and_scattered_by_io_vectors) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_ZCOPY);
    const std::size_t size = std::min<std::size_t>(attr().cap.tag.eager.max_zcopy, 10007);
    for (const Backing from : local_backings(sender())) {
        for (const Backing to : local_backings(receiver())) {
            for (const std::size_t send_parts : edge_parts(attr().cap.tag.eager.max_iov)) {
                for (const std::size_t receive_parts : edge_parts(attr().cap.tag.recv.max_iov)) {
                    SCOPED_TRACE(std::string(name_of(from)) + " x" + std::to_string(send_parts) +
                                 " to " + name_of(to) + " x" + std::to_string(receive_parts));
                    Buffer payload(sender(), size, from);
                    fill_pattern(payload.span(), 12);
                    Receive receive(receiver(), size, to);
                    const auto source = split(payload, size, send_parts);
                    const auto target = split(receive.buffer, size, receive_parts);
                    ASSERT_EQ(UCS_OK, receive.post_iov(kTag, kExact, target));
                    ASSERT_EQ(UCS_OK, run([&](uct_completion_t* completion) {
                                  return uct_ep_tag_eager_zcopy(ep(), kTag, kImm, source.data(),
                                                                source.size(), 0, completion);
                              }));
                    ASSERT_TRUE(until([&] { return receive.completed > 0; }));
                    ASSERT_EQ(UCS_OK, receive.status);
                    ASSERT_EQ(size, first_mismatch(receive.received(), 12));
                }
            }
        }
    }
}

TEST_P(TagEager, a_receive_of_nothing_takes_a_message_of_nothing) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    if (attr().cap.tag.recv.min_recv > 0)
        GTEST_SKIP() << "receives of 0 bytes are not offered";
    Receive receive(receiver(), 0);
    ASSERT_EQ(UCS_OK, receive.post_iov(kTag, kExact, {}));
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_tag_eager_short(ep(), kTag, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receive.completed > 0; }));
    EXPECT_EQ(UCS_OK, receive.status);
    EXPECT_EQ(0u, receive.length);
    EXPECT_EQ(kTag, receive.sender_tag);
}

TEST_P(TagEager, a_receive_is_consumed_before_it_completes) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_BCOPY);
    Receive receive(receiver(), attr().cap.tag.eager.max_bcopy);
    int consumed_at_completion = -1;
    receive.on_done = [&](Receive& self) { consumed_at_completion = self.consumed; };
    ASSERT_EQ(UCS_OK, receive.post(kTag));
    EXPECT_EQ(0, receive.consumed);
    const Bytes payload = pattern(attr().cap.tag.eager.max_bcopy, 1);
    ASSERT_EQ(UCS_OK, retry([&] { return send_eager_bytes(ep(), kTag, 0, payload); }));
    ASSERT_TRUE(until([&] { return receive.completed > 0; }));
    EXPECT_EQ(1, consumed_at_completion);
}

TEST_P(TagEager, a_message_shorter_than_the_buffer_leaves_the_rest_alone) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_BCOPY);
    const std::size_t size = attr().cap.tag.recv.min_recv + 1000;
    Receive receive(receiver(), size);
    std::memset(receive.buffer.data(), 0x77, size);
    ASSERT_EQ(UCS_OK, receive.post(kTag));
    const Bytes payload = pattern(100, 2);
    ASSERT_EQ(UCS_OK, retry([&] { return send_eager_bytes(ep(), kTag, kImm, payload); }));
    ASSERT_TRUE(until([&] { return receive.completed > 0; }));
    EXPECT_EQ(100u, receive.length);
    EXPECT_TRUE(has_pattern(receive.received(), 2));
    for (std::size_t i = 100; i < size; ++i)
        ASSERT_EQ(std::byte{0x77}, receive.buffer.data()[i]) << i;
}

TEST_P(TagEager, truncation_is_reported_and_the_connection_goes_on) {
    const std::size_t least = attr().cap.tag.recv.min_recv;
    for (const MethodInfo& info : eager_methods(sender())) {
        for (const std::size_t size : edge_sizes(info.bytes_min, info.bytes_max)) {
            if (size <= least)
                continue;  // cannot be truncated
            for (const std::size_t room : {least, size / 2, size - 1}) {
                if (room < least || room >= size)
                    continue;
                SCOPED_TRACE(trace(info, size) + " into " + std::to_string(room));
                Receive receive(receiver(), room + 64);  // 64 bytes of guard behind the posted ones
                std::memset(receive.buffer.data(), 0x3c, room + 64);
                const uct_iov_t iov = receive.buffer.iov(0, room);
                ASSERT_EQ(UCS_OK, receive.post_iov(kTag, kExact, {&iov, 1}));
                const Buffer payload = make_payload(sender(), size, 5);
                run([&](uct_completion_t* completion) {
                    return send_eager(ep(), info.method, kTag, kImm, payload, completion);
                });
                ASSERT_TRUE(until([&] { return receive.completed > 0; }));
                ASSERT_EQ(UCS_ERR_MESSAGE_TRUNCATED, receive.status);
                ASSERT_EQ(kTag, receive.sender_tag);
                for (std::size_t i = room; i < room + 64; ++i) {
                    ASSERT_EQ(std::byte{0x3c}, receive.buffer.data()[i])
                        << "written behind the buffer";
                }

                Receive next(receiver(), std::max<std::size_t>(size, least));
                ASSERT_EQ(UCS_OK, next.post(kTag + 1));
                ASSERT_EQ(UCS_OK, run([&](uct_completion_t* completion) {
                              return send_eager(ep(), info.method, kTag + 1, kImm, payload,
                                                completion);
                          }));
                ASSERT_TRUE(until([&] { return next.completed > 0; }));
                ASSERT_EQ(UCS_OK, next.status);
                ASSERT_TRUE(has_pattern(next.received(), 5));
                ASSERT_EQ(1, receive.completed);
            }
        }
    }
    EXPECT_TRUE(receiver().errors.empty());
    EXPECT_TRUE(sender().errors.empty());
}

TEST_P(TagEager, large_messages_keep_one_context_across_their_fragments) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_ZCOPY);
    const std::size_t size = std::min<std::size_t>(attr().cap.tag.eager.max_zcopy, 300000);
    Entity& other = add_entity();
    uct_ep_h other_ep = connect_more(other, receiver());
    struct Progress {
        unsigned fragments = 0;
        std::size_t bytes = 0;
        bool ended = false;
    };
    std::vector<std::unique_ptr<Progress>> messages;
    receiver().keep_record = false;
    receiver().on_eager = [&](const EagerFragment& fragment) {
        const bool is_first = (fragment.flags & UCT_CB_PARAM_FLAG_FIRST) != 0;
        const bool has_more = (fragment.flags & UCT_CB_PARAM_FLAG_MORE) != 0;
        if (is_first) {
            messages.push_back(std::make_unique<Progress>());
            if (has_more)
                *fragment.context = messages.back().get();
        }
        auto* progress =
            is_first ? messages.back().get() : static_cast<Progress*>(*fragment.context);
        EXPECT_FALSE(progress->ended);
        ++progress->fragments;
        progress->bytes += fragment.length;
        progress->ended = !has_more;
        return UCS_OK;
    };
    const Buffer payload = make_payload(sender(), size, 6);
    const Buffer others = make_payload(other, size, 7);
    constexpr int kMessages = 20;
    Completion mine(kMessages);
    Completion theirs(kMessages);
    const auto send = [&](uct_ep_h from, const Buffer& bytes, Completion& completion) {
        const ucs_status_t status =
            retry([&] { return send_eager(from, Method::kZcopy, kTag, 0, bytes, &completion); });
        ASSERT_GE(status, UCS_OK);
        if (status == UCS_OK && --completion.count == 0)
            ++completion.calls;
    };
    for (int i = 0; i < kMessages; ++i) {
        send(ep(), payload, mine);
        send(other_ep, others, theirs);
    }
    ASSERT_TRUE(until([&] {
        return mine.calls == 1 && theirs.calls == 1 && receiver().eager_count == 2 * kMessages;
    }));
    ASSERT_EQ(std::size_t{2 * kMessages}, messages.size());
    for (const auto& message : messages) {
        EXPECT_EQ(size, message->bytes);
        EXPECT_TRUE(message->ended);
    }
}

TEST_P(TagEager, kept_descriptors_stay_readable_until_released) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_BCOPY);
    for (const std::size_t headroom : {std::size_t{0}, std::size_t{40}}) {
        SCOPED_TRACE("headroom " + std::to_string(headroom));
        EntityOptions options;
        options.rx_headroom = headroom;
        reopen(options);
        struct Kept {
            std::byte* descriptor;
            std::size_t length;
            std::uint64_t imm;
        };
        const std::size_t held_max = knobs_of(GetParam().resource).held_max;
        std::vector<Kept> kept;
        receiver().on_eager = [&](const EagerFragment& fragment) {
            if ((fragment.flags & UCT_CB_PARAM_FLAG_DESC) == 0 || kept.size() >= held_max)
                return UCS_OK;
            auto* descriptor = static_cast<std::byte*>(fragment.data) - headroom;
            std::memset(descriptor, 0xdd, headroom);
            kept.push_back({descriptor, fragment.length, fragment.imm});
            return UCS_INPROGRESS;
        };
        receiver().keep_record = false;
        constexpr std::uint64_t kMessages = 3000;
        const std::size_t most = std::min<std::size_t>(attr().cap.tag.eager.max_bcopy, 900);
        std::mt19937_64 random(4);
        for (std::uint64_t i = 0; i < kMessages; ++i) {
            const Bytes payload = pattern(random() % (most + 1), i);
            ASSERT_EQ(UCS_OK, retry([&] { return send_eager_bytes(ep(), kTag, i, payload); }));
            if (i % 5 == 0 && !kept.empty()) {  // some go back early, not in order
                const std::size_t which = random() % kept.size();
                uct_iface_release_desc(kept[which].descriptor);
                kept[which] = kept.back();
                kept.pop_back();
            }
        }
        ASSERT_TRUE(until([&] { return receiver().eager_count == kMessages; }));
        for (const Kept& one : kept)
            ASSERT_TRUE(has_pattern({one.descriptor + headroom, one.length}, one.imm)) << one.imm;
        for (const Kept& one : kept)
            uct_iface_release_desc(one.descriptor);
    }
}

// The callback posts a receive for the next tag and sends that message to itself or back to the
// sender.
TEST_P(TagEager, unexpected_callbacks_may_send_and_post) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    constexpr std::uint64_t kRounds = 1000;
    uct_ep_h back = back_ep();
    std::vector<std::unique_ptr<Receive>> receives;
    receiver().on_eager = [&](const EagerFragment& fragment) {
        if (fragment.imm != 0 || fragment.tag < kTag)
            return UCS_OK;
        receives.push_back(std::make_unique<Receive>(sender(), attr().cap.tag.recv.min_recv));
        const uct_tag_t tag = fragment.tag - kTag;
        EXPECT_EQ(UCS_OK, receives.back()->post(tag));
        send_inside(back, [=] { return uct_ep_tag_eager_short(back, tag, nullptr, 0); });
        return UCS_OK;
    };
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_tag_eager_short(back, 0, nullptr, 0); }));
    // While it is on its way to the user, receives that are posted may miss what comes then.
    ASSERT_TRUE(until([&] { return !sender().eager.empty(); }));
    for (std::uint64_t i = 1; i <= kRounds; ++i) {
        ASSERT_EQ(UCS_OK,
                  retry([&] { return uct_ep_tag_eager_short(ep(), kTag + i, nullptr, 0); }));
        ASSERT_TRUE(until([&] { return receives.size() == i && receives.back()->completed == 1; }));
        ASSERT_EQ(i, receives.back()->sender_tag);
    }
}

TEST_P(TagEager, completed_callbacks_may_post_again_and_send) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    TW_NEED_RECEIVES(is_loopback() ? 2 : 1);
    constexpr int kRounds = 2000;
    uct_ep_h there = ep();
    uct_ep_h back = back_ep();
    Receive ping(receiver(), attr().cap.tag.recv.min_recv);
    Receive pong(sender(), attr().cap.tag.recv.min_recv);
    int rounds = 0;
    ping.on_done = [&](Receive& self) {
        EXPECT_EQ(UCS_OK, self.post(1));
        send_inside(back, [=] { return uct_ep_tag_eager_short(back, 2, nullptr, 0); });
    };
    pong.on_done = [&](Receive& self) {
        EXPECT_EQ(UCS_OK, self.status);
        if (++rounds == kRounds)
            return;
        EXPECT_EQ(UCS_OK, self.post(2));
        send_inside(there, [=] { return uct_ep_tag_eager_short(there, 1, nullptr, 0); });
    };
    ASSERT_EQ(UCS_OK, ping.post(1));
    ASSERT_EQ(UCS_OK, pong.post(2));
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_tag_eager_short(there, 1, nullptr, 0); }));
    EXPECT_TRUE(until([&] { return rounds == kRounds; })) << "stopped at " << rounds;
    ping.cancel(true);
    drain();
}

TEST_P(TagEager, order_holds_across_methods_and_sizes) {
    const auto methods = eager_methods(sender());
    if (methods.empty())
        GTEST_SKIP() << "not offered: any eager tagged send";
    std::mt19937_64 random(33);
    constexpr std::uint64_t kMessages = 2000;
    std::vector<Buffer> payloads;
    std::vector<std::unique_ptr<Completion>> completions;
    for (std::uint64_t i = 0; i < kMessages; ++i) {
        const MethodInfo& info = methods[random() % methods.size()];
        const std::size_t most = std::min<std::size_t>(info.bytes_max, i % 40 == 0 ? 100000 : 700);
        payloads.push_back(make_payload(sender(), random() % (most + 1), i));
        completions.push_back(std::make_unique<Completion>());
        const ucs_status_t status = retry([&] {
            return send_eager(ep(), info.method, i, 0, payloads.back(), completions.back().get());
        });
        ASSERT_GE(status, UCS_OK);
        if (status == UCS_OK)
            completions.pop_back();
        if (random() % 3 == 0)
            step();
    }
    ASSERT_TRUE(until([&] { return receiver().eager.size() == kMessages; }));
    ASSERT_TRUE(until([&] {
        return std::all_of(completions.begin(), completions.end(),
                           [](const auto& completion) { return completion->calls == 1; });
    }));
    for (std::uint64_t i = 0; i < kMessages; ++i) {
        ASSERT_EQ(i, receiver().eager[i].tag);
        ASSERT_EQ(payloads[i].size(), receiver().eager[i].bytes.size()) << i;
        ASSERT_TRUE(has_pattern(receiver().eager[i].bytes, i)) << i;
    }
}

TEST_P(TagEager, a_receive_posted_after_70000_unexpected_messages_matches_the_next) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    constexpr std::uint64_t kFlood = 70000;
    receiver().keep_record = false;
    for (std::uint64_t i = 0; i < kFlood; ++i)
        ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_tag_eager_short(ep(), i, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receiver().eager_count == kFlood; }));
    Receive receive(receiver(), attr().cap.tag.recv.min_recv);
    ASSERT_EQ(UCS_OK, receive.post(3));
    drain();
    EXPECT_EQ(0, receive.completed) << "matched a message that was already delivered";
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_tag_eager_short(ep(), 3, nullptr, 0); }));
    EXPECT_TRUE(until([&] { return receive.completed == 1; }));
    EXPECT_EQ(kFlood, receiver().eager_count);
}

}  // namespace
}  // namespace tagwire::test
