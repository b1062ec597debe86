// SPDX-License-Identifier: BSD-3-Clause
// The rows that the option tables of rc and dc share: TAGWIRE_RC_x, TAGWIRE_DC_x. Their values
// structs have `messages` and `retries` (message_options.hpp). Constants, made by the compiler.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "ucs/config/config.hpp"

namespace tagwire::ib {

/// A literal as an argument of a template.
template <std::size_t kBytes>
struct Literal {
    // NOLINTNEXTLINE(google-explicit-constructor): "RC_" is one
    constexpr Literal(const char (&from)[kBytes]) { std::copy_n(from, kBytes, text); }
    char text[kBytes]{};
};

template <Literal kPrefix, Literal kRest>
struct JoinedName {
    static constexpr auto make() {
        std::array<char, sizeof kPrefix.text + sizeof kRest.text - 1> name{};
        std::copy_n(kRest.text, sizeof kRest.text,
                    std::copy_n(kPrefix.text, sizeof kPrefix.text - 1, name.begin()));
        return name;
    }
    static constexpr auto kName = make();
};
template <Literal kPrefix, Literal kRest>
inline constexpr const char* kNameOf = JoinedName<kPrefix, kRest>::kName.data();

/// Parts of the shared rows that each transport says in its own words.
struct OwnWords {
    const char* tx_depth;
    std::uint64_t inline_bytes_min;
    const char* rnr_retry;
    const char* keepalive;
};

/// In the order of TagMatching.
inline constexpr const char* kTagMatchingChoices[] = {"auto", "device", "software", nullptr};

template <Literal kPrefix, class Options, const OwnWords& kOwn>
inline constexpr std::array kMessageRows{
    ucs::Option{.name = kNameOf<kPrefix, "TX_DEPTH">,
                .type = ucs::OptionType::kCount,
                .unit = "requests",
                .default_value = "256",
                .doc = kOwn.tx_depth,
                .offset = offsetof(Options, messages.tx_depth),
                .min = 4,
                .max = 32768},
    ucs::Option{.name = kNameOf<kPrefix, "TX_BUFFERS">,
                .type = ucs::OptionType::kCount,
                .unit = "buffers",
                .default_value = "4096",
                .doc = "Registered buffers for packed (bcopy) data, shared by all endpoints of an "
                       "interface; allocated when needed.",
                .offset = offsetof(Options, messages.tx_buffers),
                .min = 1,
                .max = 1 << 20},
    ucs::Option{
        .name = kNameOf<kPrefix, "INLINE_BYTES">,
        .type = ucs::OptionType::kBytes,
        .unit = "bytes",
        .default_value = "128",
        .doc =
            "Inline bytes of a send that are requested from the device; it may grant more or less.",
        .offset = offsetof(Options, messages.inline_bytes),
        .min = kOwn.inline_bytes_min,
        .max = 4096},
    ucs::Option{.name = kNameOf<kPrefix, "RX_DEPTH">,
                .type = ucs::OptionType::kCount,
                .unit = "buffers",
                .default_value = "4096",
                .doc = "Receive buffers posted for all endpoints of an interface; fewer are posted "
                       "if their credits need fewer. Raised to 33 with tag matching by the device.",
                .offset = offsetof(Options, messages.rx_depth),
                .min = 2,
                .max = 32768},
    ucs::Option{
        .name = kNameOf<kPrefix, "RX_HELD">,
        .type = ucs::OptionType::kCount,
        .unit = "buffers",
        .default_value = "16384",
        .doc = "Receive buffers that the program may hold at a time, in addition to those posted.",
        .offset = offsetof(Options, messages.rx_held),
        .min = 0,
        .max = 1 << 20},
    ucs::Option{.name = kNameOf<kPrefix, "SEG_BYTES">,
                .type = ucs::OptionType::kBytes,
                .unit = "bytes",
                .default_value = "8256",
                .doc = "Longest message that is sent in one piece (bcopy). With tag matching by "
                       "the device also the smallest buffer with which a receive may be posted. "
                       "Both sides need the same value.",
                .offset = offsetof(Options, messages.seg_bytes),
                .min = 128,
                .max = 1 << 20},
    ucs::Option{.name = kNameOf<kPrefix, "CREDITS">,
                .type = ucs::OptionType::kCount,
                .unit = "messages",
                .default_value = "512",
                .doc = "Messages that a peer may send before this side has handled them. Limited "
                       "to 5 MiB of the longest messages (SEG_BYTES), but not to fewer than 16.",
                .offset = offsetof(Options, messages.credits),
                .min = 1,
                .max = 32768},
    ucs::Option{
        .name = kNameOf<kPrefix, "TIMEOUT">,
        .type = ucs::OptionType::kTimeNs,
        .unit = "ns",
        .default_value = "1s",
        .doc = "Time without an acknowledgement after which a packet is sent again, rounded up to "
               "4.096 us times a power of two; a device may wait four times as long.",
        .offset = offsetof(Options, retries.timeout_ns),
        .min = 8192,
        .max = 8'000'000'000'000},
    ucs::Option{.name = kNameOf<kPrefix, "RETRY_COUNT">,
                .type = ucs::OptionType::kCount,
                .unit = "times",
                .default_value = "6",
                .doc = "Times that a packet is sent again before the endpoint fails. 7 is refused, "
                       "because soft-RoCE then retries forever.",
                .offset = offsetof(Options, retries.retry_count),
                .min = 0,
                .max = 6},
    ucs::Option{.name = kNameOf<kPrefix, "RNR_RETRY">,
                .type = ucs::OptionType::kCount,
                .unit = "times",
                .default_value = "7",
                .doc = kOwn.rnr_retry,
                .offset = offsetof(Options, retries.rnr_retry),
                .min = 0,
                .max = 7},
    ucs::Option{.name = kNameOf<kPrefix, "RNR_TIMER">,
                .type = ucs::OptionType::kTimeNs,
                .unit = "ns",
                .default_value = "1ms",
                .doc = "Time that a peer waits before it repeats a message for which this side had "
                       "no receive buffer, rounded up to one of the 32 values of InfiniBand.",
                .offset = offsetof(Options, retries.rnr_timer_ns),
                .min = 10'000,
                .max = 655'360'000},
    ucs::Option{
        .name = kNameOf<kPrefix, "READS">,
        .type = ucs::OptionType::kCount,
        .unit = "requests",
        .default_value = "16",
        .doc =
            "Outstanding reads and atomics of a queue pair, limited to what both devices support.",
        .offset = offsetof(Options, messages.reads),
        .min = 1,
        .max = 128},
    ucs::Option{.name = kNameOf<kPrefix, "KEEPALIVE_INTERVAL">,
                .type = ucs::OptionType::kTimeNs,
                .unit = "ns",
                .default_value = "1s",
                .doc = kOwn.keepalive,
                .offset = offsetof(Options, messages.keepalive_ns),
                .min = 0,
                .max = 3'600'000'000'000},
    ucs::Option{.name = kNameOf<kPrefix, "TAG_MATCHING">,
                .type = ucs::OptionType::kEnum,
                .unit = "",
                .default_value = "auto",
                .doc = "Side that matches tags: device (opening the interface fails if it cannot), "
                       "software, or auto (the device if it can create a tag-matching SRQ, else "
                       "software). Both peers must match on the same side.",
                .offset = offsetof(Options, messages.tag_matching),
                .choices = kTagMatchingChoices},
    ucs::Option{.name = kNameOf<kPrefix, "TAG_DEPTH">,
                .type = ucs::OptionType::kCount,
                .unit = "receives",
                .default_value = "1023",
                .doc = "Tagged receives that may be posted on an interface; with tag matching by "
                       "the device limited to the device's maximum.",
                .offset = offsetof(Options, messages.tag_depth),
                .min = 1,
                .max = 1 << 24},
    ucs::Option{.name = kNameOf<kPrefix, "RNDV_MAX">,
                .type = ucs::OptionType::kCount,
                .unit = "operations",
                .default_value = "1024",
                .doc = "Outstanding rendezvous sends of an interface. Each reserves a receive "
                       "buffer for the message that completes it.",
                .offset = offsetof(Options, messages.rndv_max),
                .min = 1,
                .max = 65536}};

/// The shared rows, and behind them those of one transport alone.
template <std::size_t kShared, std::size_t kMore>
constexpr auto all_rows(const std::array<ucs::Option, kShared>& shared,
                        const std::array<ucs::Option, kMore>& own) {
    std::array<ucs::Option, kShared + kMore> all{};
    std::copy(own.begin(), own.end(), std::copy(shared.begin(), shared.end(), all.begin()));
    return all;
}

}  // namespace tagwire::ib
