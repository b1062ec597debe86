// SPDX-License-Identifier: BSD-3-Clause
#include <uct/api/uct.h>

#include "ucs/debug/check.hpp"
#include "uct/desc_region.hpp"

extern "C" void uct_iface_release_desc(void* desc) {
    auto* region = tagwire::uct::desc_region_of(desc);
    TW_ASSERT(region->magic == tagwire::uct::kDescRegionMagic);
    region->release(region, desc);
}
