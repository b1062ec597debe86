// SPDX-License-Identifier: BSD-3-Clause
// The interfaces that a worker's address names for first contact.
//
// 1. The nearest comes first: a peer tries them in this order.
// 2. Each transport that takes first contact has one, then each a second, and so on while there is
//    room. Those of one transport come in the order of the context's devices.
// 3. The loopback network interface is left out where shared memory and another network interface
//    are there.
// 4. Where not all have room, those that reach farthest stay: peers of this host reach them, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

class Rail;

class Contacts {
  public:
    void choose(std::span<const std::unique_ptr<Rail>> rails);
    /// The nearest first.
    std::span<Rail* const> rails() const { return rails_; }
    /// The address of the worker `id`, with the contacts that at most `room` bytes hold; empty: not
    /// one of them.
    std::vector<std::byte> address(std::uint64_t id, std::size_t room) const;

  private:
    ucs::ReserveVector<Rail*> rails_;    // nearest first
    ucs::ReserveVector<Rail*> by_need_;  // those to keep first, first
};

}  // namespace tagwire::proto
