// SPDX-License-Identifier: BSD-3-Clause
#include "tools/tune_transports.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>

#include "tools/resources.hpp"

namespace tagwire::tools {
namespace {

bool is_virtual(const std::string& device) {
    return device.starts_with("vhca");
}

/// Shared memory, the first device of rc and of dc, a real one before a virtual one, and each
/// network interface.
std::vector<std::string> all_tuned() {
    std::map<std::string, std::string> devices;
    std::vector<std::string> over_tcp;
    for (const Resource& resource : all_resources()) {
        std::string& device = devices[resource.transport];
        if (device.empty() || (is_virtual(device) && !is_virtual(resource.device)))
            device = resource.device;
        if (resource.transport == "tcp")
            over_tcp.push_back("tcp:" + resource.device);
    }
    std::vector<std::string> names;
    if (devices.contains("sm"))
        names.emplace_back("sm");
    for (const std::string transport : {"rc", "dc"})
        if (const auto at = devices.find(transport); at != devices.end())
            names.push_back(transport + ":" + at->second);
    std::ranges::copy(over_tcp, std::back_inserter(names));
    return names;
}

}  // namespace

std::vector<std::string> tuned_transports(const std::string& list) {
    std::vector<std::string> names, excepted;
    std::istringstream parts(list);
    for (std::string part; std::getline(parts, part, ',');) {
        if (part == "auto")
            std::ranges::copy(all_tuned(), std::back_inserter(names));
        else if (part.starts_with('^'))
            excepted.push_back(part.substr(1));
        else if (!part.empty())
            names.push_back(part);
    }
    for (const std::string& except : excepted)
        std::erase_if(names, [&](const std::string& name) {
            return name == except || name.starts_with(except + ":");
        });
    return names;
}

}  // namespace tagwire::tools
