// SPDX-License-Identifier: BSD-3-Clause
// The cable between the device and the wire. While it is cut, packets vanish in both directions,
// and nobody waits for room: what is sent counts as lost.
#pragma once

#include <array>
#include <cstddef>

#include "vhca/core/wire.hpp"

namespace tagwire::vhca {

class Cable {
  public:
    explicit Cable(Wire& wire) : wire_(wire) {}

    void cut(bool is_cut) { is_cut_ = is_cut; }
    [[nodiscard]] bool is_cut() const { return is_cut_; }

    // ---- As Wire has them. It is cut or mended between the steps of the device, so not between a
    // claim and its commit.
    std::byte* claim(Route to, std::size_t bytes) {
        return is_cut_ ? lost_.data() : wire_.claim(to, bytes);
    }
    void commit(Route to, std::size_t bytes) {
        if (!is_cut_) [[likely]]
            wire_.commit(to, bytes);
    }
    [[nodiscard]] Turn turn_of(Route to) { return is_cut_ ? Turn{} : wire_.turn_of(to); }
    [[nodiscard]] bool has_had_turn(Route to, const Turn& since) {
        return is_cut_ || wire_.has_had_turn(to, since);
    }
    [[nodiscard]] unsigned steps_to_catch_up() const { return wire_.steps_to_catch_up(); }

  private:
    Wire& wire_;
    bool is_cut_ = false;
    std::array<std::byte, kPacketBytesMax> lost_{};
};

}  // namespace tagwire::vhca
