// SPDX-License-Identifier: BSD-3-Clause
// Anonymous memory that both processes of a measurement map: the floors use it, no transport does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tools/codec.hpp"

namespace tagwire::tools {

class SharedMapping {
  public:
    /// New zeroed memory. Throws Failure.
    explicit SharedMapping(std::size_t bytes);
    ~SharedMapping();
    SharedMapping(const SharedMapping&) = delete;
    SharedMapping& operator=(const SharedMapping&) = delete;

    /// A description by which another process of the same user on this host can open it.
    Encoder name() const;

    /// Opens what name() describes. Null when that is impossible (another host or user); what is
    /// not sealed memory of exactly this size is never mapped.
    static std::unique_ptr<SharedMapping> open(Decoder name, std::size_t bytes);

    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

  private:
    SharedMapping(int fd, std::size_t bytes);
    void map();

    int fd_;
    std::size_t bytes_;
    void* data_ = nullptr;
};

/// Tells boots of machines apart.
std::string boot_id();

}  // namespace tagwire::tools
