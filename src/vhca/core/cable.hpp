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
    [[nodiscard]] std::uint64_t handed_over(Route to) {
        return is_cut_ ? 0 : wire_.handed_over(to);
    }
    [[nodiscard]] bool have_left(Route to, std::uint64_t count) {
        return is_cut_ || wire_.have_left(to, count);
    }

  private:
    Wire& wire_;
    bool is_cut_ = false;
    std::array<std::byte, kPacketBytesMax> lost_{};
};

}  // namespace tagwire::vhca
