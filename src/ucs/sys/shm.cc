// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/shm.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "ucs/log/log.hpp"
#include "ucs/sys/limits.hpp"

namespace tagwire::ucs {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

ucs_status_t make_memfd(const char* name, std::size_t bytes, UniqueFd* fd_p) {
    UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd)
        return fd_error("memfd_create", errno);
    if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
        TW_LOG_ERROR("memfd %s: cannot be sized to %zu bytes: %s", name, bytes,
                     std::strerror(errno));
        return UCS_ERR_NO_MEMORY;
    }
    *fd_p = std::move(fd);
    return UCS_OK;
}

ucs_status_t seal(const char* name, int fd, int seals) {
    if (::fcntl(fd, F_ADD_SEALS, seals) == 0)
        return UCS_OK;
    TW_LOG_ERROR("memfd %s: F_ADD_SEALS failed: %s", name, std::strerror(errno));
    return UCS_ERR_IO_ERROR;
}

ucs_status_t map_failed(const char* what, std::size_t bytes) {
    TW_LOG_ERROR("mmap of %zu bytes (%s) failed: %s", bytes, what, std::strerror(errno));
    return UCS_ERR_NO_MEMORY;
}

}  // namespace

namespace {

/// Where mappings behind a header have been, each aligned as the next one needs it, which then does
/// without a larger reservation. Any thread; relaxed, because a place is a hint that nothing goes
/// by: the kernel says whether it is free.
class FreePlaces {
  public:
    void put(void* place) {
        for (auto& at : places_) {
            void* none = nullptr;
            if (at.compare_exchange_strong(none, place, std::memory_order_relaxed))
                return;
        }
    }
    /// null: none is known.
    std::byte* take(std::size_t alignment) {
        for (auto& at : places_) {
            void* place = at.load(std::memory_order_relaxed);
            if (place != nullptr && reinterpret_cast<std::uintptr_t>(place) % alignment == 0 &&
                at.compare_exchange_strong(place, nullptr, std::memory_order_relaxed))
                return static_cast<std::byte*>(place);
        }
        return nullptr;
    }

  private:
    std::array<std::atomic<void*>, 16> places_ = {};
};

constinit FreePlaces free_places;

/// False, and nothing is mapped there, where something else is.
bool map_at(std::byte* place, std::size_t bytes, int protection, int flags, int fd) {
    void* at =
        ::mmap(place, bytes, protection,
               flags | MAP_NORESERVE | MAP_FIXED_NOREPLACE | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
    if (at == place)
        return true;
    if (at != MAP_FAILED)  // a kernel before 4.17, which takes the address for a hint
        ::munmap(at, bytes);
    return false;
}

/// As map_behind_header(), in a place that was left.
bool map_in_free_place(int fd, std::size_t bytes, std::size_t front_bytes, std::size_t alignment,
                       Mapping* mapping_p) {
    std::byte* const front = free_places.take(alignment);
    if (front == nullptr)
        return false;
    const std::size_t private_bytes = front_bytes + (fd < 0 ? bytes : 0);
    if (!map_at(front, private_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1))
        return false;
    if (fd >= 0 && !map_at(front + front_bytes, bytes, PROT_READ, MAP_SHARED, fd)) {
        ::munmap(front, private_bytes);
        return false;
    }
    *mapping_p = Mapping(front, front_bytes + bytes, front + front_bytes, bytes);
    return true;
}

}  // namespace

Mapping::~Mapping() {
    if (reserved_ == nullptr)
        return;
    ::munmap(reserved_, reserved_bytes_);
    if (reserved_ != base_)
        free_places.put(reserved_);
}

void Mapping::swap(Mapping& other) noexcept {
    std::swap(reserved_, other.reserved_);
    std::swap(reserved_bytes_, other.reserved_bytes_);
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
}

std::size_t page_bytes() {
    static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return bytes;
}

ucs_status_t memfd_create_sealed(const char* name, std::size_t bytes, UniqueFd* fd_p) {
    UniqueFd fd;
    ucs_status_t status = make_memfd(name, bytes, &fd);
    if (status == UCS_OK)
        status = seal(name, fd.get(), kSeals);
    if (status == UCS_OK)
        *fd_p = std::move(fd);
    return status;
}

ucs_status_t memfd_create_for_readers(const char* name, std::size_t bytes, Mapping* mapping_p,
                                      UniqueFd* fd_p) {
    UniqueFd fd;
    Mapping mapping;
    ucs_status_t status = make_memfd(name, bytes, &fd);
    if (status == UCS_OK)
        status = map_shared(fd.get(), bytes, &mapping);
    if (status != UCS_OK)
        return status;
    if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0)
        TW_LOG_DEBUG("memfd %s: F_SEAL_FUTURE_WRITE failed: %s", name, std::strerror(errno));
    if ((status = seal(name, fd.get(), kSeals)) != UCS_OK)
        return status;
    *mapping_p = std::move(mapping);
    *fd_p = std::move(fd);
    return UCS_OK;
}

