// SPDX-License-Identifier: BSD-3-Clause
// `tagwire-vhca info`: the device, its parameters, and where its libraries are. The library
// describes itself; this program knows nothing of verbs.
#include <cstdio>
#include <cstring>

#include "cli/failure.hpp"
#include "cli/info_tree.hpp"
#include "vhca/launcher/launcher.hpp"
#include "vhca/launcher/library.hpp"

namespace tagwire::tools {
namespace {

using TakeFact = void (*)(void* arg, const char* group, const char* name, const char* value);
using Describe = int (*)(TakeFact take, void* arg);

void take_fact(void* arg, const char* group, const char* name, const char* value) {
    auto* root = static_cast<InfoNode*>(arg);
    if (root->children.empty() || root->children.back().name != group)
        root->add(group);
    root->children.back().add(name, std::string(value));
}

}  // namespace

void show_vhca(const VhcaInfoArguments& arguments) {
    const VhcaLibraries libraries = find_vhca_libraries();
    const VhcaLibrary library(libraries.device);
    const auto describe = library.find<Describe>("tagwire_vhca_describe");
    InfoNode root{"vhca", {}, {}, false};
    InfoNode& paths = root.add("libraries");
    paths.add("device", libraries.device);
    paths.add("drop-in folder", libraries.folder);
    paths.add("preloaded", libraries.shim);
    paths.add("preloaded, --driver mlx5", libraries.kernel);
    if (const int error = describe(take_fact, &root))
        throw Failure(std::string("the virtual HCA cannot be opened: ") + std::strerror(error));
    if (arguments.json.empty())
        print_tree(root);
    else
        write_info_json(arguments.json, {root});
}

}  // namespace tagwire::tools
