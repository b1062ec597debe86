// SPDX-License-Identifier: BSD-3-Clause
// Two endpoints, while one allocation after the other fails (libnomem.so, of the library that
// TAGWIRE_TEST_NOMEM_LIBRARY names): those of the provider, or of the library below it.
#pragma once

#include "common/nomem.hpp"

#include <map>

#include "rma_pair.hpp"

namespace tagwire::fi_test {

class NoMemoryPair : public RmaPair {
  protected:
    void SetUp() override {
        if (!test::nomem::is_there())
            GTEST_SKIP() << "libnomem.so is not preloaded";
    }

    /// Does it again and again: in each round another allocation fails, until none is left.
    void sweep(const std::function<void()>& prepare, const std::function<void()>& call,
               const std::function<void()>& finish) {
        for (unsigned long which = 1;; ++which) {
            SCOPED_TRACE("allocation " + std::to_string(which));
            ASSERT_LT(which, kRoundsMax);
            ASSERT_NO_FATAL_FAILURE(prepare());
            test::nomem::name(which);
            call();
            const bool has_failed = test::nomem::name(0);
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
