// SPDX-License-Identifier: BSD-3-Clause
// Nodes of the shared-memory fabric, several in one process: links, order, strangers, nonsense.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <vector>

#include "common/skip.hpp"
#include "ucs/sys/unix_socket.hpp"
#include "vhca/fabric/shm_fabric.hpp"

namespace tagwire::test {
namespace {

using vhca::Hello;
using vhca::Route;
using vhca::ShmFabric;

constexpr std::size_t kShort = 20, kLong = vhca::kPacketBytesMax;

struct Node {
    std::unique_ptr<ShmFabric> fabric;
    std::vector<std::uint32_t> numbers;
    std::vector<std::uint64_t> from;
    std::vector<std::uint64_t> gone;  // and how many packets had come until then
    std::vector<std::size_t> seen_when_gone;
    std::size_t damaged = 0;

    Node() { EXPECT_EQ(ShmFabric::open(&fabric), 0); }
    [[nodiscard]] Route route() const { return Route{fabric->lid()}; }

    bool send(Route to, std::uint32_t number, std::size_t bytes) {
        std::byte* place = fabric->claim(to, bytes);
        if (place == nullptr)
            return false;
        std::memset(place, static_cast<int>(number & 0xff), bytes);
        std::memcpy(place, &number, sizeof number);
        fabric->commit(to, bytes);
        return true;
    }
    unsigned poll() {
        fabric->service();
        const auto take = [this](Route source, std::span<const std::byte> packet) {
            std::uint32_t number = 0;
            std::memcpy(&number, packet.data(), sizeof number);
            damaged += packet.back() == static_cast<std::byte>(number & 0xff) ? 0 : 1;
            numbers.push_back(number);
            from.push_back(source.node);
        };
        return fabric->poll(take, [this](Route node) {
            gone.push_back(node.node);
            seen_when_gone.push_back(numbers.size());
        });
    }
    [[nodiscard]] const vhca::FabricCounters& counters() const { return fabric->counters(); }
};

ucs::UniqueFd connect_to(const Node& node) {
    ucs::UniqueFd fd;
    EXPECT_EQ(ucs::unix_connect({"", vhca::node_socket_name(::geteuid(), node.fabric->lid())}, &fd),
              UCS_OK);
    return fd;
}

/** A peer that speaks the format by hand. */
struct RawPeer {
    ucs::UniqueFd socket, segment;
    ucs::Mapping memory;
    vhca::RingMemory<> ring;

