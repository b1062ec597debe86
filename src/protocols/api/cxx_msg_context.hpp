// SPDX-License-Identifier: BSD-3-Clause
//
// Contexts and memory of the messaging layer's C++ wrapper. Included by tagwire_msg.hpp.
#ifndef TAGWIRE_PROTOCOLS_API_CXX_MSG_CONTEXT_HPP
#define TAGWIRE_PROTOCOLS_API_CXX_MSG_CONTEXT_HPP

#include <protocols/api/tw_memory.h>
#include <protocols/api/tw_rma.h>
#include <protocols/api/cxx_msg_base.hpp>

#include <vector>

namespace tagwire {
inline namespace v1 {
namespace msg {

class Context {
  public:
    /// The transports of TAGWIRE_TRANSPORTS.
    Context() : Context(nullptr) {}
    /// "sm,rc:mlx5_0:1"
    explicit Context(const std::string& transports) : Context(transports.c_str()) {}
    /// nullptr: those of TAGWIRE_TRANSPORTS.
    explicit Context(const char* transports)
        : Context(tw_context_params_t{.transports = transports, .tag_sender_mask = 0}) {}
    explicit Context(const tw_context_params_t& params) {
        tw_context_h context = nullptr;
        check(tw_context_create(&params, &context), "tw_context_create");
        context_.reset(context);
    }

    /// Takes over a handle of tw_context_create().
    static Context adopt(tw_context_h handle) { return Context(Owned(handle)); }

    [[nodiscard]] tw_context_h get() const { return context_.get(); }
    /// To be called before memory that messages have used is given back; tw_mem_invalidate().
    Status invalidate(std::span<const std::byte> memory) const {
        return {tw_mem_invalidate(get(), memory.data(), memory.size()), "tw_mem_invalidate"};
    }

  private:
    using Owned = detail::Owner<tw_context_h, tw_context_destroy>;
    explicit Context(Owned owned) : context_(std::move(owned)) {}

    Owned context_;
};

/// Memory known to every memory domain of a context, for Op::memory() and for peers. It is the
/// program's, or, made by allocate(), this object's: then it goes with it.
class Memory {
  public:
    /// `access`: TW_ACCESS_x, for its key. `counter`: of puts that arrive, tw_mem_params_t.
    Memory(const Context& context, std::span<std::byte> bytes, std::uint32_t access = TW_ACCESS_ALL,
           tw_counter_h counter = nullptr)
        : context_(context.get()), bytes_(bytes) {
        tw_mem_params_t params{};
        params.access = access;
        params.counter = counter;
        check(tw_mem_map(context_, bytes.data(), bytes.size(), &params, &mem_), "tw_mem_map");
    }
    /// Memory that peers of this host reach by loads and stores; zeroes.
    static Memory allocate(const Context& context, std::size_t length,
                           std::uint32_t access = TW_ACCESS_ALL, tw_counter_h counter = nullptr) {
        tw_mem_params_t params{};
        params.access = access;
        params.counter = counter;
        void* address = nullptr;
        tw_mem_h mem = nullptr;
        check(tw_mem_alloc(context.get(), length, &params, &address, &mem), "tw_mem_alloc");
        return Memory(context.get(), mem, {static_cast<std::byte*>(address), length});
    }
    Memory(Memory&& other) noexcept
        : context_(other.context_),
          bytes_(other.bytes_),
          mem_(std::exchange(other.mem_, nullptr)) {}
    Memory& operator=(Memory&& other) noexcept {
        std::swap(context_, other.context_);
        std::swap(bytes_, other.bytes_);
        std::swap(mem_, other.mem_);
        return *this;
    }
    ~Memory() {
        if (mem_ != nullptr)
            tw_mem_unmap(context_, mem_);
    }

    [[nodiscard]] tw_mem_h get() const { return mem_; }
    [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
    /// By which peers name its first byte.
    [[nodiscard]] std::uint64_t address() const {
        return reinterpret_cast<std::uintptr_t>(bytes_.data());
    }
    /// The key for peers, plain bytes; tw_mem_pack().
    [[nodiscard]] std::vector<std::byte> pack() const {
        std::vector<std::byte> key(TW_KEY_BYTES_MAX);
        std::size_t length = key.size();
        check(tw_mem_pack(mem_, key.data(), &length), "tw_mem_pack");
        key.resize(length);
        return key;
    }

  private:
    Memory(tw_context_h context, tw_mem_h mem, std::span<std::byte> bytes)
        : context_(context), bytes_(bytes), mem_(mem) {}

    tw_context_h context_;
    std::span<std::byte> bytes_;
    tw_mem_h mem_ = nullptr;
};

}  // namespace msg
}  // namespace v1
}  // namespace tagwire

#endif
