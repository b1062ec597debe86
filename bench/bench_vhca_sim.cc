// SPDX-License-Identifier: BSD-3-Clause
// How many packets per second does the simulator of the virtual HCA carry on one core? A sweep over
// seeds costs what its packets cost.
#include <benchmark/benchmark.h>

#include <cstdint>

#include "vhca/core/world.hpp"

namespace {

using tagwire::vhca::SendWork;
using tagwire::vhca::World;
using tagwire::vhca::WorldOptions;

constexpr std::uint32_t kWindow = 64;

/// Packets that arrived, acknowledgements included.
class PacketRate {
  public:
    PacketRate(benchmark::State& state, World& world) : state_(state), world_(world) {}
    ~PacketRate() {
        state_.SetItemsProcessed(
            static_cast<std::int64_t>(world_.fabric.counters().delivered - before_));
    }

  private:
    benchmark::State& state_;
    World& world_;
    std::uint64_t before_ = world_.fabric.counters().delivered;
};

WorldOptions lossy(double loss) {
    WorldOptions options;
    options.fabric.loss = loss;
    options.connection.mtu = IBV_MTU_4096;
    options.node.memory_bytes = 1 << 20;
    options.node.cqe = 4 * kWindow;
    return options;
}

/// A window of sends, and of receives for them.
void short_sends(benchmark::State& state) {
    World world(lossy(static_cast<double>(state.range(0)) / 100));
    const PacketRate rate(state, world);
    for (auto _ : state) {
        for (std::uint32_t i = 0; i < kWindow; ++i)
            world.receive(i, 0, 64);
        for (std::uint32_t i = 0; i < kWindow; ++i)
            world.send(i, 0, 8);
        for (std::uint32_t i = 0; i < kWindow; ++i) {
            if (world.a.wait().wc.status != IBV_WC_SUCCESS)
                return state.SkipWithError("a send failed");
            world.b.wait();
        }
    }
}
BENCHMARK(short_sends)->ArgName("loss_percent")->Arg(0)->Arg(2);

/// Writes of sixteen packets each.
void long_writes(benchmark::State& state) {
    World world(lossy(static_cast<double>(state.range(0)) / 100));
    const PacketRate rate(state, world);
    for (auto _ : state) {
        const SendWork work = world.remote(IBV_WR_RDMA_WRITE, 0);
        world.send(1, 0, 64 * 1024, work);
        if (world.a.wait().wc.status != IBV_WC_SUCCESS)
            return state.SkipWithError("a write failed");
    }
}
BENCHMARK(long_writes)->ArgName("loss_percent")->Arg(0)->Arg(2);

}  // namespace
