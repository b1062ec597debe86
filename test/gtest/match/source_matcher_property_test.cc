// SPDX-License-Identifier: BSD-3-Clause
//
// Random scenarios against the naive lists; matcher_scenarios.hpp tells how to replay one.

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "match/matcher_model.hpp"
#include "match/matcher_scenarios.hpp"
#include "protocols/index/source_matcher.hpp"

namespace tagwire::test::source {
namespace {

using Kind = MatcherStep::Kind;
static_assert(kModelAnySource == proto::kAnySource);

constexpr std::uint32_t kFewSources = 3;  // as in any_step()

template <class Node>
struct Numbered : Node {
    std::size_t number = 0;
};

/** Some with a companion, which a matcher may prefetch and never reads, and some without. */
struct Receive : Numbered<proto::PostedReceive> {
    static constexpr bool kHasTwoLines = true;
    const void* companion() const {
        return reinterpret_cast<const void*>(number % 3 * 0x123456789U);
    }
};

template <class Node>
std::optional<std::size_t> number_of(const Node* node) {
    if (node == nullptr)
        return std::nullopt;
    return static_cast<const Numbered<Node>*>(node)->number;
}

/** PostedReceives and its model. */
class PostedPair {
  public:
    explicit PostedPair(std::uint64_t first_sequence) : posted_(first_sequence) {}

    void reserve(std::size_t receives) { RC_ASSERT(posted_.reserve(receives)); }

    void run(const MatcherStep& step) {
        if (step.kind == Kind::kAdd) {
            post(step);
        } else if (step.kind == Kind::kTake) {
            const auto expected = naive_.take(step.tag, proto::kExactMask, step.source);
            posted_.prefetch(step.tag, step.source);
            RC_ASSERT(number_of(posted_.find(step.tag, step.source)) == expected);
            RC_ASSERT(number_of(posted_.match(step.tag, step.source)) == expected);
        } else if (step.is_directed) {
            take_directed(step.source);
        } else if (const auto removed = naive_.remove_at(step.position)) {
            posted_.cancel(receives_[*removed]);
        }
        RC_ASSERT(posted_.size() == naive_.size());
    }

    /** Every source but the first dies, then all goes. */
    void drain(std::uint32_t sources) {
        for (std::uint32_t source = 1; source < sources; ++source)
            while (take_directed(source))
                continue;
        while (const auto number = number_of(posted_.take_any()))
            naive_.remove(*number);
        RC_ASSERT(naive_.size() == 0U);
        RC_ASSERT(posted_.empty());
    }

  private:
    void post(const MatcherStep& step) {
        auto& receive = receives_.emplace_back();
        receive.tag = step.tag;
        receive.mask = step.mask;
        receive.source = step.receive_source();
        receive.number = receives_.size() - 1;
        naive_.add({step.tag, step.mask, receive.number, receive.source});
        posted_.post(receive);
    }

    /** False: there was none. */
    bool take_directed(std::uint32_t source) {
        const proto::PostedReceive* receive = posted_.take_directed(source);
        RC_ASSERT((receive != nullptr) == (naive_.count_of(source) != 0));
        if (receive == nullptr)
            return false;
        RC_ASSERT(receive->source == source);
        naive_.remove(*number_of(receive));
        return true;
    }

    proto::PostedReceivesOf<Receive> posted_;
    NaiveMatcher naive_;
    std::deque<Numbered<proto::PostedReceive>> receives_;
};

/** UnexpectedMessages and its model. */
class UnexpectedPair {
  public:
    void reserve(std::size_t messages) { RC_ASSERT(unexpected_.reserve(messages)); }

    void run(const MatcherStep& step) {
        if (step.kind == Kind::kAdd) {
            auto& message = messages_.emplace_back();
            message.tag = step.tag;
            message.source = step.source;
            message.number = messages_.size() - 1;
            naive_.add({step.tag, proto::kExactMask, message.number, message.source});
            unexpected_.prefetch(step.tag, step.source);
            unexpected_.add(message);
        } else if (step.kind == Kind::kTake) {
            const auto source = step.receive_source();
            const auto expected = naive_.take(step.tag, step.mask, source);
            RC_ASSERT(number_of(unexpected_.find(step.tag, step.mask, source)) == expected);
            RC_ASSERT(number_of(unexpected_.take(step.tag, step.mask, source)) == expected);
        } else if (const auto removed = naive_.remove_at(step.position)) {
            unexpected_.remove(messages_[*removed]);
        }
        RC_ASSERT(unexpected_.size() == naive_.size());
    }

    void check_order_and_drain() {
        for (auto* each = unexpected_.oldest(); each != nullptr; each = each->newer)
            RC_ASSERT(number_of(each) == naive_.take(0, 0));
        RC_ASSERT(naive_.size() == 0U);
        while (auto* message = unexpected_.oldest())
            unexpected_.remove(*message);
        RC_ASSERT(unexpected_.empty());
    }

  private:
    proto::UnexpectedMessages unexpected_;
    NaiveMatcher naive_;
    std::deque<Numbered<proto::UnexpectedMessage>> messages_;
};

RC_GTEST_PROP(SourceMatcherProperty, posted_receives_agree_with_a_naive_list, ()) {
    const auto scenario = *any_scenario();
    PostedPair pair(*any_first_sequence());
    for (const MatcherStep& step : scenario)
        pair.run(step);
    pair.drain(kFewSources);
}

RC_GTEST_PROP(SourceMatcherProperty, unexpected_messages_agree_with_a_naive_list, ()) {
    const auto scenario = *any_scenario();
    UnexpectedPair pair;
    for (const MatcherStep& step : scenario)
        pair.run(step);
    pair.check_order_and_drain();
}

RC_GTEST_PROP(SourceMatcherProperty, posted_receives_agree_while_tables_grow, ()) {
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    const auto tags = *rc::gen::element(2U, 40U, 4000U);
    const auto sources = *rc::gen::element(1U, 3U, 300U);
    if (*rc::gen::inRange(0, 10) != 0)
        return;
    PostedPair pair(seed);
    pair.reserve(seed % 1000);
    for (const MatcherStep& step : long_scenario(seed, 10000, tags, sources))
        pair.run(step);
    pair.drain(sources);
}

RC_GTEST_PROP(SourceMatcherProperty, unexpected_messages_agree_while_tables_grow, ()) {
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    const auto tags = *rc::gen::element(2U, 40U, 4000U);
    const auto sources = *rc::gen::element(1U, 3U, 300U);
    if (*rc::gen::inRange(0, 10) != 0)
        return;
    UnexpectedPair pair;
    pair.reserve(seed % 1000);
    for (const MatcherStep& step : long_scenario(seed, 10000, tags, sources))
        pair.run(step);
    pair.check_order_and_drain();
}

}  // namespace
}  // namespace tagwire::test::source
