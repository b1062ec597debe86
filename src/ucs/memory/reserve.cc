// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/memory/reserve.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>

#include "ucs/sys/anonymous_memory.hpp"

namespace tagwire::ucs {

namespace {

// Blocks of 64 bytes, 128 bytes, ... 16 MiB.
constexpr unsigned kClassBitsMin = 6;
constexpr unsigned kClassBitsMax = 24;
constexpr std::size_t kAlignmentMin = std::size_t{1} << kClassBitsMin;  // a cache line
static_assert(std::size_t{1} << (kClassBitsMax + 1) == kReserveBytes);

struct FreeBlock {
    FreeBlock* next;
};

/// Blocks of powers of two, each aligned to its size. One that was freed serves its size or less
/// again; blocks are neither split nor joined.
class Reserve {
  public:
    bool open();
    void* take(std::size_t bytes);
    bool give_back(void* memory) noexcept;
    std::size_t used() const noexcept { return used_.load(std::memory_order_relaxed); }

  private:
    static constexpr std::size_t kUnits = kReserveBytes >> kClassBitsMin;

    bool owns(const void* memory) const noexcept {
        // The base is written before any memory of it is handed out.
        const auto base = base_.load(std::memory_order_relaxed);
        return base != 0 && reinterpret_cast<std::uintptr_t>(memory) - base < kReserveBytes;
    }
    std::size_t unit_of(const void* memory) const noexcept {
        const auto base = base_.load(std::memory_order_relaxed);
        return (reinterpret_cast<std::uintptr_t>(memory) - base) >> kClassBitsMin;
    }
    void* carve(unsigned bits);

    std::mutex lock_;
    std::atomic<std::uintptr_t> base_{0};
    std::atomic<std::size_t> used_{0};
    std::size_t carved_ = 0;
    std::array<FreeBlock*, kClassBitsMax + 1> free_{};
    std::array<std::uint8_t, kUnits> bits_of_{};  // by the first unit of a block
};

constinit Reserve reserve;

bool Reserve::open() {
    const std::lock_guard guard(lock_);
    if (base_.load(std::memory_order_relaxed) != 0)
        return true;
    AnonymousMemory memory{};
    if (map_anonymous(kReserveBytes, AnonymousPages::kNormal, nullptr, false, &memory) != UCS_OK)
        return false;
    base_.store(reinterpret_cast<std::uintptr_t>(memory.address), std::memory_order_relaxed);
    return true;
}

/// Behind what was handed out before, aligned to its size; null: no room.
void* Reserve::carve(unsigned bits) {
    const std::size_t bytes = std::size_t{1} << bits;
    const std::size_t at = (carved_ + bytes - 1) & ~(bytes - 1);
    const auto base = base_.load(std::memory_order_relaxed);
    if (base == 0 || at + bytes > kReserveBytes)
        return nullptr;
    carved_ = at + bytes;
    bits_of_[at >> kClassBitsMin] = static_cast<std::uint8_t>(bits);
    return reinterpret_cast<void*>(base + at);
}

void* Reserve::take(std::size_t bytes) {
    const auto wanted = static_cast<unsigned>(std::bit_width(std::max(bytes, std::size_t{1}) - 1));
    const std::lock_guard guard(lock_);
    for (unsigned bits = std::max(wanted, kClassBitsMin); bits <= kClassBitsMax; ++bits) {
        // A larger block serves when there is no room for one that fits.
        void* memory = free_[bits];
        if (memory != nullptr)
            free_[bits] = free_[bits]->next;
        else if (bits == std::max(wanted, kClassBitsMin))
            memory = carve(bits);
        if (memory == nullptr)
            continue;
        used_.fetch_add(std::size_t{1} << bits, std::memory_order_relaxed);
        return memory;
    }
    return nullptr;
}

/// False: it is the heap's.
bool Reserve::give_back(void* memory) noexcept {
    if (!owns(memory))
        return false;
    const std::lock_guard guard(lock_);
    const unsigned bits = bits_of_[unit_of(memory)];
    free_[bits] = ::new (memory) FreeBlock{free_[bits]};
    used_.fetch_sub(std::size_t{1} << bits, std::memory_order_relaxed);
    return true;
}

}  // namespace

bool reserve_open() {
    return reserve.open();
}

bool reserve_is_low() noexcept {
    return reserve.used() > kReserveBytes / 2;
}

std::size_t reserve_used() noexcept {
    return reserve.used();
}

void* reserve_allocate(std::size_t bytes, std::size_t alignment) {
    const std::size_t at = std::max(alignment, kAlignmentMin);
    void* memory = std::aligned_alloc(at, (bytes + at - 1) & ~(at - 1));
    if (memory == nullptr)
        memory = reserve.take(std::max(bytes, at));
    if (memory == nullptr)
        throw std::bad_alloc();
    return memory;
}

void* reserve_try_allocate(std::size_t bytes) noexcept {
    void* memory = std::malloc(bytes);
    if (memory == nullptr && !reserve_is_low())
        memory = reserve.take(bytes);
    return memory;
}

void reserve_free(void* memory) noexcept {
    if (!reserve.give_back(memory))
        std::free(memory);
}

}  // namespace tagwire::ucs
