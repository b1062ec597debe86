// SPDX-License-Identifier: BSD-3-Clause
// Two processes with an engine each: messages, sleeping targets, dead peers, forks, faults.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/child.hpp"
#include "vhca/test/fabric/host.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kMemoryBytes = 1 << 20;
constexpr std::uint32_t kLongBytes = 64 * 1024;

bool join(Host& host, int socket, Address* peer_p, std::uint8_t timeout = 15,
          std::uint8_t retries = 7) {
    return host.ok() && exchange(socket, host.address(), peer_p) &&
           host.connect(*peer_p, timeout, retries) && meet(socket);
}

void fill(std::byte* at, std::size_t bytes, std::uint32_t number) {
    for (std::size_t i = 0; i < bytes; ++i)
        at[i] = static_cast<std::byte>((number * 131 + i * 7 + i / 251) & 0xff);
}
bool is_filled(const std::byte* at, std::size_t bytes, std::uint32_t number) {
    for (std::size_t i = 0; i < bytes; ++i)
        if (at[i] != static_cast<std::byte>((number * 131 + i * 7 + i / 251) & 0xff))
            return false;
    return true;
}

// Takes `count` messages, each into its own of 8 places, and answers each with 8 bytes.
int echo_side(int socket, std::uint32_t bytes, std::uint32_t count,
              const vhca::EngineConfig& config = Host::default_config()) {
    Host host(kMemoryBytes, config);
    Address peer;
    if (!host.ok())
        return 1;
    if (!join(host, socket, &peer))
        return 2;
    for (std::uint32_t i = 0; i < 8; ++i)
        host.post_recv(i * std::size_t{kLongBytes}, bytes);
    if (!meet(socket))
        return 3;
    std::uint32_t received = 0, answered = 0;
    while (received < count || answered < count) {
        const ibv_wc wc = host.wait();
        if (wc.status != IBV_WC_SUCCESS)
            return 10 + static_cast<int>(wc.status);
        if (wc.opcode != IBV_WC_RECV) {
            ++answered;
            continue;
        }
        if (!is_filled(host.memory(wc.wr_id), bytes, received))
            return 4;
        std::memcpy(host.memory(kMemoryBytes - 64), &received, sizeof received);
        ++received;
        host.post_recv(wc.wr_id, bytes);
        host.post_send(kMemoryBytes - 64, 8, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    }
    if (!meet(socket))
        return 5;
    const auto guard = host.engine().lock();
    const vhca::FaultCounters faults = host.engine().fault_counters();
    const bool had_faults = faults.lost + faults.duplicated + faults.reordered > 0;
    return had_faults == config.faults.is_any() ? 0 : 6;
}

void echo_test(std::uint32_t bytes, std::uint32_t count, const vhca::EngineConfig& config) {
    SecondProcess child([&](int socket) { return echo_side(socket, bytes, count, config); });
    Host host(kMemoryBytes, config);
    ASSERT_TRUE(host.ok());
    Address peer;
    ASSERT_TRUE(join(host, child.socket(), &peer));
    ASSERT_TRUE(meet(child.socket()));
    constexpr std::size_t kAnswers = 8 * std::size_t{kLongBytes};
    for (int i = 0; i < 8; ++i)
        ASSERT_EQ(host.post_recv(kAnswers, 64), 0);
    std::uint32_t sent = 0, done = 0, answers = 0;
    while (answers < count || done < count) {
        if (sent < count && sent < answers + 4 && sent < done + 4) {
            const std::size_t place = sent % 8 * std::size_t{kLongBytes};
            fill(host.memory(place), bytes, sent++);
            ASSERT_EQ(host.post_send(place, bytes), 0);
        }
        vhca::Completion completion;
        if (!host.poll(&completion))
            continue;
        ASSERT_EQ(completion.wc.status, IBV_WC_SUCCESS) << answers << " answers";
        if (completion.wc.opcode == IBV_WC_RECV) {
            ++answers;
            ASSERT_EQ(host.post_recv(kAnswers, 64), 0);
        } else {
            ++done;
        }
    }
    meet(child.socket());
    EXPECT_EQ(child.result(), 0);
}

TEST(VhcaEngine, short_messages_go_back_and_forth_between_processes) {
    echo_test(8, 5'000, Host::default_config());
}

TEST(VhcaEngine, long_messages_arrive_intact) {
    echo_test(kLongBytes, 500, Host::default_config());
}

TEST(VhcaEngine, messages_survive_a_lossy_fabric) {
    vhca::EngineConfig config = Host::default_config();
    config.faults = {.loss = 0.01, .duplication = 0.01, .reordering = 0.02, .seed = 42};
    echo_test(20'000, 500, config);
}

TEST(VhcaEngine, a_target_that_only_sleeps_serves_reads_and_writes) {
    SecondProcess child([](int socket) {
        Host host(kMemoryBytes);
        Address peer;
        fill(host.memory(), kLongBytes, 1);
        if (!join(host, socket, &peer) || !meet(socket))
            return 1;
        const auto guard = host.engine().lock();  // the helper wrote it, and is done
        return is_filled(host.memory(kLongBytes), kLongBytes, 2) ? 0 : 2;
    });
    Host host(kMemoryBytes);
    Address peer;
    ASSERT_TRUE(join(host, child.socket(), &peer));
    fill(host.memory(kLongBytes), kLongBytes, 2);
    for (int i = 0; i < 50; ++i) {
        ASSERT_EQ(host.post_rdma(IBV_WR_RDMA_READ, 0, kLongBytes, peer, 0), 0);
        ASSERT_EQ(host.wait().status, IBV_WC_SUCCESS);
        ASSERT_EQ(host.post_rdma(IBV_WR_RDMA_WRITE, kLongBytes, kLongBytes, peer, kLongBytes), 0);
        ASSERT_EQ(host.wait().status, IBV_WC_SUCCESS);
    }
    EXPECT_TRUE(is_filled(host.memory(), kLongBytes, 1));
    meet(child.socket());
    EXPECT_EQ(child.result(), 0);
}

// Posted requests go out and complete although no thread drives the engine meanwhile.
TEST(VhcaEngine, an_initiator_that_does_not_poll_makes_progress) {
    SecondProcess child([](int socket) {
        Host host(kMemoryBytes);
        Address peer;
        return join(host, socket, &peer) && meet(socket) ? 0 : 1;
    });
    Host host(kMemoryBytes);
    Address peer;
    ASSERT_TRUE(join(host, child.socket(), &peer));
    for (int i = 0; i < 32; ++i)
        ASSERT_EQ(host.post_rdma(IBV_WR_RDMA_WRITE, 0, kLongBytes, peer, 0), 0);
    std::size_t done = 0;
    while (done < 32) {
        vhca::Completion completion;
        const auto guard = host.engine().lock();  // takes completions, drives nothing
        while (host.cq().poll(&completion)) {
            ASSERT_EQ(completion.wc.status, IBV_WC_SUCCESS);
            ++done;
        }
        sched_yield();
    }
    meet(child.socket());
    EXPECT_EQ(child.result(), 0);
}

/** Makes an fd readable when a CQ has something to say. */
class PipeSink final : public vhca::EventSink {
  public:
    PipeSink() { EXPECT_EQ(::pipe2(fds_, O_CLOEXEC), 0); }
    ~PipeSink() override {
        ::close(fds_[0]);
        ::close(fds_[1]);
    }
    void cq_event(vhca::Cq&) override { EXPECT_EQ(::write(fds_[1], "e", 1), 1); }
    void qp_event(ibv_event_type, vhca::Qp&) override {}
    void srq_event(ibv_event_type, vhca::Srq&) override {}
    void cq_error(vhca::Cq&) override {}
    void wait() {
        char event = 0;
        EXPECT_EQ(::read(fds_[0], &event, 1), 1);
    }

  private:
    int fds_[2];
};

// Sleeps for each message, as a program with a completion channel does.
int sleeping_ping_pong(int socket, bool is_first) {
    constexpr int kRounds = 300;
    PipeSink sink;
    Host host(kMemoryBytes);
    Address peer;
    if (!join(host, socket, &peer))
        return 1;
    host.engine().set_sink(&sink);
    for (int i = 0; i < 4; ++i)
        host.post_recv(0, 64);
    meet(socket);
    int received = 0, sent = 0, done = 0;
    if (is_first) {
        host.post_send(64, 8);
        ++sent;
    }
    while (received < kRounds || done < kRounds) {
        {
            const auto guard = host.engine().lock();
            host.cq().arm(false);
            host.engine().note_arm();
        }
        vhca::Completion completion;
        bool has_any = false;
        while (host.poll(&completion)) {
            has_any = true;
            if (completion.wc.status != IBV_WC_SUCCESS)
                return 2;
            if (completion.wc.opcode != IBV_WC_RECV) {
                ++done;
                continue;
            }
            ++received;
            host.post_recv(0, 64);
            if (sent < kRounds) {
                host.post_send(64, 8);
                ++sent;
            }
        }
        if (!has_any)
            sink.wait();
    }
    host.engine().set_sink(nullptr);
    return meet(socket) ? 0 : 3;
}

TEST(VhcaEngine, no_wake_up_is_lost_between_sleepers) {
    SecondProcess child([](int socket) { return sleeping_ping_pong(socket, false); });
    EXPECT_EQ(sleeping_ping_pong(child.socket(), true), 0);
    EXPECT_EQ(child.result(), 0);
}

// A thread that begins may hold a lock of the sanitizers' allocator. A child that is forked at that
// moment would find it locked for ever.
void wait_until_helper_runs(Host& host) {
    while (host.engine().helper_counters().wake_ups == 0)
        sched_yield();
}

std::size_t descriptors() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
        ++count;
    return count;
}

TEST(VhcaEngine, a_killed_peer_is_noticed_by_the_timer_and_leaves_nothing) {
    TW_SKIP_FORK_BESIDE_THREADS();
    Host host(kMemoryBytes);
    ASSERT_TRUE(host.ok());
    wait_until_helper_runs(host);
    const std::size_t before = descriptors();
    {
        SecondProcess child([](int socket) {
            Host other(kMemoryBytes);
            Address peer;
            join(other, socket, &peer);
            for (;;) {
                vhca::Completion completion;
                other.poll(&completion);
            }
            return 0;
        });
        Address peer;
        ASSERT_TRUE(join(host, child.socket(), &peer, 17, 3));
        ASSERT_EQ(host.post_rdma(IBV_WR_RDMA_WRITE, 0, 64, peer, 0), 0);
        ASSERT_EQ(host.wait().status, IBV_WC_SUCCESS);
        child.kill();
        ASSERT_EQ(host.post_rdma(IBV_WR_RDMA_WRITE, 0, 64, peer, 0), 0);
        EXPECT_EQ(host.wait().status, IBV_WC_RETRY_EXC_ERR);
        const std::string name =
            vhca::node_socket_name(::geteuid(), static_cast<std::uint16_t>(peer.node));
        std::ifstream sockets("/proc/net/unix");
        const std::string all{std::istreambuf_iterator<char>(sockets), {}};
        EXPECT_EQ(all.find(name + "\n"), std::string::npos);
    }
    // Links end when the helper, or a poll after it, has seen the hang-up. There may be fewer than
    // before, when the helper of another test's engine was still at its end.
    vhca::Completion completion;
    while (descriptors() > before)  // for ever, where one stays
        host.poll(&completion);
}

TEST(VhcaEngine, the_time_in_which_a_peer_does_not_run_is_none_of_its_timeout) {
    TW_SKIP_FORK_BESIDE_THREADS();
    SecondProcess child([](int socket) {
        Host other(kMemoryBytes);
        Address peer;
        return join(other, socket, &peer) && meet(socket) ? 0 : 1;
    });
    Host host(kMemoryBytes);
    Address peer;
    constexpr std::uint8_t kRetries = 3;
    const bool is_udp = host.engine().port().is_ethernet();
    const std::uint8_t timeout = is_udp ? 15 : 10;
    ASSERT_TRUE(join(host, child.socket(), &peer, timeout, kRetries));
    ASSERT_EQ(host.post_rdma(IBV_WR_RDMA_WRITE, 0, 64, peer, 0), 0);
    ASSERT_EQ(host.wait().status, IBV_WC_SUCCESS);
    child.stop();
    ASSERT_EQ(host.post_rdma(IBV_WR_RDMA_WRITE, 0, 64, peer, 0), 0);
    const vhca::Time patience = (vhca::Time{4096} << timeout) * (kRetries + 1);
    const vhca::Time start = host.engine().now();
    vhca::Completion completion;
    // Nobody tells whether a datagram was taken.
    while (!is_udp && host.engine().now() - start < 3 * patience)
        ASSERT_FALSE(host.poll(&completion)) << completion.wc.status;
    if (!is_udp)
        child.resume();
    EXPECT_EQ(host.wait().status, is_udp ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
    if (is_udp)
        child.resume();
    EXPECT_TRUE(meet(child.socket()));
    EXPECT_EQ(child.result(), 0);
}

TEST(VhcaEngine, a_forked_child_gets_an_engine_of_its_own) {
    TW_SKIP_FORK_BESIDE_THREADS();
    Host host(kMemoryBytes);
    ASSERT_TRUE(host.ok());
    wait_until_helper_runs(host);
    const std::uint32_t node = host.address().node;
    const vhca::Engine* const engine = &host.engine();
    SecondProcess child([&](int socket) {
        // The parent's objects are dead matter, but can be called.
        vhca::Completion completion;
        if (host.poll(&completion))
            return 1;
        Host own(kMemoryBytes);
        Address peer;
        if (!join(own, socket, &peer) || &own.engine() == engine || own.address().node == node)
            return 2;
        return own.post_rdma(IBV_WR_RDMA_WRITE, 0, 64, peer, 0) == 0 &&
                       own.wait().status == IBV_WC_SUCCESS && meet(socket)
                   ? 0
                   : 3;
    });
    Address peer;
    ASSERT_TRUE(join(host, child.socket(), &peer));
    EXPECT_EQ(host.address().node, node);
    meet(child.socket());
    EXPECT_EQ(child.result(), 0);
}

TEST(VhcaEngine, addresses_lead_to_nodes) {
    Host host(4096);
    ASSERT_TRUE(host.ok());
    const vhca::Engine& engine = host.engine();
    ibv_ah_attr attr{};
    attr.dlid = 17;
    EXPECT_EQ(engine.port().route_of(attr), vhca::Route{engine.port().is_ethernet() ? 0U : 17U});
    attr.is_global = 1;
    attr.grh.dgid = engine.port().gid();
    EXPECT_EQ(engine.port().route_of(attr), vhca::Route{host.address().node});
    EXPECT_EQ(engine.port().route_of(path_to(engine, 17)), vhca::Route{17});
    const std::uint64_t mask = engine.port().is_ethernet() ? 0xffffffff : 0xffff;
    EXPECT_EQ(engine.port().guid() & mask, host.address().node);
    EXPECT_EQ(host.engine().device().config().lid, engine.port().lid());
}

}  // namespace
}  // namespace tagwire::test
