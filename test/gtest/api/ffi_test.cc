// SPDX-License-Identifier: BSD-3-Clause
// The library as a language without C headers sees it: symbols found by name in the loaded library.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <uct/api/tagwire_ffi.h>
#include <uct/api/tagwire_uct.h>

#include <string>

namespace {

const char* const kInlineCalls[] = {"worker_progress",
                                    "iface_progress_enable",
                                    "iface_progress_disable",
                                    "iface_progress",
                                    "iface_flush",
                                    "iface_fence",
                                    "ep_flush",
                                    "ep_fence",
                                    "ep_pending_add",
                                    "ep_pending_purge",
                                    "ep_am_short",
                                    "ep_am_short_iov",
                                    "ep_am_bcopy",
                                    "ep_am_zcopy",
                                    "ep_put_short",
                                    "ep_put_bcopy",
                                    "ep_put_zcopy",
                                    "ep_get_short",
                                    "ep_get_bcopy",
                                    "ep_get_zcopy",
                                    "ep_atomic_cswap64",
                                    "ep_atomic_cswap32",
                                    "ep_atomic32_post",
                                    "ep_atomic64_post",
                                    "ep_atomic32_fetch",
                                    "ep_atomic64_fetch",
                                    "ep_tag_eager_short",
                                    "ep_tag_eager_bcopy",
                                    "ep_tag_eager_zcopy",
                                    "ep_tag_rndv_zcopy",
                                    "ep_tag_rndv_cancel",
                                    "ep_tag_rndv_request",
                                    "iface_tag_recv_zcopy",
                                    "iface_tag_recv_cancel",
                                    "completion_update_status"};

TEST(Ffi, every_inline_call_is_a_symbol_of_the_library) {
    ASSERT_NE(tagwire_version_string(), nullptr);  // the library is loaded
    for (const char* name : kInlineCalls) {
        EXPECT_NE(dlsym(RTLD_DEFAULT, ("tagwire_uct_" + std::string(name)).c_str()), nullptr)
            << name;
    }
}

TEST(Ffi, no_plain_name_of_ucx_is_defined) {
    for (const char* name :
         {"uct_query_components", "uct_iface_open", "ucs_status_string", "ucs_callbackq_add",
          "uct_iface_release_desc", "uct_device_type_names"}) {
        EXPECT_EQ(dlsym(RTLD_DEFAULT, name), nullptr) << name;
        EXPECT_NE(dlsym(RTLD_DEFAULT, ("tagwire_" + std::string(name)).c_str()), nullptr) << name;
    }
}

TEST(Ffi, the_copies_do_what_the_inline_calls_do) {
    uct_completion_t comp{nullptr, 1, UCS_OK};
    tagwire_uct_completion_update_status(&comp, UCS_ERR_CANCELED);
    tagwire_uct_completion_update_status(&comp, UCS_ERR_IO_ERROR);
    EXPECT_EQ(comp.status, UCS_ERR_CANCELED);
    uct_iface_t iface{};
    iface.ops.iface_fence = [](uct_iface_h, unsigned flags) {
        return flags == 7 ? UCS_ERR_BUSY : UCS_OK;
    };
    EXPECT_EQ(tagwire_uct_iface_fence(&iface, 7), uct_iface_fence(&iface, 7));
}

}  // namespace
