// SPDX-License-Identifier: BSD-3-Clause
// The device's options: TAGWIRE_VHCA_*, which `tagwire vhca run` sets from its command line.
#pragma once

#include <cstdint>

#include "ucs/config/config.hpp"

namespace tagwire::vhca {

/// When requests give their places in the send queue back.
enum SendPlaces : int { kAsProfile, kWhenPolled, kWhenCompleted };

struct Options {
    double loss, dup, reorder;
    std::uint64_t delay_ns;
    ucs::OptionString network_class;
    std::uint64_t seed;
    ucs::OptionString trace;
    bool stats;
    std::uint64_t tm;  // receives of a tag-matching SRQ
    int fabric;        // FabricKind
    ucs::OptionString address;
    std::uint64_t devices;

    int link_layer;  // LinkLayer

    int profile;
    std::uint64_t ports, gids;
    // Limits; 0: the value of the profile.
    std::uint64_t qps, qp_depth, cq_depth, srq_depth, sges, inline_bytes, reads;
    ucs::OptionString mtu;
    bool atomics;

    // Strictness of the device.
    int send_places;  // SendPlaces
    std::uint64_t tm_untagged_min;
    bool tm_ethernet;
    std::uint64_t late_events_ns;
    bool qpn_reuse;
    std::uint64_t timer_stretch;
    bool shuffle_reads;
    bool dc, dc_rendezvous;
    int dc_key_error;  // DcKeyError

    int memlock;  // MemlockRule

    // Properties of the driver face's kernel.
    int driver_abi;  // DriverAbi
    bool devx;
};

/// Answer to an initiator with a wrong access key: none, or an access error.
enum DcKeyError : int { kDcKeyErrorRetry, kDcKeyErrorAccess };

/// The limit of registered memory: as the kernel has it, which exempts CAP_IPC_LOCK from
/// RLIMIT_MEMLOCK; as the limit says in any case; as much as there is.
enum MemlockRule : int { kMemlockKernel, kMemlockAll, kMemlockNone };

/// The ways of commands: write(2) alone, as to kernels before 4.20, or ioctl(2) too.
enum DriverAbi : int { kDriverAbiWrite, kDriverAbiIoctl };

const ucs::OptionTable& option_table();

}  // namespace tagwire::vhca
