// SPDX-License-Identifier: BSD-3-Clause
#include "common/det_fiber.hpp"

#include <cstdint>
#include <cstring>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TW_TEST_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define TW_TEST_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TW_TEST_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define TW_TEST_TSAN 1
#endif

#if defined(TW_TEST_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(TW_TEST_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__)
// void tagwire_test_switch_stack(void** save, void* load): the callee-saved registers go on the
// stack.
asm(R"(
.text
.type tagwire_test_switch_stack, @function
tagwire_test_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size tagwire_test_switch_stack, .-tagwire_test_switch_stack
)");
extern "C" void tagwire_test_switch_stack(void** save, void* load);
#endif

namespace tagwire::test {
namespace {

DetFiber* switched_from = nullptr;  // for the side that arrives; fibers all live on one thread
DetFiber* switched_to = nullptr;

}  // namespace

DetFiber::~DetFiber() {
#if defined(TW_TEST_TSAN)
    if (tsan_owned_)
        __tsan_destroy_fiber(tsan_fiber_);
#endif
}

void DetFiber::prepare(Entry entry, void* argument) {
    if (stack_ == nullptr)
        stack_ = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
    entry_ = entry;
    argument_ = argument;
    asan_bottom_ = stack_.get();
    asan_bytes_ = kStackBytes;
    asan_fake_stack_ = nullptr;
#if defined(TW_TEST_ASAN)
    __asan_unpoison_memory_region(stack_.get(), kStackBytes);  // frames that were abandoned there
#endif
#if defined(TW_TEST_TSAN)
    // Making one is slow, but an abandoned one keeps its frames in a stack that has an end.
    if (tsan_uses_++ % kTsanUsesMax == 0) {
        if (tsan_owned_)
            __tsan_destroy_fiber(tsan_fiber_);
        tsan_fiber_ = __tsan_create_fiber(0);
        tsan_owned_ = true;
    }
#endif
#if defined(__x86_64__)
    // As if start() had been called from nowhere: six registers, its address, and no return
    // address.
    const auto end =
        reinterpret_cast<std::uintptr_t>(stack_.get() + kStackBytes) & ~std::uintptr_t{15};
    void* frame[8] = {};
    frame[6] = reinterpret_cast<void*>(&DetFiber::start);
    stack_pointer_ =
        std::memcpy(reinterpret_cast<void*>(end - sizeof(frame)), frame, sizeof(frame));
#else
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    makecontext(&context_, &DetFiber::start, 0);
#endif
}

void DetFiber::switch_to(DetFiber& from, DetFiber& to) {
    switched_from = &from;
    switched_to = &to;
#if defined(TW_TEST_ASAN)
    __sanitizer_start_switch_fiber(&from.asan_fake_stack_, to.asan_bottom_, to.asan_bytes_);
#endif
#if defined(TW_TEST_TSAN)
    if (from.tsan_fiber_ == nullptr)
        from.tsan_fiber_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to.tsan_fiber_, 0);
#endif
#if defined(__x86_64__)
    tagwire_test_switch_stack(&from.stack_pointer_, to.stack_pointer_);
#else
    swapcontext(&from.context_, &to.context_);
#endif
    arrived();
}

void DetFiber::start() {
    arrived();
    switched_to->entry_(switched_to->argument_);
    __builtin_trap();
}

/** Runs on the stack that was switched to. */
void DetFiber::arrived() {
#if defined(TW_TEST_ASAN)
    __sanitizer_finish_switch_fiber(switched_to->asan_fake_stack_, &switched_from->asan_bottom_,
                                    &switched_from->asan_bytes_);
#endif
}

}  // namespace tagwire::test
