// SPDX-License-Identifier: BSD-3-Clause
// The two sides of a soak. In each round both send some messages, all drawn from the seed, so each
// side knows what has to come; the driver then says whether there is another round.
#include "tools/soak.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <random>

#include "cli/failure.hpp"
#include "tools/msg_link.hpp"
#include "tools/other_side.hpp"
#include "tools/pattern.hpp"
#include "tools/resources.hpp"
#include "tools/session.hpp"
#include "tools/soak_side.hpp"
#include "tools/stats.hpp"

namespace tagwire::tools {
namespace {

void print_summary(const SoakCounts& counts, double seconds) {
    constexpr std::array<const char*, SoakCounts::kKinds> kNames{
        "tagged",  "untagged",  "inject", "imm",  "directed",  "wildcard",
        "claimed", "discarded", "puts",   "gets", "additions", "active"};
    std::printf("soak: %llu messages, %llu bytes in %.1f s, every byte right\n",
                static_cast<unsigned long long>(counts.messages),
                static_cast<unsigned long long>(counts.bytes), seconds);
    for (std::size_t kind = 0; kind < kNames.size(); ++kind) {
        std::printf("  %-10s %llu\n", kNames[kind],
                    static_cast<unsigned long long>(counts.kinds[kind]));
    }
    std::printf("  %-10s %llu\n", "cancelled", static_cast<unsigned long long>(counts.cancels));
}

}  // namespace

void run_soak(const SoakArguments& arguments) {
    const std::uint64_t seed = arguments.seed.value_or(std::random_device{}());
    const std::string transports =
        arguments.transports ? *arguments.transports : transports_set().value_or("sm");
    std::printf("soak: seed %llu, transports %s\n", static_cast<unsigned long long>(seed),
                transports.c_str());
    std::fflush(stdout);
    Setup setup;
    setup.level = Level::kMsg;
    setup.transport = transports;
    setup.wait = Wait::kYield;
    const std::unique_ptr<Channel> channel = start_other_side([&](Channel& to) {
        SoakSide side(Side::kPeer, setup, &to, seed);
        side.run(0);
        side.finish_as_peer();
    });
    const std::uint64_t start = now_ns();
    try {
        SoakSide side(Side::kDriver, setup, channel.get(), seed);
        side.run(start + arguments.seconds * 1'000'000'000);
        const SoakCounts counts = side.finish_as_driver();
        print_summary(counts, static_cast<double>(now_ns() - start) * 1e-9);
    } catch (const Failure&) {
        if (channel->stalled())
            channel->receive();  // throws what the other side has to say: nearer to the cause
        throw;
    }
}

}  // namespace tagwire::tools
