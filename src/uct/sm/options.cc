// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/options.hpp"

#include <cstddef>

#include "uct/sm/layout.hpp"

namespace tagwire::sm {

namespace {

using ucs::Option;
using ucs::OptionType;

constexpr const char* kCmaChoices[] = {"auto", "off", "allow-any", nullptr};
constexpr const char* kDeathChoices[] = {"auto", "peerpidfd", "pidfd", "hangup", nullptr};
constexpr const char* kWakeupChoices[] = {"auto", "membarrier", "fence", nullptr};

constexpr Option kMdOptions[] = {
    {.name = "SM_ARENA_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "0",
     .doc =
         "Address space from which a memory domain allocates; memory is used when it is touched. "
         "0: 64g, or less where the process may not have so much (ulimit -v).",
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
     .doc = "Messages that one sender can have under way to one receiver.",
     .offset = offsetof(SmOptions, ring_slots),
     .min = kSlotCountMin,
     .max = kSlotCountMax,
     .flags = ucs::kOptionPowerOfTwo},
    {.name = "SM_RING_START",
     .type = OptionType::kCount,
     .unit = "position",
     .default_value = "0",
     .doc = "First position of new rings; to test their wrap-around.",
     .offset = offsetof(SmOptions, ring_start),
     .min = 0,
     .max = UINT64_MAX},
    {.name = "SM_SEG_COUNT",
     .type = OptionType::kCount,
     .unit = "buffers",
     .default_value = "64",
     .doc = "Buffers for messages that do not fit a slot, per sender and receiver.",
     .offset = offsetof(SmOptions, seg_count),
     .min = kSegCountMin,
     .max = kSegCountMax,
     .flags = ucs::kOptionPowerOfTwo},
    {.name = "SM_SEG_BYTES",
     .type = OptionType::kBytes,
     .unit = "bytes",
     .default_value = "8256",
     .doc = "Size of such a buffer (rounded up to 64): the largest bcopy message.",
     .offset = offsetof(SmOptions, seg_bytes),
     .min = 1024,
     .max = 32768},
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
     .doc = "Rendezvous and gets from this size on: both sides copy, each a part.",
     .offset = offsetof(SmOptions, both_copy_min),
     .min = 0,
     .max = UINT64_MAX},
    {.name = "SM_LIVENESS_INTERVAL",
     .type = OptionType::kTimeNs,
     .unit = "ns",
     .default_value = "1ms",
     .doc = "How often progress looks for new connections and dead peers.",
     .offset = offsetof(SmOptions, liveness_interval_ns),
     .min = 1000,
     .max = 50'000'000},
    {.name = "SM_CMA",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "auto",
     .doc = "Copies straight between processes (process_vm_readv): auto where permitted; allow-any "
            "also asks "
            "Yama to permit it.",
     .offset = offsetof(SmOptions, cma),
     .choices = kCmaChoices},
    {.name = "SM_DEATH",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "auto",
     .doc = "How the death of a peer is noticed.",
     .offset = offsetof(SmOptions, death),
     .choices = kDeathChoices},
    {.name = "SM_WAKEUP",
     .type = OptionType::kEnum,
     .unit = "",
     .default_value = "auto",
     .doc = "Who pays for the barrier of the wake-up protocol: the sleeper (membarrier) or each "
            "send (fence).",
     .offset = offsetof(SmOptions, wakeup),
     .choices = kWakeupChoices},
    {.name = "SM_DIR",
     .type = OptionType::kString,
     .unit = "",
     .default_value = "",
     .doc = "Directory for the sockets, shared by containers; empty: abstract sockets of this "
            "network namespace.",
     .offset = offsetof(SmOptions, directory)},
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
