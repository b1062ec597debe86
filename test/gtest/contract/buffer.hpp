// SPDX-License-Identifier: BSD-3-Clause
// Buffers with known contents, and memory that a peer may reach.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "entity.hpp"

namespace tagwire::test {

/// Deterministic bytes; two seeds, and two positions within one seed, rarely agree.
void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed);
Bytes pattern(std::size_t length, std::uint64_t seed);
/// Index of the first byte that is not the pattern's, or bytes.size() when all are.
std::size_t first_mismatch(std::span<const std::byte> bytes, std::uint64_t seed);
bool has_pattern(std::span<const std::byte> bytes, std::uint64_t seed);

enum class Backing {
    kAllocated,   // uct_md_mem_alloc's memory (method MD)
    kRegistered,  // ordinary memory, registered
    kUnknown,     // ordinary memory, never registered: a null handle
};
const char* name_of(Backing backing);

/// Memory of an Entity. Registered or allocated where the domain can; keys are packed on demand.
class Buffer {
  public:
    Buffer(Entity& owner, std::size_t length, Backing backing);
    ~Buffer();
    Buffer(Buffer&& other) noexcept;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    std::byte* data() const { return data_; }
    std::size_t size() const { return length_; }
    std::span<std::byte> span() const { return {data_, length_}; }
    std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(data_); }
    uct_mem_h memh() const { return memh_; }
    Bytes packed_rkey() const;
    uct_iov_t iov(std::size_t offset, std::size_t length) const;
    uct_iov_t iov() const { return iov(0, length_); }

  private:
    Entity* owner_;
    std::size_t length_;
    Backing backing_;
    std::byte* data_ = nullptr;
    Bytes storage_;
    uct_allocated_memory_t allocated_ = {};
    uct_mem_h memh_ = UCT_MEM_HANDLE_NULL;
};

/// Whether `entity`'s domain can make such a buffer.
bool can_make(const Entity& entity, Backing backing);
/// The kinds of memory that a peer of `entity` can address.
std::vector<Backing> remote_backings(const Entity& entity);
/// The kinds of memory that zero-copy operations of `entity` accept as the local side.
std::vector<Backing> local_backings(const Entity& entity);

/// Unpacked remote key.
class RemoteKey {
  public:
    RemoteKey(const Entity& user, const Bytes& packed);
    ~RemoteKey();
    RemoteKey(const RemoteKey&) = delete;
    RemoteKey& operator=(const RemoteKey&) = delete;

    uct_rkey_t get() const { return bundle_.rkey; }
    uct_rkey_bundle_t* bundle() { return &bundle_; }

  private:
    uct_component_h component_;
    uct_rkey_bundle_t bundle_ = {};
};

}  // namespace tagwire::test
