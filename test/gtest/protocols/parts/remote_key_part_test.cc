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
#include "protocols/rma/rma_ops.hpp"
#include "protocols/rma/rma_sender.hpp"
#include "ucs/memory/reserve.hpp"
#include "uct/component.hpp"

namespace tagwire::test {
namespace {

using proto::LaneKey;
using proto::MemoryKeyMessage;
using proto::Request;

/// A transport whose packed keys are one byte: even ones are keys.
struct KeyTransport {
    static inline unsigned unpacked, released;
    static inline ucs_status_t pointer;

    static ucs_status_t unpack(const uct::Component&, const void* packed, uct_rkey_t* key_p,
                               void** handle_p) {
        const auto byte = *static_cast<const unsigned char*>(packed);
        if (byte % 2 != 0)
            return UCS_ERR_INVALID_PARAM;
        ++unpacked;
        *key_p = byte;
        *handle_p = nullptr;
        return UCS_OK;
    }
    static ucs_status_t point(const uct::Component&, uct_rkey_t, void*, std::uint64_t address,
                              void** local_p) {
        if (pointer == UCS_OK)
            *local_p = reinterpret_cast<void*>(address);
        return pointer;
    }
    static ucs_status_t release(const uct::Component&, uct_rkey_t, void*) {
        ++released;
        return UCS_OK;
    }
};

const uct::Component kKeyComponent{.name = "keys",
                                   .rkey_packed_bytes = 1,
                                   .rkey_unpack = KeyTransport::unpack,
                                   .rkey_ptr = KeyTransport::point,
                                   .rkey_release = KeyTransport::release};

class RemoteKeyPart : public testing::Test {
  protected:
    static constexpr std::uint64_t kAddress = 0x10000, kLength = 0x1000;

    RemoteKeyPart() {
        KeyTransport::unpacked = KeyTransport::released = 0;
        KeyTransport::pointer = UCS_ERR_UNSUPPORTED;
        EXPECT_EQ(ops_.open(), UCS_OK);
        worker_.on_end_rma = [this](Request& request) { ops_.end(request); };
        domain_.component = uct::handle_of(kKeyComponent);
        domain_.attr.rkey_packed_size = 1;
        lane_.ep = uct_.ep();
        lane_.over = &rail_;
        lane_.state = proto::EpState::kReady;
        rail_.attributes().cap.flags = UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_PUT_ZCOPY;
        rma_lane_.peer_domain = 1;
    }

    /// The packed key has that byte as the key of each of `domains`.
    proto::RemoteKey& make(const std::vector<std::uint8_t>& domains, std::uint8_t byte = 2,
                           std::uint32_t access = TW_ACCESS_ALL) {
        MemoryKeyMessage message;
        message.key = {.memory = 3, .address = kAddress, .length = kLength, .access = access};
        message.bytes[0] = std::byte{byte};
        for (const std::uint8_t domain : domains)
            message.of_domain[domain] = {0, 1};
        key_ = new proto::RemoteKey(nullptr, peer_, message);
        return *key_;
    }
    bool ask(proto::RemoteKey& key) {
        return key.ask_owner({worker_.requests, ops_, peer_, lane_, rma_lane_, wireup_.connector});
    }
    /// The owner has told a key of one byte of that domain.
    static void tell(const Request& question, std::uint8_t domain, std::uint8_t byte) {
        const proto::KeyHead head{domain, 1};
        std::byte* const to = question.buffer.base;
        std::memcpy(to, &head, sizeof head);
        to[sizeof head] = std::byte{byte};
        question.rma->key->owner_told(sizeof head + 1);
    }
    void end(Request& request) {
        ops_.end(request);
        worker_.requests.release_id(request);
        worker_.requests.release(request);
    }
    void TearDown() override {
        key_->let_go();
        EXPECT_EQ(KeyTransport::released, KeyTransport::unpacked);
        EXPECT_EQ(worker_.requests.in_use(), 0U);
    }

