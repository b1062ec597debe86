// SPDX-License-Identifier: BSD-3-Clause
// Lists of transports, as people write them who come from other libraries.
#include "protocols/request/transport_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace tagwire::proto {
namespace {

using testing::HasSubstr;

uct_tl_resource_desc_t resource(const std::string& name) {
    uct_tl_resource_desc_t desc{};
    const std::size_t colon = name.find(':');
    name.copy(desc.tl_name, std::min(colon, sizeof desc.tl_name - 1));
    name.substr(colon + 1).copy(desc.dev_name, sizeof desc.dev_name - 1);
    return desc;
}

/// The resources that a list takes of a machine that has a bit of everything.
std::string taken(const std::string& text) {
    TransportList list;
    std::string problem;
    if (!TransportList::parse(text, &list, &problem))
        return "refused: " + problem;
    std::string all;
    for (const char* each : {"sm:memory", "rc:mlx5_0:1", "rc:vhca0:1", "tcp:eth0", "tcp:lo"})
        if (list.wants(resource(each)))
            all += (all.empty() ? "" : " ") + std::string(each);
    return all;
}

TEST(TransportListTest, names_are_taken_with_and_without_a_device) {
    EXPECT_EQ(taken("sm"), "sm:memory");
    EXPECT_EQ(taken("rc"), "rc:mlx5_0:1 rc:vhca0:1");
    EXPECT_EQ(taken("rc:mlx5_0:1,tcp:lo"), "rc:mlx5_0:1 tcp:lo");
    EXPECT_EQ(taken("ud"), "");
    EXPECT_EQ(taken("tcp:eth1"), "");
}

TEST(TransportListTest, groups_and_exceptions) {
    EXPECT_EQ(taken("auto"), "sm:memory rc:mlx5_0:1 tcp:eth0 tcp:lo");
    EXPECT_EQ(taken("all"), "sm:memory rc:mlx5_0:1 rc:vhca0:1 tcp:eth0 tcp:lo");
    EXPECT_EQ(taken("auto,^tcp"), "sm:memory rc:mlx5_0:1");
    EXPECT_EQ(taken("tcp,^tcp:lo"), "tcp:eth0");
    EXPECT_EQ(taken("all,^rc:vhca0:1,^sm"), "rc:mlx5_0:1 tcp:eth0 tcp:lo");
    EXPECT_EQ(taken("auto,^sm,^tcp,^rc"), "");
}

TEST(TransportListTest, nothing_and_exceptions_alone_begin_with_auto) {
    EXPECT_EQ(taken(""), taken("auto"));
    EXPECT_EQ(taken("  "), taken("auto"));
    EXPECT_EQ(taken("^tcp"), taken("auto,^tcp"));
    EXPECT_EQ(taken("^sm,^tcp:lo"), taken("auto,^sm,^tcp:lo"));
}

TEST(TransportListTest, a_list_that_begins_with_an_exception_leaves_out_all_its_names) {
    EXPECT_EQ(taken("^sm,tcp"), "rc:mlx5_0:1");
    EXPECT_EQ(taken("^sm,tcp:lo"), "rc:mlx5_0:1 tcp:eth0");
    EXPECT_EQ(taken(" ^ sm , ^rc, tcp:eth0 "), "tcp:lo");
    EXPECT_EQ(taken("sm,^tcp,rc:mlx5_0:1"), "sm:memory rc:mlx5_0:1");
}

TEST(TransportListTest, blanks_and_capitals_do_not_matter) {
    EXPECT_EQ(taken(" sm , tcp:lo "), "sm:memory tcp:lo");
    EXPECT_EQ(taken("SM,^ TCP"), taken("sm,^tcp"));
    EXPECT_EQ(taken("AUTO"), taken("auto"));
    EXPECT_EQ(taken("tcp:LO"), "");  // names of devices are the system's
}

TEST(TransportListTest, what_is_no_list_is_refused_with_the_part_that_is_wrong) {
    for (const char* text : {",", "sm,", ",sm", "sm,,tcp", "sm, ,tcp"})
        EXPECT_THAT(taken(text), HasSubstr("refused: an empty name")) << text;
    for (const char* text : {"^", "sm,^", "sm,^ ", ":lo", "sm,:"})
        EXPECT_THAT(taken(text), HasSubstr("names no transport")) << text;
    EXPECT_THAT(taken("tcp:"), HasSubstr("\"tcp:\" names no device"));
    EXPECT_THAT(taken("auto:lo"), HasSubstr("tcp:lo"));
    for (const char* text : {"^auto", "^sm,all", "sm,^auto"})
        EXPECT_THAT(taken(text), HasSubstr("leaves out nothing but everything")) << text;
}

}  // namespace
}  // namespace tagwire::proto
