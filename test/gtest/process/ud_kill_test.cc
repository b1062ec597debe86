// SPDX-License-Identifier: BSD-3-Clause
// Peers of ud that die or are stopped. Acknowledgements come from the peer's progress: whether a
// silent one lives, its process tells.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "harness.hpp"
#include "operations.hpp"

namespace tagwire::test {
namespace {

using Config = std::vector<std::pair<std::string, std::string>>;

/// The one that looks at the process of a silent peer is the only bound that ends anything.
const Config kNoRemoteBound = {{"UD_PEER_TIMEOUT", "50ms"}, {"UD_REMOTE_TIMEOUT", "inf"}};

/// Takes messages, or not, until it is told to end; then it says how many came.
void be_ud_peer(Channel& control, bool does_progress) {
    Entity self(resource_of("ud"), {.iface_config = kNoRemoteBound});
    control.send(address_of(self));
    if (does_progress) {
        EXPECT_TRUE(progress_until(self, [&] { return control.has_message(); }));
    }
    control.await_signal();
    control.send_value(self.am_count);
}

/// Connects to the address that it is told.
void be_ud_sender(Channel& control, const Config& config,
                  const std::function<void(Entity&, uct_ep_h, Channel&)>& role) {
    Entity self(resource_of("ud"), {.iface_config = config});
    const auto address = control.receive();
    ASSERT_TRUE(address.has_value());
    const Endpoint peer = connect_to(self, *address);
    role(self, peer, control);
}

void send_one(Entity& self, uct_ep_h peer) {
    EXPECT_EQ(UCS_OK,
              retry(self, [&] { return uct_ep_am_short(peer, Entity::kAmId, 0, nullptr, 0); }));
}

TEST_F(ProcessTest, kill_of_a_ud_peer_that_never_replied_is_noticed) {
    Child peer([](Channel& control) { be_ud_peer(control, false); });
    Child sender([](Channel& control) {
        be_ud_sender(control, kNoRemoteBound, [](Entity& self, uct_ep_h ep, Channel& main) {
            EXPECT_EQ(UCS_OK, uct_ep_am_short(ep, Entity::kAmId, 0, nullptr, 0));
            Completion flushed;
            EXPECT_EQ(UCS_INPROGRESS, uct_ep_flush(ep, 0, &flushed));
            main.signal();
            EXPECT_TRUE(progress_until(self, [&] { return !self.errors.empty(); }));
            EXPECT_EQ(1, flushed.calls);
            EXPECT_EQ(UCS_ERR_ENDPOINT_TIMEOUT, flushed.ended);
        });
    });
    const auto address = peer.channel().receive();
    ASSERT_TRUE(address.has_value());
    sender.channel().send(*address);
    ASSERT_TRUE(sender.channel().await_signal());
    peer.kill_now();
    EXPECT_EQ(0, sender.join());
}

/// A child of the dead one still has its sockets.
TEST_F(ProcessTest, kill_of_a_ud_peer_with_a_child_is_noticed) {
    Child peer([](Channel& control) {
        Entity self(resource_of("ud"), {.iface_config = kNoRemoteBound});
        const pid_t child = fork();
        if (child == 0) {
            pause();
            _exit(0);
        }
        control.send(
            pack({address_of(self), Bytes(reinterpret_cast<const std::byte*>(&child),
                                          reinterpret_cast<const std::byte*>(&child + 1))}));
        progress_until(self, [&] { return control.has_message(); });
    });
    Child sender([](Channel& control) {
        be_ud_sender(control, kNoRemoteBound, [](Entity& self, uct_ep_h ep, Channel& main) {
            send_one(self, ep);
            EXPECT_TRUE(
                progress_until(self, [&] { return uct_ep_flush(ep, 0, nullptr) == UCS_OK; }));
            main.signal();
            EXPECT_TRUE(main.await_signal());
            send_one(self, ep);
            EXPECT_TRUE(progress_until(self, [&] { return !self.errors.empty(); }));
        });
    });
    const auto told = peer.channel().receive();
    ASSERT_TRUE(told.has_value());
    const std::vector<Bytes> parts = unpack(*told);
    pid_t child = -1;
    std::memcpy(&child, parts.at(1).data(), sizeof child);
    sender.channel().send(parts.at(0));
    ASSERT_TRUE(sender.channel().await_signal());
    peer.kill_now();
    sender.channel().signal();
    EXPECT_EQ(0, sender.join());
    ::kill(child, SIGKILL);
    EXPECT_EQ(child, waitpid(child, nullptr, 0));  // its parent is gone: it is ours
}

TEST_F(ProcessTest, a_stopped_ud_peer_is_waited_for_beyond_every_bound) {
    Child peer([](Channel& control) { be_ud_peer(control, true); });
    Child sender([](Channel& control) {
        const Config bounds = {{"UD_PEER_TIMEOUT", "20ms"},
                               {"UD_REMOTE_TIMEOUT", "40ms"},
                               {"UD_TIMEOUT", "5ms"},
                               {"UD_TIMEOUT_MAX", "10ms"}};
        be_ud_sender(control, bounds, [](Entity& self, uct_ep_h ep, Channel& main) {
            send_one(self, ep);
            EXPECT_TRUE(
                progress_until(self, [&] { return uct_ep_flush(ep, 0, nullptr) == UCS_OK; }));
            main.signal();
            EXPECT_TRUE(main.await_signal());
            send_one(self, ep);
            Completion flushed;
            EXPECT_EQ(UCS_INPROGRESS, uct_ep_flush(ep, 0, &flushed));
            // Sent again so often that each bound has passed several times.
            EXPECT_TRUE(progress_until(self, [&] { return fact_of(ep, "packets_resent") > 40; }));
            EXPECT_TRUE(self.errors.empty());
            EXPECT_EQ(0, flushed.calls);
            main.signal();
            EXPECT_TRUE(progress_until(self, [&] { return flushed.calls == 1; }));
            EXPECT_EQ(UCS_OK, flushed.ended);
            EXPECT_TRUE(self.errors.empty());
        });
    });
    const auto address = peer.channel().receive();
    ASSERT_TRUE(address.has_value());
    sender.channel().send(*address);
    ASSERT_TRUE(sender.channel().await_signal());
    peer.signal(SIGSTOP);
    sender.channel().signal();
    EXPECT_TRUE(sender.channel().await_signal());
    peer.signal(SIGCONT);
    EXPECT_EQ(0, sender.join());
    peer.channel().signal();
    const auto received = peer.channel().receive_value<decltype(Entity::am_count)>();
    ASSERT_TRUE(received.has_value());
    EXPECT_EQ(2U, *received);
    EXPECT_EQ(0, peer.join());
}

}  // namespace
}  // namespace tagwire::test
