// SPDX-License-Identifier: BSD-3-Clause
// The C API of memory domains: check, convert, call.
#include <uct/api/uct.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ucs/log/log.hpp"
#include "ucs/memory/no_memory.hpp"
#include "uct/base_md.hpp"
#include "uct/components.hpp"
#include "uct/config_bundle.hpp"
#include "uct/refuse.hpp"

namespace uct = tagwire::uct;
namespace ucs = tagwire::ucs;
using uct::refuse;

namespace {

constexpr unsigned kRegistrationFlags = UCT_MD_MEM_FLAG_NONBLOCK | UCT_MD_MEM_FLAG_FIXED |
                                        UCT_MD_MEM_FLAG_LOCK | UCT_MD_MEM_FLAG_HIDE_ERRORS |
                                        UCT_MD_MEM_ACCESS_ALL;

uct_tl_resource_desc_t to_resource(const uct::TlDevice& device) {
    uct_tl_resource_desc_t resource{};
    std::snprintf(resource.tl_name, sizeof resource.tl_name, "%s", device.tl_name.c_str());
    std::snprintf(resource.dev_name, sizeof resource.dev_name, "%s", device.dev_name.c_str());
    resource.dev_type = device.type;
    resource.sys_device = device.sys_device;
    return resource;
}

}  // namespace

