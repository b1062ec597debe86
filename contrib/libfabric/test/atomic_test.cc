// SPDX-License-Identifier: BSD-3-Clause
// The calls of fi_atomic(3). The formulas of all operations are in atomic_kernel_test.cc.
#include <algorithm>
#include <atomic>
#include <complex>
#include <numeric>
#include <thread>
#include <vector>

#include "atomic_pair.hpp"

namespace tagwire::fi_test {

namespace {

class FiAtomic : public AtomicPair {};

TEST_F(FiAtomic, calls_without_results_change_the_memory) {
    open_with();
    std::array<std::uint64_t, 4> memory = {1, 2, 3, 4};
    add_region(memory);
    const std::array<std::uint64_t, 2> operands = {10, 20};
    retry([&] {
        return fi_atomic(a.ep.get(), operands.data(), 2, nullptr, to_b, 8, kKey, FI_UINT64, FI_SUM,
                         &contexts_[0]);
    });
    expect_entry(FI_WRITE, &contexts_[0]);
    EXPECT_EQ(memory, (std::array<std::uint64_t, 4>{1, 12, 23, 4}));

    std::uint64_t parts[2] = {5, 6};
    const fi_ioc list[2] = {{&parts[1], 1}, {&parts[0], 1}};
    retry([&] {
        return fi_atomicv(a.ep.get(), list, nullptr, 2, to_b, 0, kKey, FI_UINT64, FI_PROD,
                          &contexts_[1]);
    });
    expect_entry(FI_WRITE, &contexts_[1]);
    EXPECT_EQ(memory, (std::array<std::uint64_t, 4>{6, 60, 23, 4}));

    const fi_rma_ioc target = {24, 1, kKey};
    const fi_msg_atomic msg = {.msg_iov = list,
                               .desc = nullptr,
                               .iov_count = 1,
                               .addr = to_b,
                               .rma_iov = &target,
                               .rma_iov_count = 1,
                               .datatype = FI_UINT64,
                               .op = FI_ATOMIC_WRITE,
                               .context = &contexts_[2],
                               .data = 0};
    retry([&] { return fi_atomicmsg(a.ep.get(), &msg, FI_DELIVERY_COMPLETE); });
    expect_entry(FI_WRITE, &contexts_[2]);
    EXPECT_EQ(memory[3], 6U);

    std::uint64_t one = 1;
    retry([&] { return fi_inject_atomic(a.ep.get(), &one, 1, to_b, 0, kKey, FI_UINT64, FI_BXOR); });
    one = 0xffff;
    EXPECT_TRUE(run_until([&] { return std::atomic_ref(memory[0]).load() == 7; }));
    EXPECT_TRUE(is_empty(a.tx));
}

TEST_F(FiAtomic, calls_with_results_tell_what_was_there) {
    open_with();
    std::array<std::int32_t, 4> memory = {1, -2, 3, -4};
    add_region(memory);
    std::array<std::int32_t, 4> results{};
    const std::array<std::int32_t, 4> operands = {0, 0, 0, 0};
    retry([&] {
        return fi_fetch_atomic(a.ep.get(), operands.data(), 4, nullptr, results.data(), nullptr,
                               to_b, 0, kKey, FI_INT32, FI_MIN, &contexts_[0]);
    });
    expect_entry(FI_READ, &contexts_[0]);
    EXPECT_EQ(results, (std::array<std::int32_t, 4>{1, -2, 3, -4}));
    EXPECT_EQ(memory, (std::array<std::int32_t, 4>{0, -2, 0, -4}));

    // Results go to a list of their own form; reading needs no operands.
    results = {};
    fi_ioc list[3] = {{&results[3], 1}, {&results[0], 0}, {&results[0], 3}};
    retry([&] {
        return fi_fetch_atomicv(a.ep.get(), nullptr, nullptr, 0, list, nullptr, 3, to_b, 0, kKey,
                                FI_INT32, FI_ATOMIC_READ, &contexts_[1]);
    });
    expect_entry(FI_READ, &contexts_[1]);
    EXPECT_EQ(results, (std::array<std::int32_t, 4>{-2, 0, -4, 0}));

    const std::int32_t nine = 9;
    const fi_ioc operand = {const_cast<std::int32_t*>(&nine), 1};
    const fi_rma_ioc target = {4, 1, kKey};
    const fi_msg_atomic msg = {.msg_iov = &operand,
                               .desc = nullptr,
                               .iov_count = 1,
                               .addr = to_b,
                               .rma_iov = &target,
                               .rma_iov_count = 1,
                               .datatype = FI_INT32,
                               .op = FI_SUM,
                               .context = &contexts_[2],
                               .data = 0};
    retry([&] { return fi_fetch_atomicmsg(a.ep.get(), &msg, list, nullptr, 1, FI_INJECT); });
    expect_entry(FI_READ, &contexts_[2]);
    EXPECT_EQ(results[3], -2);
    EXPECT_EQ(memory[1], 7);
}

TEST_F(FiAtomic, calls_that_compare_swap_where_it_holds) {
    open_with();
    std::array<double, 3> memory = {1, 2, 3};
    add_region(memory);
    const std::array<double, 3> operands = {10, 20, 30};
    const std::array<double, 3> compares = {1, 0, 3};
    std::array<double, 3> results{};
    retry([&] {
        return fi_compare_atomic(a.ep.get(), operands.data(), 3, nullptr, compares.data(), nullptr,
                                 results.data(), nullptr, to_b, 0, kKey, FI_DOUBLE, FI_CSWAP,
                                 &contexts_[0]);
    });
    expect_entry(FI_READ, &contexts_[0]);
    EXPECT_EQ(results, (std::array<double, 3>{1, 2, 3}));
    EXPECT_EQ(memory, (std::array<double, 3>{10, 2, 30}));

    double parts[3] = {7, 8, 9};
    double limits[3] = {10, 10, 10};
    const fi_ioc list[2] = {{&parts[0], 1}, {&parts[1], 2}};
    const fi_ioc limit_list[3] = {{&limits[0], 1}, {&limits[1], 1}, {&limits[2], 1}};
    fi_ioc result_list[2] = {{&results[0], 2}, {&results[2], 1}};
    retry([&] {
        return fi_compare_atomicv(a.ep.get(), list, nullptr, 2, limit_list, nullptr, 3, result_list,
                                  nullptr, 2, to_b, 0, kKey, FI_DOUBLE, FI_CSWAP_GT, &contexts_[1]);
    });
    expect_entry(FI_READ, &contexts_[1]);
    EXPECT_EQ(results, (std::array<double, 3>{10, 2, 30}));
    EXPECT_EQ(memory, (std::array<double, 3>{10, 8, 30}));

    const fi_rma_ioc targets[2] = {{16, 1, kKey}, {0, 2, kKey}};
    const fi_msg_atomic msg = {.msg_iov = list,
                               .desc = nullptr,
                               .iov_count = 2,
                               .addr = to_b,
                               .rma_iov = targets,
                               .rma_iov_count = 2,
                               .datatype = FI_DOUBLE,
                               .op = FI_CSWAP_LE,
                               .context = &contexts_[2],
                               .data = 0};
    retry([&] {
        return fi_compare_atomicmsg(a.ep.get(), &msg, limit_list, nullptr, 3, result_list, nullptr,
                                    2, FI_COMPLETION);
    });
    expect_entry(FI_READ, &contexts_[2]);
    EXPECT_EQ(results, (std::array<double, 3>{30, 10, 8}));
    EXPECT_EQ(memory, (std::array<double, 3>{8, 8, 7}));
}

TEST_F(FiAtomic, remote_lists_may_be_of_several_regions) {
    open_with();
    std::array<std::uint16_t, 8> one{};
    std::array<std::uint16_t, 8> other{};
    add_region(one);
    add_region(other.data(), sizeof other, 7);
    std::array<std::uint16_t, 6> operands{};
    std::iota(operands.begin(), operands.end(), std::uint16_t{1});
    const fi_ioc list = {operands.data(), operands.size()};
    const fi_rma_ioc targets[3] = {{2, 1, 7}, {0, 3, kKey}, {12, 2, 7}};
    const fi_msg_atomic msg = {.msg_iov = &list,
                               .desc = nullptr,
                               .iov_count = 1,
                               .addr = to_b,
                               .rma_iov = targets,
                               .rma_iov_count = 3,
                               .datatype = FI_UINT16,
                               .op = FI_BOR,
                               .context = nullptr,
                               .data = 0};
    retry([&] { return fi_atomicmsg(a.ep.get(), &msg, 0); });
    expect_entry(FI_WRITE, nullptr);
    EXPECT_EQ(one, (std::array<std::uint16_t, 8>{2, 3, 4}));
    EXPECT_EQ(other, (std::array<std::uint16_t, 8>{0, 1, 0, 0, 0, 0, 5, 6}));
}

TEST_F(FiAtomic, every_count_up_to_the_greatest_works) {
    open_with();
    std::vector<std::complex<long double>> memory(kOperandBytesMax / 32 + 1);
    std::vector<std::uint8_t> bytes(kOperandBytesMax + 1, 1);
    add_region(memory.data(), memory.size() * 32);
    add_region(bytes.data(), bytes.size(), 7);
    std::size_t count = 0;
    ASSERT_EQ(fi_atomicvalid(a.ep.get(), FI_LONG_DOUBLE_COMPLEX, FI_SUM, &count), 0);
    ASSERT_EQ(count, kOperandBytesMax / 32);
    const std::vector<std::complex<long double>> ones(count, {1, 2});
    retry([&] {
        return fi_atomic(a.ep.get(), ones.data(), count, nullptr, to_b, 0, kKey,
                         FI_LONG_DOUBLE_COMPLEX, FI_SUM, nullptr);
    });
    expect_entry(FI_WRITE, nullptr);
    EXPECT_EQ(memory[count - 1], (std::complex<long double>(1, 2)));
    EXPECT_EQ(memory[count], std::complex<long double>{});

    ASSERT_EQ(fi_compare_atomicvalid(a.ep.get(), FI_UINT8, FI_MSWAP, &count), 0);
    ASSERT_EQ(count, kOperandBytesMax);
    const std::vector<std::uint8_t> operands(count, 0xff);
    const std::vector<std::uint8_t> masks(count, 0xf0);
    std::vector<std::uint8_t> results(count);
    for (const std::size_t some : {std::size_t{1}, std::size_t{63}, std::size_t{2000}, count}) {
        std::ranges::fill(bytes, std::uint8_t{1});
        std::ranges::fill(results, std::uint8_t{0});
        retry([&] {
            return fi_compare_atomic(a.ep.get(), operands.data(), some, nullptr, masks.data(),
                                     nullptr, results.data(), nullptr, to_b, 0, 7, FI_UINT8,
                                     FI_MSWAP, nullptr);
        });
        expect_entry(FI_READ, nullptr);
        EXPECT_EQ(bytes[some - 1], 0xf1);
        EXPECT_EQ(bytes[some], 1);
        EXPECT_EQ(std::accumulate(results.begin(), results.end(), std::size_t{0}), some);
    }
}

TEST_F(FiAtomic, many_may_be_under_way) {
    open_with();
    std::array<std::uint64_t, 1> memory{};
    add_region(memory);
    constexpr std::uint64_t kCount = 3000;
    std::vector<std::uint64_t> results(kCount);
    const std::uint64_t one = 1;
    std::uint64_t ended = 0;
    const auto take = [&] {
        fi_cq_tagged_entry entries[16];
        const ssize_t taken = fi_cq_read(a.tx.get(), entries, 16);
        ended += taken > 0 ? static_cast<std::uint64_t>(taken) : 0;
    };
    for (std::uint64_t& result : results) {
        retry([&] {
            take();
            return fi_fetch_atomic(a.ep.get(), &one, 1, nullptr, &result, nullptr, to_b, 0, kKey,
                                   FI_UINT64, FI_SUM, nullptr);
        });
    }
    EXPECT_TRUE(run_until([&] {
        take();
        return ended == kCount;
    }));
    // In the order of the calls.
    for (std::uint64_t i = 0; i < kCount; ++i)
        ASSERT_EQ(results[i], i);
}

TEST_F(FiAtomic, selective_completion_tells_what_is_asked_for) {
    open_with({.bind_flags = FI_SELECTIVE_COMPLETION});
    std::array<std::uint64_t, 1> memory{};
    add_region(memory);
    const std::uint64_t one = 1;
    retry([&] {
        return fi_atomic(a.ep.get(), &one, 1, nullptr, to_b, 0, kKey, FI_UINT64, FI_SUM, nullptr);
    });
    const fi_ioc list = {const_cast<std::uint64_t*>(&one), 1};
    const fi_rma_ioc target = {0, 1, kKey};
    const fi_msg_atomic msg = {.msg_iov = &list,
                               .desc = nullptr,
                               .iov_count = 1,
                               .addr = to_b,
                               .rma_iov = &target,
                               .rma_iov_count = 1,
                               .datatype = FI_UINT64,
                               .op = FI_SUM,
                               .context = &contexts_[3],
                               .data = 0};
    // It begins when the one before it has ended.
    retry([&] { return fi_atomicmsg(a.ep.get(), &msg, FI_COMPLETION | FI_FENCE); });
    expect_entry(FI_WRITE, &contexts_[3]);
    EXPECT_EQ(memory[0], 2U);
    EXPECT_TRUE(is_empty(a.tx));
}

TEST_F(FiAtomic, operations_with_a_fence_begin_behind_atomics) {
    open_with({.caps = FI_MSG | FI_RMA});
    std::array<std::uint64_t, 2> memory{};
    add_region(memory);
    std::uint64_t one = 1;
    const iovec local = {&one, sizeof one};
    const fi_ioc operand = {&one, 1};
    const fi_rma_iov written = {8, sizeof one, kKey};
    const fi_rma_ioc target = {0, 1, kKey};
    fi_msg send{};
    send.msg_iov = &local;
    send.iov_count = 1;
    send.addr = to_b;
    fi_msg_rma write{};
    write.msg_iov = &local;
    write.iov_count = 1;
    write.addr = to_b;
    write.rma_iov = &written;
    write.rma_iov_count = 1;
    fi_msg_atomic atomic{};
    atomic.msg_iov = &operand;
    atomic.iov_count = 1;
    atomic.addr = to_b;
    atomic.rma_iov = &target;
    atomic.rma_iov_count = 1;
    atomic.datatype = FI_UINT64;
    atomic.op = FI_SUM;
    const std::function<ssize_t()> fenced[] = {
        [&] { return fi_sendmsg(a.ep.get(), &send, FI_FENCE); },
        [&] { return fi_writemsg(a.ep.get(), &write, FI_FENCE); },
        [&] { return fi_atomicmsg(a.ep.get(), &atomic, FI_FENCE); }};
    std::uint64_t received = 0;
    ASSERT_EQ(fi_recv(b.ep.get(), &received, sizeof received, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
    // The key is known from now on.
    retry([&] { return fi_writemsg(a.ep.get(), &write, 0); });
    next(a.tx);
    for (const auto& call : fenced) {
        retry([&] { return fi_atomicmsg(a.ep.get(), &atomic, 0); });
        // The owner makes no progress, so there is no reply.
        EXPECT_EQ(call(), -FI_EAGAIN);
        retry(call);
        expect_entry(FI_WRITE, nullptr);
        next(a.tx);
    }
    EXPECT_EQ(memory[0], 4U);
}

TEST_F(FiAtomic, one_that_is_repeated_is_taken_though_nobody_reads) {
    open_with({.cq_size = 4});
    std::array<std::uint64_t, 1> memory = {};
    add_region(memory);
    const std::uint64_t one = 1;
    expect_taken_without_reading([&] {
        return fi_atomic(a.ep.get(), &one, 1, nullptr, to_b, 0, kKey, FI_UINT64, FI_SUM, nullptr);
    });
}

TEST_F(FiAtomic, counters_of_either_side_count) {
    open_with({.caps = FI_MSG | FI_RMA_EVENT, .is_inserted = false});
    Owner<fid_cntr> counters[4];
    fid_ep* ep = nullptr;
    ASSERT_EQ(fi_endpoint(domain.get(), info.get(), &ep, nullptr), 0);
    Owner<fid_ep> counted(ep);
    const std::uint64_t ways[4] = {FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE};
    for (std::size_t i = 0; i < 4; ++i) {
        fid_cntr* made = nullptr;
        ASSERT_EQ(fi_cntr_open(domain.get(), nullptr, &made, nullptr), 0);
        counters[i].reset(made);
        ASSERT_EQ(fi_ep_bind(ep, &made->fid, ways[i]), 0);
    }
    ASSERT_EQ(fi_ep_bind(ep, &av->fid, 0), 0);
    ASSERT_EQ(fi_ep_bind(ep, &a.tx->fid, FI_TRANSMIT), 0);
    ASSERT_EQ(fi_ep_bind(ep, &a.rx->fid, FI_RECV), 0);
    ASSERT_EQ(fi_enable(ep), 0);
    Name name;
    std::size_t length = name.size();
    ASSERT_EQ(fi_getname(&ep->fid, name.data(), &length), 0);
    fi_addr_t self = FI_ADDR_UNSPEC;
    ASSERT_EQ(fi_av_insert(av.get(), name.data(), 1, &self, 0, nullptr), 1);
    std::array<std::uint64_t, 1> memory{};
    add_region(memory);
    const std::uint64_t one = 1;
    std::uint64_t result = 0;
    retry([&] { return fi_inject_atomic(ep, &one, 1, self, 0, kKey, FI_UINT64, FI_SUM); });
    EXPECT_EQ(fi_cntr_wait(counters[1].get(), 1, 30000), 0);
    EXPECT_EQ(fi_cntr_wait(counters[3].get(), 1, 30000), 0);
    retry([&] {
        return fi_fetch_atomic(ep, &one, 1, nullptr, &result, nullptr, self, 0, kKey, FI_UINT64,
                               FI_SUM, nullptr);
    });
    EXPECT_EQ(fi_cntr_wait(counters[0].get(), 1, 30000), 0);
    EXPECT_EQ(fi_cntr_wait(counters[2].get(), 1, 30000), 0);
    EXPECT_EQ(result, 1U);
    retry([&] { return fi_inject_atomic(ep, &one, 1, self, 8, kKey, FI_UINT64, FI_SUM); });
    EXPECT_EQ(fi_cntr_wait(counters[1].get(), 2, 30000), -FI_EAVAIL);
    EXPECT_EQ(fi_cntr_readerr(counters[1].get()), 1U);
    for (const auto& cntr : counters)
        EXPECT_EQ(fi_cntr_read(cntr.get()), 1U);
}

TEST_F(FiAtomic, endpoints_and_threads_lose_nothing) {
    open_with({.threading = FI_THREAD_SAFE});
    std::array<std::uint64_t, 1> memory = {1};
    add_region(memory);
    constexpr int kRounds = 300;
    // Three factors, of both endpoints and of the program itself.
    const auto multiply = [&](Side& side, std::uint64_t factor) {
        for (int i = 0; i < kRounds; ++i) {
            while (fi_inject_atomic(side.ep.get(), &factor, 1, to_b, 0, kKey, FI_UINT64, FI_PROD) ==
                   -FI_EAGAIN)
                fi_cq_read(side.tx.get(), nullptr, 0);
            fi_cq_read(side.tx.get(), nullptr, 0);
        }
    };
    std::thread other([&] { multiply(b, 3); });
    std::thread own([&] {
        const std::atomic_ref number(memory[0]);
        for (int i = 0; i < kRounds; ++i) {
            std::uint64_t before = number.load();
            while (!number.compare_exchange_weak(before, before * 7)) {
            }
            std::this_thread::yield();
        }
    });
    multiply(a, 5);
    other.join();
    own.join();
    std::uint64_t expected = 1;
    for (int i = 0; i < kRounds; ++i)
        expected *= 3 * 5 * 7;
    EXPECT_TRUE(run_until([&] { return std::atomic_ref(memory[0]).load() == expected; }));
}

}  // namespace

}  // namespace tagwire::fi_test
