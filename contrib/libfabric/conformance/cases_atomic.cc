// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations: fi_atomic(3).
#include <rdma/fi_atomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <type_traits>
#include <vector>

#include "cases.hpp"
#include "net.hpp"

namespace conformance {
namespace {

constexpr int kMemoryModes =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;

Want with_atomics(Want want) {
    want.caps |= FI_ATOMIC;
    want.mr_mode = kMemoryModes;
    return want;
}

struct Key {
    std::uint64_t key;
    std::uint64_t base;
};

// Makes memory of an end known to its peers.
Key open_region(Net& net, std::size_t end, Bytes& memory, Owned<fid_mr>& region) {
    fid_mr* made = nullptr;
    done("fi_mr_reg", fi_mr_reg(net.domain(), memory.data(), memory.size(),
                                FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 42, 0, &made, nullptr));
    region.reset(made);
    const int mode = net.info().domain_attr->mr_mode;
    if ((mode & FI_MR_ENDPOINT) != 0) {
        done("fi_mr_bind", fi_mr_bind(made, &net.ep(end)->fid, 0));
        done("fi_mr_enable", fi_mr_enable(made));
    }
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    return {fi_mr_key(made), (mode & FI_MR_VIRT_ADDR) != 0 ? address : 0};
}

// Two ends, and memory of the second that the first one works on.
class Atomics {
  public:
    explicit Atomics(const Want& want = {}) : net(with_atomics(want)), memory(8192) {
        net.settle(0, 1);
        const Key known = open_region(net, 1, memory, region);
        key = known.key;
        base = known.base;
    }

    template <class T>
    T at(std::size_t i) const {
        T value;
        std::memcpy(&value, memory.data() + i * sizeof(T), sizeof(T));
        return value;
    }
    template <class T>
    void set(std::size_t i, T value) {
        std::memcpy(memory.data() + i * sizeof(T), &value, sizeof(T));
    }

    void write(const void* operands, std::size_t count, fi_datatype type, fi_op op,
               std::size_t n = 1) {
        net.post("fi_atomic", [&] {
            return fi_atomic(net.ep(0), operands, count, nullptr, net.address(1), base, key, type,
                             op, net.context(n));
        });
    }
    void fetch(const void* operands, void* results, std::size_t count, fi_datatype type, fi_op op,
               std::size_t n = 1) {
        net.post("fi_fetch_atomic", [&] {
            return fi_fetch_atomic(net.ep(0), operands, count, nullptr, results, nullptr,
                                   net.address(1), base, key, type, op, net.context(n));
        });
    }
    void compare(const void* operands, const void* compares, void* results, std::size_t count,
                 fi_datatype type, fi_op op, std::size_t n = 1) {
        net.post("fi_compare_atomic", [&] {
            return fi_compare_atomic(net.ep(0), operands, count, nullptr, compares, nullptr,
                                     results, nullptr, net.address(1), base, key, type, op,
                                     net.context(n));
        });
    }

