// SPDX-License-Identifier: BSD-3-Clause
// A key to memory of a peer, alone: its ranges and rights, keys of lanes over a transport that is a
// fake, the question for those that it lacks, and its holders.
#include "protocols/rma/remote_key.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/nomem.hpp"
#include "protocols/connect/connector.hpp"
#include "protocols/parts/connector_part.hpp"
#include "protocols/parts/fake_worker.hpp"
#include "protocols/parts/real_key.hpp"
#include "protocols/rma/rma_ops.hpp"
#include "protocols/rma/rma_sender.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::test {
namespace {

using proto::LaneKey;
using proto::MemoryKeyMessage;
using proto::Request;

class RemoteKeyPart : public testing::Test {
  protected:
    static constexpr std::uint64_t kAddress = 0x10000, kLength = 0x1000;

    RemoteKeyPart() {
        EXPECT_EQ(ops_.open(), UCS_OK);
        worker_.on_end_rma = [this](Request& request) { ops_.end(request); };
        domain_ = real_.domain();
        lane_.ep = uct_.ep();
        lane_.over = &rail_;
        lane_.state = proto::EpState::kReady;
        rail_.attributes().cap.flags = UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_PUT_ZCOPY;
        rma_lane_.peer_domain = 1;
    }

    /// The packed key has keys of `domains`, all of the same memory.
    proto::RemoteKey& make(const std::vector<std::uint8_t>& domains,
                           std::uint32_t access = TW_ACCESS_ALL) {
        MemoryKeyMessage message;
        message.key = {.memory = 3, .address = kAddress, .length = kLength, .access = access};
        message.bytes = real_.message.bytes;
        for (const std::uint8_t domain : domains)
            message.of_domain[domain] = real_.message.of_domain[real_.domain_index];
        key_ = new proto::RemoteKey(1, message);
        return *key_;
    }
    proto::KeyPorts ports() {
        return {worker_.requests, ops_, peer_, lane_, rma_lane_, wireup_.connector};
    }
    /// False: there is no memory to ask.
    bool ask(proto::RemoteKey& key) { return !key.wants_keys(ports()) || key.ask_owner(ports()); }
    /// The owner has told a key of that domain.
    void tell(const Request& question, std::uint8_t domain) {
        const proto::WireBytes packed = real_.message.key_of(real_.domain_index);
        const proto::KeyHead head{domain, static_cast<std::uint8_t>(packed.size())};
        std::byte* const to = question.buffer.base;
        std::memcpy(to, &head, sizeof head);
        std::memcpy(to + sizeof head, packed.data(), packed.size());
        question.rma->key->owner_told(sizeof head + packed.size());
    }
    void end(Request& request) {
        ops_.end(request);
        worker_.requests.release_id(request);
        worker_.requests.release(request);
    }
    void TearDown() override {
        key_->let_go();
        EXPECT_EQ(worker_.requests.in_use(), 0U);
    }

