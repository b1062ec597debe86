// SPDX-License-Identifier: BSD-3-Clause
// The interface of a transport family to the rest of the library: a constant table of functions.
//
// A family defines one Component with static storage (no constructor runs) and a function that
// returns it; the composition root (src/components.cc) names the function. uct_component_h points
// at the Component itself. See CONTRIBUTING.md, "How to add a transport".
//
// Threads: the functions may be called from any thread at a time. Arguments have been checked by
// the facade: pointers are not null, names are terminated, `*_values` were filled from the
// component's own option table.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "ucs/config/config.hpp"

/// The type that uct_component_h points to: the first member of a Component.
struct tagwire_uct_component {};

namespace tagwire::uct {

class DescribeSink;
class Md;

/// A transport on a device, as a memory domain offers it.
struct TlDevice {
    std::string tl_name;   // shorter than UCT_TL_NAME_MAX
    std::string dev_name;  // shorter than UCT_DEVICE_NAME_MAX
    uct_device_type_t type = UCT_DEVICE_TYPE_LAST;
    ucs_sys_device_t sys_device = UCS_SYS_DEVICE_ID_UNKNOWN;
};

/// A transport of a family, whether this machine has its devices or not.
struct Transport {
    const char* name;  // shorter than UCT_TL_NAME_MAX
    // Order in which layers above prefer the transports for first contact: the highest, which
    // reaches least far, first. It is in addresses that peers exchange: unique in the library and
    // never changed. 0: its endpoints connect to endpoints, so it cannot take first contact.
    std::uint8_t first_contact_rank;
};

struct Component {
    using QueryMds = ucs_status_t (*)(const Component&, std::vector<std::string>* names);
    using OpenMd = ucs_status_t (*)(const Component&, const char* md_name, const void* md_values,
                                    Md** md_p);
    using UnpackRkey = ucs_status_t (*)(const Component&, const void* packed, uct_rkey_t* rkey_p,
                                        void** handle_p);
    using RkeyPtr = ucs_status_t (*)(const Component&, uct_rkey_t rkey, void* handle,
                                     std::uint64_t remote_addr, void** local_p);
    using ReleaseRkey = ucs_status_t (*)(const Component&, uct_rkey_t rkey, void* handle);
    using Describe = void (*)(const Component&, const DescribeSink&);
    using IfaceOptions = const ucs::OptionTable* (*)(const char* tl_name);

    tagwire_uct_component base = {};
    const char* name = nullptr;  // shorter than UCT_COMPONENT_NAME_MAX
    std::uint64_t flags = 0;     // UCT_COMPONENT_FLAG_x
    std::size_t rkey_packed_bytes = 0;
    // Options of the family as a whole, which reads them itself; null when it has none.
    const ucs::OptionTable* common_options = nullptr;
    const ucs::OptionTable* md_options = nullptr;
    std::vector<Transport> (*transports)() = nullptr;
    QueryMds query_md_resources = nullptr;
    OpenMd md_open = nullptr;
    UnpackRkey rkey_unpack =
        nullptr;                 // UCS_ERR_INVALID_PARAM: not a key (it may come from anywhere)
    RkeyPtr rkey_ptr = nullptr;  // UCS_ERR_UNSUPPORTED where there is no pointer
    ReleaseRkey rkey_release = nullptr;
    IfaceOptions iface_options = nullptr;  // null for a transport that it does not have
    Describe describe = nullptr;           // for tagwire_uct_component_describe(); null: nothing
};

static_assert(std::is_standard_layout_v<Component> && offsetof(Component, base) == 0);

/// The handle of a component and back. The C API has no const handles; components are constants all
/// the same.
inline uct_component_h handle_of(const Component& component) {
    return const_cast<uct_component_h>(&component.base);
}

inline const Component& component_of(uct_component_h handle) {
    return *reinterpret_cast<const Component*>(handle);
}

}  // namespace tagwire::uct
