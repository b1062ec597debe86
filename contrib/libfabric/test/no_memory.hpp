// SPDX-License-Identifier: BSD-3-Clause
// Two endpoints, while one allocation after the other fails (libnomem.so, of the library that
// TAGWIRE_TEST_NOMEM_LIBRARY names): those of the provider, or of the library below it.
#pragma once

#include <dlfcn.h>

#include <map>

#include "rma_pair.hpp"

namespace tagwire::fi_test {

/// libnomem.so, if it is preloaded.
class NoMemory {
  public:
    static bool is_there() { return hook<void (*)(int)>("tagwire_nomem_arm") != nullptr; }
    /// Allocations fail by the seed and the rate, or not.
    static void arm(bool fails) { hook<void (*)(int)>("tagwire_nomem_arm")(fails ? 1 : 0); }
    /// The allocation of that number fails, counted from 1 and from now; 0: none does. True: the
    /// one that was named before has failed.
    static bool name(unsigned long which) {
        return hook<int (*)(unsigned long)>("tagwire_nomem_name")(which) != 0;
    }

  private:
    template <class Function>
    static Function hook(const char* symbol) {
        return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, symbol));
    }
};

class NoMemoryPair : public RmaPair {
  protected:
    void SetUp() override {
        if (!NoMemory::is_there())
            GTEST_SKIP() << "libnomem.so is not preloaded";
    }

    /// Does it again and again: in each round another allocation fails, until none is left.
    void sweep(const std::function<void()>& prepare, const std::function<void()>& call,
               const std::function<void()>& finish) {
        for (unsigned long which = 1;; ++which) {
            SCOPED_TRACE("allocation " + std::to_string(which));
            ASSERT_LT(which, kRoundsMax);
            ASSERT_NO_FATAL_FAILURE(prepare());
            NoMemory::name(which);
            call();
            const bool has_failed = NoMemory::name(0);
            ASSERT_NO_FATAL_FAILURE(finish());
            if (HasFailure() || !has_failed)
                return;
            ++failed_;
        }
    }
    /// A call that is refused for want of memory has done nothing, so that it can be repeated.
    ssize_t repeated(const std::function<ssize_t()>& call) {
        ssize_t status = 0;
        run_until([&] {
            status = call();
            refused_ += status == -FI_ENOMEM ? 1 : 0;
            return status != -FI_ENOMEM && status != -FI_EAGAIN;
        });
        return status;
    }

    static constexpr unsigned long kRoundsMax = 3000;

    unsigned long failed_ = 0;   ///< Allocations.
    unsigned long refused_ = 0;  ///< Calls.
};

}  // namespace tagwire::fi_test
