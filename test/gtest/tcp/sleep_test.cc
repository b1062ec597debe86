// SPDX-License-Identifier: BSD-3-Clause
// A program that sleeps is not woken for nothing, in whatever state its interface is:
//
//   listener     idle; strangers silent, or silent behind their first bytes; no descriptors left
//   connection   host silent; taken, no reply; a part of a reply; crossed; established; broken, and
//                its endpoint still there; socket full
//   operations   gets under way; as many as may be, and a request pending; a fence and a request
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <memory>
#include <vector>

#include "acceptor.hpp"
#include "asleep.hpp"
#include "stranger.hpp"

namespace tagwire::test {
namespace {

constexpr int kMs = 20;

TEST(TcpSleep, with_nothing_to_do) {
    Entity idle(loopback_of_tcp());
    EXPECT_LE(wake_ups_within(idle, kMs), kWakeUpsOfOne);
}

TEST(TcpSleep, while_strangers_are_silent) {
    Entity victim(loopback_of_tcp());
    Stranger silent(victim);
    EXPECT_LE(wake_ups_within(victim, kMs), kWakeUpsOfOne);
    Stranger stops(victim);
    stops.send("wire");
    EXPECT_LE(wake_ups_within(victim, kMs), 2 * kWakeUpsOfOne);
}

/// No more descriptors than this process has now.
class NoDescriptors {
  public:
    NoDescriptors() {
        EXPECT_EQ(0, ::getrlimit(RLIMIT_NOFILE, &before_));
        const ucs::UniqueFd next = ucs::duplicate(0);
        rlimit none = before_;
        none.rlim_cur = static_cast<rlim_t>(next.get());
        EXPECT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &none));
    }
    NoDescriptors(const NoDescriptors&) = delete;
    NoDescriptors& operator=(const NoDescriptors&) = delete;
    ~NoDescriptors() { EXPECT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &before_)); }

  private:
    rlimit before_{};
};

TEST(TcpSleep, while_no_descriptors_are_left_for_peers_that_wait) {
    Entity victim(loopback_of_tcp());
    Stranger stranger(victim);
    {
        const NoDescriptors none;
        const tcp::Hello hello = stranger.hello();
        ASSERT_EQ(ssize_t{sizeof hello}, ::send(stranger.fd(), &hello, sizeof hello, 0));
        EXPECT_LE(wake_ups_within(victim, kMs), kWakeUpsOfOne);
    }
    EXPECT_TRUE(steps_until({&victim}, [&] { return fact_of(victim, "peers_ready") == 1; }));
}

TEST(TcpSleep, while_the_host_of_the_peer_is_silent) {
    Entity opener(loopback_of_tcp());
    Acceptor peer(opener);
    peer.be_silent();
    const Endpoint ep = peer.endpoint();
    EXPECT_LE(wake_ups_within(opener, kMs), kWakeUpsOfOne);
    EXPECT_TRUE(opener.errors.empty());
}

TEST(TcpSleep, while_the_peer_does_not_reply_or_has_not_replied_in_full) {
    Entity opener(loopback_of_tcp());
    Acceptor peer(opener);
    const Endpoint ep = peer.endpoint();
    peer.take_hello();
    EXPECT_LE(wake_ups_within(opener, kMs), kWakeUpsOfOne);
    const tcp::Reply reply = peer.reply(tcp::Verdict::kWelcome);
    peer.send(&reply, 1);
    EXPECT_LE(wake_ups_within(opener, kMs), kWakeUpsOfOne);
    peer.send(reinterpret_cast<const std::byte*>(&reply) + 1, sizeof reply - 1);
    EXPECT_TRUE(steps_until({&opener}, [&] { return fact_of(opener, "peers_ready") == 1; }));
    EXPECT_LE(wake_ups_within(opener, kMs), kWakeUpsOfOne);
}

TEST(TcpSleep, while_the_peers_own_connection_is_waited_for) {
    Entity opener(loopback_of_tcp());
    Acceptor peer(opener);
    const Endpoint ep = peer.endpoint();
    peer.take_hello();
    const tcp::Reply reply = peer.reply(tcp::Verdict::kCrossed);
    peer.send(&reply, sizeof reply);
    EXPECT_LE(wake_ups_within(opener, kMs), kWakeUpsOfOne);
}

