// SPDX-License-Identifier: BSD-3-Clause
//
// Stand-ins for atomics, fences, shared plain data and event fds that run under the scheduler of
// det_scheduler.hpp, where the memory model is described. Each has the size of what it stands for,
// and zeroed memory is a valid object, so that layouts stay as they are.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "common/det_scheduler.hpp"

namespace tagwire::test {

/** std::atomic for scalars of at most eight bytes. */
template <class T>
class DetAtomic {
    struct Only {  // a pointer's size is meant where T is one
        T value;
    };
    static constexpr std::size_t kBytes = sizeof(Only);
    static_assert(std::is_trivially_copyable_v<T> && kBytes <= sizeof(std::uint64_t));

  public:
    using value_type = T;
    static constexpr bool is_always_lock_free = true;

    constexpr DetAtomic() noexcept : value_() {}
    constexpr DetAtomic(T value) noexcept : value_(value) {}  // NOLINT: as std::atomic
    DetAtomic(const DetAtomic&) = delete;
    DetAtomic& operator=(const DetAtomic&) = delete;

    T load(std::memory_order order = std::memory_order_seq_cst) const {
        if (!det::in_thread())
            return value_;
        const std::uint64_t bits = det::load(&value_, kBytes, order);
        T value;
        std::memcpy(&value, &bits, kBytes);
        return value;
    }
    void store(T value, std::memory_order order = std::memory_order_seq_cst) {
        if (!det::in_thread()) {
            value_ = value;
            return;
        }
        std::uint64_t bits = 0;
        std::memcpy(&bits, &value, kBytes);
        det::store(&value_, kBytes, bits, order);
    }
    operator T() const { return load(); }  // NOLINT: as std::atomic
    T operator=(T value) {                 // NOLINT: as std::atomic
        store(value);
        return value;
    }

    T exchange(T value, std::memory_order order = std::memory_order_seq_cst) {
        return update(order, [value](T) { return value; });
    }
    bool compare_exchange_strong(T& expected, T desired, std::memory_order success,
                                 std::memory_order failure) {
        return compare_exchange(expected, desired, success, failure, false);
    }
    bool compare_exchange_strong(T& expected, T desired,
                                 std::memory_order order = std::memory_order_seq_cst) {
        return compare_exchange(expected, desired, order, without_release(order), false);
    }
    bool compare_exchange_weak(T& expected, T desired, std::memory_order success,
                               std::memory_order failure) {
        return compare_exchange(expected, desired, success, failure, true);
    }
    bool compare_exchange_weak(T& expected, T desired,
                               std::memory_order order = std::memory_order_seq_cst) {
        return compare_exchange(expected, desired, order, without_release(order), true);
    }
    T fetch_add(T operand, std::memory_order order = std::memory_order_seq_cst) {
        return update(order, [operand](T old) { return static_cast<T>(old + operand); });
    }
    T fetch_sub(T operand, std::memory_order order = std::memory_order_seq_cst) {
        return update(order, [operand](T old) { return static_cast<T>(old - operand); });
    }
    T fetch_and(T operand, std::memory_order order = std::memory_order_seq_cst) {
        return update(order, [operand](T old) { return static_cast<T>(old & operand); });
    }
    T fetch_or(T operand, std::memory_order order = std::memory_order_seq_cst) {
        return update(order, [operand](T old) { return static_cast<T>(old | operand); });
    }
    T fetch_xor(T operand, std::memory_order order = std::memory_order_seq_cst) {
        return update(order, [operand](T old) { return static_cast<T>(old ^ operand); });
    }

  private:
    static constexpr std::memory_order without_release(std::memory_order order) {
        if (order == std::memory_order_acq_rel)
            return std::memory_order_acquire;
        return order == std::memory_order_release ? std::memory_order_relaxed : order;
    }

    template <class Change>
    T update(std::memory_order order, Change change) {
        const bool in_thread = det::in_thread();
        if (in_thread)
            det::begin_update(&value_);
        const T old = value_;
        value_ = change(old);
        if (in_thread)
            det::end_update(&value_, true, order);
        return old;
    }

    bool compare_exchange(T& expected, T desired, std::memory_order success,
                          std::memory_order failure, bool weak) {
        const bool in_thread = det::in_thread();
        if (in_thread)
            det::begin_update(&value_);
        const bool equal =
            std::memcmp(&value_, &expected, kBytes) == 0 && !(in_thread && weak && det::one_in(8));
        if (equal)
            value_ = desired;
        else
            expected = value_;
        if (in_thread)
            det::end_update(&value_, equal, equal ? success : failure);
        return equal;
    }

    T value_;
};

/** Shared data that is not atomic: accesses that nothing orders fail the schedule. */
template <class T>
class DetPlain {
  public:
    constexpr DetPlain() noexcept : value_() {}
    constexpr DetPlain(T value) noexcept : value_(value) {}  // NOLINT: stands for a T

    operator T() const {  // NOLINT: stands for a T
        det::plain_read(&value_, sizeof(T));
        return value_;
    }
    DetPlain& operator=(T value) {
        det::plain_write(&value_, sizeof(T));
        value_ = value;
        return *this;
    }

  private:
    T value_;
};

struct DetFences {
    /** A store before it is visible before a load after it: a full fence. */
    static void store_load() { det::fence(); }

    /** Every running thread passes a full fence, as by membarrier(2). */
    static void membarrier() { det::fence_everybody(); }

    /** The cheap side of a pair with membarrier(): keeps the compiler's order, nothing in the
     * model. */
    static void compiler() {}

    /** In a loop that waits: somebody else's turn. */
    static void pause() { det::pause(); }
};

/** An event fd: a signal is kept until a wait consumes it; both are full fences, as system calls on
 * it are. */
class DetEvent {
  public:
    void signal() { count_.fetch_add(1); }
    bool try_wait() { return count_.exchange(0) != 0; }
    bool is_signalled() const { return count_.load() != 0; }
    void wait() {
        while (!try_wait())
            det::block_until([this] { return count_.load() != 0; });
    }

  private:
    DetAtomic<std::uint64_t> count_;
};

}  // namespace tagwire::test
