// SPDX-License-Identifier: BSD-3-Clause
// The C API: completion queues and counters. Arguments are checked here.
#include <algorithm>
#include <bit>
#include <memory>

#include "protocols/api/tw_completion.h"
#include "protocols/completion/completion_counter.hpp"
#include "protocols/request/context.hpp"
#include "protocols/request/refuse.hpp"
#include "ucs/time/clock.hpp"

using namespace tagwire::proto;
using tagwire::ucs::read_sized;

namespace {

constexpr std::size_t kDefaultCapacity = 1024;

/// The time at which a wait ends; 0: it does not sleep.
std::uint64_t end_of_wait(std::uint64_t timeout_ns) {
    if (timeout_ns == 0 || timeout_ns == UINT64_MAX)
        return timeout_ns;
    const std::uint64_t now = tagwire::ucs::clock_now_ns();
    return now + std::min(timeout_ns, UINT64_MAX - now);
}

}  // namespace

extern "C" {

tw_status_t tw_cq_create(tw_context_h context, const tw_cq_params_t* params, tw_cq_h* cq_p) try {
    TW_REFUSE_NULL(context);
    TW_REFUSE_NULL(cq_p);
    if (params != nullptr)
        TW_REFUSE_SIZE(params);
    const auto chosen = params == nullptr ? tw_cq_params_t{} : read_sized(*params);
    const std::size_t capacity = chosen.capacity == 0 ? kDefaultCapacity : chosen.capacity;
    if (!std::has_single_bit(capacity) || capacity < 2 || capacity > TW_CQ_CAPACITY_MAX)
        TW_REFUSE(TW_ERR_INVALID_PARAM,
                  "params->capacity is %zu; expected a power of two from 2 to %zu", capacity,
                  TW_CQ_CAPACITY_MAX);
    auto queue = std::make_unique<CompletionQueue>(context_of(context), capacity);
    context_of(context).add(*queue);
    *cq_p = queue.release();
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

void tw_cq_destroy(tw_cq_h cq) {
    if (cq == nullptr)
        return;
    CompletionQueue& queue = queue_of(cq);
    if (const std::uint32_t users = queue.users().count()) {
        TW_LOG_ERROR(
            "tw_cq_destroy: %u operations that have not ended name the queue; end them "
            "first",
            users);
        return;
    }
    if (queue.has_sleepers()) {
        TW_LOG_ERROR("tw_cq_destroy: threads wait for the queue; call tw_cq_signal() first");
        return;
    }
    queue.users().drain();
    queue.drop_kept();
    queue.context().remove(queue);
    delete &queue;
}

unsigned tw_cq_poll(tw_cq_h cq, tw_completion_t* completions, unsigned max) {
    if (cq == nullptr || completions == nullptr) [[unlikely]] {
        TW_LOG_ERROR("tw_cq_poll: %s is NULL", cq == nullptr ? "cq" : "completions");
        return 0;
    }
    return queue_of(cq).poll(completions, max);
}

tw_status_t tw_cq_wait(tw_cq_h cq, tw_completion_t* completions, unsigned max, uint64_t timeout_ns,
                       unsigned* count_p) {
    TW_REFUSE_NULL(cq);
    TW_REFUSE_NULL(completions);
    TW_REFUSE_NULL(count_p);
    if (max == 0)
        TW_REFUSE(TW_ERR_INVALID_PARAM, "max is 0");
    switch (queue_of(cq).wait_until(completions, max, end_of_wait(timeout_ns), count_p)) {
        case CqWait::kSome:
            return TW_OK;
        case CqWait::kClosed:
            return TW_ERR_CANCELED;
        case CqWait::kTimedOut:
            break;
    }
    return TW_ERR_TIMED_OUT;
}

tw_status_t tw_cq_signal(tw_cq_h cq) {
    TW_REFUSE_NULL(cq);
    queue_of(cq).close();
    return TW_OK;
}

tw_status_t tw_counter_create(tw_counter_h* counter_p) try {
    TW_REFUSE_NULL(counter_p);
    *counter_p = std::make_unique<CompletionCounter>().release();
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

void tw_counter_destroy(tw_counter_h handle) {
    if (handle == nullptr)
        return;
    CompletionCounter& counter = counter_of(handle);
    if (const std::uint32_t users = counter.users().count()) {
        TW_LOG_ERROR(
            "tw_counter_destroy: %u operations that have not ended, or memory handles, name the "
            "counter; end them first",
            users);
        return;
    }
    if (counter.has_sleepers()) {
        TW_LOG_ERROR("tw_counter_destroy: threads wait for the counter");
        return;
    }
    counter.users().drain();
    delete &counter;
}

tw_status_t tw_counter_read(tw_counter_h counter, uint64_t* successes_p, uint64_t* failures_p) {
    TW_REFUSE_NULL(counter);
    if (successes_p != nullptr)
        *successes_p = counter_of(counter).successes();
    if (failures_p != nullptr)
        *failures_p = counter_of(counter).failures();
    return TW_OK;
}

tw_status_t tw_counter_add(tw_counter_h counter, uint64_t successes, uint64_t failures) {
    TW_REFUSE_NULL(counter);
    counter_of(counter).add_by_hand(successes, failures);
    return TW_OK;
}

tw_status_t tw_counter_wait(tw_counter_h counter, uint64_t number, uint64_t timeout_ns) {
    TW_REFUSE_NULL(counter);
    return counter_of(counter).wait_until(number, end_of_wait(timeout_ns)) ? TW_OK
                                                                           : TW_ERR_TIMED_OUT;
}

}  // extern "C"
