// SPDX-License-Identifier: BSD-3-Clause
// An endpoint is closed by force while its peer is there but does not receive: its requests would
// be under way for ever, where others have requests, too. And the order in which what is under way
// ends.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "buffer.hpp"
#include "entity.hpp"
#include "operations.hpp"

namespace tagwire::test {
namespace {

struct Sharing {
    const char* name;
    const char* policy;
    const char* streams;
};

EntityOptions options_of(const Sharing& sharing) {
    EntityOptions options;
    // Retries of a dead peer would take 0.8 s; so does the end of what is stuck, and a second.
    options.iface_config = {
        {"DC_POLICY", sharing.policy}, {"DC_DCIS", "1"},        {"DC_STREAMS", sharing.streams},
        {"DC_TIMEOUT", "67ms"},        {"DC_RETRY_COUNT", "2"}, {"DC_RX_DEPTH", "2"},
        {"DC_RNDV_MAX", "1"}};
    return options;
}

class DcClose : public ::testing::TestWithParam<Sharing> {
  protected:
    /// Steps of at least a microsecond: more than a minute.
    static constexpr int kStepsMax = 100'000'000;

    template <class Done>
    static bool until(Entity& entity, Done&& done) {
        for (int i = 0; i < kStepsMax; ++i) {
            if (done())
                return true;
            entity.progress();
        }
        return false;
    }
    /// As many messages as are taken.
    static int fill(Entity& entity, uct_ep_h ep) {
        int taken = 0;
        for (int refused = 0; refused < 100; entity.progress()) {
            const ucs_status_t status = uct_ep_am_short(ep, Entity::kAmId, 0, nullptr, 0);
            taken += status == UCS_OK ? 1 : 0;
            refused += status == UCS_OK ? 0 : 1;
        }
        return taken;
    }
};

TEST_P(DcClose, what_is_stuck_ends_and_the_dci_serves_others) {
    const Resource& resource = resource_of("dc");
    Entity sender(resource, options_of(GetParam()));
    Entity stuck(resource, options_of(GetParam()));  // nobody progresses it
    Entity peer(resource, options_of(GetParam()));
    Connection to_stuck = connect(sender, stuck);
    ASSERT_LT(2, fill(sender, to_stuck.forward)) << "more than it has buffers for";

    Completion closed;
    ASSERT_EQ(UCS_INPROGRESS, uct_ep_flush(to_stuck.forward, UCT_FLUSH_FLAG_CANCEL, &closed));
    ASSERT_TRUE(until(sender, [&] { return closed.calls == 1; }));
    EXPECT_EQ(UCS_OK, closed.ended);
    EXPECT_NE(UCS_OK, uct_ep_am_short(to_stuck.forward, Entity::kAmId, 0, nullptr, 0));

    Connection to_peer = connect(sender, peer);
    for (std::uint64_t i = 0; i < 1000; ++i) {
        ASSERT_TRUE(until(sender, [&] {
            peer.progress();
            return uct_ep_am_short(to_peer.forward, Entity::kAmId, i, nullptr, 0) == UCS_OK;
        }));
    }
    EXPECT_TRUE(until(sender, [&] {
        peer.progress();
        return peer.am_count == 1000;
    }));
    EXPECT_TRUE(sender.errors.empty()) << "one that was closed tells of no failure";
}

// Nobody can say what of theirs was carried out.
TEST_P(DcClose, whoever_is_stuck_there_too_fails_once) {
    const Resource& resource = resource_of("dc");
    Entity sender(resource, options_of(GetParam()));
    Entity stuck(resource, options_of(GetParam()));
    Connection one = connect(sender, stuck);
    Connection other = connect(sender, stuck);
    ASSERT_LT(2, fill(sender, one.forward));
    fill(sender, other.forward);
    const bool has_requests = fact_of(other.forward, "requests_under_way") > 0;

    Completion closed;
    ASSERT_EQ(UCS_INPROGRESS, uct_ep_flush(one.forward, UCT_FLUSH_FLAG_CANCEL, &closed));
    ASSERT_TRUE(until(sender, [&] {
        return closed.calls == 1 && sender.errors.size() == (has_requests ? 1 : 0);
    }));
    if (has_requests) {
        EXPECT_EQ(static_cast<uct_ep_h>(other.forward), sender.errors[0].ep);
        EXPECT_EQ(UCS_ERR_CONNECTION_RESET, sender.errors[0].status);
    }
}

INSTANTIATE_TEST_SUITE_P(Dc, DcClose,
                         ::testing::Values(Sharing{"owned", "dcs_quota", "1"},
                                           Sharing{"owned_streams", "dcs_quota", "4"},
                                           Sharing{"shared", "hash", "1"},
                                           Sharing{"shared_streams", "rand", "4"}),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

// Nobody waits for a device that has nothing to end, and nobody else is told of it.
TEST_P(DcClose, endpoints_to_a_stuck_peer_are_destroyed_one_after_another) {
    Entity sender(resource_of("dc"), options_of(GetParam()));
    Entity stuck(resource_of("dc"), options_of(GetParam()));
    const Buffer payload = make_payload(sender, 256, 1);
    const uct_iov_t iov = payload.iov();
    testing::internal::CaptureStderr();
    for (int round = 0; round < 20; ++round) {
        Connection link = connect(sender, stuck);
        Completion sent(4);
        int taken = 0;
        for (int i = 0; i < 1000 && taken < 4; ++i) {
            const ucs_status_t status =
                uct_ep_am_zcopy(link.forward, Entity::kAmId, nullptr, 0, &iov, 1, 0, &sent);
            taken += status == UCS_INPROGRESS ? 1 : 0;
            sender.progress();
        }
        ASSERT_EQ(4, taken);
        link.forward.reset();
        EXPECT_EQ(1, sent.calls) << "all of them";
    }
    EXPECT_EQ(std::string::npos,
              testing::internal::GetCapturedStderr().find("did not complete the requests"));
    EXPECT_TRUE(sender.errors.empty());
}

// Requests of others behind the stuck ones were not carried out, or end while a destroy waits.
TEST_P(DcClose, endpoints_to_other_peers_live_on_when_a_stuck_one_is_destroyed) {
    EntityOptions roomy = options_of(GetParam());
    roomy.iface_config.emplace_back("DC_RX_DEPTH", "64");
    Entity sender(resource_of("dc"), options_of(GetParam()));
    Entity stuck(resource_of("dc"), options_of(GetParam()));
    Entity peer(resource_of("dc"), roomy);
    const Buffer payload = make_payload(sender, 256, 1);
    const uct_iov_t iov = payload.iov();
    Connection to_peer = connect(sender, peer);
    Connection to_stuck = connect(sender, stuck);
    std::uint64_t sent = 0;
    const auto send = [&] {
        sent += uct_ep_am_short(to_peer.forward, Entity::kAmId, sent, nullptr, 0) == UCS_OK ? 1 : 0;
    };
    send();
    fill(sender, to_stuck.forward);
    Completion ended;
    uct_ep_am_zcopy(to_stuck.forward, Entity::kAmId, nullptr, 0, &iov, 1, 0, &ended);
    for (int i = 0; i < 10; ++i)
        send();
    to_stuck.forward.reset();
    for (int i = 0; i < 5; ++i)
        ASSERT_TRUE(until(sender, [&] {
            const std::uint64_t before = sent;
            send();
            return sent > before;
        }));
    EXPECT_TRUE(until(sender, [&] {
        peer.progress();
        return peer.am_count >= sent;
    }));
    EXPECT_EQ(sent, peer.am_count);
    for (std::size_t i = 0; i < peer.am.size(); ++i) {
        std::uint64_t number = UINT64_MAX;
        std::memcpy(&number, peer.am[i].bytes.data(), sizeof number);
        EXPECT_EQ(i, number);
    }
    EXPECT_TRUE(sender.errors.empty());
}

// Those that share its DCI keep its requests there, so they end by other ways than theirs.
class DcEnds : public DcClose {
  protected:
    void SetUp() override {
        const Sharing& sharing = GetParam();
        EntityOptions options;
        options.iface_config = {
            {"DC_POLICY", sharing.policy}, {"DC_DCIS", "1"}, {"DC_STREAMS", sharing.streams}};
        sender_ = std::make_unique<Entity>(resource_of("dc"), options);
        peer_ = std::make_unique<Entity>(resource_of("dc"), options);
        payload_ = std::make_unique<Buffer>(make_payload(*sender_, 1000, 1));
        link_ = connect(*sender_, *peer_);
        first_.on_done = [this] { count_end(); };
        copied_.on_done = [this] { count_end(); };
        second_.on_done = [this] { count_end(); };
        flushed_.on_done = [this] {
            EXPECT_EQ(before_, ended_) << "some of what was before it is still under way";
        };
    }
    void count_end() {
        if (++ended_ == 1 && destroys_in_callback_)
            destroy();
    }
    void destroy() {
        link_.forward.reset();
        EXPECT_EQ(before_, ended_);
        EXPECT_EQ(1, flushed_.calls);
    }
    void send(Completion& completion) {
        const uct_iov_t iov = payload_->iov();
        ASSERT_EQ(UCS_INPROGRESS, uct_ep_am_zcopy(link_.forward, Entity::kAmId, nullptr, 0, &iov, 1,
                                                  0, &completion));
        ++before_;
    }
    void flush() {
        ASSERT_EQ(UCS_INPROGRESS, uct_ep_flush(link_.forward, UCT_FLUSH_FLAG_LOCAL, &flushed_));
    }

    std::unique_ptr<Entity> sender_, peer_;
    std::unique_ptr<Buffer> payload_;
    Connection link_;
    Completion first_, second_, copied_, flushed_;
    bool destroys_in_callback_ = false;
    int before_ = 0, ended_ = 0;
};

TEST_P(DcEnds, a_flush_is_the_last_that_ends_within_destroy) {
    const Buffer target = make_payload(*peer_, 64, 2);
    const RemoteKey key(*sender_, target.packed_rkey());
    const uct_iov_t iov = payload_->iov();
    send(first_);
    const auto unpack = [](void*, const void*, std::size_t) {};
    ASSERT_EQ(UCS_INPROGRESS, uct_ep_get_bcopy(link_.forward, unpack, nullptr, 64, target.address(),
                                               key.get(), &copied_));
    ++before_;
    ASSERT_FALSE(
        UCS_PTR_IS_ERR(uct_ep_tag_rndv_zcopy(link_.forward, 1, nullptr, 0, &iov, 1, 0, &second_)));
    ++before_;
    flush();
    destroy();
}

TEST_P(DcEnds, a_flush_is_the_last_where_a_callback_destroys_its_endpoint) {
    destroys_in_callback_ = true;
    send(first_);
    send(second_);
    flush();
    ASSERT_TRUE(until(*sender_, [this] { return flushed_.calls == 1; }));
}

/// Two endpoints with a request each under way, of which the end of one meddles with the other.
class DcNeighbours : public DcClose {
  protected:
    void SetUp() override {
        sender_ = std::make_unique<Entity>(resource_of("dc"), options_of(GetParam()));
        peer_ = std::make_unique<Entity>(resource_of("dc"), options_of(GetParam()));
        payload_ = std::make_unique<Buffer>(make_payload(*sender_, 1000, 1));
        for (Connection& link : links_)
            link = connect(*sender_, *peer_);
    }
    void send(int index) {
        const uct_iov_t iov = payload_->iov();
        const uct_ep_h ep = links_[index].forward;
        ASSERT_TRUE(until(*sender_, [&] {
            return uct_ep_am_zcopy(ep, Entity::kAmId, nullptr, 0, &iov, 1, 0, &sent_[index]) ==
                   UCS_INPROGRESS;
        }));
    }

    std::unique_ptr<Entity> sender_, peer_;
    std::unique_ptr<Buffer> payload_;
    Connection links_[2];
    Completion sent_[2];
};

TEST_P(DcNeighbours, an_end_that_destroys_another_endpoint_leaves_nothing_of_it_to_tell) {
    bool may_destroy = false;
    for (const int index : {0, 1}) {
        sent_[index].on_done = [this, index, &may_destroy] {
            if (!std::exchange(may_destroy, false))
                return;
            const int other = 1 - index;
            links_[other].forward.reset();
            EXPECT_EQ(1, sent_[other].calls) << "it is told within destroy";
        };
    }
    peer_.reset();
    send(0);
    send(1);
    may_destroy = sent_[0].calls == 0;
    EXPECT_TRUE(until(*sender_, [&] { return sent_[0].calls + sent_[1].calls == 2; }));
    for (const Completion& sent : sent_)
        EXPECT_EQ(1, sent.calls);
}

TEST_P(DcNeighbours, what_was_sent_may_be_cancelled_while_another_endpoint_ends) {
    Completion closed;
    ucs_status_t status = UCS_ERR_LAST;
    sent_[1].on_done = [&] {
        status = uct_ep_flush(links_[0].forward, UCT_FLUSH_FLAG_CANCEL, &closed);
    };
    send(0);
    send(1);
    links_[1].forward.reset();
    EXPECT_EQ(1, sent_[1].calls);
    ASSERT_LE(UCS_OK, status);
    const int told = status == UCS_INPROGRESS ? 1 : 0;
    EXPECT_TRUE(until(*sender_, [&] { return sent_[0].calls == 1 && closed.calls == told; }));
    EXPECT_EQ(told == 1 ? UCS_OK : UCS_INPROGRESS, closed.ended);
}

INSTANTIATE_TEST_SUITE_P(Dc, DcNeighbours,
                         ::testing::Values(Sharing{"owned", "dcs_quota", "1"},
                                           Sharing{"owned_streams", "dcs_quota", "4"},
                                           Sharing{"shared", "hash", "1"},
                                           Sharing{"shared_streams", "rand", "4"}),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

INSTANTIATE_TEST_SUITE_P(Dc, DcEnds,
                         ::testing::Values(Sharing{"owned", "dcs_quota", "1"},
                                           Sharing{"owned_streams", "dcs_quota", "4"},
                                           Sharing{"shared", "hash", "1"},
                                           Sharing{"shared_streams", "rand", "4"}),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace
}  // namespace tagwire::test
