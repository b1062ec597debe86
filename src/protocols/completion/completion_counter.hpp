// SPDX-License-Identifier: BSD-3-Clause
// The counter of the API (tw_counter_h): how many operations have ended, with success and without,
// and how many puts have arrived. Operations and memory are its users.
#pragma once

#include <cstdint>

#include "protocols/api/tw_def.h"
#include "protocols/completion/completion_queue.hpp"
#include "protocols/completion/counter_protocol.hpp"
#include "protocols/completion/users.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name of the C API
struct tw_counter {};

namespace tagwire::proto {

class CompletionCounter : public tw_counter, public CounterProtocol<CompletionEnv> {
  public:
    /// An operation names it, and reports its end, or leaves; or memory does, until it is unmapped.
    Users& users() { return users_; }
    /// The end of an operation that names it.
    void report(tw_status_t status) {
        users_.begin_report();
        add(status == TW_OK ? 1 : 0, status == TW_OK ? 0 : 1);
        users_.end();
    }
    /// By who is no user: the program, or a put that arrives in memory.
    void add_by_hand(std::uint64_t successes, std::uint64_t failures) {
        users_.begin_visit();
        add(successes, failures);
        users_.end();
    }

  private:
    Users users_;
};

inline CompletionCounter& counter_of(tw_counter_h handle) {
    return *static_cast<CompletionCounter*>(handle);
}

}  // namespace tagwire::proto