    explicit RawPeer(const Node& node, std::size_t bytes = vhca::kSegmentBytes)
        : socket(connect_to(node)) {
        EXPECT_EQ(ucs::memfd_create_sealed("raw-peer", bytes, &segment), UCS_OK);
        EXPECT_EQ(ucs::map_shared(segment.get(), bytes, &memory), UCS_OK);
        ring = vhca::ring_in(memory.base());
    }
    ucs_status_t say(const Hello& hello, bool with_segment = true) {
        const int fd = segment.get();
        return ucs::unix_send(socket.get(), std::as_bytes(std::span(&hello, 1)), &fd,
                              with_segment ? 1 : 0);
    }
    static Hello hello() { return {.segment_bytes = vhca::kSegmentBytes, .lid = 4711}; }
    /** The node hung up on us, perhaps after a last word. */
    [[nodiscard]] bool was_refused(vhca::Refusal* refusal = nullptr) const {
        std::byte buffer[64];
        ucs::ReceivedMessage message;
        ucs_status_t status = ucs::unix_receive(socket.get(), buffer, &message);
        if (status == UCS_OK && refusal != nullptr && message.bytes == sizeof *refusal) {
            std::memcpy(refusal, buffer, sizeof *refusal);
            status = ucs::unix_receive(socket.get(), buffer, &message);
        }
        return status == UCS_ERR_CONNECTION_RESET;
    }
};

TEST(ShmFabric, nodes_get_different_lids) {
    Node one, two;
    EXPECT_NE(one.fabric->lid(), two.fabric->lid());
    EXPECT_GE(one.fabric->lid(), 1);
    EXPECT_LE(one.fabric->lid(), vhca::kLidMax);
}

// ---- Whether a node could have answered --------------------------------------------------------

TEST(ShmFabric, node_has_had_its_turn_when_it_took_the_packet_and_looked_often_enough) {
    Node one, two;
    ASSERT_TRUE(one.send(two.route(), 1, kShort));
    const vhca::Turn since = one.fabric->turn_of(two.route());
    EXPECT_FALSE(one.fabric->has_had_turn(two.route(), since));  // it is not taken
    EXPECT_EQ(two.poll(), 1U);
    two.poll();
    EXPECT_FALSE(one.fabric->has_had_turn(two.route(), since));  // it may be at work on it
    for (int i = 0; i < 16; ++i)
        two.poll();
    EXPECT_TRUE(one.fabric->has_had_turn(two.route(), since));
    // And again, though nothing was sent meanwhile.
    const vhca::Turn later = one.fabric->turn_of(two.route());
    EXPECT_FALSE(one.fabric->has_had_turn(two.route(), later));
}

TEST(ShmFabric, node_that_sleeps_has_had_its_turn) {
    Node one, two;
    ASSERT_TRUE(one.send(two.route(), 1, kShort));
    const vhca::Turn since = one.fabric->turn_of(two.route());
    two.poll();
    two.poll();
    ASSERT_TRUE(two.fabric->arm());
    EXPECT_TRUE(one.fabric->has_had_turn(two.route(), since));
    ASSERT_TRUE(one.send(two.route(), 2, kShort));  // wakes it
    const vhca::Turn later = one.fabric->turn_of(two.route());
    EXPECT_FALSE(one.fabric->has_had_turn(two.route(), later));
}

TEST(ShmFabric, node_that_is_gone_or_was_never_there_needs_no_turn) {
    Node one;
    auto two = std::make_unique<Node>();
    const Route route = two->route();
    ASSERT_TRUE(one.send(route, 1, kShort));
    const vhca::Turn since = one.fabric->turn_of(route);
    EXPECT_FALSE(one.fabric->has_had_turn(route, since));
    two.reset();
    one.poll();
    EXPECT_TRUE(one.fabric->has_had_turn(route, since));
    EXPECT_TRUE(one.fabric->has_had_turn(Route{1 + vhca::kLidMax}, {}));
}

TEST(ShmFabric, steps_to_catch_up_empty_a_full_ring) {
    Node one, two;
    std::uint32_t sent = 0;
    while (one.send(two.route(), sent, kShort))
        ++sent;
    for (unsigned i = 0; i < two.fabric->steps_to_catch_up(); ++i)
        two.poll();
    EXPECT_EQ(two.numbers.size(), sent);
}

TEST(ShmFabric, packets_arrive_intact_in_order_and_from_where_they_came) {
    Node one, two;
    constexpr std::uint32_t kPackets = 5'000;
    for (std::uint32_t i = 0; i < kPackets;)
        if (one.send(two.route(), i, i % 3 == 0 ? kLong : kShort))
            ++i;
        else
            two.poll();
    while (two.poll() != 0) {
    }
    ASSERT_EQ(two.numbers.size(), kPackets);
    for (std::uint32_t i = 0; i < kPackets; ++i) {
        ASSERT_EQ(two.numbers[i], i);
        ASSERT_EQ(two.from[i], one.fabric->lid());
    }
    EXPECT_EQ(two.damaged, 0U);
    EXPECT_EQ(two.counters().packets_received, kPackets);
}

TEST(ShmFabric, a_peer_that_does_not_read_fills_only_its_ring) {
    Node one, two, three;
    std::uint32_t sent = 0;
    while (one.send(two.route(), sent, kShort))
        ++sent;
    EXPECT_EQ(sent, vhca::kRingSlots);
    EXPECT_TRUE(one.send(three.route(), 1, kShort));
}

TEST(ShmFabric, a_node_reaches_itself) {
    Node one;
    ASSERT_TRUE(one.send(one.route(), 5, kShort));
    ASSERT_TRUE(one.send(one.route(), 6, kLong));
    one.poll();
    EXPECT_EQ(one.numbers, (std::vector<std::uint32_t>{5, 6}));
    EXPECT_EQ(one.from[0], one.fabric->lid());
}

TEST(ShmFabric, packets_to_nobody_vanish) {
    Node one;
    for (const std::uint64_t lid : {std::uint64_t{0}, std::uint64_t{0xbff0}, ~std::uint64_t{0}})
        EXPECT_TRUE(one.send(Route{lid}, 1, kLong));
    EXPECT_EQ(one.counters().vanished, 3U);
}

TEST(ShmFabric, what_was_sent_before_a_sender_ended_is_delivered) {
    Node two;
    {
        Node one;
        ASSERT_TRUE(one.send(two.route(), 1, kShort));
        ASSERT_TRUE(one.send(two.route(), 2, kLong));
    }
    two.poll();
    two.poll();
    EXPECT_EQ(two.numbers, (std::vector<std::uint32_t>{1, 2}));
    EXPECT_EQ(two.gone.size(), 1U);
    EXPECT_EQ(two.seen_when_gone, (std::vector<std::size_t>{2}));
}

TEST(ShmFabric, the_end_of_a_node_is_told_before_the_first_packet_of_the_next_with_its_lid) {
    Node receiver;
    auto one = std::make_unique<Node>();
    const Route route = one->route();
    ASSERT_TRUE(one->send(receiver.route(), 1, kShort));
    one.reset();
    Node again;
    ASSERT_EQ(again.route(), route);
    ASSERT_TRUE(again.send(receiver.route(), 2, kShort));
    for (int i = 0; i < 3; ++i)
        receiver.poll();
    EXPECT_EQ(receiver.numbers, (std::vector<std::uint32_t>{1, 2}));
    EXPECT_EQ(receiver.gone, (std::vector<std::uint64_t>{route.node}));
    EXPECT_EQ(receiver.seen_when_gone, (std::vector<std::size_t>{1}));
}

TEST(ShmFabric, a_node_that_came_back_gets_a_new_link) {
    Node one;
    auto two = std::make_unique<Node>();
    const Route route = two->route();
    ASSERT_TRUE(one.send(route, 1, kShort));
    two.reset();
    Node again;  // takes the LID that was just left, as the same process seeks it first
    ASSERT_EQ(again.route(), route);
    one.poll();  // learns of the end
    ASSERT_TRUE(one.send(route, 2, kShort));
    again.poll();
    EXPECT_EQ(again.numbers, (std::vector<std::uint32_t>{2}));
    EXPECT_EQ(one.counters().links_out, 2U);
}

TEST(ShmFabric, an_armed_node_is_knocked_at_once) {
    Node one, two;
    ASSERT_TRUE(one.send(two.route(), 1, kShort));
    while (two.poll() != 0) {
    }
    ASSERT_TRUE(two.fabric->arm());
    ASSERT_TRUE(one.send(two.route(), 2, kShort));
    ASSERT_TRUE(one.send(two.route(), 3, kShort));
    EXPECT_EQ(one.counters().knocks_sent, 1U);
    EXPECT_FALSE(two.fabric->arm());
    two.poll();
    EXPECT_EQ(two.counters().knocks_received, 1U);
}

TEST(ShmFabric, a_peer_that_takes_nothing_is_knocked_at_ever_more_rarely) {
    Node one, two;
    ASSERT_TRUE(one.send(two.route(), 1, kShort));
    for (int i = 0; i < 1'000; ++i)
        one.fabric->knock_at_idle();
    EXPECT_GE(one.counters().knocks_sent, 5U);
    EXPECT_LE(one.counters().knocks_sent, 30U);
    two.poll();
    two.poll();
    const std::uint64_t before = one.counters().knocks_sent;
    one.fabric->knock_at_idle();
    one.fabric->knock_at_idle();
    EXPECT_EQ(one.counters().knocks_sent, before);
}

TEST(ShmFabric, hellos_that_are_none_are_refused) {
    Node node;
    const std::function<void(Hello&)> damages[] = {
        [](Hello& hello) { hello.magic = 1; },
        [](Hello& hello) { hello.lid = 0; },
        [](Hello& hello) { hello.lid = 0x10001; },
        [&](Hello& hello) { hello.lid = node.fabric->lid(); },
    };
    std::uint64_t refused = 0;
    for (const auto& damage : damages) {
        RawPeer peer(node);
        Hello hello = RawPeer::hello();
        damage(hello);
        ASSERT_EQ(peer.say(hello), UCS_OK);
        node.poll();
        EXPECT_EQ(node.counters().refused, ++refused);
        EXPECT_TRUE(peer.was_refused());
    }
    RawPeer without_memory(node), with_little_memory(node, 4096);
    ASSERT_EQ(without_memory.say(RawPeer::hello(), false), UCS_OK);
    ASSERT_EQ(with_little_memory.say(RawPeer::hello()), UCS_OK);
    node.poll();
    EXPECT_EQ(node.counters().refused, refused + 2);
    EXPECT_EQ(node.counters().links_in, 0U);
}

TEST(ShmFabric, another_version_is_refused_and_told) {
    Node node;
    RawPeer peer(node);
    Hello hello = RawPeer::hello();
    hello.version = 77;
    ASSERT_EQ(peer.say(hello), UCS_OK);
    testing::internal::CaptureStderr();
    node.poll();
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find("version 77"), std::string::npos) << log;
    EXPECT_NE(log.find("version " + std::to_string(vhca::kFabricVersion)), std::string::npos);
    vhca::Refusal refusal{.version = 0};
    EXPECT_TRUE(peer.was_refused(&refusal));
    EXPECT_EQ(refusal.version, vhca::kFabricVersion);
}

TEST(ShmFabric, another_release_is_refused_and_both_are_named) {
    Node node;
    RawPeer peer(node);
    Hello hello = RawPeer::hello();
    hello.release = {'9', '.', '8', '.', '7', '\n'};
    ASSERT_EQ(peer.say(hello), UCS_OK);
    testing::internal::CaptureStderr();
    node.poll();
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find("tagwire 9.8.7? "), std::string::npos) << log;
    EXPECT_NE(log.find("this process tagwire " TAGWIRE_VERSION_STRING), std::string::npos) << log;
    vhca::Refusal refusal{.release = {}};
    EXPECT_TRUE(peer.was_refused(&refusal));
    EXPECT_EQ(refusal.release, vhca::kRelease);
    EXPECT_EQ(node.counters().links_in, 0U);
}

TEST(ShmFabric, nonsense_in_a_ring_ends_that_link_only) {
    Node node, good;
    RawPeer bad(node);
    ASSERT_EQ(bad.say(RawPeer::hello()), UCS_OK);
    ASSERT_TRUE(good.send(node.route(), 1, kShort));
    node.poll();
    bad.ring.slots[0].control.store(1, std::memory_order_release);  // a packet of no bytes
    node.poll();
    EXPECT_EQ(node.counters().corrupt, 1U);
    EXPECT_TRUE(bad.was_refused());
    ASSERT_TRUE(good.send(node.route(), 2, kShort));
    node.poll();
    EXPECT_EQ(node.numbers, (std::vector<std::uint32_t>{1, 2}));
    EXPECT_TRUE(node.gone.empty());
}

TEST(ShmFabric, connections_that_say_nothing_are_bounded) {
    Node node;
    std::vector<ucs::UniqueFd> silent;
    for (std::size_t i = 0; i < ShmFabric::kUnknownMax + 10; ++i)
        silent.push_back(connect_to(node));
    for (int i = 0; i < 4; ++i)
        node.poll();
    EXPECT_EQ(node.counters().refused, 10U);
}

TEST(ShmFabric, another_user_is_refused) {
    if (::geteuid() != 0)
        TW_SKIP("becoming another user needs root");
    Node node;
    const std::string name = vhca::node_socket_name(0, node.fabric->lid());
    const pid_t child = ::fork();
    if (child == 0) {
        ucs::UniqueFd socket;
        const Hello hello = RawPeer::hello();
        const bool tried =
            ::setuid(65534) == 0 && ucs::unix_connect({"", name}, &socket) == UCS_OK &&
            ucs::unix_send(socket.get(), std::as_bytes(std::span(&hello, 1)), nullptr, 0) == UCS_OK;
        ::_exit(tried ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    node.poll();
    EXPECT_EQ(node.counters().refused, 1U);
    EXPECT_EQ(node.counters().links_in, 0U);
}

}  // namespace
}  // namespace tagwire::test
