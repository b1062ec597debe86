// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/cost/scheme.hpp"

#include "protocols/cost/cost.hpp"

namespace tagwire::proto {

unsigned available_schemes(const RailCosts& rail, const RndvFacts& facts) {
    unsigned available = scheme_bit(RndvScheme::kCopy);
    if (rail.can_get && facts.has_peer_key && facts.can_write_here)
        available |= scheme_bit(RndvScheme::kGet);
    if (rail.can_put && facts.peer_can_put && facts.can_give_key)
        available |= scheme_bit(RndvScheme::kPut);
    return available;
}

RndvScheme pick_scheme(unsigned available, RndvScheme wanted, const RndvFacts& facts) {
    const auto has = [&](RndvScheme scheme) { return (available & scheme_bit(scheme)) != 0; };
    if (wanted != RndvScheme::kAuto)
        return has(wanted) ? wanted : RndvScheme::kCopy;
    if (has(RndvScheme::kGet))
        return RndvScheme::kGet;
    // A peer that could go on writing after a forced close is given nothing unasked.
    if (has(RndvScheme::kPut) && facts.takes_key_back)
        return RndvScheme::kPut;
    return RndvScheme::kCopy;
}

}  // namespace tagwire::proto
