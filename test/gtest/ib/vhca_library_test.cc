// SPDX-License-Identifier: BSD-3-Clause
// The virtual HCA's library, and the system's beside it.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "common/built.hpp"
#include "common/skip.hpp"
#include "uct/ib/device.hpp"
#include "uct/ib/verbs.hpp"

namespace tagwire::ib {
namespace {

std::set<std::string> names_in(const VerbsLibrary& library) {
    int count = 0;
    // Null on machines whose kernel has no RDMA.
    ibv_device** list = library.verbs.get_device_list(&count);
    std::set<std::string> names;
    for (int i = 0; list != nullptr && i < count; ++i)
        names.insert(library.verbs.get_device_name(list[i]));
    if (list != nullptr)
        library.verbs.free_device_list(list);
    return names;
}

TEST(VirtualLibrary, is_found_by_name_beside_this_code) {
    const VerbsLibrary library = load_verbs_library(VerbsOrigin::kVirtual, "libtagwire-vhca.so");
    ASSERT_EQ(library.problem, "");
    EXPECT_TRUE(std::filesystem::equivalent(library.path, test::built_vhca())) << library.path;
    EXPECT_TRUE(library.has_virtual_hca);
    EXPECT_TRUE(names_in(library).contains("vhca0"));
}

TEST(VirtualLibrary, is_found_by_path) {
    EXPECT_EQ(load_verbs_library(VerbsOrigin::kVirtual, test::built_vhca()).problem, "");
}

TEST(VirtualLibrary, stands_beside_the_system_s) {
    const VerbsLibrary system = load_verbs_library(VerbsOrigin::kSystem, "libibverbs.so.1");
    const VerbsLibrary ours = load_verbs_library(VerbsOrigin::kVirtual, test::built_vhca());
    ASSERT_EQ(ours.problem, "");
    if (!system.problem.empty())
        TW_SKIP(system.problem);
    EXPECT_NE(system.verbs.get_device_list, ours.verbs.get_device_list);
    EXPECT_FALSE(names_in(system).contains("vhca0"));
    EXPECT_EQ(names_in(ours), std::set<std::string>{"vhca0"});
}

TEST(VirtualLibrary, that_took_the_system_s_place_is_noticed) {
    const VerbsLibrary library =
        load_verbs_library(VerbsOrigin::kSystem, test::built("lib/vhca/libibverbs.so.1"));
    ASSERT_EQ(library.problem, "");
    EXPECT_TRUE(library.has_virtual_hca);
    EXPECT_EQ(names_in(library), std::set<std::string>{"vhca0"});
}

}  // namespace
}  // namespace tagwire::ib
