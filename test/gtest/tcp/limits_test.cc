// SPDX-License-Identifier: BSD-3-Clause
// Peers that keep to the protocol and ask for as much as they may, and more than they wait for.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <vector>

#include "operations.hpp"
#include "stranger.hpp"
#include "uct/tcp/limits.hpp"

namespace tagwire::test {
namespace {

using tcp::Kind;
using tcp::kRequestsMax;

EntityOptions small_sockets() {
    EntityOptions options;
    options.iface_config = {{"TCP_SNDBUF", "16k"}, {"TCP_RCVBUF", "16k"}};
    return options;
}

/// Memory of `owner`, and a reader of it.
class TcpLimits : public ::testing::TestWithParam<std::size_t> {
  protected:
    explicit TcpLimits(const EntityOptions& options = {})
        : reader(loopback_of_tcp(), options),
          owner(loopback_of_tcp(), options),
          remote(owner, tcp::kFrameDataMax * 3, Backing::kRegistered),
          local(reader, tcp::kFrameDataMax * 3, Backing::kRegistered),
          key(reader, remote.packed_rkey()) {
        link = connect(reader, owner);
        expect_exchange(reader, link.forward, owner);
        fill_pattern(remote.span(), 1);
    }
    void TearDown() override {
        expect_exchange(reader, link.forward, owner);
        for (const Entity* each : {&reader, &owner}) {
            EXPECT_TRUE(each->errors.empty());
            EXPECT_EQ(0U, counter_of(*each, "violations"));
        }
    }
    ucs_status_t get(uct_ep_h ep, std::size_t bytes, Completion& completion) {
        const uct_iov_t iov = local.iov(0, bytes);
        return uct_ep_get_zcopy(ep, &iov, 1, remote.address(), key.get(), &completion);
    }