/// Two that are connected, and memory of the second that the first gets.
class TcpSleepConnected : public ::testing::Test {
  protected:
    TcpSleepConnected()
        : one(loopback_of_tcp()),
          other(loopback_of_tcp()),
          link(connect(one, other)),
          source(64),
          target(64) {
        expect_exchange(one, link.forward, other);
        EXPECT_EQ(UCS_OK, uct_md_mem_reg(other.md(), source.data(), source.size(),
                                         UCT_MD_MEM_ACCESS_REMOTE_GET, &memh));
        Bytes packed(other.md_attr().rkey_packed_size);
        EXPECT_EQ(UCS_OK, uct_md_mkey_pack(other.md(), memh, packed.data()));
        EXPECT_EQ(UCS_OK, uct_rkey_unpack(one.component(), packed.data(), &key));
    }
    ~TcpSleepConnected() override {
        steps_until({&one, &other}, [&] { return gets.count == 1; });
        EXPECT_EQ(UCS_OK, uct_rkey_release(one.component(), &key));
        EXPECT_EQ(UCS_OK, uct_md_mem_dereg(other.md(), memh));
    }
    ucs_status_t get() {
        uct_iov_t part{};
        part.buffer = target.data();
        part.length = target.size();
        part.count = 1;
        const ucs_status_t status =
            uct_ep_get_zcopy(link.forward, &part, 1,
                             reinterpret_cast<std::uintptr_t>(source.data()), key.rkey, &gets);
        gets.count += status == UCS_INPROGRESS ? 1 : 0;
        return status;
    }

    struct Request : uct_pending_req_t {
        TcpSleepConnected* test;
        unsigned tries = 0;
        bool is_done = false;
    };
    static ucs_status_t try_to_get(uct_pending_req_t* self) {
        auto& request = *static_cast<Request*>(self);
        ++request.tries;
        const ucs_status_t status = request.test->get();
        request.is_done = status == UCS_INPROGRESS;
        return request.is_done ? UCS_OK : status;
    }

    Entity one, other;
    Connection link;
    Bytes source, target;
    uct_mem_h memh = nullptr;
    uct_rkey_bundle_t key{};
    uct_completion_t gets{[](uct_completion_t*) {}, 1, UCS_OK};
};

TEST_F(TcpSleepConnected, with_gets_under_way) {
    ASSERT_EQ(UCS_INPROGRESS, get());
    EXPECT_LE(wake_ups_within(one, kMs), kWakeUpsOfOne);
}

TEST_F(TcpSleepConnected, with_a_request_behind_as_many_gets_as_may_be) {
    while (get() == UCS_INPROGRESS) {
    }
    Request request{{try_to_get, {}}, this};
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(link.forward, &request, 0));
    EXPECT_LE(wake_ups_within(one, kMs), kWakeUpsOfOne);
    EXPECT_FALSE(request.is_done);
    EXPECT_TRUE(steps_until({&one, &other}, [&] { return request.is_done; }));
}

TEST_F(TcpSleepConnected, with_a_request_behind_a_fence) {
    ASSERT_EQ(UCS_INPROGRESS, get());
    ASSERT_EQ(UCS_OK, uct_ep_fence(link.forward, 0));
    Request request{{try_to_get, {}}, this};
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(link.forward, &request, 0));
    EXPECT_LE(wake_ups_within(one, kMs), kWakeUpsOfOne);
    EXPECT_TRUE(steps_until({&one, &other}, [&] { return request.is_done; }));
}

TEST_F(TcpSleepConnected, with_a_socket_that_is_full) {
    while (uct_ep_am_short(link.forward, Entity::kAmId, 0, source.data(), 64) == UCS_OK) {
    }
    other.keep_record = false;
    EXPECT_LE(wake_ups_within(one, kMs), kWakeUpsOfOne);
}

TEST_F(TcpSleepConnected, with_an_endpoint_whose_peer_has_gone) {
    Entity gone(loopback_of_tcp());
    const Connection dead = connect(one, gone);
    expect_exchange(one, dead.forward, gone);
    gone.close_iface();
    ASSERT_TRUE(steps_until({&one}, [&] { return !one.errors.empty(); }));
    EXPECT_LE(wake_ups_within(one, kMs), kWakeUpsOfOne);
}

}  // namespace
}  // namespace tagwire::test
