// SPDX-License-Identifier: BSD-3-Clause
// Capabilities that are limited to some ways: FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ,
// FI_REMOTE_WRITE (fi_getinfo(3)).
#include <rdma/fi_atomic.h>

#include "rma_pair.hpp"

namespace tagwire::fi_test {

namespace {

constexpr std::uint64_t kKinds = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
constexpr std::uint64_t kTwoSided = FI_SEND | FI_RECV;
constexpr std::uint64_t kOneSided = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

struct Ways {
    std::uint64_t asked;
    std::uint64_t tx;  ///< In fi_tx_attr, kinds aside.
    std::uint64_t rx;
};

TEST(FiInfo, capabilities_are_limited_to_the_ways_that_are_asked_for) {
    const Ways all[] = {
        {FI_RMA | FI_READ, FI_READ, 0},
        {FI_RMA | FI_WRITE, FI_WRITE, 0},
        {FI_ATOMIC | FI_WRITE, FI_WRITE, 0},
        {FI_RMA | FI_READ | FI_REMOTE_WRITE, FI_READ, FI_REMOTE_WRITE},
        {FI_MSG | FI_SEND, FI_SEND, 0},
        {FI_TAGGED | FI_RECV, 0, FI_RECV},
        {FI_MSG | FI_RMA | FI_WRITE, FI_SEND | FI_WRITE, FI_RECV},
        {FI_MSG | FI_RMA | FI_RECV, FI_READ | FI_WRITE, FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE},
        // As other providers: who names the ways of the target only may begin
        // operations.
        {FI_RMA | FI_REMOTE_READ, FI_READ | FI_WRITE, FI_REMOTE_READ}};
    for (const Ways& ways : all) {
        const auto info = ask(hints_for(ways.asked).get());
        ASSERT_NE(info, nullptr);
        const std::uint64_t asked = ways.asked & (kTwoSided | kOneSided);
        EXPECT_EQ(info->caps & asked, asked);
        EXPECT_EQ(info->caps & kKinds, ways.asked & kKinds);
        EXPECT_EQ(info->tx_attr->caps & (kTwoSided | kOneSided), ways.tx) << std::hex << ways.asked;
        EXPECT_EQ(info->rx_attr->caps & (kTwoSided | kOneSided), ways.rx) << std::hex << ways.asked;
        EXPECT_NE(ask(info.get()), nullptr) << "an answer serves as hints";
    }
}

TEST(FiInfo, attributes_of_one_side_limit_it_further) {
    const auto hints = hints_for(FI_MSG | FI_TAGGED | FI_RMA);
    hints->tx_attr->caps = FI_TAGGED | FI_RMA | FI_READ;
    hints->rx_attr->caps = FI_MSG | FI_RECV;
    const auto info = ask(hints.get());
    ASSERT_NE(info, nullptr);
    constexpr std::uint64_t kAll = kKinds | kTwoSided | kOneSided;
    EXPECT_EQ(info->tx_attr->caps & kAll, FI_TAGGED | FI_RMA | FI_SEND | FI_READ);
    EXPECT_EQ(info->rx_attr->caps & kAll, std::uint64_t{FI_MSG | FI_RECV});
    hints->tx_attr->caps = FI_ATOMIC;
    EXPECT_EQ(ask(hints.get()), nullptr) << "not of the endpoint's";
}

TEST(FiInfo, ways_without_their_capability_have_no_answer) {
    for (const std::uint64_t caps :
         {FI_READ, FI_MSG | FI_WRITE, FI_TAGGED | FI_REMOTE_READ, FI_MSG | FI_REMOTE_WRITE,
          FI_MSG | FI_RMA_EVENT, FI_RMA | FI_WRITE | FI_RMA_EVENT})
        EXPECT_EQ(ask(hints_for(caps).get()), nullptr) << fi_tostr(&caps, FI_TYPE_CAPS);
}

class FiWays : public RmaPair {
  protected:
    void SetUp() override {
        Wanted wanted;
        wanted.caps |= FI_ATOMIC;
        open_rma(wanted);
    }
    void TearDown() override { limited.reset(); }

