// SPDX-License-Identifier: BSD-3-Clause
// Random use of workers that threads share; traffic.hpp says what is checked.
//
// TAGWIRE_TEST_STEPS=<n>: steps of each thread.
// TAGWIRE_TEST_TX_CONTEXTS=<n>: transmit contexts of each worker.
#include <cstdlib>

#include "common/seeds.hpp"
#include "protocols/traffic.hpp"

namespace tagwire::test {
namespace {

class MsgRandomThreads : public MsgTest {
  protected:
    /// 2 to 8 threads, 1 to 3 workers.
    void run(std::uint64_t seed, Traffic::Options options) {
        std::mt19937_64 random(seed * 7919);
        options.threads = static_cast<unsigned>(2 + random() % 7);
        options.workers = static_cast<unsigned>(1 + random() % 3);
        options.steps = 250;
        options.bytes_max = 100'000;
        if (const char* const named = std::getenv("TAGWIRE_TEST_STEPS"))
            options.steps = static_cast<unsigned>(std::strtoul(named, nullptr, 10));
        if (const char* const named = std::getenv("TAGWIRE_TEST_TX_CONTEXTS"))
            options.tx_contexts = static_cast<unsigned>(std::strtoul(named, nullptr, 10));
        Traffic(seed, context_.get(), options).run();
    }
};

TEST_F(MsgRandomThreads, what_threads_of_shared_workers_get_is_what_the_reference_allows) {
    for_each_seed(20, [&](std::uint64_t seed) { run(seed, {.has_others = false}); });
}

TEST_F(MsgRandomThreads, endpoints_are_closed_and_made_again_by_any_thread) {
    for_each_seed(
        10, [&](std::uint64_t seed) { run(seed, {.has_closes = true, .has_others = false}); });
}

TEST_F(MsgRandomThreads, endpoints_are_closed_by_force_and_made_again_by_any_thread) {
    for_each_seed(10, [&](std::uint64_t seed) {
        run(seed, {.has_closes = true, .has_breaks = true, .has_others = false});
    });
}

TEST_F(MsgRandomThreads, a_peer_that_dies_takes_no_thread_along) {
    for_each_seed(10,
                  [&](std::uint64_t seed) { run(seed, {.has_death = true, .has_others = false}); });
}

// The same, among puts, gets, atomics and active messages of all threads.

TEST_F(MsgRandomThreads, one_sided_operations_and_active_messages_of_threads_do_what_they_say) {
    for_each_seed(10, [&](std::uint64_t seed) { run(seed, {.has_others = true}); });
}

TEST_F(MsgRandomThreads, one_sided_operations_and_active_messages_survive_closes) {
    for_each_seed(5,
                  [&](std::uint64_t seed) { run(seed, {.has_closes = true, .has_others = true}); });
    for_each_seed(5, [&](std::uint64_t seed) {
        run(seed, {.has_closes = true, .has_breaks = true, .has_others = true});
    });
}

TEST_F(MsgRandomThreads, one_sided_operations_and_active_messages_survive_a_death) {
    for_each_seed(10,
                  [&](std::uint64_t seed) { run(seed, {.has_death = true, .has_others = true}); });
}

}  // namespace
}  // namespace tagwire::test
