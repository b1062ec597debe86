// SPDX-License-Identifier: BSD-3-Clause
// Options of memory domains and queue pairs, and whether the device gets what they say: the virtual
// HCA whose functions the tests replace.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "entity.hpp"
#include "uct/ib/dc/dc_options.hpp"
#include "uct/ib/ib_component.hpp"
#include "uct/ib/ib_md.hpp"
#include "uct/ib/options.hpp"
#include "uct/ib/rc/rc_options.hpp"

namespace tagwire::ib {
namespace {

/// The functions of the virtual HCA, as they were when it goes.
class Replaced {
  public:
    Replaced() {
        for (const VerbsLibrary& library : verbs_libraries())
            if (library.origin == VerbsOrigin::kVirtual)
                table = const_cast<VerbsTable*>(&library.verbs);
        real = *table;
    }
    ~Replaced() { *table = real; }
    Replaced(const Replaced&) = delete;
    Replaced& operator=(const Replaced&) = delete;

    static inline VerbsTable* table = nullptr;
    static inline VerbsTable real{};
};

ucs_status_t open_with(const IbMdOptions& options, std::unique_ptr<uct::Md>* md_p) {
    uct::Md* md = nullptr;
    const ucs_status_t status = IbMd::open(component(), "vhca0", options, &md);
    md_p->reset(md);
    return status;
}

IbMdOptions default_options() {
    IbMdOptions options{};
    EXPECT_EQ(ucs::config_fill(md_options(), &options), UCS_OK);
    return options;
}

// ---- Entries of the port's tables

TEST(PortOptions, are_read_whole_or_refused) {
    const auto open = [](const char* gid_index, const char* pkey, PortChoice* choice_p) {
        IbMdOptions options = default_options();
        std::strcpy(options.gid_index.text, gid_index);
        std::strcpy(options.pkey.text, pkey);
        std::unique_ptr<uct::Md> md;
        const ucs_status_t status = open_with(options, &md);
        if (status == UCS_OK)
            *choice_p = static_cast<IbMd&>(*md).port_choice();
        return status;
    };
    PortChoice choice;
    EXPECT_EQ(UCS_OK, open("auto", "auto", &choice));
    EXPECT_EQ(-1, choice.gid_index);
    EXPECT_EQ(-1, choice.pkey);
    for (const char* pkey : {"0x8001", "8001", "1", "0X1"}) {
        choice = {};
        EXPECT_EQ(UCS_OK, open("3", pkey, &choice)) << pkey;
        EXPECT_EQ(3, choice.gid_index);
        EXPECT_EQ(1, choice.pkey) << pkey;
    }
    for (const char* pkey : {"", "0", "0x8000", "0x", "10000", "-1", "0x12 ", "part"})
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, open("auto", pkey, &choice)) << pkey;
    for (const char* index : {"", "-1", "0x1", "1,2", "4294967296"})
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, open(index, "auto", &choice)) << index;
}

// ---- Fork

TEST(ForkOption, is_tried_and_needed_only_if_asked_for) {
    const Replaced replaced;
    static int calls;
    calls = 0;
    Replaced::table->fork_init = [] {
        ++calls;
        return ENOSYS;
    };
    IbMdOptions options = default_options();
    std::unique_ptr<uct::Md> md;
    EXPECT_EQ(UCS_OK, open_with(options, &md));
    EXPECT_EQ(1, calls) << "the default tries";
    options.fork = static_cast<int>(ForkSupport::kYes);
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, open_with(options, &md));
    EXPECT_EQ(2, calls);
    options.fork = static_cast<int>(ForkSupport::kNo);
    EXPECT_EQ(UCS_OK, open_with(options, &md));
    EXPECT_EQ(2, calls);
}

// ---- Relaxed ordering

/// Access flags of the registrations that were made since.
std::vector<unsigned> accesses;

