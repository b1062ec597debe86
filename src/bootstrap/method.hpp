// SPDX-License-Identifier: BSD-3-Clause
// The interface of a bootstrap method to the calls of tagwire_bootstrap.h: one operation, of which
// all others are made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "bootstrap/frame.hpp"
#include "bootstrap/result.hpp"
#include "bootstrap/settings.hpp"

namespace tagwire::bootstrap {

/// One call that all ranks make.
struct Step {
    Operation operation;
    std::uint32_t number;  // counts calls of the job
    std::span<const std::byte> mine;
    std::span<std::byte> all;  // size * mine.size()
    Deadline deadline;

    Frame frame(FrameKind kind, std::uint32_t rank, std::uint32_t size) const {
        return {.kind = kind,
                .operation = operation,
                .number = number,
                .rank = rank,
                .size = size,
                .bytes = static_cast<std::uint32_t>(mine.size())};
    }
};

/// Used by one thread at a time. After a failure it is only destroyed.
class Method {
  public:
    Method() = default;
    Method(const Method&) = delete;
    Method& operator=(const Method&) = delete;
    virtual ~Method() = default;  // leaves the job, without waiting

    virtual const char* name() const = 0;
    virtual std::uint32_t rank() const = 0;
    virtual std::uint32_t size() const = 0;
    virtual Result allgather(const Step& step) = 0;
};

using MethodPtr = std::unique_ptr<Method>;

/// Says what both ranks call when a share does not belong to our step.
Result check_share(const Frame& theirs, const Frame& mine);

Result join_single(const Settings& settings, MethodPtr* method_p);
Result join_dir(const Settings& settings, MethodPtr* method_p);
/// UCS_ERR_UNREACHABLE: no launcher answers. UCS_ERR_UNSUPPORTED: no PMIx here.
Result join_pmix(const Settings& settings, MethodPtr* method_p);

}  // namespace tagwire::bootstrap
