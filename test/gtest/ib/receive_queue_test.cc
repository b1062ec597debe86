// SPDX-License-Identifier: BSD-3-Clause
// Receive buffers: layout, refill, buffers that the user keeps.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <uct/api/uct.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <set>

#include "ib/verbs_ends.hpp"
#include "uct/ib/message.hpp"
#include "uct/ib/receive_queue.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kMessageBytes = 1000;

/// A plain receive queue and somebody who sends to it.
class Receiver {
  public:
    explicit Receiver(ib::ReceiveQueueParams params) {
        EXPECT_EQ(UCS_OK, cq.open(*md, 2 * params.depth, nullptr, false));
        if (params.message_bytes == 0)
            params.message_bytes = kMessageBytes;
        EXPECT_EQ(UCS_OK, queue.open(*md, params, released, this));
        sender = std::make_unique<Sender>(*md, queue.srq(), cq.get());
    }
    /// The next message, held; null when none comes.
    std::byte* next(int steps_max = kStepsMax) {
        for (int i = 0; left_ == 0 && i != steps_max; ++i) {
            sender->progress();
            left_ = cq.poll(&batch_);
        }
        if (left_ == 0)
            return nullptr;
        --left_;
        const ib::Completion& completion = *batch_++;
        EXPECT_EQ(IBV_WC_SUCCESS, completion.status);
        queue.consumed();
        bytes = completion.byte_len;
        return queue.message(completion.wr_id);
    }
    [[nodiscard]] bool has(const std::byte* message, unsigned seed) const {
        for (std::size_t i = 1; i != bytes; ++i)
            if (message[i] != pattern(i, seed))
                return false;
        return true;
    }

    VhcaMd md;
    ib::CompletionQueue cq;
    ib::ReceiveQueue queue;
    std::unique_ptr<Sender> sender;
    std::size_t bytes = 0;  // of the newest message
    std::vector<std::uint64_t> owners;

  private:
    static void released(void* arg, std::uint64_t owner) {
        static_cast<Receiver*>(arg)->owners.push_back(owner);
    }

    const ib::Completion* batch_ = nullptr;
    unsigned left_ = 0;
};

bool is_mapped(void* address) {
    auto* page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) & ~4095UL);
    return ::msync(page, 1, MS_ASYNC) == 0 || errno != ENOMEM;
}

TEST(ReceiveQueue, all_buffers_are_posted_and_come_back_in_batches) {
    Receiver receiver({.depth = 256});
    EXPECT_EQ(256U, receiver.queue.posted());
    for (unsigned i = 0; i != 1000; ++i) {
        receiver.sender->send_no_tag(100, i);
        std::byte* message = receiver.next();
        ASSERT_NE(nullptr, message);
        ASSERT_TRUE(receiver.has(message, i));
        receiver.queue.put_back(message);
        ASSERT_EQ(UCS_OK, receiver.queue.refill());
        EXPECT_EQ(256 - (i + 1) % 64, receiver.queue.posted());
    }
    EXPECT_EQ(UCS_OK, receiver.queue.refill(true));
    EXPECT_EQ(256U, receiver.queue.posted());
}

TEST(ReceiveQueue, a_short_queue_never_runs_dry_for_the_sake_of_a_batch) {
    for (const unsigned depth : {1U, 2U, 3U, 4U, 7U, 63U, 65U}) {
        SCOPED_TRACE(depth);
        Receiver receiver({.depth = depth});
        for (unsigned i = 0; i != 300; ++i) {
            receiver.sender->send_no_tag(i % 900 + 16, i);
            std::byte* message = receiver.next();
            ASSERT_NE(nullptr, message);
            ASSERT_TRUE(receiver.has(message, i));
            receiver.queue.put_back(message);
            ASSERT_EQ(UCS_OK, receiver.queue.refill());
            ASSERT_GT(2 * receiver.queue.posted(), depth - depth % 2);
        }
    }
}

TEST(ReceiveQueue, twice_as_many_are_wanted_within_the_depth_however_often_it_is_asked) {
    Receiver receiver({.depth = 100, .wanted = 10});
    ASSERT_EQ(UCS_OK, receiver.queue.want_twice());
    EXPECT_EQ(20U, receiver.queue.wanted());
    for (int i = 0; i < 1000; ++i)
        ASSERT_EQ(UCS_OK, receiver.queue.want_twice());
    EXPECT_EQ(100U, receiver.queue.wanted());
    receiver.queue.want_less(90);  // nobody asked for more than the depth
    EXPECT_EQ(10U, receiver.queue.wanted());
}

