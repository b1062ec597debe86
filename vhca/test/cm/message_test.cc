// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/cm/message.hpp"

#include <gtest/gtest.h>

#include <array>

namespace tagwire::vhca::cm {

namespace {

constexpr std::array kKinds = {Kind::kReq,  Kind::kMra,  Kind::kRej,     Kind::kRep,    Kind::kRtu,
                               Kind::kDreq, Kind::kDrep, Kind::kSidrReq, Kind::kSidrRep};

Message sample(Kind kind) {
    Message message;
    message.kind = kind;
    message.transaction = 0x0102030405060708;
    message.local_id = 0x11121314;
    message.remote_id = 0x21222324;
    message.service_id = 0x3132333435363738;
    message.guid = 0x4142434445464748;
    message.qkey = 0x51525354;
    message.qpn = 0x616263;
    message.psn = 0x717273;
    message.responder_resources = 0x81;
    message.initiator_depth = 0x82;
    message.transport = 1;
    message.retry_count = 5;
    message.rnr_retry_count = 6;
    message.has_flow_control = message.has_srq = true;
    message.mtu = 5;
    message.pkey = 0x8fff;
    message.local_lid = 0x9192;
    message.remote_lid = 0x9394;
    message.local_gid.raw[15] = 0xa1;
    message.remote_gid.raw[0] = 0xa2;
    message.traffic_class = 0xb1;
    message.hop_limit = 64;
    message.ack_timeout = 17;
    message.rejected = 2;
    message.reason = 28;
    message.private_data.fill(std::byte{0xdd});
    return message;
}

TEST(VhcaCmMessage, every_kind_comes_back_as_it_was_formatted) {
    for (const Kind kind : kKinds) {
        SCOPED_TRACE(static_cast<unsigned>(kind));
        const Message in = sample(kind);
        Message out;
        ASSERT_TRUE(parse(format(in), &out));
        EXPECT_EQ(out.kind, kind);
        EXPECT_EQ(out.transaction, in.transaction);
        EXPECT_EQ(out.local_id, in.local_id);
        const std::size_t room = private_bytes_max(kind);
        for (std::size_t i = 0; i < out.private_data.size(); ++i)
            EXPECT_EQ(out.private_data[i], i < room ? std::byte{0xdd} : std::byte{0});
        EXPECT_EQ(format(out), format(in));
    }
}

TEST(VhcaCmMessage, a_request_lies_as_infiniband_says) {
    const Mad mad = format(sample(Kind::kReq));
    const auto at = [&](std::size_t offset) { return std::to_integer<unsigned>(mad[offset]); };
    EXPECT_EQ(at(0), 1U);
    EXPECT_EQ(at(1), 7U);
    EXPECT_EQ(at(2), 2U);
    EXPECT_EQ(at(3), 3U);
    EXPECT_EQ(at(17), 0x10U);
    EXPECT_EQ(at(24), 0x11U);            // local communication id
    EXPECT_EQ(at(24 + 8), 0x31U);        // service
    EXPECT_EQ(at(24 + 32), 0x61U);       // QPN
    EXPECT_EQ(at(24 + 35), 0x81U);       // responder resources
    EXPECT_EQ(at(24 + 39), 0x82U);       // initiator depth
    EXPECT_EQ(at(24 + 43) & 7, 3U);      // UC, flow control
    EXPECT_EQ(at(24 + 44), 0x71U);       // PSN
    EXPECT_EQ(at(24 + 47) & 7, 5U);      // retries
    EXPECT_EQ(at(24 + 50), 0x56U);       // MTU 4096, RNR retries
    EXPECT_EQ(at(24 + 51), 0xf8U);       // CM retries, SRQ
    EXPECT_EQ(at(24 + 56 + 15), 0xa1U);  // GIDs
    EXPECT_EQ(at(24 + 72), 0xa2U);
    EXPECT_EQ(at(24 + 95), 17U << 3);  // acknowledge timeout
    EXPECT_EQ(at(24 + 140), 0xddU);
}

TEST(VhcaCmMessage, private_data_has_the_room_that_infiniband_gives) {
    EXPECT_EQ(private_bytes_max(Kind::kReq), 92U);
    EXPECT_EQ(private_bytes_max(Kind::kRej), 148U);
    EXPECT_EQ(private_bytes_max(Kind::kRep), 196U);
    EXPECT_EQ(private_bytes_max(Kind::kRtu), 224U);
    EXPECT_EQ(private_bytes_max(Kind::kSidrReq), 216U);
    EXPECT_EQ(private_bytes_max(Kind::kSidrRep), 136U);
}

TEST(VhcaCmMessage, other_datagrams_are_none) {
    const Mad good = format(sample(Kind::kReq));
    Message message;
    EXPECT_FALSE(parse(std::span(good).first(255), &message));
    EXPECT_FALSE(parse({}, &message));
    for (const std::size_t offset : {0U, 1U, 2U, 3U, 16U}) {
        Mad bad = good;
        bad[offset] = std::byte{0x77};
        EXPECT_FALSE(parse(bad, &message)) << offset;
    }
    for (const unsigned attribute : {0x0fU, 0x19U}) {
        Mad bad = good;
        bad[17] = static_cast<std::byte>(attribute);
        EXPECT_FALSE(parse(bad, &message)) << attribute;
    }
}

}  // namespace

}  // namespace tagwire::vhca::cm