    RealKey real_;
    FakeWorker worker_{1};
    FakeMatchPeer peer_{5};
    FakeUct uct_;
    FakeRail rail_{worker_.options};
    proto::Domain& domain_ = rail_.own_domain;
    proto::LaneState lane_;
    proto::RmaLane rma_lane_;
    proto::RmaOps ops_;
    ConnectorSide wireup_{1, 2};  // which has heard nothing
    proto::RemoteKey* key_ = nullptr;
};

TEST_F(RemoteKeyPart, it_covers_ranges_of_the_rights_that_it_gives) {
    const proto::RemoteKey& key = make({1}, TW_ACCESS_READ | TW_ACCESS_ATOMIC);
    EXPECT_TRUE(key.covers(kAddress, kLength, TW_ACCESS_READ));
    EXPECT_TRUE(key.covers(kAddress + kLength, 0, TW_ACCESS_ATOMIC));
    EXPECT_TRUE(key.covers(kAddress, kLength, TW_ACCESS_ALL));
    EXPECT_FALSE(key.covers(kAddress, 1, TW_ACCESS_WRITE));
    EXPECT_FALSE(key.covers(kAddress - 1, 1, TW_ACCESS_READ));
    EXPECT_FALSE(key.covers(kAddress, kLength + 1, TW_ACCESS_READ));
    EXPECT_FALSE(key.covers(kAddress + 1, UINT64_MAX, TW_ACCESS_READ));
}

TEST_F(RemoteKeyPart, the_key_of_a_lane_is_made_once_and_goes_with_it) {
    proto::RemoteKey& key = make({1});
    EXPECT_EQ(key.found(1), nullptr);
    const LaneKey* const made = key.resolve(1, domain_);
    ASSERT_NE(made, nullptr);
    EXPECT_EQ(key.found(1), made);
    EXPECT_EQ(key.resolve(1, domain_), made);
    EXPECT_EQ(key.found(proto::kKeyDomainsMax), nullptr);  // of a lane that leads nowhere
}

TEST_F(RemoteKeyPart, whether_loads_and_stores_reach_is_settled_when_the_key_is_made) {
    const LaneKey* const made = make({1}).resolve(1, domain_);
    ASSERT_NE(made, nullptr);
    EXPECT_TRUE(made->is_settled.load());
    EXPECT_FALSE(made->is_direct.load());  // by this transport they do not
}

TEST_F(RemoteKeyPart, bytes_that_are_no_key_of_the_transport_make_none) {
    proto::RemoteKey& key = make({1});
    EXPECT_EQ(key.resolve(2, domain_), nullptr);  // it has none of that domain
    domain_.attr.rkey_packed_size += 1;
    EXPECT_EQ(key.resolve(1, domain_), nullptr);
}

TEST_F(RemoteKeyPart, an_operation_holds_it_until_it_ends) {
    proto::RemoteKey& key = make({1});
    key.hold();
    key.let_go();
    EXPECT_NE(key.resolve(1, domain_), nullptr);
}

// ---- The question

TEST_F(RemoteKeyPart, the_owner_is_asked_once_for_keys_that_are_lacking) {
    proto::RemoteKey& key = make({2});
    EXPECT_TRUE(ask(key));
    ASSERT_EQ(peer_.fake.submitted.size(), 1U);
    Request& question = *peer_.fake.submitted[0];
    EXPECT_EQ(question.rma->kind, proto::RmaKind::kKeys);
    EXPECT_EQ(question.rma->key, &key);
    EXPECT_TRUE(ask(key));
    EXPECT_EQ(peer_.fake.submitted.size(), 1U);
    EXPECT_EQ(key.resolve(1, domain_), nullptr);
    tell(question, 1);
    EXPECT_NE(key.resolve(1, domain_), nullptr);
    proto::KeyList list;
    key.list(&list);
    EXPECT_EQ(list.used, 2 * (sizeof(proto::KeyHead) + domain_.attr.rkey_packed_size));
    end(question);
}

TEST_F(RemoteKeyPart, a_question_that_ends_without_a_reply_is_asked_again) {
    proto::RemoteKey& key = make({2});
    EXPECT_TRUE(ask(key));
    EXPECT_TRUE(key.is_asked());
    EXPECT_FALSE(key.wants_keys(ports()));
    end(*peer_.fake.submitted[0]);  // the connection has ended, say
    EXPECT_FALSE(key.is_asked());
    EXPECT_TRUE(ask(key));
    ASSERT_EQ(peer_.fake.submitted.size(), 2U);
    tell(*peer_.fake.submitted[1], 3);
    end(*peer_.fake.submitted[1]);
    EXPECT_FALSE(key.wants_keys(ports())) << "the owner has none that serves the lane";
    EXPECT_FALSE(key.is_asked());
}

TEST_F(RemoteKeyPart, it_serves_one_worker_and_one_owner) {
    const proto::RemoteKey& key = make({1});
    EXPECT_EQ(key.use, proto::key_use(1, 0));
    EXPECT_NE(key.use, proto::key_use(2, 0));
    EXPECT_NE(key.use, proto::key_use(1, 1));
    EXPECT_EQ(proto::owner_of(0xabcdef0000000001), 0xabcdefU);
}

TEST_F(RemoteKeyPart, nobody_is_asked_where_no_key_is_of_use) {
    EXPECT_TRUE(ask(make({1})));
    EXPECT_TRUE(peer_.fake.submitted.empty());
    rma_lane_.peer_domain = 2;
    rail_.attributes().cap.flags = 0;  // the lane reaches no memory
    EXPECT_TRUE(ask(*key_));
    EXPECT_TRUE(peer_.fake.submitted.empty());
}

TEST_F(RemoteKeyPart, an_owner_that_tells_nonsense_gives_no_key) {
    proto::RemoteKey& key = make({});
    EXPECT_TRUE(ask(key));
    Request& question = *peer_.fake.submitted[0];
    for (std::size_t bytes = 0; bytes < question.buffer.length; bytes += 7) {
        std::byte* const to = question.buffer.base;
        for (std::size_t i = 0; i < question.buffer.length; ++i)
            to[i] = static_cast<std::byte>(i * 37 + bytes);
        key.owner_told(bytes);
        for (unsigned domain = 0; domain < proto::kKeyDomainsMax; ++domain)
            static_cast<void>(key.resolve(static_cast<std::uint8_t>(domain), domain_));
    }
    end(question);
}

TEST_F(RemoteKeyPart, a_question_that_has_no_memory_is_asked_again) {
    ASSERT_TRUE(ucs::reserve_open());
    peer_.fake.submitted.reserve(8);
    for (unsigned long which = 1; which < 8; ++which) {
        proto::RemoteKey& key = make({});
        bool is_asked = false;
        {
            const FailingAllocation failing(which);
            is_asked = ask(key);
        }
        EXPECT_EQ(peer_.fake.submitted.size(), is_asked ? 1U : 0U) << which;
        if (!is_asked) {
            EXPECT_TRUE(key.ask_owner(ports()));
        }
        EXPECT_TRUE(ask(key));
        ASSERT_EQ(peer_.fake.submitted.size(), 1U);
        end(*peer_.fake.submitted[0]);
        peer_.fake.submitted.clear();
        if (which + 1 < 8)
            key.let_go();
    }
}

}  // namespace
}  // namespace tagwire::test