namespace {

/// `optional`: seals that it may have or not.
ucs_status_t check_sealed(int fd, std::size_t bytes, int optional) {
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0) {
        TW_LOG_ERROR("descriptor from a peer is not a memfd: %s", std::strerror(errno));
        return UCS_ERR_INVALID_PARAM;
    }
    // Any other seal (WRITE, FUTURE_WRITE) would make our stores or our mapping fail.
    if ((seals & ~optional) != kSeals) {
        TW_LOG_ERROR("memfd from a peer has seals 0x%x, expected exactly 0x%x",
                     static_cast<unsigned>(seals), static_cast<unsigned>(kSeals));
        return UCS_ERR_INVALID_PARAM;
    }
    struct statfs system {};
    if (::fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) {
        TW_LOG_ERROR("memfd from a peer is of file system 0x%lx, expected 0x%x (tmpfs)",
                     static_cast<unsigned long>(system.f_type), TMPFS_MAGIC);
        return UCS_ERR_INVALID_PARAM;
    }
    struct stat info {};
    if (::fstat(fd, &info) != 0 || static_cast<std::size_t>(info.st_size) != bytes) {
        TW_LOG_ERROR("memfd from a peer has %lld bytes, but the peer announced %zu",
                     static_cast<long long>(info.st_size), bytes);
        return UCS_ERR_INVALID_PARAM;
    }
    return UCS_OK;
}

}  // namespace

ucs_status_t memfd_check_sealed(int fd, std::size_t bytes) {
    return check_sealed(fd, bytes, 0);
}

ucs_status_t memfd_check_for_readers(int fd, std::size_t bytes) {
    return check_sealed(fd, bytes, F_SEAL_FUTURE_WRITE);
}

bool has_address_space(std::size_t bytes) {
    void* base =
        ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return false;
    ::munmap(base, bytes);
    return true;
}

ucs_status_t map_shared(int fd, std::size_t bytes, Mapping* mapping_p) {
    void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED)
        return map_failed("shared segment", bytes);
    *mapping_p = Mapping(base, bytes, base, bytes);
    return UCS_OK;
}

void touch_pages(void* address, std::size_t bytes) {
    if (::madvise(address, bytes, MADV_POPULATE_WRITE) != 0)
        TW_LOG_DEBUG("madvise(MADV_POPULATE_WRITE) failed: %s", std::strerror(errno));
}

void leave_out_of_cores(const Mapping& mapping) {
    if (::madvise(mapping.base(), mapping.bytes(), MADV_DONTDUMP) != 0)
        TW_LOG_DEBUG("madvise(MADV_DONTDUMP) failed: %s", std::strerror(errno));
}

ucs_status_t map_behind_header(int fd, std::size_t bytes, std::size_t front_bytes,
                               std::size_t alignment, Mapping* mapping_p) {
    const std::size_t want = front_bytes + bytes;
    if (want > alignment)
        return UCS_ERR_INVALID_PARAM;
    if (map_in_free_place(fd, bytes, front_bytes, alignment, mapping_p))
        return UCS_OK;
    // Reserve enough address space to find an aligned place, then give back what is around it.
    auto* reserved = static_cast<std::byte*>(::mmap(
        nullptr, alignment + want, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (reserved == MAP_FAILED)
        return map_failed("reservation", alignment + want);
    const auto address = reinterpret_cast<std::uintptr_t>(reserved);
    const std::size_t before = round_up(address, alignment) - address;
    std::byte* front = reserved + before;
    if (before > 0)
        ::munmap(reserved, before);
    if (alignment > before)
        ::munmap(front + want, alignment - before);
    Mapping mapping(front, want, front + front_bytes, bytes);

    const std::size_t private_bytes = fd < 0 ? want : front_bytes;
    if (::mprotect(front, private_bytes, PROT_READ | PROT_WRITE) != 0)
        return map_failed("front", private_bytes);
    if (fd >= 0 && ::mmap(front + front_bytes, bytes, PROT_READ,
                          MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) == MAP_FAILED) {
        return map_failed("shared segment", bytes);
    }
    *mapping_p = std::move(mapping);
    return UCS_OK;
}

std::uint64_t memfd_inode(int fd) {
    struct stat info {};
    return ::fstat(fd, &info) == 0 ? static_cast<std::uint64_t>(info.st_ino) : 0;
}

ucs_status_t memfd_punch_hole(int fd, std::size_t offset, std::size_t bytes) {
    const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    if (::fallocate(fd, mode, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0)
        return UCS_OK;
    TW_LOG_WARN("fallocate(PUNCH_HOLE) of %zu bytes failed: %s", bytes, std::strerror(errno));
    return UCS_ERR_IO_ERROR;
}

}  // namespace tagwire::ucs
