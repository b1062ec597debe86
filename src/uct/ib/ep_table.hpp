// SPDX-License-Identifier: BSD-3-Clause
// The endpoints of an interface, by their ids. An id is an index, and above it a generation of 12
// bits, so the id of a destroyed endpoint finds nothing. After 4096 more endpoints it may be that
// of one with the same index: it serves where nobody keeps it for long. A lasting id, whose
// generation has 44 bits, does not come again.
//
// Threads: owner of the interface.
#pragma once

#include <ucs/type/status.h>

#include <cstddef>
#include <cstdint>

#include "ucs/memory/reserve.hpp"

namespace tagwire::ib {

class MessageEp;

inline constexpr std::uint32_t kIndexBits = 20;
inline constexpr std::uint32_t kIndexMask = (1U << kIndexBits) - 1;

class EpTable {
  public:
    /// UCS_ERR_EXCEEDS_LIMIT: there are as many as there may be.
    ucs_status_t add(MessageEp& ep);
    void remove(MessageEp& ep);
    /// Null when it is gone.
    [[nodiscard]] MessageEp* find(std::uint32_t id) const;
    /// The endpoint that was added last has it; its low 32 bits are the id.
    [[nodiscard]] std::uint64_t newest_lasting_id() const { return newest_; }

    [[nodiscard]] std::size_t count() const { return count_; }
    // ---- By index; null where free
    [[nodiscard]] std::size_t size() const { return eps_.size(); }
    [[nodiscard]] MessageEp* operator[](std::size_t index) const { return eps_[index]; }
    [[nodiscard]] auto begin() const { return eps_.begin(); }
    [[nodiscard]] auto end() const { return eps_.end(); }

  private:
    ucs::ReserveVector<MessageEp*> eps_;
    ucs::ReserveVector<std::uint32_t> free_;  // indices
    std::uint64_t generation_ = 0;
    std::uint64_t newest_ = 0;
    std::size_t count_ = 0;
};

}  // namespace tagwire::ib
