// SPDX-License-Identifier: BSD-3-Clause
#include "resource.hpp"

#include <cctype>
#include <cstdlib>
#include <memory>
#include <stdexcept>

namespace tagwire::test {

namespace {

struct ComponentList {
    uct_component_h* handles = nullptr;
    unsigned count = 0;

    ComponentList() { require_ok(uct_query_components(&handles, &count), "uct_query_components"); }
    ~ComponentList() { uct_release_component_list(handles); }
    ComponentList(const ComponentList&) = delete;
    ComponentList& operator=(const ComponentList&) = delete;
};

struct ComponentInfo {
    std::string name;
    std::vector<std::string> mds;
};

ComponentInfo describe(uct_component_h component) {
    uct_component_attr_t attr = {};
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME | UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    require_ok(uct_component_query(component, &attr), "uct_component_query");
    std::vector<uct_md_resource_desc_t> mds(attr.md_resource_count);
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attr.md_resources = mds.data();
    require_ok(uct_component_query(component, &attr), "uct_component_query(md_resources)");

    ComponentInfo info{attr.name, {}};
    for (const auto& md : mds)
        info.mds.emplace_back(md.md_name);
    return info;
}

void append_resources(uct_component_h component, const ComponentInfo& info,
                      const std::string& md_name, std::vector<Resource>* out) {
    uct_md_config_t* config = nullptr;
    require_ok(uct_md_config_read(component, nullptr, nullptr, &config), "uct_md_config_read");
    uct_md_h md = nullptr;
    const ucs_status_t status = uct_md_open(component, md_name.c_str(), config, &md);
    uct_config_release(config);
    if (status != UCS_OK)
        return;  // listed but not usable by this process: nothing to test

    uct_tl_resource_desc_t* found = nullptr;
    unsigned count = 0;
    require_ok(uct_md_query_tl_resources(md, &found, &count), "uct_md_query_tl_resources");
    for (unsigned i = 0; i < count; ++i)
        out->push_back({info.name, md_name, found[i].tl_name, found[i].dev_name});
    uct_release_tl_resource_list(found);
    uct_md_close(md);
}

}  // namespace

void require_ok(ucs_status_t status, const std::string& what) {
    if (status != UCS_OK)
        throw std::runtime_error(what + ": " + ucs_status_string(status));
}

std::string Resource::label() const {
    std::string text = transport + "_" + device;
    for (char& c : text)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0)
            c = '_';
    return text;
}

const std::vector<Resource>& all_resources() {
    static const std::vector<Resource> resources = [] {
        std::vector<Resource> found;
        const ComponentList components;
        for (unsigned i = 0; i < components.count; ++i) {
            const ComponentInfo info = describe(components.handles[i]);
            for (const auto& md : info.mds)
                append_resources(components.handles[i], info, md, &found);
        }
        return found;
    }();
    return resources;
}

const Resource& resource_of(const std::string& transport) {
    for (const auto& resource : all_resources())
        if (resource.transport == transport)
            return resource;
    throw std::runtime_error("the library lists no transport '" + transport + "'");
}

Knobs knobs_of(const Resource& resource) {
    if (resource.transport == "sm")
        return {.posted_receives_max = "SM_TAG_DEPTH", .ring_start = {"SM_FORCE", "ring_start:"}};
    if (resource.transport == "rc" || resource.transport == "dc") {
        // A kept descriptor keeps its credit: with all of them out nobody may send any more.
        const std::string prefix = resource.transport == "rc" ? "RC" : "DC";
        const char* text = std::getenv(("TAGWIRE_" + prefix + "_CREDITS").c_str());
        const std::size_t credits = text == nullptr ? 512 : std::strtoul(text, nullptr, 10);
        // Endpoints that wait for a channel of the pool are served from the pending queue.
        const char* dcis = std::getenv("TAGWIRE_DC_DCIS");
        const bool has_small_pool = dcis != nullptr && std::strtoul(dcis, nullptr, 10) < 8;
        return {.posted_receives_max = prefix + "_TAG_DEPTH",
                .ring_start = {},
                .held_max = std::min<std::size_t>(credits / 2, 400),
                .reads_unasked = true,
                .has_little_room = credits < 16 || has_small_pool};
    }
    if (resource.transport == "ud") {
        // Only silence tells of a peer that cannot answer any more.
        const char* silence = std::getenv("TAGWIRE_UD_PEER_TIMEOUT");
        return {.posted_receives_max = "",
                .ring_start = {},
                .iface_config = {{"UD_PEER_TIMEOUT", silence == nullptr ? "2s" : silence}}};
    }
    if (resource.transport == "tcp")
        return {.posted_receives_max = "TCP_TAG_DEPTH", .ring_start = {}};
    return {.posted_receives_max = "", .ring_start = {}};
}

uct_component_h component_handle(const std::string& name) {
    const ComponentList components;
    for (unsigned i = 0; i < components.count; ++i)
        if (describe(components.handles[i]).name == name)
            return components.handles[i];
    throw std::runtime_error("no component '" + name + "'");
}

}  // namespace tagwire::test