    /// Another endpoint on the queues of `a`, with these capabilities.
    void open_limited(std::uint64_t caps, bool has_queues = true) {
        limited.reset();
        const auto found = ask(hints_for(caps).get());
        ASSERT_NE(found, nullptr);
        fid_ep* ep = nullptr;
        ASSERT_EQ(fi_endpoint(domain.get(), found.get(), &ep, nullptr), 0);
        limited.reset(ep);
        ASSERT_EQ(fi_ep_bind(ep, &av->fid, 0), 0);
        if (has_queues) {
            ASSERT_EQ(fi_ep_bind(ep, &a.tx->fid, FI_TRANSMIT), 0);
            ASSERT_EQ(fi_ep_bind(ep, &a.rx->fid, FI_RECV), 0);
        }
        ASSERT_EQ(fi_enable(ep), 0);
        Name name;
        std::size_t length = name.size();
        ASSERT_EQ(fi_getname(&ep->fid, name.data(), &length), 0);
        ASSERT_EQ(fi_av_insert(av.get(), name.data(), 1, &to_limited, 0, nullptr), 1);
    }
    void expect_refused(bool is_refused, const std::function<ssize_t()>& call) {
        ssize_t status = -FI_EAGAIN;
        run_until([&] { return (status = call()) != -FI_EAGAIN; });
        EXPECT_EQ(status, is_refused ? -FI_EOPNOTSUPP : 0);
        if (!is_refused)
            ++begun_;
    }
    /// Every call of messages, tagged or not.
    void expect_messages(bool sends, bool receives) {
        fid_ep* const ep = limited.get();
        iovec iov = {out_, sizeof out_};
        fi_msg msg{};
        msg.msg_iov = &iov;
        msg.iov_count = 1;
        msg.addr = to_b;
        fi_msg_tagged tagged{};
        tagged.msg_iov = &iov;
        tagged.iov_count = 1;
        tagged.addr = to_b;
        const std::function<ssize_t()> all_sends[] = {
            [&] { return fi_send(ep, out_, 8, nullptr, to_b, nullptr); },
            [&] { return fi_sendv(ep, &iov, nullptr, 1, to_b, nullptr); },
            [&] { return fi_sendmsg(ep, &msg, 0); },
            [&] { return fi_inject(ep, out_, 8, to_b); },
            [&] { return fi_senddata(ep, out_, 8, nullptr, 1, to_b, nullptr); },
            [&] { return fi_injectdata(ep, out_, 8, 1, to_b); },
            [&] { return fi_tsend(ep, out_, 8, nullptr, to_b, 1, nullptr); },
            [&] { return fi_tsendv(ep, &iov, nullptr, 1, to_b, 1, nullptr); },
            [&] { return fi_tsendmsg(ep, &tagged, 0); },
            [&] { return fi_tinject(ep, out_, 8, to_b, 1); },
            [&] { return fi_tsenddata(ep, out_, 8, nullptr, 1, to_b, 1, nullptr); },
            [&] { return fi_tinjectdata(ep, out_, 8, 1, to_b, 1); }};
        for (const auto& call : all_sends)
            expect_refused(!sends, call);
        msg.addr = tagged.addr = FI_ADDR_UNSPEC;
        const std::function<ssize_t()> all_receives[] = {
            [&] { return fi_recv(ep, in_, 8, nullptr, FI_ADDR_UNSPEC, nullptr); },
            [&] { return fi_recvv(ep, &iov, nullptr, 1, FI_ADDR_UNSPEC, nullptr); },
            [&] { return fi_recvmsg(ep, &msg, 0); },
            [&] { return fi_trecv(ep, in_, 8, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr); },
            [&] { return fi_trecvv(ep, &iov, nullptr, 1, FI_ADDR_UNSPEC, 1, 0, nullptr); },
            [&] { return fi_trecvmsg(ep, &tagged, 0); }};
        for (const auto& call : all_receives)
            expect_refused(!receives, call);
    }
    void expect_rma(bool reads, bool writes) {
        fid_ep* const ep = limited.get();
        iovec iov = {out_, sizeof out_};
        const fi_rma_iov remote = {at(0), sizeof out_, key()};
        fi_msg_rma msg{};
        msg.msg_iov = &iov;
        msg.iov_count = 1;
        msg.addr = to_b;
        msg.rma_iov = &remote;
        msg.rma_iov_count = 1;
        const std::function<ssize_t()> all_reads[] = {
            [&] { return fi_read(ep, in_, 8, nullptr, to_b, at(0), key(), nullptr); },
            [&] { return fi_readv(ep, &iov, nullptr, 1, to_b, at(0), key(), nullptr); },
            [&] { return fi_readmsg(ep, &msg, 0); }};
        for (const auto& call : all_reads)
            expect_refused(!reads, call);
        const std::function<ssize_t()> all_writes[] = {
            [&] { return fi_write(ep, out_, 8, nullptr, to_b, at(0), key(), nullptr); },
            [&] { return fi_writev(ep, &iov, nullptr, 1, to_b, at(0), key(), nullptr); },
            [&] { return fi_writemsg(ep, &msg, 0); },
            [&] { return fi_inject_write(ep, out_, 8, to_b, at(0), key()); },
            [&] { return fi_writedata(ep, out_, 8, nullptr, 1, to_b, at(0), key(), nullptr); },
            [&] { return fi_inject_writedata(ep, out_, 8, 1, to_b, at(0), key()); }};
        for (const auto& call : all_writes)
            expect_refused(!writes, call);
    }
    ssize_t fetch(fid_ep* ep, fi_op op, fi_addr_t to) {
        return fi_fetch_atomic(ep, out_, 1, nullptr, in_, nullptr, to, at(0), key(), FI_UINT64, op,
                               nullptr);
    }
    void expect_atomics(bool reads, bool writes) {
        fid_ep* const ep = limited.get();
        expect_refused(!writes, [&] {
            return fi_atomic(ep, out_, 1, nullptr, to_b, at(0), key(), FI_UINT64, FI_SUM, nullptr);
        });
        expect_refused(!writes, [&] {
            return fi_inject_atomic(ep, out_, 1, to_b, at(0), key(), FI_UINT64, FI_SUM);
        });
        expect_refused(!reads || !writes, [&] { return fetch(ep, FI_SUM, to_b); });
        expect_refused(!reads, [&] { return fetch(ep, FI_ATOMIC_READ, to_b); });
    }