TEST(ReceiveQueue, as_many_are_posted_as_are_wanted_and_fit) {
    Receiver receiver({.depth = 100, .wanted = 10});
    EXPECT_EQ(10U, receiver.queue.posted());
    ASSERT_EQ(UCS_OK, receiver.queue.want(25));
    EXPECT_EQ(35U, receiver.queue.posted());
    ASSERT_EQ(UCS_OK, receiver.queue.want(200));
    EXPECT_EQ(100U, receiver.queue.wanted());
    EXPECT_EQ(100U, receiver.queue.posted());
    // Buffers that are no longer wanted are not posted again, and the rest goes on.
    receiver.queue.want_less(200);
    EXPECT_EQ(35U, receiver.queue.wanted());
    for (unsigned i = 0; i != 300; ++i) {
        receiver.sender->send_no_tag(100, i);
        std::byte* message = receiver.next();
        ASSERT_NE(nullptr, message);
        ASSERT_TRUE(receiver.has(message, i));
        receiver.queue.put_back(message);
        ASSERT_EQ(UCS_OK, receiver.queue.refill(true));
        EXPECT_EQ(i < 65 ? 99 - i : 35U, receiver.queue.posted());
    }
}

TEST(ReceiveQueue, data_is_aligned_and_headroom_belongs_to_the_user) {
    for (const std::size_t alignment : {1U, 8U, 64U, 512U, 4096U}) {
        for (const std::size_t offset : {std::size_t{0}, alignment / 2, alignment - 1}) {
            for (const std::size_t headroom : {0U, 7U, 64U, 4096U}) {
                SCOPED_TRACE(testing::Message() << alignment << ", " << offset << ", " << headroom);
                Receiver receiver({.depth = 3,
                                   .buffers_max = 5,
                                   .headroom = headroom,
                                   .alignment = alignment,
                                   .align_offset = offset});
                std::vector<std::byte*> kept;
                for (unsigned i = 0; i != 5; ++i) {
                    receiver.sender->send_no_tag(kMessageBytes, i);
                    std::byte* message = receiver.next();
                    ASSERT_NE(nullptr, message);
                    std::byte* data = message + ib::kPrefixBytes;
                    ASSERT_EQ(0U, (reinterpret_cast<std::uintptr_t>(data) + offset) % alignment);
                    std::memset(data - headroom, 0xee, headroom);
                    receiver.queue.keep(message, i);
                    kept.push_back(data);
                    ASSERT_EQ(UCS_OK, receiver.queue.refill());
                }
                for (unsigned i = 0; i != 5; ++i) {
                    for (std::size_t at = ib::kPrefixBytes; at != kMessageBytes; ++at)
                        ASSERT_EQ(pattern(at, i), kept[i][at - ib::kPrefixBytes]) << at;
                    uct_iface_release_desc(kept[i] - headroom);
                }
                EXPECT_EQ((std::vector<std::uint64_t>{0, 1, 2, 3, 4}), receiver.owners);
            }
        }
    }
}

TEST(ReceiveQueue, any_address_in_a_slot_gives_it_back) {
    Receiver receiver({.depth = 4, .headroom = 100});
    for (const std::ptrdiff_t at : {-100, -1, 0, 8, 16, 999}) {
        receiver.sender->send_no_tag(100, 1);
        std::byte* message = receiver.next();
        ASSERT_NE(nullptr, message);
        receiver.queue.keep(message, 7);
        EXPECT_EQ(1U, receiver.queue.kept());
        uct_iface_release_desc(message + at);
        EXPECT_EQ(0U, receiver.queue.kept());
        ASSERT_EQ(UCS_OK, receiver.queue.refill(true));
        EXPECT_EQ(4U, receiver.queue.posted());
    }
    EXPECT_EQ(6U, receiver.owners.size());
}

