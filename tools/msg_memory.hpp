// SPDX-License-Identifier: BSD-3-Clause
// Memory of the tests at level msg. At level uct it is a Buffer (memory.hpp).
#pragma once

#include <tagwire.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tools/job.hpp"
#include "tools/msg_link.hpp"

namespace tagwire::tools {

/// kUser and kList: ordinary memory; kMapped: with a handle, too; kAlloc: of tw_mem_alloc().
class MsgMemory {
  public:
    MsgMemory(tw_context_h context, MemoryKind kind, std::size_t bytes);
    ~MsgMemory();
    MsgMemory(const MsgMemory&) = delete;
    MsgMemory& operator=(const MsgMemory&) = delete;

    std::uint8_t* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    /// Null without a handle.
    tw_mem_h handle() const { return handle_; }

  private:
    tw_context_h context_;
    std::size_t bytes_;
    std::optional<Pages> pages_;
    std::uint8_t* data_ = nullptr;
    tw_mem_h handle_ = nullptr;
};

}  // namespace tagwire::tools
