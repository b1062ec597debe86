// SPDX-License-Identifier: BSD-3-Clause
// Seeded random posts, cancels and messages of two senders, against a naive list that follows the
// order of the completions.
#include <algorithm>
#include <cstring>
#include <deque>
#include <random>

#include "common/seeds.hpp"
#include "ib/tag_receiver.hpp"

namespace tagwire::test {
namespace {

using Kind = ib::TagEvent::Kind;

constexpr unsigned kTags = 6;      // in the list
constexpr unsigned kPlaces = 200;  // so that a buffer is not used again while it may be written
constexpr std::size_t kSmall = 64, kMiddle = 3000, kLong = 12000;
constexpr std::uint64_t kWild = 0xf0;  // a mask
constexpr unsigned kSourceSeed = 5;

struct ModelReceive : TagReceive {
    std::size_t place = 0;
    std::uint64_t wanted = 0, mask = 0;
    std::size_t bytes = 0;
    bool is_active = false;  // for sure: acknowledged and in step
    bool is_cancelled = false;
    bool is_forced = false;

    [[nodiscard]] bool matches(std::uint64_t tag) const { return (tag & mask) == (wanted & mask); }
};

struct ModelMessage {
    unsigned sender = 0;
    std::uint64_t tag = 0;
    std::size_t bytes = 0;
    bool is_rendezvous = false;
    bool is_seen = false;
};

class Model {
  public:
    explicit Model(std::uint64_t seed)
        : random_(seed),
          is_expected_(pick(2) == 0),
          pair_({.tags = kTags,
                 .ops = pick(2) == 0 ? 2 + pick(2 * kTags) : ib::TagList::ops_for(kTags),
                 .depth = 64,
                 .buffers = kPlaces}),
          second_(*pair_.md, pair_.receiver.queue.srq(), pair_.receiver.cq.get()),
          source_(*pair_.md, kLong) {
        source_.fill(0, kLong, kSourceSeed);
        pair_.receiver.on_completion = [this](const auto& completion) { look_at(completion); };
        pair_.receiver.on_event = [this](const auto& event) { look_at(event); };
        pair_.receiver.on_unexpected = [this](const auto& message) { look_at(message); };
    }

    void run(unsigned steps) {
        for (unsigned i = 0; i != steps && !testing::Test::HasFailure(); ++i)
            step();
        if (!testing::Test::HasFailure())
            finish();
    }

  private:
    std::uint32_t pick(std::uint32_t below) {
        return std::uniform_int_distribution<std::uint32_t>(0, below - 1)(random_);
    }
    std::uint64_t pick_tag() { return pick(4) * 16 + pick(2); }
    std::uint64_t pick_wanted_tag() {
        if (!is_expected_ || live_.empty() || pick(32) == 0)
            return pick_tag();
        return live_[pick(static_cast<std::uint32_t>(live_.size()))]->wanted;
    }

    void step() {
        switch (pick(8)) {
            case 0:
            case 1:
                post();
                break;
            case 2:
                cancel();
                break;
            case 3:
            case 4:
                send(pick(2), pick_wanted_tag(), pick(4) == 0);
                break;
            case 5:
                (pick(2) == 0 ? pair_.sender : second_).progress();
                break;
            default:
                pair_.receiver.step();
        }
        std::erase_if(live_, [](const ModelReceive* receive) {
            return receive->ended != 0 || receive->is_forced;
        });
    }

    void post() {
        ModelReceive& receive = receives_.emplace_back();
        receive.place = receives_.size() % kPlaces;
        receive.mask = pick(4) == 0 ? kWild : ~std::uint64_t{0};
        receive.wanted = pick_tag();
        // All eager messages fit, not all rendezvous.
        receive.bytes = pick(2) == 0 ? kMiddle : kLong;
        const bool is_full = pair_.receiver.list.size() == kTags;
        const unsigned ops_left = pair_.receiver.list.ops_left();
        const ucs_status_t status = pair_.receiver.post(receive, receive.wanted, receive.place,
                                                        receive.bytes, receive.mask);
        if (status == UCS_OK) {
            ASSERT_FALSE(is_full);
            ASSERT_GE(ops_left, 2U);
            live_.push_back(&receive);
        } else {
            ASSERT_EQ(is_full ? UCS_ERR_EXCEEDS_LIMIT : UCS_ERR_NO_RESOURCE, status);
            ASSERT_TRUE(is_full || ops_left < 2);
            receives_.pop_back();
        }
    }

    void cancel() {
        if (live_.empty())
            return;
        ModelReceive& receive = *live_[pick(static_cast<std::uint32_t>(live_.size()))];
        const bool forced = pick(2) == 0;
        const ucs_status_t status = pair_.receiver.list.cancel(&receive, forced);
        const bool is_busy = forced && status == UCS_ERR_BUSY;  // and ends as if not forced
        ASSERT_TRUE(status == UCS_OK || status == UCS_ERR_NO_RESOURCE || is_busy) << status;
        receive.is_cancelled = receive.is_cancelled || status == UCS_OK || is_busy;
        receive.is_forced = status == UCS_OK && forced;
    }

    void send(unsigned sender, std::uint64_t tag, bool is_rendezvous) {
        Sender& from = sender == 0 ? pair_.sender : second_;
        if (from.is_full())
            return;
        const auto number = static_cast<std::uint32_t>(messages_.size());
        const std::size_t bytes = pick(2) == 0 ? kMiddle : is_rendezvous ? kLong : kSmall;
        messages_.push_back({sender, tag, bytes, is_rendezvous});
        const Sender::Tagged header{.tag = tag, .app_ctx = number};
        if (is_rendezvous)
            from.send_rendezvous(header, source_, bytes, source_.rkey());
        else
            from.send_eager(header, bytes, number);
    }

