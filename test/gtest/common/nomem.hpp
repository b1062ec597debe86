// SPDX-License-Identifier: BSD-3-Clause
// When allocations of the library fail: for test programs that run with libnomem.so preloaded
// (nomem.cc). Without it nothing fails, and none of this has an effect.
#pragma once

#include <dlfcn.h>

#include <cstdint>

namespace tagwire::test {

namespace nomem {

template <class Function>
Function* hook(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

inline bool is_there() {
    static const bool is_loaded = hook<void(int)>("tagwire_nomem_arm") != nullptr;
    return is_loaded;
}

/// kOutside: not those of calls that a callback of the program makes.
enum class Where { kNowhere, kAnywhere, kOutside };

/// Allocations fail by the seed and the rate.
inline void arm(Where where) {
    static auto* const call = hook<void(int)>("tagwire_nomem_arm");
    if (call != nullptr)
        call(static_cast<int>(where));
}

/// The `which`th allocation of the library from now on fails and no other one; 0: none.
inline void fail_at(std::uint64_t which) {
    static auto* const call = hook<void(std::uint64_t)>("tagwire_nomem_fail_at");
    if (call != nullptr)
        call(which);
}

/// How many have failed since the start, or since fail_at().
inline std::uint64_t failed() {
    static auto* const call = hook<std::uint64_t()>("tagwire_nomem_failed");
    return call == nullptr ? 0 : call();
}

}  // namespace nomem

/// Allocations fail while it lives.
class NoMemory {
  public:
    explicit NoMemory(nomem::Where where) { nomem::arm(where); }
    ~NoMemory() { nomem::arm(nomem::Where::kNowhere); }
    NoMemory(const NoMemory&) = delete;
    NoMemory& operator=(const NoMemory&) = delete;
};

}  // namespace tagwire::test
