// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/options.hpp"

#include <cstddef>

#include "uct/sm/layout.hpp"

namespace tagwire::sm {

namespace {

using ucs::Option;
using ucs::OptionType;

constexpr const char* kCmaChoices[] = {"auto", "off", "allow-any", nullptr};

constexpr Option kMdOptions[] = {
    {.name = "SM_ARENA_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "0",
     .doc = "Address space from which a memory domain allocates; pages take memory when they are "
            "touched. 0: 64g, or less if the limit of the process (ulimit -v) is low.",
     .offset = offsetof(SmMdOptions, arena_bytes),
     .min = 1 << 20,
     .max = std::uint64_t{1} << 44,
     .flags = ucs::kOptionOrZero},
};

constexpr Option kIfaceOptions[] = {
    {.name = "SM_RING_SLOTS",
     .type = OptionType::kCount,
     .unit = "messages",
     .default_value = "256",
     .doc = "Outstanding messages from one sender to one receiver.",
     .offset = offsetof(SmOptions, ring_slots),
     .min = kSlotCountMin,
     .max = kSlotCountMax,
     .flags = ucs::kOptionPowerOfTwo},
    {.name = "SM_SEG_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "16448",
     .doc = "Size of a buffer for messages that do not fit a slot, rounded up to 64: the longest "
            "bcopy message.",
     .offset = offsetof(SmOptions, seg_bytes),
     .min = 1024,
     .max = 32768},
    {.name = "SM_POOL_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "0",
     .doc = "Memory of an interface for the buffers of messages that do not fit a slot, which its "
            "peers share. 0: twice the second-level cache of a processor, up to "
            "eight times "
            "for many peers.",
     .offset = offsetof(SmOptions, pool_bytes),
     .min = 65536,
     .max = kPoolBytesMax,
     .flags = ucs::kOptionOrZero},
    {.name = "SM_PREFETCH_FROM",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "50ns",
     .doc = "Time until a sender may write a line of its next buffer from which on it fetches that "
            "buffer's lines as soon as it has sent a message. Measured for each connection at one "
            "of 255 messages. 1s: never.",
     .offset = offsetof(SmOptions, prefetch_from_ns),
     .min = 0,
     .max = 1'000'000'000},
    {.name = "SM_PREFETCH_MAX",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "0",
     .doc = "Longest message behind which the next buffer's lines are fetched. 0: any on Intel's "
            "processors, 2112 bytes on others.",
     .offset = offsetof(SmOptions, prefetch_max),
     .min = 1,
     .max = UINT64_MAX,
     .flags = ucs::kOptionOrZero},
    {.name = "SM_TAG_DEPTH",
     .type = OptionType::kCount,
     .unit = "receives",
     .default_value = "262144",
     .doc = "Tagged receives that can be posted on one interface.",
     .offset = offsetof(SmOptions, tag_depth),
     .min = 1,
     .max = std::uint64_t{1} << 24},
    {.name = "SM_BOTH_COPY_MIN",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "48k",
     .doc = "Shortest rendezvous or get of which both sides copy a part; inf: never.",
     .offset = offsetof(SmOptions, both_copy_min),
     .min = 0,
     .max = UINT64_MAX},
    {.name = "SM_LIVENESS_INTERVAL",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1ms",
     .doc = "Interval at which progress checks for new connections and dead peers.",
     .offset = offsetof(SmOptions, liveness_interval_ns),
     .min = 1000,
     .max = 50'000'000},
    {.name = "SM_CMA",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "auto",
     .doc = "Direct copies between processes (process_vm_readv): auto, where permitted; off; "
            "allow-any, which also lets any process of this user attach to this one (Yama, "
            "PR_SET_PTRACER_ANY).",
     .offset = offsetof(SmOptions, cma),
     .choices = kCmaChoices},
    {.name = "SM_DIR",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "",
     .doc = "Directory for the sockets of interfaces, which containers can share; empty: abstract "
            "sockets of this network namespace.",
     .offset = offsetof(SmOptions, directory)},
    {.name = "SM_FORCE",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "",
     .doc = "For tests, separated by commas: ring_start:POSITION of new rings; death:peerpidfd, "
            "death:pidfd or death:hangup, by which dead peers are detected; poll:rings or "
            "poll:bell, which idle calls of progress look at; wakeup:membarrier or wakeup:fence, "
            "the barrier of the receiver before it sleeps or of the sender at each send.",
     .offset = offsetof(SmOptions, force)},
};

}  // namespace

const ucs::OptionTable& sm_md_options() {
    static constexpr ucs::OptionTable table{"shared memory domain", kMdOptions,
                                            sizeof(SmMdOptions)};
    return table;
}

const ucs::OptionTable& sm_options() {
    static constexpr ucs::OptionTable table{"shared memory", kIfaceOptions, sizeof(SmOptions)};
    return table;
}

}  // namespace tagwire::sm
