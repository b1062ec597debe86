// SPDX-License-Identifier: BSD-3-Clause
// The list of devices: which exist, which of them the options admit, and which can be used.
#include <fnmatch.h>
#include <uct/api/uct_def.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <span>
#include <sstream>

#include "ucs/log/log.hpp"
#include "ucs/topo/topology.hpp"
#include "uct/ib/device.hpp"
#include "uct/ib/options.hpp"

namespace tagwire::ib {

namespace {

/// TAGWIRE_IB_DEVICES.
class Filter {
  public:
    explicit Filter(const char* text) : text_(text), is_exclusive_(text[0] == '^') {
        std::istringstream names(is_exclusive_ ? text + 1 : text);
        for (std::string name; std::getline(names, name, ',');) {
            const std::size_t first = name.find_first_not_of(" \t");
            if (first != std::string::npos)
                patterns_.push_back(name.substr(first, name.find_last_not_of(" \t") - first + 1));
        }
    }

    [[nodiscard]] bool admits(const std::string& name) const {
        const bool is_named = std::ranges::any_of(
            patterns_, [&](const std::string& pattern) { return matches(pattern, name); });
        return is_named != is_exclusive_;
    }

    /// Once per process and setting: a name that is nobody's is most often a typing error.
    void warn_of_strangers(const std::vector<ListedDevice>& devices) const {
        static std::mutex mutex;
        static auto* const told = new std::set<std::string>;
        std::string names;
        for (const ListedDevice& device : devices)
            names += (names.empty() ? "" : ", ") + device.name;
        for (const std::string& pattern : patterns_) {
            const auto is_match = [&](const auto& device) { return matches(pattern, device.name); };
            if (pattern == "*" || std::ranges::any_of(devices, is_match))
                continue;
            const std::lock_guard lock(mutex);
            if (told->insert(pattern).second) {
                TW_LOG_WARN("TAGWIRE_IB_DEVICES=%s: no RDMA device matches %s; this machine has %s",
                            text_.c_str(), pattern.c_str(), names.empty() ? "none" : names.c_str());
            }
        }
    }

  private:
    static bool matches(const std::string& pattern, const std::string& name) {
        return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    }

    std::string text_;
    bool is_exclusive_;
    std::vector<std::string> patterns_;
};

/// Devices that a library lists now; one is valid as long as this object, or once it was opened.
class RawList {
  public:
    explicit RawList(const VerbsLibrary& library) : library_(library) {
        int count = 0;
        errno = 0;
        list_ = library.problem.empty() ? library.verbs.get_device_list(&count) : nullptr;
        error_ = list_ == nullptr ? errno : 0;
        count_ = list_ != nullptr ? static_cast<std::size_t>(count) : 0;
    }
    ~RawList() {
        if (list_ != nullptr)
            library_.verbs.free_device_list(list_);
    }
    RawList(const RawList&) = delete;
    RawList& operator=(const RawList&) = delete;

    [[nodiscard]] std::span<ibv_device* const> devices() const { return {list_, count_}; }

    [[nodiscard]] int error() const { return error_; }

