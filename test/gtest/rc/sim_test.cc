// SPDX-License-Identifier: BSD-3-Clause
// Random traffic between several rc interfaces, against a model. The faults of the fabric are set
// for the whole process (TAGWIRE_VHCA_LOSS and so on); the variants of this test set them.
//
// The seed decides the operations, not when packets move: a repeated run may interleave otherwise
// than the first one.
#include <cstdlib>

#include "common/seeds.hpp"
#include "common/skip.hpp"
#include "rc/sim.hpp"

namespace tagwire::test {
namespace {

bool device_matches() {
    const Entity probe(resource_of("rc"));
    return probe.attr().cap.tag.recv.min_recv > 0;
}

void run(std::uint64_t seed, bool has_device_tags, bool has_crash) {
    Sim sim(seed, {.has_device_tags = has_device_tags, .has_crash = has_crash});
    sim.run();
}

constexpr std::uint64_t kRounds = 100;

TEST(RcSim, nothing_is_lost_and_nothing_twice_where_the_device_matches) {
    if (!device_matches())
        TW_SKIP("the device has no tag matching");
    for_each_seed(kRounds, [](std::uint64_t seed) { run(seed, true, false); });
}

TEST(RcSim, nothing_is_lost_and_nothing_twice_where_software_matches) {
    for_each_seed(kRounds, [](std::uint64_t seed) { run(seed, false, false); });
}

TEST(RcSim, whoever_goes_takes_nobody_along_where_the_device_matches) {
    if (!device_matches())
        TW_SKIP("the device has no tag matching");
    for_each_seed(kRounds, [](std::uint64_t seed) { run(seed, true, true); });
}

TEST(RcSim, whoever_goes_takes_nobody_along_where_software_matches) {
    for_each_seed(kRounds, [](std::uint64_t seed) { run(seed, false, true); });
}

}  // namespace
}  // namespace tagwire::test
