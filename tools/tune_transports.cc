// SPDX-License-Identifier: BSD-3-Clause
#include "tools/tune_transports.hpp"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "tools/report_own.hpp"
#include "tools/resources.hpp"

namespace tagwire::tools {
namespace {

std::vector<std::string> all_tuned() {
    std::vector<std::string> names;
    for (const Lane& lane : lanes())
        if (!lane.is_tcp())
            names.push_back(lane.tl());
    for (const Resource& resource : all_resources())
        if (resource.transport == "tcp")
            names.push_back(resource.transport + ":" + resource.device);
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
