// SPDX-License-Identifier: BSD-3-Clause
// Anonymous shared memory: sealed memfds and their mappings. The only place that creates or maps
// them.
//
// A segment never has a name: it is reached only through a descriptor that its maker passed on, so
// nothing remains when the last process that holds it is gone, however it went.
#pragma once

#include <ucs/type/status.h>

#include <cstddef>
#include <cstdint>

#include "ucs/sys/fd.hpp"

namespace tagwire::ucs {

/// Owner of one mapping. Move-only; unmaps on destruction.
class Mapping {
  public:
    Mapping() = default;
    Mapping(void* reserved, std::size_t reserved_bytes, void* base, std::size_t bytes)
        : reserved_(reserved), reserved_bytes_(reserved_bytes), base_(base), bytes_(bytes) {}
    Mapping(Mapping&& other) noexcept { swap(other); }
    Mapping& operator=(Mapping&& other) noexcept {
        Mapping taken(static_cast<Mapping&&>(other));
        swap(taken);
        return *this;
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping();

    /// First byte of the shared pages (or of the anonymous ones).
    [[nodiscard]] std::byte* base() const { return static_cast<std::byte*>(base_); }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    /// First byte of the whole reservation: the private front pages of map_behind_header().
    [[nodiscard]] std::byte* front() const { return static_cast<std::byte*>(reserved_); }
    explicit operator bool() const { return base_ != nullptr; }

  private:
    void swap(Mapping& other) noexcept;

    void* reserved_ = nullptr;
    std::size_t reserved_bytes_ = 0;
    void* base_ = nullptr;
    std::size_t bytes_ = 0;
};

std::size_t page_bytes();

inline std::size_t round_up(std::size_t value, std::size_t unit) {
    return (value + unit - 1) / unit * unit;
}

/// Makes a memfd of `bytes` (whole pages) that can neither shrink, grow nor be unsealed
/// (memfd_create(2), fcntl(2) F_ADD_SEALS). The pages are allocated when touched. `name` shows in
/// /proc/PID/maps only. UCS_ERR_EXCEEDS_LIMIT: out of descriptors (the limit is named in the log);
/// UCS_ERR_NO_MEMORY; UCS_ERR_IO_ERROR.
ucs_status_t memfd_create_sealed(const char* name, std::size_t bytes, UniqueFd* fd_p);

/// As memfd_create_sealed(), for others to read: it is mapped here, shared and writable, and sealed
/// against any further writable mapping (F_SEAL_FUTURE_WRITE, Linux 5.1) where the kernel can.
ucs_status_t memfd_create_for_readers(const char* name, std::size_t bytes, Mapping* mapping_p,
                                      UniqueFd* fd_p);

/// Is `fd`, which came from a peer, a memfd of exactly `bytes` bytes with SHRINK, GROW and SEAL
/// set, in pages of the usual size? Without these a peer could truncate it, and pages of hugetlbfs
/// may run out, and kill us with SIGBUS. UCS_ERR_INVALID_PARAM when not (reason logged). Nothing
/// that is asked of another kind of file can wait for its server.
ucs_status_t memfd_check_sealed(int fd, std::size_t bytes);
/// As memfd_check_sealed(), of what memfd_create_for_readers() makes.
ucs_status_t memfd_check_for_readers(int fd, std::size_t bytes);

/// Whether the process may map so much at present: RLIMIT_AS (`ulimit -v`), or a tool that takes
/// most of the address space, may leave less.
bool has_address_space(std::size_t bytes);

/// Maps all `bytes` of `fd` shared, readable and writable, without reserving memory.
ucs_status_t map_shared(int fd, std::size_t bytes, Mapping* mapping_p);

/// Core dumps leave the mapping out. The kernel touches each page of what it dumps, so a dump of
/// address space that is held in reserve would fill it with memory.
void leave_out_of_cores(const Mapping& mapping);

/// Allocates the pages of a part of a shared mapping by one system call (MADV_POPULATE_WRITE, Linux
/// 5.14). Where that is not to be had they are allocated when touched.
void touch_pages(void* address, std::size_t bytes);

/// As map_shared(), but read-only and behind `front_bytes` (whole pages) of private zeroed memory,
/// the front aligned to `alignment` (a power of two >= front_bytes + bytes): any address in the
/// mapping leads to the front by masking. `fd` -1: the memory behind the front is private, too, and
/// writable.
ucs_status_t map_behind_header(int fd, std::size_t bytes, std::size_t front_bytes,
                               std::size_t alignment, Mapping* mapping_p);

/// The number that tells one memfd from another, as long as one of them lives (all are on the same
/// internal file system).
std::uint64_t memfd_inode(int fd);

/// Gives the pages of a range back to the system; they read as zero afterwards (fallocate(2)
/// PUNCH_HOLE).
ucs_status_t memfd_punch_hole(int fd, std::size_t offset, std::size_t bytes);

}  // namespace tagwire::ucs
