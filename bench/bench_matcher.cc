// SPDX-License-Identifier: BSD-3-Clause
// Cost of posting and matching a tagged receive behind N others, with wildcards among them.
//
// One iteration matches a random one of N posted receives and posts it again (or takes and adds a
// message), so the depth stays. Compare within one run only: `post_match/depth:100000` against
// `post_match/depth:1`.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "ucs/datastruct/tag_matcher.hpp"

namespace {

using tagwire::ucs::kExactMask;
using tagwire::ucs::PostedReceive;
using tagwire::ucs::PostedReceives;
using tagwire::ucs::UnexpectedMessage;
using tagwire::ucs::UnexpectedMessages;

constexpr std::size_t kMasks = 10;

/** As large as a transport's receive: the matcher's part and a line of its own. */
struct Receive : PostedReceive {
    std::byte rest[128 - sizeof(PostedReceive)];
};

struct Message : UnexpectedMessage {
    std::byte rest[128 - sizeof(UnexpectedMessage)];
};

template <class Node>
std::vector<Node> nodes_with_random_tags(std::size_t count) {
    std::mt19937_64 random(7);
    std::vector<Node> nodes(count);
    for (Node& node : nodes)
        node.tag = random();
    return nodes;
}

/** A power of two of random positions, so that drawing one costs a load from a line that is there.
 */
std::vector<std::uint32_t> random_positions(std::size_t limit) {
    std::mt19937 random(11);
    std::vector<std::uint32_t> positions(std::size_t{1} << 16);
    for (auto& position : positions)
        position = static_cast<std::uint32_t>(random() % limit);
    return positions;
}

/** Receives whose masks ignore some low bits and whose other bits no message has: they are probed,
 * never matched. */
void post_wildcards(PostedReceives& posted, std::vector<Receive>& wildcards) {
    std::mt19937_64 random(13);
    for (std::size_t i = 0; i < wildcards.size(); ++i) {
        wildcards[i].mask = kExactMask << (1 + i % kMasks);
        wildcards[i].tag = random();
        posted.post(wildcards[i]);
    }
}

void post_match(benchmark::State& state) {
    auto receives = nodes_with_random_tags<Receive>(static_cast<std::size_t>(state.range(0)));
    std::vector<Receive> wildcards(static_cast<std::size_t>(state.range(1)));
    const auto positions = random_positions(receives.size());
    PostedReceives posted;
    post_wildcards(posted, wildcards);
    for (Receive& receive : receives)
        posted.post(receive);
    std::size_t turn = 0;
    for (auto _ : state) {
        const std::uint64_t tag = receives[positions[turn++ % positions.size()]].tag;
        PostedReceive* receive = posted.match(tag);
        benchmark::DoNotOptimize(receive);
        posted.post(*receive);
    }
}
BENCHMARK(post_match)
    ->ArgNames({"depth", "wildcards"})
    ->ArgsProduct({{1, 100, 10'000, 100'000, 1'000'000}, {0, 10, 100}});

/** The receive is posted behind N others and matched at once, as in a ping-pong. */
void post_match_same(benchmark::State& state) {
    auto receives = nodes_with_random_tags<Receive>(static_cast<std::size_t>(state.range(0)));
    PostedReceives posted;
    for (Receive& receive : receives)
        posted.post(receive);
    Receive own;
    own.tag = 42;
    for (auto _ : state) {
        posted.post(own);
        PostedReceive* receive = posted.match(42);
        benchmark::DoNotOptimize(receive);
    }
}
BENCHMARK(post_match_same)->ArgName("others")->Arg(0)->Arg(1)->Arg(10'000)->Arg(100'000);

void cancel_post(benchmark::State& state) {
    auto receives = nodes_with_random_tags<Receive>(static_cast<std::size_t>(state.range(0)));
    const auto positions = random_positions(receives.size());
    PostedReceives posted;
    for (Receive& receive : receives)
        posted.post(receive);
    std::size_t turn = 0;
    for (auto _ : state) {
        Receive& receive = receives[positions[turn++ % positions.size()]];
        posted.cancel(receive);
        posted.post(receive);
    }
}
BENCHMARK(cancel_post)
    ->ArgName("depth")
    ->Arg(1)
    ->Arg(100)
    ->Arg(10'000)
    ->Arg(100'000)
    ->Arg(1'000'000);

/** All receives have one tag. */
void post_match_equal_tags(benchmark::State& state) {
    std::vector<Receive> receives(static_cast<std::size_t>(state.range(0)));
    PostedReceives posted;
    for (Receive& receive : receives)
        posted.post(receive);
    for (auto _ : state) {
        PostedReceive* receive = posted.match(0);
        benchmark::DoNotOptimize(receive);
        posted.post(*receive);
    }
}
BENCHMARK(post_match_equal_tags)->ArgName("depth")->Arg(100)->Arg(100'000);

/** Growth included: N receives posted into a fresh matcher. */
void post_from_empty(benchmark::State& state) {
    auto receives = nodes_with_random_tags<Receive>(static_cast<std::size_t>(state.range(0)));
    for (auto _ : state) {
        PostedReceives posted;
        for (Receive& receive : receives)
            posted.post(receive);
        benchmark::DoNotOptimize(posted.size());
    }
    state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(post_from_empty)->ArgName("depth")->Arg(100)->Arg(100'000);

void add_take(benchmark::State& state) {
    auto messages = nodes_with_random_tags<Message>(static_cast<std::size_t>(state.range(0)));
    const auto positions = random_positions(messages.size());
    UnexpectedMessages unexpected;
    for (Message& message : messages)
        unexpected.add(message);
    std::size_t turn = 0;
    for (auto _ : state) {
        const std::uint64_t tag = messages[positions[turn++ % positions.size()]].tag;
        UnexpectedMessage* message = unexpected.take(tag, kExactMask);
        benchmark::DoNotOptimize(message);
        unexpected.add(*message);
    }
}
BENCHMARK(add_take)->ArgName("depth")->Arg(1)->Arg(100)->Arg(10'000)->Arg(100'000)->Arg(1'000'000);

/** Any message will do. */
void add_take_any(benchmark::State& state) {
    auto messages = nodes_with_random_tags<Message>(static_cast<std::size_t>(state.range(0)));
    UnexpectedMessages unexpected;
    for (Message& message : messages)
        unexpected.add(message);
    for (auto _ : state) {
        UnexpectedMessage* message = unexpected.take(0, 0);
        benchmark::DoNotOptimize(message);
        unexpected.add(*message);
    }
}
BENCHMARK(add_take_any)->ArgName("depth")->Arg(1)->Arg(100'000);

}  // namespace
