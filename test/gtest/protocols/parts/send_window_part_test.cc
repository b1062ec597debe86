// SPDX-License-Identifier: BSD-3-Clause
// The window of a sender, alone.
#include <cstdint>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tagwire::test
