// SPDX-License-Identifier: BSD-3-Clause
// The calls of fi_rma(3).
#include <thread>

#include "rma_pair.hpp"

namespace tagwire::fi_test {

namespace {

constexpr std::uint64_t kWrite = FI_RMA | FI_WRITE;
constexpr std::uint64_t kRead = FI_RMA | FI_READ;

class FiRma : public RmaPair {
  protected:
    int context = 0;
};

TEST_F(FiRma, a_write_changes_the_memory_of_the_peer) {
    open_rma();
    write("hello", 100, &context);
    const auto entry = next(a.tx);
    EXPECT_EQ(entry.op_context, &context);
    EXPECT_EQ(entry.flags, kWrite);
    expect_held("hello", 100);
    EXPECT_EQ(memory[99], text_of(4096)[99]);
    EXPECT_EQ(memory[105], text_of(4096)[105]);
    EXPECT_TRUE(is_empty(b.rx));
}

TEST_F(FiRma, a_read_fetches_the_memory_of_the_peer) {
    open_rma();
    Text text(1000, '-');
    read(text, 17, &context);
    const auto entry = next(a.tx);
    EXPECT_EQ(entry.op_context, &context);
    EXPECT_EQ(entry.flags, kRead);
    EXPECT_EQ(text, memory.substr(17, 1000));
}

TEST_F(FiRma, calls_by_a_known_key_work_like_the_first) {
    open_rma();
    for (int i = 0; i < 100; ++i) {
        const Text text = text_of(static_cast<std::size_t>(i) + 1);
        write(text, 10, &context);
        EXPECT_EQ(next(a.tx).flags, kWrite);
        Text back(text.size(), '-');
        writemsg(text, 10, FI_DELIVERY_COMPLETE);
        EXPECT_EQ(next(a.tx).flags, kWrite);
        read(back, 10, &context);
        EXPECT_EQ(next(a.tx).op_context, &context);
        EXPECT_EQ(back, text);
    }
}

TEST_F(FiRma, an_endpoint_reaches_its_own_memory) {
    open_rma();
    Text text = "self";
    retry([&] {
        return fi_write(a.ep.get(), text.data(), text.size(), nullptr, to_a, at(3), key(), nullptr);
    });
    EXPECT_EQ(next(a.tx).flags, kWrite);
    expect_held("self", 3);
}

TEST_F(FiRma, operations_without_bytes_complete) {
    open_rma();
    Text nothing;
    write(nothing, 4096);
    EXPECT_EQ(next(a.tx).flags, kWrite);
    read(nothing, 0);
    EXPECT_EQ(next(a.tx).flags, kRead);
}

TEST_F(FiRma, lists_are_gathered_and_scattered) {
    open_rma();
    Text one = "abc";
    Text two = "defg";
    iovec iov[] = {{one.data(), one.size()}, {two.data(), two.size()}};
    retry([&] { return fi_writev(a.ep.get(), iov, nullptr, 2, to_b, at(50), key(), &context); });
    EXPECT_EQ(next(a.tx).op_context, &context);
    expect_held("abcdefg", 50);
    one = two = "----";
    iov[0] = {one.data(), 4};
    iov[1] = {two.data(), 2};
    retry([&] { return fi_readv(a.ep.get(), iov, nullptr, 2, to_b, at(51), key(), &context); });
    EXPECT_EQ(next(a.tx).flags, kRead);
    EXPECT_EQ(one, "bcde");
    EXPECT_EQ(two, "fg--");
}

TEST_F(FiRma, lists_of_remote_memory_are_filled_in_their_order) {
    open_rma();
    Text second(64, '.');
    Owner<fid_mr> other;
    ASSERT_EQ(enter_into(other, second, kRemote, 8), 0);
    Text one = "0123456789";
    Text two = "abcdef";
    const iovec iov[] = {{one.data(), one.size()}, {two.data(), two.size()}};
    const fi_rma_iov remote[] = {{at(200), 4, key()}, {5, 9, 8}, {at(100), 3, key()}};
    fi_msg_rma msg{};
    msg.msg_iov = iov;
    msg.iov_count = 2;
    msg.addr = to_b;
    msg.rma_iov = remote;
    msg.rma_iov_count = 3;
    msg.context = &context;
    retry([&] { return fi_writemsg(a.ep.get(), &msg, FI_DELIVERY_COMPLETE); });
    EXPECT_EQ(next(a.tx).op_context, &context);
    EXPECT_TRUE(holds("0123", 200));
    EXPECT_EQ(second.substr(4, 11), ".456789abc.");
    EXPECT_TRUE(holds("def", 100));
    one.assign(10, '-');
    two.assign(6, '-');
    retry([&] { return fi_readmsg(a.ep.get(), &msg, 0); });
    EXPECT_EQ(next(a.tx).flags, kRead);
    EXPECT_EQ(one + two, "0123456789abcdef");
    msg.rma_iov_count = 2;
    EXPECT_EQ(fi_readmsg(a.ep.get(), &msg, 0), -FI_EINVAL) << "the lists differ in length";
    EXPECT_TRUE(is_empty(a.tx));
}

TEST_F(FiRma, data_for_the_queue_of_the_target_comes_with_the_bytes) {
    open_rma();
    const Text text = text_of(60);
    for (int i = 0; i < 2; ++i) {
        retry([&] {
            return fi_writedata(a.ep.get(), text.data(), text.size(), nullptr, 0x1234567890abcdef,
                                to_b, at(30), key(), &context);
        });
        EXPECT_EQ(next(a.tx).flags, kWrite);
        fi_addr_t source = FI_ADDR_NOTAVAIL;
        const auto entry = next(b.rx, &source);
        EXPECT_EQ(entry.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
        EXPECT_EQ(entry.data, 0x1234567890abcdef);
        EXPECT_EQ(entry.op_context, nullptr);
        EXPECT_EQ(entry.len, text.size());
        EXPECT_EQ(source, to_a);
        EXPECT_TRUE(holds(text, 30));
    }
}

TEST_F(FiRma, injected_data_is_the_programs_again_when_the_call_returns) {
    open_rma();
    const std::size_t most = std::min<std::size_t>(info->tx_attr->inject_size, 512);
    for (const bool has_data : {false, true, false}) {
        const Text text = text_of(has_data ? most : most / 2);
        Text mine = text;
        retry([&] {
            return has_data
                       ? fi_inject_writedata(a.ep.get(), mine.data(), mine.size(), 42, to_b, at(1),
                                             key())
                       : fi_inject_write(a.ep.get(), mine.data(), mine.size(), to_b, at(1), key());
        });
        mine.assign(mine.size(), '!');
        expect_held(text, 1);
        if (has_data) {
            EXPECT_EQ(next(b.rx).data, 42U);
        }
    }
    EXPECT_TRUE(is_empty(a.tx));
    Text longer(info->tx_attr->inject_size + 1, 'x');
    EXPECT_EQ(call_msg(false, longer, 0, FI_INJECT), -FI_EMSGSIZE);
}

TEST_F(FiRma, an_endpoint_without_the_capability_has_no_such_calls) {
    Wanted wanted;
    wanted.caps = FI_MSG;
    open(wanted);
    Text text = "x";
    EXPECT_EQ(fi_write(a.ep.get(), text.data(), 1, nullptr, to_b, 0, 0, nullptr), -FI_EOPNOTSUPP);
    EXPECT_EQ(fi_read(a.ep.get(), text.data(), 1, nullptr, to_b, 0, 0, nullptr), -FI_EOPNOTSUPP);
}

TEST_F(FiRma, an_endpoint_that_is_not_enabled_refuses_calls) {
    open_rma();
    fid_ep* made = nullptr;
    ASSERT_EQ(fi_endpoint(domain.get(), info.get(), &made, nullptr), 0);
    const Owner<fid_ep> third(made);
    Text text = "x";
    EXPECT_EQ(fi_write(made, text.data(), 1, nullptr, to_b, 0, 7, nullptr), -FI_EOPBADSTATE);
}

TEST_F(FiRma, unknown_flags_are_refused) {
    open_rma();
    Text text = "x";
    EXPECT_EQ(call_msg(false, text, 0, FI_PEEK), -FI_EBADFLAGS);
    EXPECT_EQ(call_msg(true, text, 0, FI_REMOTE_CQ_DATA), -FI_EBADFLAGS);
    EXPECT_EQ(call_msg(true, text, 0, FI_INJECT), -FI_EBADFLAGS);
}

// ---- Flags

TEST_F(FiRma, every_level_completes_once) {
    open_rma();
    for (const std::uint64_t level :
         {FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_INJECT, FI_MORE}) {
        const Text text = text_of(30 + level % 7);
        writemsg(text, 64, level | FI_COMPLETION, &context);
        EXPECT_EQ(next(a.tx).op_context, &context);
        if (level == FI_DELIVERY_COMPLETE) {
            EXPECT_TRUE(holds(text, 64));
        }
        EXPECT_TRUE(is_empty(a.tx));
        expect_held(text, 64);
    }
}

TEST_F(FiRma, only_what_asks_for_it_has_an_entry_with_selective_completion) {
    Wanted wanted;
    wanted.bind_flags = FI_SELECTIVE_COMPLETION;
    wanted.format = FI_CQ_FORMAT_DATA;
    wanted.caps |= FI_RMA;
    open_rma(wanted);
    write("silent", 0);
    expect_held("silent", 0);
    EXPECT_TRUE(is_empty(a.tx));
    writemsg("loud", 10, FI_COMPLETION, &context);
    EXPECT_EQ(next(a.tx).op_context, &context);
    Text back(4, '-');
    retry([&] { return call_msg(true, back, 10, FI_COMPLETION, &context); });
    EXPECT_EQ(next(a.tx).flags, kRead);
    EXPECT_EQ(back, "loud");
}

TEST_F(FiRma, a_fenced_message_is_behind_writes_that_wait_for_their_key) {
    open_rma();
    const Text text = text_of(2000);
    Text seen(1, '-');
    ASSERT_EQ(fi_trecv(b.ep.get(), seen.data(), 1, nullptr, FI_ADDR_UNSPEC, 5, 0, nullptr), 0);
    write(text, 0);
    tsendmsg("F", 5, FI_FENCE);
    next(b.rx);
    EXPECT_EQ(seen, "F");
    EXPECT_TRUE(holds(text, 0));
}

TEST_F(FiRma, a_message_does_not_pass_a_write_that_waits_for_its_key) {
    open_rma();
    const Text text = "no entry tells of it";
    Text seen(1, '-');
    ASSERT_EQ(fi_trecv(b.ep.get(), seen.data(), 1, nullptr, FI_ADDR_UNSPEC, 5, 0, nullptr), 0);
    ASSERT_EQ(fi_inject_write(a.ep.get(), text.data(), text.size(), to_b, at(0), key()), 0);
    EXPECT_EQ(fi_tinject(a.ep.get(), "M", 1, to_b, 5), -FI_EAGAIN);
    retry([&] { return fi_tinject(a.ep.get(), "M", 1, to_b, 5); });
    next(b.rx);
    EXPECT_TRUE(holds(text, 0));
}

TEST_F(FiRma, a_fenced_operation_is_behind_all_before_it) {
    open_rma();
    for (int round = 0; round < 20; ++round) {
        const Text text = text_of(1000 + static_cast<std::size_t>(round));
        write(text, 0);
        Text back(text.size(), '-');
        retry([&] { return call_msg(true, back, 0, FI_FENCE, &context); });
        const auto one = next(a.tx);
        const auto two = next(a.tx);
        EXPECT_EQ(one.flags | two.flags, kRead | kWrite);
        EXPECT_EQ(back, text);
    }
}

TEST_F(FiRma, a_fenced_operation_by_an_unknown_key_is_refused_by_its_call) {
    open_rma();
    Text text = "x";
    const iovec iov = {text.data(), text.size()};
    const fi_rma_iov remote = {0, 1, 1234};
    fi_msg_rma msg{};
    msg.msg_iov = &iov;
    msg.iov_count = 1;
    msg.addr = to_b;
    msg.rma_iov = &remote;
    msg.rma_iov_count = 1;
    ssize_t status = 0;
    run_until([&] { return (status = fi_writemsg(a.ep.get(), &msg, FI_FENCE)) != -FI_EAGAIN; });
    EXPECT_EQ(status, -FI_ENOKEY);
}

// ---- Size and number

TEST_F(FiRma, long_transfers_arrive_whole) {
    open_rma();
    constexpr std::size_t kLength = std::size_t{8} << 20;
    memory = Text(kLength, '\0');
    enter(kRemote, 55);
    const Text text = text_of(kLength);
    Owner<fid_mr> local;
    Text mine = text;
    ASSERT_EQ(enter_into(local, mine, FI_READ | FI_WRITE, 56), 0);
    retry([&] {
        return fi_writedata(a.ep.get(), mine.data(), kLength, fi_mr_desc(local.get()), 1, to_b,
                            at(0), key(), nullptr);
    });
    EXPECT_EQ(next(a.tx).flags, kWrite);
    EXPECT_EQ(next(b.rx).len, kLength);
    EXPECT_TRUE(memory == text);
    Text back(kLength, '-');
    read(back, 0);
    EXPECT_EQ(next(a.tx).flags, kRead);
    EXPECT_TRUE(back == text);
}

TEST_F(FiRma, many_operations_are_under_way_at_once) {
    open_rma();
    constexpr std::size_t kCount = 500;
    std::vector<Text> back(kCount, Text(8, '-'));
    for (std::size_t i = 0; i < kCount; ++i) {
        const Text text = text_of(8 + i % 100).substr(0, 8);
        writemsg(text, 8 * i, FI_DELIVERY_COMPLETE, &context);
    }
    for (std::size_t i = 0; i < kCount; ++i)
        EXPECT_EQ(next(a.tx).flags, kWrite);
    for (std::size_t i = 0; i < kCount; ++i)
        read(back[i], 8 * i, &back[i]);
    for (std::size_t i = 0; i < kCount; ++i)
        EXPECT_EQ(next(a.tx).flags, kRead);
    for (std::size_t i = 0; i < kCount; ++i)
        EXPECT_EQ(back[i], text_of(8 + i % 100).substr(0, 8));
    EXPECT_TRUE(is_empty(a.tx));
}

TEST_F(FiRma, thousands_of_operations_wait_for_one_key) {
    open_rma();
    constexpr std::size_t kCount = 3000;
    memory = Text(8 * kCount, '.');
    enter(kRemote, 66);
    Text written(8 * kCount, '.');
    for (std::size_t i = 0; i < kCount; ++i) {
        const Text text = text_of(8 + i % 101).substr(0, 8);
        written.replace(8 * i, 8, text);
        const iovec iov = {written.data() + 8 * i, 8};
        const fi_rma_iov remote = {at(8 * i), 8, key()};
        fi_msg_rma msg{};
        msg.msg_iov = &iov;
        msg.iov_count = 1;
        msg.addr = to_b;
        msg.rma_iov = &remote;
        msg.rma_iov_count = 1;
        msg.context = &context;
        ASSERT_EQ(fi_writemsg(a.ep.get(), &msg, FI_DELIVERY_COMPLETE), 0);
    }
    for (std::size_t i = 0; i < kCount; ++i)
        ASSERT_EQ(next(a.tx).op_context, &context);
    EXPECT_EQ(memory, written);
    EXPECT_TRUE(is_empty(a.tx));
}

TEST_F(FiRma, an_endpoint_that_closes_delivers_what_waits_for_its_key) {
    open_rma();
    const Text text = "last words";
    retry(
        [&] { return fi_inject_write(a.ep.get(), text.data(), text.size(), to_b, at(0), key()); });
    a.ep.reset();
    expect_held(text, 0);
}

TEST_F(FiRma, a_write_that_is_repeated_is_taken_though_nobody_reads) {
    open_rma({.cq_size = 4});
    write("first", 0);  // the key is known from now on
    next(a.tx);
    expect_taken_without_reading(
        [&] { return fi_write(a.ep.get(), "text", 4, nullptr, to_b, at(0), key(), nullptr); });
}

TEST_F(FiRma, threads_write_and_read_through_one_endpoint) {
    Wanted wanted;
    wanted.threading = FI_THREAD_SAFE;
    open_rma(wanted);
    constexpr int kRounds = 200;
    std::vector<std::thread> threads;
    for (std::size_t number = 0; number < 2; ++number)
        threads.emplace_back([&, number] {
            for (int i = 0; i < kRounds; ++i) {
                const Text text(8, static_cast<char>('a' + i % 26));
                while (fi_inject_write(a.ep.get(), text.data(), text.size(), to_b, at(8 * number),
                                       key()) == -FI_EAGAIN) {
                }
                fi_cq_read(b.rx.get(), nullptr, 0);
                fi_cq_read(a.tx.get(), nullptr, 0);
            }
        });
    for (auto& thread : threads)
        thread.join();
    const Text last(16, static_cast<char>('a' + (kRounds - 1) % 26));
    expect_held(last, 0);
}

}  // namespace

}  // namespace tagwire::fi_test
