// SPDX-License-Identifier: BSD-3-Clause
// When allocations of the library fail: for test programs that run with libnomem.so preloaded
// (nomem.cc). Without it nothing fails, and none of this has an effect.
#pragma once

#include <dlfcn.h>

namespace tagwire::test {

namespace nomem {

/// Null where libnomem.so is not there.
inline auto* arm_hook() {
    static auto* const found =
        reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "tagwire_nomem_arm"));
    return found;
}

inline bool is_there() {
    return arm_hook() != nullptr;
}

inline auto* name_hook() {
    static auto* const found =
        reinterpret_cast<int (*)(unsigned long)>(dlsym(RTLD_DEFAULT, "tagwire_nomem_name"));
    return found;
}

inline auto* spare_hook() {
    static auto* const found =
        reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "tagwire_nomem_spare"));
    return found;
}

/// No allocation of this thread fails or is counted while it lives: what a fake writes down is the
/// test's, where the library is a part of the test program. They do not nest.
class Spared {
  public:
    Spared() { spare(1); }
    ~Spared() { spare(0); }
    Spared(const Spared&) = delete;
    Spared& operator=(const Spared&) = delete;

  private:
    static void spare(int is_spared) {
        if (auto* const hook = spare_hook())
            hook(is_spared);
    }
};

/// kOutside: not those of calls that a callback of the program makes.
enum class Where { kNowhere, kAnywhere, kOutside };

/// Allocations fail by the seed and the rate.
inline void arm(Where where) {
    if (is_there())
        arm_hook()(static_cast<int>(where));
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

/// While it lives, the allocation of that number fails, counted from 1.
class FailingAllocation {
  public:
    explicit FailingAllocation(unsigned long which) { name(which); }
    ~FailingAllocation() { name(0); }
    FailingAllocation(const FailingAllocation&) = delete;
    FailingAllocation& operator=(const FailingAllocation&) = delete;

  private:
    static void name(unsigned long which) {
        if (auto* const hook = nomem::name_hook())
            hook(which);
    }
};

}  // namespace tagwire::test
