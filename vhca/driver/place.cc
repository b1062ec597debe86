// SPDX-License-Identifier: BSD-3-Clause
// Which paths are ours.
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "vhca/driver/kernel.hpp"
#include "vhca/driver/tree.hpp"
#include "vhca/files/path.hpp"

namespace tagwire::vhca::driver {
namespace {

using files::Lexical;
using files::number_of;
using files::Place;

/// Takes `prefix` from the front, if that ends a component or the prefix itself does.
bool take_prefix(std::string_view* path, std::string_view prefix) {
    if (prefix.empty() || !path->starts_with(prefix))
        return false;
    const std::string_view rest = path->substr(prefix.size());
    if (!rest.empty() && rest.front() != '/')
        return false;
    *path = rest;
    return true;
}

std::optional<DeviceNode> verbs_node(std::optional<unsigned> index) {
    if (!index || *index >= driver_device_count())
        return std::nullopt;
    return DeviceNode{.kind = DeviceNode::Kind::kUverbs, .index = *index};
}

std::optional<DeviceNode> find_node(std::string_view path) {
    constexpr std::string_view kVerbs = "/dev/infiniband/uverbs", kByNumber = "/dev/char/231:";
    constexpr unsigned kVerbsMinor = 192;
    if (path.starts_with(kVerbs))
        return verbs_node(number_of(path.substr(kVerbs.size())));
    if (path.starts_with(kByNumber)) {
        const std::optional<unsigned> minor = number_of(path.substr(kByNumber.size()));
        return minor && *minor >= kVerbsMinor ? verbs_node(*minor - kVerbsMinor) : std::nullopt;
    }
    if (path == files::kRdmaCmPath)
        return DeviceNode{.kind = DeviceNode::Kind::kRdmaCm, .index = 0};
    return std::nullopt;
}

/// Classes, devices and nodes of RDMA in /sys and /dev: the tree has them all.
bool is_in_tree(std::string_view path) {
    constexpr std::string_view kClass = "/sys/class/infiniband";
    if (path.starts_with(kClass)) {  // infiniband_verbs and its like, too
        return path.size() == kClass.size() || path[kClass.size()] == '/' ||
               path[kClass.size()] == '_';
    }
    std::string_view rest = path;
    return take_prefix(&rest, "/sys/class/misc/rdma_cm") || take_prefix(&rest, "/dev/infiniband") ||
           take_prefix(&rest, kTreeBusSys) || path.starts_with(kTreeDeviceLinks);
}

/// No path of ours lacks all of these.
bool may_be_ours(const char* path) {
    for (const char* word :
         {"infiniband", "uverbs", "rdma_cm", "/char/231:", "pci7477", "7477:", kTreeNamePrefix}) {
        if (std::strstr(path, word) != nullptr)
            return true;
    }
    return false;
}

Place locate(int dir_fd, const char* path) {
    Lexical lexical;
    if (!lexical.set(dir_fd, path))
        return {};
    std::string_view whole = lexical.view();
    if (const std::optional<DeviceNode> node = find_node(whole))
        return {.kind = Place::Kind::kNode, .node = *node, .path = {}};
    // The path of the process which forked us names ours.
    std::string_view behind = whole;
    if (take_prefix(&behind, published_tree_path())) {
        if (const std::optional<DeviceNode> node = find_node(behind))
            return {.kind = Place::Kind::kNode, .node = *node, .path = {}};
        return {.kind = Place::Kind::kTree, .node = {}, .path = tree_path() + std::string(behind)};
    }
    if (!is_in_tree(whole)) {
        if (!lexical.has_left())
            return {};
        return {.kind = Place::Kind::kTree,
                .node = {},
                .path = whole.empty() ? "/" : std::string(whole)};
    }
    take_prefix(&whole, "/sys");
    return {.kind = Place::Kind::kTree, .node = {}, .path = tree_path() + std::string(whole)};
}

}  // namespace
}  // namespace tagwire::vhca::driver

namespace tagwire::vhca::files {

Place find_place(int dir_fd, const char* path) {
    // Paths that this thread opens while it makes the tree are what they say.
    static thread_local bool is_making_tree = false;
    if (path == nullptr || is_making_tree || !driver::may_be_ours(path))
        return {};
    const int before = errno;
    is_making_tree = true;
    Place place = driver::locate(dir_fd, path);
    is_making_tree = false;
    errno = before;
    return place;
}

}  // namespace tagwire::vhca::files
