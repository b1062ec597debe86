// SPDX-License-Identifier: BSD-3-Clause
#include "uct/iface_params.hpp"

#include <gtest/gtest.h>

#include "api/fake_transport.hpp"

namespace tagwire::test {
namespace {

ucs_status_t on_eager(void* arg, void*, size_t, unsigned, uct_tag_t, uint64_t, void**) {
    *static_cast<int*>(arg) += 1;
    return UCS_OK;
}

ucs_status_t on_rndv(void* arg, unsigned, uint64_t, const void*, unsigned, uint64_t, size_t,
                     const void*) {
    *static_cast<int*>(arg) += 100;
    return UCS_OK;
}

struct IfaceParamsTest : ::testing::Test {
    ucs_status_t check() { return uct::check_iface_params(params, &checked); }

    FakeWorld world;
    uct_iface_params_t params = world.params();
    uct::IfaceParams checked;
};

TEST_F(IfaceParamsTest, fields_outside_the_mask_are_not_read) {
    params.am_alignment = 3;
    params.rx_headroom = SIZE_MAX;
    params.features = UINT64_MAX;
    params.eager_cb = on_eager;
    ASSERT_EQ(check(), UCS_OK);
    EXPECT_EQ(checked.tl_name, "fake");
    EXPECT_EQ(checked.dev_name, "none");
    EXPECT_EQ(checked.am_alignment, 1u);
    EXPECT_EQ(checked.rx_headroom, 0u);
    EXPECT_EQ(checked.eager_cb, nullptr);
    EXPECT_EQ(checked.features, UCS_MASK(6));
}

TEST_F(IfaceParamsTest, open_mode_and_device_are_required) {
    params.field_mask = UCT_IFACE_PARAM_FIELD_DEVICE;
    EXPECT_EQ(check(), UCS_ERR_INVALID_PARAM);
    params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE;
    EXPECT_EQ(check(), UCS_ERR_INVALID_PARAM);
}

TEST_F(IfaceParamsTest, socket_address_modes_are_unsupported) {
    params.open_mode = UCT_IFACE_OPEN_MODE_SOCKADDR_SERVER;
    EXPECT_EQ(check(), UCS_ERR_UNSUPPORTED);
    params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE | UCT_IFACE_OPEN_MODE_SOCKADDR_CLIENT;
    EXPECT_EQ(check(), UCS_ERR_UNSUPPORTED);
}

TEST_F(IfaceParamsTest, names_must_fit) {
    params.mode.device.tl_name = nullptr;
    EXPECT_EQ(check(), UCS_ERR_INVALID_PARAM);
    params.mode.device.tl_name = "";
    EXPECT_EQ(check(), UCS_ERR_INVALID_PARAM);
    params.mode.device.tl_name = "0123456789";  // UCT_TL_NAME_MAX counts the 0
    EXPECT_EQ(check(), UCS_ERR_INVALID_PARAM);
    params.mode.device.tl_name = "012345678";
    EXPECT_EQ(check(), UCS_OK);
}

TEST_F(IfaceParamsTest, each_tag_callback_gets_its_own_argument) {
    int eager = 0;
    int rndv = 0;
    params.field_mask |= UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_CB |
                         UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_ARG |
                         UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_CB | UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_ARG;
    params.eager_cb = on_eager;
    params.eager_arg = &eager;
    params.rndv_cb = on_rndv;
    params.rndv_arg = &rndv;
    ASSERT_EQ(check(), UCS_OK);
    checked.eager_cb(checked.eager_arg, nullptr, 0, 0, 0, 0, nullptr);
    checked.rndv_cb(checked.rndv_arg, 0, 0, nullptr, 0, 0, 0, nullptr);
    EXPECT_EQ(eager, 1);
    EXPECT_EQ(rndv, 100);
}

TEST_F(IfaceParamsTest, one_tag_callback_alone_is_refused) {
    params.field_mask |= UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_CB | UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_CB;
    params.eager_cb = on_eager;
    EXPECT_EQ(check(), UCS_ERR_INVALID_PARAM);
    params.eager_cb = nullptr;
    params.rndv_cb = on_rndv;
    EXPECT_EQ(check(), UCS_ERR_INVALID_PARAM);
    params.rndv_cb = nullptr;
    EXPECT_EQ(check(), UCS_OK);
}

TEST_F(IfaceParamsTest, alignment_is_a_power_of_two_and_the_offset_below_it) {
    params.field_mask |= UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT | UCT_IFACE_PARAM_FIELD_AM_ALIGN_OFFSET;
    for (const std::size_t bad : {std::size_t{0}, std::size_t{3}, uct::kAmAlignmentMax * 2}) {
        params.am_alignment = bad;
        EXPECT_EQ(check(), UCS_ERR_INVALID_PARAM) << bad;
    }
    params.am_alignment = 64;
    params.am_align_offset = 64;
    EXPECT_EQ(check(), UCS_ERR_INVALID_PARAM);
    params.am_align_offset = 63;
    ASSERT_EQ(check(), UCS_OK);
    EXPECT_EQ(checked.am_align_offset, 63u);
    params.field_mask &= ~std::uint64_t{UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT};
    params.am_align_offset = 1;
    EXPECT_EQ(check(), UCS_ERR_INVALID_PARAM) << "an offset of what is not aligned";
    params.am_align_offset = 0;
    EXPECT_EQ(check(), UCS_OK);
}

TEST_F(IfaceParamsTest, bounds_of_headroom_features_and_mask) {
    params.field_mask |= UCT_IFACE_PARAM_FIELD_RX_HEADROOM | UCT_IFACE_PARAM_FIELD_FEATURES;
    params.features = UCT_IFACE_FEATURE_TAG;
    params.rx_headroom = uct::kRxHeadroomBytesMax;
    EXPECT_EQ(check(), UCS_OK);
    params.rx_headroom = uct::kRxHeadroomBytesMax + 1;
    EXPECT_EQ(check(), UCS_ERR_INVALID_PARAM);
    params.rx_headroom = 0;
    params.features = UCT_IFACE_FEATURE_LAST;
    EXPECT_EQ(check(), UCS_ERR_INVALID_PARAM);
    params = world.params();
    params.field_mask |= UCT_IFACE_PARAM_FIELD_FEATURES << 1;
    EXPECT_EQ(check(), UCS_ERR_INVALID_PARAM);
}

TEST_F(IfaceParamsTest, error_handler_flags_are_checked) {
    params.field_mask |= UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS;
    params.err_handler_flags = UCT_CB_FLAG_ASYNC;
    EXPECT_EQ(check(), UCS_OK);
    params.err_handler_flags = UCT_CB_FLAG_RESERVED;
    EXPECT_EQ(check(), UCS_ERR_INVALID_PARAM);
}

TEST_F(IfaceParamsTest, a_refusal_writes_nothing) {
    checked.tl_name = "before";
    params.open_mode = 0;
    EXPECT_NE(check(), UCS_OK);
    EXPECT_EQ(checked.tl_name, "before");
}

}  // namespace
}  // namespace tagwire::test
