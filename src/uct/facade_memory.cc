// SPDX-License-Identifier: BSD-3-Clause
// The C API of memory allocation: the methods are tried in the caller's order, the first that
// succeeds wins.
#include <uct/api/uct.h>

#include <cinttypes>
#include <cstdlib>
#include <span>

#include "ucs/log/log.hpp"
#include "ucs/memory/no_memory.hpp"
#include "ucs/sys/anonymous_memory.hpp"
#include "ucs/sys/shm.hpp"
#include "uct/base_iface.hpp"
#include "uct/base_md.hpp"
#include "uct/refuse.hpp"

namespace uct = tagwire::uct;
namespace ucs = tagwire::ucs;
using uct::refuse;

namespace {

constexpr unsigned kAllocFlags = UCT_MD_MEM_FLAG_NONBLOCK | UCT_MD_MEM_FLAG_FIXED |
                                 UCT_MD_MEM_FLAG_LOCK | UCT_MD_MEM_FLAG_HIDE_ERRORS |
                                 UCT_MD_MEM_ACCESS_ALL;

/// uct_mem_alloc_params_t with its defaults filled in.
struct Wish {
    std::size_t length = 0;
    unsigned flags = UCT_MD_MEM_ACCESS_LOCAL_READ | UCT_MD_MEM_ACCESS_LOCAL_WRITE;
    void* address = nullptr;
    ucs_memory_type_t type = UCS_MEMORY_TYPE_HOST;
    std::span<const uct_md_h> mds;
    const char* name = "uct_mem_alloc";

