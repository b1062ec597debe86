// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/arena.hpp"

#include <algorithm>
#include <unordered_map>

#include "ucs/log/log.hpp"
#include "ucs/sys/process.hpp"
#include "uct/sm/wire.hpp"

namespace tagwire::sm {

namespace {

// All arenas that this process has mapped. Never destroyed: endpoints may outlive static objects of
// the program.
struct Registry {
    std::mutex mutex;
    ucs::ReserveHashMap<std::uint64_t, std::weak_ptr<ArenaMapping>> arenas;
};

Registry& registry() {
    static auto* const instance = new Registry;
    return *instance;
}

}  // namespace

ArenaMapping::~ArenaMapping() {
    const std::lock_guard lock(registry().mutex);
    const auto found = registry().arenas.find(id_);
    // Another thread may have attached it anew between our last reference and this lock.
    if (found != registry().arenas.end() && found->second.expired())
        registry().arenas.erase(found);
}

ucs_status_t ArenaMapping::attach(std::uint64_t id, int fd, std::size_t bytes,
                                  std::shared_ptr<ArenaMapping>* mapping_p) {
    ucs_status_t status = ucs::memfd_check_sealed(fd, bytes);
    if (status != UCS_OK)
        return status;
    const std::uint64_t inode = ucs::memfd_inode(fd);
    const std::lock_guard lock(registry().mutex);
    const auto known = registry().arenas.find(id);
    if (auto mapping = known != registry().arenas.end() ? known->second.lock() : nullptr) {
        // The identity is the peer's word: it must not make us take one arena for another.
        if (mapping->bytes() != bytes || mapping->inode_ != inode) {
            TW_LOG_ERROR("a peer offered memory under the id of another arena: refused");
            return UCS_ERR_INVALID_PARAM;
        }
        *mapping_p = std::move(mapping);
        return UCS_OK;
    }
    ucs::Mapping pages;
    if ((status = ucs::map_shared(fd, bytes, &pages)) != UCS_OK) {
        TW_LOG_ERROR(
            "this process may not map an arena of %zu bytes (see ulimit -v); set a smaller "
            "TAGWIRE_SM_ARENA_BYTES in the process that owns the arena",
            bytes);
        return status;
    }
    ucs::leave_out_of_cores(pages);
    *mapping_p = std::allocate_shared<ArenaMapping>(ucs::ReserveAllocator<ArenaMapping>(), id,
                                                    inode, std::move(pages));
    registry().arenas[id] = *mapping_p;
    return UCS_OK;
}

std::shared_ptr<ArenaMapping> ArenaMapping::find(std::uint64_t id) {
    const std::lock_guard lock(registry().mutex);
    const auto found = registry().arenas.find(id);
    return found == registry().arenas.end() ? nullptr : found->second.lock();
}

std::size_t default_arena_bytes(std::size_t limit, bool (*has_room)(std::size_t)) {
    constexpr std::size_t kWanted = std::size_t{64} << 30;
    constexpr std::size_t kModest = std::size_t{1} << 30;
    constexpr std::size_t kLeast = std::size_t{16} << 20;
    // Those of peers on this machine are mapped beside it.
    constexpr std::size_t kShare = 64;
    std::size_t bytes = std::clamp(limit / kShare, kLeast, kWanted);
    while (bytes > kLeast && !has_room(bytes))
        bytes = std::clamp(bytes / 2, kLeast, kModest);
    return bytes / ucs::page_bytes() * ucs::page_bytes();
}

Arena::Arena(ucs::UniqueFd fd, std::shared_ptr<ArenaMapping> mapping)
    : fd_(std::move(fd)), mapping_(std::move(mapping)) {
    free_.emplace(0, mapping_->bytes());
}

ucs_status_t Arena::create(std::size_t bytes, std::unique_ptr<Arena>* arena_p) {
    bytes = ucs::round_up(bytes, ucs::page_bytes());
    ucs::UniqueFd fd;
    ucs_status_t status = ucs::memfd_create_sealed("tagwire-arena", bytes, &fd);
    if (status != UCS_OK)
        return status;
    std::shared_ptr<ArenaMapping> mapping;
    std::uint64_t id = 0;
    while (id == 0)
        id = ucs::random_u64();
    if ((status = ArenaMapping::attach(id, fd.get(), bytes, &mapping)) != UCS_OK)
        return status;
    arena_p->reset(new Arena(std::move(fd), std::move(mapping)));
    return UCS_OK;
}

ucs_status_t Arena::allocate(std::size_t bytes, std::byte** address_p, std::size_t* bytes_p) {
    if (bytes > mapping_->bytes())
        bytes = mapping_->bytes() + 1;  // keeps the rounding from wrapping around
    const std::size_t want = ucs::round_up(bytes == 0 ? 1 : bytes, ucs::page_bytes());
    const std::lock_guard lock(mutex_);
    for (auto place = free_.begin(); place != free_.end(); ++place) {
        const auto [offset, available] = *place;
        if (available < want)
            continue;
        free_.erase(place);
        if (available > want)
            free_.emplace(offset + want, available - want);
        allocated_bytes_ += want;
        *address_p = mapping_->base() + offset;
        *bytes_p = want;
        return UCS_OK;
    }
    TW_LOG_ERROR(
        "the shared-memory arena of %zu bytes has no room for %zu more (%zu are in use); "
        "set a larger TAGWIRE_SM_ARENA_BYTES",
        mapping_->bytes(), want, allocated_bytes_);
    return UCS_ERR_NO_MEMORY;
}

void Arena::free(std::byte* address, std::size_t bytes) {
    std::size_t offset = static_cast<std::size_t>(address - mapping_->base());
    const std::lock_guard lock(mutex_);
    ucs::memfd_punch_hole(fd_.get(), offset, bytes);
    allocated_bytes_ -= bytes;
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && offset + bytes == next->first) {
        bytes += next->second;
        next = free_.erase(next);
    }
    if (next != free_.begin()) {
        const auto before = std::prev(next);
        if (before->first + before->second == offset) {
            before->second += bytes;
            return;
        }
    }
    free_.emplace(offset, bytes);
}

std::uint64_t Arena::offset_of(const void* address, std::size_t bytes) const {
    const auto start = reinterpret_cast<std::uintptr_t>(mapping_->base());
    const auto wanted = reinterpret_cast<std::uintptr_t>(address);
    if (wanted < start || wanted - start > mapping_->bytes() ||
        bytes > mapping_->bytes() - (wanted - start)) {
        return kNoOffset;
    }
    return wanted - start;
}

std::size_t Arena::allocated_bytes() const {
    const std::lock_guard lock(mutex_);
    return allocated_bytes_;
}

}  // namespace tagwire::sm
