// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/sm_md.hpp"

#include <sys/resource.h>

#include <atomic>
#include <cstring>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "uct/sm/key_guard.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

namespace {

constexpr unsigned kRemoteAccess =
    UCT_MD_MEM_ACCESS_REMOTE_PUT | UCT_MD_MEM_ACCESS_REMOTE_GET | UCT_MD_MEM_ACCESS_REMOTE_ATOMIC;

/// Bytes; without a limit all there could be.
std::size_t address_space_limit() {
    rlimit limit{};
    return ::getrlimit(RLIMIT_AS, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

}  // namespace

ucs_status_t SmMd::open(const uct::Component& family, const SmMdOptions& options, uct::Md** md_p) {
    const auto has_room = [](std::size_t bytes) {
        return ucs::has_address_space(bytes + kTablesBytes);
    };
    const std::size_t arena_bytes = options.arena_bytes != 0
                                        ? options.arena_bytes
                                        : default_arena_bytes(address_space_limit(), has_room);
    std::unique_ptr<Arena> arena;
    ucs_status_t status = Arena::create(arena_bytes + kTablesBytes, &arena);
    if (status != UCS_OK)
        return status;
    std::byte* tables = nullptr;
    std::size_t bytes = 0;
    status = arena->allocate(kTablesBytes, &tables, &bytes);
    if (status != UCS_OK)
        return status;
    TW_CHECK(tables == arena->mapping().base());
    *md_p = new SmMd(family, std::move(arena));
    return UCS_OK;
}

SmMd::SmMd(const uct::Component& family, std::unique_ptr<Arena> arena)
    : Md(family),
      arena_(std::move(arena)),
      keys_(reinterpret_cast<Generation*>(arena_->mapping().base())),
      writers_(reinterpret_cast<WriterWord<>*>(arena_->mapping().base() + kGenerationsBytes)) {}

SmMd::~SmMd() {
    keys_.for_each([](MemHandle& handle) {
        TW_LOG_WARN("memory domain closed while %p (%zu bytes) was still %s",
                    static_cast<void*>(handle.address), handle.length,
                    handle.is_allocated ? "allocated" : "registered");
        delete &handle;
    });
}

ucs_status_t SmMd::query(uct_md_attr_t* attr) {
    attr->cap.max_alloc = arena_->mapping().bytes() - kTablesBytes;
    attr->cap.max_reg = SIZE_MAX;
    attr->cap.flags =
        UCT_MD_FLAG_ALLOC | UCT_MD_FLAG_REG | UCT_MD_FLAG_NEED_RKEY | UCT_MD_FLAG_RKEY_PTR;
    attr->cap.reg_mem_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    attr->cap.alloc_mem_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    attr->cap.access_mem_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    attr->cap.detect_mem_types = 0;
    attr->reg_cost = ucs_linear_func_make(50e-9, 0);
    CPU_ZERO(&attr->local_cpus);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        UCS_CPU_SET(cpu, &attr->local_cpus);
    return UCS_OK;
}

ucs_status_t SmMd::query_tl_resources(std::vector<uct::TlDevice>* devices) {
    devices->push_back({"sm", "memory", UCT_DEVICE_TYPE_SHM, UCS_SYS_DEVICE_ID_UNKNOWN});
    return UCS_OK;
}

ucs_status_t SmMd::iface_open(uct::Worker& worker, const uct_iface_params_t& params,
                              const void* iface_values, uct_iface_h* iface_p) {
    return SmIface::open(*this, worker, params, *static_cast<const SmOptions*>(iface_values),
                         iface_p);
}

MemHandle* SmMd::track(std::byte* address, std::size_t length, unsigned flags) {
    auto handle = std::make_unique<MemHandle>();
    handle->address = address;
    handle->length = length;
    handle->arena_offset = arena_->offset_of(address, length);
    handle->flags = flags & kRemoteAccess;
    if (!keys_.add(*handle)) {
        TW_LOG_ERROR("a memory domain of sm has at most %u registrations: release some first",
                     kKeyIndexMax);
        return nullptr;
    }
    return handle.release();
}

void SmMd::forget(MemHandle* handle) {
    keys_.remove(*handle);
    constexpr unsigned kWrites = UCT_MD_MEM_ACCESS_REMOTE_PUT | UCT_MD_MEM_ACCESS_REMOTE_ATOMIC;
    if ((handle->flags & kWrites) != 0 && handle->is_packed)
        writers_.wait();
    delete handle;
}

ucs_status_t SmMd::mem_alloc(std::size_t* length_p, void** address_p, ucs_memory_type_t type,
                             unsigned flags, const char*, uct_mem_h* memh_p) {
    if (type != UCS_MEMORY_TYPE_HOST)
        return UCS_ERR_UNSUPPORTED;
    if ((flags & UCT_MD_MEM_FLAG_FIXED) != 0) {
        TW_LOG_ERROR("memory of the shared-memory arena cannot be placed at a fixed address");
        return UCS_ERR_UNSUPPORTED;
    }
    std::byte* address = nullptr;
    std::size_t length = 0;
    const ucs_status_t status = arena_->allocate(*length_p, &address, &length);
    if (status != UCS_OK)
        return status;
    MemHandle* handle = track(address, length, flags);
    if (handle == nullptr) {
        arena_->free(address, length);
        return UCS_ERR_EXCEEDS_LIMIT;
    }
    handle->is_allocated = true;
    *length_p = length;
    *address_p = address;
    *memh_p = handle;
    return UCS_OK;
}

ucs_status_t SmMd::mem_free(uct_mem_h memh) {
    auto* handle = static_cast<MemHandle*>(memh);
    if (!handle->is_allocated) {
        TW_LOG_ERROR("mem_free: this memory was registered, not allocated: use uct_md_mem_dereg()");
        return UCS_ERR_INVALID_PARAM;
    }
    std::byte* address = handle->address;
    const std::size_t length = handle->length;
    forget(handle);
    arena_->free(address, length);
    return UCS_OK;
}

ucs_status_t SmMd::mem_reg(void* address, std::size_t length, unsigned flags, uct_mem_h* memh_p) {
    MemHandle* handle = track(static_cast<std::byte*>(address), length, flags);
    if (handle == nullptr)
        return UCS_ERR_EXCEEDS_LIMIT;
    *memh_p = handle;
    return UCS_OK;
}

ucs_status_t SmMd::mem_dereg(uct_mem_h memh) {
    auto* handle = static_cast<MemHandle*>(memh);
    if (handle->is_allocated) {
        TW_LOG_ERROR("mem_dereg: this memory was allocated by the domain: use uct_mem_free()");
        return UCS_ERR_INVALID_PARAM;
    }
    forget(handle);
    return UCS_OK;
}

ucs_status_t SmMd::mkey_pack(uct_mem_h memh, void* packed) {
    auto* handle = static_cast<MemHandle*>(memh);
    // Relaxed: whoever ends the registration has heard of the key.
    std::atomic_ref(handle->is_packed).store(true, std::memory_order_relaxed);
    const PackedRkey rkey{kRkeyMagic,
                          handle->key,
                          arena_->mapping().id(),
                          handle->arena_offset,
                          reinterpret_cast<std::uintptr_t>(handle->address),
                          handle->length,
                          handle->flags != 0 ? handle->generation : kNoGeneration};
    std::memcpy(packed, &rkey, sizeof rkey);
    return UCS_OK;
}

}  // namespace tagwire::sm
