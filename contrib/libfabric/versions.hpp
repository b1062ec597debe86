// SPDX-License-Identifier: BSD-3-Clause
// Compatibility with libfabric's headers from 1.17 on: names that differ or are missing.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tagwire::fi {

/// FI_PROV_SPECIFIC, up to 1.20: of address formats and protocols that libfabric has no name for.
inline constexpr std::uint32_t kProviderSpecific = std::uint32_t{1} << 31;

/// The mode bit of buffered receives; 0: they were dropped (2.0). FI_VARIABLE_MSG is 0 from 1.21.
#ifdef FI_BUFFERED_RECV
inline constexpr std::uint64_t kBufferedRecv = FI_BUFFERED_RECV;
#else
inline constexpr std::uint64_t kBufferedRecv = 0;
#endif

/// FI_RESCAN, a flag of fi_getinfo() from 2.2 on, whose programs may ask a provider that was built
/// with earlier headers. There is nothing to scan again.
inline constexpr std::uint64_t kRescan = std::uint64_t{1} << 35;

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

// ---- Errors of queues: fi_cq_err_entry has grown twice, fi_eq_err_entry once. A program keeps the
// length that it was built with, whatever the provider was built with.

/// From this version of the interface on programs say what room for data their error entry has.
inline constexpr std::uint32_t kErrorDataSince = FI_VERSION(1, 5);
/// From this one on an error entry ends with an address, for errors of addresses.
inline constexpr std::uint32_t kErrorSourceSince = FI_VERSION(1, 20);

/// The length of an error entry of a program that asked for that version.
template <class Entry>
constexpr std::size_t error_bytes_of(std::uint32_t api_version) {
    if (FI_VERSION_LT(api_version, kErrorDataSince))
        return offsetof(Entry, err_data_size);
    if (FI_VERSION_LT(api_version, kErrorSourceSince))
        return offsetof(Entry, err_data_size) + sizeof(Entry::err_data_size);
    return sizeof(Entry);
}

/// Writes `error` into the entry of a program that asked for that version, and not a byte behind
/// it. No error has data, so whoever brought room for some keeps it; and none is one of an address.
template <class Entry>
void copy_error(Entry& to, Entry error, std::uint32_t api_version) {
    if constexpr (requires { error.src_addr; })
        error.src_addr = FI_ADDR_NOTAVAIL;
    if (FI_VERSION_GE(api_version, kErrorDataSince))
        error.err_data = to.err_data;
    std::memcpy(&to, &error, error_bytes_of<Entry>(api_version));
}

}  // namespace tagwire::fi
