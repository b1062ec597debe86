// SPDX-License-Identifier: BSD-3-Clause
// The composition root, above everything that it names: the transport families, the transports of
// the family ib, and the parts of the library beside them that have options. Each has a line here.
#include "uct/components.hpp"

#include <algorithm>
#include <array>

#include "bootstrap/options.hpp"
#include "protocols/cost/options.hpp"
#include "uct/ib/dc/dc.hpp"
#include "uct/ib/ib_component.hpp"
#include "uct/ib/rc/rc.hpp"
#include "uct/ib/transport.hpp"
#include "uct/ib/ud/ud.hpp"
#include "uct/sm/sm_component.hpp"
#include "uct/tcp/tcp_component.hpp"

namespace tagwire::ib {

std::span<const Transport* const> transports() {
    static const std::array rows{&rc::transport(), &dc::transport(), &ud::transport()};
    return rows;
}

}  // namespace tagwire::ib

namespace tagwire::uct {

namespace {

void add_table(std::vector<const ucs::OptionTable*>* tables, const ucs::OptionTable* table) {
    if (table == nullptr || std::ranges::find(*tables, table) != tables->end())
        return;
    tables->push_back(table);
}

}  // namespace

std::span<const Component* const> all_components() {
    static const std::array families{&sm::component(), &ib::component(), &tcp::component()};
    return families;
}

bool is_component(uct_component_h handle) {
    return std::ranges::any_of(all_components(), [handle](const Component* component) {
        return handle_of(*component) == handle;
    });
}

std::vector<const ucs::OptionTable*> all_option_tables() {
    std::vector<const ucs::OptionTable*> tables;
    add_table(&tables, &ucs::core_option_table());
    add_table(&tables, &ucs::progress_option_table());
    add_table(&tables, &bootstrap::option_table());
    add_table(&tables, &proto::option_table());
    for (const Component* component : all_components()) {
        add_table(&tables, component->common_options);
        add_table(&tables, component->md_options);
        for (const Transport& transport : component->transports())
            add_table(&tables, component->iface_options(transport.name));
    }
    return tables;
}

}  // namespace tagwire::uct
