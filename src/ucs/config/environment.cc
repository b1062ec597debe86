// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/environment.hpp"

#include <unistd.h>

#include <cstdlib>

namespace tagwire::ucs {

const char* environment_get(const char* name) {
    return std::getenv(name);
}

std::vector<std::pair<std::string, std::string>> environment_list(std::string_view prefix) {
    std::vector<std::pair<std::string, std::string>> found;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        const std::size_t equals = text.find('=');
        if (text.starts_with(prefix) && equals != std::string_view::npos)
            found.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
    return found;
}

}  // namespace tagwire::ucs