    Owner<fid_ep> limited;
    fi_addr_t to_limited = FI_ADDR_NOTAVAIL;

  private:
    char out_[8] = {};
    char in_[8] = {};
    int begun_ = 0;
};

TEST_F(FiWays, a_sender_does_not_receive) {
    open_limited(FI_MSG | FI_TAGGED | FI_SEND);
    expect_messages(true, false);
    expect_rma(false, false);
    expect_atomics(false, false);
}

TEST_F(FiWays, a_receiver_does_not_send) {
    open_limited(FI_MSG | FI_TAGGED | FI_RECV);
    expect_messages(false, true);
}

TEST_F(FiWays, who_reads_does_not_write) {
    open_limited(FI_RMA | FI_ATOMIC | FI_READ);
    expect_messages(false, false);
    expect_rma(true, false);
    expect_atomics(true, false);
}

TEST_F(FiWays, who_writes_does_not_read) {
    open_limited(FI_RMA | FI_ATOMIC | FI_WRITE);
    expect_rma(false, true);
    expect_atomics(false, true);
}

TEST_F(FiWays, each_kind_is_limited_by_itself) {
    open_limited(FI_MSG | FI_TAGGED | FI_RMA | FI_WRITE);
    expect_messages(true, true);
    expect_rma(false, true);
    expect_atomics(false, false);
}

TEST_F(FiWays, a_target_with_a_queue_begins_operations_as_with_other_providers) {
    open_limited(FI_RMA | FI_REMOTE_READ);
    expect_rma(true, true);
    open_limited(FI_RMA | FI_REMOTE_READ, false);
    expect_rma(false, false);
}

/// The rights that a region gives are limited to those of the endpoint that peers reach it by.
TEST_F(FiWays, an_endpoint_is_the_target_of_what_it_has_asked_for) {
    struct Target {
        std::uint64_t caps;
        bool is_read;
        bool is_written;
        bool is_changed;  ///< By atomics.
    };
    const Target targets[] = {{FI_RMA | FI_ATOMIC, true, true, true},
                              {FI_RMA | FI_ATOMIC | FI_REMOTE_READ, true, false, false},
                              {FI_RMA | FI_ATOMIC | FI_REMOTE_WRITE, false, true, true},
                              {FI_RMA | FI_ATOMIC | FI_WRITE | FI_READ, false, false, false},
                              {FI_ATOMIC, false, false, true},
                              {FI_MSG, false, false, false}};
    for (const Target& target : targets) {
        SCOPED_TRACE(fi_tostr(&target.caps, FI_TYPE_CAPS));
        open_limited(target.caps);
        Text text = text_of(8);
        const auto expect_end = [&](bool is_allowed) {
            const int error = is_allowed ? 0 : next_error(b.tx).err;
            EXPECT_EQ(error, is_allowed ? 0 : FI_EACCES);
            if (is_allowed) {
                EXPECT_NE(next(b.tx).flags, 0U);
            }
        };
        fid_ep* const ep = b.ep.get();
        retry([&] {
            return fi_read(ep, text.data(), 8, nullptr, to_limited, at(0), key(), nullptr);
        });
        expect_end(target.is_read);
        retry([&] {
            return fi_write(ep, text.data(), 8, nullptr, to_limited, at(0), key(), nullptr);
        });
        expect_end(target.is_written);
        retry([&] {
            return fi_atomic(ep, text.data(), 1, nullptr, to_limited, at(0), key(), FI_UINT64,
                             FI_SUM, nullptr);
        });
        expect_end(target.is_changed);
    }
}

}  // namespace

}  // namespace tagwire::fi_test
