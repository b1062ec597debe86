// SPDX-License-Identifier: BSD-3-Clause
#include "uct_side.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tagwire::bench {
namespace {

/// Whether this domain has the transport; `device` gets the first one that fits.
bool has_transport(uct_md_h md, const char* transport, std::string* device) {
    uct_tl_resource_desc_t* resources = nullptr;
    unsigned count = 0;
    must(uct_md_query_tl_resources(md, &resources, &count), "uct_md_query_tl_resources");
    bool found = false;
    for (unsigned i = 0; i < count && !found; ++i) {
        found = std::strcmp(resources[i].tl_name, transport) == 0 &&
                (device->empty() || *device == resources[i].dev_name);
        if (found)
            *device = resources[i].dev_name;
    }
    uct_release_tl_resource_list(resources);
    return found;
}

uct_md_h open_md(uct_component_h component, const char* name) {
    uct_md_config_t* config = nullptr;
    must(uct_md_config_read(component, nullptr, nullptr, &config), "uct_md_config_read");
    uct_md_h md = nullptr;
    const ucs_status_t status = uct_md_open(component, name, config, &md);
    uct_config_release(config);
    return status == UCS_OK ? md : nullptr;
}

/// The domain of this component that has the transport, if any.
uct_md_h find_in_component(uct_component_h component, const char* transport, std::string* device) {
    uct_component_attr_t attr{};
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    must(uct_component_query(component, &attr), "uct_component_query");
    std::vector<uct_md_resource_desc_t> mds(attr.md_resource_count + 1);
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attr.md_resources = mds.data();
    must(uct_component_query(component, &attr), "uct_component_query");
    for (unsigned i = 0; i < attr.md_resource_count; ++i) {
        const uct_md_h md = open_md(component, mds[i].md_name);
        if (md != nullptr && has_transport(md, transport, device))
            return md;
        if (md != nullptr)
            uct_md_close(md);
    }
    return nullptr;
}

uct_md_h find_md(const char* transport, std::string* device, uct_component_h* component_p) {
    uct_component_h* components = nullptr;
    unsigned count = 0;
    must(uct_query_components(&components, &count), "uct_query_components");
    uct_md_h md = nullptr;
    for (unsigned i = 0; i < count && md == nullptr; ++i) {
        md = find_in_component(components[i], transport, device);
        *component_p = components[i];
    }
    uct_release_component_list(components);
    if (md == nullptr) {
        std::fprintf(stderr, "%s: no %s %s here\n", program_invocation_short_name, transport,
                     device->c_str());
        std::exit(1);
    }
    return md;
}

Address room(std::size_t bytes) {
    return Address(bytes / sizeof(std::uint64_t) + 1);
}

ucs_status_t on_unexpected_eager(void*, void*, std::size_t, unsigned, uct_tag_t, std::uint64_t,
                                 void**) {
    return UCS_OK;
}

ucs_status_t on_unexpected_rndv(void*, unsigned, std::uint64_t, const void*, unsigned,
                                std::uint64_t, std::size_t, const void*) {
    return UCS_OK;
}

}  // namespace

void must(ucs_status_t status, const char* what) {
    if (status != UCS_OK) {
        std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
                     ucs_status_string(status));
        std::exit(1);
    }
}

Side open_side(const char* transport, const char* device) {
    Side side;
    side.transport = transport;
    side.device = device;
    side.md = find_md(transport, &side.device, &side.component);
    must(ucs_async_context_create(kAsyncMode, &side.async), "ucs_async_context_create");
    must(uct_worker_create(side.async, UCS_THREAD_MODE_SINGLE, &side.worker), "uct_worker_create");
    return side;
}

void close_side(const Side& side) {
    uct_worker_destroy(side.worker);
    ucs_async_context_destroy(side.async);
    uct_md_close(side.md);
}

uct_iface_h open_interface(const Side& side) {
    uct_iface_config_t* config = nullptr;
    must(uct_md_iface_config_read(side.md, side.transport.c_str(), nullptr, nullptr, &config),
         "uct_md_iface_config_read");
    uct_iface_params_t params{};
    params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                        UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_CB | UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_CB;
    params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
    params.mode.device.tl_name = side.transport.c_str();
    params.mode.device.dev_name = side.device.c_str();
    params.eager_cb = &on_unexpected_eager;
    params.rndv_cb = &on_unexpected_rndv;
    uct_iface_h iface = nullptr;
    must(uct_iface_open(side.md, side.worker, &params, config, &iface), "uct_iface_open");
    uct_config_release(config);
    uct_iface_progress_enable(iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    return iface;
}

uct_iface_attr_t attributes(uct_iface_h iface) {
    uct_iface_attr_t attr{};
    must(uct_iface_query(iface, &attr), "uct_iface_query");
    return attr;
}

bool connects_to_interface(uct_iface_h iface) {
    return (attributes(iface).cap.flags & UCT_IFACE_FLAG_CONNECT_TO_IFACE) != 0;
}

Target target_at(uct_iface_h iface) {
    const uct_iface_attr_t attr = attributes(iface);
    Target target{room(attr.device_addr_len), room(attr.iface_addr_len)};
    must(uct_iface_get_device_address(iface, target.device_address()), "device address");
    must(uct_iface_get_address(iface, target.iface_address()), "interface address");
    return target;
}

std::vector<Target> past_targets(const Side& side, std::size_t count) {
    std::vector<Target> targets;
    targets.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        const uct_iface_h iface = open_interface(side);
        targets.push_back(target_at(iface));
        uct_iface_close(iface);
    }
    return targets;
}

ucs_status_t make_endpoint(uct_iface_h iface, uct_ep_h* ep_p) {
    uct_ep_params_t params{};
    params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
    params.iface = iface;
    return uct_ep_create(&params, ep_p);
}

ucs_status_t make_endpoint_to(uct_iface_h iface, const Target& target, uct_ep_h* ep_p) {
    uct_ep_params_t params{};
    params.field_mask =
        UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
    params.iface = iface;
    params.dev_addr = target.device_address();
    params.iface_addr = target.iface_address();
    return uct_ep_create(&params, ep_p);
}

ucs_status_t connect(uct_ep_h from, uct_ep_h to, const Target& interface_of_to,
                     std::size_t address_bytes) {
    Address address = room(address_bytes);
    auto* const ep_address = reinterpret_cast<uct_ep_addr_t*>(address.data());
    const ucs_status_t status = uct_ep_get_address(to, ep_address);
    return status != UCS_OK
               ? status
               : uct_ep_connect_to_ep(from, interface_of_to.device_address(), ep_address);
}

}  // namespace tagwire::bench
