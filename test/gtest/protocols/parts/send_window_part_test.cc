// SPDX-License-Identifier: BSD-3-Clause
// The window of a sender, alone.
#include <cstdint>
#include <random>

#include <gtest/gtest.h>

#include "common/seeds.hpp"
#include "protocols/parts/fakes.hpp"
#include "protocols/transfer/send_window.hpp"
#include "protocols/wire/control_message.hpp"
#include "protocols/wire/limits.hpp"

namespace tagwire::test {
namespace {

using proto::kMessageBytes;
using proto::kWindowBytes;
using proto::Probe;

class WindowPart : public testing::Test {
  protected:
    WindowPart() {
        lane_.on_update = [this] { seen_open_ = window_.is_open(); };
    }
    /// A message that counts as `bytes`.
    void send(std::uint64_t bytes) { window_.add_message(bytes - kMessageBytes); }

    FakeLane lane_;
    proto::SendWindow window_{lane_.port};
    bool seen_open_ = true;  // by the fast path
};

TEST_F(WindowPart, is_open_up_to_its_last_byte) {
    send(kWindowBytes);
    EXPECT_TRUE(window_.is_open());
    EXPECT_TRUE(seen_open_);
    send(kMessageBytes);
    EXPECT_FALSE(window_.is_open());
    EXPECT_FALSE(seen_open_);
}

TEST_F(WindowPart, probes_once_when_half_of_it_is_sent) {
    send(kWindowBytes / 2 - 1);
    EXPECT_EQ(lane_.added.count<Probe>(), 0U);
    window_.add_message(0);
    EXPECT_EQ(lane_.added.count<Probe>(), 1U);
    send(kWindowBytes);
    EXPECT_EQ(lane_.added.size(), 1U);
    EXPECT_TRUE(lane_.sent.empty());  // a send may have brought it about: nothing sends inside that
}

TEST_F(WindowPart, a_reply_opens_it_by_what_was_sent_before_the_probe) {
    send(kWindowBytes / 2);
    send(kWindowBytes / 2 + 1);
    ASSERT_FALSE(window_.is_open());
    EXPECT_TRUE(window_.on_probed());
    EXPECT_TRUE(window_.is_open());
    EXPECT_TRUE(seen_open_);
    // The rest is more than half, so that the next one is asked for at once.
    EXPECT_EQ(lane_.added.count<Probe>(), 2U);
    send(kWindowBytes / 2);
    EXPECT_FALSE(window_.is_open());
}

TEST_F(WindowPart, a_reply_that_was_not_asked_for_is_refused) {
    EXPECT_FALSE(window_.on_probed());
    send(kWindowBytes / 2);
    EXPECT_TRUE(window_.on_probed());
    EXPECT_FALSE(window_.on_probed());
    send(kWindowBytes);
    EXPECT_TRUE(window_.is_open());
    send(kMessageBytes);
    EXPECT_FALSE(window_.is_open());
}

TEST_F(WindowPart, a_notice_counts_from_when_its_put_begins) {
    send(kWindowBytes);
    window_.owe_notice();
    EXPECT_FALSE(seen_open_);
    window_.notice_is_off();
    EXPECT_TRUE(seen_open_);
    window_.owe_notice();
    window_.notice_has_gone();
    EXPECT_FALSE(window_.is_open());
    EXPECT_TRUE(window_.on_probed());
    EXPECT_TRUE(window_.is_open());
}

TEST_F(WindowPart, another_connection_has_all_of_it) {
    send(kWindowBytes);
    send(kMessageBytes);
    window_.begin_anew();
    EXPECT_TRUE(window_.is_open());
    EXPECT_FALSE(window_.on_probed());  // it was asked for of the other one
    lane_.added.clear();
    send(kWindowBytes);
    EXPECT_TRUE(window_.is_open());
    EXPECT_EQ(lane_.added.count<Probe>(), 1U);
}

TEST_F(WindowPart, closes_for_the_fast_path_while_notices_are_owed) {
    while (window_.is_open())
        window_.owe_notice();
    window_.notice_is_off();
    ASSERT_TRUE(seen_open_);
    send(kMessageBytes);  // far less than what is probed for
    EXPECT_FALSE(window_.is_open());
    EXPECT_FALSE(seen_open_);
}

/// The same by a list of what counts.
struct WindowModel {
    std::uint64_t sent = 0, heard = 0, owed = 0;  // bytes
    bool is_open() const { return sent - heard + owed <= kWindowBytes; }
};

TEST_F(WindowPart, the_fast_path_learns_each_change_and_a_closed_one_opens_again) {
    for_each_seed(40, [](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        WindowModel model;
        FakeLane lane;
        proto::SendWindow window{lane.port};
        bool seen_open = true;
        lane.on_update = [&] { seen_open = window.is_open(); };
        std::uint64_t probes = 0, answered = 0, sent_at_probe = 0;
        const auto note_probe = [&] {
            if (lane.added.size() > probes) {
                ++probes;
                sent_at_probe = model.sent;
            }
        };
        for (int i = 0; i < 1000 && !HasFailure(); ++i) {
            const std::uint64_t bytes = random() % (random() % 2 == 0 ? 64 : kWindowBytes / 4);
            switch (random() % 5) {
                case 0:
                    if (!window.is_open())
                        break;
                    window.add_message(bytes);
                    model.sent += kMessageBytes + bytes;
                    break;
                case 1:
                    for (std::uint64_t n = bytes / kMessageBytes; n > 0 && window.is_open(); --n) {
                        window.owe_notice();
                        model.owed += kMessageBytes;
                    }
                    break;
                case 2:
                    for (std::uint64_t n = bytes / kMessageBytes; n > 0 && model.owed > 0; --n) {
                        window.notice_has_gone();
                        model.owed -= kMessageBytes;
                        model.sent += kMessageBytes;
                        note_probe();
                    }
                    break;
                case 3:
                    if (model.owed == 0)
                        break;
                    window.notice_is_off();
                    model.owed -= kMessageBytes;
                    break;
                default: {
                    const bool is_due = probes > answered;
                    EXPECT_EQ(window.on_probed(), is_due);
                    if (!is_due)
                        break;
                    ++answered;
                    model.heard = sent_at_probe;
                }
            }
            note_probe();
            EXPECT_EQ(probes, lane.added.count<Probe>());
            EXPECT_LE(probes - answered, 1U);
            EXPECT_EQ(window.is_open(), model.is_open());
            EXPECT_EQ(seen_open, model.is_open()) << i;
            EXPECT_TRUE(model.is_open() || model.owed > 0 || probes > answered);
        }
    });
}

}  // namespace
}  // namespace tagwire::test
