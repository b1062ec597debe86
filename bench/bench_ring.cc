// SPDX-License-Identifier: BSD-3-Clause
// Costs of one message in the ring alone, without a second core: publishing, polling and freeing
// it; looking at empty rings; ringing a bell.
//
// All of it runs in one thread on one core, so the lines stay in its cache: these are the costs of
// the instructions, without the transfer between two cores (`tagwire perf`).
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "ucs/sys/process.hpp"
#include "ucs/sys/shm.hpp"
#include "uct/sm/buffer_pool.hpp"
#include "uct/sm/fences.hpp"
#include "uct/sm/iov.hpp"
#include "uct/sm/messages.hpp"
#include "uct/sm/ring.hpp"

namespace {

using tagwire::sm::AmSegBody;
using tagwire::sm::Control;
using tagwire::sm::HostFences;
using tagwire::sm::Kind;
using tagwire::sm::RingGeometry;
namespace sm = tagwire::sm;
namespace ucs = tagwire::ucs;

constexpr std::uint32_t kSlots = 256;

/// One ring with both its ends, in a real segment.
struct Ring {
    static constexpr std::size_t kPoolBytes = std::size_t{3} << 20;

    RingGeometry geometry{kSlots, 8256 + 64, kPoolBytes / sm::kBlockBytes,
                          static_cast<std::uint32_t>(ucs::page_bytes())};
    ucs::Mapping mapping;
    sm::RingSender<std::atomic, HostFences> sender;
    sm::RingReceiver<std::atomic, HostFences> receiver;
    std::unique_ptr<sm::BufferPool> pool = std::make_unique<sm::BufferPool>();
    sm::LentBuffers* lent = nullptr;
    sm::BufferReturns returns;

    explicit Ring(HostFences fences) {
        ucs::UniqueFd fd;
        if (ucs::memfd_create_sealed("bench-ring", geometry.bytes(), &fd) != UCS_OK ||
            ucs::map_shared(fd.get(), geometry.bytes(), &mapping) != UCS_OK ||
            pool->open({kPoolBytes, 0, kPoolBytes}) != UCS_OK) {
            std::abort();
        }
        auto* head = reinterpret_cast<sm::RingHead*>(mapping.base());
        auto* slots = reinterpret_cast<sm::Slot<>*>(mapping.base() + geometry.back_offset());
        sender = {slots, &head->back, kSlots, 0, fences};
        receiver = {slots, &head->back, kSlots, 0, fences};
        lent = pool->add_user(geometry, mapping.base());
        returns = sm::BufferReturns(geometry, mapping.base());
    }
};

/// A message in its slot: copy in, publish, look who sleeps, poll, copy out, free.
void inline_round_trip(benchmark::State& state, HostFences fences) {
    Ring ring(fences);
    const auto bytes = static_cast<std::size_t>(state.range(0));
    std::byte from[sm::kBodyBytes] = {}, to[sm::kBodyBytes];
    for (auto _ : state) {
        if (!ring.sender.has_room())
            ring.sender.refresh();
        sm::copy_short(ring.sender.slot().body, from, bytes);
        ring.sender.publish(Control::make(Kind::kAm, 1, static_cast<std::uint16_t>(bytes)));
        benchmark::DoNotOptimize(ring.sender.must_ring());
        const Control control = ring.receiver.peek();
        sm::copy_short(to, ring.receiver.body(), control.length());
        benchmark::DoNotOptimize(to);
        ring.receiver.advance();
    }
    state.SetItemsProcessed(state.iterations());
}
void inline_sleeper_pays(benchmark::State& state) {
    inline_round_trip(state, HostFences{false});
}
void inline_sender_pays(benchmark::State& state) {
    inline_round_trip(state, HostFences{true});
}
BENCHMARK(inline_sleeper_pays)->Arg(8)->Arg(56)->Arg(120);
BENCHMARK(inline_sender_pays)->Arg(8)->Arg(120);

/// A message in a buffer of the pool.
void buffer_round_trip(benchmark::State& state) {
    Ring ring(HostFences{false});
    const auto bytes = static_cast<std::size_t>(state.range(0));
    std::vector<std::byte> from(bytes), to(bytes);
    for (auto _ : state) {
        if (!ring.sender.has_room())
            ring.sender.refresh();
        benchmark::DoNotOptimize(ring.lent->has(1));
        const AmSegBody body{ring.lent->take(), 0, {}};
        std::memcpy(ring.lent->buffer(body.seg), from.data(), bytes);
        ring.lent->shrink(body.seg, bytes);
        std::memcpy(ring.sender.slot().body, &body, sizeof body);
        ring.sender.publish(Control::make(Kind::kAmSeg, 1, static_cast<std::uint16_t>(bytes)));
        benchmark::DoNotOptimize(ring.sender.must_ring());
        benchmark::DoNotOptimize(ring.receiver.peek());
        AmSegBody seen;
        std::memcpy(&seen, ring.receiver.body(), sizeof seen);
        std::memcpy(to.data(), ring.lent->buffer(seen.seg), bytes);
        benchmark::DoNotOptimize(to.data());
        ring.returns.give_back(seen.seg);
        ring.receiver.advance();
    }
    state.SetItemsProcessed(state.iterations());
    state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(buffer_round_trip)->Arg(256)->Arg(2048)->Arg(8256);

/// Polling rings that have nothing.
void idle_poll(benchmark::State& state) {
    std::vector<Ring> rings;
    for (std::int64_t i = 0; i < state.range(0); ++i)
        rings.emplace_back(HostFences{false});
    for (auto _ : state)
        for (auto& ring : rings)
            benchmark::DoNotOptimize(ring.receiver.peek());
    state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(idle_poll)->Arg(1)->Arg(4)->Arg(64);

/// The cost of the poll when all rings are cold: one look at the bell.
void idle_bell(benchmark::State& state) {
    sm::Bell<> bell{};
    for (auto _ : state)
        benchmark::DoNotOptimize(sm::collect_bell(bell, [](std::uint32_t) {}));
}
BENCHMARK(idle_bell);

/// A message to a cold ring: put to sleep, publish, ring, collect.
void bell_round_trip(benchmark::State& state) {
    if (!ucs::register_global_barrier())
        return state.SkipWithError("membarrier(2) is not available");
    Ring ring(HostFences{state.range(0) != 0});
    sm::Bell<> bell{};
    for (auto _ : state) {
        benchmark::DoNotOptimize(ring.receiver.try_sleep());
        if (!ring.sender.has_room())
            ring.sender.refresh();
        ring.sender.publish(Control::make(Kind::kAm, 1, 0));
        if (ring.sender.must_ring())
            sm::ring_bell(bell, 77);
        sm::collect_bell(bell, [&](std::uint32_t) { ring.receiver.wake(); });
        benchmark::DoNotOptimize(ring.receiver.peek());
        ring.receiver.advance();
    }
}
BENCHMARK(bell_round_trip)->ArgName("sender_pays")->Arg(0)->Arg(1);

}  // namespace