    [[nodiscard]] bool is_fixed() const { return (flags & UCT_MD_MEM_FLAG_FIXED) != 0; }
};

ucs_status_t read_wish(std::size_t length, const uct_mem_alloc_params_t& params, Wish* wish) {
    constexpr const char* kCall = "uct_mem_alloc";
    const auto has = [&params](std::uint64_t field) { return (params.field_mask & field) != 0; };
    if (length == 0)
        return refuse(UCS_ERR_INVALID_PARAM, kCall, "length is 0");
    if ((params.field_mask & ~UCS_MASK(5)) != 0) {
        return refuse(UCS_ERR_INVALID_PARAM, kCall, "field_mask 0x%" PRIx64 " has unknown bits",
                      params.field_mask);
    }
    wish->length = length;
    if (has(UCT_MEM_ALLOC_PARAM_FIELD_FLAGS))
        wish->flags = params.flags;
    if (has(UCT_MEM_ALLOC_PARAM_FIELD_ADDRESS))
        wish->address = params.address;
    if (has(UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE))
        wish->type = params.mem_type;
    if (has(UCT_MEM_ALLOC_PARAM_FIELD_MDS)) {
        if (params.mds.count != 0 && params.mds.mds == nullptr)
            return refuse(UCS_ERR_INVALID_PARAM, kCall, "mds.mds is NULL");
        wish->mds = {params.mds.mds, params.mds.count};
    }
    if (has(UCT_MEM_ALLOC_PARAM_FIELD_NAME) && params.name != nullptr)
        wish->name = params.name;
    if ((wish->flags & ~kAllocFlags) != 0)
        return refuse(UCS_ERR_INVALID_PARAM, kCall, "flags 0x%x has unknown bits", wish->flags);
    if (static_cast<unsigned>(wish->type) >= UCS_MEMORY_TYPE_LAST) {
        return refuse(UCS_ERR_INVALID_PARAM, kCall,
                      "mem_type is %u, which is not a ucs_memory_type_t",
                      static_cast<unsigned>(wish->type));
    }
    const bool is_misplaced =
        wish->address == nullptr ||
        reinterpret_cast<std::uintptr_t>(wish->address) % ucs::page_bytes() != 0;
    if (wish->is_fixed() && is_misplaced) {
        return refuse(UCS_ERR_INVALID_PARAM, kCall,
                      "UCT_MD_MEM_FLAG_FIXED needs a page-aligned address");
    }
    return UCS_OK;
}

ucs_status_t allocate_from_md(uct::Md& md, const Wish& wish, uct_allocated_memory_t* memory) {
    uct_md_attr_t attr{};
    const ucs_status_t query_status = uct_md_query(&md, &attr);
    if (query_status != UCS_OK)
        return query_status;
    const bool can_place = !wish.is_fixed() || (attr.cap.flags & UCT_MD_FLAG_FIXED) != 0;
    if ((attr.cap.flags & UCT_MD_FLAG_ALLOC) == 0 || !can_place ||
        wish.length > attr.cap.max_alloc || (attr.cap.alloc_mem_types & UCS_BIT(wish.type)) == 0) {
        return UCS_ERR_UNSUPPORTED;
    }
    std::size_t length = wish.length;
    void* address = wish.address;
    uct_mem_h memh = nullptr;
    const ucs_status_t status =
        md.mem_alloc(&length, &address, wish.type, wish.flags, wish.name, &memh);
    if (status == UCS_OK)
        *memory = {address, length, UCT_ALLOC_METHOD_MD, wish.type, &md, memh};
    return status;
}

ucs_status_t allocate_mapped(const Wish& wish, uct_alloc_method_t method,
                             uct_allocated_memory_t* memory) {
    const auto pages =
        method == UCT_ALLOC_METHOD_HUGE ? ucs::AnonymousPages::kHuge : ucs::AnonymousPages::kNormal;
    ucs::AnonymousMemory mapped{};
    const ucs_status_t status =
        ucs::map_anonymous(wish.length, pages, wish.address, wish.is_fixed(), &mapped);
    if (status == UCS_OK)
        *memory = {mapped.address, mapped.bytes, method, wish.type, nullptr, nullptr};
    return status;
}

ucs_status_t allocate_heap(const Wish& wish, uct_alloc_method_t method,
                           uct_allocated_memory_t* memory) {
    if (wish.is_fixed())
        return UCS_ERR_UNSUPPORTED;
    void* address = nullptr;
    if (method == UCT_ALLOC_METHOD_THP)
        address = ucs::allocate_for_huge_pages(wish.length);
    else if (posix_memalign(&address, ucs::page_bytes(), wish.length) != 0)
        address = nullptr;
    if (address == nullptr)
        return UCS_ERR_NO_MEMORY;
    *memory = {address, wish.length, method, wish.type, nullptr, nullptr};
    return UCS_OK;
}

ucs_status_t allocate(const Wish& wish, uct_alloc_method_t method, uct_allocated_memory_t* memory) {
    if (method == UCT_ALLOC_METHOD_MD) {
        for (uct_md_h md : wish.mds)
            if (md != nullptr && allocate_from_md(uct::md_of(md), wish, memory) == UCS_OK)
                return UCS_OK;
        return UCS_ERR_NO_MEMORY;
    }
    if (wish.type != UCS_MEMORY_TYPE_HOST)
        return UCS_ERR_UNSUPPORTED;
    const bool is_mapped = method == UCT_ALLOC_METHOD_MMAP || method == UCT_ALLOC_METHOD_HUGE;
    return is_mapped ? allocate_mapped(wish, method, memory) : allocate_heap(wish, method, memory);
}

}  // namespace

