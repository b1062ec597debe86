// SPDX-License-Identifier: BSD-3-Clause
// Plain calls on a worker while another thread has its lock for long: they return at once, and that
// thread carries them out, in order with everything else.
#include <poll.h>

#include <atomic>
#include <functional>
#include <semaphore>
#include <thread>

#include "protocols/fixture.hpp"
#include "protocols/worker/worker.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kPatienceNs = 60'000'000'000;

class MsgDelegated : public MsgTest {
  protected:
    void SetUp() override {
        MsgTest::SetUp();
        ep_ = shared_.to(shared_);
        leave_message(1);  // it is connected
        std::byte to{};
        EXPECT_EQ(receive(&to, 1, tw_op_t{}), TW_OK);
    }
    proto::Worker& core() { return proto::worker_of(shared_.worker()); }
    /// The calling thread acts while another one has the lock, which is open for delegated calls.
    void while_another_has_the_lock(const std::function<void()>& act) {
        std::binary_semaphore is_taken{0}, may_leave{0};
        std::thread owner([&] {
            core().lock.lock();
            core().lock.open();
            is_taken.release();
            may_leave.acquire();
            core().leave();
        });
        is_taken.acquire();
        act();
        may_leave.release();
        owner.join();
    }
    tw_status_t receive(std::byte* to, std::uint64_t tag, const tw_op_t& how) {
        return tw_tag_recv(shared_.worker(), to, 1, tag, 0, &how, nullptr);
    }
    tw_op_t counted(std::atomic<int>* ended) {
        tw_op_t how = op(ended);
        how.complete = [](const tw_completion_t* done) {
            EXPECT_EQ(done->status, TW_OK);
            ++*static_cast<std::atomic<int>*>(done->context);
        };
        return how;
    }
    /// A message that waits for a receive.
    void leave_message(std::uint64_t tag) {
        const std::uint64_t before = shared_.counter("rx_unexpected");
        EXPECT_GE(tw_tag_send(ep_, byte_.data(), 1, tag, nullptr, nullptr), TW_OK);
        progress_until([&] { return shared_.counter("rx_unexpected") > before; });
    }
    void progress_until(const std::function<bool()>& is_over) {
        while (!is_over())
            tw_worker_progress(shared_.worker());
    }

    Node shared_{context_.get(), TW_THREAD_MULTI};
    tw_ep_h ep_ = nullptr;
    const Bytes byte_ = pattern(1, 1);
};

TEST_F(MsgDelegated, a_send_and_a_receive_return_at_once) {
    std::atomic<int> ended{0};
    const tw_op_t how = counted(&ended);
    std::byte to[2] = {};
    while_another_has_the_lock([&] {
        EXPECT_EQ(tw_tag_send(ep_, "a", 1, 7, nullptr, nullptr), TW_OK);
        EXPECT_EQ(receive(&to[0], 7, how), TW_INPROGRESS);
        EXPECT_EQ(tw_msg_send(ep_, "b", 1, nullptr, nullptr), TW_OK);
        EXPECT_EQ(tw_msg_recv(shared_.worker(), &to[1], 1, &how, nullptr), TW_INPROGRESS);
        EXPECT_EQ(tw_worker_progress(shared_.worker()), TW_PROGRESS_BUSY);
    });
    EXPECT_EQ(ended, 0) << "callbacks run in progress";
    progress_until([&] { return ended == 2; });
    EXPECT_EQ(to[0], std::byte{'a'});
    EXPECT_EQ(to[1], std::byte{'b'});
}

TEST_F(MsgDelegated, a_receive_gets_the_message_that_waits) {
    leave_message(3);
    std::atomic<int> ended{0};
    std::byte to{};
    while_another_has_the_lock([&] { EXPECT_EQ(receive(&to, 3, counted(&ended)), TW_INPROGRESS); });
    EXPECT_EQ(ended, 0) << "callbacks run in progress";
    progress_until([&] { return ended == 1; });
    EXPECT_EQ(to, byte_[0]);
}

