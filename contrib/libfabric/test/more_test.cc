// SPDX-License-Identifier: BSD-3-Clause
// FI_MORE: over tcp what has more behind it is written by the call that has none. System calls are
// counted (libwrites.so).
#include <dlfcn.h>
#include <rdma/fi_atomic.h>

#include <algorithm>

#include "rma_pair.hpp"

namespace tagwire::fi_test {

namespace {

constexpr unsigned kBurst = 64;

class FiMore : public RmaPair {
  protected:
    void SetUp() override {
        writes_ = reinterpret_cast<unsigned long (*)()>(dlsym(RTLD_DEFAULT, "tagwire_writes"));
        if (writes_ == nullptr)
            GTEST_SKIP() << "libwrites.so is not preloaded";
    }
    void open_known(std::uint64_t tx_op_flags = 0) {
        Wanted wanted;
        wanted.caps |= FI_ATOMIC;
        wanted.tx_op_flags = tx_op_flags;
        open_rma(wanted);
        // The key is known, and nothing is on its way.
        write("known", 0);
        next(a.tx);
        run_some();
    }
    /// System calls of a burst by `call(has_more)`; all of it ends.
    unsigned long writes_of(const std::function<ssize_t(bool has_more)>& call) {
        const unsigned long before = writes_();
        unsigned ended = 0;
        for (unsigned i = 0; i < kBurst; ++i)
            EXPECT_EQ(call(i + 1 < kBurst), 0) << i;
        const unsigned long count = writes_() - before;
        run_until([&] {
            fi_cq_tagged_entry entry{};
            ended += fi_cq_read(a.tx.get(), &entry, 1) == 1 ? 1 : 0;
            return ended == kBurst;
        });
        return count;
    }
    ssize_t send(std::uint64_t flags) {
        const iovec iov = {words_, sizeof words_[0]};
        fi_msg msg{};
        msg.msg_iov = &iov;
        msg.iov_count = 1;
        msg.addr = to_b;
        return fi_sendmsg(a.ep.get(), &msg, flags | FI_COMPLETION);
    }
    ssize_t tsend(std::uint64_t flags) {
        const iovec iov = {words_, sizeof words_[0]};
        fi_msg_tagged msg{};
        msg.msg_iov = &iov;
        msg.iov_count = 1;
        msg.addr = to_b;
        msg.tag = 1;
        return fi_tsendmsg(a.ep.get(), &msg, flags | FI_COMPLETION);
    }
    ssize_t atomic(std::uint64_t flags) {
        const fi_ioc operand = {words_, 1};
        const fi_rma_ioc target = {at(0), 1, key()};
        fi_msg_atomic msg{};
        msg.msg_iov = &operand;
        msg.iov_count = 1;
        msg.addr = to_b;
        msg.rma_iov = &target;
        msg.rma_iov_count = 1;
        msg.datatype = FI_UINT64;
        msg.op = FI_SUM;
        return fi_atomicmsg(a.ep.get(), &msg, flags | FI_COMPLETION);
    }
    ssize_t one_sided(bool is_read, std::uint64_t flags) {
        return call_msg(is_read, word_, 0, flags | FI_COMPLETION);
    }

    static constexpr unsigned long kFew = 4;

    unsigned long (*writes_)() = nullptr;
    std::uint64_t words_[1] = {1};
    Text word_ = Text(8, 'w');
};

std::uint64_t more_if(bool has_more) {
    return has_more ? std::uint64_t{FI_MORE} : 0;
}

TEST_F(FiMore, sends_with_more_behind_them_share_system_calls) {
    open_known();
    EXPECT_GE(writes_of([&](bool) { return send(0); }), kBurst);
    EXPECT_LE(writes_of([&](bool has_more) { return send(more_if(has_more)); }), kFew);
    EXPECT_GE(writes_of([&](bool) { return tsend(0); }), kBurst);
    EXPECT_LE(writes_of([&](bool has_more) { return tsend(more_if(has_more)); }), kFew);
}

TEST_F(FiMore, one_sided_operations_with_more_behind_them_share_system_calls) {
    open_known();
    EXPECT_GE(writes_of([&](bool) { return one_sided(false, 0); }), kBurst);
    EXPECT_LE(writes_of([&](bool has_more) { return one_sided(false, more_if(has_more)); }), kFew);
    EXPECT_GE(writes_of([&](bool) { return one_sided(true, 0); }), kBurst);
    EXPECT_LE(writes_of([&](bool has_more) { return one_sided(true, more_if(has_more)); }), kFew);
    EXPECT_GE(writes_of([&](bool) { return atomic(0); }), kBurst);
    EXPECT_LE(writes_of([&](bool has_more) { return atomic(more_if(has_more)); }), kFew);
}

TEST_F(FiMore, a_default_of_the_endpoint_counts_until_the_program_progresses) {
    open_known(FI_MORE);
    EXPECT_LE(writes_of([&](bool) {
                  return fi_tsend(a.ep.get(), words_, sizeof words_[0], nullptr, to_b, 1, nullptr);
              }),
              kFew);
    EXPECT_LE(writes_of([&](bool) {
                  return fi_write(a.ep.get(), word_.data(), word_.size(), nullptr, to_b, at(0),
                                  key(), nullptr);
              }),
              kFew);
}

// Its pieces are operations of their own, and each but the last has more behind it.
TEST_F(FiMore, an_operation_on_many_pieces_of_memory_is_written_at_once) {
    open_known();
    constexpr std::size_t kPieces = 16;
    Text text = text_of(8 * kPieces);
    const iovec iov = {text.data(), text.size()};
    std::array<fi_rma_iov, kPieces> remote;
    for (std::size_t i = 0; i < kPieces; ++i)
        remote[i] = {at(16 * i), 8, key()};
    fi_msg_rma msg{};
    msg.msg_iov = &iov;
    msg.iov_count = 1;
    msg.addr = to_b;
    msg.rma_iov = remote.data();
    msg.rma_iov_count = kPieces;
    const unsigned long before = writes_();
    EXPECT_EQ(fi_writemsg(a.ep.get(), &msg, FI_COMPLETION), 0);
    EXPECT_LE(writes_() - before, kFew);
    EXPECT_EQ(next(a.tx).flags, FI_RMA | FI_WRITE);
    expect_held(text.substr(120, 8), 240);
}

}  // namespace

}  // namespace tagwire::fi_test
