// SPDX-License-Identifier: BSD-3-Clause
// Results of cases. A case is a function that returns when the provider did what the manual page
// says and throws otherwise. It runs in a process of its own, which is killed at a deadline: a
// provider that hangs or crashes has a result like any other, and the next case runs.
#pragma once
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>

namespace conformance {

enum class Outcome { kPass, kFail, kUnsupported, kHang, kCrash };

const char* name_of(Outcome outcome);

struct Result {
    Outcome outcome = Outcome::kPass;
    std::string text;  // what was expected and what came; empty for a pass
};

// Exceptions of a case: the page is not followed, the provider refuses, nothing comes any more.
struct Failed : std::runtime_error {
    using std::runtime_error::runtime_error;
};
struct Unsupported : std::runtime_error {
    using std::runtime_error::runtime_error;
};
struct Hung : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Runs `body` in a forked process. Its output goes where this process's output goes.
Result run_apart(const std::function<void()>& body, std::chrono::milliseconds deadline);

}  // namespace conformance