    Net net;
    Bytes memory;
    Owned<fid_mr> region;
    std::uint64_t key = 0;
    std::uint64_t base = 0;
};

void skip_unless(int valid) {
    if (valid != 0)
        throw Unsupported("the provider does not have this operation");
}

void sum_of_an_array() {
    Atomics atomics;
    const std::array<std::uint64_t, 3> operands{10, 20, 30};
    for (std::size_t i = 0; i < 4; ++i)
        atomics.set<std::uint64_t>(i, i);
    atomics.write(operands.data(), 3, FI_UINT64, FI_SUM);
    atomics.net.sent(0);
    atomics.net.until("the sums", [&] { return atomics.at<std::uint64_t>(2) == 32; });
    same("1st", 10U, atomics.at<std::uint64_t>(0));
    same("2nd", 21U, atomics.at<std::uint64_t>(1));
    same("behind", 3U, atomics.at<std::uint64_t>(3));
}

// The formulas of the manual page.
template <class T>
T formula(fi_op op, T addr, T buf) {
    switch (op) {
        case FI_MIN:
            return buf < addr ? buf : addr;
        case FI_MAX:
            return buf > addr ? buf : addr;
        case FI_SUM:
            return static_cast<T>(addr + buf);
        case FI_PROD:
            return static_cast<T>(addr * buf);
        case FI_LOR:
            return addr != 0 || buf != 0;
        case FI_LAND:
            return addr != 0 && buf != 0;
        case FI_LXOR:
            return (addr != 0) != (buf != 0);
        case FI_ATOMIC_READ:
            return addr;
        default:
            break;
    }
    if constexpr (std::is_integral_v<T>) {
        if (op == FI_BOR)
            return static_cast<T>(addr | buf);
        if (op == FI_BAND)
            return static_cast<T>(addr & buf);
        if (op == FI_BXOR)
            return static_cast<T>(addr ^ buf);
    }
    return buf;
}

template <class T>
void fetches_of(Atomics& atomics, fi_datatype type) {
    const std::array<T, 4> before{T{5}, T{0}, T{0}, T{100}};
    const std::array<T, 4> operands{T{3}, T{0}, T{7}, T{1}};
    for (int one = FI_MIN; one <= FI_ATOMIC_WRITE; ++one) {
        const auto op = static_cast<fi_op>(one);
        std::size_t most = 0;
        if (fi_fetch_atomicvalid(atomics.net.ep(0), type, op, &most) != 0 || most < 4)
            continue;
        for (std::size_t i = 0; i < 4; ++i)
            atomics.set<T>(i, before[i]);
        std::array<T, 4> results{};
        atomics.fetch(operands.data(), results.data(), 4, type, op);
        atomics.net.sent(0);
        for (std::size_t i = 0; i < 4; ++i) {
            same("result", before[i], results[i]);
            same("memory", formula(op, before[i], operands[i]), atomics.at<T>(i));
        }
    }
}

void fetches_of_every_datatype() {
    Atomics atomics;
    fetches_of<std::int8_t>(atomics, FI_INT8);
    fetches_of<std::uint8_t>(atomics, FI_UINT8);
    fetches_of<std::int16_t>(atomics, FI_INT16);
    fetches_of<std::uint16_t>(atomics, FI_UINT16);
    fetches_of<std::int32_t>(atomics, FI_INT32);
    fetches_of<std::uint32_t>(atomics, FI_UINT32);
    fetches_of<std::int64_t>(atomics, FI_INT64);
    fetches_of<std::uint64_t>(atomics, FI_UINT64);
    fetches_of<float>(atomics, FI_FLOAT);
    fetches_of<double>(atomics, FI_DOUBLE);
    fetches_of<long double>(atomics, FI_LONG_DOUBLE);
}

void compares_swap_where_it_holds() {
    Atomics atomics;
    struct Row {
        fi_op op;
        std::array<bool, 3> swaps;  // for numbers below, equal to and above what is compared with
    };
    constexpr std::array<Row, 6> kRows{{{FI_CSWAP, {false, true, false}},
                                        {FI_CSWAP_NE, {true, false, true}},
                                        {FI_CSWAP_LE, {false, true, true}},
                                        {FI_CSWAP_LT, {false, false, true}},
                                        {FI_CSWAP_GE, {true, true, false}},
                                        {FI_CSWAP_GT, {true, false, false}}}};
    const std::array<std::int64_t, 3> operands{-7, -8, -9};
    const std::array<std::int64_t, 3> compares{5, 5, 5};
    for (const Row& row : kRows) {
        std::size_t most = 0;
        if (fi_compare_atomicvalid(atomics.net.ep(0), FI_INT64, row.op, &most) != 0 || most < 3)
            continue;
        const std::array<std::int64_t, 3> before{4, 5, 6};
        for (std::size_t i = 0; i < 3; ++i)
            atomics.set<std::int64_t>(i, before[i]);
        std::array<std::int64_t, 3> results{};
        atomics.compare(operands.data(), compares.data(), results.data(), 3, FI_INT64, row.op);
        atomics.net.sent(0);
        for (std::size_t i = 0; i < 3; ++i) {
            same("result", before[i], results[i]);
            same("memory", row.swaps[i] ? operands[i] : before[i], atomics.at<std::int64_t>(i));
        }
    }
}

void masked_swap() {
    Atomics atomics;
    std::size_t most = 0;
    skip_unless(fi_compare_atomicvalid(atomics.net.ep(0), FI_UINT32, FI_MSWAP, &most));
    atomics.set<std::uint32_t>(0, 0x12345678);
    const std::uint32_t operand = 0xaaaaaaaa;
    const std::uint32_t mask = 0xff00ff00;
    std::uint32_t result = 0;
    atomics.compare(&operand, &mask, &result, 1, FI_UINT32, FI_MSWAP);
    atomics.net.sent(0);
    same("result", 0x12345678U, result);
    same("memory", 0xaa34aa78U, atomics.at<std::uint32_t>(0));
}

void greatest_count() {
    Atomics atomics;
    std::size_t most = 0;
    skip_unless(fi_fetch_atomicvalid(atomics.net.ep(0), FI_UINT64, FI_SUM, &most));
    holds("the greatest count is at least 1", most >= 1);
    most = std::min(most, atomics.memory.size() / sizeof(std::uint64_t));
    const std::vector<std::uint64_t> operands(most, 3);
    std::vector<std::uint64_t> results(most, 99);
    atomics.fetch(operands.data(), results.data(), most, FI_UINT64, FI_SUM);
    atomics.net.sent(0);
    for (std::size_t i = 0; i < most; ++i) {
        same("result", 0U, results[i]);
        same("memory", 3U, atomics.at<std::uint64_t>(i));
    }
}

void too_great_count() {
    Atomics atomics;
    std::size_t most = 0;
    skip_unless(fi_atomicvalid(atomics.net.ep(0), FI_UINT64, FI_SUM, &most));
    const std::vector<std::uint64_t> operands(most + 1, 3);
    same("a count above the greatest", -FI_EMSGSIZE,
         fi_atomic(atomics.net.ep(0), operands.data(), operands.size(), nullptr,
                   atomics.net.address(1), atomics.base, atomics.key, FI_UINT64, FI_SUM, nullptr));
}

void lists_on_both_sides() {
    Atomics atomics;
    if (atomics.net.info().tx_attr->iov_limit < 2 || atomics.net.info().tx_attr->rma_iov_limit < 2)
        throw Unsupported("the provider has no lists of two elements");
    std::array<std::uint32_t, 4> operands{1, 2, 3, 4};
    const std::array<fi_ioc, 2> list{{{&operands[2], 2}, {&operands[0], 1}}};
    const std::array<fi_rma_ioc, 2> targets{
        {{atomics.base + 8, 1, atomics.key}, {atomics.base, 2, atomics.key}}};
    fi_msg_atomic call{};
    call.msg_iov = list.data();
    call.iov_count = list.size();
    call.addr = atomics.net.address(1);
    call.rma_iov = targets.data();
    call.rma_iov_count = targets.size();
    call.datatype = FI_UINT32;
    call.op = FI_SUM;
    call.context = atomics.net.context(1);
    atomics.net.post("fi_atomicmsg", [&] {
        return fi_atomicmsg(atomics.net.ep(0), &call, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    });
    atomics.net.sent(0);
    same("1st", 4U, atomics.at<std::uint32_t>(0));
    same("2nd", 1U, atomics.at<std::uint32_t>(1));
    same("3rd", 3U, atomics.at<std::uint32_t>(2));
}

void entries_have_flags() {
    Atomics atomics;
    const std::uint64_t one = 1;
    std::uint64_t result = 0;
    atomics.write(&one, 1, FI_UINT64, FI_SUM, 3);
    Entry entry = atomics.net.sent(0);
    same("context", atomics.net.context(3), entry.op_context);
    holds("flags have FI_ATOMIC and FI_WRITE",
          (entry.flags & (FI_ATOMIC | FI_WRITE)) == (FI_ATOMIC | FI_WRITE));
    atomics.fetch(&one, &result, 1, FI_UINT64, FI_SUM, 4);
    entry = atomics.net.sent(0);
    same("context", atomics.net.context(4), entry.op_context);
    holds("flags have FI_ATOMIC and FI_READ",
          (entry.flags & (FI_ATOMIC | FI_READ)) == (FI_ATOMIC | FI_READ));
}

void inject_has_no_entry() {
    Atomics atomics;
    std::uint64_t operand = 5;
    atomics.net.post("fi_inject_atomic", [&] {
        return fi_inject_atomic(atomics.net.ep(0), &operand, 1, atomics.net.address(1),
                                atomics.base, atomics.key, FI_UINT64, FI_SUM);
    });
    operand = 99;
    atomics.net.until("the sum", [&] { return atomics.at<std::uint64_t>(0) == 5; });
    atomics.net.quiet("an injected operation", atomics.net.end(0).sent);
}

void fence_sees_what_was_before() {
    Want want;
    want.caps |= FI_FENCE;
    Atomics atomics(want);
    const std::uint64_t one = 1;
    std::uint64_t result = 0;
    for (int i = 0; i < 20; ++i)
        atomics.write(&one, 1, FI_UINT64, FI_SUM);
    fi_ioc results{&result, 1};
    const fi_rma_ioc target{atomics.base, 1, atomics.key};
    fi_msg_atomic call{};
    call.addr = atomics.net.address(1);
    call.rma_iov = &target;
    call.rma_iov_count = 1;
    call.datatype = FI_UINT64;
    call.op = FI_ATOMIC_READ;
    call.context = atomics.net.context(2);
    atomics.net.post("fi_fetch_atomicmsg", [&] {
        return fi_fetch_atomicmsg(atomics.net.ep(0), &call, &results, nullptr, 1,
                                  FI_FENCE | FI_COMPLETION);
    });
    for (int i = 0; i < 21; ++i)
        atomics.net.sent(0);
    same("result", 20U, result);
}

void unknown_key_is_an_error() {
    Atomics atomics;
    const std::uint64_t one = 1;
    ++atomics.key;
    atomics.write(&one, 1, FI_UINT64, FI_SUM, 5);
    const Entry entry = atomics.net.next_sent(0);
    holds("the entry is one of an error", entry.err != 0);
    same("context", atomics.net.context(5), entry.op_context);
    same("memory", 0U, atomics.at<std::uint64_t>(0));
}

void range_is_checked() {
    Atomics atomics;
    const std::uint64_t one = 1;
    atomics.base += atomics.memory.size();
    atomics.write(&one, 1, FI_UINT64, FI_SUM, 5);
    holds("the entry is one of an error", atomics.net.next_sent(0).err != 0);
}

void impossible_operations_are_refused() {
    Atomics atomics;
    fid_ep* const ep = atomics.net.ep(0);
    std::size_t count = 0;
    same("bits of a double", -FI_EOPNOTSUPP, fi_atomicvalid(ep, FI_DOUBLE, FI_BOR, &count));
    same("an order of complex numbers", -FI_EOPNOTSUPP,
         fi_atomicvalid(ep, FI_FLOAT_COMPLEX, FI_MIN, &count));
    same("fi_atomic() with FI_ATOMIC_READ", -FI_EOPNOTSUPP,
         fi_atomicvalid(ep, FI_UINT64, FI_ATOMIC_READ, &count));
    same("fi_fetch_atomic() with FI_CSWAP", -FI_EOPNOTSUPP,
         fi_fetch_atomicvalid(ep, FI_UINT64, FI_CSWAP, &count));
    same("fi_compare_atomic() with FI_SUM", -FI_EOPNOTSUPP,
         fi_compare_atomicvalid(ep, FI_UINT64, FI_SUM, &count));
}

void queries_agree() {
    Atomics atomics;
    constexpr std::array<std::uint64_t, 3> kKinds{0, FI_FETCH_ATOMIC, FI_COMPARE_ATOMIC};
    constexpr std::array kValid{fi_atomicvalid, fi_fetch_atomicvalid, fi_compare_atomicvalid};
    for (int type = FI_INT8; type <= FI_LONG_DOUBLE_COMPLEX; ++type) {
        for (int op = FI_MIN; op <= FI_MSWAP; ++op) {
            for (std::size_t kind = 0; kind < 3; ++kind) {
                fi_atomic_attr attr{};
                std::size_t count = 0;
                const int query =
                    fi_query_atomic(atomics.net.domain(), static_cast<fi_datatype>(type),
                                    static_cast<fi_op>(op), &attr, kKinds[kind]);
                const int valid = kValid[kind](atomics.net.ep(0), static_cast<fi_datatype>(type),
                                               static_cast<fi_op>(op), &count);
                same("whether there is the operation", valid == 0, query == 0);
                if (valid == 0)
                    same("count", count, attr.count);
            }
        }
    }
}

void both_kinds_are_no_kind() {
    Atomics atomics;
    fi_atomic_attr attr{};
    holds("FI_FETCH_ATOMIC with FI_COMPARE_ATOMIC is refused",
          fi_query_atomic(atomics.net.domain(), FI_UINT64, FI_SUM, &attr,
                          FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC) != 0);
}

template <class T>
void tell(int fd, const T& value) {
    holds("the other process is told", write(fd, &value, sizeof value) == sizeof value);
}

template <class T>
T hear(int fd) {
    T value;
    holds("the other process tells", read(fd, &value, sizeof value) == sizeof value);
    return value;
}

using NameRoom = std::array<std::uint8_t, 256>;

// Address 0 of each process is its own, 1 the other's.
void get_to_know(Net& net, int in, int out) {
    const Bytes own = net.name_of(0);
    NameRoom room{};
    std::copy(own.begin(), own.end(), room.begin());
    tell(out, own.size());
    tell(out, room);
    const auto length = hear<std::size_t>(in);
    room = hear<NameRoom>(in);
    net.add_address(Bytes(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(length)));
}

// Carries out the first operation, and no other.
void serve_one(int in, int out) {
    Net net(with_atomics({.ends = 1}));
    Bytes memory(8);
    Owned<fid_mr> region;
    get_to_know(net, in, out);
    tell(out, open_region(net, 0, memory, region));
    net.until("the first operation", [&] { return memory[0] != 0; });
    for (int i = 0; i < 2000; ++i)
        net.progress();  // the other process may need this one's progress for its entry
    tell(out, true);
    pause();
}

void peer_that_dies() {
    constexpr std::size_t kCount = 10;
    std::array<int, 2> down{};
    std::array<int, 2> up{};
    holds("there are pipes", pipe(down.data()) == 0 && pipe(up.data()) == 0);
    const pid_t other = fork();  // before the provider has done anything
    if (other == 0) {
        try {
            serve_one(down[0], up[1]);
        } catch (const std::exception&) {
            _exit(1);
        }
    }
    close(up[1]);
    Net net(with_atomics({.ends = 1}));
    get_to_know(net, up[0], down[1]);
    const Key known = hear<Key>(up[0]);
    const std::uint64_t one = 1;
    std::array<std::uint64_t, kCount> results{};
    const auto fetch = [&](std::size_t n) {
        net.post("fi_fetch_atomic", [&] {
            return fi_fetch_atomic(net.ep(0), &one, 1, nullptr, &results.at(n), nullptr,
                                   net.address(1), known.base, known.key, FI_UINT64, FI_SUM,
                                   net.context(n));
        });
    };
    fetch(0);
    net.sent(0);
    hear<bool>(up[0]);
    for (std::size_t n = 0; n < kCount; ++n)
        fetch(n);
    kill(other, SIGKILL);
    waitpid(other, nullptr, 0);
    std::array<unsigned, kCount> ends{};
    for (std::size_t i = 0; i < kCount; ++i) {
        const Entry entry = net.next_sent(0);
        for (std::size_t n = 0; n < kCount; ++n)
            ends.at(n) += entry.op_context == net.context(n) ? 1 : 0;
        holds("the entry is one of an error", entry.err != 0);
    }
    for (const unsigned count : ends)
        same("entries of an operation", 1U, count);
    net.quiet("an operation that has ended", net.end(0).sent);
}

constexpr std::array kAtomicCases{
    Case{"atomic_sum", "atomic operations", "W93", "fi_atomic Base Atomic Functions",
         sum_of_an_array},
    Case{"atomic_fetch", "atomic operations", "W93", "fi_atomic Atomic Operations",
         fetches_of_every_datatype},
    Case{"atomic_compare", "atomic operations", "W93", "fi_atomic Compare-Atomic Functions",
         compares_swap_where_it_holds},
    Case{"atomic_mswap", "atomic operations", "W93", "fi_atomic FI_MSWAP", masked_swap},
    Case{"atomic_count", "atomic operations", "", "fi_atomic NOTES", greatest_count},
    Case{"atomic_too_many", "atomic operations", "", "fi_atomic ERRORS", too_great_count},
    Case{"atomic_lists", "atomic operations", "", "fi_atomic Base Atomic Functions",
         lists_on_both_sides},
    Case{"atomic_entries", "atomic operations", "", "fi_cq Completion Event Semantics",
         entries_have_flags},
    Case{"atomic_inject", "atomic operations", "", "fi_atomic Base Atomic Functions",
         inject_has_no_entry},
    Case{"atomic_fence", "atomic operations", "W96", "fi_atomic FI_FENCE",
         fence_sees_what_was_before},
    Case{"atomic_key", "atomic operations", "W97", "fi_mr fi_mr_reg", unknown_key_is_an_error},
    Case{"atomic_range", "atomic operations", "W97", "fi_mr fi_mr_reg", range_is_checked},
    Case{"atomic_invalid", "atomic operations", "", "fi_atomic Atomic Valid Functions",
         impossible_operations_are_refused},
    Case{"atomic_query", "atomic operations", "", "fi_atomic Query Atomic Attributes",
         queries_agree},
    Case{"atomic_peer_dies", "atomic operations", "W100", "fi_cq fi_cq_readerr", peer_that_dies},
    Case{"atomic_query_both", "atomic operations", "", "fi_atomic Query Atomic Attributes",
         both_kinds_are_no_kind},
};

}  // namespace

std::span<const Case> atomic_cases() {
    return kAtomicCases;
}

}  // namespace conformance
