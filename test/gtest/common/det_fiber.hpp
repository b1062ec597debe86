// SPDX-License-Identifier: BSD-3-Clause
//
// DetFiber: a stack and a place in a program, between which the deterministic scheduler switches.
// On x86-64 a switch is seven instructions; elsewhere it is ucontext's. The sanitizers are told of
// each switch.

#pragma once

#include <cstddef>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace tagwire::test {

class DetFiber {
  public:
    using Entry = void (*)(void*);
    static constexpr std::size_t kStackBytes = std::size_t{256} << 10;

    /** The caller's own stack, to switch back to. */
    DetFiber() = default;
    ~DetFiber();
    DetFiber(const DetFiber&) = delete;
    DetFiber& operator=(const DetFiber&) = delete;

    /** The next switch_to starts entry(argument) on a stack of this fiber's own, whatever ran on it
     * before. `entry` never returns: it switches away for good. */
    void prepare(Entry entry, void* argument);

    /** `from` is what runs now; returns when something switches back to it. */
    static void switch_to(DetFiber& from, DetFiber& to);

  private:
    static void start();
    static void arrived();

    std::unique_ptr<std::byte[]> stack_;
    Entry entry_ = nullptr;
    void* argument_ = nullptr;
#if defined(__x86_64__)
    void* stack_pointer_ = nullptr;
#else
    ucontext_t context_ = {};
#endif
    // For the sanitizers; unused without them.
    [[maybe_unused]] const void* asan_bottom_ = nullptr;
    [[maybe_unused]] std::size_t asan_bytes_ = 0;
    [[maybe_unused]] void* asan_fake_stack_ = nullptr;
    [[maybe_unused]] void* tsan_fiber_ = nullptr;
    [[maybe_unused]] bool tsan_owned_ = false;
    [[maybe_unused]] unsigned tsan_uses_ = 0;
    static constexpr unsigned kTsanUsesMax = 512;
};

}  // namespace tagwire::test
