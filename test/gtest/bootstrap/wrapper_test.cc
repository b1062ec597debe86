// SPDX-License-Identifier: BSD-3-Clause
// The C++ wrapper, a job of one process, and arguments of the C calls.
#include <tagwire_bootstrap.hpp>

#include <cstring>

#include "job.hpp"

namespace tagwire::test {
namespace {

std::vector<std::byte> bytes_of_length(std::size_t length, std::uint32_t rank) {
    return std::vector<std::byte>(length, static_cast<std::byte>(rank));
}

TEST(BootstrapWrapper, values_and_bytes_of_different_lengths_reach_all) {
    const ScratchDirectory directory;
    const Place place{TW_BOOTSTRAP_DIR, directory.path(), "a-job"};
    expect_all_well(run_ranks(3, [&](std::uint32_t rank) {
        Bootstrap job(place.params(rank, 3));
        EXPECT_EQ((std::vector<double>{0.5, 1.5, 2.5}), job.allgather(rank + 0.5));
        const auto all = job.exchange(bytes_of_length(100 * std::size_t{rank}, rank));
        ASSERT_EQ(3u, all.size());
        for (std::uint32_t other = 0; other < 3; ++other)
            EXPECT_EQ(bytes_of_length(100 * std::size_t{other}, other), all[other]);
        Bootstrap moved = std::move(job);
        moved.barrier();
    }));
}

TEST(BootstrapWrapper, failures_throw_what_the_library_says) {
    tw_bootstrap_params_t params{};
    params.method = TW_BOOTSTRAP_DIR;
    params.size = 2;
    params.where = "nowhere";
    try {
        const Bootstrap job(params);
        FAIL() << "it was made";
    } catch (const BootstrapError& error) {
        EXPECT_EQ(TW_ERR_INVALID_PARAM, error.status());
        EXPECT_STREQ(tw_bootstrap_last_error(), error.what());
        EXPECT_NE(nullptr, std::strstr(error.what(), "cannot use the directory nowhere"));
    }
}

TEST(BootstrapSingle, a_job_of_one_needs_nobody) {
    tw_bootstrap_params_t params{};
    params.method = TW_BOOTSTRAP_SINGLE;
    Bootstrap job(params);
    EXPECT_EQ(0u, job.rank());
    EXPECT_EQ(1u, job.size());
    EXPECT_STREQ("single", job.method_name());
    EXPECT_EQ(std::vector<int>{42}, job.allgather(42));
    EXPECT_EQ(std::vector<std::vector<std::byte>>{{}}, job.exchange({}));
    job.barrier();
}

TEST(BootstrapSingle, wrong_arguments_leave_the_job_as_it_was) {
    tw_bootstrap_params_t params{};
    params.method = TW_BOOTSTRAP_SINGLE;
    Bootstrap job(params);
    char byte = 0;
    const auto gather = [&](tw_bootstrap_h handle, const void* in, void* out) {
        return tw_bootstrap_allgather(handle, in, 1, out);
    };
    expect_failure(TW_ERR_INVALID_PARAM, gather(nullptr, &byte, &byte), "bs is NULL");
    expect_failure(TW_ERR_INVALID_PARAM, gather(job.get(), nullptr, &byte), "in is NULL");
    expect_failure(TW_ERR_INVALID_PARAM, gather(job.get(), &byte, nullptr), "out is NULL");
    expect_failure(TW_ERR_INVALID_PARAM, tw_bootstrap_barrier(nullptr), "bs is NULL");
    expect_failure(TW_ERR_INVALID_PARAM, tw_bootstrap_create(nullptr, nullptr), "bs_p is NULL");
    EXPECT_EQ(TW_OK, gather(job.get(), &byte, &byte));
    tw_bootstrap_destroy(nullptr);
}

TEST(Status, every_value_has_a_sentence) {
    EXPECT_STREQ("Success", tw_status_string(TW_OK));
    EXPECT_STREQ("Operation timed out", tw_status_string(TW_ERR_TIMED_OUT));
    EXPECT_STREQ("Unknown status", tw_status_string(static_cast<tw_status_t>(-100)));
    EXPECT_STREQ("Unknown status", tw_status_string(static_cast<tw_status_t>(-101)));
    EXPECT_STREQ("Unknown status", tw_status_string(static_cast<tw_status_t>(100)));
}

}  // namespace
}  // namespace tagwire::test
