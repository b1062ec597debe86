// SPDX-License-Identifier: BSD-3-Clause
// The composition root: the one place that names transport families, and the parts of the library
// beside them that have options. A new family adds its line here.
#include "uct/components.hpp"

#include <algorithm>
#include <array>

#include "bootstrap/options.hpp"
#include "protocols/options.hpp"
#include "uct/ib/ib_component.hpp"
#include "uct/sm/sm_component.hpp"

namespace tagwire::uct {

namespace {

constexpr std::size_t kComponents = 2;

const std::array<const Component*, kComponents>& components() {
    static const std::array<const Component*, kComponents> list{&sm::component(), &ib::component()};
    return list;
}

void add_table(std::vector<const ucs::OptionTable*>* tables, const ucs::OptionTable* table) {
    if (table == nullptr || std::ranges::find(*tables, table) != tables->end())
        return;
    tables->push_back(table);
}

}  // namespace

std::span<const Component* const> all_components() {
    return components();
}

bool is_component(uct_component_h handle) {
    return std::ranges::any_of(all_components(), [handle](const Component* component) {
        return handle_of(*component) == handle;
    });
}

std::vector<const ucs::OptionTable*> all_option_tables() {
    std::vector<const ucs::OptionTable*> tables;
    add_table(&tables, &ucs::core_option_table());
    add_table(&tables, &bootstrap::option_table());
    add_table(&tables, &proto::option_table());
    for (const Component* component : all_components()) {
        add_table(&tables, component->common_options);
        add_table(&tables, component->md_options);
        for (const char* tl_name : component->tl_names())
            add_table(&tables, component->iface_options(tl_name));
    }
    return tables;
}

}  // namespace tagwire::uct
