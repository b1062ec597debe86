// SPDX-License-Identifier: BSD-3-Clause
// InfiniBand's codes, translated for programs that are written to UCT.
#include "uct/ib/codes.hpp"

#include <gtest/gtest.h>

namespace tagwire::ib {
namespace {

TEST(StatusOfCompletion, is_what_programs_of_uct_expect) {
    EXPECT_EQ(status_of(IBV_WC_SUCCESS), UCS_OK);
    for (const ibv_wc_status silent :
         {IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_REM_ABORT_ERR})
        EXPECT_EQ(status_of(silent), UCS_ERR_ENDPOINT_TIMEOUT) << silent;
    for (const ibv_wc_status refused :
         {IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR, IBV_WC_REM_INV_REQ_ERR})
        EXPECT_EQ(status_of(refused), UCS_ERR_CONNECTION_RESET) << refused;
    EXPECT_EQ(status_of(IBV_WC_WR_FLUSH_ERR), UCS_ERR_CANCELED);
    EXPECT_EQ(status_of(IBV_WC_LOC_PROT_ERR), UCS_ERR_IO_ERROR);
}

TEST(FailureOfEndpoint, is_never_a_cancel_that_nobody_asked_for) {
    EXPECT_EQ(failure_of(IBV_WC_WR_FLUSH_ERR), UCS_ERR_CONNECTION_RESET);
    EXPECT_EQ(failure_of(IBV_WC_RETRY_EXC_ERR), UCS_ERR_ENDPOINT_TIMEOUT);
    EXPECT_EQ(failure_of(IBV_WC_REM_ACCESS_ERR), UCS_ERR_CONNECTION_RESET);
}

}  // namespace
}  // namespace tagwire::ib
