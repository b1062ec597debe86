// SPDX-License-Identifier: BSD-3-Clause
// fi_cancel() of one-sided and atomic operations (fi_endpoint(3)).
#include <rdma/fi_atomic.h>

#include "atomic_pair.hpp"
#include "rma_pair.hpp"

namespace tagwire::fi_test {

namespace {

constexpr std::uint64_t kWritten = FI_RMA | FI_WRITE;

/// An operation waits for its key until the peer progresses, which it does in run_some() only.
class FiCancel : public RmaPair {
  protected:
    void SetUp() override {
        Wanted wanted;
        wanted.has_rma_counters = true;
        open_rma(wanted);
    }
    ssize_t try_write(const void* from, std::size_t length, void* context, std::size_t offset = 0) {
        return fi_write(a.ep.get(), from, length, nullptr, to_b, at(offset), key(), context);
    }
    int cancel(void* context) { return static_cast<int>(fi_cancel(&a.ep->fid, context)); }
    void expect_canceled(const void* context, std::uint64_t flags = kWritten) {
        const auto error = next_error(a.tx);
        EXPECT_EQ(error.err, FI_ECANCELED);
        EXPECT_EQ(error.op_context, context);
        EXPECT_EQ(error.flags, flags);
    }
    /// `count` operations have ended, each once, whichever way.
    void expect_ends(std::size_t count) {
        std::size_t ended = 0;
        run_until([&] {
            fi_cq_tagged_entry entry{};
            fi_cq_err_entry error{};
            const ssize_t got = fi_cq_read(a.tx.get(), &entry, 1);
            if (got == -FI_EAVAIL) {
                EXPECT_EQ(fi_cq_readerr(a.tx.get(), &error, 0), 1);
                EXPECT_EQ(error.err, FI_ECANCELED);
            }
            ended += got == 1 || got == -FI_EAVAIL ? 1 : 0;
            return ended == count;
        });
        EXPECT_TRUE(is_empty(a.tx));
    }

