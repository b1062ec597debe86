// SPDX-License-Identifier: BSD-3-Clause
// The composition root of the library as it is recorded: shared memory alone, in place of
// src/components.cc.
#include "uct/components.hpp"

#include <array>

#include "protocols/cost/options.hpp"
#include "uct/sm/sm_component.hpp"

namespace tagwire::uct {

std::span<const Component* const> all_components() {
    static const std::array families{&sm::component()};
    return families;
}

bool is_component(uct_component_h handle) {
    return handle == handle_of(sm::component());
}

std::vector<const ucs::OptionTable*> all_option_tables() {
    std::vector<const ucs::OptionTable*> tables{
        &ucs::core_option_table(), &ucs::progress_option_table(), &proto::option_table()};
    const Component& sm = sm::component();
    if (sm.common_options != nullptr)
        tables.push_back(sm.common_options);
    if (sm.md_options != nullptr)
        tables.push_back(sm.md_options);
    for (const Transport& transport : sm.transports())
        tables.push_back(sm.iface_options(transport.name));
    return tables;
}

}  // namespace tagwire::uct
