// SPDX-License-Identifier: BSD-3-Clause
//
// A peer that breaks the rules, one at a time: the interface ends that connection and counts a
// violation, and an honest peer goes on undisturbed. What is merely a wrong request is answered
// with an error.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <uct/api/tagwire_uct.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "buffer.hpp"
#include "entity.hpp"
#include "operations.hpp"
#include "resource.hpp"
#include "sm/raw_peer.hpp"

namespace tagwire::test {
namespace {

using sm::Control;
using sm::Kind;

constexpr std::uint8_t kId = Entity::kAmId;
constexpr int kSteps = 2000;

EntityOptions victim_options(std::size_t rx_headroom) {
    EntityOptions options;
    options.rx_headroom = rx_headroom;
    options.iface_config = {// Straight copies would run against the puppet, which is innocent.
                            {"SM_CMA", "off"},
                            {"SM_RING_SLOTS", "16"},
                            {"SM_SEG_COUNT", "8"},
                            {"SM_SEG_BYTES", "1024"},
                            {"SM_LIVENESS_INTERVAL", "1us"}};
    options.md_config = {{"SM_ARENA_BYTES", "16m"}};
    return options;
}

class HostilePeer : public testing::Test {
  protected:
    explicit HostilePeer(std::size_t rx_headroom = 0)
        : puppet(shared_puppet()),
          victim(resource_of("sm"), victim_options(rx_headroom)),
          bystander(resource_of("sm")),
          to_victim(connect(bystander, victim).forward) {}

    static const Puppet& shared_puppet() {
        static const Puppet instance;
        return instance;
    }

    sm::IfaceAddress address() const {
        return *sm::parse_iface_address(victim.iface_address(), nullptr);
    }
    RawPeer make_peer() const { return {puppet, address()}; }
    RawPeer connected_peer() {
        RawPeer peer = make_peer();
        peer.say_hello();
        peer.offer_ring();
        progress();
        EXPECT_FALSE(peer.is_ended());
        return peer;
    }
    /** An endpoint of the victim to `peer`, over the connection that there is. */
    Endpoint back_to(const RawPeer& peer) {
        sm::IfaceAddress theirs = address();
        theirs.name = peer.hello.name;
        const auto bytes = sm::bytes_of(theirs);
        return connect_to_address(victim, victim.device_address(),
                                  Bytes(bytes.begin(), bytes.end()));
    }

    std::uint64_t counter(std::string_view name) {
        tagwire_uct_counter_t counters[64];
        unsigned count = 64;
        EXPECT_EQ(tagwire_uct_iface_query_counters(victim.iface(), counters, &count), UCS_OK);
        for (unsigned i = 0; i < count; ++i) {
            if (counters[i].name == name)
                return counters[i].value;
        }
        ADD_FAILURE() << "no counter " << name;
        return 0;
    }

    void progress(int steps = 100) {
        for (int i = 0; i < steps; ++i) {
            victim.progress();
            bystander.progress();
        }
    }

    testing::AssertionResult is_ended(RawPeer& peer, std::uint64_t violations = 1) {
        for (int i = 0; i < kSteps && !peer.is_ended(); ++i)
            progress(1);
        if (!peer.is_ended())
            return testing::AssertionFailure() << "the connection goes on";
        if (counter("violations") != violations)
            return testing::AssertionFailure() << counter("violations") << " violations";
        return testing::AssertionSuccess();
    }
    testing::AssertionResult is_tolerated(RawPeer& peer) {
        progress();
        if (peer.is_ended() || counter("violations") != 0)
            return testing::AssertionFailure() << "the connection was ended";
        return testing::AssertionSuccess();
    }
    /** The honest peer is served as ever. */
    testing::AssertionResult others_go_on() {
        for (const std::size_t bytes : {8, 2000}) {
            const std::uint64_t before = victim.am_count;
            for (int i = 0; i < kSteps; ++i) {
                if (send_am_bytes(to_victim, kId, pattern(bytes, 1)) != UCS_ERR_NO_RESOURCE)
                    break;
                progress(1);
            }
            for (int i = 0; i < kSteps && victim.am_count == before; ++i)
                progress(1);
            if (victim.am_count == before)
                return testing::AssertionFailure() << "a message of the honest peer is missing";
        }
        return testing::AssertionSuccess();
    }

