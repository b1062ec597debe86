// SPDX-License-Identifier: BSD-3-Clause
//
// An interface, an honest peer, and hostile peers (raw_peer.hpp) that break the rules: the
// interface ends the connection of a hostile peer and counts a violation, and the honest peer goes
// on undisturbed.

#pragma once

#include <gtest/gtest.h>
#include <uct/api/tagwire_uct.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "buffer.hpp"
#include "entity.hpp"
#include "operations.hpp"
#include "resource.hpp"
#include "sm/raw_peer.hpp"

namespace tagwire::test {

inline constexpr std::uint8_t kAmId = Entity::kAmId;
inline constexpr int kHostileSteps = 2000;

/** Resources that this process holds at the moment. */
struct Holdings {
    std::size_t descriptors;
    std::size_t mappings;
    bool operator==(const Holdings&) const = default;
};
inline Holdings holdings() {
    std::ifstream maps("/proc/self/maps");
    const auto lines = std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
    const auto fds = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
    return {static_cast<std::size_t>(fds), static_cast<std::size_t>(lines)};
}

inline EntityOptions victim_options(std::size_t rx_headroom, const char* cma) {
    EntityOptions options;
    options.rx_headroom = rx_headroom;
    options.iface_config = {// Straight copies would run against the puppet, which is innocent.
                            {"SM_CMA", cma},
                            {"SM_RING_SLOTS", "16"},
                            {"SM_POOL_BYTES", "64k"},
                            {"SM_SEG_BYTES", "1024"},
                            {"SM_LIVENESS_INTERVAL", "1us"}};
    options.md_config = {{"SM_ARENA_BYTES", "16m"}};
    return options;
}

class HostilePeer : public testing::Test {
  protected:
    explicit HostilePeer(std::size_t rx_headroom = 0, const char* cma = "off")
        : puppet(shared_puppet()),
          victim(resource_of("sm"), victim_options(rx_headroom, cma)),
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
        for (unsigned i = 0; i < count; ++i)
            if (counters[i].name == name)
                return counters[i].value;
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
        for (int i = 0; i < kHostileSteps && !peer.is_ended(); ++i)
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
        for (const std::size_t bytes : {8U, 2000U}) {
            const std::uint64_t before = victim.am_count;
            for (int i = 0; i < kHostileSteps; ++i) {
                if (send_am_bytes(to_victim, kAmId, pattern(bytes, 1)) != UCS_ERR_NO_RESOURCE)
                    break;
                progress(1);
            }
            for (int i = 0; i < kHostileSteps && victim.am_count == before; ++i)
                progress(1);
            if (victim.am_count == before)
                return testing::AssertionFailure() << "a message of the honest peer is missing";
        }
        return testing::AssertionSuccess();
    }

    /** The library's answer to the peer. */
    RawMessage answer(RawPeer& peer) {
        for (int i = 0; i < kHostileSteps; ++i) {
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

}  // namespace tagwire::test