    const Text before = text_of(4096);
    int contexts[3] = {};
};

TEST_F(FiCancel, a_write_that_waits_for_its_key_is_cancelled_once) {
    ASSERT_EQ(try_write("late", 4, contexts), 0);
    EXPECT_EQ(cancel(contexts), 0);
    expect_canceled(contexts);
    EXPECT_EQ(cancel(contexts), -FI_ENOENT);
    EXPECT_TRUE(is_empty(a.tx));
    EXPECT_EQ(memory, before);
    EXPECT_EQ(fi_cntr_read(a.writes.get()), 0U);
    EXPECT_EQ(fi_cntr_readerr(a.writes.get()), 1U);
    write("after", 9, &contexts[1]);
    EXPECT_EQ(next(a.tx).op_context, &contexts[1]);
    expect_held("after", 9);
}

TEST_F(FiCancel, a_read_that_waits_for_its_key_is_cancelled) {
    Text text(8, '-');
    ASSERT_EQ(fi_read(a.ep.get(), text.data(), 8, nullptr, to_b, at(0), key(), contexts), 0);
    EXPECT_EQ(cancel(contexts), 0);
    expect_canceled(contexts, FI_RMA | FI_READ);
    EXPECT_TRUE(is_empty(a.tx));
    EXPECT_EQ(text, "--------");
}

TEST_F(FiCancel, the_others_that_wait_for_a_key_go_on) {
    for (int cancelled = 0; cancelled < 3; ++cancelled) {
        memory = Text(4096, '-');
        enter(kRemote, 70 + static_cast<std::uint64_t>(cancelled));
        for (std::size_t i = 0; i < 3; ++i)
            ASSERT_EQ(try_write(&"abc"[i], 1, &contexts[i], 9 * i), 0);
        EXPECT_EQ(cancel(&contexts[cancelled]), 0);
        expect_canceled(&contexts[cancelled]);
        for (int i = 0; i < 3; ++i)
            if (i != cancelled) {
                EXPECT_EQ(next(a.tx).op_context, &contexts[i]);
                expect_held({"abc"[i]}, 9 * static_cast<std::size_t>(i));
            }
        EXPECT_TRUE(is_empty(a.tx));
    }
}

TEST_F(FiCancel, one_of_several_of_one_context_is_cancelled) {
    for (int i = 0; i < 2; ++i)
        ASSERT_EQ(try_write("x", 1, contexts), 0);
    EXPECT_EQ(cancel(contexts), 0);
    expect_canceled(contexts);
    EXPECT_EQ(next(a.tx).op_context, contexts);
    EXPECT_EQ(cancel(contexts), -FI_ENOENT);
}

TEST_F(FiCancel, a_list_that_waits_for_its_second_key_is_cancelled_as_a_whole) {
    Text more(64, '.');
    Owner<fid_mr> second;
    ASSERT_EQ(enter_into(second, more, kRemote, 8), 0);
    write("known", 0);
    EXPECT_EQ(next(a.tx).flags, kWritten);
    Text text = text_of(8);
    const iovec iov = {text.data(), 8};
    const fi_rma_iov remote[] = {{at(0), 4, key()}, {0, 4, 8}};
    fi_msg_rma msg{};
    msg.msg_iov = &iov;
    msg.iov_count = 1;
    msg.addr = to_b;
    msg.rma_iov = remote;
    msg.rma_iov_count = 2;
    msg.context = contexts;
    ASSERT_EQ(fi_writemsg(a.ep.get(), &msg, 0), 0);
    EXPECT_EQ(cancel(contexts), 0);
    expect_canceled(contexts);
    EXPECT_TRUE(is_empty(a.tx));
    EXPECT_EQ(more, Text(64, '.'));
}

TEST_F(FiCancel, what_has_ended_stays_as_it_has_ended) {
    write("ended", 0, contexts);
    run_some();
    EXPECT_EQ(cancel(contexts), -FI_ENOENT);
    EXPECT_EQ(next(a.tx).op_context, contexts);
    EXPECT_TRUE(is_empty(a.tx));
}

TEST_F(FiCancel, an_operation_without_a_context_is_not_cancelled) {
    ASSERT_EQ(try_write("x", 1, nullptr), 0);
    EXPECT_EQ(cancel(nullptr), -FI_ENOENT);
    EXPECT_EQ(next(a.tx).flags, kWritten);
}

TEST_F(FiCancel, messages_and_fences_go_on_behind_a_cancelled_write) {
    ASSERT_EQ(try_write("x", 1, contexts), 0);
    Text text(5, '-');
    ASSERT_EQ(fi_recv(b.ep.get(), text.data(), 5, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
    EXPECT_EQ(fi_inject(a.ep.get(), "first", 5, to_b), -FI_EAGAIN) << "it passes no write";
    ASSERT_EQ(cancel(contexts), 0);
    expect_canceled(contexts);
    retry([&] { return fi_inject(a.ep.get(), "first", 5, to_b); });
    next(b.rx);
    EXPECT_EQ(text, "first");
    writemsg("fenced", 9, FI_FENCE | FI_DELIVERY_COMPLETE);
    EXPECT_EQ(next(a.tx).flags, kWritten);
    EXPECT_TRUE(holds("fenced", 9));
}

/// Operations that are on their way end once, cancelled or not, and never twice.
TEST_F(FiCancel, operations_on_their_way_end_once) {
    memory = text_of(1 << 20);
    enter(kRemote);
    write("known", 0);
    EXPECT_EQ(next(a.tx).flags, kWritten);
    const Text text = text_of(1 << 20);
    Text got(1 << 20, '-');
    std::array<int, 64> marks{};
    std::size_t begun = 0;
    for (int& mark : marks) {
        const bool is_read = &mark - marks.data() > 31;
        const ssize_t status = is_read ? fi_read(a.ep.get(), got.data(), got.size(), nullptr, to_b,
                                                 at(0), key(), &mark)
                                       : try_write(text.data(), text.size(), &mark);
        ASSERT_TRUE(status == 0 || status == -FI_EAGAIN);
        begun += status == 0 ? 1 : 0;
    }
    for (int& mark : marks) {
        const int status = cancel(&mark);
        EXPECT_TRUE(status == 0 || status == -FI_ENOENT) << status;
    }
    expect_ends(begun);
}

class FiCancelAtomics : public AtomicPair {};

TEST_F(FiCancelAtomics, an_atomic_operation_ends_at_once_and_leaves_its_results_alone) {
    open_with();
    std::array<std::uint64_t, 2> memory = {5, 6};
    add_region(memory);
    const std::uint64_t one = 1;
    std::uint64_t result = 99;
    const auto fetch = [&](void* context) {
        return fi_fetch_atomic(a.ep.get(), &one, 1, nullptr, &result, nullptr, to_b, 0, kKey,
                               FI_UINT64, FI_SUM, context);
    };
    ASSERT_EQ(fetch(&contexts_[0]), 0);
    ASSERT_EQ(fi_cancel(&a.ep->fid, &contexts_[0]), 0);
    expect_error(FI_ECANCELED, &contexts_[0]);
    EXPECT_EQ(fi_cancel(&a.ep->fid, &contexts_[0]), -FI_ENOENT);
    EXPECT_TRUE(is_empty(a.tx));
    EXPECT_EQ(result, 99U);
    retry([&] { return fetch(&contexts_[1]); });
    expect_entry(FI_READ, &contexts_[1]);
    EXPECT_EQ(result, memory[0] - 1);
    EXPECT_EQ(fi_cancel(&a.ep->fid, &contexts_[1]), -FI_ENOENT);
}

}  // namespace

}  // namespace tagwire::fi_test
