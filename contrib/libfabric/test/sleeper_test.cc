// SPDX-License-Identifier: BSD-3-Clause
// Parts of the provider that need no fabric: threads that sleep on one event, and tables of calls
// that later versions of libfabric have made longer.
#include "../sleeper.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>

namespace tagwire::fi_test {
namespace {

struct ContextDeleter {
    void operator()(tw_context_h context) const { tw_context_destroy(context); }
};
struct WorkerDeleter {
    void operator()(tw_worker_h worker) const { tw_worker_destroy(worker); }
};

// Threads are played by one: each step stands where the domain's lock lets a thread go on.
class FiSleeper : public ::testing::Test {
  protected:
    FiSleeper() { EXPECT_EQ(sleeper_.open(), 0); }

    bool is_readable() const {
        pollfd readable{sleeper_.fd(), POLLIN, 0};
        return ::poll(&readable, 1, 0) == 1;
    }

    fi::Sleeper sleeper_;
    fi::Sleep first_{sleeper_};
    fi::Sleep second_{sleeper_};
};

TEST_F(FiSleeper, a_ring_stays_until_the_last_of_those_who_slept_is_awake) {
    for (int round = 0; round < 3; ++round) {
        ASSERT_TRUE(first_.fall_asleep());
        ASSERT_TRUE(second_.fall_asleep());
        sleeper_.wake();
        first_.awake();
        ASSERT_FALSE(first_.fall_asleep()) << "it would take the ring of the other one away";
        second_.wait(-1);
        second_.awake();
    }
    EXPECT_TRUE(first_.fall_asleep());
    first_.awake();
}

TEST_F(FiSleeper, a_descriptor_stays_readable_whoever_sleeps_within_a_call) {
    ASSERT_TRUE(sleeper_.try_arm());
    EXPECT_FALSE(is_readable());
    sleeper_.wake();
    EXPECT_TRUE(is_readable());
    std::thread([this] {
        EXPECT_TRUE(first_.fall_asleep());
        first_.awake();
    }).join();
    EXPECT_TRUE(is_readable()) << "the thread that polls it has not been back";
}

// A worker with a completion refuses to be armed.
TEST_F(FiSleeper, who_cannot_fall_asleep_leaves_the_ring_to_those_who_did) {
    tw_context_params_t params{};
    params.transports = "sm";
    tw_context_h made = nullptr;
    ASSERT_EQ(tw_context_create(&params, &made), TW_OK);
    const std::unique_ptr<tw_context, ContextDeleter> context(made);
    tw_worker_h worker = nullptr;
    ASSERT_EQ(tw_worker_create(made, nullptr, &worker), TW_OK);
    const std::unique_ptr<tw_worker, WorkerDeleter> owned(worker);
    ASSERT_EQ(sleeper_.add(worker), 0);
    bool is_asleep = false;
    for (int i = 0; i < 1000 && !is_asleep; ++i) {
        tw_worker_progress(worker);
        is_asleep = first_.fall_asleep();
    }
    ASSERT_TRUE(is_asleep);
    // Its end waits to be polled: work for the first thread.
    tw_op_t reported{};
    reported.flags = TW_OP_COMPLETION;
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_recv(worker, nullptr, 0, 1, 0, &reported, &request), TW_INPROGRESS);
    ASSERT_EQ(tw_request_cancel(request), TW_OK);
    EXPECT_FALSE(second_.fall_asleep());
    sleeper_.wake();
    tw_completion_t done{};
    EXPECT_EQ(tw_worker_poll(worker, &done, 1), 1U);
    EXPECT_FALSE(second_.fall_asleep()) << "the first one has been rung for and is not awake";
    first_.awake();
    EXPECT_TRUE(second_.fall_asleep());
    second_.awake();
    sleeper_.remove(worker);
}

struct EarlierTable {
    std::size_t size;
    int (*call)(int);
};

struct LaterTable {
    std::size_t size;
    int (*call)(int);
    int (*insert_auth_key)(int);
    int (*lookup2)(int);
    long (*xpu_ctx)(int, int);
};

TEST(FiVersions, calls_that_a_later_table_has_are_refused_and_not_null) {
    const auto twice = [](int value) { return 2 * value; };
    const auto later = fi::with_later_calls(LaterTable{.size = sizeof(LaterTable),
                                                       .call = twice,
                                                       .insert_auth_key = nullptr,
                                                       .lookup2 = nullptr,
                                                       .xpu_ctx = nullptr},
                                            fi::kAbsent);
    EXPECT_EQ(later.call(21), 42);
    ASSERT_NE(later.insert_auth_key, nullptr);
    EXPECT_EQ(later.insert_auth_key(1), -FI_ENOSYS);
    ASSERT_NE(later.lookup2, nullptr);
    EXPECT_EQ(later.lookup2(1), -FI_ENOSYS);
    ASSERT_NE(later.xpu_ctx, nullptr);
    EXPECT_EQ(later.xpu_ctx(1, 2), -FI_ENOSYS);
    const auto earlier =
        fi::with_later_calls(EarlierTable{sizeof(EarlierTable), twice}, fi::kAbsent);
    EXPECT_EQ(earlier.call(21), 42);
}

/// fi_cq_err_entry from 1.20 on, whatever the headers here have.
struct LaterError {
    void* op_context;
    int err;
    void* err_data;
    std::size_t err_data_size;
    fi_addr_t src_addr;
};

/// The memory behind the entry that a program was built with stays as it was.
TEST(FiVersions, an_error_goes_no_further_than_the_entry_of_the_program) {
    struct {
        std::uint32_t version;
        std::size_t bytes;
    } const programs[] = {
        {FI_VERSION(1, 0), offsetof(LaterError, err_data_size)},
        {FI_VERSION(1, 4), offsetof(LaterError, err_data_size)},
        {FI_VERSION(1, 5), offsetof(LaterError, src_addr)},
        {FI_VERSION(1, 17), offsetof(LaterError, src_addr)},
        {FI_VERSION(1, 19), offsetof(LaterError, src_addr)},
        {FI_VERSION(1, 20), sizeof(LaterError)},
        {FI_VERSION(2, 7), sizeof(LaterError)},
    };
    constexpr unsigned char kCanary = 0xc5;
    for (const auto& program : programs) {
        LaterError entry;
        std::memset(&entry, kCanary, sizeof entry);
        int context = 0;
        fi::copy_error(entry, LaterError{&context, FI_ECANCELED, nullptr, 0, 7}, program.version);
        EXPECT_EQ(entry.op_context, &context);
        EXPECT_EQ(entry.err, FI_ECANCELED);
        const auto* bytes = reinterpret_cast<const unsigned char*>(&entry);
        for (std::size_t i = program.bytes; i < sizeof entry; ++i)
            EXPECT_EQ(bytes[i], kCanary) << "byte " << i << " of version " << program.version;
        if (program.bytes == sizeof entry) {
            EXPECT_EQ(entry.src_addr, FI_ADDR_NOTAVAIL);
        }
    }
}

}  // namespace
}  // namespace tagwire::fi_test