    FakeWorker worker_{1};
    FakeMatchPeer peer_{5};
    FakeUct uct_;
    proto::Domain domain_{};
    const proto::Resource resource_{};
    const proto::Calibration calibration_;
    ucs::Repeats refusals_;
    FakeRail rail_{{domain_, worker_.options, calibration_, refusals_}, resource_};
    proto::LaneState lane_;
    proto::RmaLane rma_lane_;
    proto::RmaOps ops_;
    ConnectorSide wireup_{1, 2};  // which has heard nothing
    proto::RemoteKey* key_ = nullptr;
};

TEST_F(RemoteKeyPart, it_covers_ranges_of_the_rights_that_it_gives) {
    const proto::RemoteKey& key = make({1}, 2, TW_ACCESS_READ | TW_ACCESS_ATOMIC);
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
    EXPECT_EQ(made->bundle.rkey, 2U);
    EXPECT_EQ(key.found(1), made);
    EXPECT_EQ(key.resolve(1, domain_), made);
    EXPECT_EQ(KeyTransport::unpacked, 1U);
    EXPECT_EQ(key.found(proto::kKeyDomainsMax), nullptr);  // of a lane that leads nowhere
}

TEST_F(RemoteKeyPart, loads_and_stores_are_used_when_the_transport_knows_that_they_reach) {
    proto::RemoteKey& key = make({1});
    KeyTransport::pointer = UCS_ERR_NO_RESOURCE;
    const LaneKey* const made = key.resolve(1, domain_);
    EXPECT_FALSE(made->is_settled.load());
    KeyTransport::pointer = UCS_OK;
    key.resolve(1, domain_);
    EXPECT_TRUE(made->is_settled.load());
    EXPECT_TRUE(made->is_direct.load());
}

TEST_F(RemoteKeyPart, bytes_that_are_no_key_of_the_transport_make_none) {
    proto::RemoteKey& key = make({1}, 3);
    EXPECT_EQ(key.resolve(1, domain_), nullptr);
    EXPECT_EQ(key.resolve(2, domain_), nullptr);  // it has none of that domain
    domain_.attr.rkey_packed_size = 2;
    EXPECT_EQ(key.resolve(1, domain_), nullptr);
    EXPECT_EQ(KeyTransport::unpacked, 0U);
}

TEST_F(RemoteKeyPart, an_operation_holds_it_until_it_ends) {
    proto::RemoteKey& key = make({1});
    key.resolve(1, domain_);
    key.hold();
    key.let_go();
    EXPECT_EQ(KeyTransport::released, 0U);
}

// ---- The question

TEST_F(RemoteKeyPart, the_owner_is_asked_once_for_keys_that_are_lacking) {
    proto::RemoteKey& key = make({2});
    EXPECT_TRUE(ask(key));
    ASSERT_EQ(peer_.fake.submitted.size(), 1U);
    Request& question = *peer_.fake.submitted[0];
    EXPECT_EQ(question.rma->kind, proto::RmaKind::kKeys);
    EXPECT_EQ(question.rma->key, &key);
    EXPECT_EQ(peer_.fake.adopted, std::vector{&question});
    EXPECT_TRUE(ask(key));
    EXPECT_EQ(peer_.fake.submitted.size(), 1U);
    EXPECT_EQ(key.resolve(1, domain_), nullptr);
    tell(question, 1, 4);
    const LaneKey* const made = key.resolve(1, domain_);
    ASSERT_NE(made, nullptr);
    EXPECT_EQ(made->bundle.rkey, 4U);
    proto::KeyList list;
    key.list(&list);
    EXPECT_EQ(list.used, 2 * (sizeof(proto::KeyHead) + 1));
    end(question);
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
    for (unsigned long which = 1; which < 8; ++which) {
        proto::RemoteKey& key = make({});
        bool is_asked = false;
        {
            const FailingAllocation failing(which);
            is_asked = ask(key);
        }
        EXPECT_EQ(peer_.fake.submitted.size(), is_asked ? 1U : 0U) << which;
        if (!is_asked) {
            EXPECT_TRUE(ask(key));
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
