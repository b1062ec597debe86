// SPDX-License-Identifier: BSD-3-Clause
//
// A key ends while a peer writes by it, in every order of their atomic operations that a machine
// with store buffers allows: what is written afterwards is the owner's alone.

#include "common/det_atomic.hpp"
#include "common/det_scheduler.hpp"
#include "common/model_fences.hpp"
#include "uct/sm/writers.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kGood = 1, kEnded = 2;

struct Shared {
    DetAtomic<std::uint64_t> generation{kGood};
    sm::WriterWord<DetAtomic> words[2];
    std::uint64_t memory[2] = {};  // a writer's each
};

/// Where a writer looks at the key.
enum class Look { kWithin, kBefore };

template <class Fences, Look kLook = Look::kWithin>
void write(Shared& shared, unsigned index, bool is_shared) {
    const auto is_good = [&] { return shared.generation.load(std::memory_order_acquire) == kGood; };
    const sm::Writer<DetAtomic, Fences> writer{&shared.words[is_shared ? 0 : index], is_shared, {}};
    if (kLook == Look::kBefore && !is_good())
        return;
    const sm::Writing writing(writer);
    if (kLook == Look::kWithin && !is_good())
        return;
    det::plain_write(&shared.memory[index], sizeof shared.memory[index]);
    shared.memory[index] = 1;
}

template <class Fences>
void end_key(Shared& shared, bool is_shared) {
    shared.generation.store(kEnded, std::memory_order_release);
    Fences{}.before_recheck();
    for (const auto& word : shared.words)
        while (sm::is_writing(word, is_shared))
            DetFences::pause();
    for (std::uint64_t& memory : shared.memory) {
        det::plain_write(&memory, sizeof memory);
        memory = 2;
    }
}

template <class Fences, bool kIsShared>
void a_key_ends(DetRun& run) {
    Shared shared;
    // Two writers, each by a word of its own or both by one.
    for (unsigned i = 0; i < 2; ++i)
        run.spawn([&, i] { write<Fences>(shared, i, kIsShared); });
    run.spawn([&] { end_key<Fences>(shared, kIsShared); });
    if (run.run())
        run.check(shared.memory[0] == 2 && shared.memory[1] == 2,
                  "a peer has written behind the end of its key");
}

/// One at a time, as a connection writes: its word is used again and again.
template <class Fences, Look kLook = Look::kWithin>
void a_key_ends_among_writes(DetRun& run) {
    Shared shared;
    run.spawn([&] {
        for (int i = 0; i < 3; ++i)
            write<Fences, kLook>(shared, 0, false);
    });
    run.spawn([&] { end_key<Fences>(shared, false); });
    if (run.run())
        run.check(shared.memory[0] == 2 && shared.memory[1] == 2,
                  "a peer has written behind the end of its key");
}

TEST(WritersModel, nothing_is_written_behind_the_end_of_a_key) {
    EXPECT_TRUE(
        always_passes({.schedules = schedules(50'000)}, a_key_ends_among_writes<SleeperPays>));
    EXPECT_TRUE(always_passes({.schedules = schedules(50'000)}, a_key_ends_among_writes<BothPay>));
    EXPECT_TRUE(always_passes({.schedules = schedules(50'000)}, a_key_ends<SleeperPays, false>));
    EXPECT_TRUE(always_passes({.schedules = schedules(50'000)}, a_key_ends<SleeperPays, true>));
    EXPECT_TRUE(always_passes({.schedules = schedules(50'000)}, a_key_ends<BothPay, true>));
}

TEST(WritersModel, without_barriers_the_explorer_finds_a_late_write) {
    EXPECT_FALSE(det_explore({.schedules = 50'000}, a_key_ends_among_writes<NobodyPays>).ok());
    EXPECT_FALSE(
        det_explore({.schedules = 50'000}, a_key_ends_among_writes<SleeperPaysForItselfOnly>).ok());
}

// The look within the word is needed: an earlier one does not replace it.
TEST(WritersModel, without_the_look_within_the_word_the_explorer_finds_a_late_write) {
    EXPECT_FALSE(
        det_explore({.schedules = 50'000}, a_key_ends_among_writes<SleeperPays, Look::kBefore>)
            .ok());
    EXPECT_FALSE(
        det_explore({.schedules = 50'000}, a_key_ends_among_writes<BothPay, Look::kBefore>).ok());
}

}  // namespace
}  // namespace tagwire::test
