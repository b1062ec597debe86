// SPDX-License-Identifier: BSD-3-Clause
// The page of the device's clock, through the genuine libmlx5: what time of day a timestamp is.
#include <unistd.h>

#include <ctime>

#include "vhca/test/driver/devx_program.hpp"

namespace tagwire::vhca::driver::test {
namespace {

std::uint64_t time_of_day() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
}

Owned<ibv_context> open_device() {
    ibv_device** list = ibv_get_device_list(nullptr);
    Owned<ibv_context> context(list == nullptr ? nullptr : ibv_open_device(list[0]));
    ibv_free_device_list(list);
    return context;
}

TEST(VhcaClock, its_page_tells_the_time_of_day) {
    const std::uint64_t before = time_of_day();
    const auto context = open_device();
    const std::uint64_t after = time_of_day();
    ASSERT_NE(context, nullptr);
    mlx5dv_clock_info info{};
    ASSERT_EQ(mlx5dv_get_clock_info(context.get(), &info), 0);
    EXPECT_GE(info.nsec, before);
    EXPECT_LE(info.nsec, after);
    EXPECT_EQ(mlx5dv_ts_to_ns(&info, info.last_cycles), info.nsec);
    EXPECT_EQ(mlx5dv_ts_to_ns(&info, info.last_cycles + 1000), info.nsec + 1000);
    EXPECT_EQ(mlx5dv_ts_to_ns(&info, info.last_cycles - 1000), info.nsec - 1000);
}

// Doorbell pages are taken away again and again; commands are what makes the device look at all.
TEST(VhcaClock, its_page_stays_while_doorbells_are_taken_away) {
    const auto context = open_device();
    ASSERT_NE(context, nullptr);
    mlx5dv_clock_info first{};
    ASSERT_EQ(mlx5dv_get_clock_info(context.get(), &first), 0);
    for (int i = 0; i < 20; ++i) {
        const Owned<ibv_cq> cq(ibv_create_cq(context.get(), 8, nullptr, nullptr, 0));
        ASSERT_NE(cq, nullptr);
        usleep(1000);  // the device goes to sleep
        mlx5dv_clock_info later{};
        ASSERT_EQ(mlx5dv_get_clock_info(context.get(), &later), 0);
        EXPECT_EQ(later.nsec, first.nsec);
        EXPECT_EQ(later.mult, first.mult);
    }
}

}  // namespace
}  // namespace tagwire::vhca::driver::test
