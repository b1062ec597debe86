// SPDX-License-Identifier: BSD-3-Clause
// Compatibility with libfabric's headers from 1.17 on: names that differ or are missing.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

#include <cstdint>

namespace tagwire::fi {

/// FI_PROV_SPECIFIC, up to 1.20: of address formats and protocols that libfabric has no name for.
inline constexpr std::uint32_t kProviderSpecific = std::uint32_t{1} << 31;

/// The mode bit of buffered receives; 0: they were dropped (2.0). FI_VARIABLE_MSG is 0 from 1.21.
#ifdef FI_BUFFERED_RECV
inline constexpr std::uint64_t kBufferedRecv = FI_BUFFERED_RECV;
#else
inline constexpr std::uint64_t kBufferedRecv = 0;
#endif

/// A flag of fi_getinfo() from 2.2 on. There is nothing to scan again.
#ifdef FI_RESCAN
inline constexpr std::uint64_t kRescan = FI_RESCAN;
#else
inline constexpr std::uint64_t kRescan = 0;
#endif

// Names that only give a warning from 2.0 on.
inline constexpr std::uint64_t kOrderNone = 0;  ///< FI_ORDER_NONE
inline constexpr int kMrModeBasic = 1 << 0;     ///< FI_MR_BASIC
inline constexpr int kMrModeScalable = 1 << 1;  ///< FI_MR_SCALABLE

/// Sets the calls that later versions have added to a table; some of libfabric's wrappers do not
/// look whether there is one.
template <class Table, class Call>
constexpr Table with_later_calls(Table table, Call absent) {
    if constexpr (requires { table.insert_auth_key; })
        table.insert_auth_key = absent;
    if constexpr (requires { table.lookup_auth_key; })
        table.lookup_auth_key = absent;
    if constexpr (requires { table.set_user_id; })
        table.set_user_id = absent;
    if constexpr (requires { table.lookup2; })
        table.lookup2 = absent;
    if constexpr (requires { table.export_xpu; })
        table.export_xpu = absent;
    if constexpr (requires { table.xpu_ctx; })
        table.xpu_ctx = absent;
    return table;
}

/// Later versions have an address in it, for errors of addresses, which the provider does not
/// report.
template <class Entry>
void clear_source(Entry& entry) {
    if constexpr (requires { entry.src_addr; })
        entry.src_addr = FI_ADDR_NOTAVAIL;
}

}  // namespace tagwire::fi
