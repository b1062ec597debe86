// SPDX-License-Identifier: BSD-3-Clause
#include "tools/describe.hpp"

#include <charconv>

#include <uct/api/tagwire_uct.h>

namespace tagwire::tools {
namespace {

void collect(void* arg, const char* key, const char* value) {
    static_cast<Facts*>(arg)->emplace_back(key, value);
}

}  // namespace

Facts describe(uct_component_h component) {
    Facts facts;
    return tagwire_uct_component_describe(component, &collect, &facts) == UCS_OK ? facts : Facts();
}

Facts describe(uct_worker_h worker) {
    Facts facts;
    return tagwire_uct_worker_describe(worker, &collect, &facts) == UCS_OK ? facts : Facts();
}

Facts describe(uct_iface_h iface) {
    Facts facts;
    return tagwire_uct_iface_describe(iface, &collect, &facts) == UCS_OK ? facts : Facts();
}

Facts describe(uct_ep_h ep) {
    Facts facts;
    return tagwire_uct_ep_describe(ep, &collect, &facts) == UCS_OK ? facts : Facts();
}

std::optional<std::uint64_t> number_in(const Facts& facts, const std::string& key) {
    for (const auto& [name, value] : facts) {
        std::uint64_t number = 0;
        if (name == key &&
            std::from_chars(value.data(), value.data() + value.size(), number).ec == std::errc()) {
            return number;
        }
    }
    return std::nullopt;
}

}  // namespace tagwire::tools
