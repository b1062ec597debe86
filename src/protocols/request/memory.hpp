// SPDX-License-Identifier: BSD-3-Clause
// Memory that every domain of a context knows.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "protocols/request/context.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name of the C API
struct tw_mem {};

namespace tagwire::proto {

class Memory : public tw_mem {
  public:
    static ucs_status_t map(Context& context, void* address, std::size_t length,
                            std::unique_ptr<Memory>* memory_p);
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory();

    const Context& context() const { return context_; }
    uct_mem_h handle(std::size_t domain) const { return handles_[domain]; }
    bool covers(const void* address, std::size_t length) const;

  private:
    Memory(Context& context, void* address, std::size_t length)
        : context_(context), address_(address), length_(length) {}

    Context& context_;
    void* address_;
    std::size_t length_;
    std::vector<uct_mem_h> handles_;
};

inline Memory& memory_of(tw_mem_h handle) {
    return *static_cast<Memory*>(handle);
}

}  // namespace tagwire::proto
