// SPDX-License-Identifier: BSD-3-Clause
// The numbers are those of UCX 1.13: programs print, send and compare them.
#include <ucs/type/status.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

namespace {

struct Named {
    ucs_status_t status;
    int number;
};

constexpr Named kStatuses[] = {
    {UCS_OK, 0},
    {UCS_INPROGRESS, 1},
    {UCS_ERR_NO_MESSAGE, -1},
    {UCS_ERR_NO_RESOURCE, -2},
    {UCS_ERR_IO_ERROR, -3},
    {UCS_ERR_NO_MEMORY, -4},
    {UCS_ERR_INVALID_PARAM, -5},
    {UCS_ERR_UNREACHABLE, -6},
    {UCS_ERR_INVALID_ADDR, -7},
    {UCS_ERR_NOT_IMPLEMENTED, -8},
    {UCS_ERR_MESSAGE_TRUNCATED, -9},
    {UCS_ERR_NO_PROGRESS, -10},
    {UCS_ERR_BUFFER_TOO_SMALL, -11},
    {UCS_ERR_NO_ELEM, -12},
    {UCS_ERR_SOME_CONNECTS_FAILED, -13},
    {UCS_ERR_NO_DEVICE, -14},
    {UCS_ERR_BUSY, -15},
    {UCS_ERR_CANCELED, -16},
    {UCS_ERR_SHMEM_SEGMENT, -17},
    {UCS_ERR_ALREADY_EXISTS, -18},
    {UCS_ERR_OUT_OF_RANGE, -19},
    {UCS_ERR_TIMED_OUT, -20},
    {UCS_ERR_EXCEEDS_LIMIT, -21},
    {UCS_ERR_UNSUPPORTED, -22},
    {UCS_ERR_REJECTED, -23},
    {UCS_ERR_NOT_CONNECTED, -24},
    {UCS_ERR_CONNECTION_RESET, -25},
    {UCS_ERR_FIRST_LINK_FAILURE, -40},
    {UCS_ERR_LAST_LINK_FAILURE, -59},
    {UCS_ERR_FIRST_ENDPOINT_FAILURE, -60},
    {UCS_ERR_ENDPOINT_TIMEOUT, -80},
    {UCS_ERR_LAST_ENDPOINT_FAILURE, -89},
    {UCS_ERR_LAST, -100},
};

TEST(Status, numbers_are_those_of_ucx) {
    for (const auto& [status, number] : kStatuses)
        EXPECT_EQ(static_cast<int>(status), number);
    EXPECT_EQ(sizeof(ucs_status_t), 1U);
}

TEST(Status, failures_are_told_from_success) {
    EXPECT_FALSE(UCS_STATUS_IS_ERR(UCS_OK));
    EXPECT_FALSE(UCS_STATUS_IS_ERR(UCS_INPROGRESS));
    EXPECT_TRUE(UCS_STATUS_IS_ERR(UCS_ERR_NO_MESSAGE));
    EXPECT_TRUE(UCS_IS_ENDPOINT_ERROR(UCS_ERR_ENDPOINT_TIMEOUT));
    EXPECT_FALSE(UCS_IS_ENDPOINT_ERROR(UCS_ERR_CONNECTION_RESET));
    EXPECT_FALSE(UCS_IS_LINK_ERROR(UCS_ERR_ENDPOINT_TIMEOUT));
}

TEST(Status, pointer_holds_handle_or_status) {
    int object = 0;
    ucs_status_ptr_t handle = &object;
    EXPECT_TRUE(UCS_PTR_IS_PTR(handle));
    EXPECT_FALSE(UCS_PTR_IS_ERR(handle));
    EXPECT_EQ(UCS_PTR_STATUS(handle), UCS_INPROGRESS);
    ucs_status_ptr_t failure = UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE);
    EXPECT_TRUE(UCS_PTR_IS_ERR(failure));
    EXPECT_FALSE(UCS_PTR_IS_PTR(failure));
    EXPECT_EQ(UCS_PTR_STATUS(failure), UCS_ERR_NO_RESOURCE);
    ucs_status_ptr_t done = nullptr;
    EXPECT_FALSE(UCS_PTR_IS_PTR(done));
    EXPECT_EQ(UCS_PTR_STATUS(done), UCS_OK);
}

TEST(Status, errors_have_sentences_of_their_own) {
    std::set<std::string> seen;
    for (const auto& [status, number] : kStatuses) {
        if (number >= UCS_ERR_CONNECTION_RESET) {
            EXPECT_TRUE(seen.insert(ucs_status_string(status)).second) << number;
        }
    }
    EXPECT_NE(ucs_status_string(static_cast<ucs_status_t>(-99)), nullptr);
}

}  // namespace
