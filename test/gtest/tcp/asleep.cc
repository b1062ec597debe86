// SPDX-License-Identifier: BSD-3-Clause
#include "asleep.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>

namespace tagwire::test {

namespace {

constexpr unsigned kCallsMax = 1000;  // of progress, behind one event

}  // namespace

unsigned wake_ups_within(Entity& sleeper, int ms) {
    using Clock = std::chrono::steady_clock;
    int fd = -1;
    EXPECT_EQ(UCS_OK, uct_iface_event_fd_get(sleeper.iface(), &fd));
    const auto end = Clock::now() + std::chrono::milliseconds(ms);
    unsigned count = 0;
    while (count <= kWakeUpsMax && Clock::now() < end) {
        if (uct_iface_event_arm(sleeper.iface(), UCT_EVENT_RECV | UCT_EVENT_SEND_COMP) == UCS_OK) {
            pollfd entry{fd, POLLIN, 0};
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
            if (::poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0))) == 0)
                break;
        }
        ++count;
        for (unsigned calls = 0; calls < kCallsMax && sleeper.progress() != 0; ++calls) {
        }
    }
    return count;
}

}  // namespace tagwire::test
