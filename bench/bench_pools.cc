// SPDX-License-Identifier: BSD-3-Clause
// Costs of the building blocks of the data path: taking an element from a pool against malloc, and
// one round of a progress queue with 1 to 16 callbacks.
#include <benchmark/benchmark.h>
#include <ucs/datastruct/callbackq.h>

#include <cstdlib>
#include <vector>

#include "ucs/memory/mpool.hpp"

namespace {

using tagwire::ucs::Mpool;

constexpr std::size_t kElementBytes = 192;

// `in_use` elements are taken and put back in order, as a window of requests is.
void mpool_get_put(benchmark::State& state) {
    const auto in_use = static_cast<std::size_t>(state.range(0));
    Mpool pool;
    if (pool.init({.name = "bench", .element_bytes = kElementBytes}) != UCS_OK ||
        pool.reserve(in_use) != UCS_OK) {
        state.SkipWithError("no pool");
        return;
    }
    std::vector<void*> taken(in_use);
    for (auto _ : state) {
        for (void*& element : taken) {
            element = pool.get();
            benchmark::DoNotOptimize(element);
        }
        for (void* element : taken)
            pool.put(element);
    }
    state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(mpool_get_put)->Arg(1)->Arg(64)->Arg(1024);

void malloc_free(benchmark::State& state) {
    std::vector<void*> taken(static_cast<std::size_t>(state.range(0)));
    for (auto _ : state) {
        for (void*& element : taken) {
            element = std::malloc(kElementBytes);
            benchmark::DoNotOptimize(element);
        }
        for (void* element : taken)
            std::free(element);
    }
    state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(malloc_free)->Arg(1)->Arg(64)->Arg(1024);

unsigned count_call(void* arg) {
    ++*static_cast<std::uint64_t*>(arg);
    return 0;
}

void callbackq_dispatch(benchmark::State& state) {
    ucs_callbackq_t queue;
    if (ucs_callbackq_init(&queue) != UCS_OK) {
        state.SkipWithError("no queue");
        return;
    }
    std::uint64_t calls = 0;
    std::vector<int> ids;
    for (int i = 0; i < state.range(0); ++i)
        ids.push_back(ucs_callbackq_add(&queue, count_call, &calls, UCS_CALLBACKQ_FLAG_FAST));
    for (auto _ : state)
        benchmark::DoNotOptimize(ucs_callbackq_dispatch(&queue));
    if (calls != static_cast<std::uint64_t>(state.iterations() * state.range(0)))
        state.SkipWithError("a callback was left out");
    for (const int id : ids)
        ucs_callbackq_remove(&queue, id);
    ucs_callbackq_cleanup(&queue);
    state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(callbackq_dispatch)->Arg(1)->Arg(4)->Arg(8)->Arg(16);

}  // namespace