  private:
    const VerbsLibrary& library_;
    ibv_device** list_;
    std::size_t count_;
    int error_;
};

int numa_node_of(const ibv_device& device) {
    const std::string path = std::string(device.ibdev_path) + "/device/numa_node";
    std::FILE* file = std::fopen(path.c_str(), "re");
    if (file == nullptr)
        return -1;
    int node = -1;
    if (std::fscanf(file, "%d", &node) != 1)
        node = -1;
    std::fclose(file);
    return node;
}

/// The way from the processors that we may run on; an unknown node is the farthest.
int distance_to(int node) {
    if (node < 0)
        return INT_MAX;
    const ucs::Topology& topology = ucs::system_topology();
    int nearest = INT_MAX;
    for (const int cpu : topology.allowed_cpus()) {
        const int distance = topology.distance(topology.node_of_cpu(cpu), node);
        if (distance >= 0)
            nearest = std::min(nearest, distance);
    }
    return nearest;
}

void sort_by_distance(std::vector<ListedDevice>* devices) {
    const auto is_far_or_near = [&](const ListedDevice& device) {
        return device.numa_node != devices->front().numa_node;
    };
    if (std::ranges::none_of(*devices, is_far_or_near))
        return;  // the usual case needs no topology
    std::ranges::stable_sort(
        *devices, {}, [](const ListedDevice& device) { return distance_to(device.numa_node); });
}

/// Problems that show without opening it.
std::string kind_problem(const ibv_device& device, const std::string& name) {
    if (name.size() >= UCT_MD_NAME_MAX)
        return "has a name of more than " + std::to_string(UCT_MD_NAME_MAX - 1) + " characters";
    if (device.node_type == IBV_NODE_RNIC || device.transport_type == IBV_TRANSPORT_IWARP)
        return "is an iWARP device, which needs a connection manager";
    if (device.node_type != IBV_NODE_CA || device.transport_type != IBV_TRANSPORT_IB)
        return "is neither an InfiniBand nor a RoCE adapter";
    return {};
}

std::string ports_problem(const Device& device) {
    std::string problems;
    for (unsigned number = 1; number <= device.port_count(); ++number) {
        Port port;
        std::string problem;
        if (device.port(static_cast<std::uint8_t>(number), {}, &port, &problem) == UCS_OK)
            return {};
        problems += (problems.empty() ? "" : "; ") + problem;
    }
    return problems.empty() ? "has no port" : problems;
}

std::string problem_of(const ListedDevice& listed, ibv_device* device) {
    std::string problem = kind_problem(*device, listed.name);
    std::unique_ptr<Device> opened;
    if (problem.empty() && Device::open(listed, device, &opened, &problem) == UCS_OK)
        problem = ports_problem(*opened);
    return problem;
}

/// Opening a card takes milliseconds, and one that could be used is looked at again when it is. The
/// virtual HCA is always there; opening it would start its engine, so that waits until it is used.
std::string remembered_problem_of(const ListedDevice& listed, ibv_device* device) {
    if (listed.library->has_virtual_hca)
        return kind_problem(*device, listed.name);
    static std::mutex mutex;
    static auto* const usable = new std::set<std::string>;
    const std::string key = name_of(listed.library->origin) + (" " + listed.name);
    {
        const std::lock_guard lock(mutex);
        if (usable->contains(key))
            return {};
    }
    std::string problem = problem_of(listed, device);
    if (problem.empty()) {
        const std::lock_guard lock(mutex);
        usable->insert(key);
    }
    return problem;
}

enum class Depth { kNames, kProblems };

std::vector<ListedDevice> list(Depth depth) {
    LibraryOptions options;
    ucs::config_fill(library_options(), &options);  // what is wrong is in the log
    const Filter filter(options.devices.text);
    std::vector<ListedDevice> all;
    for (const VerbsLibrary& library : verbs_libraries()) {
        const RawList raw(library);
        std::vector<ListedDevice> devices;
        for (ibv_device* device : raw.devices()) {
            const std::string name = library.verbs.get_device_name(device);
            ListedDevice listed{name, &library, {}, filter.admits(name), numa_node_of(*device)};
            if (depth == Depth::kProblems && listed.is_admitted)
                listed.problem = remembered_problem_of(listed, device);
            devices.push_back(std::move(listed));
        }
        if (!devices.empty())
            sort_by_distance(&devices);
        std::ranges::move(devices, std::back_inserter(all));
    }
    filter.warn_of_strangers(all);
    return all;
}

}  // namespace

std::vector<ListedDevice> list_devices() {
    return list(Depth::kProblems);
}

std::string why_empty(const VerbsLibrary& library) {
    const RawList raw(library);
    if (!raw.devices().empty())
        return {};
    if (raw.error() == 0)
        return "its list is empty";
    return raw.error() == ENOSYS
               ? "the kernel has no RDMA drivers loaded"
               : std::string("they cannot be listed: ") + std::strerror(raw.error());
}

std::optional<ListedDevice> find_device(const std::string& name, std::string* others_p) {
    std::string others;
    for (ListedDevice& device : list(Depth::kNames)) {
        if (!device.is_admitted)
            continue;
        if (device.name == name)
            return std::move(device);
        others += (others.empty() ? "" : ", ") + device.name;
    }
    *others_p = others.empty() ? "none" : others;
    return std::nullopt;
}

ucs_status_t Device::open(const std::string& name, std::unique_ptr<Device>* device_p) {
    std::string problem = "does not exist; there are: ";
    std::string others;
    const auto listed = find_device(name, &others);
    if (!listed) {
        TW_LOG_ERROR(
            "RDMA device %s does not exist or is left out by TAGWIRE_IB_DEVICES; available: %s",
            name.c_str(), others.c_str());
        return UCS_ERR_NO_DEVICE;
    }
    const RawList raw(*listed->library);
    for (ibv_device* device : raw.devices()) {
        if (name != listed->library->verbs.get_device_name(device))
            continue;
        problem = kind_problem(*device, name);
        if (problem.empty() && open(*listed, device, device_p, &problem) == UCS_OK)
            return UCS_OK;
        break;
    }
    TW_LOG_ERROR("RDMA device %s %s", name.c_str(), problem.c_str());
    return UCS_ERR_NO_DEVICE;
}

}  // namespace tagwire::ib
