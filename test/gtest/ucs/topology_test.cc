// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/topo/topology.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <thread>

namespace tagwire::ucs {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class Synthetic : public ::testing::Test {
  protected:
    Synthetic() { EXPECT_EQ(Topology::load_synthetic("node:2 core:4 pu:2", &topology_), UCS_OK); }
    std::unique_ptr<Topology> topology_;
};

TEST_F(Synthetic, all_cpus_are_allowed) {
    EXPECT_THAT(topology_->allowed_cpus(), SizeIs(16));
}

TEST_F(Synthetic, cpus_belong_to_their_node) {
    EXPECT_THAT(topology_->nodes(), ElementsAre(0, 1));
    EXPECT_EQ(topology_->node_of_cpu(0), 0);
    EXPECT_EQ(topology_->node_of_cpu(7), 0);
    EXPECT_EQ(topology_->node_of_cpu(8), 1);
    EXPECT_THAT(topology_->cpus_of_node(1), ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
}

TEST_F(Synthetic, unknown_numbers_have_no_place) {
    EXPECT_EQ(topology_->node_of_cpu(16), -1);
    EXPECT_EQ(topology_->node_of_cpu(-1), -1);
    EXPECT_THAT(topology_->cpus_of_node(2), IsEmpty());
    EXPECT_EQ(topology_->distance(0, 2), -1);
    EXPECT_EQ(topology_->nearness(0, 99), Nearness::kSameMachine);
}

TEST_F(Synthetic, nearness_grows_with_shared_parts) {
    EXPECT_EQ(topology_->nearness(0, 0), Nearness::kSameCpu);
    EXPECT_EQ(topology_->nearness(0, 1), Nearness::kSameCore);
    EXPECT_EQ(topology_->nearness(0, 2), Nearness::kSameNode);
    EXPECT_EQ(topology_->nearness(0, 8), Nearness::kSameMachine);
}

TEST_F(Synthetic, memory_of_another_machine_cannot_be_bound) {
    char page[4096];
    EXPECT_EQ(topology_->bind_memory(page, sizeof(page), 0), UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(topology_->bind_memory(page, sizeof(page), 9), UCS_ERR_INVALID_PARAM);
}

TEST(Topology, knows_the_smallest_second_level_cache) {
    std::unique_ptr<Topology> topology;
    ASSERT_EQ(Topology::load_synthetic("l2:2(size=524288) core:1 pu:1", &topology), UCS_OK);
    EXPECT_EQ(topology->second_level_cache_bytes(), 524288U);
    ASSERT_EQ(Topology::load_synthetic("core:2 pu:1", &topology), UCS_OK);
    EXPECT_EQ(topology->second_level_cache_bytes(), std::size_t{1} << 20) << "of another machine";
}

TEST(Topology, distances_follow_packages_where_the_firmware_gives_none) {
    std::unique_ptr<Topology> topology;
    ASSERT_EQ(Topology::load_synthetic("package:2 group:2 [numa] core:2 pu:1", &topology), UCS_OK);
    EXPECT_EQ(topology->distance(0, 0), 10);
    EXPECT_LT(topology->distance(0, 1), topology->distance(0, 2));
}

TEST(Topology, description_that_is_not_understood_is_refused) {
    std::unique_ptr<Topology> topology;
    EXPECT_EQ(Topology::load_synthetic("bicycle:2", &topology), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(Topology::load_xml_text("<no topology", &topology), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(Topology::load_xml_file("/nonexistent.xml", &topology), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(topology, nullptr);
}

// Two packages of two NUMA nodes each.
class TwoPackages : public ::testing::Test {
  protected:
    TwoPackages() { EXPECT_EQ(Topology::load_xml_file(kFile, &topology_), UCS_OK); }

    static constexpr const char* kFile = TW_TEST_DATA "/two_packages_four_nodes.xml";
    std::unique_ptr<Topology> topology_;
};

TEST_F(TwoPackages, nearness_knows_caches_and_packages) {
    EXPECT_EQ(topology_->nearness(0, 1), Nearness::kSameCore);
    EXPECT_EQ(topology_->nearness(0, 2), Nearness::kSharedCache);
    EXPECT_EQ(topology_->nearness(0, 4), Nearness::kSamePackage);
    EXPECT_EQ(topology_->nearness(0, 8), Nearness::kSameMachine);
}

TEST_F(TwoPackages, distances_are_those_of_the_firmware) {
    EXPECT_EQ(topology_->distance(0, 0), 10);
    EXPECT_EQ(topology_->distance(0, 1), 12);
    EXPECT_EQ(topology_->distance(0, 3), 32);
}

TEST_F(TwoPackages, xml_can_be_given_as_text) {
    std::ifstream stream(kFile);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    std::unique_ptr<Topology> topology;
    ASSERT_EQ(Topology::load_xml_text(text, &topology), UCS_OK);
    EXPECT_THAT(topology->nodes(), ElementsAre(0, 1, 2, 3));
}

TEST(SystemTopology, is_read_once) {
    EXPECT_EQ(&system_topology(), &system_topology());
    EXPECT_THAT(system_topology().nodes(), Not(IsEmpty()));
}

TEST(SystemTopology, current_place_is_part_of_it) {
    EXPECT_GE(current_cpu(), 0);
    EXPECT_GE(current_node(), 0);
    EXPECT_THAT(system_topology().nodes(), Contains(current_node()));
}

TEST(SystemTopology, allowed_cpus_follow_the_affinity_of_the_thread) {
    const std::vector<int> all = system_topology().allowed_cpus();
    ASSERT_THAT(all, Not(IsEmpty()));
    std::vector<int> bound;
    std::thread([&] {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(static_cast<std::size_t>(all.back()), &set);
        ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
        bound = system_topology().allowed_cpus();
    }).join();
    EXPECT_THAT(bound, ElementsAre(all.back()));
}

TEST(SystemTopology, memory_is_bound_or_the_reason_is_told) {
    const std::size_t bytes = 4 * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* memory = std::aligned_alloc(bytes, bytes);
    ASSERT_NE(memory, nullptr);
    const ucs_status_t status = system_topology().bind_memory(memory, bytes, current_node());
    EXPECT_TRUE(status == UCS_OK || status == UCS_ERR_UNSUPPORTED) << static_cast<int>(status);
    EXPECT_EQ(system_topology().bind_memory(memory, bytes, 4711), UCS_ERR_INVALID_PARAM);
    std::free(memory);
}

}  // namespace
}  // namespace tagwire::ucs
