// SPDX-License-Identifier: BSD-3-Clause
// Counters of atomic operations at the target: an endpoint counts each as a read or as a write
// (fi_endpoint(3)), a region as what it does to the memory (fi_mr(3)).
#include "atomic_pair.hpp"

namespace tagwire::fi_test {

namespace {

class FiAtomicEvent : public AtomicPair {
  protected:
    /// Counts at the target: of its endpoint, and of a region.
    struct Counts {
        std::uint64_t endpoint_reads;
        std::uint64_t endpoint_writes;
        std::uint64_t region_reads;
        std::uint64_t region_writes;

        bool operator==(const Counts&) const = default;
    };

    void open_counted() {
        open_with({.caps = FI_MSG | FI_RMA_EVENT, .has_rma_counters = true});
        add_region(memory_);
        bind(regions_.back(), region_reads_, FI_REMOTE_READ);
        bind(regions_.back(), region_writes_, FI_REMOTE_WRITE);
    }
    void bind(const Owner<fid_mr>& mr, Owner<fid_cntr>& cntr, std::uint64_t way) {
        fid_cntr* made = nullptr;
        ASSERT_EQ(fi_cntr_open(domain.get(), nullptr, &made, nullptr), 0);
        cntr.reset(made);
        ASSERT_EQ(fi_mr_bind(mr.get(), &made->fid, way), 0);
    }
    void TearDown() override {
        AtomicPair::TearDown();
        region_reads_.reset();
        region_writes_.reset();
    }
    Counts counts() const {
        return {fi_cntr_read(b.remote_reads.get()), fi_cntr_read(b.remote_writes.get()),
                fi_cntr_read(region_reads_.get()), fi_cntr_read(region_writes_.get())};
    }
    /// Its entry comes behind the count, which is done where the operation is.
    Counts counts_of(const std::function<ssize_t()>& call) {
        const Counts before = counts();
        retry(call);
        next(a.tx);
        const Counts now = counts();
        return {now.endpoint_reads - before.endpoint_reads,
                now.endpoint_writes - before.endpoint_writes,
                now.region_reads - before.region_reads, now.region_writes - before.region_writes};
    }
    Counts counts_of_fetch(fi_op op) {
        return counts_of([&] {
            return fi_fetch_atomic(a.ep.get(), op == FI_ATOMIC_READ ? nullptr : &one_, 1, nullptr,
                                   &result_, nullptr, to_b, 0, kKey, FI_UINT64, op, nullptr);
        });
    }

    std::array<std::uint64_t, 2> memory_{};
    std::uint64_t one_ = 1;
    std::uint64_t result_ = 0;
    Owner<fid_cntr> region_reads_;
    Owner<fid_cntr> region_writes_;
};

TEST_F(FiAtomicEvent, a_region_counts_what_changes_it_whatever_the_endpoint_counts) {
    open_counted();
    const Counts write = counts_of([&] {
        return fi_atomic(a.ep.get(), &one_, 1, nullptr, to_b, 0, kKey, FI_UINT64, FI_SUM, nullptr);
    });
    EXPECT_EQ(write, (Counts{0, 1, 0, 1}));
    EXPECT_EQ(counts_of_fetch(FI_SUM), (Counts{1, 0, 1, 1}));
    EXPECT_EQ(counts_of_fetch(FI_ATOMIC_WRITE), (Counts{1, 0, 1, 1})) << "a swap";
    EXPECT_EQ(counts_of_fetch(FI_ATOMIC_READ), (Counts{1, 0, 1, 0}));
    const Counts swap = counts_of([&] {
        return fi_compare_atomic(a.ep.get(), &one_, 1, nullptr, &one_, nullptr, &result_, nullptr,
                                 to_b, 0, kKey, FI_UINT64, FI_CSWAP, nullptr);
    });
    EXPECT_EQ(swap, (Counts{1, 0, 1, 1}));
}

TEST_F(FiAtomicEvent, an_operation_that_is_refused_is_not_counted) {
    open_counted();
    const Counts before = counts();
    retry([&] {
        return fi_fetch_atomic(a.ep.get(), &one_, 1, nullptr, &result_, nullptr, to_b, 9, kKey,
                               FI_UINT64, FI_SUM, nullptr);
    });
    expect_error(FI_EINVAL);
    EXPECT_EQ(counts(), before);
}

TEST_F(FiAtomicEvent, each_region_of_a_list_counts_once) {
    open_counted();
    std::array<std::uint64_t, 2> other{};
    add_region(other.data(), sizeof other, 7);
    Owner<fid_cntr> other_writes;
    bind(regions_.back(), other_writes, FI_REMOTE_WRITE);
    std::array<std::uint64_t, 4> operands = {1, 2, 3, 4};
    std::array<std::uint64_t, 4> results{};
    const fi_ioc list = {operands.data(), operands.size()};
    fi_ioc back = {results.data(), results.size()};
    const fi_rma_ioc targets[] = {{8, 1, kKey}, {0, 2, 7}, {0, 1, kKey}};
    fi_msg_atomic msg{};
    msg.msg_iov = &list;
    msg.iov_count = 1;
    msg.addr = to_b;
    msg.rma_iov = targets;
    msg.rma_iov_count = 3;
    msg.datatype = FI_UINT64;
    msg.op = FI_SUM;
    const Counts counted =
        counts_of([&] { return fi_fetch_atomicmsg(a.ep.get(), &msg, &back, nullptr, 1, 0); });
    EXPECT_EQ(counted, (Counts{1, 0, 1, 1}));
    EXPECT_EQ(fi_cntr_read(other_writes.get()), 1U);
    EXPECT_EQ(memory_, (std::array<std::uint64_t, 2>{4, 1}));
    EXPECT_EQ(other, (std::array<std::uint64_t, 2>{2, 3}));
    AtomicPair::TearDown();
}

TEST_F(FiAtomicEvent, waiting_for_the_counter_of_a_region_progresses_its_endpoints) {
    open_counted();
    retry([&] {
        return fi_inject_atomic(a.ep.get(), &one_, 1, to_b, 0, kKey, FI_UINT64, FI_ATOMIC_WRITE);
    });
    EXPECT_EQ(fi_cntr_wait(region_writes_.get(), 1, 30000), 0);
    EXPECT_EQ(memory_[0], 1U);
}

}  // namespace

}  // namespace tagwire::fi_test
