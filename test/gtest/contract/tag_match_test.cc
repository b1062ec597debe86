// SPDX-License-Identifier: BSD-3-Clause
#include <deque>
#include <random>

#include "fixture.hpp"

namespace tagwire::test {
namespace {

TW_CONTRACT(TagMatch);

class Poster {
  public:
    explicit Poster(Entity& entity) : entity_(entity) {}

    Receive& post(uct_tag_t tag, uct_tag_t mask = kExact) {
        receives_.push_back(
            std::make_unique<Receive>(entity_, entity_.attr().cap.tag.recv.min_recv));
        EXPECT_EQ(UCS_OK, receives_.back()->post(tag, mask));
        return *receives_.back();
    }
    ~Poster() {
        for (const auto& receive : receives_)
            if (receive->endings() == 0)
                receive->cancel(true);
    }

  private:
    Entity& entity_;
    std::vector<std::unique_ptr<Receive>> receives_;
};

#define TW_SEND_TAG(tag) \
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_tag_eager_short(ep(), (tag), nullptr, 0); }))

TEST_P(TagMatch, another_tag_is_unexpected_and_the_receive_stays) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    Poster poster(receiver());
    const Receive& receive = poster.post(7);
    TW_SEND_TAG(8);
    ASSERT_TRUE(until([&] { return receiver().eager.size() == 1; }));
    EXPECT_EQ(0, receive.endings());
    TW_SEND_TAG(7);
    ASSERT_TRUE(until([&] { return receive.completed == 1; }));
    EXPECT_EQ(1u, receiver().eager.size());
}

TEST_P(TagMatch, tags_differ_in_every_single_bit) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    Poster poster(receiver());
    const Receive& receive = poster.post(0);
    for (int bit = 0; bit < 64; ++bit)
        TW_SEND_TAG(uct_tag_t{1} << bit);
    ASSERT_TRUE(until([&] { return receiver().eager.size() == 64; }));
    EXPECT_EQ(0, receive.endings());
    TW_SEND_TAG(0);
    EXPECT_TRUE(until([&] { return receive.completed == 1; }));
}

TEST_P(TagMatch, only_masked_bits_count_in_the_message_and_in_the_posting) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    struct Row {
        uct_tag_t tag, mask, sent;
        bool matches;
    };
    const Row table[] = {
        {0x1234, 0xff00, 0x1299, true},
        {0x1234, 0xff00, 0x1334, false},
        {0x1234, 0, 0xdeadbeef, true},
        {0xffff, 0xf0, 0xf0, true},
        {0xffff, 0xf0, 0x0f, false},
        {kExact, kExact, kExact, true},
        {1ull << 63, 1ull << 63, kExact, true},
        {1ull << 63, 1ull << 63, kExact >> 1, false},
    };
    for (const Row& row : table) {
        SCOPED_TRACE(::testing::Message()
                     << std::hex << row.tag << "/" << row.mask << " " << row.sent);
        drain(100);  // the place of the receive before
        receiver().eager.clear();
        Poster poster(receiver());
        const Receive& receive = poster.post(row.tag, row.mask);
        TW_SEND_TAG(row.sent);
        ASSERT_TRUE(until([&] { return receive.completed > 0 || !receiver().eager.empty(); }));
        EXPECT_EQ(row.matches ? 1 : 0, receive.completed);
        if (row.matches) {
            EXPECT_EQ(row.sent, receive.sender_tag);
        }
    }
}

TEST_P(TagMatch, the_earliest_posted_receive_wins) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    TW_NEED_RECEIVES(5);
    Poster poster(receiver());
    const Receive* in_order[] = {&poster.post(5), &poster.post(5, 0), &poster.post(5),
                                 &poster.post(5, 0xf), &poster.post(5)};
    for (const Receive* next : in_order) {
        EXPECT_EQ(0, next->endings());
        TW_SEND_TAG(5);
        ASSERT_TRUE(until([&] { return next->completed == 1; }));
    }
}

TEST_P(TagMatch, a_wildcard_between_exact_receives_keeps_its_place) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    TW_NEED_RECEIVES(3);
    Poster poster(receiver());
    const Receive& exact9 = poster.post(9);
    const Receive& any = poster.post(0, 0);
    const Receive& exact5 = poster.post(5);
    TW_SEND_TAG(5);  // the wildcard is older than the exact one
    ASSERT_TRUE(until([&] { return any.completed + exact5.completed > 0; }));
    EXPECT_EQ(1, any.completed);
    TW_SEND_TAG(5);
    ASSERT_TRUE(until([&] { return exact5.completed == 1; }));
    TW_SEND_TAG(9);
    ASSERT_TRUE(until([&] { return exact9.completed == 1; }));
}