/// The order of a registration by this option that gives peers these rights.
bool is_relaxed(RelaxedOrdering ordering, unsigned flags) {
    const Replaced replaced;
    Replaced::table->reg_mr = [](ibv_pd* pd, void* address, std::size_t bytes, int access) {
        accesses.push_back(static_cast<unsigned>(access));
        return Replaced::real.reg_mr(pd, address, bytes, access);
    };
    Replaced::table->reg_mr_iova2 = [](ibv_pd* pd, void* address, std::size_t bytes,
                                       std::uint64_t iova, unsigned access) {
        accesses.push_back(access);
        return Replaced::real.reg_mr_iova2(pd, address, bytes, iova, access);
    };
    IbMdOptions options = default_options();
    options.relaxed_ordering = static_cast<int>(ordering);
    std::unique_ptr<uct::Md> md;
    EXPECT_EQ(UCS_OK, open_with(options, &md));
    std::array<std::byte, 4096> memory{};
    uct_mem_h memh = nullptr;
    accesses.clear();
    EXPECT_EQ(UCS_OK, md->mem_reg(memory.data(), memory.size(), flags, &memh));
    EXPECT_EQ(1U, accesses.size());
    EXPECT_EQ(UCS_OK, md->mem_dereg(memh));
    return (accesses.at(0) & IBV_ACCESS_RELAXED_ORDERING) != 0;
}

TEST(RelaxedOrderingOption, is_for_memory_that_no_peer_writes_to) {
    constexpr unsigned kLocal = UCT_MD_MEM_ACCESS_LOCAL_READ | UCT_MD_MEM_ACCESS_LOCAL_WRITE;
    constexpr unsigned kRead = kLocal | UCT_MD_MEM_ACCESS_REMOTE_GET;
    for (const unsigned written :
         {UCT_MD_MEM_ACCESS_REMOTE_PUT, UCT_MD_MEM_ACCESS_REMOTE_ATOMIC, UCT_MD_MEM_ACCESS_ALL}) {
        EXPECT_FALSE(is_relaxed(RelaxedOrdering::kAuto, kLocal | written));
        EXPECT_FALSE(is_relaxed(RelaxedOrdering::kNo, kLocal | written));
        EXPECT_TRUE(is_relaxed(RelaxedOrdering::kYes, kLocal | written));
    }
    EXPECT_TRUE(is_relaxed(RelaxedOrdering::kAuto, kRead));
    EXPECT_TRUE(is_relaxed(RelaxedOrdering::kYes, kRead));
    EXPECT_FALSE(is_relaxed(RelaxedOrdering::kNo, kRead));
}

TEST(RelaxedOrderingOption, is_left_out_where_the_library_does_not_know_it) {
    const Replaced replaced;
    Replaced::table->reg_mr_iova2 = nullptr;
    std::unique_ptr<uct::Md> md;
    ASSERT_EQ(UCS_OK, open_with(default_options(), &md));
    std::array<std::byte, 64> memory{};
    uct_mem_h memh = nullptr;
    EXPECT_EQ(UCS_OK,
              md->mem_reg(memory.data(), memory.size(), UCT_MD_MEM_ACCESS_REMOTE_GET, &memh));
    EXPECT_EQ(UCS_OK, md->mem_dereg(memh));
}

// ---- Retries

/// Without a variable of the environment as long as it lives: tests have shorter retries.
class Unset {
  public:
    explicit Unset(const char* name) : name_(name) {
        if (const char* value = std::getenv(name); value != nullptr)
            before_ = value;
        ::unsetenv(name);
    }
    ~Unset() {
        if (before_)
            ::setenv(name_, before_->c_str(), 1);
    }
    Unset(const Unset&) = delete;
    Unset& operator=(const Unset&) = delete;

  private:
    const char* name_;
    std::optional<std::string> before_;
};

// A sweep of the subnet manager or the failover of a bond takes up to four seconds.
TEST(RetryOptions, outlast_an_outage_of_the_network_by_default) {
    constexpr std::uint64_t kOutageNs = 5'000'000'000;
    const Unset of_rc("TAGWIRE_RC_TIMEOUT");
    const Unset of_dc("TAGWIRE_DC_TIMEOUT");
    rc::RcOptions rc{};
    dc::DcOptions dc{};
    ASSERT_EQ(ucs::config_fill(rc::rc_option_table(), &rc), UCS_OK);
    ASSERT_EQ(ucs::config_fill(dc::dc_option_table(), &dc), UCS_OK);
    for (const RetryOptions& retries : {rc.retries, dc.retries}) {
        EXPECT_LT(kOutageNs, retries.timeout_ns * (retries.retry_count + 1));
        EXPECT_GE(1'000'000U, retries.rnr_timer_ns);
    }
}

