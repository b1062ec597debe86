// SPDX-License-Identifier: BSD-3-Clause
// Which verbs transports there are: a part of the composition root, in the order in which
// uct_md_query_tl_resources() tells them.
#include <array>

#include "uct/ib/dc/dc.hpp"
#include "uct/ib/rc/rc.hpp"
#include "uct/ib/transport.hpp"
#include "uct/ib/ud/ud.hpp"

namespace tagwire::ib {

std::span<const Transport* const> transports() {
    static const std::array rows{&rc::transport(), &dc::transport(), &ud::transport()};
    return rows;
}

}  // namespace tagwire::ib