// Against the definition: a list searched from its oldest entry.
TEST_P(TagMatch, random_postings_and_messages_agree_with_a_plain_list) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_BCOPY);
    const char* given = std::getenv("TAGWIRE_TEST_SEED");
    const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 0) : 2024;
    SCOPED_TRACE("replay with TAGWIRE_TEST_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    const uct_tag_t masks[] = {kExact, kExact, kExact, 0xff, 0xff00, 0, 0xffff0000ffff0000};

    struct Posted {
        uct_tag_t tag, mask;
        std::unique_ptr<Receive> receive;
    };
    const std::size_t posted_max = std::min<std::size_t>(attr().cap.tag.recv.max_outstanding, 500);
    std::deque<Posted> posted;
    std::vector<std::unique_ptr<Receive>> done;
    for (int round = 0; round < 4000; ++round) {
        if (random() % 100 < 52 && posted.size() < posted_max) {
            auto receive = std::make_unique<Receive>(receiver(), attr().cap.tag.recv.min_recv + 8);
            const uct_tag_t tag = random() % 16 | (random() % 4) << 8;
            const uct_tag_t mask = masks[random() % std::size(masks)];
            ASSERT_EQ(UCS_OK, receive->post(tag, mask));
            posted.push_back({tag, mask, std::move(receive)});
        } else {
            const uct_tag_t tag = random() % 16 | (random() % 4) << 8;
            const auto match = std::find_if(posted.begin(), posted.end(), [&](const Posted& entry) {
                return ((entry.tag ^ tag) & entry.mask) == 0;
            });
            const std::size_t unexpected = receiver().eager.size();
            const Bytes payload = pattern(8, static_cast<std::uint64_t>(round));
            ASSERT_EQ(UCS_OK, retry([&] { return send_eager_bytes(ep(), tag, 1, payload); }));
            if (match == posted.end()) {
                ASSERT_TRUE(until([&] { return receiver().eager.size() == unexpected + 1; }));
            } else {
                ASSERT_TRUE(until([&] { return match->receive->completed == 1; }))
                    << "round " << round;
                ASSERT_EQ(tag, match->receive->sender_tag);
                ASSERT_EQ(unexpected, receiver().eager.size());
                done.push_back(std::move(match->receive));
                posted.erase(match);
            }
        }
    }
    for (auto& entry : posted) {
        ASSERT_EQ(0, entry.receive->endings());
        entry.receive->cancel(true);
    }
    for (const auto& receive : done)
        ASSERT_EQ(1, receive->completed);
    drain();
}

TEST_P(TagMatch, receives_on_one_interface_match_messages_of_every_peer) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    TW_NEED_RECEIVES(2);
    Entity& other = add_entity();
    uct_ep_h other_ep = connect_more(other, receiver());
    Poster poster(receiver());
    const Receive& first = poster.post(0, 0);
    const Receive& second = poster.post(0, 0);
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_tag_eager_short(other_ep, 1, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return first.completed == 1; }));
    TW_SEND_TAG(2);
    ASSERT_TRUE(until([&] { return second.completed == 1; }));
    EXPECT_EQ(1u, first.sender_tag);
    EXPECT_EQ(2u, second.sender_tag);
}

TEST_P(TagMatch, a_full_list_answers_exceeds_limit_and_takes_again_after_a_match) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    const std::string knob = knobs_of(GetParam().resource).posted_receives_max;
    if (knob.empty())
        GTEST_SKIP() << "the depth of the list is not an option of this transport";
    EntityOptions options;
    options.iface_config = {{knob, "16"}};
    reopen(options);
    ASSERT_EQ(16u, attr().cap.tag.recv.max_outstanding);
    Poster poster(receiver());
    for (uct_tag_t tag = 0; tag < 16; ++tag)
        poster.post(tag);
    Receive extra(receiver(), attr().cap.tag.recv.min_recv);
    ASSERT_EQ(UCS_ERR_EXCEEDS_LIMIT, extra.post(100));
    ASSERT_EQ(UCS_ERR_EXCEEDS_LIMIT, extra.post(100));
    TW_SEND_TAG(3);
    drain();
    ASSERT_EQ(UCS_OK, extra.post(100));
    TW_SEND_TAG(100);
    EXPECT_TRUE(until([&] { return extra.completed == 1; }));
}

TEST_P(TagMatch, many_receives_posted_in_any_order_each_get_their_message) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    const std::size_t count = std::min<std::size_t>(attr().cap.tag.recv.max_outstanding, 3000);
    std::vector<uct_tag_t> order(count);
    for (std::size_t i = 0; i < count; ++i)
        order[i] = i * 0x100000001;
    Poster poster(receiver());
    std::vector<const Receive*> receives;
    for (const uct_tag_t tag : order)
        receives.push_back(&poster.post(tag));
    std::mt19937_64 random(5);
    std::shuffle(order.begin(), order.end(), random);
    for (const uct_tag_t tag : order)
        TW_SEND_TAG(tag);
    ASSERT_TRUE(until([&] {
        return std::all_of(receives.begin(), receives.end(),
                           [](const Receive* receive) { return receive->completed == 1; });
    }));
    for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(i * 0x100000001, receives[i]->sender_tag);
    EXPECT_TRUE(receiver().eager.empty());
}

}  // namespace
}  // namespace tagwire::test