// A card may answer more reads at a time than it has under way itself.
TEST(ReadsOption, is_limited_by_what_a_queue_pair_may_have_under_way) {
    const Replaced replaced;
    static std::vector<unsigned> asked;
    asked.clear();
    Replaced::table->modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
        if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0)
            asked.push_back(attr->max_rd_atomic);
        return Replaced::real.modify_qp(qp, attr, mask);
    };
    test::EntityOptions options;
    options.before_iface = [](uct_md_h md) {
        Device& device = static_cast<IbMd&>(uct::md_of(md)).device();
        const_cast<ibv_device_attr&>(device.attr().orig_attr).max_qp_init_rd_atom = 3;
    };
    for (const char* transport : {"rc", "dc"}) {
        test::Entity entity(test::resource_of(transport), options);
        const test::Connection link = test::connect(entity, entity);
    }
    EXPECT_LE(3, std::ranges::count(asked, 3U)) << "two of rc, one of dc";
    for (const unsigned reads : asked)
        EXPECT_GE(3U, reads);
}

// ---- Gather elements

// Each makes every place of a send queue longer, whatever is sent.
TEST(GatherElements, of_a_queue_pair_are_those_that_the_option_says) {
    const Replaced replaced;
    static std::vector<unsigned> asked;
    asked.clear();
    Replaced::table->create_qp = [](ibv_pd* pd, ibv_qp_init_attr* init) {
        if (init->cap.max_send_wr > 1)
            asked.push_back(init->cap.max_send_sge);
        return Replaced::real.create_qp(pd, init);
    };
    test::EntityOptions options;
    for (const unsigned elements : {2U, 8U, 16U}) {
        options.md_config = {{"IB_TX_SGES", std::to_string(elements)}};
        const test::Entity entity(test::resource_of("rc"), options);
        EXPECT_EQ(elements - 1, entity.attr().cap.am.max_iov);
        EXPECT_EQ(elements - 1, entity.attr().cap.put.max_iov);
        EXPECT_EQ(elements, asked.back());
    }
    options.md_config = {{"IB_TX_SGES", "3"}};
    EXPECT_EQ(2U, test::Entity(test::resource_of("dc"), options).attr().cap.get.max_iov);
    EXPECT_EQ(7U, test::Entity(test::resource_of("rc")).attr().cap.am.max_iov);
}

// ---- A table of GIDs that changes

TEST(GidTable, that_has_changed_is_followed_by_new_endpoints) {
    constexpr std::uint32_t kEntry = 2;
    const Replaced replaced;
    static bool has_moved, was_told;
    static std::vector<unsigned> used;
    has_moved = was_told = false;
    used.clear();
    Replaced::table->query_gid_ex = [](ibv_context* context, std::uint32_t port,
                                       std::uint32_t index, ibv_gid_entry* entry,
                                       std::uint32_t flags, std::size_t bytes) {
        if (has_moved && index != kEntry)
            return ENODATA;
        return Replaced::real.query_gid_ex(context, port, 0, entry, flags, bytes);
    };
    Replaced::table->get_async_event = [](ibv_context* context, ibv_async_event* event) {
        if (!has_moved || std::exchange(was_told, true))
            return Replaced::real.get_async_event(context, event);
        event->event_type = IBV_EVENT_GID_CHANGE;
        event->element.port_num = 1;
        return 0;
    };
    Replaced::table->ack_async_event = [](ibv_async_event*) {};
    Replaced::table->modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
        if ((mask & IBV_QP_AV) != 0)
            used.push_back(attr->ah_attr.grh.sgid_index);
        return Replaced::real.modify_qp(qp, attr, mask);
    };
    test::EntityOptions options;
    options.iface_config = {{"RC_TAG_MATCHING", "software"}};
    test::Entity entity(test::resource_of("rc"), options);
    const test::Connection before = test::connect(entity, entity);
    EXPECT_EQ((std::vector{0U, 0U}), used);
    has_moved = true;
    for (int i = 0; i < 10'000'000 && fact_of(entity, "gid_index") != kEntry; ++i)
        entity.progress();
    const test::Connection after = test::connect(entity, entity);
    EXPECT_EQ((std::vector{0U, 0U, kEntry, kEntry}), used);
}

}  // namespace
}  // namespace tagwire::ib
