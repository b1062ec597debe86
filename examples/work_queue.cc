// SPDX-License-Identifier: BSD-3-Clause
// A work queue: rank 0 gives tasks to any rank that asks. It receives any kind of message from any
// rank (wildcards), and the completion tells the sender and the kind.
#include <cstdio>

#include "job.hpp"

namespace {

constexpr std::uint64_t kTasks = 2000;

// Tags: the kind above, the task below.
constexpr std::uint64_t kKind = std::uint64_t{0xff} << 56;
constexpr std::uint64_t kReady = std::uint64_t{1} << 56, kResult = std::uint64_t{2} << 56,
                        kTask = std::uint64_t{3} << 56, kStop = std::uint64_t{4} << 56;

/// A task: counts the steps from `number` to 1 (Collatz).
std::uint64_t solve(std::uint64_t number) {
    std::uint64_t steps = 0;
    for (; number != 1; ++steps)
        number = number % 2 == 0 ? number / 2 : 3 * number + 1;
    return steps;
}

tw_completion_t receive_any(const Rank& me, std::uint64_t* value) {
    tw_message_info_t info{};
    msg::Request request;
    const auto buffer = std::as_writable_bytes(std::span(value, 1));
    const tw_status_t status =
        me.worker().tag_recv(buffer, 0, ~std::uint64_t{0}, {msg::Op().tell(info), request});
    const tw_completion_t done = status == TW_INPROGRESS
                                     ? me.worker().finish(request)
                                     : msg::completion_of(status, info, buffer.size());
    msg::check(done.status, "receive");
    return done;
}

void serve(const Rank& me) {
    std::vector<std::uint64_t> results(kTasks + 1), given(me.size());
    std::uint64_t next = 1, value = 0;
    std::size_t working = me.size() - 1;
    while (working > 0) {
        const tw_completion_t done = receive_any(me, &value);
        if ((done.tag & kKind) == kResult) {
            results.at(done.tag & ~kKind) = value;
            continue;
        }
        const std::size_t who = me.source_of(done);
        const bool is_over = next > kTasks;
        me.send(who, std::span<const std::uint64_t>(&next, 1), is_over ? kStop : kTask | next);
        given[who] += !is_over;
        next += !is_over;
        working -= is_over;
    }
    for (std::uint64_t task = 1; task <= kTasks; ++task)
        if (results[task] != solve(task))
            throw std::runtime_error("task " + std::to_string(task) + " is wrong");
    std::printf("work_queue: %llu tasks, done by", static_cast<unsigned long long>(kTasks));
    for (std::size_t rank = 1; rank < me.size(); ++rank)
        std::printf(" %llu", static_cast<unsigned long long>(given[rank]));
    std::printf(": right\n");
}

void work(const Rank& me) {
    for (;;) {
        std::uint64_t task = 0;
        me.send(0, std::span<const std::uint64_t>(&task, 1), kReady);
        const tw_completion_t done = receive_any(me, &task);
        if ((done.tag & kKind) == kStop)
            return;
        const std::uint64_t result = solve(task);
        me.send(0, std::span<const std::uint64_t>(&result, 1), kResult | task);
    }
}

}  // namespace

int main() {
    return run_ranks(4, [](Rank& me) {
        if (me.rank() == 0)
            serve(me);
        else
            work(me);
    });
}