TEST(ReceiveQueue, who_keeps_everything_stops_the_sender_until_a_release) {
    Receiver receiver({.depth = 8, .buffers_max = 20});
    std::vector<std::byte*> kept;
    for (unsigned i = 0; i != 20; ++i) {
        receiver.sender->send_no_tag(100, i);
        std::byte* message = receiver.next();
        ASSERT_NE(nullptr, message) << i;
        receiver.queue.keep(message, i);
        kept.push_back(message);
        ASSERT_EQ(UCS_OK, receiver.queue.refill(true));
    }
    EXPECT_EQ(0U, receiver.queue.posted());
    receiver.sender->send_no_tag(100, 20);
    EXPECT_EQ(nullptr, receiver.next(1000));
    EXPECT_EQ(UCS_OK, receiver.queue.refill());
    uct_iface_release_desc(kept[3]);
    ASSERT_EQ(UCS_OK, receiver.queue.refill(true));
    std::byte* message = receiver.next();
    ASSERT_EQ(kept[3], message);
    EXPECT_TRUE(receiver.has(message, 20));
    receiver.queue.put_back(message);
    for (unsigned i = 0; i != 20; ++i)
        if (i != 3)
            uct_iface_release_desc(kept[i]);
    ASSERT_EQ(UCS_OK, receiver.queue.refill());
    EXPECT_EQ(8U, receiver.queue.posted());
    EXPECT_EQ(20U, receiver.owners.size());
}

TEST(ReceiveQueue, kept_slots_stay_readable_after_the_queue_closed) {
    Receiver receiver({.depth = 4, .buffers_max = 12});
    std::vector<std::byte*> kept;
    for (unsigned i = 0; i != 10; ++i) {
        receiver.sender->send_no_tag(500, i);
        std::byte* message = receiver.next();
        ASSERT_NE(nullptr, message);
        receiver.queue.keep(message, i);
        kept.push_back(message);
        ASSERT_EQ(UCS_OK, receiver.queue.refill(true));
    }
    uct_iface_release_desc(kept[0]);
    receiver.sender.reset();
    receiver.queue.close();
    receiver.queue.close();
    EXPECT_EQ(1U, receiver.owners.size());
    for (unsigned i = 1; i != 10; ++i) {
        ASSERT_TRUE(receiver.has(kept[i], i));
        uct_iface_release_desc(kept[i]);
    }
    EXPECT_EQ(1U, receiver.owners.size()) << "nobody is told after the end";
    for (std::byte* message : kept)
        EXPECT_FALSE(is_mapped(message)) << "memory of a closed queue that nobody holds";
}

TEST(ReceiveQueue, many_long_buffers_need_more_than_one_region) {
    constexpr std::size_t kLong = 1 << 20;
    Receiver receiver({.depth = 100, .message_bytes = kLong});
    std::set<std::uintptr_t> regions;
    for (unsigned i = 0; i != 100; ++i) {
        receiver.sender->send_no_tag(64, i);
        std::byte* message = receiver.next();
        ASSERT_NE(nullptr, message);
        ASSERT_TRUE(receiver.has(message, i));
        regions.insert(reinterpret_cast<std::uintptr_t>(uct::desc_region_of(message)));
        receiver.queue.put_back(message);
    }
    EXPECT_EQ(2U, regions.size());
    ASSERT_EQ(UCS_OK, receiver.queue.refill(true));
    EXPECT_EQ(100U, receiver.queue.posted());
}

TEST(ReceiveQueue, random_keeping_and_releasing_loses_nothing) {
    Receiver receiver({.depth = 16, .buffers_max = 50, .headroom = 40});
    std::mt19937 random(1);
    std::vector<std::pair<std::byte*, unsigned>> kept;
    unsigned got = 0;
    for (unsigned sent = 0; got != 3000;) {
        if (sent != 3000 && !receiver.sender->is_full())
            receiver.sender->send_no_tag(16 + sent % 900, sent), ++sent;
        if (std::byte* message = receiver.next(3); message != nullptr) {
            ASSERT_TRUE(receiver.has(message, got));
            if (random() % 2 == 0) {
                receiver.queue.keep(message, got);
                kept.emplace_back(message, got);
            } else {
                receiver.queue.put_back(message);
            }
            ++got;
        }
        while (!kept.empty() && (random() % 3 == 0 || kept.size() == 50)) {
            std::swap(kept[random() % kept.size()], kept.back());
            uct_iface_release_desc(kept.back().first);
            ASSERT_EQ(kept.back().second, receiver.owners.back());
            kept.pop_back();
        }
        ASSERT_EQ(UCS_OK, receiver.queue.refill(kept.size() > 34));
    }
    for (const auto& [message, number] : kept)
        uct_iface_release_desc(message);
    ASSERT_EQ(UCS_OK, receiver.queue.refill(true));
    EXPECT_EQ(16U, receiver.queue.posted());
    EXPECT_EQ(0U, receiver.queue.kept());
}

