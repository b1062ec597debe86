// SPDX-License-Identifier: BSD-3-Clause
//
// A process that makes connections for a peer whom a test plays: the kernel tells the library who
// connected, and the library trusts its own process more than others.

#pragma once

#include <cstdint>

#include "ucs/sys/fd.hpp"

namespace tagwire::test {

/** Forked once; connects on demand and hands the socket over. Ends with us. */
class Puppet {
  public:
    Puppet();

    /// A connection to the interface of this name, of which the puppet has no copy left: closing it
    /// is a hang-up. Empty when nobody listens there.
    ucs::UniqueFd connect(std::uint64_t name) const;

  private:
    ucs::UniqueFd channel_;
};

}  // namespace tagwire::test
