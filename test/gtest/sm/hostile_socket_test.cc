// SPDX-License-Identifier: BSD-3-Clause
//
// Rules for packets on the connection socket, each broken by itself.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "sm/hostile_fixture.hpp"

namespace tagwire::test {
namespace {

// ---- The socket --------------------------------------------------------------------------------

TEST_F(HostilePeer, that_does_not_know_the_cookie_is_refused) {
    RawPeer peer = make_peer();
    peer.hello.cookie ^= 1;
    peer.say_hello();
    for (int i = 0; i < kHostileSteps && !peer.is_ended(); ++i)
        progress(1);
    EXPECT_TRUE(peer.is_ended());
    EXPECT_EQ(counter("refused"), 1U);
    EXPECT_TRUE(others_go_on());
}

struct HelloLie {
    const char* name;
    void (*tell)(sm::Hello& hello);
};
void PrintTo(const HelloLie& lie, std::ostream* out) {
    *out << lie.name;
}

class HostileHello : public HostilePeer, public testing::WithParamInterface<HelloLie> {};

TEST_P(HostileHello, ends_the_connection) {
    RawPeer peer = make_peer();
    GetParam().tell(peer.hello);
    peer.say_hello();
    EXPECT_TRUE(is_ended(peer));
    EXPECT_TRUE(others_go_on());
}

INSTANTIATE_TEST_SUITE_P(
    Lies, HostileHello,
    testing::Values(HelloLie{"magic", [](sm::Hello& h) { h.magic ^= 1; }},
                    HelloLie{"version", [](sm::Hello& h) { h.version += 1; }},
                    HelloLie{"type", [](sm::Hello& h) { h.type = sm::PacketType{9}; }},
                    HelloLie{"other_type", [](sm::Hello& h) { h.type = sm::PacketType::kRing; }},
                    HelloLie{"arena_bytes", [](sm::Hello& h) { h.arena_bytes *= 2; }},
                    HelloLie{"arena_huge", [](sm::Hello& h) { h.arena_bytes = UINT64_MAX; }},
                    HelloLie{"arena_id", [](sm::Hello& h) { h.arena_id = 0; }},
                    HelloLie{"writer", [](sm::Hello& h) { h.writer = sm::kWriters; }},
                    HelloLie{"bell_bytes", [](sm::Hello& h) { h.bell_bytes *= 2; }},
                    HelloLie{"bell_tiny", [](sm::Hello& h) { h.bell_bytes = 8; }}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

TEST_F(HostilePeer, that_sends_garbage_is_ended) {
    const std::array<std::byte, 200> garbage{std::byte{0x5a}};
    std::uint64_t violations = 0;
    for (const std::size_t bytes : {1U, 11U, 12U, 16U, 128U, 129U, 200U}) {
        RawPeer peer = make_peer();
        peer.send(std::span(garbage).first(bytes));
        EXPECT_TRUE(is_ended(peer, ++violations)) << bytes;
    }
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, that_greets_twice_is_ended) {
    RawPeer peer = make_peer();
    peer.say_hello();
    progress();
    peer.say_hello();
    EXPECT_TRUE(is_ended(peer));
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, that_greets_with_too_few_or_too_many_descriptors_is_ended) {
    std::uint64_t violations = 0;
    for (const std::size_t count : {0U, 1U, 3U}) {
        RawPeer peer = make_peer();
        const int fds[] = {peer.bell_fd.get(), peer.arena_fd.get(), peer.arena_fd.get()};
        peer.send(sm::bytes_of(peer.hello), std::span(fds).first(count));
        EXPECT_TRUE(is_ended(peer, ++violations)) << count;
    }
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, that_offers_memory_it_could_shrink_is_ended) {
    std::uint64_t violations = 0;
    for (const bool is_bell : {true, false}) {
        RawPeer peer = make_peer();
        ucs::UniqueFd& fd = is_bell ? peer.bell_fd : peer.arena_fd;
        fd.reset(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        const std::uint64_t bytes = is_bell ? peer.hello.bell_bytes : peer.hello.arena_bytes;
        ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
        peer.say_hello();
        EXPECT_TRUE(is_ended(peer, ++violations));
    }
    EXPECT_TRUE(others_go_on());
}

// The close of such a socket waits for its other end.
TEST_F(HostilePeer, that_passes_a_lingering_socket_does_not_stop_us) {
    RawPeer peer = make_peer();
    const int mine = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_GE(mine, 0);
    const ucs::UniqueFd socket(mine);
    linger wait{1, 3600};
    ASSERT_EQ(::setsockopt(mine, SOL_SOCKET, SO_LINGER, &wait, sizeof wait), 0);
    peer.bell_fd.reset(::dup(mine));
    peer.say_hello();
    EXPECT_TRUE(is_ended(peer));
    socklen_t bytes = sizeof wait;
    ASSERT_EQ(::getsockopt(mine, SOL_SOCKET, SO_LINGER, &wait, &bytes), 0);
    EXPECT_EQ(wait.l_onoff, 0) << "the library closed its copy as it came";
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, that_offers_a_pipe_for_memory_is_ended) {
    RawPeer peer = make_peer();
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const ucs::UniqueFd writer(ends[1]);
    peer.bell_fd.reset(ends[0]);
    peer.say_hello();
    EXPECT_TRUE(is_ended(peer));
    EXPECT_TRUE(others_go_on());
}

// Else our writes to the other would go to this one's memory.
TEST_F(HostilePeer, that_takes_the_name_of_anothers_arena_is_ended) {
    ASSERT_TRUE(others_go_on());
    RawPeer first = make_peer();
    first.say_hello();
    progress();
    RawPeer second = make_peer();
    second.hello.arena_id = first.hello.arena_id;
    second.say_hello();
    EXPECT_TRUE(is_ended(second));
    EXPECT_FALSE(first.is_ended());
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, that_offers_a_ring_before_it_greets_is_ended) {
    RawPeer peer = make_peer();
    peer.offer_ring();
    EXPECT_TRUE(is_ended(peer));
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, that_offers_two_rings_is_ended) {
    RawPeer peer = connected_peer();
    peer.offer_ring();
    EXPECT_TRUE(is_ended(peer));
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, that_offers_a_ring_without_its_descriptor_is_ended) {
    RawPeer peer = make_peer();
    peer.say_hello();
    peer.make_ring();
    peer.send_offer({});
    EXPECT_TRUE(is_ended(peer));
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, that_lies_about_the_geometry_of_its_ring_is_ended) {
    const std::vector<std::function<void(sm::RingOffer&)>> lies = {
        [](sm::RingOffer& o) { o.slot_count *= 4; },
        [](sm::RingOffer& o) { o.slot_count = 0; },
        [](sm::RingOffer& o) { o.slot_count = 0xffffffffU; },
        [](sm::RingOffer& o) { o.pool_blocks = 0; },
        [](sm::RingOffer& o) { o.seg_bytes = 32768; },
        [](sm::RingOffer& o) { o.seg_bytes += 1; },
        [](sm::RingOffer& o) { o.page_bytes = 0; },
        [](sm::RingOffer& o) { o.page_bytes = 65536; },
        [](sm::RingOffer& o) { o.bytes += 4096; },
        [](sm::RingOffer& o) {  // all numbers agree, but the segment is smaller
            o.seg_bytes = 2048;
            o.bytes = sm::RingGeometry{o.slot_count, 2048, o.pool_blocks, 4096}.bytes();
        },
        [](sm::RingOffer& o) { o.pool_blocks *= 2; },  // the pool is smaller
        [](sm::RingOffer& o) { o.pool_blocks = 0xffffffffU; },
        [](sm::RingOffer& o) {  // a back ring, which the segment has no room for
            o.slot_count = 64;
        }};
    std::uint64_t violations = 0;
    for (const auto& lie : lies) {
        RawPeer peer = make_peer();
        peer.say_hello();
        peer.make_ring();
        lie(peer.offer);
        const int fds[] = {peer.ring_fd.get(), peer.pool_fd.get()};
        peer.send_offer(fds);
        EXPECT_TRUE(is_ended(peer, violations + 1)) << violations;
        ++violations;
    }
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, that_wakes_us_without_a_ring_is_tolerated) {
    RawPeer peer = make_peer();
    const sm::Notice wake{sm::kPacketMagic, sm::kFormatVersion, sm::PacketType::kWake, 0};
    peer.send(sm::bytes_of(wake));
    progress();
    peer.say_hello();
    peer.send(sm::bytes_of(wake));
    EXPECT_TRUE(is_tolerated(peer));
    EXPECT_TRUE(others_go_on());
}

}  // namespace
}  // namespace tagwire::test