extern "C" {

ucs_status_t uct_md_open(uct_component_h component, const char* md_name,
                         const uct_md_config_t* config, uct_md_h* md_p) try {
    if (uct::has_null(
            __func__,
            {{"component", component}, {"md_name", md_name}, {"config", config}, {"md_p", md_p}})) {
        return UCS_ERR_INVALID_PARAM;
    }
    if (!uct::is_component(component)) {
        return refuse(UCS_ERR_INVALID_PARAM, __func__,
                      "component %p is not one that uct_query_components() lists",
                      static_cast<void*>(component));
    }
    const uct::Component& found = uct::component_of(component);
    uct::ConfigBundle* bundle = uct::ConfigBundle::from(config);
    if (bundle == nullptr || !bundle->is_of(found.md_options)) {
        return refuse(UCS_ERR_INVALID_PARAM, __func__,
                      "config was not read by uct_md_config_read() for component %s", found.name);
    }
    std::vector<std::string> names;
    ucs_status_t status = found.query_md_resources(found, &names);
    if (status != UCS_OK)
        return status;
    if (std::ranges::find(names, md_name) == names.end()) {
        return refuse(UCS_ERR_NO_DEVICE, __func__, "component %s has no memory domain \"%.64s\"",
                      found.name, md_name);
    }
    uct::Md* md = nullptr;
    status = found.md_open(found, md_name, bundle->values(), &md);
    if (status == UCS_OK)
        *md_p = md;
    return status;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

void uct_md_close(uct_md_h md) {
    if (md == nullptr)
        return;
    uct::Md& domain = uct::md_of(md);
    if (domain.iface_count() != 0) {
        refuse(UCS_ERR_BUSY, __func__, "the domain stays open: close its %u interfaces first",
               domain.iface_count());
        return;
    }
    delete &domain;
}

ucs_status_t uct_md_query(uct_md_h md, uct_md_attr_t* md_attr) try {
    if (uct::has_null(__func__, {{"md", md}, {"md_attr", md_attr}}))
        return UCS_ERR_INVALID_PARAM;
    const uct::Component& owner = uct::md_of(md).owner();
    uct_md_attr_t attr{};
    std::snprintf(attr.component_name, sizeof attr.component_name, "%s", owner.name);
    attr.rkey_packed_size = owner.rkey_packed_bytes;
    const ucs_status_t status = uct::md_of(md).query(&attr);
    if (status == UCS_OK)
        *md_attr = attr;
    return status;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t uct_md_query_tl_resources(uct_md_h md, uct_tl_resource_desc_t** resources_p,
                                       unsigned* num_resources_p) try {
    if (uct::has_null(
            __func__,
            {{"md", md}, {"resources_p", resources_p}, {"num_resources_p", num_resources_p}})) {
        return UCS_ERR_INVALID_PARAM;
    }
    std::vector<uct::TlDevice> devices;
    const ucs_status_t status = uct::md_of(md).query_tl_resources(&devices);
    if (status != UCS_OK)
        return status;
    auto* list = static_cast<uct_tl_resource_desc_t*>(
        std::calloc(devices.size() + 1, sizeof(uct_tl_resource_desc_t)));
    if (list == nullptr)
        return UCS_ERR_NO_MEMORY;
    std::ranges::transform(devices, list, to_resource);
    *resources_p = list;
    *num_resources_p = static_cast<unsigned>(devices.size());
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

void uct_release_tl_resource_list(uct_tl_resource_desc_t* resources) {
    std::free(resources);
}

ucs_status_t uct_md_iface_config_read(uct_md_h md, const char* tl_name, const char* env_prefix,
                                      const char* filename, uct_iface_config_t** config_p) try {
    if (uct::has_null(__func__, {{"md", md}, {"config_p", config_p}}))
        return UCS_ERR_INVALID_PARAM;
    if (tl_name == nullptr) {
        return refuse(UCS_ERR_UNSUPPORTED, __func__,
                      "tl_name is NULL: interfaces cannot be opened by socket address");
    }
    std::vector<uct::TlDevice> devices;
    ucs_status_t status = uct::md_of(md).query_tl_resources(&devices);
    if (status != UCS_OK)
        return status;
    const auto is_named = [tl_name](const uct::TlDevice& device) {
        return device.tl_name == tl_name;
    };
    if (std::ranges::none_of(devices, is_named)) {
        return refuse(UCS_ERR_NO_DEVICE, __func__, "the domain has no transport \"%.64s\"",
                      tl_name);
    }
    ucs::config_warn_unknown_once(uct::all_option_tables());
    uct::ConfigBundle* bundle = nullptr;
    status = uct::ConfigBundle::read(uct::md_of(md).owner().iface_options(tl_name),
                                     {.env_prefix = env_prefix, .file = filename}, &bundle);
    if (status != UCS_OK)
        return status;
    *config_p = reinterpret_cast<uct_iface_config_t*>(bundle);
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

// ---- Registration

ucs_status_t uct_md_mem_query(uct_md_h md, const void* address, size_t length,
                              uct_md_mem_attr_t* mem_attr) {
    if (uct::has_null(__func__, {{"md", md}, {"address", address}, {"mem_attr", mem_attr}}))
        return UCS_ERR_INVALID_PARAM;
    if (length == 0)
        return refuse(UCS_ERR_INVALID_PARAM, __func__, "length is 0");
    if ((mem_attr->field_mask & ~UCS_MASK(4)) != 0) {
        return refuse(UCS_ERR_INVALID_PARAM, __func__, "field_mask 0x%" PRIx64 " has unknown bits",
                      mem_attr->field_mask);
    }
    return uct::md_of(md).mem_query(address, length, mem_attr);
}

ucs_status_t uct_md_detect_memory_type(uct_md_h md, const void* addr, size_t length,
                                       ucs_memory_type_t* mem_type_p) {
    if (uct::has_null(__func__, {{"md", md}, {"addr", addr}, {"mem_type_p", mem_type_p}}))
        return UCS_ERR_INVALID_PARAM;
    if (length == 0)
        return refuse(UCS_ERR_INVALID_PARAM, __func__, "length is 0");
    uct_md_mem_attr_t attr{};
    attr.field_mask = UCT_MD_MEM_ATTR_FIELD_MEM_TYPE;
    const ucs_status_t status = uct::md_of(md).mem_query(addr, length, &attr);
    if (status == UCS_OK)
        *mem_type_p = attr.mem_type;
    return status;
}

ucs_status_t uct_md_mem_advise(uct_md_h md, uct_mem_h memh, void* addr, size_t length,
                               uct_mem_advice_t advice) {
    if (uct::has_null(__func__, {{"md", md}, {"memh", memh}, {"addr", addr}}))
        return UCS_ERR_INVALID_PARAM;
    if (length == 0)
        return refuse(UCS_ERR_INVALID_PARAM, __func__, "length is 0");
    return uct::md_of(md).mem_advise(memh, addr, length, advice);
}

ucs_status_t uct_md_mem_reg(uct_md_h md, void* address, size_t length, unsigned flags,
                            uct_mem_h* memh_p) try {
    if (uct::has_null(__func__, {{"md", md}, {"address", address}, {"memh_p", memh_p}}))
        return UCS_ERR_INVALID_PARAM;
    if (length == 0)
        return refuse(UCS_ERR_INVALID_PARAM, __func__, "length is 0");
    if ((flags & ~kRegistrationFlags) != 0)
        return refuse(UCS_ERR_INVALID_PARAM, __func__, "flags 0x%x has unknown bits", flags);
    return uct::md_of(md).mem_reg(address, length, flags, memh_p);
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t uct_md_mem_dereg(uct_md_h md, uct_mem_h memh) {
    if (uct::has_null(__func__, {{"md", md}, {"memh", memh}}))
        return UCS_ERR_INVALID_PARAM;
    return uct::md_of(md).mem_dereg(memh);
}

ucs_status_t uct_md_mkey_pack(uct_md_h md, uct_mem_h memh, void* rkey_buffer) {
    if (uct::has_null(__func__, {{"md", md}, {"memh", memh}, {"rkey_buffer", rkey_buffer}}))
        return UCS_ERR_INVALID_PARAM;
    return uct::md_of(md).mkey_pack(memh, rkey_buffer);
}

int uct_md_is_sockaddr_accessible(uct_md_h /*md*/, const ucs_sock_addr_t* /*sockaddr*/,
                                  uct_sockaddr_accessibility_t /*mode*/) {
    return 0;
}

}  // extern "C"
