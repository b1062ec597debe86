// SPDX-License-Identifier: BSD-3-Clause
//
// Random scenarios against the naive lists. rapidcheck prints its seed first, and for a failure the
// shrunk scenario and a line `RC_PARAMS="reproduce=..."`: set that variable and run the same case
// to replay it. `RC_PARAMS="seed=N"` runs everything from one seed, `RC_PARAMS="max_success=N"`
// more scenarios.

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "match/matcher_model.hpp"
#include "ucs/datastruct/tag_matcher.hpp"

namespace tagwire::test {
namespace {

using Kind = MatcherStep::Kind;

// MPI-like tags: a sender in the upper half, a user's tag in the lower. Masks of all sorts, exact
// ones most often.
constexpr std::uint64_t kMasks[] = {
    ucs::kExactMask,
    ucs::kExactMask,
    ucs::kExactMask,
    ucs::kExactMask,
    0,
    0x00000000ffffffffU,
    0xffffffff00000000U,
    1,
    0x0000000100000001U,
    1ULL << 63,
    0x5555555555555555U,
    0xfffffffffffffffeU,
};

std::uint64_t make_tag(unsigned sender, unsigned tag) {
    return (static_cast<std::uint64_t>(sender) << 32) | tag;
}

rc::Gen<MatcherStep> any_step() {
    return rc::gen::map(
        rc::gen::tuple(
            rc::gen::weightedElement<Kind>({{5, Kind::kAdd}, {4, Kind::kTake}, {1, Kind::kRemove}}),
            rc::gen::inRange(0U, 4U), rc::gen::inRange(0U, 4U),
            rc::gen::elementOf(std::vector<std::uint64_t>(std::begin(kMasks), std::end(kMasks))),
            rc::gen::inRange<std::size_t>(0, 1000)),
        [](const auto& parts) {
            const auto& [kind, sender, tag, mask, position] = parts;
            return MatcherStep{kind, make_tag(sender, tag), mask, position};
        });
}

/** A scenario long and deep enough for tables to grow several times; not shrunk, known by its seed.
 */
std::vector<MatcherStep> long_scenario(std::uint64_t seed, std::size_t steps, unsigned tags) {
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
        scenario.push_back({kind, make_tag(below(tags), below(tags)),
                            exact ? ucs::kExactMask : kMasks[below(std::size(kMasks))], random()});
    }
    return scenario;
}

struct Receive : ucs::PostedReceive {
    std::size_t number = 0;
};

void check_posted(const std::vector<MatcherStep>& scenario, std::uint64_t first_sequence) {
    ucs::PostedReceives posted(first_sequence);
    NaiveMatcher naive;
    std::deque<Receive> receives;
    for (const MatcherStep& step : scenario) {
        if (step.kind == Kind::kAdd) {
            Receive& receive = receives.emplace_back();
            receive.tag = step.tag;
            receive.mask = step.mask;
            receive.number = receives.size() - 1;
            naive.add({step.tag, step.mask, receive.number});
            posted.post(receive);
        } else if (step.kind == Kind::kTake) {
            const auto expected = naive.take(step.tag, ucs::kExactMask);
            const auto* found = static_cast<Receive*>(posted.match(step.tag));
            RC_ASSERT((found != nullptr) == expected.has_value());
            if (found != nullptr)
                RC_ASSERT(found->number == *expected);
        } else if (const auto removed = naive.remove_at(step.position)) {
            posted.cancel(receives[*removed]);
        }
        RC_ASSERT(posted.size() == naive.size());
    }
    std::size_t left = 0;
    while (posted.take_any() != nullptr)
        ++left;
    RC_ASSERT(left == naive.size());
    RC_ASSERT(posted.empty());
}

struct Message : ucs::UnexpectedMessage {
    std::size_t number = 0;
};

void check_unexpected(const std::vector<MatcherStep>& scenario) {
    ucs::UnexpectedMessages unexpected;
    NaiveMatcher naive;
    std::deque<Message> messages;
    for (const MatcherStep& step : scenario) {
        if (step.kind == Kind::kAdd) {
            Message& message = messages.emplace_back();
            message.tag = step.tag;
            message.number = messages.size() - 1;
            naive.add({step.tag, ucs::kExactMask, message.number});
            unexpected.add(message);
        } else if (step.kind == Kind::kTake) {
            const auto* seen = unexpected.find(step.tag, step.mask);
            const auto expected = naive.take(step.tag, step.mask);
            const auto* found = static_cast<Message*>(unexpected.take(step.tag, step.mask));
            RC_ASSERT(seen == found);
            RC_ASSERT((found != nullptr) == expected.has_value());
            if (found != nullptr)
                RC_ASSERT(found->number == *expected);
        } else if (const auto removed = naive.remove_at(step.position)) {
            unexpected.remove(messages[*removed]);
        }
        RC_ASSERT(unexpected.size() == naive.size());
    }
    std::size_t last = 0;
    for (auto* message = unexpected.oldest(); message != nullptr; message = message->newer) {
        const std::size_t number = static_cast<Message*>(message)->number;
        RC_ASSERT(message == unexpected.oldest() || number > last);
        last = number;
    }
}

RC_GTEST_PROP(TagMatcherProperty, PostedReceivesAgreeWithANaiveList, ()) {
    const auto scenario =
        *rc::gen::scale(4.0, rc::gen::container<std::vector<MatcherStep>>(any_step()));
    // Half of the scenarios cross the wrap of the sequence, some also the change of its sign.
    const std::uint64_t start = *rc::gen::element<std::uint64_t>(0, 1ULL << 63, ~0ULL) -
                                *rc::gen::inRange<std::uint64_t>(0, 64);
    check_posted(scenario, start);
}

RC_GTEST_PROP(TagMatcherProperty, UnexpectedMessagesAgreeWithANaiveList, ()) {
    check_unexpected(
        *rc::gen::scale(4.0, rc::gen::container<std::vector<MatcherStep>>(any_step())));
}

RC_GTEST_PROP(TagMatcherProperty, PostedReceivesAgreeWhileTablesGrow, ()) {
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    const auto tags = *rc::gen::element(2U, 40U, 4000U);
    if (*rc::gen::inRange(0, 10) == 0)
        check_posted(long_scenario(seed, 10000, tags), seed);
}

RC_GTEST_PROP(TagMatcherProperty, UnexpectedMessagesAgreeWhileTablesGrow, ()) {
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    const auto tags = *rc::gen::element(2U, 40U, 4000U);
    if (*rc::gen::inRange(0, 10) == 0)
        check_unexpected(long_scenario(seed, 10000, tags));
}

}  // namespace
}  // namespace tagwire::test
