// SPDX-License-Identifier: BSD-3-Clause
// Which paths are ours.
#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "vhca/driver/kernel.hpp"
#include "vhca/driver/tree.hpp"

namespace tagwire::vhca::driver {
namespace {

/// A path in the buffer of its caller: absolute, without repeated slashes and "." components. ".."
/// stays: it may follow a link.
class Lexical {
  public:
    /// False: too long, or nobody knows where it begins.
    bool set(int dir_fd, const char* path) {
        if (path[0] != '/' && !add_folder(dir_fd)) {
            return false;
        }
        return add(path);
    }
    [[nodiscard]] std::string_view view() const { return {text_.data(), bytes_}; }

  private:
    bool add_folder(int dir_fd) {
        std::array<char, PATH_MAX> folder{};
        long bytes = 0;
        if (dir_fd == AT_FDCWD) {
            bytes = ::syscall(SYS_getcwd, folder.data(), folder.size());
        } else {
            std::array<char, 32> link{};
            std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", dir_fd);
            bytes =
                ::syscall(SYS_readlinkat, AT_FDCWD, link.data(), folder.data(), folder.size() - 1);
        }
        return bytes > 0 && folder[0] == '/' && add(folder.data());
    }

    bool add(std::string_view path) {
        while (!path.empty()) {
            const std::size_t end = path.find('/');
            const std::string_view part = path.substr(0, end);
            path = end == std::string_view::npos ? std::string_view() : path.substr(end + 1);
            if (part.empty() || part == ".") {
                continue;
            }
            if (bytes_ + 1 + part.size() >= text_.size()) {
                return false;
            }
            text_[bytes_++] = '/';
            std::memcpy(text_.data() + bytes_, part.data(), part.size());
            bytes_ += part.size();
        }
        return true;
    }

    std::array<char, PATH_MAX> text_{};
    std::size_t bytes_ = 0;
};

/// Takes `prefix` from the front, if that ends a component or the prefix itself does.
bool take_prefix(std::string_view* path, std::string_view prefix) {
    if (prefix.empty() || !path->starts_with(prefix)) {
        return false;
    }
    const std::string_view rest = path->substr(prefix.size());
    if (!rest.empty() && rest.front() != '/') {
        return false;
    }
    *path = rest;
    return true;
}

std::optional<unsigned> number_of(std::string_view text) {
    unsigned number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() ||
        (text.size() > 1 && text.front() == '0')) {
        return std::nullopt;
    }
    return number;
}

std::optional<DeviceNode> verbs_node(std::optional<unsigned> index) {
    if (!index || *index >= driver_device_count()) {
        return std::nullopt;
    }
    return DeviceNode{.kind = DeviceNode::Kind::kUverbs, .index = *index};
}

std::optional<DeviceNode> find_node(std::string_view path) {
    constexpr std::string_view kVerbs = "/dev/infiniband/uverbs", kByNumber = "/dev/char/231:";
    constexpr unsigned kVerbsMinor = 192;
    if (path.starts_with(kVerbs)) {
        return verbs_node(number_of(path.substr(kVerbs.size())));
    }
    if (path.starts_with(kByNumber)) {
        const std::optional<unsigned> minor = number_of(path.substr(kByNumber.size()));
        return minor && *minor >= kVerbsMinor ? verbs_node(*minor - kVerbsMinor) : std::nullopt;
    }
    if (path == "/dev/infiniband/rdma_cm") {
        return DeviceNode{.kind = DeviceNode::Kind::kRdmaCm, .index = 0};
    }
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
        if (std::strstr(path, word) != nullptr) {
            return true;
        }
    }
    return false;
}

Place look(int dir_fd, const char* path) {
    Lexical lexical;
    if (!lexical.set(dir_fd, path)) {
        return {};
    }
    std::string_view whole = lexical.view();
    if (const std::optional<DeviceNode> node = find_node(whole)) {
        return {.kind = Place::Kind::kNode, .node = *node, .path = {}};
    }
    // That of the process which forked us names ours.
    std::string_view behind = whole;
    if (take_prefix(&behind, published_tree_path())) {
        if (const std::optional<DeviceNode> node = find_node(behind)) {
            return {.kind = Place::Kind::kNode, .node = *node, .path = {}};
        }
        return {.kind = Place::Kind::kTree, .node = {}, .path = tree_path() + std::string(behind)};
    }
    if (!is_in_tree(whole)) {
        return {};
    }
    take_prefix(&whole, "/sys");
    return {.kind = Place::Kind::kTree, .node = {}, .path = tree_path() + std::string(whole)};
}

}  // namespace

Place find_place(int dir_fd, const char* path) {
    // What this thread opens while it makes the tree is what it says.
    static thread_local bool is_making_tree = false;
    if (path == nullptr || is_making_tree || !may_be_ours(path)) {
        return {};
    }
    const int before = errno;
    is_making_tree = true;
    Place place = look(dir_fd, path);
    is_making_tree = false;
    errno = before;
    return place;
}

}  // namespace tagwire::vhca::driver