bool has_event(const ib::IbMd& md) {
    ibv_context* context = md.device().context();
    pollfd fd{context->async_fd, POLLIN, 0};
    return ::poll(&fd, 1, 0) == 1;
}

TEST(ReceiveQueue, the_limit_event_comes_once_until_it_is_armed_again) {
    Receiver receiver({.depth = 8, .limit = 3});
    for (int round = 0; round != 3; ++round) {
        for (unsigned i = 0; i != 6; ++i) {
            EXPECT_FALSE(has_event(*receiver.md)) << i;
            receiver.sender->send_no_tag(64, i);
            std::byte* message = receiver.next();
            ASSERT_NE(nullptr, message);
            receiver.queue.put_back(message);
        }
        ASSERT_TRUE(has_event(*receiver.md));
        ibv_async_event event{};
        ASSERT_EQ(0, receiver.md->verbs().get_async_event(receiver.md->device().context(), &event));
        EXPECT_EQ(IBV_EVENT_SRQ_LIMIT_REACHED, event.event_type);
        EXPECT_EQ(receiver.queue.srq(), event.element.srq);
        receiver.md->verbs().ack_async_event(&event);
        ASSERT_EQ(UCS_OK, receiver.queue.refill(true));
        receiver.queue.arm_limit();
    }
}

// The device would tell it at once, and again each time: nobody could sleep.
TEST(ReceiveQueue, the_limit_is_armed_again_only_when_more_are_posted) {
    Receiver receiver({.depth = 8, .limit = 3});
    const auto take_event = [&] {
        ibv_async_event event{};
        ASSERT_EQ(0, receiver.md->verbs().get_async_event(receiver.md->device().context(), &event));
        receiver.md->verbs().ack_async_event(&event);
    };
    const auto use = [&](unsigned count) {
        for (unsigned i = 0; i != count; ++i) {
            receiver.sender->send_no_tag(64, i);
            std::byte* message = receiver.next();
            ASSERT_NE(nullptr, message);
            receiver.queue.put_back(message);
        }
    };
    use(6);
    ASSERT_TRUE(has_event(*receiver.md));
    take_event();
    receiver.queue.arm_limit();  // two are posted
    EXPECT_FALSE(has_event(*receiver.md));
    ASSERT_EQ(UCS_OK, receiver.queue.refill(true));
    EXPECT_FALSE(has_event(*receiver.md));
    use(6);
    EXPECT_TRUE(has_event(*receiver.md)) << "it is armed again";
    take_event();
}

TEST(ReceiveQueue, what_the_device_does_not_have_is_refused) {
    const VhcaMd md;
    const auto open = [&](const ib::ReceiveQueueParams& params) {
        ib::ReceiveQueue queue;
        return queue.open(
            *md, params, [](void*, std::uint64_t) {}, nullptr);
    };
    const auto wr_max = static_cast<unsigned>(md->device().attr().orig_attr.max_srq_wr);
    EXPECT_EQ(UCS_ERR_EXCEEDS_LIMIT, open({.depth = wr_max + 1, .message_bytes = 64}));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, open({.depth = 0, .message_bytes = 64}));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, open({.depth = 4, .message_bytes = 8}));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              open({.depth = 4, .message_bytes = uct::kDescRegionBytes - 4096}));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, open({.depth = 4, .message_bytes = 64, .tags = 1}))
        << "no completion queue";
    ib::CompletionQueue cq;
    ASSERT_EQ(UCS_OK, cq.open(*md, 64, nullptr, true));
    const ibv_tm_caps& caps = md->device().attr().tm_caps;
    EXPECT_EQ(UCS_ERR_EXCEEDS_LIMIT, open({.depth = 4,
                                           .message_bytes = 64,
                                           .tags = caps.max_num_tags + 1,
                                           .tag_ops = 4,
                                           .cq = cq.get()}));
    EXPECT_EQ(UCS_ERR_EXCEEDS_LIMIT, open({.depth = 4,
                                           .message_bytes = 64,
                                           .tags = 1,
                                           .tag_ops = caps.max_ops + 1,
                                           .cq = cq.get()}));
    EXPECT_EQ(UCS_OK, open({.depth = 4,
                            .message_bytes = 64,
                            .tags = caps.max_num_tags,
                            .tag_ops = caps.max_ops,
                            .cq = cq.get()}));
}

}  // namespace
}  // namespace tagwire::test
