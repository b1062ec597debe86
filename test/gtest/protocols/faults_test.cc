// SPDX-License-Identifier: BSD-3-Clause
// Hosts that exchange messages over tcp while their network loses packets, is cut, or resets
// connections, and while processes are stopped and killed. Each host is a network namespace.
#include <csignal>

#include "common/network.hpp"
#include "common/skip.hpp"
#include "protocols/members.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kLongest = 100'000;
constexpr std::uint32_t kMessages = 60;
/// The shortest that there is.
const Environment kSoon = {{"TAGWIRE_TCP_PEER_TIMEOUT", "3s"}};

class MsgFaults : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!enter_network_with_loopback())
            TW_SKIP("network namespaces cannot be made here");
        if (!run_in_network_of(getpid(), "nft list tables"))
            TW_SKIP("needs nft(8), and the right to use it");
    }
    void start(unsigned count, const Environment& environment = kSoon) {
        members_ = std::make_unique<Members>(count, true, kLongest, environment);
        ASSERT_TRUE(members_->is_up());
        exchange_in_peace();
    }
    void exchange_in_peace() {
        members_->command_all({.messages = 10});
        for (unsigned rank = 0; rank < members_->count(); ++rank)
            expect_all(rank, 10);
    }
    void begin() {
        members_->command_all({.messages = kMessages});
        ASSERT_TRUE(members_->are_under_way());
    }
    void expect_all(unsigned rank, std::uint32_t messages = kMessages) {
        const Report report = members_->report(rank);
        EXPECT_TRUE(report.is_over) << rank;
        EXPECT_EQ(report.received, messages * (members_->count() - 1)) << rank;
        EXPECT_EQ(report.sent, messages * (members_->count() - 1)) << rank;
        EXPECT_EQ(report.wrong, 0U) << rank;
        EXPECT_EQ(report.failed_peers, 0U) << tw_status_string(report.failure);
    }
    /// Everything but what is about one peer.
    void expect_all_but(unsigned rank, unsigned peer, tw_status_t failure) {
        const Report report = members_->report(rank);
        EXPECT_TRUE(report.is_over) << rank;
        EXPECT_GE(report.received, kMessages * (members_->count() - 2)) << rank;
        EXPECT_EQ(report.received + report.sent + report.refused,
                  2 * kMessages * (members_->count() - 1))
            << rank;
        EXPECT_EQ(report.wrong, 0U) << rank;
        EXPECT_EQ(report.failed_peers, std::uint64_t{1} << peer) << rank;
        EXPECT_EQ(report.failure, failure) << tw_status_string(report.failure);
    }
    void cut(unsigned rank) {
        ASSERT_TRUE(members_->add_rule(rank, "in", "drop"));
        ASSERT_TRUE(members_->add_rule(rank, "out", "drop"));
    }
    /// Nobody reports meanwhile.
    void expect_nothing_of(unsigned rank, int milliseconds) {
        EXPECT_FALSE(members_->child(rank).channel().receive(milliseconds).has_value());
    }

    std::unique_ptr<Members> members_;
};

TEST_F(MsgFaults, two_hosts_lose_packets_and_no_message) {
    start(2);
    for (const unsigned rank : {0U, 1U})
        ASSERT_TRUE(members_->add_rule(rank, "in", "numgen random mod 100 < 3 drop"));
    begin();
    for (const unsigned rank : {0U, 1U})
        expect_all(rank);
}

TEST_F(MsgFaults, four_hosts_lose_packets_and_no_message) {
    start(4);
    for (unsigned rank = 0; rank < 4; ++rank)
        ASSERT_TRUE(members_->add_rule(rank, "in", "numgen random mod 100 < 1 drop"));
    begin();
    for (unsigned rank = 0; rank < 4; ++rank)
        expect_all(rank);
}

TEST_F(MsgFaults, a_partition_that_heals_loses_nothing) {
    start(4, {});
    cut(0);
    members_->command_all({.messages = kMessages});
    expect_nothing_of(0, 500);
    ASSERT_TRUE(members_->flush_rules(0));
    for (unsigned rank = 0; rank < 4; ++rank)
        expect_all(rank);
}

