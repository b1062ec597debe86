// SPDX-License-Identifier: BSD-3-Clause
// The C API of components, configuration and remote keys: check, convert, call.
#include <uct/api/uct.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ucs/memory/no_memory.hpp"
#include "uct/components.hpp"
#include "uct/config_bundle.hpp"
#include "uct/refuse.hpp"

namespace uct = tagwire::uct;
namespace ucs = tagwire::ucs;
using uct::refuse;

namespace {

constexpr std::uint64_t kComponentFields = UCS_MASK(4);

/// Handles may come from another library that shares the process: they are looked up, never
/// trusted.
ucs_status_t check_component(const char* call, uct_component_h component) {
    if (uct::is_component(component))
        return UCS_OK;
    return refuse(UCS_ERR_INVALID_PARAM, call,
                  "component %p is not one that uct_query_components() lists",
                  static_cast<void*>(component));
}

ucs_status_t check_key(const char* call, uct_component_h component, const uct_rkey_bundle_t& key) {
    const ucs_status_t status = check_component(call, component);
    // UCX never looks at the type, and programs of it clear it.
    if (status != UCS_OK || key.type == component || key.type == nullptr)
        return status;
    return refuse(UCS_ERR_INVALID_PARAM, call, "the key was not unpacked by this component");
}

void copy_name(char* field, std::size_t bytes, const std::string& name) {
    std::snprintf(field, bytes, "%s", name.c_str());
}

}  // namespace

const char* uct_alloc_method_names[UCT_ALLOC_METHOD_LAST + 1] = {"thp",  "md",   "heap",
                                                                 "mmap", "huge", "default"};
const char* uct_device_type_names[UCT_DEVICE_TYPE_LAST + 1] = {
    "network", "intra-node", "accelerator", "loopback", "unknown"};

