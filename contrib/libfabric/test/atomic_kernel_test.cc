// SPDX-License-Identifier: BSD-3-Clause
// The operations of fi_atomic(3), each on each datatype, against the formulas of the manual page.
#include "../atomic_kernel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <complex>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <thread>
#include <type_traits>
#include <vector>

namespace tagwire::fi_test {
namespace {

using fi::AtomicApply;
using fi::AtomicKind;
using fi::find_atomic;

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 Uint128;

constexpr unsigned kDiff = FI_MSWAP + 1;
constexpr unsigned kOps = kDiff + 1;

template <class T>
constexpr bool kIsComplex = false;
template <class T>
constexpr bool kIsComplex<std::complex<T>> = true;
template <class T>
constexpr bool kIsInteger =
    std::is_integral_v<T> || std::is_same_v<T, Int128> || std::is_same_v<T, Uint128>;

/// Numbers of 128 bits cannot be printed by gtest. Two that are not a number are compared by bytes.
template <class T>
bool same(const T& a, const T& b) {
    constexpr std::size_t kBytes = std::is_same_v<T, long double> ? 10 : sizeof(T);
    const auto* const bytes = reinterpret_cast<const std::byte*>(&a);
    return a == b || std::equal(bytes, bytes + kBytes, reinterpret_cast<const std::byte*>(&b));
}

/// Its bits; those above may be anything, as results are cut to the size of T.
template <class T>
Uint128 wide(T number) {
    if constexpr (sizeof(T) == sizeof(Uint128))
        return static_cast<Uint128>(number);
    else
        return static_cast<std::make_unsigned_t<T>>(number);
}

/// The formula of the manual page. Nothing: the datatype does not have that.
template <class T>
std::optional<T> expected(unsigned op, T addr, T buf, T compare) {
    const bool a = addr != T{};
    const bool b = buf != T{};
    switch (op) {
        case FI_LOR:
            return T(a || b);
        case FI_LAND:
            return T(a && b);
        case FI_LXOR:
            return T((a && !b) || (!a && b));
        case FI_ATOMIC_READ:
            return addr;
        case FI_ATOMIC_WRITE:
            return buf;
        case FI_CSWAP:
            return compare == addr ? buf : addr;
        case FI_CSWAP_NE:
            return compare != addr ? buf : addr;
        default:
            break;
    }
    if constexpr (kIsInteger<T>) {
        const Uint128 wide_addr = wide(addr);
        const Uint128 wide_buf = wide(buf);
        switch (op) {
            case FI_SUM:
                return static_cast<T>(wide_addr + wide_buf);
            case FI_PROD:
                return static_cast<T>(wide_addr * wide_buf);
            case kDiff:
                return static_cast<T>(wide_addr - wide_buf);
            case FI_BOR:
                return static_cast<T>(wide_addr | wide_buf);
            case FI_BAND:
                return static_cast<T>(wide_addr & wide_buf);
            case FI_BXOR:
                return static_cast<T>(wide_addr ^ wide_buf);
            case FI_MSWAP:
                return static_cast<T>((wide_buf & wide(compare)) | (wide_addr & ~wide(compare)));
            default:
                break;
        }
    } else if (op == FI_SUM) {
        return addr + buf;
    } else if (op == FI_PROD) {
        return addr * buf;
    } else if (op == kDiff) {
        return addr - buf;
    }
    if constexpr (!kIsComplex<T>) {
        switch (op) {
            case FI_MIN:
                return buf < addr ? buf : addr;
            case FI_MAX:
                return buf > addr ? buf : addr;
            case FI_CSWAP_LE:
                return compare <= addr ? buf : addr;
            case FI_CSWAP_LT:
                return compare < addr ? buf : addr;
            case FI_CSWAP_GE:
                return compare >= addr ? buf : addr;
            case FI_CSWAP_GT:
                return compare > addr ? buf : addr;
            default:
                break;
        }
    }
    return std::nullopt;
}

/// The calls that have an operation, as the manual page lists them.
bool has(AtomicKind kind, unsigned op) {
    const bool compares = op >= FI_CSWAP && op <= FI_MSWAP;
    if (kind == AtomicKind::kCompare)
        return compares;
    return !compares && (op != FI_ATOMIC_READ || kind == AtomicKind::kFetch);
}

/// Extremes, small numbers, and any.
template <class T>
T draw(std::mt19937& random) {
    if constexpr (kIsComplex<T>) {
        return {draw<typename T::value_type>(random), draw<typename T::value_type>(random)};
    } else if constexpr (kIsInteger<T>) {
        const Uint128 any = (static_cast<Uint128>(random()) << 96) |
                            (static_cast<Uint128>(random()) << 64) |
                            (static_cast<Uint128>(random()) << 32) | random();
        switch (random() % 4) {
            case 0:
                return static_cast<T>(any % 3);
            case 1:  // the least, or greatest, of a signed type
                return static_cast<T>((Uint128{1} << (sizeof(T) * 8 - 1)) - any % 2);
            case 2:
                return static_cast<T>(~Uint128{0} - any % 3);
            default:
                return static_cast<T>(any);
        }
    } else {
        return static_cast<T>(static_cast<int>(random() % 9) - 4) / 2;
    }
}

template <unsigned kNumber, class Element>
struct Datatype {
    static constexpr unsigned number = kNumber;
    using Type = Element;
};

template <class Of>
class FiAtomicKernel : public testing::Test {};
using Datatypes = testing::Types<
    Datatype<FI_INT8, std::int8_t>, Datatype<FI_UINT8, std::uint8_t>,
    Datatype<FI_INT16, std::int16_t>, Datatype<FI_UINT16, std::uint16_t>,
    Datatype<FI_INT32, std::int32_t>, Datatype<FI_UINT32, std::uint32_t>,
    Datatype<FI_INT64, std::int64_t>, Datatype<FI_UINT64, std::uint64_t>, Datatype<FI_FLOAT, float>,
    Datatype<FI_DOUBLE, double>, Datatype<FI_FLOAT_COMPLEX, std::complex<float>>,
    Datatype<FI_DOUBLE_COMPLEX, std::complex<double>>, Datatype<FI_LONG_DOUBLE, long double>,
    Datatype<FI_LONG_DOUBLE_COMPLEX, std::complex<long double>>, Datatype<FI_INT128, Int128>,
    Datatype<FI_UINT128, Uint128>>;
TYPED_TEST_SUITE(FiAtomicKernel, Datatypes);

/// An array at an address that is a multiple of 32, or one byte behind it, in zeroed memory.
template <class T>
class Elements {
  public:
    Elements(std::size_t count, std::size_t offset)
        : bytes_((count + 2) * sizeof(T) + 64), count_(count) {
        const auto at = reinterpret_cast<std::uintptr_t>(bytes_.data());
        begin_ = bytes_.data() + (32 - at % 32) % 32 + offset;
    }
    std::byte* data() { return begin_; }
    T get(std::size_t i) const {
        T value;
        std::memcpy(&value, begin_ + i * sizeof(T), sizeof(T));
        return value;
    }
    void set(std::size_t i, const T& value) {
        std::memcpy(begin_ + i * sizeof(T), &value, sizeof(T));
    }
    void draw_all(std::mt19937& random) {
        for (std::size_t i = 0; i < count_; ++i)
            set(i, draw<T>(random));
    }

