// SPDX-License-Identifier: BSD-3-Clause
// The transports of this machine, found by asking the library's components; no name is built into
// the command.
#pragma once

#include <uct/api/uct.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tagwire::tools {

/// One (transport, device) and the memory domain that has it.
struct Resource {
    uct_component_h component;
    std::string component_name;
    std::string md_name;
    std::string transport;
    std::string device;
    uct_device_type_t device_type;
};

struct MdCloser {
    void operator()(uct_md_h md) const { uct_md_close(md); }
};
using MdHandle = std::unique_ptr<uct_md_t, MdCloser>;

/// The list of components, freed at the end.
class Components {
  public:
    Components();
    ~Components();
    Components(const Components&) = delete;
    Components& operator=(const Components&) = delete;

    uct_component_h* begin() const { return list_; }
    uct_component_h* end() const { return list_ + count_; }

  private:
    uct_component_h* list_ = nullptr;
    unsigned count_ = 0;
};

/// Throws Failure when the status is an error; `what` names the call.
void check(ucs_status_t status, const char* what);

std::string component_name(uct_component_h component);
std::vector<std::string> md_names(uct_component_h component);
MdHandle open_md(uct_component_h component, const std::string& md_name);

/// The resources of one memory domain.
std::vector<Resource> resources_of(uct_component_h component, const std::string& md_name,
                                   uct_md_h md);

/// Everything on this machine that can be opened. Components stay valid until the library is
/// unloaded.
std::vector<Resource> all_resources();

/// The first resource with this transport and, unless empty, device, whose port may be left out
/// ("mlx5_0" is "mlx5_0:1"). Nothing behind it is opened. Throws UsageError that lists what there
/// is and what the components say about the rest.
/// `option` is who named the transport.
Resource find_resource(const std::string& transport, const std::string& device,
                       const char* option = "--tl");

/// TAGWIRE_TRANSPORTS, where the environment or a file sets it.
std::optional<std::string> transports_set();

/// The option that a user would change: TAGWIRE_TRANSPORTS where it begins with them, else --tl.
const char* named_by(const std::string& transports);

/// `wanted` names `device`: the same name, or without its port.
bool names_device(const std::string& wanted, const std::string& device);

}  // namespace tagwire::tools