TEST_F(MsgFaults, a_partition_that_stays_ends_what_crosses_it_and_nothing_else) {
    start(4);
    cut(0);
    members_->command(0, {.messages = kMessages, .failures = 3});
    for (unsigned rank = 1; rank < 4; ++rank)
        members_->command(rank, {.messages = kMessages, .failures = 1});
    for (unsigned rank = 1; rank < 4; ++rank)
        expect_all_but(rank, 0, TW_ERR_ENDPOINT_TIMEOUT);
    const Report alone = members_->report(0);
    EXPECT_TRUE(alone.is_over);
    EXPECT_EQ(alone.received, 0U);
    EXPECT_EQ(alone.failed_peers, 0xeU);
    EXPECT_EQ(alone.failure, TW_ERR_ENDPOINT_TIMEOUT);
}

// A firewall or a load balancer that has forgotten a connection.
TEST_F(MsgFaults, a_connection_that_is_reset_ends_alone) {
    start(4);
    ASSERT_TRUE(members_->add_rule(
        0, "in", "ip saddr " + Members::address_of(1) + " meta l4proto tcp reject with tcp reset"));
    for (const unsigned rank : {0U, 1U})
        members_->command(rank, {.messages = kMessages, .failures = 1});
    for (const unsigned rank : {2U, 3U})
        members_->command(rank, {.messages = kMessages});
    expect_all_but(1, 0, TW_ERR_CONNECTION_RESET);
    ASSERT_TRUE(members_->flush_rules(0));
    expect_all_but(0, 1, TW_ERR_CONNECTION_RESET);
    for (const unsigned rank : {2U, 3U})
        expect_all(rank);
}

// For longer than the time after which a host that is silent counts as dead.
TEST_F(MsgFaults, a_process_that_is_stopped_goes_on_as_if_nothing_had_been) {
    start(4);
    members_->child(0).signal(SIGSTOP);
    members_->command_all({.messages = kMessages});
    expect_nothing_of(0, 3200);
    members_->child(0).signal(SIGCONT);
    for (unsigned rank = 0; rank < 4; ++rank)
        expect_all(rank);
}

TEST_F(MsgFaults, a_process_that_is_killed_takes_nobody_along) {
    start(4);
    members_->command(0, {.messages = kMessages});
    for (unsigned rank = 1; rank < 4; ++rank)
        members_->command(rank, {.messages = kMessages, .failures = 1});
    ASSERT_TRUE(members_->are_under_way());
    members_->child(0).kill_now();
    for (unsigned rank = 1; rank < 4; ++rank) {
        const Report report = members_->report(rank);
        EXPECT_TRUE(report.is_over) << rank;
        EXPECT_GE(report.received, kMessages * 2) << rank;
        EXPECT_EQ(report.wrong, 0U) << rank;
        EXPECT_EQ(report.failed_peers, 1U) << rank;
        EXPECT_EQ(report.failure, TW_ERR_CONNECTION_RESET) << tw_status_string(report.failure);
    }
}

/// Processes of one host.
TEST(MsgMany, sixty_four_processes_exchange_with_each_other) {
    constexpr unsigned kProcesses = 64;
    constexpr std::uint32_t kEach = 4;
    if (!enter_network_with_loopback())
        TW_SKIP("network namespaces cannot be made here");
    Members members(kProcesses, false, 30'000, {});
    ASSERT_TRUE(members.is_up());
    members.command_all({.messages = kEach});
    for (unsigned rank = 0; rank < kProcesses; ++rank) {
        const Report report = members.report(rank);
        EXPECT_TRUE(report.is_over) << rank;
        EXPECT_EQ(report.received, kEach * (kProcesses - 1)) << rank;
        EXPECT_EQ(report.sent, kEach * (kProcesses - 1)) << rank;
        EXPECT_EQ(report.wrong, 0U) << rank;
        EXPECT_EQ(report.failed_peers, 0U) << rank << ": " << tw_status_string(report.failure);
    }
}

}  // namespace
}  // namespace tagwire::test
