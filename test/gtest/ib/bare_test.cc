// SPDX-License-Identifier: BSD-3-Clause
// A machine without RDMA packages and without the virtual HCA: no device, the reason why, and not a
// word in the log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <uct/api/tagwire_uct.h>

#include <map>
#include <string>

#include "uct/ib/device.hpp"
#include "uct/ib/ib_component.hpp"

namespace tagwire::ib {
namespace {

using testing::HasSubstr;

TEST(WithoutVerbsLibraries, there_is_no_device_and_nothing_is_logged) {
    testing::internal::CaptureStderr();
    EXPECT_TRUE(list_devices().empty());
    uct_component_attr_t attr{};
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    attr.md_resource_count = 99;
    EXPECT_EQ(uct_component_query(uct::handle_of(component()), &attr), UCS_OK);
    EXPECT_EQ(attr.md_resource_count, 0U);
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attr.md_resources = nullptr;  // an array of none
    EXPECT_EQ(uct_component_query(uct::handle_of(component()), &attr), UCS_OK);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(WithoutVerbsLibraries, the_component_says_why) {
    std::map<std::string, std::string> facts;
    const auto note = [](void* arg, const char* key, const char* value) {
        (*static_cast<std::map<std::string, std::string>*>(arg))[key] = value;
    };
    ASSERT_EQ(tagwire_uct_component_describe(uct::handle_of(component()), note, &facts), UCS_OK);
    EXPECT_EQ(facts.size(), 2U);
    EXPECT_THAT(facts["library system"], HasSubstr("libno-such-verbs.so.1: cannot open"));
    EXPECT_THAT(facts["library virtual"], HasSubstr("/nonexistent/libno-such-vhca.so: cannot"));
}

TEST(WithoutVerbsLibraries, a_device_is_refused_by_name) {
    testing::internal::CaptureStderr();
    std::unique_ptr<Device> device;
    EXPECT_EQ(Device::open("mlx5_0", &device), UCS_ERR_NO_DEVICE);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("mlx5_0"));
}

}  // namespace
}  // namespace tagwire::ib
