// SPDX-License-Identifier: BSD-3-Clause
// Instructions that matching by source adds to posting and matching one receive.
//
// Usage: instr_matcher tag_only|any_source|directed OTHERS COUNT
//
// Posts and matches one exact receive COUNT times behind OTHERS others. Run under
// `valgrind --tool=callgrind` with two counts; the difference of the totals divided by the
// difference of the counts is the cost of one, with the loop's three instructions.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "protocols/index/source_matcher.hpp"
#include "ucs/datastruct/tag_matcher.hpp"

namespace {

constexpr std::uint64_t kTag = 42;
constexpr std::uint32_t kSource = 1;

/** The compiler forgets what it knows about memory and about `value`. */
template <class Value>
void forget(Value& value) {
    asm volatile("" : "+r"(value) : : "memory");
}

using TagOnlyReceive = tagwire::ucs::PostedReceive;
using SourceReceive = tagwire::proto::PostedReceive;

TagOnlyReceive* match(tagwire::ucs::PostedReceives& posted, std::uint64_t tag, std::uint32_t) {
    return posted.match(tag);
}

SourceReceive* match(tagwire::proto::PostedReceives& posted, std::uint64_t tag,
                     std::uint32_t source) {
    return posted.match(tag, source);
}

template <class Posted, class Receive>
[[gnu::noinline]] void post_and_match(Posted& posted, Receive& own, long count) {
    for (; count != 0; --count) {
        std::uint64_t tag = kTag;
        std::uint32_t source = kSource;
        own.tag = tag;
        posted.post(own);
        forget(tag);
        forget(source);
        Receive* matched = match(posted, tag, source);
        forget(matched);
    }
}

/** `like` has mask and source of the receives. */
template <class Posted, class Receive>
void run(const Receive& like, std::size_t others, long count) {
    Posted posted;
    std::vector<Receive> receives(others, like);
    for (std::size_t i = 0; i < others; ++i) {
        receives[i].tag = kTag + 1 + i;
        posted.post(receives[i]);
    }
    Receive own = like;
    post_and_match(posted, own, count);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: instr_matcher tag_only|any_source|directed OTHERS COUNT\n");
        return 2;
    }
    const std::size_t others = std::strtoul(argv[2], nullptr, 10);
    const long count = std::strtol(argv[3], nullptr, 10);
    if (std::strcmp(argv[1], "tag_only") == 0) {
        run<tagwire::ucs::PostedReceives>(TagOnlyReceive{}, others, count);
        return 0;
    }
    SourceReceive like;
    if (std::strcmp(argv[1], "directed") == 0)
        like.source = kSource;
    run<tagwire::proto::PostedReceives>(like, others, count);
}
