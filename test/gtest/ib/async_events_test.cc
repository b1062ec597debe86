// SPDX-License-Identifier: BSD-3-Clause
// Asynchronous events find the interface that each concerns, for as long as it concerns it.
#include <gtest/gtest.h>

#include <vector>

#include "uct/ib/async_events.hpp"

namespace tagwire::ib {
namespace {

/// Events of a device that the test says.
class AsyncEventsOfObjects : public ::testing::Test {
  protected:
    AsyncEventsOfObjects() {
        left_.clear();
        verbs_.get_async_event = [](ibv_context*, ibv_async_event* event) {
            if (left_.empty())
                return -1;
            *event = left_.back();
            left_.pop_back();
            return 0;
        };
        verbs_.ack_async_event = [](ibv_async_event*) {};
        events_.add(one_);
        events_.add(other_);
    }
    static void happens(ibv_event_type type, ibv_qp* qp) {
        ibv_async_event event{};
        event.event_type = type;
        event.element.qp = qp;
        left_.insert(left_.begin(), event);
    }
    static ibv_qp qp_of(Mailbox* mailbox, std::uint32_t number) {
        ibv_qp qp{};
        qp.qp_context = mailbox;
        qp.qp_num = number;
        return qp;
    }

    static inline std::vector<ibv_async_event> left_;
    VerbsTable verbs_;
    ibv_context context_{};
    AsyncEvents events_{verbs_, &context_};
    Mailbox one_, other_;
};

// Queue pairs that are made to be tried have no mailbox.
TEST_F(AsyncEventsOfObjects, without_a_mailbox_are_nobody_s) {
    ibv_qp nobodys = qp_of(nullptr, 1), others = qp_of(&other_, 2);
    happens(IBV_EVENT_QP_FATAL, &nobodys);
    EXPECT_TRUE(events_.collect(one_).empty());
    happens(IBV_EVENT_QP_FATAL, &others);
    EXPECT_TRUE(events_.collect(one_).empty());
    EXPECT_EQ(1U, events_.collect(other_).size());
    happens(IBV_EVENT_PORT_ERR, nullptr);
    EXPECT_EQ(1U, events_.collect(one_).size());
    EXPECT_EQ(1U, events_.collect(other_).size());
}

TEST_F(AsyncEventsOfObjects, of_a_queue_pair_end_with_it) {
    ibv_qp gone = qp_of(&other_, 7), there = qp_of(&other_, 8);
    happens(IBV_EVENT_QP_FATAL, &gone);
    happens(IBV_EVENT_QP_FATAL, &there);
    happens(IBV_EVENT_PORT_ERR, nullptr);
    events_.collect(one_);
    events_.forget(other_, 7);  // another one may have the number from now on
    const auto left = events_.collect(other_);
    ASSERT_EQ(2U, left.size());
    EXPECT_EQ(8U, left[0].qp_num);
    EXPECT_EQ(IBV_EVENT_PORT_ERR, left[1].type);
}

}  // namespace
}  // namespace tagwire::ib
