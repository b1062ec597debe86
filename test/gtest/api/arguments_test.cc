// SPDX-License-Identifier: BSD-3-Clause
// Arguments that the facade refuses, with which status, and those that it passes to the transport.
#include <gtest/gtest.h>
#include <uct/api/tagwire_uct.h>

#include <map>
#include <set>
#include <string>

#include "api/fake_transport.hpp"
#include "uct/completion.hpp"

namespace tagwire::test {
namespace {

struct Arguments : ::testing::Test {
    FakeWorld world;
};

using Component = Arguments;
using Domain = Arguments;
using Iface = Arguments;
using Ep = Arguments;

TEST_F(Component, foreign_and_null_handles_are_refused) {
    int foreign = 0;
    auto* component = reinterpret_cast<uct_component_h>(&foreign);
    uct_component_attr_t attr{};
    uct_md_config_t* config = nullptr;
    uct_rkey_bundle_t bundle{};
    unsigned count = 0;
    EXPECT_EQ(uct_component_query(component, &attr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(uct_component_query(nullptr, &attr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(uct_md_config_read(component, nullptr, nullptr, &config), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(uct_rkey_unpack(component, "key", &bundle), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(uct_query_components(nullptr, &count), UCS_ERR_INVALID_PARAM);
    const auto ignore = [](void*, const char*, const char*) {};
    EXPECT_EQ(tagwire_uct_component_describe(component, ignore, nullptr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(tagwire_uct_component_describe(nullptr, ignore, nullptr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(config, nullptr);
}

// Ranks are in addresses that peers of other versions read.
TEST(Transports, have_ranks_that_never_change) {
    std::map<std::string, unsigned> ranks;
    const auto add = [](void* arg, const tagwire_uct_transport_t* transport) {
        auto& known = *static_cast<std::map<std::string, unsigned>*>(arg);
        EXPECT_TRUE(known.emplace(transport->name, transport->first_contact_rank).second);
        EXPECT_NE(transport->component, nullptr);
    };
    ASSERT_EQ(tagwire_uct_transports(add, &ranks), UCS_OK);
    const std::map<std::string, unsigned> first{
        {"rc", 0}, {"tcp", 5}, {"dc", 10}, {"ud", 20}, {"sm", 30}};
    for (const auto& [name, rank] : first)
        EXPECT_EQ(ranks.at(name), rank) << name;
    std::set<unsigned> taken;
    for (const auto& [name, rank] : ranks) {
        EXPECT_LE(rank, 255U) << name;
        EXPECT_TRUE(rank == 0 || taken.insert(rank).second) << name;
    }
    EXPECT_EQ(tagwire_uct_transports(nullptr, nullptr), UCS_ERR_INVALID_PARAM);
}

TEST_F(Component, the_list_is_consistent_with_the_queries) {
    uct_component_h* components = nullptr;
    unsigned count = 0;
    ASSERT_EQ(uct_query_components(&components, &count), UCS_OK);
    std::set<std::string> names;
    for (unsigned i = 0; i < count; ++i) {
        uct_component_attr_t attr{};
        attr.field_mask = UCS_MASK(2);
        ASSERT_EQ(uct_component_query(components[i], &attr), UCS_OK);
        EXPECT_TRUE(names.insert(attr.name).second) << attr.name;
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
        attr.md_resources = nullptr;
        EXPECT_EQ(uct_component_query(components[i], &attr), UCS_ERR_INVALID_PARAM);
        attr.field_mask = UCS_BIT(4);
        EXPECT_EQ(uct_component_query(components[i], &attr), UCS_ERR_INVALID_PARAM);
        EXPECT_EQ(tagwire_uct_component_describe(components[i], nullptr, nullptr),
                  UCS_ERR_INVALID_PARAM);
    }
    uct_release_component_list(components);
    uct_release_component_list(nullptr);
}

TEST_F(Component, options_can_be_read_by_name_and_unknown_names_are_told) {
    char value[8] = "before";
    EXPECT_EQ(uct_config_get(world.config, "NO_SUCH_OPTION", value, sizeof value), UCS_ERR_NO_ELEM);
    EXPECT_STREQ(value, "before");
    testing::internal::CaptureStderr();
    EXPECT_EQ(uct_config_modify(world.config, "RC_TM_ENABLE", "y"), UCS_ERR_NO_ELEM);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");  // programs try names of UCX
    EXPECT_EQ(uct_config_get(nullptr, "X", value, sizeof value), UCS_ERR_INVALID_PARAM);
    std::uint64_t no_config[8] = {};
    EXPECT_EQ(uct_config_modify(no_config, "X", "1"), UCS_ERR_INVALID_PARAM);
    uct_config_release(no_config);  // logged, not freed
    uct_config_release(nullptr);
}

TEST_F(Component, every_option_is_listed_once) {
    std::set<std::string> names;
    const auto visit = [](void* arg, const tagwire_config_entry_t* entry) {
        EXPECT_TRUE(static_cast<std::set<std::string>*>(arg)->insert(entry->name).second)
            << entry->name;
        EXPECT_EQ(std::string(entry->name).rfind("TAGWIRE_", 0), 0u);
        EXPECT_STRNE(entry->doc, "");
    };
    EXPECT_EQ(tagwire_config_list(visit, &names), UCS_OK);
    EXPECT_TRUE(names.contains("TAGWIRE_LOG_LEVEL"));
    // "TAGWIRE_RC_" and the like; nobody reads a longer list.
    std::map<std::string, unsigned> per_table;
    for (const std::string& name : names)
        ++per_table[name.substr(0, name.find('_', sizeof "TAGWIRE_"))];
    for (const auto& [table, count] : per_table)
        EXPECT_LE(count, 20u) << table;
}

TEST_F(Domain, query_names_the_component) {
    uct_md_attr_t attr{};
    ASSERT_EQ(uct_md_query(world.md, &attr), UCS_OK);
    EXPECT_STREQ(attr.component_name, "fake");
    EXPECT_EQ(attr.rkey_packed_size, 8u);
    EXPECT_EQ(uct_md_query(nullptr, &attr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(uct_md_query(world.md, nullptr), UCS_ERR_INVALID_PARAM);
}

TEST_F(Domain, lists_its_transports) {
    uct_tl_resource_desc_t* list = nullptr;
    unsigned count = 0;
    ASSERT_EQ(uct_md_query_tl_resources(world.md, &list, &count), UCS_OK);
    ASSERT_EQ(count, 1u);
    EXPECT_STREQ(list[0].tl_name, "fake");
    EXPECT_STREQ(list[0].dev_name, "none");
    EXPECT_EQ(list[0].dev_type, UCT_DEVICE_TYPE_SELF);
    uct_release_tl_resource_list(list);
    uct_iface_config_t* config = nullptr;
    EXPECT_EQ(uct_md_iface_config_read(world.md, "other", nullptr, nullptr, &config),
              UCS_ERR_NO_DEVICE);
    EXPECT_EQ(uct_md_iface_config_read(world.md, nullptr, nullptr, nullptr, &config),
              UCS_ERR_UNSUPPORTED);
}

TEST_F(Domain, missing_operations_are_unsupported_and_bad_arguments_invalid) {
    char memory[16] = {};
    uct_mem_h memh = nullptr;
    ucs_memory_type_t type = UCS_MEMORY_TYPE_LAST;
    EXPECT_EQ(uct_md_mem_reg(world.md, memory, sizeof memory, UCT_MD_MEM_ACCESS_ALL, &memh),
              UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(uct_md_mem_reg(world.md, memory, 0, UCT_MD_MEM_ACCESS_ALL, &memh),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(uct_md_mem_reg(world.md, memory, sizeof memory, UCS_BIT(20), &memh),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(uct_md_mem_dereg(world.md, nullptr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(uct_md_detect_memory_type(world.md, memory, 1, &type), UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(type, UCS_MEMORY_TYPE_LAST);
    EXPECT_EQ(uct_md_mem_advise(world.md, memory, memory, 1, UCT_MADV_WILLNEED),
              UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(uct_md_is_sockaddr_accessible(world.md, nullptr, UCT_SOCKADDR_ACC_LOCAL), 0);
}

TEST_F(Domain, stays_open_under_its_interfaces) {
    FakeIface& iface = world.iface();
    EXPECT_EQ(world.md->iface_count(), 1u);
    uct_md_close(world.md);
    uct_worker_destroy(world.worker);
    uct_md_attr_t attr{};
    EXPECT_EQ(uct_md_query(world.md, &attr), UCS_OK);
    EXPECT_EQ(&iface.md(), world.md);
}

TEST_F(Iface, opens_only_on_what_the_domain_has) {
    uct_iface_params_t params = world.params();
    uct_iface_h iface = nullptr;
    params.mode.device.dev_name = "other";
    EXPECT_EQ(world.open(params, &iface), UCS_ERR_NO_DEVICE);
    params = world.params();
    EXPECT_EQ(uct_iface_open(world.md, world.worker, &params, nullptr, &iface),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(uct_iface_open(world.md, nullptr, &params, world.config, &iface),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(iface, nullptr);
    uct_iface_close(nullptr);
}

ucs_status_t count_am(void* arg, void*, size_t, unsigned) {
    ++*static_cast<int*>(arg);
    return UCS_OK;
}

TEST_F(Iface, am_handlers_are_checked_and_replaced) {
    FakeIface& iface = world.iface();
    int calls = 0;
    EXPECT_EQ(uct_iface_set_am_handler(&iface, UCT_AM_ID_MAX, count_am, &calls, 0),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(uct_iface_set_am_handler(&iface, 0, count_am, &calls, UCT_CB_FLAG_RESERVED),
              UCS_ERR_INVALID_PARAM);
    ASSERT_EQ(uct_iface_set_am_handler(&iface, 31, count_am, &calls, UCT_CB_FLAG_ASYNC), UCS_OK);
    iface.invoke_am(31, nullptr, 0, 0);
    EXPECT_EQ(calls, 1);
    ASSERT_EQ(uct_iface_set_am_handler(&iface, 31, nullptr, nullptr, 0), UCS_OK);
    EXPECT_EQ(tagwire_uct_iface_set_am_head_handler(nullptr, 0, nullptr, nullptr),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(tagwire_uct_iface_set_am_head_handler(&iface, UCT_AM_ID_MAX, nullptr, nullptr),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(tagwire_uct_iface_set_am_head_handler(&iface, 31, nullptr, nullptr), UCS_OK);
    EXPECT_EQ(iface.invoke_am(31, nullptr, 0, 0), UCS_OK);  // dropped
    EXPECT_EQ(calls, 1);
    iface.flags = 0;
    EXPECT_EQ(uct_iface_set_am_handler(&iface, 1, count_am, &calls, 0), UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(uct_iface_set_am_tracer(&iface, nullptr, nullptr), UCS_ERR_UNSUPPORTED);
}

TEST_F(Iface, arms_known_events_only) {
    FakeIface& iface = world.iface();
    EXPECT_EQ(uct_iface_event_arm(&iface, UCT_EVENT_RECV | UCT_EVENT_SEND_COMP), UCS_OK);
    EXPECT_EQ(iface.armed_events, 3u);
    EXPECT_EQ(uct_iface_event_arm(&iface, UCS_BIT(3)), UCS_ERR_INVALID_PARAM);
    int fd = -2;
    EXPECT_EQ(uct_iface_event_fd_get(&iface, &fd), UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(fd, -2);
}

TEST_F(Iface, tells_why_an_address_cannot_be_reached) {
    FakeIface& iface = world.iface();
    const auto* good = reinterpret_cast<const uct_iface_addr_t*>("yes!");
    const auto* bad = reinterpret_cast<const uct_iface_addr_t*>("no!!");
    char reason[64] = "before";
    EXPECT_EQ(uct_iface_is_reachable(&iface, nullptr, good),
              1);  // no device address: its length is 0
    EXPECT_EQ(uct_iface_is_reachable(&iface, nullptr, bad), 0);
    EXPECT_EQ(uct_iface_is_reachable(&iface, nullptr, nullptr), 0);
    EXPECT_EQ(tagwire_uct_iface_is_reachable_reason(&iface, nullptr, bad, reason, sizeof reason),
              0);
    EXPECT_STREQ(reason, "the address does not begin with y");
    EXPECT_EQ(tagwire_uct_iface_is_reachable_reason(&iface, nullptr, bad, reason, 4), 0);
    EXPECT_STREQ(reason, "the");
    EXPECT_EQ(tagwire_uct_iface_is_reachable_reason(&iface, nullptr, good, reason, sizeof reason),
              1);
    EXPECT_STREQ(reason, "");
    EXPECT_EQ(tagwire_uct_iface_is_reachable_reason(&iface, nullptr, bad, nullptr, 0), 0);
}

TEST_F(Iface, shows_counters_and_facts) {
    FakeIface& iface = world.iface();
    tagwire_uct_counter_t counters[2] = {};
    unsigned count = 0;
    EXPECT_EQ(tagwire_uct_iface_query_counters(&iface, nullptr, &count), UCS_ERR_BUFFER_TOO_SMALL);
    ASSERT_EQ(count, 2u);
    ASSERT_EQ(tagwire_uct_iface_query_counters(&iface, counters, &count), UCS_OK);
    EXPECT_STREQ(counters[1].name, "lost");
    std::map<std::string, std::string> facts;
    const auto keep = [](void* arg, const char* key, const char* value) {
        (*static_cast<std::map<std::string, std::string>*>(arg))[key] = value;
    };
    EXPECT_EQ(tagwire_uct_iface_describe(&iface, keep, &facts), UCS_OK);
    EXPECT_EQ(facts["kind"], "fake");
    EXPECT_EQ(facts["peers"], "3");
    EXPECT_EQ(tagwire_uct_iface_describe(&iface, nullptr, nullptr), UCS_ERR_INVALID_PARAM);
}

ucs_status_t note_failure(void* arg, uct_ep_h, ucs_status_t status) {
    *static_cast<ucs_status_t*>(arg) = status;
    return UCS_OK;
}

TEST_F(Iface, hands_failures_to_the_error_handler) {
    ucs_status_t seen = UCS_OK;
    uct_iface_params_t params = world.params();
    params.field_mask |= UCT_IFACE_PARAM_FIELD_ERR_HANDLER | UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG;
    params.err_handler = note_failure;
    params.err_handler_arg = &seen;
    ASSERT_EQ(world.open(params, &world.opened), UCS_OK);
    world.iface().report_failure(nullptr, UCS_ERR_CONNECTION_RESET);
    EXPECT_EQ(seen, UCS_ERR_CONNECTION_RESET);
}

TEST_F(Ep, addresses_go_together_and_are_not_null) {
    uct_ep_params_t params{};
    uct_ep_h ep = nullptr;
    EXPECT_EQ(uct_ep_create(&params, &ep), UCS_ERR_INVALID_PARAM);
    params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
    EXPECT_EQ(uct_ep_create(&params, &ep), UCS_ERR_INVALID_PARAM);
    params.iface = &world.iface();
    params.field_mask |= UCT_EP_PARAM_FIELD_DEV_ADDR;
    EXPECT_EQ(uct_ep_create(&params, &ep), UCS_ERR_INVALID_PARAM);
    params.field_mask |= UCT_EP_PARAM_FIELD_IFACE_ADDR;
    EXPECT_EQ(uct_ep_create(&params, &ep), UCS_ERR_INVALID_PARAM);  // iface_addr_len is 4
    params.iface_addr = reinterpret_cast<const uct_iface_addr_t*>("yes!");
    ASSERT_EQ(uct_ep_create(&params, &ep), UCS_OK);
    EXPECT_EQ(uct_ep_check(ep, 1, nullptr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(uct_ep_get_address(ep, nullptr), UCS_ERR_INVALID_PARAM);
    uct_ep_destroy(ep);
    uct_ep_destroy(nullptr);
}

TEST_F(Ep, connection_manager_is_unsupported_everywhere) {
    uct_ep_params_t params{};
    uct_ep_h ep = nullptr;
    params.field_mask = UCT_EP_PARAM_FIELD_CM;
    EXPECT_EQ(uct_ep_create(&params, &ep), UCS_ERR_UNSUPPORTED);
    params.field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_SOCKADDR;
    EXPECT_EQ(uct_ep_create(&params, &ep), UCS_ERR_UNSUPPORTED);
    params.field_mask = UCS_BIT(17);
    EXPECT_EQ(uct_ep_create(&params, &ep), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(uct_ep_disconnect(nullptr, 0), UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(uct_cm_open(nullptr, nullptr, nullptr, nullptr), UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(uct_listener_create(nullptr, nullptr, 0, nullptr, nullptr), UCS_ERR_UNSUPPORTED);
    uct_cm_close(nullptr);
}

TEST(Completion, counts_down_and_keeps_the_first_failure) {
    static int calls;
    calls = 0;
    uct_completion_t comp{[](uct_completion_t*) { ++calls; }, 3, UCS_OK};
    uct::invoke_completion(&comp, UCS_OK);
    uct::invoke_completion(&comp, UCS_ERR_CANCELED);
    EXPECT_EQ(calls, 0);
    uct::invoke_completion(&comp, UCS_ERR_IO_ERROR);
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(comp.status, UCS_ERR_CANCELED);
}

TEST(Status, every_value_has_a_text) {
    for (int value = UCS_INPROGRESS; value >= UCS_ERR_LAST; --value)
        EXPECT_STRNE(ucs_status_string(static_cast<ucs_status_t>(value)), "") << value;
    EXPECT_STREQ(ucs_status_string(UCS_ERR_LAST), "Unknown status");
    EXPECT_EQ(sizeof(ucs_status_t), 1u);
}

}  // namespace
}  // namespace tagwire::test
