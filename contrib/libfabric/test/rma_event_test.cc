// SPDX-License-Identifier: BSD-3-Clause
// Counters of one-sided operations, at the initiator and at the target.
#include "rma_pair.hpp"

namespace tagwire::fi_test {

namespace {

class FiRmaEvent : public RmaPair {
  protected:
    void open_counted(std::uint64_t more_caps = FI_RMA_EVENT) {
        Wanted wanted;
        wanted.caps |= FI_RMA | more_caps;
        wanted.has_rma_counters = true;
        open_rma(wanted);
    }
    void expect_count(const Owner<fid_cntr>& cntr, std::uint64_t count) {
        run_until([&] { return fi_cntr_read(cntr.get()) >= count; });
        run_some();
        EXPECT_EQ(fi_cntr_read(cntr.get()), count);
    }
};

TEST_F(FiRmaEvent, each_side_counts_reads_and_writes) {
    open_counted();
    Text text = text_of(20);
    write(text, 0);
    write(text, 40);
    read(text, 0);
    expect_count(a.writes, 2);
    expect_count(a.reads, 1);
    expect_count(b.remote_writes, 2);
    expect_count(b.remote_reads, 1);
    EXPECT_EQ(fi_cntr_read(b.writes.get()), 0U);
    EXPECT_EQ(fi_cntr_read(a.remote_writes.get()), 0U);
}

TEST_F(FiRmaEvent, a_counted_write_is_there) {
    open_counted();
    for (std::uint64_t i = 1; i <= 20; ++i) {
        const Text text = text_of(100 + i);
        retry([&] {
            return fi_inject_write(a.ep.get(), text.data(), text.size(), to_b, at(3), key());
        });
        run_until([&] { return fi_cntr_read(b.remote_writes.get()) == i; });
        EXPECT_TRUE(holds(text, 3));
    }
    expect_count(a.writes, 20);
}

TEST_F(FiRmaEvent, data_for_the_queue_is_counted_as_well) {
    open_counted();
    const Text text = text_of(20);
    retry([&] {
        return fi_writedata(a.ep.get(), text.data(), text.size(), nullptr, 77, to_b, at(0), key(),
                            nullptr);
    });
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    const auto entry = next(b.rx, &source);
    EXPECT_EQ(entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
    EXPECT_EQ(entry.data, 77U);
    EXPECT_EQ(entry.len, text.size());
    EXPECT_EQ(source, to_a);
    EXPECT_TRUE(holds(text, 0));
    expect_count(b.remote_writes, 1);
    EXPECT_TRUE(is_empty(b.rx));
}

TEST_F(FiRmaEvent, the_target_does_not_count_without_the_capability) {
    open_counted(0);
    writemsg("x", 0, FI_DELIVERY_COMPLETE);
    expect_count(a.writes, 1);
    expect_count(b.remote_writes, 0);
}

TEST_F(FiRmaEvent, a_region_counts_for_itself) {
    open_counted();
    fid_cntr* made = nullptr;
    ASSERT_EQ(fi_cntr_open(domain.get(), nullptr, &made, nullptr), 0);
    const Owner<fid_cntr> cntr(made);
    write("known before", 0);
    expect_count(b.remote_writes, 1);
    EXPECT_EQ(fi_mr_bind(mr.get(), &made->fid, FI_RECV), -FI_EBADFLAGS);
    ASSERT_EQ(fi_mr_bind(mr.get(), &made->fid, FI_REMOTE_WRITE), 0);
    EXPECT_EQ(fi_mr_bind(mr.get(), &made->fid, FI_REMOTE_WRITE), -FI_EINVAL);
    EXPECT_EQ(fi_mr_enable(mr.get()), 0);
    run_some();
    write("counted", 0);
    Text text(7, '-');
    read(text, 0);
    expect_count(cntr, 1);
    EXPECT_EQ(fi_close(&made->fid), -FI_EBUSY);
    mr.reset();
}

TEST_F(FiRmaEvent, each_region_of_a_list_counts_once) {
    open_counted();
    Text other(64, '-');
    Owner<fid_mr> other_mr;
    ASSERT_EQ(enter_into(other_mr, other, kRemote, 8), 0);
    Owner<fid_cntr> counters[4];
    for (std::size_t i = 0; i < 4; ++i) {
        fid_cntr* made = nullptr;
        ASSERT_EQ(fi_cntr_open(domain.get(), nullptr, &made, nullptr), 0);
        counters[i].reset(made);
        fid_mr* const counted = i < 2 ? mr.get() : other_mr.get();
        ASSERT_EQ(fi_mr_bind(counted, &made->fid, i % 2 == 0 ? FI_REMOTE_WRITE : FI_REMOTE_READ),
                  0);
    }
    Text text = text_of(12);
    const iovec iov = {text.data(), text.size()};
    const fi_rma_iov remote[] = {{at(0), 4, key()}, {0, 4, 8}, {at(20), 4, key()}};
    fi_msg_rma msg{};
    msg.msg_iov = &iov;
    msg.iov_count = 1;
    msg.addr = to_b;
    msg.rma_iov = remote;
    msg.rma_iov_count = 3;
    msg.data = 5;
    retry([&] { return fi_writemsg(a.ep.get(), &msg, FI_REMOTE_CQ_DATA); });
    retry([&] { return fi_readmsg(a.ep.get(), &msg, 0); });
    expect_count(b.remote_writes, 1);
    expect_count(b.remote_reads, 1);
    for (const auto& cntr : counters)
        expect_count(cntr, 1);
    EXPECT_EQ(next(b.rx).data, 5U);
    EXPECT_TRUE(is_empty(b.rx)) << "the data comes once";
    mr.reset();
    other_mr.reset();
}

TEST_F(FiRmaEvent, waiting_for_the_counter_of_a_region_progresses_its_endpoints) {
    open_counted(0);
    fid_cntr* made = nullptr;
    ASSERT_EQ(fi_cntr_open(domain.get(), nullptr, &made, nullptr), 0);
    const Owner<fid_cntr> cntr(made);
    ASSERT_EQ(fi_mr_bind(mr.get(), &made->fid, FI_REMOTE_WRITE), 0);
    // Opened and closed with a counter of a region there.
    Name name{};
    Owner<fid_ep> third = open_third(&name);
    write("x", 0);
    EXPECT_EQ(fi_cntr_wait(made, 1, 30000), 0);
    third.reset();
    write("y", 0);
    EXPECT_EQ(fi_cntr_wait(made, 2, 30000), 0);
    mr.reset();
}

TEST_F(FiRmaEvent, a_counter_without_a_wait_object_can_be_waited_for) {
    open_counted(0);
    fi_cntr_attr attr{};
    attr.wait_obj = FI_WAIT_NONE;
    fid_cntr* made = nullptr;
    ASSERT_EQ(fi_cntr_open(domain.get(), &attr, &made, nullptr), 0);
    const Owner<fid_cntr> cntr(made);
    ASSERT_EQ(fi_mr_bind(mr.get(), &made->fid, FI_REMOTE_WRITE), 0);
    EXPECT_EQ(fi_cntr_wait(made, 1, 1), -FI_ETIMEDOUT);
    write("x", 0);
    EXPECT_EQ(fi_cntr_wait(made, 1, 30000), 0);
    mr.reset();
}

TEST_F(FiRmaEvent, counters_may_be_bound_to_an_endpoint_that_is_enabled) {
    Wanted wanted;
    wanted.caps |= FI_RMA_EVENT;
    open_rma(wanted);
    Text text = text_of(20);
    write(text, 0);  // the key is known, and that nobody counts
    next(a.tx);
    Text received(7, '-');
    trecv(received, 1);
    open_counter(a, a.tx_cntr, FI_SEND);
    open_counter(a, a.writes, FI_WRITE);
    open_counter(a, a.reads, FI_READ);
    open_counter(b, b.rx_cntr, FI_RECV);
    open_counter(b, b.remote_writes, FI_REMOTE_WRITE);
    open_counter(b, b.remote_reads, FI_REMOTE_READ);
    EXPECT_EQ(fi_ep_bind(a.ep.get(), &a.writes->fid, FI_WRITE), -FI_EINVAL);
    EXPECT_EQ(fi_ep_bind(a.ep.get(), &a.tx->fid, FI_TRANSMIT), -FI_EOPBADSTATE);
    run_some();
    write(text, 40);
    read(text, 0);
    tsend("counted", 1);
    expect_count(a.tx_cntr, 1);
    expect_count(a.writes, 1);
    expect_count(a.reads, 1);
    expect_count(b.rx_cntr, 1);
    expect_count(b.remote_writes, 1);
    expect_count(b.remote_reads, 1);
}

TEST_F(FiRmaEvent, an_endpoint_may_have_counters_alone) {
    open_counted();
    fid_ep* made = nullptr;
    ASSERT_EQ(fi_endpoint(domain.get(), info.get(), &made, nullptr), 0);
    Owner<fid_ep> third(made);
    ASSERT_EQ(fi_ep_bind(made, &av->fid, 0), 0);
    ASSERT_EQ(fi_ep_bind(made, &a.rx->fid, FI_RECV), 0);
    fid_cntr* cntr = nullptr;
    ASSERT_EQ(fi_cntr_open(domain.get(), nullptr, &cntr, nullptr), 0);
    const Owner<fid_cntr> ended(cntr);
    EXPECT_EQ(fi_enable(made), -FI_ENOCQ);
    ASSERT_EQ(fi_ep_bind(made, &cntr->fid, FI_SEND | FI_READ | FI_WRITE), 0);
    ASSERT_EQ(fi_enable(made), 0);
    const Text text = "counted";
    Text back(7, '-');
    retry([&] {
        return fi_write(made, text.data(), text.size(), nullptr, to_b, at(5), key(), nullptr);
    });
    expect_count(ended, 1);
    expect_count(b.remote_writes, 1);
    EXPECT_TRUE(holds(text, 5));
    retry([&] { return fi_read(made, back.data(), 7, nullptr, to_b, at(5), key(), nullptr); });
    expect_count(ended, 2);
    EXPECT_EQ(back, text);
    retry([&] { return fi_read(made, back.data(), 7, nullptr, to_b, at(5), 1234, nullptr); });
    run_until([&] { return fi_cntr_readerr(cntr) == 1; });
    EXPECT_EQ(fi_cntr_read(cntr), 2U);
    third.reset();
}

TEST_F(FiRmaEvent, failures_are_counted) {
    open_counted();
    Text text = "x";
    retry([&] { return fi_write(a.ep.get(), text.data(), 1, nullptr, to_b, 0, 99, nullptr); });
    EXPECT_EQ(next_error(a.tx).err, FI_ENOKEY);
    EXPECT_EQ(fi_cntr_readerr(a.writes.get()), 1U);
    retry([&] { return fi_read(a.ep.get(), text.data(), 1, nullptr, to_b, 0, 99, nullptr); });
    EXPECT_EQ(next_error(a.tx).err, FI_ENOKEY);
    EXPECT_EQ(fi_cntr_readerr(a.reads.get()), 1U);
    EXPECT_EQ(fi_cntr_read(b.remote_writes.get()), 0U);
}

}  // namespace

}  // namespace tagwire::fi_test
