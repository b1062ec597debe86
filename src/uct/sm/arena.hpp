// SPDX-License-Identifier: BSD-3-Clause
// The memory that a memory domain hands out: one sparse sealed memfd per domain, so that one
// descriptor, passed once per connection, gives a peer all present and future allocations, and a
// remote key is (arena, offset).
//
// Threads: any (allocation is a control path, under a mutex).
// Invariants
//  (1) Offsets are whole pages; a page belongs to one allocation or is free. Free pages hold no
//      memory.
//  (2) An arena's identity is a random number, and its memfd's inode; it is mapped at most once in
//      a process, however many connections lead to it (ArenaMapping::find).
//  (3) Core dumps have no arena, neither the process's own nor its peers'.
#pragma once

#include <ucs/type/status.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "ucs/memory/reserve.hpp"
#include "ucs/sys/fd.hpp"
#include "ucs/sys/shm.hpp"

namespace tagwire::sm {

/// One arena, our own or a peer's, as this process sees it.
class alignas(64) ArenaMapping {
  public:
    ArenaMapping(std::uint64_t id, std::uint64_t inode, ucs::Mapping mapping)
        : id_(id), inode_(inode), mapping_(std::move(mapping)) {}
    ~ArenaMapping();
    ArenaMapping(const ArenaMapping&) = delete;
    ArenaMapping& operator=(const ArenaMapping&) = delete;

    /// Maps the arena behind `fd`, or finds it when this process has it already. Checks seals and
    /// size.
    static ucs_status_t attach(std::uint64_t id, int fd, std::size_t bytes,
                               std::shared_ptr<ArenaMapping>* mapping_p);
    /// The mapping of the arena `id`, or null when this process has none.
    static std::shared_ptr<ArenaMapping> find(std::uint64_t id);

    [[nodiscard]] std::uint64_t id() const { return id_; }
    [[nodiscard]] std::size_t bytes() const { return mapping_.bytes(); }
    [[nodiscard]] std::byte* base() const { return mapping_.base(); }

    /// Address of [offset, offset + bytes), or null when that is not inside.
    [[nodiscard]] std::byte* at(std::uint64_t offset, std::uint64_t length) const {
        if (offset > bytes() || length > bytes() - offset)
            return nullptr;
        return base() + offset;
    }

  private:
    std::uint64_t id_;
    std::uint64_t inode_;  // of the memfd
    ucs::Mapping mapping_;
};

/// The default size of an arena: 64 GiB, or less where the address space of the process has a
/// `limit` (bytes) or `has_room` says that there is no room for so many bytes; at least 16 MiB.
std::size_t default_arena_bytes(std::size_t limit, bool (*has_room)(std::size_t bytes));

class alignas(64) Arena {
  public:
    /// UCS_ERR_EXCEEDS_LIMIT: out of descriptors. UCS_ERR_NO_MEMORY: no address space for `bytes`.
    static ucs_status_t create(std::size_t bytes, std::unique_ptr<Arena>* arena_p);

    /// At least `bytes` (rounded up to pages) of zeroed memory, aligned to the page.
    /// UCS_ERR_NO_MEMORY: the arena is full (the message names the option that makes it larger).
    ucs_status_t allocate(std::size_t bytes, std::byte** address_p, std::size_t* bytes_p);
    void free(std::byte* address, std::size_t bytes);

    /// Offset of [address, address + bytes) when all of it is ours, else kNoOffset of wire.hpp.
    [[nodiscard]] std::uint64_t offset_of(const void* address, std::size_t bytes) const;

    [[nodiscard]] const ArenaMapping& mapping() const { return *mapping_; }
    [[nodiscard]] int fd() const { return fd_.get(); }
    [[nodiscard]] std::size_t allocated_bytes() const;

  private:
    Arena(ucs::UniqueFd fd, std::shared_ptr<ArenaMapping> mapping);

    ucs::UniqueFd fd_;
    std::shared_ptr<ArenaMapping> mapping_;
    mutable std::mutex mutex_;
    ucs::ReserveMap<std::size_t, std::size_t> free_;  // offset -> bytes, neighbours merged
    std::size_t allocated_bytes_ = 0;
};

}  // namespace tagwire::sm
