// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/cost/rail_costs.hpp"

#include <uct/api/tagwire_uct.h>

#include <algorithm>

#include "protocols/wire/eager_header.hpp"

namespace tagwire::proto {

namespace {

constexpr double kNsPerSecond = 1e9;
/// Copies of a processor, where the attributes tell of a wire only.
constexpr double kCopyNsPerByte = 0.1;
/// A read of another process' memory is a system call that finds and holds its pages; a long one is
/// two, on both sides at once.
constexpr double kSystemCallNs = 3500;
constexpr double kSidesThatCopy = 2;

std::size_t payload(std::size_t bytes) {
    return bytes > sizeof(Header) ? bytes - sizeof(Header) : 0;
}

}  // namespace

RailCosts start_costs(const RailFacts& facts) {
    const uct_iface_attr_t& iface = facts.iface;
    const double bandwidth = std::max(iface.bandwidth.dedicated + iface.bandwidth.shared, 1.0);
    const bool is_shared_memory = facts.device == UCT_DEVICE_TYPE_SHM;
    RailCosts costs;
    costs.overhead_ns = iface.overhead * kNsPerSecond;
    costs.latency_ns = iface.latency.c * kNsPerSecond;
    costs.fragment_ns = costs.overhead_ns;
    costs.direct_ns_per_byte = kNsPerSecond / bandwidth;
    if (is_shared_memory) {
        costs.copy_ns_per_byte = costs.direct_ns_per_byte;
        costs.direct_ns_per_byte /= kSidesThatCopy;
        costs.fragment_ns += costs.latency_ns;  // the cache lines that hand it over
        costs.read_ns = costs.write_ns = kSystemCallNs;
    } else {
        costs.copy_ns_per_byte = kCopyNsPerByte;
        costs.wire_ns_per_byte = costs.direct_ns_per_byte;
        costs.copies = goes_through_kernel(iface) ? 2 : 1;  // the program's, and the kernel's
        costs.read_ns = costs.overhead_ns + 2 * costs.latency_ns;
        costs.write_ns = costs.read_ns;  // its completion is an answer, too
    }
    costs.registration_ns = facts.domain.reg_cost.c * kNsPerSecond;
    costs.registration_ns_per_byte = facts.domain.reg_cost.m * kNsPerSecond;
    if ((iface.cap.flags & UCT_IFACE_FLAG_AM_SHORT) != 0)
        costs.short_max = payload(iface.cap.am.max_short);
    costs.bcopy_max = payload(iface.cap.am.max_bcopy);
    costs.eager_max = facts.eager_max;
    costs.piece_max = std::clamp<std::size_t>(iface.cap.get.max_zcopy, 1, kPieceBytes);
    costs.can_get = (iface.cap.flags & UCT_IFACE_FLAG_GET_ZCOPY) != 0;
    costs.can_put = (iface.cap.flags & UCT_IFACE_FLAG_PUT_ZCOPY) != 0;
    costs.registers = facts.registers;
    costs.lends = (iface.cap.flags & TAGWIRE_UCT_IFACE_FLAG_LEND) != 0;
    return costs;
}

}  // namespace tagwire::proto
