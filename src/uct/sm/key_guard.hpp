// SPDX-License-Identifier: BSD-3-Clause
// Checks whether a remote key is still valid, for peers that access memory directly.
//
// Each arena begins with a table of generations, one per index of a key (kKeyIndexMax). The owner
// writes it: odd while a registration has the index, even otherwise, and never a value used
// before. A key carries the generation of its registration. A reader compares it before and after,
// so the data that it reports were read while the registration was in force. A writer says that it
// writes, then compares, and the owner waits for those that do (writers.hpp).
//
//     owner                                  reader
//     generation = next even                 generation is the key's?
//     -- fence --                            read
//     writers are waited for                 -- fence --
//     the memory is the program's again      generation is the key's still?
#pragma once

#include <ucs/type/status.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ucs/sys/process.hpp"
#include "uct/sm/arena.hpp"
#include "uct/sm/wire.hpp"

namespace tagwire::sm {

using Generation = std::atomic<std::uint64_t>;
static_assert(Generation::is_always_lock_free && sizeof(Generation) == 8);

/// The generation of a key without any right: never good.
constexpr std::uint64_t kNoGeneration = 0;

constexpr std::size_t kGenerationsBytes = kKeyIndexMax * sizeof(Generation);

class KeyGuard {
  public:
    KeyGuard() = default;  // for what has no key: always good
    /// `arena`: ours, or of a connection, whose hello has shown that it has the tables (wire.cc).
    KeyGuard(const ArenaMapping& arena, const PackedRkey& key)
        : slot_(reinterpret_cast<const Generation*>(arena.base()) + key_index(key.key)),
          wanted_(key.generation) {
        if (wanted_ % 2 == 0) [[unlikely]]
            slot_ = &kNever;  // no registration has such a one: never good
    }

    /// Before the memory is touched.
    [[nodiscard]] bool is_good() const {
        // SYNC sm_revoke: a key that is good here came after what its owner registered.
        return slot_ == nullptr || slot_->load(std::memory_order_acquire) == wanted_;
    }
    /// After it was: UCS_OK, or UCS_ERR_INVALID_ADDR when the registration has ended meanwhile.
    [[nodiscard]] ucs_status_t status() const {
        if (slot_ == nullptr)
            return UCS_OK;
        // SYNC sm_revoke: what we have read comes before this load. A reader of bytes that the
        // program wrote after the registration had ended also sees that it has.
        ucs::read_barrier();
        return slot_->load(std::memory_order_relaxed) == wanted_ ? UCS_OK : UCS_ERR_INVALID_ADDR;
    }

  private:
    static inline const Generation kNever{1};  // unlike all that are even

    const Generation* slot_ = nullptr;
    std::uint64_t wanted_ = 0;
};

}  // namespace tagwire::sm