extern "C" {

ucs_status_t uct_mem_alloc(size_t length, const uct_alloc_method_t* methods, unsigned num_methods,
                           const uct_mem_alloc_params_t* params, uct_allocated_memory_t* mem) try {
    if (uct::has_null(__func__, {{"methods", methods}, {"params", params}, {"mem", mem}}))
        return UCS_ERR_INVALID_PARAM;
    Wish wish;
    const ucs_status_t status = read_wish(length, *params, &wish);
    if (status != UCS_OK)
        return status;
    if (num_methods == 0)
        return refuse(UCS_ERR_INVALID_PARAM, __func__, "num_methods is 0");
    for (unsigned i = 0; i < num_methods; ++i) {
        if (static_cast<unsigned>(methods[i]) < UCT_ALLOC_METHOD_LAST)
            continue;
        return refuse(UCS_ERR_INVALID_PARAM, __func__,
                      "methods[%u] is %u, which is not a uct_alloc_method_t", i,
                      static_cast<unsigned>(methods[i]));
    }
    for (unsigned i = 0; i < num_methods; ++i) {
        if (allocate(wish, methods[i], mem) == UCS_OK)
            return UCS_OK;
        TW_LOG_DEBUG("%s: %zu bytes for \"%s\" could not be allocated by method %s", __func__,
                     length, wish.name, uct_alloc_method_names[methods[i]]);
    }
    if ((wish.flags & UCT_MD_MEM_FLAG_HIDE_ERRORS) != 0)
        return UCS_ERR_NO_MEMORY;
    return refuse(UCS_ERR_NO_MEMORY, __func__,
                  "none of the %u methods could allocate %zu bytes for \"%s\"", num_methods, length,
                  wish.name);
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t uct_mem_free(const uct_allocated_memory_t* mem) {
    if (uct::has_null(__func__, {{"mem", mem}}))
        return UCS_ERR_INVALID_PARAM;
    switch (mem->method) {
        case UCT_ALLOC_METHOD_MD:
            return uct::md_of(mem->md).mem_free(mem->memh);
        case UCT_ALLOC_METHOD_THP:
        case UCT_ALLOC_METHOD_HEAP:
            std::free(mem->address);
            return UCS_OK;
        case UCT_ALLOC_METHOD_MMAP:
        case UCT_ALLOC_METHOD_HUGE:
            return ucs::unmap_anonymous({mem->address, mem->length});
        case UCT_ALLOC_METHOD_LAST:
            break;
    }
    return refuse(UCS_ERR_INVALID_PARAM, __func__,
                  "mem->method is %u: mem does not come from uct_mem_alloc()",
                  static_cast<unsigned>(mem->method));
}

ucs_status_t uct_iface_mem_alloc(uct_iface_h iface, size_t length, unsigned flags, const char* name,
                                 uct_allocated_memory_t* mem) try {
    if (uct::has_null(__func__, {{"iface", iface}, {"mem", mem}}))
        return UCS_ERR_INVALID_PARAM;
    constexpr uct_alloc_method_t kMethods[] = {UCT_ALLOC_METHOD_MD, UCT_ALLOC_METHOD_THP,
                                               UCT_ALLOC_METHOD_HEAP};
    const uct_md_h md = &uct::iface_of(iface).md();
    uct_mem_alloc_params_t params{};
    params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_MDS |
                        UCT_MEM_ALLOC_PARAM_FIELD_NAME;
    params.flags = flags;
    params.mds.mds = &md;
    params.mds.count = 1;
    params.name = name;
    uct_allocated_memory_t memory{};
    ucs_status_t status = uct_mem_alloc(length, kMethods, std::size(kMethods), &params, &memory);
    if (status != UCS_OK)
        return status;
    if (memory.method != UCT_ALLOC_METHOD_MD) {
        status = uct::md_of(md).mem_reg(memory.address, memory.length, flags, &memory.memh);
        if (status != UCS_OK && status != UCS_ERR_UNSUPPORTED) {
            uct_mem_free(&memory);
            return status;
        }
        memory.md = md;
    }
    *mem = memory;
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

void uct_iface_mem_free(const uct_allocated_memory_t* mem) {
    if (uct::has_null(__func__, {{"mem", mem}}))
        return;
    if (mem->method != UCT_ALLOC_METHOD_MD && mem->memh != nullptr)
        uct::md_of(mem->md).mem_dereg(mem->memh);
    uct_mem_free(mem);
}

}  // extern "C"
