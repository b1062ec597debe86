// SPDX-License-Identifier: BSD-3-Clause
// libpmix, loaded at run time, and what this library needs of it. Its header is needed to build
// this; without it TW_HAVE_PMIX is 0 and method PMIX answers UCS_ERR_UNSUPPORTED.
//
// The functions are those of PMIx 3 to 6. The header's inline helpers are not used: they call
// functions of the version that they came with.
#pragma once

#if __has_include(<pmix.h>)
#define TW_HAVE_PMIX 1  // NOLINT(cppcoreguidelines-macro-usage)

#include <pmix.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/result.hpp"

namespace tagwire::bootstrap {

struct PmixFunctions {
    decltype(&::PMIx_Init) init;
    decltype(&::PMIx_Finalize) finalize;
    decltype(&::PMIx_Put) put;
    decltype(&::PMIx_Commit) commit;
    decltype(&::PMIx_Get_nb) get_nb;
    decltype(&::PMIx_Fence_nb) fence_nb;
    decltype(&::PMIx_Error_string) error_string;
};

/// The process's client of its launcher: PMIx_Init to PMIx_Finalize, which count their calls.
class PmixClient {
  public:
    PmixClient() = default;
    PmixClient(const PmixClient&) = delete;
    PmixClient& operator=(const PmixClient&) = delete;
    ~PmixClient();

    /// UCS_ERR_UNREACHABLE: no launcher answers. UCS_ERR_UNSUPPORTED: no libpmix here.
    Result open();

    std::uint32_t rank() const { return self_.rank; }
    Result job_size(const Deadline& deadline, std::uint32_t* size_p) const;

    /// Gives the value to the launcher.
    Result put(const std::string& key, const std::vector<std::byte>& value) const;
    /// Returns when all ranks have called it, with what they have put.
    Result fence(const Deadline& deadline) const;

    enum class Look { kWait, kLocal };  // kLocal: only what the launcher has on this machine
    /// Nothing: not there, or not in time.
    std::optional<std::vector<std::byte>> get(std::uint32_t rank, const std::string& key, Look look,
                                              const Deadline& deadline) const;

  private:
    Result failed_pmix(const char* what, pmix_status_t status) const;

    const PmixFunctions* pmix_ = nullptr;
    pmix_proc_t self_{};
    bool is_open_ = false;
};

}  // namespace tagwire::bootstrap

#else
#define TW_HAVE_PMIX 0  // NOLINT(cppcoreguidelines-macro-usage)
#endif
