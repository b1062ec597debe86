// SPDX-License-Identifier: BSD-3-Clause
// ud between two network namespaces that a veth pair joins, over the UDP fabric of the virtual HCA.
// The process of a peer there cannot be seen: its silence for UD_REMOTE_TIMEOUT is all there is.
//
//   test            sender                               peer
//    |               in a namespace of its own            in one of its own
//    |  wire0 <-> wire1
//    |               a message, flushed  -------------->  progresses
//    |  stops, kills, or cuts ------------------------->  X
//    |               a message: fails within the bound
#include <sched.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>

#include "common/network.hpp"
#include "common/skip.hpp"
#include "harness.hpp"
#include "operations.hpp"

namespace tagwire::test {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kHostAddresses[] = {"10.93.8.1", "10.93.8.2"};
// The peer's settings. The sender's other timeouts are short, so that a case waits for the bound.
const Settings kPatient = {{"UD_PEER_TIMEOUT", "20ms"}, {"UD_REMOTE_TIMEOUT", "inf"}};

Settings sender_with(const std::string& bound) {
    return {{"UD_PEER_TIMEOUT", "20ms"},
            {"UD_TIMEOUT", "5ms"},
            {"UD_TIMEOUT_MAX", "10ms"},
            {"UD_REMOTE_TIMEOUT", bound}};
}

/// Tells the test when it has a namespace, and goes on when that is joined to the other.
Entity open_in_namespace(const Channel& control, unsigned number, const Settings& settings) {
    if (unshare(CLONE_NEWNET) != 0)
        throw std::runtime_error("no network namespace");
    control.signal();
    if (!control.await_signal())
        throw std::runtime_error("the test went away");
    setenv("TAGWIRE_VHCA_FABRIC", "udp", 1);
    setenv("TAGWIRE_VHCA_ADDRESS", kHostAddresses[number], 1);
    return Entity(resource_of("ud"), {.iface_config = settings});
}

void be_peer(Channel& control) {
    Entity self = open_in_namespace(control, 1, kPatient);
    control.send(address_of(self));
    EXPECT_TRUE(progress_until(self, [&] { return control.has_message(); }));
    control.await_signal();
    control.send_value(self.am_count);
}

void send_message(Entity& self, uct_ep_h peer) {
    EXPECT_EQ(UCS_OK,
              retry(self, [&] { return uct_ep_am_short(peer, Entity::kAmId, 0, nullptr, 0); }));
}

/// Sends once while all is well, tells the test, and goes on when something has happened.
void be_sender(Channel& control, const std::string& bound,
               const std::function<void(Entity&, uct_ep_h, Channel&)>& role) {
    Entity self = open_in_namespace(control, 0, sender_with(bound));
    const auto address = control.receive();
    ASSERT_TRUE(address.has_value());
    const Endpoint peer = connect_to(self, *address);
    send_message(self, peer);
    EXPECT_TRUE(progress_until(self, [&] { return uct_ep_flush(peer, 0, nullptr) == UCS_OK; }));
    control.signal();
    ASSERT_TRUE(control.await_signal());
    role(self, peer, control);
}

void expect_failure(Entity& self, uct_ep_h peer, Channel&) {
    send_message(self, peer);
    Completion flushed;
    EXPECT_EQ(UCS_INPROGRESS, uct_ep_flush(peer, 0, &flushed));
    EXPECT_TRUE(progress_until(self, [&] { return !self.errors.empty(); }))
        << "the peer is waited for beyond the bound";
    EXPECT_EQ(1, flushed.calls);
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, flushed.ended);
    EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, uct_ep_am_short(peer, Entity::kAmId, 0, nullptr, 0));
}

/// As long as it takes to send again so often that a peer on this host would have been looked at
/// several times; then the peer goes on.
void expect_patience(Entity& self, uct_ep_h peer, Channel& main) {
    send_message(self, peer);
    Completion flushed;
    EXPECT_EQ(UCS_INPROGRESS, uct_ep_flush(peer, 0, &flushed));
    EXPECT_TRUE(progress_until(self, [&] { return fact_of(peer, "packets_resent") > 40; }));
    EXPECT_TRUE(self.errors.empty());
    EXPECT_EQ(0, flushed.calls);
    main.signal();
    EXPECT_TRUE(progress_until(self, [&] { return flushed.calls == 1; }));
    EXPECT_EQ(UCS_OK, flushed.ended);
    EXPECT_TRUE(self.errors.empty());
}

class UdNetwork : public ProcessTest {
  protected:
    void SetUp() override {
        ProcessTest::SetUp();
        if (!enter_network_with_loopback())
            TW_SKIP("needs nsenter(1) and ip(8), and the right to make network namespaces");
    }

