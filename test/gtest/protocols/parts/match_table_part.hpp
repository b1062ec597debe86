// SPDX-License-Identifier: BSD-3-Clause
// The match table with peers and a worker that are fakes, for its tests.
#pragma once

#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "protocols/match/arrival.hpp"
#include "protocols/match/match_table.hpp"
#include "protocols/parts/fakes.hpp"

namespace tagwire::test {

inline constexpr std::uint64_t kTableBytes = 1 << 20, kTableMessages = 2000;
inline constexpr std::size_t kTableData = 1000;  // of most messages

/// In place of a worker.
class MatchTablePart : public testing::Test {
  protected:
    static proto::Options options() {
        proto::Options options{};
        options.unexpected_bytes = kTableBytes;
        options.envelopes_max = kTableMessages;
        return options;
    }

    /// A peer that is connected. It goes when the table ends it, as an endpoint does.
    FakeMatchPeer& add_peer() {
        all_.push_back(std::make_unique<FakeMatchPeer>(all_.size() + 1));
        FakeMatchPeer& peer = *all_.back();
        peer.id = peers_.add(peer);
        peer.fake.on_end = [this, &peer] { go(peer); };
        return peer;
    }
    void go(FakeMatchPeer& peer) {
        if (peers_.find(peer.id) != &peer)
            return;
        peer.incoming.end();
        table_.drop_messages_of(peer);
        peers_.remove(peer.id);
        table_.drop_orphans();
        table_.resume_if_free(nullptr);
    }

    proto::Arrival eager(std::uint64_t tag, std::size_t here, std::size_t length) {
        bytes_.assign(here, std::byte{static_cast<unsigned char>(tag)});
        proto::Arrival arrival{};
        arrival.tag = tag;
        arrival.length = length;
        arrival.flags = proto::kTagged;
        arrival.bytes = bytes_;
        return arrival;
    }
    /// One that is here as a whole.
    void keep(FakeMatchPeer& peer, std::uint64_t tag, std::size_t length = kTableData) {
        table_.add(peer, eager(tag, length, length));
    }
    /// Its place among the others is free; nullptr: there is none.
    proto::Unexpected* taken(std::uint64_t tag) {
        auto* message = static_cast<proto::Unexpected*>(
            table_.space(true).unexpected.take(tag, UINT64_MAX, proto::kAnySource));
        if (message != nullptr)
            table_.take(*message);
        return message;
    }
    /// A receive has it.
    bool receive(std::uint64_t tag) {
        proto::Unexpected* message = taken(tag);
        if (message != nullptr)
            table_.release(*message);
        return message != nullptr;
    }

    struct InUse {
        std::uint64_t messages, bytes, orphans, claimed;
        bool operator==(const InUse&) const = default;
    };
    InUse in_use() const {
        InUse found{};
        EXPECT_EQ(std::sscanf(table_.description().c_str(),
                              "%" SCNu64 " messages in %" SCNu64 " bytes, %" SCNu64
                              " of them from departed peers, %" SCNu64 " claimed",
                              &found.messages, &found.bytes, &found.orphans, &found.claimed),
                  4);
        return found;
    }
    std::uint64_t count(proto::WorkerCounter counter) const { return counters_.value(counter); }

    const proto::Options options_ = options();
    proto::WorkerCounters counters_;
    proto::IdTable<FakeMatchPeer> peers_;
    std::vector<std::unique_ptr<FakeMatchPeer>> all_;
    std::vector<proto::Request*> released_;
    proto::MatchTable table_{
        {.counters = counters_,
         .peers = peers_,
         .is_multi = false,
         .owner = this,
         .visit_peers =
             [](void* test, proto::MatchTable& table,
                void (*visit)(proto::MatchTable&, proto::MatchPeer&)) {
                 static_cast<MatchTablePart*>(test)->peers_.for_each(
                     [&](FakeMatchPeer& peer) { visit(table, peer); });
             },
         .release =
             [](void* test, proto::Request& receive) {
                 static_cast<MatchTablePart*>(test)->released_.push_back(&receive);
             }},
        options_};
    std::vector<std::byte> bytes_;

    void TearDown() override {
        table_.clear();
        EXPECT_EQ(in_use(), InUse{});
    }
};

}  // namespace tagwire::test
