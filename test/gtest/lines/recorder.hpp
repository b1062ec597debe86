// SPDX-License-Identifier: BSD-3-Clause
// Records which cache lines the library's code reads and writes, thread by thread.
//
// The library is compiled as for ThreadSanitizer, so that its code calls a function before each
// access to memory; hooks.cc has those functions in place of ThreadSanitizer's. A thread records
// between start() and stop() of a recorder of its own: threads share nothing while they record.
//
// Not seen: accesses of the kernel, of other libraries (the heap's own lists among them), and of
// inline assembly. memcpy() and its like, and locks of POSIX, are seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tagwire::test {

constexpr std::size_t kLineBytes = 64;

/// A line that a thread accessed in one of its turns.
struct Touch {
    std::uintptr_t line;           // its address / kLineBytes
    std::uint64_t read = 0;        // bytes of it, one bit each
    std::uint64_t written = 0;     // of those that are written atomically, too
    const void* reader = nullptr;  // code that read it first in this turn
    const void* writer = nullptr;
    std::uint32_t turn;
};

class LineRecorder {
  public:
    LineRecorder();
    LineRecorder(const LineRecorder&) = delete;
    LineRecorder& operator=(const LineRecorder&) = delete;

    /// The calling thread records into this one from now on. Each turn of any thread has a number
    /// of its own.
    void start(std::uint32_t turn);
    static void stop();
    /// While it does not record.
    void clear();
    std::span<const Touch> touches() const { return touches_; }
    /// There was no room for more: what was recorded is worth nothing.
    bool is_full() const { return is_full_; }

    /// Called by hooks: the thread accesses memory.
    static void note(const volatile void* address, std::size_t bytes, bool writes,
                     const void* code);

  private:
    struct Slot {
        std::uintptr_t line;  // 0: free
        std::uint32_t turn;
        std::uint32_t touch;
    };
    static constexpr std::size_t kSlots = std::size_t{1} << 17;
    static constexpr std::size_t kTouchesMax = std::size_t{1} << 20;

    void add(std::uintptr_t line, std::uint64_t bytes, bool writes, const void* code);
    Touch* touch_of(std::uintptr_t line);

    std::uint32_t turn_ = 0;
    bool is_full_ = false;
    std::size_t used_ = 0;
    std::unique_ptr<Slot[]> slots_;
    std::vector<Touch> touches_;
};

}  // namespace tagwire::test
