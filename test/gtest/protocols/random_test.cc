// SPDX-License-Identifier: BSD-3-Clause
// Random use of the messaging layer; traffic.hpp says what is checked.
//
// TAGWIRE_TEST_WORKERS=<n>: at most so many instead of 16 where there are many.
// TAGWIRE_TEST_TRANSPORTS_ODD=<list>: every other worker has these transports.
#include <cstdlib>

#include "common/seeds.hpp"
#include "protocols/traffic.hpp"

namespace tagwire::test {
namespace {

class MsgRandom : public MsgTest {
  protected:
    MsgRandom() {
        const char* const named = std::getenv("TAGWIRE_TEST_TRANSPORTS_ODD");
        tw_context_params_t params{};
        params.transports = named;
        tw_context_h context = nullptr;
        if (named != nullptr) {
            EXPECT_EQ(tw_context_create(&params, &context), TW_OK);
        }
        odd_context_.reset(context);
    }
    void run(std::uint64_t seed, Traffic::Options options) {
        std::mt19937_64 random(seed * 7919);
        options.workers = static_cast<unsigned>(2 + random() % (options.workers - 1));
        options.odd = odd_context_.get();
        Traffic traffic(seed, context_.get(), options);
        traffic.run();
    }

  private:
    std::unique_ptr<tw_context, ContextDeleter> odd_context_;
};

TEST_F(MsgRandom, what_a_few_workers_get_is_what_the_reference_allows) {
    for_each_seed(20, [&](std::uint64_t seed) { run(seed, {.workers = 4}); });
}

TEST_F(MsgRandom, what_many_workers_get_is_what_the_reference_allows) {
    const char* const named = std::getenv("TAGWIRE_TEST_WORKERS");
    const unsigned workers =
        named == nullptr ? 16 : static_cast<unsigned>(std::strtoul(named, nullptr, 10));
    for_each_seed(
        2, [&](std::uint64_t seed) { run(seed, {.workers = workers, .steps = 125 * workers}); });
}

TEST_F(MsgRandom, whoever_dies_takes_nobody_along) {
    for_each_seed(4, [&](std::uint64_t seed) { run(seed, {.workers = 6, .has_death = true}); });
}

TEST_F(MsgRandom, endpoints_are_closed_and_made_again) {
    for_each_seed(6, [&](std::uint64_t seed) { run(seed, {.workers = 4, .has_closes = true}); });
}

TEST_F(MsgRandom, endpoints_are_closed_by_force_and_made_again) {
    for_each_seed(6, [&](std::uint64_t seed) {
        run(seed, {.workers = 4, .has_closes = true, .has_breaks = true});
    });
}

}  // namespace
}  // namespace tagwire::test
