// SPDX-License-Identifier: BSD-3-Clause
//
// Random scenarios for the matchers. rapidcheck prints its seed first, and for a failure the shrunk
// scenario and a line `RC_PARAMS="reproduce=..."`: set that variable and run the same case to
// replay it. `RC_PARAMS="seed=N"` runs everything from one seed, `RC_PARAMS="max_success=N"` more
// scenarios.

#pragma once

#include <rapidcheck.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <tuple>
#include <vector>

#include "match/matcher_model.hpp"

namespace tagwire::test {

// Masks of all sorts, exact ones most often.
inline constexpr std::uint64_t kScenarioMasks[] = {
    ~0ULL,
    ~0ULL,
    ~0ULL,
    ~0ULL,
    0,
    0x00000000ffffffffU,
    0xffffffff00000000U,
    1,
    0x0000000100000001U,
    1ULL << 63,
    0x5555555555555555U,
    0xfffffffffffffffeU,
};

/** MPI-like tags: a part that a program's library sets in the upper half, a user's tag below. */
inline std::uint64_t make_tag(unsigned upper, unsigned lower) {
    return (static_cast<std::uint64_t>(upper) << 32) | lower;
}

inline rc::Gen<MatcherStep> any_step() {
    using Kind = MatcherStep::Kind;
    const std::vector<std::uint64_t> masks(std::begin(kScenarioMasks), std::end(kScenarioMasks));
    return rc::gen::map(
        rc::gen::tuple(
            rc::gen::weightedElement<Kind>({{5, Kind::kAdd}, {4, Kind::kTake}, {1, Kind::kRemove}}),
            rc::gen::inRange(0U, 4U), rc::gen::inRange(0U, 4U), rc::gen::elementOf(masks),
            rc::gen::inRange<std::size_t>(0, 1000), rc::gen::inRange<std::uint32_t>(0, 3),
            rc::gen::arbitrary<bool>()),
        [](const auto& parts) {
            const auto& [kind, upper, lower, mask, position, source, is_directed] = parts;
            return MatcherStep{kind, make_tag(upper, lower), mask, position, source, is_directed};
        });
}

inline rc::Gen<std::vector<MatcherStep>> any_scenario() {
    return rc::gen::scale(4.0, rc::gen::container<std::vector<MatcherStep>>(any_step()));
}

/** Half of the scenarios that start there cross the wrap of the sequence, some also the change of
 * its sign. */
inline rc::Gen<std::uint64_t> any_first_sequence() {
    return rc::gen::map(rc::gen::tuple(rc::gen::element<std::uint64_t>(0, 1ULL << 63, ~0ULL),
                                       rc::gen::inRange<std::uint64_t>(0, 64)),
                        [](const auto& parts) { return std::get<0>(parts) - std::get<1>(parts); });
}

/** A scenario long and deep enough for tables to grow several times; not shrunk, known by its seed.
 * `tags` is how many values either half of a tag has. */
inline std::vector<MatcherStep> long_scenario(std::uint64_t seed, std::size_t steps, unsigned tags,
                                              unsigned sources = 1) {
    using Kind = MatcherStep::Kind;
    std::mt19937_64 random(seed);
    const auto below = [&random](unsigned limit) {
        return static_cast<unsigned>(random() % limit);
    };
    std::vector<MatcherStep> scenario;
    for (std::size_t i = 0; i < steps; ++i) {
        // Phases that mostly fill, then mostly drain.
        const unsigned adds = (i / 4000) % 2 == 0 ? 8 : 3;
        const unsigned roll = below(10);
        const Kind kind = roll < adds ? Kind::kAdd : (roll == 9 ? Kind::kRemove : Kind::kTake);
        const bool exact = below(16) != 0;
        const std::uint64_t mask = exact ? ~0ULL : kScenarioMasks[below(std::size(kScenarioMasks))];
        scenario.push_back({kind, make_tag(below(tags), below(tags)), mask, random(),
                            below(sources), below(2) == 0});
    }
    return scenario;
}

}  // namespace tagwire::test
