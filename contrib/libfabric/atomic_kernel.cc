// SPDX-License-Identifier: BSD-3-Clause
#include "atomic_kernel.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <complex>
#include <concepts>
#include <cstring>
#include <functional>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>

namespace tagwire::fi {

namespace {

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 Uint128;

template <class T>
concept Integer = std::integral<T> || std::same_as<T, Int128> || std::same_as<T, Uint128>;
template <class T>
concept Real = Integer<T> || std::floating_point<T>;

// ---- Operations. after() answers the new number; there is none for types without the operation.

/// The type to calculate in: overflow is defined there.
template <class T>
struct Wide {
    using Type = T;
};
template <Integer T>
struct Wide<T> {
    using Type =
        std::conditional_t<(sizeof(T) > 8), Uint128,
                           std::conditional_t<(sizeof(T) > 4), std::uint64_t, std::uint32_t>>;
};

template <class Calculate>
struct Calculation {
    template <class T>
    static T after(T number, T operand, T) {
        using Type = typename Wide<T>::Type;
        return static_cast<T>(Calculate{}(static_cast<Type>(number), static_cast<Type>(operand)));
    }
};
template <class Combine>
struct Bitwise {
    template <Integer T>
    static T after(T number, T operand, T) {
        return static_cast<T>(Combine{}(number, operand));
    }
};
template <class Combine>
struct Logical {
    template <class T>
    static T after(T number, T operand, T) {
        return Combine{}(number != T{}, operand != T{}) ? T{1} : T{};
    }
};
/// The operand, if it is so with the number.
template <class Compare>
struct Extreme {
    template <Real T>
    static T after(T number, T operand, T) {
        return Compare{}(operand, number) ? operand : number;
    }
};
/// The operand, if what the program compares with is so with the number.
template <class Compare>
struct Swap {
    template <class T>
    static T after(T number, T operand, T compare) requires requires {
        Compare{}(compare, number);
    }
    { return Compare{}(compare, number) ? operand : number; }
};
struct MaskedSwap {
    template <Integer T>
    static T after(T number, T operand, T mask) {
        return static_cast<T>((operand & mask) | (number & ~mask));
    }
};
struct Read {
    template <class T>
    static T after(T number, T, T) {
        return number;
    }
};
struct Write {
    template <class T>
    static T after(T, T operand, T) {
        return operand;
    }
};

constexpr unsigned kWrites = 1 << unsigned(AtomicKind::kWrite);
constexpr unsigned kFetches = 1 << unsigned(AtomicKind::kFetch);
constexpr unsigned kCompares = 1 << unsigned(AtomicKind::kCompare);

/// An operation, under its number, and the calls that have it.
template <unsigned kNumber, class Change, unsigned kKindMask>
struct Op {
    static constexpr unsigned number = kNumber;
    static constexpr unsigned kinds = kKindMask;
    using After = Change;
};
constexpr unsigned kDifference = FI_MSWAP + 1;  ///< FI_DIFF, which later headers have.
using Ops = std::tuple<
    Op<FI_MIN, Extreme<std::less<>>, kWrites | kFetches>,
    Op<FI_MAX, Extreme<std::greater<>>, kWrites | kFetches>,
    Op<FI_SUM, Calculation<std::plus<>>, kWrites | kFetches>,
    Op<FI_PROD, Calculation<std::multiplies<>>, kWrites | kFetches>,
    Op<FI_LOR, Logical<std::logical_or<>>, kWrites | kFetches>,
    Op<FI_LAND, Logical<std::logical_and<>>, kWrites | kFetches>,
    Op<FI_BOR, Bitwise<std::bit_or<>>, kWrites | kFetches>,
    Op<FI_BAND, Bitwise<std::bit_and<>>, kWrites | kFetches>,
    Op<FI_LXOR, Logical<std::not_equal_to<>>, kWrites | kFetches>,
    Op<FI_BXOR, Bitwise<std::bit_xor<>>, kWrites | kFetches>, Op<FI_ATOMIC_READ, Read, kFetches>,
    Op<FI_ATOMIC_WRITE, Write, kWrites | kFetches>, Op<FI_CSWAP, Swap<std::equal_to<>>, kCompares>,
    Op<FI_CSWAP_NE, Swap<std::not_equal_to<>>, kCompares>,
    Op<FI_CSWAP_LE, Swap<std::less_equal<>>, kCompares>,
    Op<FI_CSWAP_LT, Swap<std::less<>>, kCompares>,
    Op<FI_CSWAP_GE, Swap<std::greater_equal<>>, kCompares>,
    Op<FI_CSWAP_GT, Swap<std::greater<>>, kCompares>, Op<FI_MSWAP, MaskedSwap, kCompares>,
    Op<kDifference, Calculation<std::minus<>>, kWrites | kFetches>>;

// ---- Datatypes

template <unsigned kNumber, class Element>
struct Datatype {
    static constexpr unsigned number = kNumber;
    using Type = Element;
};
using Datatypes = std::tuple<
    Datatype<FI_INT8, std::int8_t>, Datatype<FI_UINT8, std::uint8_t>,
    Datatype<FI_INT16, std::int16_t>, Datatype<FI_UINT16, std::uint16_t>,
    Datatype<FI_INT32, std::int32_t>, Datatype<FI_UINT32, std::uint32_t>,
    Datatype<FI_INT64, std::int64_t>, Datatype<FI_UINT64, std::uint64_t>, Datatype<FI_FLOAT, float>,
    Datatype<FI_DOUBLE, double>, Datatype<FI_FLOAT_COMPLEX, std::complex<float>>,
    Datatype<FI_DOUBLE_COMPLEX, std::complex<double>>, Datatype<FI_LONG_DOUBLE, long double>,
    Datatype<FI_LONG_DOUBLE_COMPLEX, std::complex<long double>>, Datatype<FI_INT128, Int128>,
    Datatype<FI_UINT128, Uint128>>;

// ---- One operation on one number

template <std::size_t kBytes>
struct WordOf;
template <>
struct WordOf<1> {
    using Type = std::uint8_t;
};
template <>
struct WordOf<2> {
    using Type = std::uint16_t;
};
template <>
struct WordOf<4> {
    using Type = std::uint32_t;
};
template <>
struct WordOf<8> {
    using Type = std::uint64_t;
};

bool is_aligned(const void* at, std::size_t bytes) {
    return (reinterpret_cast<std::uintptr_t>(at) & (bytes - 1)) == 0;
}

/// One and the same for all operations on the element that begins there.
std::mutex& lock_of(const void* at) {
    static constexpr std::size_t kLocks = 64;
    static std::array<std::mutex, kLocks> locks;
    return locks[(reinterpret_cast<std::uintptr_t>(at) >> 3) % kLocks];
}

template <class T>
T load(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

/// `at` is aligned to the length of the number.
template <class Change, class T>
T change_by_processor(std::byte* at, const T& operand, const T& compare) {
    using Word = typename WordOf<sizeof(T)>::Type;
    const std::atomic_ref<Word> number(*reinterpret_cast<Word*>(at));
    if constexpr (std::same_as<Change, Read>) {
        // Memory that is only read may be mapped for reading only.
        // SYNC fi_atomic: as below.
        return std::bit_cast<T>(number.load(std::memory_order_acquire));
    } else {
        Word before = number.load(std::memory_order_relaxed);  // Relaxed: a guess
        Word after;
        do {
            after = std::bit_cast<Word>(Change::after(std::bit_cast<T>(before), operand, compare));
            // SYNC fi_atomic: whoever reads a number sees what its writer had done before.
        } while (!number.compare_exchange_weak(before, after, std::memory_order_acq_rel));
        return std::bit_cast<T>(before);
    }
}

template <class Change, class T>
T change_under_lock(std::byte* at, const T& operand, const T& compare) {
    const std::lock_guard guard(lock_of(at));
    const T before = load<T>(at);
    if constexpr (!std::same_as<Change, Read>) {
        const T after = Change::after(before, operand, compare);
        std::memcpy(at, &after, sizeof after);
    }
    return before;
}

template <class Change, class T>
T change(std::byte* at, const T& operand, const T& compare) {
    if constexpr (sizeof(T) <= sizeof(std::uint64_t)) {
        if (is_aligned(at, sizeof(T))) [[likely]]
            return change_by_processor<Change>(at, operand, compare);
    }
    return change_under_lock<Change>(at, operand, compare);
}

template <class Change, class T>
void apply(const AtomicElements& elements) {
    for (std::size_t at = 0; at < elements.count * sizeof(T); at += sizeof(T)) {
        const T operand = elements.operand == nullptr ? T{} : load<T>(elements.operand + at);
        const T compare = elements.compare == nullptr ? T{} : load<T>(elements.compare + at);
        const T before = change<Change>(elements.target + at, operand, compare);
        if (elements.result != nullptr)
            std::memcpy(elements.result + at, &before, sizeof before);
    }
}

// ---- The tables

constexpr std::size_t kOps = std::tuple_size_v<Ops>;
constexpr std::size_t kDatatypes = std::tuple_size_v<Datatypes>;

struct Row {
    unsigned kinds = 0;
    std::array<AtomicApply, kDatatypes> by_datatype{};
};

template <class Change, class T>
constexpr AtomicApply entry() {
    if constexpr (requires(T number) { Change::after(number, number, number); })
        return apply<Change, T>;
    else
        return nullptr;
}

template <class One, std::size_t... kTypes>
constexpr Row row(std::index_sequence<kTypes...>) {
    return {
        One::kinds,
        {entry<typename One::After, typename std::tuple_element_t<kTypes, Datatypes>::Type>()...}};
}

template <std::size_t... kNumbers>
constexpr std::array<Row, kOps> all_rows(std::index_sequence<kNumbers...>) {
    static_assert(((std::tuple_element_t<kNumbers, Ops>::number == kNumbers) && ...));
    return {row<std::tuple_element_t<kNumbers, Ops>>(std::make_index_sequence<kDatatypes>())...};
}

template <std::size_t... kNumbers>
constexpr std::array<std::size_t, kDatatypes> all_lengths(std::index_sequence<kNumbers...>) {
    static_assert(((std::tuple_element_t<kNumbers, Datatypes>::number == kNumbers) && ...));
    return {sizeof(typename std::tuple_element_t<kNumbers, Datatypes>::Type)...};
}

constexpr std::array<Row, kOps> kRows = all_rows(std::make_index_sequence<kOps>());
constexpr std::array<std::size_t, kDatatypes> kLengths =
    all_lengths(std::make_index_sequence<kDatatypes>());

}  // namespace

AtomicApply find_atomic(AtomicKind kind, unsigned op, unsigned datatype) {
    if (op >= kOps || datatype >= kDatatypes || (kRows[op].kinds >> unsigned(kind) & 1) == 0)
        return nullptr;
    return kRows[op].by_datatype[datatype];
}

std::size_t atomic_bytes_of(unsigned datatype) {
    return datatype < kDatatypes ? kLengths[datatype] : 0;
}

}  // namespace tagwire::fi
