// SPDX-License-Identifier: BSD-3-Clause
// Memory of the program that a card would pin: which the kernel refuses, and how much there may be.
//
// The rules are those of the kernel's ib_umem_get(). Nothing is pinned; what is counted is counted
// once for each region, as the kernel does, and for the process, whatever the device. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tagwire::vhca {

/// The share of a region in the count of the process, given back at its end.
class Pinned {
  public:
    Pinned() = default;
    Pinned(Pinned&& other) noexcept { swap(other); }
    Pinned& operator=(Pinned&& other) noexcept {
        Pinned(std::move(other)).swap(*this);
        return *this;
    }
    ~Pinned();

  private:
    friend int pin(const void* base, std::size_t bytes, unsigned access, Pinned* pinned_p);
    void swap(Pinned& other) noexcept {
        std::swap(pages_, other.pages_);
        std::swap(generation_, other.generation_);
    }

    std::uint64_t pages_ = 0, generation_ = 0;
};

/// A right to change the memory is among these ibv_access_flags.
[[nodiscard]] bool changes_memory(unsigned access);

/// Memory that is to be registered with these ibv_access_flags. ENOMEM: it is more than
/// RLIMIT_MEMLOCK leaves (TAGWIRE_VHCA_MEMLOCK), which the log says. EFAULT: some of it is not
/// mapped, or not readable, or not writable although a right to change it is asked for. A process
/// that fork(2) made begins with nothing counted.
[[nodiscard]] int pin(const void* base, std::size_t bytes, unsigned access, Pinned* pinned_p);

/// The part of pin() that is not about the amount: EFAULT.
[[nodiscard]] int check_mapping(const void* base, std::size_t bytes, bool is_written);

}  // namespace tagwire::vhca
