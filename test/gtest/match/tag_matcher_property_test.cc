// SPDX-License-Identifier: BSD-3-Clause
//
// Random scenarios against the naive lists; matcher_scenarios.hpp tells how to replay one.

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "match/matcher_model.hpp"
#include "match/matcher_scenarios.hpp"
#include "ucs/datastruct/tag_matcher.hpp"

namespace tagwire::test {
namespace {

using Kind = MatcherStep::Kind;

/** Some with a companion, which the matcher may prefetch and never reads, and some without. */
struct Receive : ucs::PostedReceive {
    std::size_t number = 0;
    const void* companion() const {
        return reinterpret_cast<const void*>(number % 3 * 0x123456789U);
    }
};

void check_posted(const std::vector<MatcherStep>& scenario, std::uint64_t first_sequence) {
    ucs::PostedReceivesOf<Receive> posted(first_sequence);
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

RC_GTEST_PROP(TagMatcherProperty, posted_receives_agree_with_a_naive_list, ()) {
    const auto scenario = *any_scenario();
    check_posted(scenario, *any_first_sequence());
}

RC_GTEST_PROP(TagMatcherProperty, unexpected_messages_agree_with_a_naive_list, ()) {
    check_unexpected(*any_scenario());
}

RC_GTEST_PROP(TagMatcherProperty, posted_receives_agree_while_tables_grow, ()) {
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    const auto tags = *rc::gen::element(2U, 40U, 4000U);
    if (*rc::gen::inRange(0, 10) == 0)
        check_posted(long_scenario(seed, 10000, tags), seed);
}

RC_GTEST_PROP(TagMatcherProperty, unexpected_messages_agree_while_tables_grow, ()) {
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    const auto tags = *rc::gen::element(2U, 40U, 4000U);
    if (*rc::gen::inRange(0, 10) == 0)
        check_unexpected(long_scenario(seed, 10000, tags));
}

}  // namespace
}  // namespace tagwire::test
