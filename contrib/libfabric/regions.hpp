// SPDX-License-Identifier: BSD-3-Clause
// The memory that a domain has registered, by its keys.
//
// 1. A key names one region of its domain at a time: the program chooses it, or with FI_MR_BASIC
//    the provider, which never gives one twice.
// 2. Peers name memory of a region by its addresses with FI_MR_BASIC, else by offsets.
#pragma once

#include <cstdint>
#include <unordered_map>

namespace tagwire::fi {

class Mr;

class Regions {
  public:
    /// Adds a region under its key `mr.key`, or with `is_provided` under a new one, which it sets.
    /// 0, or -FI_ENOKEY: the key is in use. May throw for want of memory.
    int add(Mr& mr, bool is_provided);
    void remove(std::uint64_t key) { by_key_.erase(key); }
    /// nullptr: no region has this key.
    Mr* find(std::uint64_t key) const {
        const auto found = by_key_.find(key);
        return found == by_key_.end() ? nullptr : found->second;
    }

  private:
    std::unordered_map<std::uint64_t, Mr*> by_key_;
    std::uint64_t last_key_ = 0;
};

}  // namespace tagwire::fi
