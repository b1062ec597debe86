// SPDX-License-Identifier: BSD-3-Clause
// Cost of matching by tag and source against matching by tag alone, behind N others and with
// wildcards among them.
//
// As bench_matcher.cc: one iteration matches a random one of N posted receives and posts it again
// (or takes and adds a message). `<TagOnly>` is the matcher of the transports; `<AnySource>` and
// `<Directed>` are the one with sources, with receives from any source and from one. Compare within
// one run only.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "protocols/index/source_matcher.hpp"
#include "ucs/datastruct/tag_matcher.hpp"

namespace {

using tagwire::ucs::kExactMask;
namespace ucs = tagwire::ucs;
namespace proto = tagwire::proto;

constexpr std::size_t kMasks = 10;
constexpr std::uint32_t kSources = 1000;

/** As large as a transport's receive: the matcher's part and a line of its own. */
template <class Node>
struct alignas(64) Padded : Node {
    std::byte rest[128 - sizeof(Node)];
};

struct TagOnly {
    using Posted = ucs::PostedReceives;
    using Unexpected = ucs::UnexpectedMessages;
    using Receive = Padded<ucs::PostedReceive>;
    using Message = Padded<ucs::UnexpectedMessage>;

    static void set_source(ucs::PostedReceive&, std::uint32_t) {}
    static void set_source(ucs::UnexpectedMessage&, std::uint32_t) {}
    static auto* match(Posted& posted, std::uint64_t tag, std::uint32_t) {
        return posted.match(tag);
    }
    static auto* take(Unexpected& unexpected, std::uint64_t tag, std::uint64_t mask,
                      std::uint32_t) {
        return unexpected.take(tag, mask);
    }
    static auto* find(Unexpected& unexpected, std::uint64_t tag, std::uint32_t) {
        return unexpected.find(tag, kExactMask);
    }
};

template <bool kIsDirected>
struct WithSource {
    using Posted = proto::PostedReceives;
    using Unexpected = proto::UnexpectedMessages;
    using Receive = Padded<proto::PostedReceive>;
    using Message = Padded<proto::UnexpectedMessage>;

