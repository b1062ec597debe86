// SPDX-License-Identifier: BSD-3-Clause
// Tagged messages of a peer that came before their places in the order (Placeholder), oldest first.
// The places come in any order, for a device that matches tags may hold some back.
//
// 1. A message is taken once. One that was taken stays here, empty, until all before it are gone.
// 2. Receiver counts what they hold in the budget of the peer: Announced::held() each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "protocols/index/fifo.hpp"
#include "protocols/wire/eager_header.hpp"
#include "protocols/wire/reserve_bytes.hpp"
#include "protocols/wire/wire.hpp"

namespace tagwire::proto {

struct Announced {
    AmId am = AmId::kEager;
    Header header{};
    ReserveBytes bytes;     // behind the header
    bool has_come = false;  // its place

    std::size_t held() const { return sizeof *this + bytes.size(); }
};

class Announcements {
  public:
    bool empty() const { return waiting_.empty(); }
    /// With those that were taken and are not the oldest.
    std::size_t size() const { return waiting_.size(); }
    void add(Announced message) { waiting_.push_back(std::move(message)); }
    /// The message whose place has come. nullopt: none of that number waits.
    std::optional<Announced> take(std::uint32_t number);
    /// Drops the oldest, and returns the bytes that it held; 0: it was taken before.
    std::size_t drop_oldest();
    /// Another connection, whose messages are numbered anew. None waits.
    void begin_anew() { first_ = 0; }

  private:
    void pop();

    Fifo<Announced> waiting_;
    std::uint32_t first_ = 0;  // the number of the oldest
};

}  // namespace tagwire::proto
