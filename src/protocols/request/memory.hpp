// SPDX-License-Identifier: BSD-3-Clause
// Memory that every domain of a context knows, and what peers may do with it.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "protocols/api/tw_memory.h"
#include "protocols/request/context.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name of the C API
struct tw_mem {};

namespace tagwire::proto {

class CompletionCounter;
struct Keys;

class Memory : public tw_mem {
  public:
    /// `access`: TW_ACCESS_x, not 0. `address` null: memory is allocated.
    static ucs_status_t make(Context& context, void* address, std::size_t length,
                             std::uint32_t access, std::unique_ptr<Memory>* memory_p);
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory();

    const Context& context() const { return context_; }
    /// For operations of this process; it gives peers what `access` does.
    uct_mem_h handle(std::size_t domain) const { return handles_[domain]; }
    /// A key made of its handle lets receivers of its messages read it: memory for messages only
    /// gives that right, too.
    bool may_be_read() const { return (access_ & (TW_ACCESS_READ | TW_ACCESS_NONE)) != 0; }
    /// A key made of its handle lets senders of messages write them there.
    bool may_be_written() const { return (access_ & TW_ACCESS_WRITE) != 0; }
    /// The program may read it only: it is mapped so.
    bool is_read_only() const { return is_read_only_; }
    /// Before its first key: counts puts that their initiators tell of.
    void count_puts(CompletionCounter& counter);
    bool counts_puts() const { return counter_ != nullptr; }
    /// Such a put has arrived.
    void count_put();
    bool covers(const void* address, std::size_t length) const;
    void* address() const { return address_; }

    /// Packs its key; *length_p: its bytes, at most TW_KEY_BYTES_MAX. UCS_ERR_EXCEEDS_LIMIT: too
    /// much memory has one.
    ucs_status_t pack(std::byte* to, std::size_t* length_p);
    /// Keys of all domains, as far as they have room.
    void list_keys(Keys* keys) const;
    /// Where peers that have one of the rights `access` reach [address, address + length); nullptr:
    /// they do not.
    std::byte* reach(std::uint64_t address, std::uint64_t length, std::uint32_t access) const;
    bool is_remote() const { return access_ != TW_ACCESS_NONE; }
    /// Atomics on its numbers of 64 bits are the device's.
    bool atomics_by_device() const { return atomics_by_device_; }

  private:
    Memory(Context& context, void* address, std::size_t length, std::uint32_t access)
        : context_(context), address_(address), length_(length), access_(access) {}
    ucs_status_t allocate();
    ucs_status_t register_all();
    ucs_status_t register_in(uct_md_h domain, uct_mem_h* handle_p);
    ucs_status_t expose();

    Context& context_;
    void* address_;
    std::size_t length_;
    const std::uint32_t access_;
    uct_allocated_memory_t allocated_{};  // its length is 0: the memory is the program's
    std::vector<uct_mem_h> handles_;      // one in each domain
    bool is_read_only_ = false;
    CompletionCounter* counter_ = nullptr;
    // From the first key on.
    std::mutex key_lock_;
    std::uint64_t id_ = 0;
    bool atomics_by_device_ = false;
};

inline Memory& memory_of(tw_mem_h handle) {
    return *static_cast<Memory*>(handle);
}

}  // namespace tagwire::proto
