// SPDX-License-Identifier: BSD-3-Clause
//
// Contexts and memory of the messaging layer's C++ wrapper. Included by tagwire_msg.hpp.
#ifndef TAGWIRE_PROTOCOLS_API_CXX_MSG_CONTEXT_HPP
#define TAGWIRE_PROTOCOLS_API_CXX_MSG_CONTEXT_HPP

#include <protocols/api/cxx_msg_base.hpp>

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
    tw_status_t invalidate(std::span<const std::byte> memory) const {
        return tw_mem_invalidate(get(), memory.data(), memory.size());
    }

  private:
    using Owned = detail::Owner<tw_context_h, tw_context_destroy>;
    explicit Context(Owned owned) : context_(std::move(owned)) {}

    Owned context_;
};

/// Memory known to every memory domain of a context, for Op::mem(); the bytes stay the program's.
class Memory {
  public:
    Memory(const Context& context, std::span<std::byte> bytes) : context_(context.get()) {
        check(tw_mem_map(context_, bytes.data(), bytes.size(), nullptr, &mem_), "tw_mem_map");
    }
    Memory(Memory&& other) noexcept
        : context_(other.context_), mem_(std::exchange(other.mem_, nullptr)) {}
    Memory& operator=(Memory&& other) noexcept {
        std::swap(context_, other.context_);
        std::swap(mem_, other.mem_);
        return *this;
    }
    ~Memory() {
        if (mem_ != nullptr)
            tw_mem_unmap(context_, mem_);
    }

    [[nodiscard]] tw_mem_h get() const { return mem_; }

  private:
    tw_context_h context_;
    tw_mem_h mem_ = nullptr;
};

}  // namespace msg
}  // namespace v1
}  // namespace tagwire

#endif
