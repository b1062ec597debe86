// SPDX-License-Identifier: BSD-3-Clause
// Zeroed memory of a table that is read at random. Large memory comes straight from the system: it
// is zeroed page by page as it is touched, so that a table which doubles does not wait for all of
// it, and lies on huge pages where the kernel gives them, so that a look-up waits for no
// translation of its address. When the system refuses, memory comes from the reserve
// (ucs/memory/reserve.hpp). One thread at a time.
#pragma once

#include <cstddef>
#include <utility>

namespace tagwire::ucs {

class ZeroedMemory {
  public:
    /// The alignment of data(): two cache lines, which processors fetch as a pair.
    static constexpr std::size_t kAlignment = 128;
    /// Memory of so many bytes or more comes from the system.
    static constexpr std::size_t kLargeBytes = std::size_t{2} << 20;

    ZeroedMemory() = default;
    ZeroedMemory(const ZeroedMemory&) = delete;
    ZeroedMemory& operator=(const ZeroedMemory&) = delete;
    ~ZeroedMemory() { release(); }

    /// In place of what it held. False: there is no memory, and nothing has changed.
    [[nodiscard]] bool allocate(std::size_t bytes);
    void release();
    void swap(ZeroedMemory& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(block_, other.block_);
        std::swap(mapped_bytes_, other.mapped_bytes_);
    }

    /// Null: none was allocated.
    void* data() const { return data_; }

  private:
    bool try_map(std::size_t bytes);
    bool try_take(std::size_t bytes);

    void* data_ = nullptr;
    void* block_ = nullptr;         // what data_ lies in
    std::size_t mapped_bytes_ = 0;  // of block_; 0: it is the heap's or the reserve's
};

}  // namespace tagwire::ucs
