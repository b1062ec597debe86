// SPDX-License-Identifier: BSD-3-Clause
// The loan of a connection: a registration of no bytes, made once, that stands for all buffers
// which its peer may read at the moment. It gives no right by messages. The peer reads a buffer by
// itself, then compares the loan's generation in the owner's arena (key_guard.hpp), so what it read
// counts only if the loan was in force until then. When the owner takes any of the buffers back, it
// ends the loan before it touches them; the next buffer gets a new one.
//
// Threads: the owner of the interface.
#pragma once

#include <sys/types.h>

#include "uct/sm/sm_md.hpp"

namespace tagwire::sm {

class Loan {
  public:
    Loan() = default;
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() { end(); }

    /// The one in force, which is made if there is none. Null: the memory domain has no key left.
    const MemHandle* give(SmMd& md) {
        if (handle_ == nullptr) [[unlikely]]
            make(md);
        return handle_;
    }
    /// Nothing that was lent counts any more when a peer reads it. In a forked child, whose copy
    /// stands for nothing, the loan of the parent goes on.
    void end() {
        if (handle_ != nullptr) [[unlikely]]
            release();
    }
    [[nodiscard]] bool is_in_force() const { return handle_ != nullptr; }

  private:
    void make(SmMd& md);
    void release();

    MemHandle* handle_ = nullptr;
    SmMd* md_ = nullptr;
    pid_t pid_ = 0;  // of the process that made it
};

}  // namespace tagwire::sm
