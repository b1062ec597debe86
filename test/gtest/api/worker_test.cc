// SPDX-License-Identifier: BSD-3-Clause
#include "uct/worker.hpp"

#include <gtest/gtest.h>

#include "api/fake_transport.hpp"

namespace tagwire::test {
namespace {

unsigned count_call(void* arg) {
    return ++*static_cast<unsigned*>(arg);
}

TEST(Worker, accepts_every_thread_and_async_mode) {
    for (int async_mode = 0; async_mode < UCS_ASYNC_MODE_LAST; ++async_mode) {
        ucs_async_context_t* async = nullptr;
        ASSERT_EQ(ucs_async_context_create(static_cast<ucs_async_mode_t>(async_mode), &async),
                  UCS_OK);
        ucs_async_poll(async);
        for (int mode = 0; mode < UCS_THREAD_MODE_LAST; ++mode) {
            uct_worker_h worker = nullptr;
            ASSERT_EQ(uct_worker_create(async, static_cast<ucs_thread_mode_t>(mode), &worker),
                      UCS_OK);
            EXPECT_EQ(uct_worker_progress(worker), 0u);
            uct_worker_destroy(worker);
        }
        ucs_async_context_destroy(async);
    }
}

TEST(Worker, bad_arguments_are_refused) {
    ucs_async_context_t* async = nullptr;
    uct_worker_h worker = nullptr;
    EXPECT_EQ(ucs_async_context_create(UCS_ASYNC_MODE_LAST, &async), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucs_async_context_create(UCS_ASYNC_MODE_POLL, nullptr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(uct_worker_create(nullptr, UCS_THREAD_MODE_SINGLE, &worker), UCS_ERR_INVALID_PARAM);
    ASSERT_EQ(ucs_async_context_create(UCS_ASYNC_MODE_POLL, &async), UCS_OK);
    EXPECT_EQ(uct_worker_create(async, UCS_THREAD_MODE_LAST, &worker), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(worker, nullptr);
    uct_worker_destroy(nullptr);
    ucs_async_context_destroy(async);
    ucs_async_context_destroy(nullptr);
}

TEST(Worker, registers_a_callback_once_and_unregisters_it) {
    FakeWorld world;
    unsigned calls = 0;
    uct_worker_cb_id_t id = UCS_CALLBACKQ_ID_NULL;
    uct_worker_progress_register_safe(world.worker, count_call, &calls, 0, &id);
    const uct_worker_cb_id_t first = id;
    EXPECT_NE(id, UCS_CALLBACKQ_ID_NULL);
    uct_worker_progress_register_safe(world.worker, count_call, &calls, 0, &id);
    EXPECT_EQ(id, first);
    for (int i = 0; i < 3; ++i)
        uct_worker_progress(world.worker);
    EXPECT_GE(calls, 2u);
    uct_worker_progress_unregister_safe(world.worker, &id);
    EXPECT_EQ(id, UCS_CALLBACKQ_ID_NULL);
    uct_worker_progress_unregister_safe(world.worker, &id);
    uct_worker_progress(world.worker);
    const unsigned before = calls;
    uct_worker_progress(world.worker);
    EXPECT_EQ(calls, before);
}

TEST(Worker, progresses_an_interface_exactly_while_it_is_enabled) {
    FakeWorld world;
    FakeIface& iface = world.iface();
    uct_worker_progress(world.worker);
    EXPECT_EQ(iface.progress_calls, 0u);
    uct_iface_progress_enable(&iface, UCT_PROGRESS_SEND);
    uct_iface_progress_enable(&iface, UCT_PROGRESS_RECV);
    uct_worker_progress(world.worker);
    EXPECT_EQ(iface.progress_calls, 1u);
    uct_iface_progress_disable(&iface, UCT_PROGRESS_SEND);
    uct_worker_progress(world.worker);
    EXPECT_EQ(iface.progress_calls, 2u);
    uct_iface_progress_disable(&iface, UCT_PROGRESS_RECV);
    uct_worker_progress(world.worker);
    EXPECT_EQ(iface.progress_calls, 2u);
    EXPECT_EQ(uct_iface_progress(&iface), 3u);
}

TEST(Worker, an_interface_that_is_closed_is_not_progressed) {
    FakeWorld world;
    uct_iface_progress_enable(&world.iface(),
                              UCT_PROGRESS_SEND | UCT_PROGRESS_RECV | UCT_PROGRESS_THREAD_SAFE);
    uct_worker_progress(world.worker);
    uct_iface_close(world.opened);
    world.opened = nullptr;
    EXPECT_EQ(uct_worker_progress(world.worker), 0u);
}

}  // namespace
}  // namespace tagwire::test
