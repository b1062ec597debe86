// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations that are refused, by the call or by the owner of the memory, or that end early.
#include <vector>

#include "atomic_pair.hpp"

namespace tagwire::fi_test {

namespace {

class FiAtomicRefusals : public AtomicPair {};

TEST_F(FiAtomicRefusals, what_cannot_be_done_is_refused_by_the_call) {
    open_with();
    std::array<std::uint64_t, 1> memory = {5};
    add_region(memory);
    std::vector<std::uint64_t> operands(kOperandBytesMax / 8 + 1, 1);
    const auto call = [&](std::size_t count, fi_datatype datatype, fi_op op) {
        return fi_atomic(a.ep.get(), operands.data(), count, nullptr, to_b, 0, kKey, datatype, op,
                         nullptr);
    };
    EXPECT_EQ(call(0, FI_UINT64, FI_SUM), -FI_EINVAL);
    EXPECT_EQ(call(operands.size(), FI_UINT64, FI_SUM), -FI_EMSGSIZE);
    EXPECT_EQ(call(SIZE_MAX, FI_UINT64, FI_SUM), -FI_EMSGSIZE);
    EXPECT_EQ(call(1, FI_UINT64, FI_ATOMIC_READ), -FI_EOPNOTSUPP);
    EXPECT_EQ(call(1, FI_UINT64, FI_CSWAP), -FI_EOPNOTSUPP);
    EXPECT_EQ(call(1, FI_DOUBLE, FI_BOR), -FI_EOPNOTSUPP);
    EXPECT_EQ(call(1, FI_FLOAT_COMPLEX, FI_MIN), -FI_EOPNOTSUPP);
    EXPECT_EQ(call(1, FI_VOID, FI_SUM), -FI_EOPNOTSUPP);
    EXPECT_EQ(call(1, FI_UINT64, FI_NOOP), -FI_EOPNOTSUPP);
    EXPECT_EQ(call(1, static_cast<fi_datatype>(99), FI_SUM), -FI_EOPNOTSUPP);
    std::uint64_t result = 0;
    EXPECT_EQ(fi_fetch_atomic(a.ep.get(), operands.data(), 1, nullptr, &result, nullptr, to_b, 0,
                              kKey, FI_UINT64, FI_CSWAP, nullptr),
              -FI_EOPNOTSUPP);
    EXPECT_EQ(fi_compare_atomic(a.ep.get(), operands.data(), 1, nullptr, operands.data(), nullptr,
                                &result, nullptr, to_b, 0, kKey, FI_UINT64, FI_SUM, nullptr),
              -FI_EOPNOTSUPP);
    const fi_ioc list[2] = {{operands.data(), 1}, {operands.data(), 1}};
    fi_rma_ioc target = {0, 1, kKey};
    fi_msg_atomic msg = {.msg_iov = list,
                         .desc = nullptr,
                         .iov_count = 2,
                         .addr = to_b,
                         .rma_iov = &target,
                         .rma_iov_count = 1,
                         .datatype = FI_UINT64,
                         .op = FI_SUM,
                         .context = nullptr,
                         .data = 0};
    EXPECT_EQ(fi_atomicmsg(a.ep.get(), &msg, 0), -FI_EINVAL) << "lists of different counts";
    msg.iov_count = 1;
    EXPECT_EQ(fi_atomicmsg(a.ep.get(), &msg, FI_TAGGED), -FI_EBADFLAGS);
    EXPECT_EQ(fi_atomicmsg(a.ep.get(), &msg, FI_MULTI_RECV), -FI_EBADFLAGS);
    fi_ioc results[1] = {{&result, 2}};
    EXPECT_EQ(fi_fetch_atomicmsg(a.ep.get(), &msg, results, nullptr, 1, 0), -FI_EINVAL);
    msg.rma_iov_count = 0;
    EXPECT_EQ(fi_atomicmsg(a.ep.get(), &msg, 0), -FI_EINVAL);
    msg.rma_iov_count = 17;
    EXPECT_EQ(fi_atomicmsg(a.ep.get(), &msg, 0), -FI_EINVAL);
    EXPECT_TRUE(is_empty(a.tx));
    EXPECT_EQ(memory[0], 5U);
}

TEST_F(FiAtomicRefusals, what_the_owner_refuses_changes_nothing) {
    open_with();
    std::array<std::uint64_t, 2> memory = {5, 6};
    std::array<std::uint64_t, 1> read_only = {7};
    std::array<std::uint64_t, 1> write_only = {8};
    add_region(memory);
    add_region(read_only.data(), sizeof read_only, 7, FI_REMOTE_READ);
    add_region(write_only.data(), sizeof write_only, 8, FI_REMOTE_WRITE);
    const std::array<std::uint64_t, 2> operands = {1, 1};
    std::array<std::uint64_t, 2> results = {99, 99};
    const auto add = [&](std::size_t count, std::uint64_t address, std::uint64_t key) {
        retry([&] {
            return fi_atomic(a.ep.get(), operands.data(), count, nullptr, to_b, address, key,
                             FI_UINT64, FI_SUM, &contexts_[1]);
        });
    };
    const auto fetch = [&](fi_op op, std::uint64_t key) {
        retry([&] {
            return fi_fetch_atomic(a.ep.get(), operands.data(), 1, nullptr, results.data(), nullptr,
                                   to_b, 0, key, FI_UINT64, op, &contexts_[1]);
        });
    };
    add(1, 0, 12345);
    expect_error(FI_ENOKEY, &contexts_[1]);
    for (const std::uint64_t address : {std::uint64_t{9}, std::uint64_t{16}, ~std::uint64_t{0}}) {
        add(1, address, kKey);
        expect_error(FI_EINVAL, &contexts_[1]);
    }
    add(2, 8, kKey);
    expect_error(FI_EINVAL, &contexts_[1]);
    add(1, 0, 7);
    expect_error(FI_EACCES, &contexts_[1]);
    fetch(FI_SUM, 7);
    expect_error(FI_EACCES, &contexts_[1]);
    fetch(FI_SUM, 8);
    expect_error(FI_EACCES, &contexts_[1]);
    fetch(FI_ATOMIC_READ, 8);
    expect_error(FI_EACCES, &contexts_[1]);
    EXPECT_EQ(results[0], 99U);
    // All of a list is refused for one of its elements.
    const fi_ioc list = {const_cast<std::uint64_t*>(operands.data()), 2};
    const fi_rma_ioc targets[2] = {{0, 1, kKey}, {0, 1, 7}};
    const fi_msg_atomic msg = {.msg_iov = &list,
                               .desc = nullptr,
                               .iov_count = 1,
                               .addr = to_b,
                               .rma_iov = targets,
                               .rma_iov_count = 2,
                               .datatype = FI_UINT64,
                               .op = FI_SUM,
                               .context = &contexts_[1],
                               .data = 0};
    retry([&] { return fi_atomicmsg(a.ep.get(), &msg, 0); });
    expect_error(FI_EACCES, &contexts_[1]);
    EXPECT_EQ(memory, (std::array<std::uint64_t, 2>{5, 6}));

    fetch(FI_ATOMIC_READ, 7);
    expect_entry(FI_READ, &contexts_[1]);
    EXPECT_EQ(results[0], 7U);
    add(1, 0, 8);
    expect_entry(FI_WRITE, &contexts_[1]);
    EXPECT_EQ(write_only[0], 9U);
    regions_.clear();
    add(1, 0, kKey);
    expect_error(FI_ENOKEY, &contexts_[1]);
}

TEST_F(FiAtomicRefusals, an_operation_ends_once_when_its_peer_closes) {
    open_with();
    std::array<std::uint64_t, 1> memory{};
    add_region(memory);
    constexpr std::size_t kCount = 64;
    std::vector<std::uint64_t> results(kCount);
    std::vector<unsigned> ends(kCount);
    const std::uint64_t one = 1;
    for (std::size_t i = 0; i < kCount; ++i) {
        retry([&] {
            return fi_fetch_atomic(a.ep.get(), &one, 1, nullptr, &results[i], nullptr, to_b, 0,
                                   kKey, FI_UINT64, FI_SUM, &ends[i]);
        });
    }
    b.ep.reset();
    std::size_t ended = 0;
    EXPECT_TRUE(run_until([&] {
        fi_cq_tagged_entry entry{};
        const ssize_t taken = fi_cq_read(a.tx.get(), &entry, 1);
        fi_cq_err_entry error{};
        if (taken == -FI_EAVAIL && fi_cq_readerr(a.tx.get(), &error, 0) == 1)
            entry.op_context = error.op_context;
        if (taken == 1 || taken == -FI_EAVAIL) {
            ++*static_cast<unsigned*>(entry.op_context);
            ++ended;
        }
        return ended == kCount;
    }));
    EXPECT_TRUE(is_empty(a.tx));
    EXPECT_EQ(ends, std::vector<unsigned>(kCount, 1));
}

TEST_F(FiAtomicRefusals, an_operation_ends_once_when_its_peer_is_removed) {
    open_with();
    std::array<std::uint64_t, 1> memory{};
    add_region(memory);
    const std::uint64_t one = 1;
    std::uint64_t result = 0;
    ssize_t status = fi_fetch_atomic(a.ep.get(), &one, 1, nullptr, &result, nullptr, to_b, 0, kKey,
                                     FI_UINT64, FI_SUM, &contexts_[4]);
    ASSERT_EQ(status, 0);
    ASSERT_EQ(fi_av_remove(av.get(), &to_b, 1, 0), 0);
    expect_error(FI_ECANCELED, &contexts_[4]);
    EXPECT_TRUE(is_empty(a.tx));
}

TEST_F(FiAtomicRefusals, an_endpoint_without_the_capability_refuses) {
    ASSERT_NO_FATAL_FAILURE(open());
    const std::uint64_t one = 1;
    EXPECT_EQ(fi_atomic(a.ep.get(), &one, 1, nullptr, to_b, 0, kKey, FI_UINT64, FI_SUM, nullptr),
              -FI_EOPNOTSUPP);
}

TEST_F(FiAtomicRefusals, queries_tell_count_and_size) {
    open_with();
    fi_atomic_attr attr{};
    EXPECT_EQ(fi_query_atomic(domain.get(), FI_LONG_DOUBLE, FI_SUM, &attr, 0), 0);
    EXPECT_EQ(attr.size, sizeof(long double));
    EXPECT_EQ(attr.count, kOperandBytesMax / sizeof(long double));
    EXPECT_EQ(fi_query_atomic(domain.get(), FI_UINT8, FI_ATOMIC_READ, &attr, FI_FETCH_ATOMIC), 0);
    EXPECT_EQ(attr.size, 1U);
    EXPECT_EQ(fi_query_atomic(domain.get(), FI_UINT8, FI_CSWAP, &attr, FI_COMPARE_ATOMIC), 0);
    EXPECT_EQ(fi_query_atomic(domain.get(), FI_UINT8, FI_ATOMIC_READ, &attr, 0), -FI_EOPNOTSUPP);
    EXPECT_EQ(fi_query_atomic(domain.get(), FI_UINT8, FI_CSWAP, &attr, FI_FETCH_ATOMIC),
              -FI_EOPNOTSUPP);
    EXPECT_EQ(fi_query_atomic(domain.get(), FI_VOID, FI_SUM, &attr, 0), -FI_EOPNOTSUPP);
    EXPECT_EQ(fi_query_atomic(domain.get(), FI_UINT8, FI_SUM, &attr, FI_TAGGED), -FI_EOPNOTSUPP);
    EXPECT_EQ(
        fi_query_atomic(domain.get(), FI_UINT8, FI_SUM, &attr, FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC),
        -FI_EBADFLAGS);
    EXPECT_EQ(fi_query_atomic(domain.get(), FI_UINT8, FI_SUM, &attr, FI_MORE), -FI_EBADFLAGS);
    std::size_t count = 0;
    EXPECT_EQ(fi_fetch_atomicvalid(a.ep.get(), FI_DOUBLE, FI_PROD, &count), 0);
    EXPECT_EQ(count, kOperandBytesMax / 8);
    EXPECT_EQ(fi_fetch_atomicvalid(a.ep.get(), FI_DOUBLE, FI_BAND, &count), -FI_EOPNOTSUPP);
}

}  // namespace

}  // namespace tagwire::fi_test