  private:
    std::vector<std::byte> bytes_;
    std::size_t count_;
    std::byte* begin_;
};

template <class T>
void expect_formula(AtomicKind kind, unsigned op, AtomicApply apply, std::size_t offset) {
    constexpr std::size_t kCount = 300;
    std::mt19937 random(op * 7 + 1);
    Elements<T> target(kCount, offset);
    Elements<T> operand(kCount, offset);
    Elements<T> compare(kCount, offset);
    Elements<T> result(kCount, offset);
    target.draw_all(random);
    operand.draw_all(random);
    compare.draw_all(random);
    // Comparisons that hold by equality are rare otherwise.
    for (std::size_t i = 0; i < kCount; i += 3)
        compare.set(i, target.get(i));
    Elements<T> before(kCount, 0);
    for (std::size_t i = 0; i < kCount; ++i)
        before.set(i, target.get(i));
    const T guard = draw<T>(random);
    target.set(kCount, guard);
    apply({target.data(), op == FI_ATOMIC_READ ? nullptr : operand.data(),
           kind == AtomicKind::kCompare ? compare.data() : nullptr,
           kind == AtomicKind::kWrite ? nullptr : result.data(), kCount});
    for (std::size_t i = 0; i < kCount; ++i) {
        const auto after = expected(op, before.get(i), operand.get(i), compare.get(i));
        ASSERT_TRUE(after.has_value());
        ASSERT_TRUE(same(target.get(i), *after)) << "element " << i;
        if (kind != AtomicKind::kWrite) {
            ASSERT_TRUE(same(result.get(i), before.get(i))) << "result " << i;
        }
    }
    EXPECT_TRUE(same(target.get(kCount), guard));
}

TYPED_TEST(FiAtomicKernel, does_what_the_manual_page_says) {
    using T = typename TypeParam::Type;
    EXPECT_EQ(fi::atomic_bytes_of(TypeParam::number), sizeof(T));
    for (const AtomicKind kind : {AtomicKind::kWrite, AtomicKind::kFetch, AtomicKind::kCompare}) {
        for (unsigned op = 0; op < kOps; ++op) {
            SCOPED_TRACE(testing::Message() << "operation " << op << ", kind " << unsigned(kind));
            const AtomicApply apply = find_atomic(kind, op, TypeParam::number);
            const bool is_there = has(kind, op) && expected(op, T{}, T{}, T{}).has_value();
            ASSERT_EQ(apply != nullptr, is_there);
            if (apply == nullptr)
                continue;
            for (const std::size_t offset : {std::size_t{0}, std::size_t{1}})
                ASSERT_NO_FATAL_FAILURE(expect_formula<T>(kind, op, apply, offset));
        }
    }
}

TYPED_TEST(FiAtomicKernel, threads_lose_nothing) {
    using T = typename TypeParam::Type;
    constexpr unsigned kRounds = 60;
    for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
        Elements<T> target(1, offset);
        const auto add = find_atomic(AtomicKind::kFetch, FI_SUM, TypeParam::number);
        const auto run = [&] {
            const T one{1};
            for (unsigned i = 0; i < kRounds; ++i) {
                T before;
                add({target.data(), reinterpret_cast<const std::byte*>(&one), nullptr,
                     reinterpret_cast<std::byte*>(&before), 1});
                std::this_thread::yield();
            }
        };
        std::thread other(run);
        run();
        other.join();
        EXPECT_TRUE(same(target.get(0), T(2 * kRounds)));
    }
}

TEST(FiAtomicMixture, numbers_of_the_processor_are_its_own) {
    constexpr std::uint64_t kRounds = 20000;
    std::uint64_t number = 0;
    const auto add = find_atomic(AtomicKind::kWrite, FI_SUM, FI_UINT64);
    std::thread other([&] {
        for (std::uint64_t i = 0; i < kRounds; ++i)
            std::atomic_ref(number).fetch_add(1, std::memory_order_relaxed);  // a counter
    });
    const std::uint64_t two = 2;
    for (std::uint64_t i = 0; i < kRounds; ++i)
        add({reinterpret_cast<std::byte*>(&number), reinterpret_cast<const std::byte*>(&two),
             nullptr, nullptr, 1});
    other.join();
    EXPECT_EQ(number, 3 * kRounds);
}

TEST(FiAtomicTable, knows_no_other_numbers) {
    for (const AtomicKind kind : {AtomicKind::kWrite, AtomicKind::kFetch, AtomicKind::kCompare}) {
        EXPECT_EQ(find_atomic(kind, kOps, FI_INT32), nullptr);
        EXPECT_EQ(find_atomic(kind, FI_NOOP, FI_INT32), nullptr);
        EXPECT_EQ(find_atomic(kind, UINT32_MAX, UINT32_MAX), nullptr);
        EXPECT_EQ(find_atomic(kind, FI_SUM, FI_UINT128 + 1), nullptr);
        EXPECT_EQ(find_atomic(kind, FI_SUM, FI_VOID), nullptr);
    }
    EXPECT_EQ(fi::atomic_bytes_of(FI_UINT128 + 1), 0U);
    EXPECT_EQ(fi::atomic_bytes_of(FI_VOID), 0U);
}

}  // namespace
}  // namespace tagwire::fi_test