extern "C" {

ucs_status_t uct_query_components(uct_component_h** components_p, unsigned* num_components_p) try {
    if (uct::has_null(__func__,
                      {{"components_p", components_p}, {"num_components_p", num_components_p}})) {
        return UCS_ERR_INVALID_PARAM;
    }
    const auto components = uct::all_components();
    // One more than needed: an empty list is a list, too.
    auto* list =
        static_cast<uct_component_h*>(std::calloc(components.size() + 1, sizeof(uct_component_h)));
    if (list == nullptr)
        return UCS_ERR_NO_MEMORY;
    for (std::size_t i = 0; i < components.size(); ++i)
        list[i] = uct::handle_of(*components[i]);
    *components_p = list;
    *num_components_p = static_cast<unsigned>(components.size());
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

void uct_release_component_list(uct_component_h* components) {
    std::free(components);
}

ucs_status_t uct_component_query(uct_component_h component, uct_component_attr_t* attr) try {
    if (uct::has_null(__func__, {{"component", component}, {"component_attr", attr}}))
        return UCS_ERR_INVALID_PARAM;
    ucs_status_t status = check_component(__func__, component);
    if (status != UCS_OK)
        return status;
    if ((attr->field_mask & ~kComponentFields) != 0) {
        return refuse(UCS_ERR_INVALID_PARAM, __func__, "field_mask 0x%" PRIx64 " has unknown bits",
                      attr->field_mask);
    }
    const bool wants_list = (attr->field_mask & UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES) != 0;
    const uct::Component& found = uct::component_of(component);
    std::vector<std::string> mds;
    if (wants_list || (attr->field_mask & UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT) != 0) {
        status = found.query_md_resources(found, &mds);  // looks at devices, so only when asked
        if (status != UCS_OK)
            return status;
    }
    if (wants_list && attr->md_resources == nullptr && !mds.empty())
        return refuse(UCS_ERR_INVALID_PARAM, __func__, "md_resources is NULL");

    if ((attr->field_mask & UCT_COMPONENT_ATTR_FIELD_NAME) != 0)
        copy_name(attr->name, sizeof attr->name, found.name);
    if ((attr->field_mask & UCT_COMPONENT_ATTR_FIELD_FLAGS) != 0)
        attr->flags = found.flags;
    if ((attr->field_mask & UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT) != 0)
        attr->md_resource_count = static_cast<unsigned>(mds.size());
    for (std::size_t i = 0; wants_list && i < mds.size(); ++i)
        copy_name(attr->md_resources[i].md_name, sizeof attr->md_resources[i].md_name, mds[i]);
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

// ---- Configuration

ucs_status_t uct_md_config_read(uct_component_h component, const char* env_prefix,
                                const char* filename, uct_md_config_t** config_p) try {
    if (uct::has_null(__func__, {{"component", component}, {"config_p", config_p}}))
        return UCS_ERR_INVALID_PARAM;
    ucs_status_t status = check_component(__func__, component);
    if (status != UCS_OK)
        return status;
    ucs::config_warn_unknown_once(uct::all_option_tables());
    uct::ConfigBundle* bundle = nullptr;
    status = uct::ConfigBundle::read(uct::component_of(component).md_options,
                                     {.env_prefix = env_prefix, .file = filename}, &bundle);
    if (status != UCS_OK)
        return status;
    *config_p = reinterpret_cast<uct_md_config_t*>(bundle);
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t uct_config_get(void* config, const char* name, char* value, size_t max) try {
    if (uct::has_null(__func__, {{"config", config}, {"name", name}, {"value", value}}))
        return UCS_ERR_INVALID_PARAM;
    uct::ConfigBundle* bundle = uct::ConfigBundle::from(config);
    if (bundle == nullptr)
        return refuse(UCS_ERR_INVALID_PARAM, __func__, "config %p is not a configuration", config);
    return ucs::config_get(bundle->table(), bundle->values(), name, value, max);
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t uct_config_modify(void* config, const char* name, const char* value) try {
    if (uct::has_null(__func__, {{"config", config}, {"name", name}, {"value", value}}))
        return UCS_ERR_INVALID_PARAM;
    uct::ConfigBundle* bundle = uct::ConfigBundle::from(config);
    if (bundle == nullptr)
        return refuse(UCS_ERR_INVALID_PARAM, __func__, "config %p is not a configuration", config);
    return ucs::config_set(bundle->table(), bundle->values(), name, value);
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

void uct_config_release(void* config) {
    if (config == nullptr)
        return;
    uct::ConfigBundle* bundle = uct::ConfigBundle::from(config);
    if (bundle == nullptr) {
        refuse(UCS_ERR_INVALID_PARAM, __func__, "config %p is not a configuration", config);
        return;
    }
    delete bundle;
}

// ---- Remote keys

ucs_status_t uct_rkey_unpack(uct_component_h component, const void* rkey_buffer,
                             uct_rkey_bundle_t* rkey_ob) try {
    if (uct::has_null(
            __func__,
            {{"component", component}, {"rkey_buffer", rkey_buffer}, {"rkey_ob", rkey_ob}})) {
        return UCS_ERR_INVALID_PARAM;
    }
    ucs_status_t status = check_component(__func__, component);
    if (status != UCS_OK)
        return status;
    const uct::Component& found = uct::component_of(component);
    uct_rkey_bundle_t bundle{UCT_INVALID_RKEY, nullptr, component};
    status = found.rkey_unpack(found, rkey_buffer, &bundle.rkey, &bundle.handle);
    if (status == UCS_OK)
        *rkey_ob = bundle;
    return status;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t uct_rkey_ptr(uct_component_h component, uct_rkey_bundle_t* rkey_ob,
                          uint64_t remote_addr, void** addr_p) {
    if (uct::has_null(__func__,
                      {{"component", component}, {"rkey_ob", rkey_ob}, {"addr_p", addr_p}})) {
        return UCS_ERR_INVALID_PARAM;
    }
    const ucs_status_t status = check_key(__func__, component, *rkey_ob);
    if (status != UCS_OK)
        return status;
    const uct::Component& found = uct::component_of(component);
    return found.rkey_ptr(found, rkey_ob->rkey, rkey_ob->handle, remote_addr, addr_p);
}

ucs_status_t uct_rkey_release(uct_component_h component, const uct_rkey_bundle_t* rkey_ob) {
    if (uct::has_null(__func__, {{"component", component}, {"rkey_ob", rkey_ob}}))
        return UCS_ERR_INVALID_PARAM;
    const ucs_status_t status = check_key(__func__, component, *rkey_ob);
    if (status != UCS_OK)
        return status;
    const uct::Component& found = uct::component_of(component);
    return found.rkey_release(found, rkey_ob->rkey, rkey_ob->handle);
}

}  // extern "C"
