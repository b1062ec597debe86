// SPDX-License-Identifier: BSD-3-Clause
// Regions of receive descriptors, laid out so that uct_iface_release_desc() finds the owner of a
// descriptor from its address alone.
//
// Descriptors that a callback may keep lie in regions aligned to kDescRegionBytes. The first page
// of a region is private memory of this process with a DescRegionHeader: masking the address leads
// to it. So the lookup never reads memory that a peer can write (UCX keeps a callback pointer
// right before the descriptor).
//
//    aligned   +page                                       < aligned + kDescRegionBytes
//    | header  | descriptors: shared with a peer, or private   |
//
// Used by the owner thread of the interface only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tagwire::uct {

constexpr std::size_t kDescRegionBytes = std::size_t{64} << 20;
constexpr std::uint64_t kDescRegionMagic = 0x7461677769726564ULL;

struct DescRegionHeader {
    std::uint64_t magic;
    void (*release)(DescRegionHeader* region, void* desc);
};

inline DescRegionHeader* desc_region_of(void* desc) {
    const auto address = reinterpret_cast<std::uintptr_t>(desc);
    return reinterpret_cast<DescRegionHeader*>(address & ~(std::uintptr_t{kDescRegionBytes} - 1));
}

}  // namespace tagwire::uct
