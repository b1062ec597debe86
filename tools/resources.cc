// SPDX-License-Identifier: BSD-3-Clause
#include "tools/resources.hpp"

#include <uct/api/tagwire_uct.h>

#include <string_view>

#include "cli/failure.hpp"
#include "tools/describe.hpp"

namespace tagwire::tools {
namespace {

/// Visits the resources of this machine until `visit(resource)` says true. A memory domain that
/// cannot be opened is left out, and reported to `complain(sentence)`.
template <class Visit, class Complain>
void visit_resources(Visit visit, Complain complain) {
    for (const uct_component_h component : Components()) {
        for (const std::string& name : md_names(component)) {
            try {
                const MdHandle md = open_md(component, name);
                for (const Resource& resource : resources_of(component, name, md.get()))
                    if (visit(resource))
                        return;
            } catch (const Failure& failure) {
                complain(failure.what());
            }
        }
    }
}

/// The facts of a component about libraries and devices, as the end of a sentence; null: those of
/// all components.
std::string findings(uct_component_h wanted) {
    std::string list;
    for (const uct_component_h component : Components()) {
        if (wanted != nullptr && component != wanted)
            continue;
        for (const auto& [key, value] : describe(component))
            list.append("; ").append(key).append(": ").append(value);
    }
    return list;
}

}  // namespace

void check(ucs_status_t status, const char* what) {
    if (status != UCS_OK)
        throw Failure(text("%s: %s", what, ucs_status_string(status)));
}

Components::Components() {
    check(uct_query_components(&list_, &count_), "cannot list the components");
}

Components::~Components() {
    uct_release_component_list(list_);
}

std::string component_name(uct_component_h component) {
    uct_component_attr_t attr{};
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
    check(uct_component_query(component, &attr), "uct_component_query");
    return attr.name;
}

std::vector<std::string> md_names(uct_component_h component) {
    uct_component_attr_t attr{};
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    check(uct_component_query(component, &attr), "uct_component_query");
    std::vector<uct_md_resource_desc_t> mds(attr.md_resource_count);
    if (mds.empty())
        return {};
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attr.md_resources = mds.data();
    check(uct_component_query(component, &attr), "uct_component_query");
    std::vector<std::string> names;
    for (const uct_md_resource_desc_t& md : mds)
        names.emplace_back(md.md_name);
    return names;
}

MdHandle open_md(uct_component_h component, const std::string& md_name) {
    uct_md_config_t* config = nullptr;
    check(uct_md_config_read(component, nullptr, nullptr, &config), "uct_md_config_read");
    uct_md_h md = nullptr;
    const ucs_status_t status = uct_md_open(component, md_name.c_str(), config, &md);
    uct_config_release(config);
    check(status, text("cannot open memory domain %s", md_name.c_str()).c_str());
    return MdHandle(md);
}

std::vector<Resource> resources_of(uct_component_h component, const std::string& md_name,
                                   uct_md_h md) {
    uct_tl_resource_desc_t* list = nullptr;
    unsigned count = 0;
    check(uct_md_query_tl_resources(md, &list, &count), "uct_md_query_tl_resources");
    std::vector<Resource> resources;
    for (unsigned i = 0; i < count; ++i) {
        resources.push_back({component, component_name(component), md_name, list[i].tl_name,
                             list[i].dev_name, list[i].dev_type});
    }
    uct_release_tl_resource_list(list);
    return resources;
}

std::vector<Resource> all_resources() {
    std::vector<Resource> resources;
    visit_resources(
        [&resources](const Resource& resource) {
            resources.push_back(resource);
            return false;
        },
        [](const char*) {});
    return resources;
}

bool names_device(const std::string& wanted, const std::string& device) {
    return device == wanted || (device.starts_with(wanted) && device[wanted.size()] == ':');
}

std::optional<std::string> transports_set() {
    std::optional<std::string> value;
    tagwire_config_list(
        [](void* arg, const tagwire_config_entry_t* entry) {
            if (std::string_view(entry->name) == "TAGWIRE_TRANSPORTS" &&
                std::string_view(entry->source) != "default") {
                *static_cast<std::optional<std::string>*>(arg) = entry->value;
            }
        },
        &value);
    return value;
}

const char* named_by(const std::string& transports) {
    return transports_set().value_or("").starts_with(transports) ? "TAGWIRE_TRANSPORTS" : "--tl";
}

Resource find_resource(const std::string& transport, const std::string& device,
                       const char* option) {
    std::optional<Resource> found;
    std::string available;
    std::string problems;
    uct_component_h of_transport = nullptr;
    visit_resources(
        [&](const Resource& resource) {
            if (resource.transport == transport) {
                of_transport = resource.component;
                if (device.empty() || names_device(device, resource.device))
                    found = resource;
            }
            available += " " + resource.transport + "/" + resource.device;
            return found.has_value();
        },
        [&problems](const char* sentence) { problems += std::string("; ") + sentence; });
    if (found)
        return *found;
    const std::string there =
        (available.empty() ? " none" : available) + problems + findings(of_transport);
    if (of_transport != nullptr) {
        throw UsageError(
            text("device '%s' of transport %s not found; available (transport/device):%s",
                 device.c_str(), transport.c_str(), there.c_str()));
    }
    throw UsageError(text("%s: transport '%s' not found; available (transport/device):%s", option,
                          transport.c_str(), there.c_str()));
}

}  // namespace tagwire::tools