    /** What the library answers to the peer. */
    RawMessage answer(RawPeer& peer) {
        for (int i = 0; i < kSteps; ++i) {
            if (const auto message = peer.receive())
                return *message;
            progress(1);
        }
        ADD_FAILURE() << "no answer";
        return {};
    }

    const Puppet& puppet;
    Entity victim;
    Entity bystander;
    Endpoint to_victim;
};

// ---- The socket --------------------------------------------------------------------------------

TEST_F(HostilePeer, ThatDoesNotKnowTheCookieIsRefused) {
    RawPeer peer = make_peer();
    peer.hello.cookie ^= 1;
    peer.say_hello();
    for (int i = 0; i < kSteps && !peer.is_ended(); ++i)
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

TEST_P(HostileHello, EndsTheConnection) {
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
                    HelloLie{"bell_bytes", [](sm::Hello& h) { h.bell_bytes *= 2; }},
                    HelloLie{"bell_tiny", [](sm::Hello& h) { h.bell_bytes = 8; }}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

TEST_F(HostilePeer, ThatSendsGarbageIsEnded) {
    const std::array<std::byte, 200> garbage{std::byte{0x5a}};
    std::uint64_t violations = 0;
    for (const std::size_t bytes : {1, 11, 12, 16, 128, 129, 200}) {
        RawPeer peer = make_peer();
        peer.send(std::span(garbage).first(bytes));
        EXPECT_TRUE(is_ended(peer, ++violations)) << bytes;
    }
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, ThatGreetsTwiceIsEnded) {
    RawPeer peer = make_peer();
    peer.say_hello();
    progress();
    peer.say_hello();
    EXPECT_TRUE(is_ended(peer));
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, ThatGreetsWithTooFewOrTooManyDescriptorsIsEnded) {
    std::uint64_t violations = 0;
    for (const std::size_t count : {0, 1, 3}) {
        RawPeer peer = make_peer();
        const int fds[] = {peer.bell_fd.get(), peer.arena_fd.get(), peer.arena_fd.get()};
        peer.send(sm::bytes_of(peer.hello), std::span(fds).first(count));
        EXPECT_TRUE(is_ended(peer, ++violations)) << count;
    }
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, ThatOffersMemoryItCouldShrinkIsEnded) {
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

TEST_F(HostilePeer, ThatOffersAPipeForMemoryIsEnded) {
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
TEST_F(HostilePeer, ThatTakesTheNameOfAnothersArenaIsEnded) {
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

TEST_F(HostilePeer, ThatOffersARingBeforeItGreetsIsEnded) {
    RawPeer peer = make_peer();
    peer.offer_ring();
    EXPECT_TRUE(is_ended(peer));
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, ThatOffersTwoRingsIsEnded) {
    RawPeer peer = connected_peer();
    peer.offer_ring();
    EXPECT_TRUE(is_ended(peer));
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, ThatOffersARingWithoutItsDescriptorIsEnded) {
    RawPeer peer = make_peer();
    peer.say_hello();
    peer.make_ring();
    peer.send_offer({});
    EXPECT_TRUE(is_ended(peer));
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, ThatLiesAboutTheGeometryOfItsRingIsEnded) {
    const std::vector<std::function<void(sm::RingOffer&)>> lies = {
        [](sm::RingOffer& o) { o.slot_count *= 4; },
        [](sm::RingOffer& o) { o.slot_count = 0; },
        [](sm::RingOffer& o) { o.slot_count = 0xffffffffU; },
        [](sm::RingOffer& o) { o.seg_count *= 4; },
        [](sm::RingOffer& o) { o.seg_bytes = 32768; },
        [](sm::RingOffer& o) { o.seg_bytes += 1; },
        [](sm::RingOffer& o) { o.page_bytes = 0; },
        [](sm::RingOffer& o) { o.page_bytes = 65536; },
        [](sm::RingOffer& o) { o.bytes += 4096; },
        [](sm::RingOffer& o) {  // all numbers agree, but the segment is smaller
            o.seg_bytes = 2048;
            o.bytes = sm::RingGeometry{o.slot_count, o.seg_count, 2048, 4096}.bytes();
        }};
    std::uint64_t violations = 0;
    for (const auto& lie : lies) {
        RawPeer peer = make_peer();
        peer.say_hello();
        peer.make_ring();
        lie(peer.offer);
        const int fds[] = {peer.ring_fd.get()};
        peer.send_offer(fds);
        EXPECT_TRUE(is_ended(peer, violations + 1)) << violations;
        ++violations;
    }
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, ThatWakesUsWithoutARingIsTolerated) {
    RawPeer peer = make_peer();
    const sm::Notice wake{sm::kPacketMagic, sm::kFormatVersion, sm::PacketType::kWake, 0};
    peer.send(sm::bytes_of(wake));
    progress();
    peer.say_hello();
    peer.send(sm::bytes_of(wake));
    EXPECT_TRUE(is_tolerated(peer));
    EXPECT_TRUE(others_go_on());
}

// ---- Messages that break the format ------------------------------------------------------------

struct BadMessage {
    const char* name;
    void (*send)(RawPeer& peer);
};
void PrintTo(const BadMessage& message, std::ostream* out) {
    *out << message.name;
}

class HostileMessage : public HostilePeer, public testing::WithParamInterface<BadMessage> {};

TEST_P(HostileMessage, EndsTheConnection) {
    RawPeer peer = connected_peer();
    peer.publish(Kind::kAm, std::uint64_t{1}, kId);  // the good one before it arrives
    GetParam().send(peer);
    EXPECT_TRUE(is_ended(peer));
    EXPECT_EQ(victim.am_count, 1U);
    EXPECT_EQ(victim.eager_count, 0U);
    EXPECT_EQ(victim.rndv_count, 0U);
    EXPECT_TRUE(others_go_on());
}

sm::RndvBody good_rndv() {
    return {1, 0x1000, 64, sm::kNoOffset, 1, 0, 0, 0, {}};
}

template <Kind kind, class Body>
void send_wrong_length(RawPeer& peer) {
    peer.publish(kind, Body{}, 0, sizeof(Body) - 1);
}

INSTANTIATE_TEST_SUITE_P(
    Messages, HostileMessage,
    testing::Values(
        BadMessage{"no_kind", [](RawPeer& p) { p.publish(Kind::kNone, 0); }},
        BadMessage{"kind_above_the_last", [](RawPeer& p) { p.publish(Kind{17}, 0); }},
        BadMessage{"kind_255", [](RawPeer& p) { p.publish(Kind{255}, 0); }},
        BadMessage{"am_length", [](RawPeer& p) { p.publish(Kind::kAm, 0, kId, 121); }},
        BadMessage{"am_length_max", [](RawPeer& p) { p.publish(Kind::kAm, 0, kId, 65535); }},
        BadMessage{"am_id", [](RawPeer& p) { p.publish(Kind::kAm, 0, UCT_AM_ID_MAX, 8); }},
        BadMessage{"am_id_255", [](RawPeer& p) { p.publish(Kind::kAm, 0, 255, 8); }},
        BadMessage{"am_seg_index",
                   [](RawPeer& p) { p.publish(Kind::kAmSeg, sm::AmSegBody{8}, kId, 8); }},
        BadMessage{"am_seg_index_max",
                   [](RawPeer& p) { p.publish(Kind::kAmSeg, sm::AmSegBody{~0U}, kId, 8); }},
        BadMessage{"am_seg_length",
                   [](RawPeer& p) { p.publish(Kind::kAmSeg, sm::AmSegBody{0}, kId, 1025); }},
        BadMessage{"am_seg_id",
                   [](RawPeer& p) { p.publish(Kind::kAmSeg, sm::AmSegBody{0}, 77, 8); }},
        BadMessage{"tag_short_length", [](RawPeer& p) { p.publish(Kind::kTagShort, 0, 0, 113); }},
        BadMessage{"tag_imm_length", [](RawPeer& p) { p.publish(Kind::kTagImm, 0, 0, 105); }},
        BadMessage{"fragment_index",
                   [](RawPeer& p) {
                       p.publish(Kind::kTagSeg, sm::TagSegBody{1, 0, 8, 8}, sm::kFirst, 8);
                   }},
        BadMessage{"fragment_length",
                   [](RawPeer& p) {
                       p.publish(Kind::kTagSeg, sm::TagSegBody{1, 0, 1025, 0}, sm::kFirst, 1025);
                   }},
        BadMessage{"fragment_longer_than_its_message",
                   [](RawPeer& p) {
                       p.publish(Kind::kTagSeg, sm::TagSegBody{1, 0, 8, 0}, sm::kFirst, 9);
                   }},
        BadMessage{"fragment_says_no_more_follow",
                   [](RawPeer& p) {
                       p.publish(Kind::kTagSeg, sm::TagSegBody{1, 0, 16, 0}, sm::kFirst, 8);
                   }},
        BadMessage{
            "fragment_says_more_follow",
            [](RawPeer& p) {
                p.publish(Kind::kTagSeg, sm::TagSegBody{1, 0, 8, 0}, sm::kFirst | sm::kMore, 8);
            }},
        BadMessage{"fragment_without_a_first",
                   [](RawPeer& p) {
                       p.publish(Kind::kTagSeg, sm::TagSegBody{1, 0, 8, 0}, 0, 8);
                   }},
        BadMessage{"two_first_fragments",
                   [](RawPeer& p) {
                       for (int i = 0; i < 2; ++i) {
                           p.publish(Kind::kTagSeg, sm::TagSegBody{1, 0, 2000, 0},
                                     sm::kFirst | sm::kMore, 1000);
                       }
                   }},
        BadMessage{"message_of_too_many_fragments",
                   [](RawPeer& p) {
                       p.publish(Kind::kTagSeg, sm::TagSegBody{1, 0, 9 * 1024, 0},
                                 sm::kFirst | sm::kMore, 1024);
                   }},
        BadMessage{"rndv_op",
                   [](RawPeer& p) {
                       auto body = good_rndv();
                       body.op = sm::kRndvCount;
                       p.publish(Kind::kRndv, body, 0, 0);
                   }},
        BadMessage{"rndv_header_length",
                   [](RawPeer& p) { p.publish(Kind::kRndv, good_rndv(), 0, 73); }},
        BadMessage{"rndv_header_buffer",
                   [](RawPeer& p) {
                       auto body = good_rndv();
                       body.seg = 8;
                       p.publish(Kind::kRndv, body, sm::kHeaderInSeg, 8);
                   }},
        BadMessage{"rndv_header_longer_than_its_buffer",
                   [](RawPeer& p) { p.publish(Kind::kRndv, good_rndv(), sm::kHeaderInSeg, 1025); }},
        BadMessage{"rndv_wraps_around",
                   [](RawPeer& p) {
                       auto body = good_rndv();
                       body.address = UINT64_MAX - 10;
                       p.publish(Kind::kRndv, body, 0, 0);
                   }},
        BadMessage{"rndv_behind_its_arena",
                   [](RawPeer& p) {
                       auto body = good_rndv();
                       body.arena_offset = RawPeer::kArenaBytes - 63;
                       p.publish(Kind::kRndv, body, sm::kInArena, 0);
                   }},
        BadMessage{"rndv_arena_offset_wraps_around",
                   [](RawPeer& p) {
                       auto body = good_rndv();
                       body.arena_offset = UINT64_MAX - 31;
                       p.publish(Kind::kRndv, body, sm::kInArena, 0);
                   }},
        BadMessage{
            "request_header_length",
            [](RawPeer& p) { p.publish(Kind::kRndvRequest, sm::RndvRequestBody{}, 0, 105); }},
        BadMessage{"request_header_buffer",
                   [](RawPeer& p) {
                       p.publish(Kind::kRndvRequest, sm::RndvRequestBody{1, 8, 0, {}},
                                 sm::kHeaderInSeg, 8);
                   }},
        BadMessage{"fin_of_nothing",
                   [](RawPeer& p) {
                       p.publish(Kind::kRndvFin, sm::RndvFinBody{1, 0, 0});
                   }},
        BadMessage{"fin_op_max",
                   [](RawPeer& p) {
                       p.publish(Kind::kRndvFin, sm::RndvFinBody{1, ~0U, 0});
                   }},
        BadMessage{"help_with_nothing",
                   [](RawPeer& p) {
                       p.publish(Kind::kRndvHelp, sm::RndvHelpBody{0x1000, 8, 1, 0});
                   }},
        BadMessage{"pull_of_no_rendezvous",
                   [](RawPeer& p) {
                       p.publish(Kind::kPull, sm::PullBody{0x1000, 8, 1, 0, 0, 0});
                   }},
        BadMessage{"push_buffer",
                   [](RawPeer& p) {
                       p.publish(Kind::kPush, sm::PushBody{0x1000, 0, 8, 8, 0, 1});
                   }},
        BadMessage{"push_length",
                   [](RawPeer& p) {
                       p.publish(Kind::kPush, sm::PushBody{0x1000, 0, 0, 1025, 0, 1});
                   }},
        BadMessage{"pull_data_buffer",
                   [](RawPeer& p) {
                       p.publish(Kind::kPullData, sm::PullDataBody{0, 8, 0, 8});
                   }},
        BadMessage{"pull_data_length",
                   [](RawPeer& p) {
                       p.publish(Kind::kPullData, sm::PullDataBody{0, 0, 0, 1025});
                   }},
        BadMessage{
            "atomic_opcode",
            [](RawPeer& p) {
                p.publish(Kind::kAtomic, sm::AtomicBody{0x1000, 1, 0, 0, 0, UCT_ATOMIC_OP_LAST, 8});
            }},
        BadMessage{"atomic_bytes",
                   [](RawPeer& p) {
                       p.publish(Kind::kAtomic, sm::AtomicBody{0x1000, 1, 0, 0, 0, 0, 3});
                   }},
        BadMessage{"fin_length", send_wrong_length<Kind::kRndvFin, sm::RndvFinBody>},
        BadMessage{"help_length", send_wrong_length<Kind::kRndvHelp, sm::RndvHelpBody>},
        BadMessage{"pull_length", send_wrong_length<Kind::kPull, sm::PullBody>},
        BadMessage{"pull_data_own_length", send_wrong_length<Kind::kPullData, sm::PullDataBody>},
        BadMessage{"push_own_length", send_wrong_length<Kind::kPush, sm::PushBody>},
        BadMessage{"push_ack_length", send_wrong_length<Kind::kPushAck, sm::PushAckBody>},
        BadMessage{"atomic_length", send_wrong_length<Kind::kAtomic, sm::AtomicBody>},
        BadMessage{"atomic_reply_length",
                   send_wrong_length<Kind::kAtomicReply, sm::AtomicReplyBody>}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

// ---- Requests that are merely wrong
// --------------------------------------------------------------

TEST_F(HostilePeer, IsAnsweredWithAnErrorWhenItAsksForMemoryThatIsNotRegistered) {
    RawPeer peer = connected_peer();
    const Buffer buffer(victim, 100, Backing::kRegistered);
    for (const std::uint32_t key : {0U, 12345U, ~0U}) {
        peer.publish(Kind::kPull, sm::PullBody{buffer.address(), 8, 0, key, sm::kNoOp, 77});
        const auto pulled = answer(peer);
        ASSERT_TRUE(pulled.is(Kind::kPullData));
        EXPECT_EQ(pulled.as<sm::PullDataBody>().op, 77U);
        EXPECT_LT(pulled.as<sm::PullDataBody>().status, 0);

        peer.publish(Kind::kPush, sm::PushBody{buffer.address(), key, 0, 8, 78, 1});
        const auto pushed = answer(peer);
        ASSERT_TRUE(pushed.is(Kind::kPushAck));
        EXPECT_EQ(pushed.as<sm::PushAckBody>().op, 78U);
        EXPECT_LT(pushed.as<sm::PushAckBody>().status, 0);

        peer.publish(Kind::kAtomic, sm::AtomicBody{buffer.address(), 1, 0, key, 79, 0, 8});
        const auto changed = answer(peer);
        ASSERT_TRUE(changed.is(Kind::kAtomicReply));
        EXPECT_EQ(changed.as<sm::AtomicReplyBody>().op, 79U);
        EXPECT_LT(changed.as<sm::AtomicReplyBody>().status, 0);
    }
    EXPECT_TRUE(is_tolerated(peer));
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, IsAnsweredWithAnErrorWhenItLeavesARegistration) {
    RawPeer peer = connected_peer();
    const Buffer buffer(victim, 4096, Backing::kRegistered);
    sm::PackedRkey key{};
    std::memcpy(&key, buffer.packed_rkey().data(), sizeof key);
    const Bytes before(buffer.span().begin(), buffer.span().end());
    for (const std::uint64_t address :
         {key.address - 1, key.address + key.length - 7, key.address + key.length, std::uint64_t{0},
          UINT64_MAX - 3}) {
        peer.publish(Kind::kPush, sm::PushBody{address, key.key, 0, 8, 1, 1});
        EXPECT_LT(answer(peer).as<sm::PushAckBody>().status, 0) << address - key.address;
        peer.publish(Kind::kPull, sm::PullBody{address, 8, 0, key.key, sm::kNoOp, 1});
        EXPECT_LT(answer(peer).as<sm::PullDataBody>().status, 0) << address - key.address;
        peer.publish(Kind::kAtomic, sm::AtomicBody{address, 1, 0, key.key, 1, 0, 8});
        EXPECT_LT(answer(peer).as<sm::AtomicReplyBody>().status, 0) << address - key.address;
    }
    peer.publish(Kind::kAtomic, sm::AtomicBody{key.address + 1, 1, 0, key.key, 1, 0, 8});
    EXPECT_LT(answer(peer).as<sm::AtomicReplyBody>().status, 0) << "not aligned";
    EXPECT_EQ(before, Bytes(buffer.span().begin(), buffer.span().end()));

    peer.publish(Kind::kAtomic, sm::AtomicBody{key.address, 5, 0, key.key, 1, 0, 8});
    EXPECT_EQ(answer(peer).as<sm::AtomicReplyBody>().status, UCS_OK);
    EXPECT_TRUE(is_tolerated(peer));
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostilePeer, ThatAnswersWhatNobodyAskedIsIgnored) {
    RawPeer peer = connected_peer();
    for (const std::uint32_t op : {0U, 1U, 4096U, ~0U}) {
        peer.publish(Kind::kPullData, sm::PullDataBody{op, 0, 0, 8});
        peer.publish(Kind::kPushAck, sm::PushAckBody{op, 0});
        peer.publish(Kind::kAtomicReply, sm::AtomicReplyBody{1, op, 0});
    }
    EXPECT_TRUE(is_tolerated(peer));
    EXPECT_TRUE(others_go_on());
}

// ---- The peer as a receiver ---------------------------------------------------------------------

TEST_F(HostilePeer, WhosePositionCannotBeIsEndedByTheSendThatSeesIt) {
    RawPeer peer = connected_peer();
    const Endpoint ep = back_to(peer);
    ASSERT_EQ(uct_ep_am_short(ep, kId, 1, nullptr, 0), UCS_OK);
    ASSERT_NE(peer.their_head(), nullptr);
    peer.their_head()->consumer.tail.store(1000, std::memory_order_release);
    ucs_status_t status = UCS_OK;
    for (int i = 0; i < 100 && status == UCS_OK; ++i)
        status = uct_ep_am_short(ep, kId, 1, nullptr, 0);
    EXPECT_EQ(status, UCS_ERR_CONNECTION_RESET);
    EXPECT_TRUE(is_ended(peer));
    EXPECT_EQ(victim.errors.size(), 1U);
    EXPECT_TRUE(others_go_on());
}

/** A rendezvous of the victim, as the peer sees it. */
struct Offered {
    sm::RndvBody body;
    std::unique_ptr<Completion> completion;
};

class HostileReceiver : public HostilePeer {
  protected:
    HostileReceiver() : peer(connected_peer()), ep(back_to(peer)) {}

    Offered offer(const Buffer& payload) {
        Offered offered{{}, std::make_unique<Completion>()};
        const uct_iov_t iov = payload.iov();
        EXPECT_FALSE(UCS_PTR_IS_ERR(
            uct_ep_tag_rndv_zcopy(ep, 1, nullptr, 0, &iov, 1, 0, offered.completion.get())));
        const auto message = answer(peer);
        EXPECT_TRUE(message.is(Kind::kRndv));
        offered.body = message.as<sm::RndvBody>();
        return offered;
    }
    void pull(const sm::RndvBody& rndv, std::uint64_t address, std::uint64_t length) {
        peer.publish(Kind::kPull, sm::PullBody{address, length, rndv.generation, 0, rndv.op, 99});
    }

    RawPeer peer;
    Endpoint ep;
};

TEST_F(HostileReceiver, PullsNothingButTheDataOfARendezvous) {
    const Buffer payload = make_payload(victim, 3000, 5);
    const Offered offered = offer(payload);
    pull(offered.body, offered.body.address, 500);
    const auto data = answer(peer).as<sm::PullDataBody>();
    EXPECT_EQ(data.status, UCS_OK);
    EXPECT_EQ(data.length, 500U);
    EXPECT_TRUE(has_pattern({peer.their_buffer(data.seg), data.length}, 5));
    pull(offered.body, offered.body.address + 1, 8);
    EXPECT_TRUE(is_ended(peer));
    EXPECT_EQ(offered.completion->calls, 1);
    EXPECT_EQ(offered.completion->ended, UCS_ERR_CONNECTION_RESET);
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostileReceiver, CannotPullMoreThanARendezvousHas) {
    const Buffer payload = make_payload(victim, 3000, 5);
    const Offered offered = offer(payload);
    pull(offered.body, offered.body.address, 3001);
    EXPECT_TRUE(is_ended(peer));
    EXPECT_EQ(offered.completion->calls, 1);
}

// A request for a rendezvous that comes later is not checked when that one starts: it must not be
// served then, however long the peer holds back the buffers that serving it needs.
TEST_F(HostileReceiver, CannotPullOtherMemoryByARequestThatCameTooEarly) {
    static const Bytes secret = pattern(64, 4711);
    const Buffer payload = make_payload(victim, 3000, 5);
    const Offered first = offer(payload);
    std::vector<std::uint32_t> held;
    for (int i = 0; i < 8; ++i) {
        ASSERT_EQ(send_am_bytes(ep, kId, pattern(900, 1)), UCS_OK);
        held.push_back(answer(peer).as<sm::AmSegBody>().seg);
    }
    sm::RndvBody next = first.body;
    ++next.generation;
    pull(next, reinterpret_cast<std::uintptr_t>(secret.data()), secret.size());
    peer.publish(Kind::kRndvFin, sm::RndvFinBody{first.body.generation, first.body.op, UCS_OK});
    progress();
    EXPECT_EQ(first.completion->calls, 1);

    const Offered second = offer(payload);
    EXPECT_EQ(second.body.op, next.op);
    EXPECT_EQ(second.body.generation, next.generation);
    for (const std::uint32_t seg : held)
        peer.give_back(seg);
    for (int i = 0; i < kSteps; ++i) {
        progress(1);
        const auto message = peer.receive();
        if (!message || !message->is(Kind::kPullData))
            continue;
        const auto data = message->as<sm::PullDataBody>();
        EXPECT_NE(data.status, UCS_OK) << "the peer has read memory that is not its business";
        break;
    }
    EXPECT_TRUE(others_go_on());
    ep.reset();
}

TEST_F(HostileReceiver, CannotMakeUsQueueAnswersWithoutEnd) {
    bool ended = false;
    for (std::uint64_t round = 0; round < 20'000 && !ended; ++round) {
        for (int i = 0; i < 8; ++i)
            peer.publish(Kind::kAtomic, sm::AtomicBody{0x1000, 1, 0, 1, 0, 0, 8});
        victim.progress();
        ended = counter("violations") != 0;
    }
    EXPECT_TRUE(ended) << "answers are queued without a bound";
    EXPECT_TRUE(is_ended(peer));
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostileReceiver, ThatReturnsBuffersItDoesNotHaveGainsNothing) {
    ASSERT_EQ(send_am_bytes(ep, kId, pattern(900, 1)), UCS_OK);
    ASSERT_TRUE(answer(peer).is(Kind::kAmSeg));
    for (const std::uint32_t seg : {8U, ~0U, 0U, 0U, 0U})
        peer.give_back(seg);
    int sent = 0;
    while (send_am_bytes(ep, kId, pattern(900, 1)) == UCS_OK)
        ++sent;
    EXPECT_LE(sent, 8);
    peer.their_head()->returns.count.store(UINT64_MAX / 2, std::memory_order_release);
    EXPECT_EQ(send_am_bytes(ep, kId, pattern(900, 1)), UCS_ERR_NO_RESOURCE);
    EXPECT_TRUE(is_tolerated(peer));
    EXPECT_TRUE(others_go_on());
}

// ---- Buffers larger than our own ----------------------------------------------------------------

class LargeBuffers : public HostilePeer {
  protected:
    LargeBuffers() : HostilePeer(48) {}
};

// With headroom the data is copied into a descriptor of ours: of a size that anybody's buffer fits.
TEST_F(LargeBuffers, DoNotRunOverTheirDescriptors) {
    constexpr std::uint32_t kLarge = 32768;
    RawPeer peer = make_peer();
    peer.geometry.seg_bytes = kLarge;
    peer.say_hello();
    peer.offer_ring();
    std::vector<std::byte*> kept;
    victim.keep_record = false;
    victim.on_am = [&](const AmMessage& message) {
        if ((message.flags & UCT_CB_PARAM_FLAG_DESC) == 0 || message.bytes.size() != kLarge)
            return UCS_OK;
        kept.push_back(static_cast<std::byte*>(message.data));
        return UCS_INPROGRESS;
    };
    for (std::uint32_t seg = 0; seg < 8; ++seg) {
        fill_pattern({peer.buffer(seg), kLarge}, seg);
        peer.publish(Kind::kAmSeg, sm::AmSegBody{seg}, kId, kLarge);
    }
    progress();
    for (std::size_t i = 0; i < kept.size(); ++i) {
        EXPECT_TRUE(has_pattern({kept[i], kLarge}, i)) << "message " << i << " was overwritten";
        uct_iface_release_desc(kept[i] - victim.rx_headroom());
    }
    EXPECT_TRUE(kept.size() == 8 || peer.is_ended());
    EXPECT_TRUE(others_go_on());
}

}  // namespace
}  // namespace tagwire::test
