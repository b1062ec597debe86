// SPDX-License-Identifier: BSD-3-Clause
// Buffers of a test, and remote memory that the other side may write, read and change.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>

#include "tools/job.hpp"
#include "tools/link.hpp"

namespace tagwire::tools {

/// Memory that the link's memory domain knows: ordinary memory (page aligned, touched, registered)
/// or allocated by it.
class Buffer {
  public:
    Buffer(const Link& link, MemoryKind kind, std::size_t bytes);
    ~Buffer();
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    std::uint8_t* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    uct_mem_h memh() const { return memh_; }

  private:
    void allocate_user(const Link& link);
    void allocate_from_md(const Link& link);

    uct_md_h md_;
    std::size_t bytes_;
    std::uint8_t* data_ = nullptr;
    uct_mem_h memh_ = UCT_MEM_HANDLE_NULL;
    uct_allocated_memory_t allocated_{};
    bool from_md_ = false;
};

/// The other side's buffer, after both sides showed theirs to each other.
class RemoteBuffer {
  public:
    /// Both sides call it, in the same order. Throws Failure when `mine` cannot be made remotely
    /// accessible or the peer's is shorter than `bytes`.
    RemoteBuffer(const Link& link, const Buffer& mine, std::size_t bytes);
    ~RemoteBuffer();
    RemoteBuffer(const RemoteBuffer&) = delete;
    RemoteBuffer& operator=(const RemoteBuffer&) = delete;

    std::uint64_t address() const { return address_; }
    uct_rkey_t rkey() const { return key_.rkey; }

  private:
    uct_component_h component_;
    std::uint64_t address_ = 0;
    uct_rkey_bundle_t key_{};
    bool unpacked_ = false;
};

}  // namespace tagwire::tools
