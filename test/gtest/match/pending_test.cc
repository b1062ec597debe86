// SPDX-License-Identifier: BSD-3-Clause
#include "uct/pending.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace tagwire::test {
namespace {

using testing::ElementsAre;
using uct::PendingGroup;
using uct::PendingQueue;

constexpr std::size_t kNoLimit = 1000;

/** A request whose callback is a lambda. */
struct Request {
    uct_pending_req_t pending;  // first: the callback finds the request from it
    std::function<ucs_status_t()> body;

    explicit Request(std::function<ucs_status_t()> action) : body(std::move(action)) {
        pending.func = [](uct_pending_req_t* self) {
            return reinterpret_cast<Request*>(self)->body();
        };
    }
};

class PendingTest : public testing::Test {
  protected:
    /** A request that writes down its number and returns `status`. */
    uct_pending_req_t* request(int number, ucs_status_t status = UCS_OK) {
        return request([this, number, status] {
            log_.push_back(number);
            return status;
        });
    }
    uct_pending_req_t* request(std::function<ucs_status_t()> body) {
        return &requests_.emplace_back(std::move(body)).pending;
    }
    void purge(PendingGroup& group) {
        queue_.purge(group, [](uct_pending_req_t*) {});
    }

    std::deque<Request> requests_;
    std::vector<int> log_;
    PendingQueue queue_;
    PendingGroup a_, b_, c_;
};

TEST_F(PendingTest, an_empty_queue_dispatches_nothing) {
    EXPECT_TRUE(queue_.empty());
    EXPECT_EQ(queue_.dispatch(kNoLimit), 0U);
}

TEST_F(PendingTest, requests_of_one_group_run_in_order) {
    for (int i = 0; i < 4; ++i)
        queue_.add(a_, request(i));
    EXPECT_TRUE(a_.blocks_sends());
    EXPECT_EQ(queue_.dispatch(kNoLimit), 4U);
    EXPECT_THAT(log_, ElementsAre(0, 1, 2, 3));
    EXPECT_TRUE(a_.empty());
    EXPECT_FALSE(a_.blocks_sends());
    EXPECT_TRUE(queue_.empty());
}

TEST_F(PendingTest, groups_take_turns) {
    for (int i = 0; i < 3; ++i)
        queue_.add(a_, request(10 + i));
    queue_.add(b_, request(20));
    for (int i = 0; i < 2; ++i)
        queue_.add(c_, request(30 + i));
    queue_.dispatch(kNoLimit);
    EXPECT_THAT(log_, ElementsAre(10, 20, 30, 11, 31, 12));
}

TEST_F(PendingTest, turns_go_on_where_the_last_dispatch_stopped) {
    for (int i = 0; i < 2; ++i) {
        queue_.add(a_, request(10 + i));
        queue_.add(b_, request(20 + i));
        queue_.add(c_, request(30 + i));
    }
    queue_.dispatch(2);
    queue_.dispatch(2);
    queue_.dispatch(2);
    EXPECT_THAT(log_, ElementsAre(10, 20, 30, 11, 21, 31));
}

TEST_F(PendingTest, a_refused_group_waits_for_the_next_dispatch_and_keeps_its_order) {
    queue_.add(a_, request(10, UCS_ERR_NO_RESOURCE));
    queue_.add(a_, request(11));
    queue_.add(b_, request(20));
    queue_.add(b_, request(21));
    EXPECT_EQ(queue_.dispatch(kNoLimit), 2U);
    EXPECT_THAT(log_, ElementsAre(10, 20, 21));
    EXPECT_FALSE(a_.empty());
    EXPECT_FALSE(queue_.empty());
    EXPECT_EQ(queue_.dispatch(kNoLimit), 0U);
    EXPECT_THAT(log_, ElementsAre(10, 20, 21, 10));
    purge(a_);
}

TEST_F(PendingTest, a_refused_group_does_not_take_the_turn_of_others) {
    queue_.add(a_, request(10, UCS_ERR_NO_RESOURCE));
    queue_.add(b_, request(20));
    queue_.add(c_, request(30));
    queue_.dispatch(1);
    queue_.dispatch(1);
    queue_.dispatch(1);
    EXPECT_THAT(log_, ElementsAre(10, 20, 30));
    purge(a_);
}

TEST_F(PendingTest, a_request_in_progress_stays_first_and_yields_to_others) {
    int pieces = 3;
    queue_.add(a_, request([&] {
                   log_.push_back(10);
                   return --pieces == 0 ? UCS_OK : UCS_INPROGRESS;
               }));
    queue_.add(a_, request(11));
    queue_.add(b_, request(20));
    EXPECT_EQ(queue_.dispatch(kNoLimit), 5U);
    EXPECT_THAT(log_, ElementsAre(10, 20, 10, 10, 11));
}

TEST_F(PendingTest, the_limit_ends_a_dispatch_that_would_never_end) {
    queue_.add(a_, request(10, UCS_INPROGRESS));
    EXPECT_EQ(queue_.dispatch(5), 5U);
    EXPECT_EQ(log_.size(), 5U);
    purge(a_);
}

TEST_F(PendingTest, sends_from_the_running_callback_pass_while_others_are_blocked) {
    queue_.add(a_, request([&] {
                   EXPECT_FALSE(a_.blocks_sends());
                   EXPECT_TRUE(b_.blocks_sends());
                   return UCS_OK;
               }));
    queue_.add(a_, request(11));
    queue_.add(b_, request(20));
    queue_.dispatch(1);
    EXPECT_TRUE(a_.blocks_sends());
    queue_.dispatch(kNoLimit);
}

TEST_F(PendingTest, callbacks_may_add_to_any_group) {
    queue_.add(a_, request([&] {
                   queue_.add(a_, request(11));
                   queue_.add(b_, request(20));
                   return UCS_OK;
               }));
    queue_.dispatch(kNoLimit);
    EXPECT_THAT(log_, ElementsAre(20, 11));
    EXPECT_TRUE(queue_.empty());
}

TEST_F(PendingTest, a_callback_may_add_its_own_request_anew) {
    uct_pending_req_t* again = nullptr;
    int runs = 0;
    again = request([&] {
        log_.push_back(10);
        if (++runs < 3)
            queue_.add(a_, again);
        return UCS_OK;
    });
    queue_.add(a_, again);
    queue_.add(a_, request(11));
    queue_.dispatch(kNoLimit);
    EXPECT_THAT(log_, ElementsAre(10, 11, 10, 10));
}

TEST_F(PendingTest, a_callback_may_free_its_request) {
    auto* heap = new Request({});
    heap->body = [heap] {
        delete heap;
        return UCS_OK;
    };
    queue_.add(a_, &heap->pending);
    queue_.add(a_, request(11));
    EXPECT_EQ(queue_.dispatch(kNoLimit), 2U);
    EXPECT_THAT(log_, ElementsAre(11));
}

TEST_F(PendingTest, dispatch_from_a_callback_does_nothing) {
    queue_.add(a_, request([&] {
                   EXPECT_EQ(queue_.dispatch(kNoLimit), 0U);
                   return UCS_OK;
               }));
    queue_.add(b_, request(20));
    EXPECT_EQ(queue_.dispatch(kNoLimit), 2U);
}

TEST_F(PendingTest, purge_hands_over_the_requests_of_one_group_in_order) {
    std::vector<uct_pending_req_t*> added;
    for (int i = 0; i < 3; ++i) {
        added.push_back(request(i));
        queue_.add(a_, added.back());
    }
    queue_.add(b_, request(20));
    std::vector<uct_pending_req_t*> purged;
    queue_.purge(a_, [&](uct_pending_req_t* each) { purged.push_back(each); });
    EXPECT_EQ(purged, added);
    EXPECT_TRUE(a_.empty());
    queue_.dispatch(kNoLimit);
    EXPECT_THAT(log_, ElementsAre(20));
}

TEST_F(PendingTest, purge_of_the_running_group_leaves_the_running_request) {
    queue_.add(a_, request([&] {
                   log_.push_back(10);
                   purge(a_);
                   return log_.size() == 1 ? UCS_ERR_NO_RESOURCE : UCS_OK;
               }));
    queue_.add(a_, request(11));
    queue_.dispatch(kNoLimit);
    EXPECT_FALSE(a_.empty());
    queue_.dispatch(kNoLimit);
    EXPECT_THAT(log_, ElementsAre(10, 10));
    EXPECT_TRUE(queue_.empty());
}

TEST_F(PendingTest, a_callback_may_purge_groups_that_wait_or_were_refused) {
    queue_.add(a_, request(10, UCS_ERR_NO_RESOURCE));
    queue_.add(b_, request([&] {
                   purge(a_);
                   purge(c_);
                   return UCS_OK;
               }));
    queue_.add(c_, request(30));
    queue_.dispatch(kNoLimit);
    EXPECT_THAT(log_, ElementsAre(10));
    EXPECT_TRUE(a_.empty() && c_.empty() && queue_.empty());
}

TEST_F(PendingTest, a_group_may_be_destroyed_while_others_wait) {
    auto doomed = std::make_unique<PendingGroup>();
    queue_.add(a_, request(10));
    queue_.add(*doomed, request(90));
    queue_.add(b_, request(20));
    purge(*doomed);
    doomed.reset();
    queue_.dispatch(kNoLimit);
    EXPECT_THAT(log_, ElementsAre(10, 20));
}

TEST_F(PendingTest, a_callback_may_destroy_its_own_group) {
    auto doomed = std::make_unique<PendingGroup>();
    queue_.add(*doomed, request([&] {
        purge(*doomed);
        doomed.reset();
        return UCS_OK;
    }));
    queue_.add(*doomed, request(91));
    queue_.add(b_, request(20));
    EXPECT_EQ(queue_.dispatch(kNoLimit), 2U);
    EXPECT_THAT(log_, ElementsAre(20));
    EXPECT_TRUE(queue_.empty());
}

TEST_F(PendingTest, no_group_starves_beside_one_that_is_never_empty) {
    std::function<ucs_status_t()> greedy = [&] {
        queue_.add(a_, request(greedy));
        return UCS_OK;
    };
    queue_.add(a_, request(greedy));
    for (int i = 0; i < 10; ++i)
        queue_.add(b_, request(20 + i));
    queue_.dispatch(20);
    EXPECT_EQ(log_.size(), 10U);
    purge(a_);
}

}  // namespace
}  // namespace tagwire::test
