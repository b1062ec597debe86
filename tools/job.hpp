// SPDX-License-Identifier: BSD-3-Clause
// The tests, the options that each of them accepts, and the messages by which the driver (the
// process that the user started, which takes the times) tells the peer what to do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/codec.hpp"

namespace tagwire::tools {

enum class Side { kDriver, kPeer };

enum class TestId {
    kCacheline,
    kMemcpy,
    kChase,
    kAmLat,
    kAmBw,
    kAmRate,
    kTagLat,
    kTagBw,
    kTagRate,
    kPutLat,
    kPutBw,
    kPutRate,
    kGetLat,
    kGetBw,
    kAddLat,
    kFaddLat,
    kCswapLat,
    kMatch,
    kMatchWild,
    kManyToOne,
    kAllToAll,
    kBarrier,
    kAllreduce,
    kTagExchange,
};

enum class Op { kAuto, kShort, kBcopy, kZcopy, kRndv };
/// kMapped and kList: level msg; with a handle, and as a gather list of two pieces.
enum class MemoryKind { kUser, kAlloc, kMapped, kList };
/// The bytes of a message: kKept, those of the one before; kFresh, written by the sender just
/// before it sends them.
enum class DataKind { kKept, kFresh };
enum class Level { kUct, kMsg };
/// Threads at level msg: kContext, each has a worker of their one context; kWorker, all use one
/// worker. kNone: there are no threads.
enum class Share { kNone, kContext, kWorker };
enum class Wait { kSpin, kYield, kSleep };

/// The traffic pattern of a test; ping-pong, stream and fetch are loops in loops.hpp.
enum class Shape {
    kFloor,     ///< no transport at all
    kPingPong,  ///< a message there and one back; half of it counts
    kStream,    ///< a window of messages in one direction
    kFetch,     ///< one operation at a time by the driver, the peer only makes progress
    kMany,      ///< streams between the ranks of a job, or operations of all
};

/// Options that make sense for a test; the others are refused.
enum OptionBit : unsigned {
    kWithTransport = 1U << 0,  // --level --tl --device
    kWithOp = 1U << 1,
    kWithMemory = 1U << 2,
    kWithSize = 1U << 3,
    kWithWindow = 1U << 4,
    kWithPeers = 1U << 5,
    kWithDepth = 1U << 6,
    kWithThreads = 1U << 7,  // --threads --share --between --pollers --tx-contexts
    kWithUnexpected = 1U << 8,
    kWithBidir = 1U << 9,
    kWithWait = 1U << 10,
    kWithSleep = 1U << 11,  // --wait sleep: the arrival raises an event
    kWithValidate = 1U << 12,
    kWithServer = 1U << 13,
    kWithRndv = 1U << 14,        // --op rndv
    kOnlyAtLevelMsg = 1U << 15,  // which is the default then
    kWithData = 1U << 16,
    kOneSided = 1U << 17,  // on memory of the other side
    kActiveMessages = 1U << 18,
};

struct TestInfo {
    TestId id;
    const char* name;
    Shape shape;
    unsigned options;  // OptionBits
    const char* doc;
};

std::span<const TestInfo> all_tests();
const TestInfo& test_info(TestId id);
/// Throws UsageError that lists the tests.
const TestInfo& find_test(std::string_view name);

const char* name_of(Op op);
const char* name_of(MemoryKind memory);
const char* name_of(DataKind data);
const char* name_of(Wait wait);
const char* name_of(Level level);
const char* name_of(Share share);

inline constexpr std::uint64_t kPeersMax = 100000;
/// Limits the number of a cpu that the other side names.
inline constexpr std::uint64_t kCpuMax = 1 << 20;
inline constexpr std::uint64_t kWindowMax = 1 << 20;
/// Limits iterations and posted receives.
inline constexpr std::uint64_t kCountMax = std::uint64_t{1} << 48;
/// The limit at level msg, where the peer's process has one worker for each.
inline constexpr std::uint64_t kMsgPeersMax = 1000;
/// Interfaces that the peer has open at a time: the first targets carry the messages. The others
/// are there to be addressed, for what an endpoint costs.
inline constexpr std::uint64_t kOpenPeersMax = 64;

/// The connection between the two processes; fixed for one run of the command.
struct Setup {
    Level level = Level::kUct;
    /// At level msg maybe several, as tw_context_params_t.transports.
    std::string transport;
    std::string device;
    Wait wait = Wait::kSpin;
    std::uint64_t peers = 1;
    std::uint64_t threads = 1;
    Share share = Share::kNone;
    /// tw_worker_params_t.tx_contexts of the worker that threads share.
    std::uint64_t tx_contexts = 0;
    /// The cpus of the threads, the driver's and the peer's in turn. Empty: all stay where their
    /// process is.
    std::vector<int> cpus;

    std::uint64_t open_peers() const { return std::min(peers, kOpenPeersMax); }
    Encoder encode() const;
    static Setup decode(Decoder message);
};

/// One measurement.
struct Job {
    TestId test = TestId::kAmLat;
    Op op = Op::kShort;  // kAuto at level msg, which chooses by itself
    MemoryKind memory = MemoryKind::kUser;
    DataKind data = DataKind::kKept;
    std::uint64_t size = 8;
    std::uint64_t iterations = 0;
    std::uint64_t warmup = 0;
    std::uint64_t window = 1;
    std::uint64_t depth = 0;
    bool unexpected = false;
    bool bidir = false;
    bool validate = false;
    /// Blocks of floor and test alternate.
    bool floor = false;

    Encoder encode() const;
    static Job decode(Decoder message);
};

/// The findings of one side in a job.
struct Outcome {
    std::uint64_t validated = 0;  // messages whose every byte was checked
    std::uint64_t errors = 0;  // wrong bytes, lengths, statuses, or arrivals that nobody expected

    /// And so many errors that its sender has seen.
    Outcome with(std::uint64_t more_errors) const { return {validated, errors + more_errors}; }
    Encoder encode() const;
    static Outcome decode(Decoder message);
};

}  // namespace tagwire::tools
