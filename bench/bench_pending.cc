// SPDX-License-Identifier: BSD-3-Clause
// Cost of queuing a refused send and of running it again, with N endpoints waiting.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <deque>
#include <vector>

#include "uct/pending.hpp"

namespace {

using tagwire::uct::PendingGroup;
using tagwire::uct::PendingQueue;

std::vector<uct_pending_req_t> requests_with(std::size_t count, uct_pending_callback_t callback) {
    std::vector<uct_pending_req_t> requests(count);
    for (uct_pending_req_t& request : requests)
        request.func = callback;
    return requests;
}

void add_dispatch(benchmark::State& state) {
    const auto groups_count = static_cast<std::size_t>(state.range(0));
    std::deque<PendingGroup> groups(groups_count);
    auto requests = requests_with(groups_count, [](uct_pending_req_t*) { return UCS_OK; });
    PendingQueue queue;
    for (auto _ : state) {
        for (std::size_t i = 0; i < groups_count; ++i)
            queue.add(groups[i], &requests[i]);
        benchmark::DoNotOptimize(queue.dispatch(groups_count));
    }
    state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(add_dispatch)->ArgName("endpoints")->Arg(1)->Arg(64)->Arg(4096);

/** All endpoints still refuse; each dispatch asks 64 of them. */
void dispatch_refused(benchmark::State& state) {
    constexpr std::size_t kCallbacksMax = 64;
    const auto groups_count = static_cast<std::size_t>(state.range(0));
    std::deque<PendingGroup> groups(groups_count);
    auto requests =
        requests_with(groups_count, [](uct_pending_req_t*) { return UCS_ERR_NO_RESOURCE; });
    PendingQueue queue;
    for (std::size_t i = 0; i < groups_count; ++i)
        queue.add(groups[i], &requests[i]);
    for (auto _ : state)
        benchmark::DoNotOptimize(queue.dispatch(kCallbacksMax));
    for (PendingGroup& group : groups)
        queue.purge(group, [](uct_pending_req_t*) {});
}
BENCHMARK(dispatch_refused)->ArgName("endpoints")->Arg(1)->Arg(64)->Arg(4096);

void dispatch_empty(benchmark::State& state) {
    PendingQueue queue;
    for (auto _ : state)
        benchmark::DoNotOptimize(queue.dispatch(1));
}
BENCHMARK(dispatch_empty);

}  // namespace
