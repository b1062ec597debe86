// SPDX-License-Identifier: BSD-3-Clause
// Registered memory of a memory domain, and the keys by which peers name it. Any thread.
//
// Peers send requests and the owner moves the bytes, so a key is only looked up here: unlike sm's
// table it has no generations that peers read, but pins. Invariants
//  (1) A key is good from add() until remove() returns. Its generation is random, so that a key
//      leads to no other one, and none of an earlier registration or process is good.
//  (2) Whoever lets the kernel read or write registered memory pins it for that one system call and
//      runs no callback meanwhile. remove() waits for pins, so nobody touches the memory after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "ucs/memory/reserve.hpp"
#include "uct/tcp/wire.hpp"

namespace tagwire::tcp {

/// The object that uct_mem_h points to.
struct Registration : ucs::FromReserve {
    std::byte* address = nullptr;
    std::size_t length = 0;
    unsigned flags = 0;  // UCT_MD_MEM_ACCESS_*
    Key key{};
};

class Registrations {
  public:
    class Pin {
      public:
        Pin() = default;
        Pin(Registrations& table, std::uint32_t index, std::byte* address)
            : table_(&table), index_(index), address_(address) {}
        Pin(Pin&& other) noexcept
            : table_(std::exchange(other.table_, nullptr)),
              index_(other.index_),
              address_(other.address_) {}
        Pin& operator=(Pin&& other) noexcept {
            if (this != &other) {
                release();
                table_ = std::exchange(other.table_, nullptr);
                index_ = other.index_;
                address_ = other.address_;
            }
            return *this;
        }
        Pin(const Pin&) = delete;
        Pin& operator=(const Pin&) = delete;
        ~Pin() { release(); }
        void release() {
            if (table_ != nullptr)
                std::exchange(table_, nullptr)->unpin(index_);
        }
        /// Null: the key is not good (any more), or does not cover the range.
        [[nodiscard]] std::byte* address() const { return address_; }

      private:
        Registrations* table_ = nullptr;
        std::uint32_t index_ = 0;
        std::byte* address_ = nullptr;
    };

    Registrations() = default;
    Registrations(const Registrations&) = delete;
    Registrations& operator=(const Registrations&) = delete;

    /// Gives it a key. False: kCountMax are registered.
    [[nodiscard]] bool add(Registration& registration);
    /// Makes the key invalid; returns when nobody has the memory pinned.
    void remove(const Registration& registration);
    /// [address, address + length), when `key` covers it with one of the rights in `access`.
    [[nodiscard]] Pin pin(const Key& key, std::uint64_t address, std::uint64_t length,
                          unsigned access);
    /// Calls `function(Registration&)` for each; it may destroy it. While no other thread is here.
    template <class Function>
    void for_each(Function function) {
        for (Entry& entry : entries_)
            if (entry.registration != nullptr)
                function(*entry.registration);
    }

  private:
    static constexpr std::uint32_t kCountMax = 1U << 22;

    struct Entry {
        Registration* registration = nullptr;  // null: free
        std::uint32_t pins = 0;
    };

    void unpin(std::uint32_t index);

    std::mutex mutex_;
    ucs::ReserveDeque<Entry> entries_;
    ucs::ReserveVector<std::uint32_t> free_;
};

}  // namespace tagwire::tcp