    void TearDown() override {
        sender_.reset();
        peer_.reset();
        ProcessTest::TearDown();
    }

    /// Both run, and a first message was acknowledged.
    void start(const std::string& bound,
               const std::function<void(Entity&, uct_ep_h, Channel&)>& role) {
        peer_ = std::make_unique<Child>(be_peer);
        sender_ =
            std::make_unique<Child>([&](Channel& control) { be_sender(control, bound, role); });
        ASSERT_TRUE(peer_->channel().await_signal());
        ASSERT_TRUE(sender_->channel().await_signal());
        ASSERT_TRUE(join_namespaces());
        peer_->channel().signal();
        sender_->channel().signal();
        const auto address = peer_->channel().receive();
        ASSERT_TRUE(address.has_value()) << "the peer ended with " << peer_->join();
        sender_->channel().send(*address);
        ASSERT_TRUE(sender_->channel().await_signal()) << "it ended with " << sender_->join();
    }
    [[nodiscard]] bool join_namespaces() const {
        const pid_t pids[] = {sender_->pid(), peer_->pid()};
        bool is_done =
            run_in_network_of(pids[0], "ip link add wire0 type veth peer name wire1 netns " +
                                           std::to_string(pids[1]));
        for (unsigned i = 0; is_done && i < 2; ++i) {
            const std::string wire = "wire" + std::to_string(i);
            const std::string address = std::string(kHostAddresses[i]) + "/24 dev " + wire;
            is_done = run_in_network_of(pids[i], "ip address add " + address) &&
                      run_in_network_of(pids[i], "ip link set lo up; ip link set up " + wire);
        }
        return is_done;
    }
    /// Whatever happened to the peer, the sender now sends, and hears of it.
    void expect_end() {
        sender_->channel().signal();
        EXPECT_EQ(0, sender_->join());
    }

    static constexpr const char* kBound = "500ms";
    static constexpr const char* kLongBound = "600s";
    std::unique_ptr<Child> peer_, sender_;
};

TEST_F(UdNetwork, kill_of_a_remote_peer_is_told_within_the_bound) {
    ASSERT_NO_FATAL_FAILURE(start(kBound, expect_failure));
    peer_->kill_now();
    expect_end();
}

TEST_F(UdNetwork, a_remote_peer_that_is_stopped_is_given_up_within_the_bound) {
    ASSERT_NO_FATAL_FAILURE(start(kBound, expect_failure));
    peer_->signal(SIGSTOP);
    expect_end();
    peer_->kill_now();
}

TEST_F(UdNetwork, loss_of_the_link_to_a_remote_peer_is_told_within_the_bound) {
    ASSERT_NO_FATAL_FAILURE(start(kBound, expect_failure));
    ASSERT_TRUE(run_in_network_of(peer_->pid(), "ip link set wire1 down"));
    expect_end();
    peer_->channel().signal();
    EXPECT_TRUE(peer_->channel().receive().has_value());
    EXPECT_EQ(0, peer_->join());
}

TEST_F(UdNetwork, a_remote_peer_that_pauses_for_less_than_the_bound_is_waited_for) {
    ASSERT_NO_FATAL_FAILURE(start(kLongBound, expect_patience));
    peer_->signal(SIGSTOP);
    sender_->channel().signal();
    EXPECT_TRUE(sender_->channel().await_signal());
    peer_->signal(SIGCONT);
    EXPECT_EQ(0, sender_->join());
    peer_->channel().signal();
    const auto received = peer_->channel().receive_value<decltype(Entity::am_count)>();
    ASSERT_TRUE(received.has_value());
    EXPECT_EQ(2U, *received);
    EXPECT_EQ(0, peer_->join());
}

TEST_F(UdNetwork, a_link_that_is_away_for_less_than_the_bound_harms_nobody) {
    ASSERT_NO_FATAL_FAILURE(start(kLongBound, expect_patience));
    ASSERT_TRUE(run_in_network_of(peer_->pid(), "ip link set wire1 down"));
    sender_->channel().signal();
    EXPECT_TRUE(sender_->channel().await_signal());
    ASSERT_TRUE(run_in_network_of(peer_->pid(), "ip link set wire1 up"));
    EXPECT_EQ(0, sender_->join());
    peer_->channel().signal();
    const auto received = peer_->channel().receive_value<decltype(Entity::am_count)>();
    ASSERT_TRUE(received.has_value());
    EXPECT_EQ(2U, *received);
    EXPECT_EQ(0, peer_->join());
}

}  // namespace
}  // namespace tagwire::test