// More than the owner takes: the caller waits, and the rest goes in its order.
TEST_F(MsgDelegated, messages_stay_in_order_when_the_owner_takes_no_more) {
    constexpr unsigned char kMessages = 200;
    std::atomic<bool> is_over{false};
    std::thread owner([&] {
        while (!is_over) {
            core().lock.lock();
            core().lock.open();
            std::this_thread::yield();
            core().leave();
        }
    });
    for (unsigned char i = 0; i < kMessages; ++i)
        while (tw_tag_send(ep_, &i, 1, 5, nullptr, nullptr) < TW_OK)
            tw_worker_progress(shared_.worker());
    is_over = true;
    owner.join();
    for (unsigned char i = 0; i < kMessages; ++i) {
        std::atomic<int> ended{0};
        std::byte to{};
        const tw_op_t how = counted(&ended);
        if (receive(&to, 5, how) == TW_INPROGRESS)
            progress_until([&] { return ended == 1; });
        ASSERT_EQ(to, std::byte{i});
    }
}

TEST_F(MsgDelegated, calls_with_a_handle_and_others_wait_for_the_lock) {
    std::atomic<bool> has_called{false};
    std::byte to{};
    tw_request_h request = nullptr;
    std::thread caller;
    while_another_has_the_lock([&] {
        EXPECT_EQ(tw_tag_send(ep_, "x", 1, 4, nullptr, nullptr), TW_OK);
        caller = std::thread([&] {
            EXPECT_EQ(tw_tag_recv(shared_.worker(), &to, 1, 4, 0, nullptr, &request),
                      TW_INPROGRESS);
            has_called = true;
        });
        std::this_thread::yield();
        EXPECT_FALSE(has_called);
    });
    caller.join();
    EXPECT_EQ(tw_request_wait(request, TW_WAIT_YIELD, kPatienceNs, nullptr), TW_OK);
    EXPECT_EQ(to, std::byte{'x'}) << "what was delegated comes first";
    tw_request_free(request);
}

// The owner of the lock falls asleep when it has carried out a call that leaves work.
TEST_F(MsgDelegated, a_thread_that_falls_asleep_is_woken_by_what_it_carries_out) {
    leave_message(9);
    std::atomic<int> ended{0};
    std::byte to{};
    const tw_op_t how = counted(&ended);
    int fd = -1;
    ASSERT_EQ(tw_worker_fd(shared_.worker(), &fd), TW_OK);
    std::thread sleeper([&] {
        while (ended == 0)
            EXPECT_EQ(tw_worker_wait(shared_.worker(), TW_WAIT_SLEEP, kPatienceNs), TW_OK);
    });
    while_another_has_the_lock([&] { EXPECT_EQ(receive(&to, 9, how), TW_INPROGRESS); });
    sleeper.join();
    EXPECT_EQ(to, byte_[0]);
}

TEST_F(MsgDelegated, a_thread_that_arms_is_told_of_what_it_carries_out) {
    int fd = -1;
    ASSERT_EQ(tw_worker_fd(shared_.worker(), &fd), TW_OK);
    leave_message(9);
    std::atomic<int> ended{0};
    std::byte to{};
    const tw_op_t how = counted(&ended);
    for (ucs_status_t armed = UCS_ERR_BUSY; armed != UCS_OK;) {
        tw_worker_progress(shared_.worker());
        core().lock.lock();
        core().lock.open();
        armed = core().waiting().arm();
        if (armed == UCS_OK)
            std::thread([&] { EXPECT_EQ(receive(&to, 9, how), TW_INPROGRESS); }).join();
        core().leave();
    }
    pollfd polled{fd, POLLIN, 0};
    EXPECT_EQ(::poll(&polled, 1, 60'000), 1);
    progress_until([&] { return ended == 1; });
}

}  // namespace
}  // namespace tagwire::test