    Entity reader;
    Entity owner;
    Buffer remote;
    Buffer local;
    RemoteKey key;
    Connection link;
};

TEST_P(TcpLimits, as_many_gets_as_may_be_under_way_all_end_well) {
    std::vector<std::unique_ptr<Completion>> begun;
    for (;;) {
        auto completion = std::make_unique<Completion>();
        if (get(link.forward, GetParam(), *completion) != UCS_INPROGRESS)
            break;
        begun.push_back(std::move(completion));
    }
    EXPECT_EQ(kRequestsMax, begun.size());
    EXPECT_TRUE(steps_until({&reader, &owner}, [&] {
        return std::ranges::all_of(begun, [](const auto& each) { return each->calls > 0; });
    }));
    for (const auto& each : begun) {
        ASSERT_EQ(1, each->calls);
        ASSERT_EQ(UCS_OK, each->ended);
    }
    EXPECT_EQ(GetParam(), first_mismatch(local.span().first(GetParam()), 1));
}

// The reader looks at nothing meanwhile, so that replies pile up at the owner.
TEST_P(TcpLimits, gets_that_are_cancelled_count_until_they_are_replied_to) {
    std::size_t begun = 0;
    for (int round = 0; round < 20; ++round) {
        std::vector<std::unique_ptr<Completion>> completions;
        Connection more = connect(reader, owner);
        for (;; ++begun) {
            completions.push_back(std::make_unique<Completion>());
            if (get(more.forward, GetParam(), *completions.back()) != UCS_INPROGRESS)
                break;
        }
        more.forward.reset();
        completions.pop_back();
        for (const auto& each : completions)
            ASSERT_EQ(UCS_ERR_CANCELED, each->ended);
        for (int i = 0; i < 200; ++i)
            owner.progress();
    }
    EXPECT_EQ(kRequestsMax, begun);
    // Once it looks, there is room again.
    for (int round = 0; round < 5; ++round) {
        std::vector<std::unique_ptr<Completion>> completions;
        for (std::uint32_t i = 0; i < kRequestsMax; ++i) {
            completions.push_back(std::make_unique<Completion>());
            ASSERT_TRUE(steps_until({&reader, &owner}, [&] {
                return get(link.forward, 1, *completions.back()) == UCS_INPROGRESS;
            }));
        }
        ASSERT_TRUE(steps_until({&reader, &owner}, [&] {
            return std::ranges::all_of(completions,
                                       [](const auto& each) { return each->ended == UCS_OK; });
        }));
    }
}

INSTANTIATE_TEST_SUITE_P(Lengths, TcpLimits,
                         ::testing::Values(1, 4096, tcp::kCopiedGetMax, tcp::kCopiedGetMax + 1));

class TcpRendezvousLimits : public TcpLimits {
  protected:
    TcpRendezvousLimits() : TcpLimits(small_sockets()) {}
};

// The owner of receives asks for data that its sender does not want to send any more.
TEST_F(TcpRendezvousLimits, rendezvous_that_are_cancelled_over_and_over_end_no_connection) {
    constexpr std::size_t kReceives = 8 * kRequestsMax;
    std::vector<std::unique_ptr<Receive>> receives;
    for (std::size_t i = 0; i < kReceives; ++i) {
        receives.push_back(std::make_unique<Receive>(owner, 64));
        ASSERT_EQ(UCS_OK, receives.back()->post(7));
    }
    const uct_iov_t iov = local.iov(0, 64);
    for (std::size_t sent = 0; sent < kReceives;) {
        Completion completion;
        const ucs_status_ptr_t op =
            uct_ep_tag_rndv_zcopy(link.forward, 7, nullptr, 0, &iov, 1, 0, &completion);
        if (UCS_PTR_IS_ERR(op)) {
            ASSERT_EQ(UCS_ERR_NO_RESOURCE, UCS_PTR_STATUS(op));
            for (int i = 0; i < 20; ++i)
                owner.progress();
            reader.progress();
            continue;
        }
        ++sent;
        ASSERT_EQ(UCS_OK, uct_ep_tag_rndv_cancel(link.forward, op));
    }
    ASSERT_TRUE(steps_until({&reader, &owner}, [&] {
        return std::ranges::all_of(receives, [](const auto& each) { return each->completed == 1; });
    }));
    for (const auto& each : receives)
        ASSERT_EQ(UCS_ERR_CANCELED, each->status);
}

// A peer that puts and never reads: it learns once that its puts fail, not 24 bytes for each.
TEST(TcpPuts, that_fail_are_reported_once_while_the_report_waits) {
    Entity victim(loopback_of_tcp(), small_sockets());
    Stranger stranger(victim);
    ASSERT_EQ(tcp::Verdict::kWelcome, stranger.greet());
    constexpr std::size_t kFrame = tcp::frame_bytes<tcp::PutBody>(8);
    Bytes frames(500 * kFrame);
    for (std::size_t at = 0; at < frames.size(); at += kFrame)
        tcp::put_frame(&frames[at], Kind::kPut, 0, tcp::PutBody{0, 0x1000, {0, 0, 1}}, 8);
    constexpr std::size_t kRounds = 200;  // replies to each would be 2.4 MB
    for (std::size_t i = 0; i < kRounds; ++i)
        stranger.send(frames.data(), frames.size());
    constexpr std::uint64_t kFlush = 77;
    stranger.send_frame(Kind::kFlushRequest, 0, tcp::FlushRequestBody{kFlush});
    struct {
        tcp::FrameHead head;
        tcp::DoneBody body;
    } done{};
    std::size_t reports = 0;
    EXPECT_TRUE(steps_until({&victim}, [&] {
        const bool is_there =
            ::recv(stranger.fd(), &done, sizeof done, MSG_DONTWAIT) == ssize_t{sizeof done};
        reports += is_there && done.body.op == 0 ? 1 : 0;
        return is_there && done.body.op == kFlush;
    }));
    EXPECT_GE(reports, 1U);
    EXPECT_LT(reports, kRounds * 500 / 10);
    EXPECT_EQ(0U, counter_of(victim, "violations"));
}

TEST_F(TcpRendezvousLimits, a_long_put_that_fails_is_told_by_its_completion_alone) {
    auto target = std::make_unique<Buffer>(owner, tcp::kFrameDataMax * 3, Backing::kRegistered);
    const RemoteKey ended(reader, target->packed_rkey());
    const std::uint64_t address = target->address();
    target.reset();
    const uct_iov_t iov = local.iov();
    Completion completion;
    ASSERT_EQ(UCS_INPROGRESS,
              uct_ep_put_zcopy(link.forward, &iov, 1, address, ended.get(), &completion));
    ASSERT_TRUE(steps_until({&reader, &owner}, [&] { return completion.calls > 0; }));
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, completion.ended);
    ucs_status_t flushed = UCS_INPROGRESS;
    ASSERT_TRUE(steps_until({&reader, &owner}, [&] {
        flushed = uct_ep_flush(link.forward, UCT_FLUSH_FLAG_LOCAL, nullptr);
        return flushed != UCS_INPROGRESS;
    }));
    EXPECT_EQ(UCS_OK, flushed);
    EXPECT_EQ(1, completion.calls);
}

}  // namespace
}  // namespace tagwire::test
