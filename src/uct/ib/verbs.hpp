// SPDX-License-Identifier: BSD-3-Clause
// The verbs libraries of this process, chosen at run time.
//
// Control verbs are called through a table of function pointers that dlopen(3) filled, from the
// system's libibverbs or from the virtual HCA (libtagwire-vhca.so, whose names carry the prefix
// tagwire_vhca_). Data-path verbs need no table: <infiniband/verbs.h> calls them inline through the
// device's context. So nothing here links to libibverbs, and devices of both libraries serve in one
// process.
//
// Threads: any. Libraries are loaded once, on first use, and never unloaded.
// Invariants
//  (1) A table is complete but for reg_mr_iova2, or there is none: a library that lacks another
//      function is not used.
//  (2) Whatever a table created goes back to the same table; the owners below carry its function.
//  (3) No inline function of verbs.h that may call an exported one is used in this tree
//      (ibv_create_qp_ex, ibv_reg_mr, ibv_query_port, ...): that would make a link-time reference.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tagwire::ib {

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): one list for the members and for their loading
#define TW_VERBS(X)         \
    X(get_device_list)      \
    X(free_device_list)     \
    X(get_device_name)      \
    X(get_device_guid)      \
    X(open_device)          \
    X(close_device)         \
    X(query_device)         \
    X(query_port)           \
    X(query_gid)            \
    X(query_pkey)           \
    X(get_async_event)      \
    X(ack_async_event)      \
    X(alloc_pd)             \
    X(dealloc_pd)           \
    X(reg_mr)               \
    X(dereg_mr)             \
    X(create_comp_channel)  \
    X(destroy_comp_channel) \
    X(create_cq)            \
    X(destroy_cq)           \
    X(get_cq_event)         \
    X(ack_cq_events)        \
    X(create_srq)           \
    X(modify_srq)           \
    X(destroy_srq)          \
    X(create_qp)            \
    X(query_qp)             \
    X(modify_qp)            \
    X(destroy_qp)           \
    X(create_ah)            \
    X(destroy_ah)           \
    X(fork_init)            \
    X(wc_status_str)        \
    X(event_type_str)

struct VerbsTable {
// NOLINTNEXTLINE(cppcoreguidelines-macro-usage)
#define TW_VERBS_MEMBER(name) decltype(&::ibv_##name) name = nullptr;
    TW_VERBS(TW_VERBS_MEMBER)
#undef TW_VERBS_MEMBER
    // The function that the inline ibv_query_gid_ex() calls: a GID together with its type.
    decltype(&::_ibv_query_gid_ex) query_gid_ex = nullptr;
    // The function that the inline ibv_reg_mr() calls for access flags that a kernel may lack; null
    // in libraries before rdma-core 28.
    decltype(&::ibv_reg_mr_iova2) reg_mr_iova2 = nullptr;

    // Both answer 0 or an errno value.
    /// query_port with all of `attr` filled, also what the first release did not have.
    int query_port_attr(ibv_context* context, std::uint8_t port, ibv_port_attr* attr) const;
    /// query_device_ex where the device has it, else query_device with the extended part zeroed.
    int query_device_attr(ibv_context* context, ibv_device_attr_ex* attr) const;
};

// ---- Calls that libibverbs has as inline functions over the context only. Null with errno, which
// is EOPNOTSUPP where the device has no such call.
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr);

enum class VerbsOrigin { kSystem, kVirtual };

struct VerbsLibrary {
    VerbsOrigin origin;
    std::string path;     // that was loaded, or would have been
    std::string problem;  // why it is not used; empty when it is
    VerbsTable verbs;     // complete exactly when there is no problem
    /// The library's device is the virtual HCA: true for the virtual library, and for the system's
    /// in a program that was started by `tagwire vhca run`.
    bool has_virtual_hca;
};

/// Both libraries, the system's first, as the options TAGWIRE_IB_VERBS_LIBRARY and
/// TAGWIRE_IB_VHCA_LIBRARY say at the first call, which loads them.
std::span<const VerbsLibrary> verbs_libraries();

/// Loads one: `name` as dlopen(3) takes it, "" for none. A name without a slash of the virtual one
/// is looked for in the directory of this code and in lib beside that, first. For tests.
VerbsLibrary load_verbs_library(VerbsOrigin origin, const std::string& name);

const char* name_of(VerbsOrigin origin);  // "system", "virtual"

// ---- Owners of verbs objects
template <class Object>
using Owned = std::unique_ptr<Object, int (*)(Object*)>;

template <class Object>
Owned<Object> owned(Object* object, int (*destroy)(Object*)) {
    return Owned<Object>(object, destroy);
}

using OwnedPd = Owned<ibv_pd>;
using OwnedMr = Owned<ibv_mr>;
using OwnedCq = Owned<ibv_cq>;
using OwnedSrq = Owned<ibv_srq>;
using OwnedQp = Owned<ibv_qp>;
using OwnedAh = Owned<ibv_ah>;
using OwnedChannel = Owned<ibv_comp_channel>;

}  // namespace tagwire::ib
