// SPDX-License-Identifier: BSD-3-Clause
// Which devices are listed and opened. The virtual HCA is there whatever cards the machine has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/built.hpp"
#include "ucs/environment_guard.hpp"
#include "uct/ib/device.hpp"

namespace tagwire::ib {
namespace {

using testing::HasSubstr;

class Devices : public testing::Test {
  protected:
    Devices() { environment_.set("TAGWIRE_IB_VHCA_LIBRARY", test::built_vhca()); }

    bool admits_vhca(const char* setting) {
        environment_.set("TAGWIRE_IB_DEVICES", setting);
        const auto devices = list_devices();
        const auto found = std::ranges::find(devices, "vhca0", &ListedDevice::name);
        EXPECT_NE(found, devices.end()) << setting;
        return found != devices.end() && found->is_admitted;
    }

    test::EnvironmentGuard environment_;
};

TEST_F(Devices, of_the_virtual_hca_come_last) {
    const auto devices = list_devices();
    ASSERT_FALSE(devices.empty());
    EXPECT_EQ(devices.back().name, "vhca0");
    EXPECT_EQ(devices.back().problem, "");
    EXPECT_EQ(devices.back().library->origin, VerbsOrigin::kVirtual);
}

TEST_F(Devices, are_admitted_by_name_and_pattern) {
    testing::internal::CaptureStderr();  // names of nobody warn
    EXPECT_TRUE(admits_vhca("vhca0"));
    EXPECT_TRUE(admits_vhca("vhca*"));
    EXPECT_TRUE(admits_vhca("none9, vhca[0-3]"));
    EXPECT_TRUE(admits_vhca("*"));
    EXPECT_FALSE(admits_vhca("vhca"));
    EXPECT_FALSE(admits_vhca("vhca1"));
    EXPECT_FALSE(admits_vhca("^vhca0"));
    EXPECT_FALSE(admits_vhca("^none9,vhca*"));
    EXPECT_TRUE(admits_vhca("^none9"));
    EXPECT_FALSE(admits_vhca(""));
    testing::internal::GetCapturedStderr();
}

TEST_F(Devices, that_nobody_has_are_warned_of_once) {
    environment_.set("TAGWIRE_IB_DEVICES", "mlx9_77");
    testing::internal::CaptureStderr();
    list_devices();
    const std::string first = testing::internal::GetCapturedStderr();
    EXPECT_THAT(first, HasSubstr("TAGWIRE_IB_DEVICES=mlx9_77: no RDMA device matches mlx9_77"));
    EXPECT_THAT(first, HasSubstr("vhca0"));
    testing::internal::CaptureStderr();
    list_devices();
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Devices, that_are_left_out_are_not_opened) {
    environment_.set("TAGWIRE_IB_DEVICES", "^vhca0");
    testing::internal::CaptureStderr();
    std::unique_ptr<Device> device;
    EXPECT_EQ(Device::open("vhca0", &device), UCS_ERR_NO_DEVICE);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("vhca0"));
}

TEST_F(Devices, say_what_they_can) {
    std::unique_ptr<Device> device;
    ASSERT_EQ(Device::open("vhca0", &device), UCS_OK);
    EXPECT_EQ(device->name(), "vhca0");
    EXPECT_EQ(device->origin(), VerbsOrigin::kVirtual);
    EXPECT_TRUE(device->matches_tags());
    EXPECT_GE(device->port_count(), 1U);
    Port port;
    std::string problem;
    ASSERT_EQ(device->port(1, {}, &port, &problem), UCS_OK) << problem;
    EXPECT_EQ(port.number, 1);
    EXPECT_GE(port.mtu_bytes(), 256U);
    EXPECT_EQ(port.pkey, 0xffff);
    EXPECT_NE(port.is_ethernet, port.attr.lid != 0);
}

}  // namespace
}  // namespace tagwire::ib
