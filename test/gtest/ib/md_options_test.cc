// SPDX-License-Identifier: BSD-3-Clause
// Options of memory domains and queue pairs, and whether the device gets what they say: the virtual
// HCA whose functions the tests replace.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <vector>

#include "entity.hpp"
#include "uct/ib/async_events.hpp"
#include "uct/ib/ib_md.hpp"

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

// ---- Events

// Queue pairs that are made to be tried have no mailbox.
TEST(AsyncEventsOfObjects, without_a_mailbox_are_nobody_s) {
    static std::vector<ibv_async_event> left;
    static ibv_qp qp{};
    VerbsTable verbs;
    verbs.get_async_event = [](ibv_context*, ibv_async_event* event) {
        if (left.empty())
            return -1;
        *event = left.back();
        left.pop_back();
        return 0;
    };
    verbs.ack_async_event = [](ibv_async_event*) {};
    ibv_context context{};
    AsyncEvents events(verbs, &context);
    Mailbox one, other;
    events.add(one);
    events.add(other);
    ibv_async_event event{};
    event.event_type = IBV_EVENT_QP_FATAL;
    event.element.qp = &qp;
    left = {event};
    EXPECT_TRUE(events.collect(one).empty());
    qp.qp_context = &other;
    left = {event};
    EXPECT_TRUE(events.collect(one).empty());
    EXPECT_EQ(1U, events.collect(other).size());
    event.event_type = IBV_EVENT_PORT_ERR;
    left = {event};
    EXPECT_EQ(1U, events.collect(one).size());
    EXPECT_EQ(1U, events.collect(other).size());
}

}  // namespace
}  // namespace tagwire::ib
