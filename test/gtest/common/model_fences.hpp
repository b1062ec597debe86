// SPDX-License-Identifier: BSD-3-Clause
//
// For models of a ring's wake-up under the seeded scheduler (det_scheduler.hpp): who pays for the
// barrier between the sender's publish and the receiver's going to sleep, and how a model's verdict
// becomes an assertion.

#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "common/det_scheduler.hpp"

namespace tagwire::test {

// Switching fibers is dear to the sanitizers, and to an emulator: there the scenarios are explored
// less.
constexpr std::size_t schedules(std::size_t wanted) {
#if defined(__SANITIZE_THREAD__) || defined(TAGWIRE_TEST_EMULATED)
    return wanted / 20;
#elif defined(__SANITIZE_ADDRESS__)
    return wanted / 4;
#else
    return wanted;
#endif
}

/** The sleeper runs the barrier for both sides. */
struct SleeperPays {
    void after_publish(auto...) const { DetFences::compiler(); }
    void before_recheck() const { DetFences::membarrier(); }
};

/** Each side pays for its own. */
struct BothPay {
    void after_publish(auto...) const { DetFences::store_load(); }
    void before_recheck() const { DetFences::store_load(); }
};

struct NobodyPays {
    void after_publish(auto...) const {}
    void before_recheck() const {}
};

struct SleeperPaysForItselfOnly {
    void after_publish(auto...) const {}
    void before_recheck() const { DetFences::store_load(); }
};

inline testing::AssertionResult always_passes(const DetOptions& options,
                                              const std::function<void(DetRun&)>& scenario) {
    const DetResult result = det_explore(options, scenario);
    if (result.ok())
        return testing::AssertionSuccess() << result.schedules << " schedules";
    return testing::AssertionFailure() << result.message;
}

inline testing::AssertionResult fails_with(const std::string& what,
                                           const std::function<void(DetRun&)>& scenario) {
    const DetResult result = det_explore({.schedules = 50'000}, scenario);
    if (result.ok())
        return testing::AssertionFailure() << "no schedule failed";
    if (result.message.find(what) == std::string::npos)
        return testing::AssertionFailure() << result.message;
    return testing::AssertionSuccess() << result.message;
}

}  // namespace tagwire::test