    // ---- Completions and messages
    static bool is_add_of(const ib::Completion& completion, const ModelReceive& receive) {
        // The index, and the generation that stands above it in a wr_id.
        std::uint64_t ticket = 0;
        std::memcpy(&ticket, receive.priv, sizeof ticket);
        return (completion.wr_id & ~(std::uint64_t{7} << 60)) == ticket;
    }

    void look_at(const ib::Completion& completion) {
        if (completion.opcode == IBV_WC_TM_ADD) {
            if ((completion.flags & IBV_WC_TM_SYNC_REQ) == 0)
                note_active(completion);
        } else if ((completion.flags & IBV_WC_TM_MATCH) != 0) {
            see(completion.app_ctx);
        }
    }

    /// All receives posted up to the acknowledged one are active.
    void note_active(const ib::Completion& completion) {
        for (auto at = receives_.rbegin(); at != receives_.rend(); ++at) {
            if (is_add_of(completion, *at)) {
                for (; at != receives_.rend(); ++at)
                    at->is_active = true;
                return;
            }
        }
        ADD_FAILURE() << "an acknowledgement of nothing";
    }

    void look_at(const Unexpected& message) {
        see(message.app_ctx);
        for (const ModelReceive* receive : live_) {
            ASSERT_FALSE(receive->matches(message.tag) && receive->is_active &&
                         !receive->is_cancelled && receive->consumed == 0)
                << "message " << message.app_ctx << " did not go to a receive that it matches";
        }
    }

    /// The first news of a message.
    void see(std::uint32_t number) {
        ASSERT_LT(number, messages_.size());
        ModelMessage& message = messages_[number];
        ASSERT_FALSE(message.is_seen) << "message " << number << " came twice";
        message.is_seen = true;
        for (std::uint32_t i = 0; i != number; ++i) {
            ASSERT_TRUE(messages_[i].is_seen || messages_[i].sender != message.sender)
                << "message " << number << " overtook " << i;
        }
    }

    void look_at(const ib::TagEvent& event) {
        const auto& receive = static_cast<ModelReceive&>(*event.entry->ctx);
        ASSERT_FALSE(receive.is_forced);
        ASSERT_EQ(0, receive.ended);
        if (event.kind == Kind::kCanceled) {
            ASSERT_TRUE(receive.is_cancelled);
            ASSERT_EQ(0, receive.consumed);
            return;
        }
        const ModelMessage& message = messages_[event.entry->app_ctx];
        if (event.was_consumed_now)
            check_match(receive, message);
        if (event.kind == Kind::kIncomplete) {
            ASSERT_GT(message.bytes, receive.bytes);
        } else if (event.kind != Kind::kConsumed) {
            ASSERT_EQ(Kind::kArrived, event.kind);
            ASSERT_EQ(message.bytes, event.entry->byte_len);
            ASSERT_TRUE(pair_.receiver.memory.has(
                receive.place * TagReceiver::kBufferBytes, message.bytes,
                message.is_rendezvous ? kSourceSeed : event.entry->app_ctx));
        }
    }

    void check_match(const ModelReceive& receive, const ModelMessage& message) {
        ASSERT_TRUE(receive.matches(message.tag));
        ASSERT_EQ(0, receive.consumed);
        for (const ModelReceive* other : live_) {
            if (other == &receive)
                break;
            ASSERT_TRUE(!other->matches(message.tag) || other->is_cancelled || other->consumed != 0)
                << "an earlier receive was passed over";
        }
    }

    // ---- The end
    /// Nothing is under way, and whoever is in the list waits for a message.
    [[nodiscard]] bool is_settled() const {
        std::size_t waiting = 0;
        for (const ModelReceive* receive : live_) {
            if (receive->ended == 0 && (receive->consumed != 0 || receive->is_cancelled))
                return false;
            waiting += receive->ended == 0 ? 1U : 0U;
        }
        return pair_.sender.is_idle() && second_.is_idle() &&
               pair_.receiver.list.size() == waiting &&
               std::ranges::all_of(messages_, [](const auto& message) { return message.is_seen; });
    }

    bool settle() {
        for (int i = 0; i != kStepsMax && !testing::Test::HasFailure(); ++i) {
            pair_.sender.progress();
            second_.progress();
            if (!pair_.receiver.step() && is_settled())
                return true;
        }
        return false;
    }

    void finish() {
        ASSERT_TRUE(settle());
        pair_.receiver.progress();
        // Whoever is left matches what comes, the oldest first.
        for (const ModelReceive* receive : live_) {
            if (receive->ended == 0) {
                send(0, receive->wanted, false);
                ASSERT_TRUE(settle());
                ASSERT_EQ(1, receive->ended);
            }
        }
        ASSERT_EQ(0U, pair_.receiver.list.size());
        ASSERT_EQ(0U, pair_.receiver.list.totals().strays);
        for (const ModelReceive& receive : receives_)
            ASSERT_EQ(receive.is_forced ? 0 : 1, receive.ended);
    }

    std::mt19937_64 random_;
    bool is_expected_;  // most messages are: then few receives ask for acknowledgement
    TagPair pair_;
    Sender second_;
    Memory source_;
    std::deque<ModelMessage> messages_;
    std::deque<ModelReceive> receives_;  // all of them, where they are
    std::vector<ModelReceive*> live_;    // in the list, in order
};

TEST(TagListModel, random_posts_cancels_and_messages_agree_with_a_naive_list) {
    for_each_seed(60, [](std::uint64_t seed) { Model(seed).run(1500); });
}

}  // namespace
}  // namespace tagwire::test
