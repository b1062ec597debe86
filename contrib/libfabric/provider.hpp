// SPDX-License-Identifier: BSD-3-Clause
// Declarations for every part of the provider: the provider itself, its settings, errors, and
// placeholders for calls that it does not have.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#include <tagwire.h>

#include <cstdint>
#include <exception>
#include <new>
#include <string>

#include "versions.hpp"

namespace tagwire::fi {

/// The core of libfabric writes into it.
extern fi_provider provider;

inline constexpr const char* kName = "tagwire";
/// Bytes of a name: an address of the messaging layer, zeroes, and in the last byte its length. All
/// names have the same size, so that a program can pack them.
inline constexpr std::size_t kNameBytes = FI_NAME_MAX;
inline constexpr std::uint32_t kAddressFormat = kProviderSpecific | 0x7477;
inline constexpr std::uint32_t kProtocol = kProviderSpecific | 0x7477;

/// From the environment, by fi_param_get().
struct Settings {
    std::string transports;  ///< Empty: as TAGWIRE_TRANSPORTS.
    int linger_ms = 500;
    int lookup_ms = 3000;
};
const Settings& settings();

/// The errno of libfabric, positive.
int error_of(tw_status_t status);
/// The status that is told with a positive errno which no call of the messaging layer has given:
/// that of a peer, or of an operation that has not begun.
tw_status_t status_of(int error);

/// Stands in a table of operations for a call that is not there, or not now: answers the error.
template <int kError>
struct Refusing {
    template <class Result, class... Args>
    using Call = Result (*)(Args...);

    template <class Result, class... Args>
    // NOLINTNEXTLINE(google-explicit-constructor): stands for any call
    constexpr operator Call<Result, Args...>() const {
        return [](Args...) -> Result { return static_cast<Result>(-kError); };
    }
};
inline constexpr Refusing<FI_ENOSYS> kAbsent;

/// Runs what may throw for want of memory; no exception crosses the API.
template <class Call>
int without_exceptions(Call call) noexcept {
    try {
        return call();
    } catch (const std::bad_alloc&) {
        return -FI_ENOMEM;
    } catch (const std::exception& error) {
        FI_WARN(&provider, FI_LOG_CORE, "%s\n", error.what());
        return -FI_EOTHER;
    }
}

}  // namespace tagwire::fi