    static void set_source(proto::PostedReceive& receive, std::uint32_t source) {
        receive.source = receive_source(source);
    }
    static void set_source(proto::UnexpectedMessage& message, std::uint32_t source) {
        message.source = source;
    }
    static auto* match(Posted& posted, std::uint64_t tag, std::uint32_t source) {
        return posted.match(tag, source);
    }
    static auto* take(Unexpected& unexpected, std::uint64_t tag, std::uint64_t mask,
                      std::uint32_t source) {
        return unexpected.take(tag, mask, receive_source(source));
    }
    static auto* find(Unexpected& unexpected, std::uint64_t tag, std::uint32_t source) {
        return unexpected.find(tag, kExactMask, receive_source(source));
    }
    static std::uint32_t receive_source(std::uint32_t source) {
        return kIsDirected ? source : proto::kAnySource;
    }
};

using AnySource = WithSource<false>;
using Directed = WithSource<true>;

struct Envelope {
    std::uint64_t tag;
    std::uint32_t source;
};

std::vector<Envelope> random_envelopes(std::size_t count) {
    std::mt19937_64 random(7);
    std::vector<Envelope> envelopes(count);
    for (Envelope& envelope : envelopes)
        envelope = {random(), static_cast<std::uint32_t>(random() % kSources)};
    return envelopes;
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

template <class Kind, class Node>
std::vector<Node> nodes_of(const std::vector<Envelope>& envelopes) {
    std::vector<Node> nodes(envelopes.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        nodes[i].tag = envelopes[i].tag;
        Kind::set_source(nodes[i], envelopes[i].source);
    }
    return nodes;
}

/** Receives whose masks ignore some low bits and whose other bits no message has: they are probed,
 * never matched. */
template <class Kind>
std::vector<typename Kind::Receive> post_wildcards(typename Kind::Posted& posted,
                                                   std::size_t count) {
    std::mt19937_64 random(13);
    std::vector<typename Kind::Receive> wildcards(count);
    for (std::size_t i = 0; i < count; ++i) {
        wildcards[i].mask = kExactMask << (1 + i % kMasks);
        wildcards[i].tag = random();
        posted.post(wildcards[i]);
    }
    return wildcards;
}

template <class Kind>
void post_match(benchmark::State& state) {
    const auto envelopes = random_envelopes(static_cast<std::size_t>(state.range(0)));
    auto receives = nodes_of<Kind, typename Kind::Receive>(envelopes);
    const auto positions = random_positions(receives.size());
    typename Kind::Posted posted;
    const auto wildcards = post_wildcards<Kind>(posted, static_cast<std::size_t>(state.range(1)));
    for (auto& receive : receives)
        posted.post(receive);
    std::size_t turn = 0;
    for (auto _ : state) {
        const Envelope& message = envelopes[positions[turn++ % positions.size()]];
        auto* receive = Kind::match(posted, message.tag, message.source);
        benchmark::DoNotOptimize(receive);
        posted.post(*receive);
    }
}
void depths_and_wildcards(benchmark::internal::Benchmark* bench) {
    bench->ArgNames({"depth", "wildcards"})->ArgsProduct({{1, 100, 10'000, 100'000}, {0, 100}});
}
BENCHMARK(post_match<TagOnly>)->Apply(depths_and_wildcards);
BENCHMARK(post_match<AnySource>)->Apply(depths_and_wildcards);
BENCHMARK(post_match<Directed>)->Apply(depths_and_wildcards);

/** The receive is posted behind N others and matched at once, as in a ping-pong. */
template <class Kind>
void post_match_same(benchmark::State& state) {
    const auto envelopes = random_envelopes(static_cast<std::size_t>(state.range(0)));
    auto receives = nodes_of<Kind, typename Kind::Receive>(envelopes);
    typename Kind::Posted posted;
    for (auto& receive : receives)
        posted.post(receive);
    typename Kind::Receive own;
    own.tag = 42;
    Kind::set_source(own, 1);
    for (auto _ : state) {
        posted.post(own);
        auto* receive = Kind::match(posted, 42, 1);
        benchmark::DoNotOptimize(receive);
    }
}
BENCHMARK(post_match_same<TagOnly>)->ArgName("others")->Arg(0)->Arg(1)->Arg(100)->Arg(100'000);
BENCHMARK(post_match_same<AnySource>)->ArgName("others")->Arg(0)->Arg(1)->Arg(100)->Arg(100'000);
BENCHMARK(post_match_same<Directed>)->ArgName("others")->Arg(0)->Arg(1)->Arg(100)->Arg(100'000);

/** Any-source receives, posted among N directed ones: an arrival probes two indexes. */
void post_match_mixed(benchmark::State& state) {
    const auto envelopes = random_envelopes(static_cast<std::size_t>(state.range(0)));
    auto receives = nodes_of<Directed, Directed::Receive>(envelopes);
    for (std::size_t i = 0; i < receives.size(); i += 2)
        receives[i].source = proto::kAnySource;
    const auto positions = random_positions(receives.size());
    proto::PostedReceives posted;
    for (auto& receive : receives)
        posted.post(receive);
    std::size_t turn = 0;
    for (auto _ : state) {
        const Envelope& message = envelopes[positions[turn++ % positions.size()]];
        auto* receive = posted.match(message.tag, message.source);
        benchmark::DoNotOptimize(receive);
        posted.post(*receive);
    }
}
BENCHMARK(post_match_mixed)->ArgName("depth")->Arg(100)->Arg(100'000);

template <class Kind>
void add_take(benchmark::State& state) {
    const auto envelopes = random_envelopes(static_cast<std::size_t>(state.range(0)));
    auto messages = nodes_of<Kind, typename Kind::Message>(envelopes);
    const auto positions = random_positions(messages.size());
    typename Kind::Unexpected unexpected;
    for (auto& message : messages)
        unexpected.add(message);
    std::size_t turn = 0;
    for (auto _ : state) {
        const Envelope& wanted = envelopes[positions[turn++ % positions.size()]];
        auto* message = Kind::take(unexpected, wanted.tag, kExactMask, wanted.source);
        benchmark::DoNotOptimize(message);
        unexpected.add(*message);
    }
}
BENCHMARK(add_take<TagOnly>)->ArgName("depth")->Arg(1)->Arg(8)->Arg(9)->Arg(100)->Arg(100'000);
BENCHMARK(add_take<AnySource>)->ArgName("depth")->Arg(1)->Arg(8)->Arg(9)->Arg(100)->Arg(100'000);
BENCHMARK(add_take<Directed>)->ArgName("depth")->Arg(1)->Arg(8)->Arg(9)->Arg(100)->Arg(100'000);

/** A receive is posted that none of N unexpected messages is for. */
template <class Kind>
void find_none(benchmark::State& state) {
    const auto envelopes = random_envelopes(static_cast<std::size_t>(state.range(0)));
    auto messages = nodes_of<Kind, typename Kind::Message>(envelopes);
    typename Kind::Unexpected unexpected;
    for (auto& message : messages)
        unexpected.add(message);
    std::uint64_t tag = 0;
    for (auto _ : state)
        benchmark::DoNotOptimize(Kind::find(unexpected, tag++, 1));
}
BENCHMARK(find_none<TagOnly>)->ArgName("depth")->Arg(0)->Arg(1)->Arg(8)->Arg(9)->Arg(100'000);
BENCHMARK(find_none<AnySource>)->ArgName("depth")->Arg(0)->Arg(1)->Arg(8)->Arg(9)->Arg(100'000);
BENCHMARK(find_none<Directed>)->ArgName("depth")->Arg(0)->Arg(1)->Arg(8)->Arg(9)->Arg(100'000);

/** N messages of one tag, each of its own source. Receives of that tag: exact ones from one source
 * and from any; of one source, any tag. All three indexes are kept. */
void add_take_one_tag(benchmark::State& state) {
    std::vector<Directed::Message> messages(static_cast<std::size_t>(state.range(0)));
    const auto positions = random_positions(messages.size());
    proto::UnexpectedMessages unexpected;
    std::uint32_t source = 0;
    for (auto& message : messages) {
        message.source = source++;
        unexpected.add(message);
    }
    std::size_t turn = 0;
    for (auto _ : state) {
        const auto position = positions[turn++ % positions.size()];
        const bool is_any = turn % 3 == 0;
        auto* message = unexpected.take(0, turn % 3 == 1 ? 0 : kExactMask,
                                        is_any ? proto::kAnySource : position);
        benchmark::DoNotOptimize(message);
        unexpected.add(*message);
    }
}
BENCHMARK(add_take_one_tag)->ArgName("depth")->Arg(100)->Arg(100'000);

/** Messages into an empty matcher and the first look-up, which files them. */
template <class Kind>
void add_from_empty(benchmark::State& state) {
    const auto envelopes = random_envelopes(static_cast<std::size_t>(state.range(0)));
    auto messages = nodes_of<Kind, typename Kind::Message>(envelopes);
    for (auto _ : state) {
        typename Kind::Unexpected unexpected;
        for (auto& message : messages)
            unexpected.add(message);
        benchmark::DoNotOptimize(Kind::find(unexpected, 0, 1));
    }
    state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(add_from_empty<TagOnly>)->ArgName("depth")->Arg(100)->Arg(100'000);
BENCHMARK(add_from_empty<AnySource>)->ArgName("depth")->Arg(100)->Arg(100'000);
BENCHMARK(add_from_empty<Directed>)->ArgName("depth")->Arg(100)->Arg(100'000);

}  // namespace
