// SPDX-License-Identifier: BSD-3-Clause
// Not a test: prints how many packets per second the simulator carries on one core. A sweep over
// seeds costs what its packets cost.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>

#include "vhca/test/core/world.hpp"

namespace {

using tagwire::vhca::SendWork;
using tagwire::vhca::World;
using tagwire::vhca::WorldOptions;

constexpr std::uint32_t kWindow = 64;

double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void expect_success(const tagwire::vhca::Completion& completion) {
    if (completion.wc.status != IBV_WC_SUCCESS)
        std::printf("completion with status %d\n", completion.wc.status);
}

/// A window of sends, and of receives for them.
void short_sends(World& world) {
    for (std::uint32_t i = 0; i < kWindow; ++i)
        world.receive(i, 0, 64);
    for (std::uint32_t i = 0; i < kWindow; ++i)
        world.send(i, 0, 8);
    for (std::uint32_t i = 0; i < kWindow; ++i) {
        expect_success(world.a.wait());
        expect_success(world.b.wait());
    }
}

/// Sixteen packets.
void long_write(World& world) {
    const SendWork work = world.remote(IBV_WR_RDMA_WRITE, 0);
    world.send(1, 0, 64 * 1024, work);
    expect_success(world.a.wait());
}

/// The best of five rounds; acknowledgements count, too.
double packets_per_second(double loss, const std::function<void(World&)>& work) {
    WorldOptions options;
    options.fabric.loss = loss;
    options.connection.mtu = IBV_MTU_4096;
    options.node.memory_bytes = 1 << 20;
    World world(options);
    double best = 0;
    for (int round = 0; round < 5; ++round) {
        const std::uint64_t before = world.fabric.counters().delivered;
        const double start = cpu_seconds();
        for (int i = 0; i < 3000; ++i)
            work(world);
        const auto packets = static_cast<double>(world.fabric.counters().delivered - before);
        best = std::max(best, packets / (cpu_seconds() - start));
    }
    return best;
}

}  // namespace

int main() {
    for (const double loss : {0.0, 0.02}) {
        std::printf(
            "%.0f %% loss: sends of 8 bytes %.2f, writes of 64 KiB %.2f million packets/s\n",
            100 * loss, packets_per_second(loss, short_sends) / 1e6,
            packets_per_second(loss, long_write) / 1e6);
    }
}
