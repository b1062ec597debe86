// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ops.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "api/fake_transport.hpp"

namespace tagwire::test {
namespace {

struct NothingIface : uct_iface_t {};
struct NothingEp : uct_ep_t {};

constexpr uct_iface_ops_t kNothing = uct::make_ops<NothingIface, NothingEp>();

TEST(MakeOps, fills_every_slot) {
    void* slots[sizeof(uct_iface_ops_t) / sizeof(void*)];
    std::memcpy(slots, &kNothing, sizeof kNothing);
    for (void* slot : slots)
        EXPECT_NE(slot, nullptr);
    EXPECT_EQ(std::size(slots), 50u);
}

TEST(MakeOps, missing_operations_refuse_in_the_type_of_their_slot) {
    NothingIface iface{};
    iface.ops = kNothing;
    NothingEp ep{};
    ep.iface = &iface;
    uct_completion_t comp{};
    uint64_t result = 0;
    EXPECT_EQ(uct_ep_put_short(&ep, nullptr, 0, 0, 0), UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(uct_ep_am_bcopy(&ep, 0, nullptr, nullptr, 0),
              static_cast<ssize_t>(UCS_ERR_UNSUPPORTED));
    EXPECT_EQ(uct_ep_atomic64_fetch(&ep, UCT_ATOMIC_OP_ADD, 1, &result, 0, 0, &comp),
              UCS_ERR_UNSUPPORTED);
    const ucs_status_ptr_t handle = uct_ep_tag_rndv_zcopy(&ep, 0, nullptr, 0, nullptr, 0, 0, &comp);
    ASSERT_TRUE(UCS_PTR_IS_ERR(handle));
    EXPECT_EQ(UCS_PTR_STATUS(handle), UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(uct_iface_progress(&iface), 0u);
    EXPECT_EQ(iface.ops.iface_is_reachable(&iface, nullptr, nullptr), 0);
    uct_iface_progress_enable(&iface, UCT_PROGRESS_SEND);  // void: nothing to tell
}

TEST(MakeOps, calls_the_members_of_the_object_behind_the_handle) {
    FakeWorld world;
    uct_ep_params_t params{};
    params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
    params.iface = &world.iface();
    uct_ep_h ep = nullptr;
    ASSERT_EQ(uct_ep_create(&params, &ep), UCS_OK);
    char target[8] = {};
    const auto pack = [](void* dest, void* arg) -> std::size_t {
        std::memcpy(dest, arg, 3);
        return 3;
    };
    char text[] = "abc";
    EXPECT_EQ(uct_ep_put_bcopy(ep, pack, text, reinterpret_cast<uint64_t>(target), 0), 3);
    EXPECT_STREQ(target, "abc");
    EXPECT_EQ(uct_ep_check(ep, 0, nullptr), UCS_OK);
    EXPECT_EQ(uct_ep_flush(ep, 0, nullptr), UCS_ERR_UNSUPPORTED);
    uct_ep_destroy(ep);
}

}  // namespace
}  // namespace tagwire::test
