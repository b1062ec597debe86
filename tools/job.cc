// SPDX-License-Identifier: BSD-3-Clause
#include "tools/job.hpp"

#include <tagwire.h>

#include <array>

#include "cli/failure.hpp"
#include "tools/sizes.hpp"

namespace tagwire::tools {
namespace {

constexpr std::uint64_t kSetupThreadsMax = 1024;
constexpr std::size_t kTransportsMax = 4096;  // as long as the option of the library

constexpr unsigned kBase =
    kWithTransport | kWithMemory | kWithSize | kWithPeers | kWithWait | kWithValidate | kWithServer;
constexpr unsigned kMessageLat = kBase | kWithOp | kWithSleep | kWithData;
constexpr unsigned kMessageBw = kMessageLat | kWithWindow | kWithThreads | kWithBidir;
constexpr unsigned kTagged = kWithRndv | kWithUnexpected;
constexpr unsigned kMany = kOnlyAtLevelMsg | kWithTransport | kWithSize | kWithWindow | kWithPeers |
                           kWithWait | kWithSleep | kWithValidate;
constexpr unsigned kCollective = kMany & ~unsigned{kWithWindow};
constexpr unsigned kRma = kBase | kOneSided;
constexpr unsigned kRmaBw = kRma | kWithOp | kWithWindow | kWithThreads;

constexpr TestInfo kTests[] = {
    {TestId::kCacheline, "cacheline", Shape::kFloor, 0,
     "floor: a cache line there and back between the two CPUs"},
    {TestId::kMemcpy, "memcpy", Shape::kFloor, kWithSize | kWithValidate,
     "floor: copy of memory that the other process wrote"},
    {TestId::kChase, "chase", Shape::kFloor, kWithDepth,
     "floor: pointer chase, one load at a time, through --depth cache lines"},
    {TestId::kAmLat, "am_lat", Shape::kPingPong, kMessageLat | kActiveMessages,
     "active message ping-pong"},
    {TestId::kAmBw, "am_bw", Shape::kStream, kMessageBw | kActiveMessages, "active message stream"},
    {TestId::kAmRate, "am_rate", Shape::kStream, kMessageBw | kActiveMessages,
     "active message stream, as am_bw, for the rate of small messages"},
    {TestId::kTagLat, "tag_lat", Shape::kPingPong, kMessageLat | kTagged | kWithDepth,
     "tagged message ping-pong, behind --depth other receives"},
    {TestId::kTagBw, "tag_bw", Shape::kStream, kMessageBw | kTagged,
     "tagged message stream, one tag"},
    {TestId::kTagRate, "tag_rate", Shape::kStream, kMessageBw | kTagged,
     "tagged message stream, each with its own tag and receive"},
    {TestId::kPutLat, "put_lat", Shape::kPingPong, kRma | kWithOp | kWithData,
     "remote write ping-pong, memory polled"},
    {TestId::kPutBw, "put_bw", Shape::kStream, kRmaBw | kWithData, "remote write stream"},
    {TestId::kPutRate, "put_rate", Shape::kStream, kRmaBw | kWithData,
     "remote write stream, as put_bw, for the rate of small writes"},
    {TestId::kGetLat, "get_lat", Shape::kFetch, kRma | kWithOp, "one remote read after the other"},
    {TestId::kGetBw, "get_bw", Shape::kStream, kRmaBw, "remote read stream"},
    {TestId::kAddLat, "add_lat", Shape::kPingPong, kRma, "atomic add ping-pong, memory polled"},
    {TestId::kFaddLat, "fadd_lat", Shape::kFetch, kRma, "one atomic fetch-and-add after the other"},
    {TestId::kCswapLat, "cswap_lat", Shape::kFetch, kRma,
     "one atomic compare-and-swap after the other"},
    {TestId::kMatch, "match", Shape::kPingPong,
     (kMessageLat & ~unsigned{kWithPeers | kWithData}) | kWithRndv | kWithDepth,
     "tagged ping-pong among --depth receives, random tags"},
    {TestId::kMatchWild, "match_wild", Shape::kPingPong,
     (kBase & ~unsigned{kWithPeers}) | kWithOp | kWithDepth | kOnlyAtLevelMsg,
     "as match, but 100 of the other receives have one of 10 masks (level msg)"},
    {TestId::kManyToOne, "many_to_one", Shape::kMany, kMany,
     "tagged streams from --peers ranks to one, which receives from any source"},
    {TestId::kAllToAll, "all_to_all", Shape::kMany, kMany,
     "tagged streams from each rank to every other one, --peers of them"},
    {TestId::kBarrier, "barrier", Shape::kMany, kCollective & ~unsigned{kWithSize | kWithValidate},
     "barrier of --ranks processes"},
    {TestId::kAllreduce, "allreduce", Shape::kMany, kCollective,
     "sum of doubles over --ranks processes, for all of them"},
    {TestId::kTagExchange, "tag_exchange", Shape::kMany, kCollective,
     "each of --ranks processes (default 2) sends to one other and receives from one at once, the "
     "others in turn"},
};

template <class Enum>
Enum decode_enum(Decoder* message, Enum last) {
    return static_cast<Enum>(message->number_up_to(static_cast<std::uint64_t>(last)));
}

template <class Enum>
std::uint64_t raw(Enum value) {
    return static_cast<std::uint64_t>(value);
}

}  // namespace

std::span<const TestInfo> all_tests() {
    return kTests;
}

const TestInfo& test_info(TestId id) {
    return kTests[static_cast<std::size_t>(id)];
}

const TestInfo& find_test(std::string_view name) {
    std::string names;
    for (const TestInfo& test : kTests) {
        if (name == test.name)
            return test;
        names += std::string(" ") + test.name;
    }
    throw UsageError(text("'%.*s' is not a test; the tests are%s", static_cast<int>(name.size()),
                          name.data(), names.c_str()));
}

const char* name_of(Op op) {
    static constexpr std::array<const char*, 5> kNames{"auto", "short", "bcopy", "zcopy", "rndv"};
    return kNames[static_cast<std::size_t>(op)];
}

const char* name_of(MemoryKind memory) {
    static constexpr std::array<const char*, 4> kNames{"user", "alloc", "mapped", "list"};
    return kNames[static_cast<std::size_t>(memory)];
}

const char* name_of(DataKind data) {
    return data == DataKind::kKept ? "kept" : "fresh";
}

const char* name_of(Wait wait) {
    static constexpr std::array<const char*, 3> kNames{"spin", "yield", "sleep"};
    return kNames[static_cast<std::size_t>(wait)];
}

const char* name_of(Level level) {
    return level == Level::kUct ? "uct" : "msg";
}

const char* name_of(Share share) {
    static constexpr std::array<const char*, 3> kNames{"none", "context", "worker"};
    return kNames[static_cast<std::size_t>(share)];
}

Encoder Setup::encode() const {
    Encoder message;
    message.number(raw(level))
        .string(transport)
        .string(device)
        .number(raw(wait))
        .number(peers)
        .number(threads)
        .number(raw(share))
        .number(tx_contexts)
        .number(cpus.size());
    for (const int cpu : cpus)
        message.number(static_cast<std::uint64_t>(cpu));
    return message;
}

Setup Setup::decode(Decoder message) {
    Setup setup;
    setup.level = decode_enum(&message, Level::kMsg);
    setup.transport = message.string(kTransportsMax);
    setup.device = message.string(64);
    setup.wait = decode_enum(&message, Wait::kSleep);
    setup.peers = message.number_up_to(kPeersMax);
    setup.threads = message.number_up_to(kSetupThreadsMax);
    setup.share = decode_enum(&message, Share::kWorker);
    setup.tx_contexts = message.number_up_to(TW_TX_CONTEXTS_MAX);
    setup.cpus.resize(message.number_up_to(2 * setup.threads));
    for (int& cpu : setup.cpus)
        cpu = static_cast<int>(message.number_up_to(kCpuMax));
    message.end();
    if (setup.peers == 0 || setup.threads == 0)
        throw Failure("the peer asked for a connection without peers or threads");
    if (!setup.cpus.empty() && setup.cpus.size() != 2 * setup.threads)
        throw Failure("the peer named cpus for some of its threads only");
    return setup;
}

Encoder Job::encode() const {
    Encoder message;
    message.number(raw(test))
        .number(raw(op))
        .number(raw(memory))
        .number(raw(data))
        .number(size)
        .number(iterations)
        .number(warmup);
    message.number(window)
        .number(depth)
        .number(unexpected)
        .number(bidir)
        .number(validate)
        .number(floor);
    return message;
}

Job Job::decode(Decoder message) {
    Job job;
    job.test = decode_enum(&message, TestId::kMatchWild);
    job.op = decode_enum(&message, Op::kRndv);
    job.memory = decode_enum(&message, MemoryKind::kList);
    job.data = decode_enum(&message, DataKind::kFresh);
    job.size = message.number_up_to(kSizeMax);
    job.iterations = message.number_up_to(kCountMax);
    job.warmup = message.number_up_to(kCountMax);
    job.window = message.number_up_to(kWindowMax);
    job.depth = message.number_up_to(kCountMax);
    job.unexpected = message.number_up_to(1) != 0;
    job.bidir = message.number_up_to(1) != 0;
    job.validate = message.number_up_to(1) != 0;
    job.floor = message.number_up_to(1) != 0;
    message.end();
    if (job.window == 0)
        throw Failure("the peer asked for a job with an empty window");
    return job;
}

Encoder Outcome::encode() const {
    Encoder message;
    return message.number(validated).number(errors);
}

Outcome Outcome::decode(Decoder message) {
    Outcome outcome;
    outcome.validated = message.number();
    outcome.errors = message.number();
    message.end();
    return outcome;
}

}  // namespace tagwire::tools
