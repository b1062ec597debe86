// SPDX-License-Identifier: BSD-3-Clause
// Every attribute that a program reads to decide is exceeded by one here, and every flag is held
// against what the operation does. A refused operation must leave nothing behind: the case ends
// with a message that does arrive.
#include <limits>

#include "fixture.hpp"

namespace tagwire::test {
namespace {

TW_CONTRACT(Limits);

// Lengths are refused before the bytes behind them are looked at, so a pointer to little is enough.
uct_iov_t claimed(const Buffer& buffer, std::size_t length) {
    uct_iov_t iov = buffer.iov();
    iov.length = length;
    return iov;
}

bool can_exceed(std::size_t limit) {
    return limit < std::numeric_limits<unsigned>::max();
}

// A pack callback that breaks its promise without writing anything behind the end.
std::size_t pack_claiming(void*, void* arg) {
    return *static_cast<std::size_t*>(arg);
}

class LimitsOf : public Contract {
  protected:
    void expect_still_works() {
        receiver().am.clear();
        if (sender().offers(UCT_IFACE_FLAG_AM_SHORT)) {
            ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, 1, nullptr, 0); }));
            ASSERT_TRUE(until([&] { return receiver().am.size() == 1; }));
        }
        drain(100);
        EXPECT_LE(receiver().am.size(), 1u) << "something refused was delivered";
        EXPECT_TRUE(receiver().eager.empty());
        EXPECT_TRUE(receiver().rndv.empty());
        EXPECT_TRUE(sender().errors.empty());
    }
};

class AmLimits : public LimitsOf {};
INSTANTIATE_TEST_SUITE_P(Contract, AmLimits, ::testing::ValuesIn(all_setups()), setup_label);
class TagLimits : public LimitsOf {};
INSTANTIATE_TEST_SUITE_P(Contract, TagLimits, ::testing::ValuesIn(all_setups()), setup_label);
class RmaLimits : public LimitsOf {};
INSTANTIATE_TEST_SUITE_P(Contract, RmaLimits, ::testing::ValuesIn(all_setups()), setup_label);

TEST_P(AmLimits, short_beyond_max_short_is_refused) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    const std::size_t limit = attr().cap.am.max_short;
    const Buffer payload = make_payload(sender(), limit + 1, 1);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_ep_am_short(ep(), kId, 0, payload.data(), static_cast<unsigned>(limit + 1 - 8)));
    const uct_iov_t iov = payload.iov();
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, uct_ep_am_short_iov(ep(), kId, &iov, 1));
    const auto halves = split(payload, limit + 1, 2);
    if (attr().cap.am.max_iov >= 2) {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, uct_ep_am_short_iov(ep(), kId, halves.data(), 2));
    }
    expect_still_works();
}

TEST_P(AmLimits, bcopy_beyond_max_bcopy_is_refused) {
    TW_NEED(UCT_IFACE_FLAG_AM_BCOPY | UCT_IFACE_FLAG_ERRHANDLE_BCOPY_LEN);
    std::size_t length = attr().cap.am.max_bcopy + 1;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, uct_ep_am_bcopy(ep(), kId, pack_claiming, &length, 0));
    expect_still_works();
}

TEST_P(AmLimits, zcopy_beyond_max_zcopy_max_hdr_or_max_iov_is_refused) {
    TW_NEED(UCT_IFACE_FLAG_AM_ZCOPY);
    const auto& am = attr().cap.am;
    const Buffer payload = make_payload(sender(), 64, 1);
    const Bytes header(am.max_hdr + 1);
    Completion completion;
    const uct_iov_t none = payload.iov(0, 0);
    if (can_exceed(am.max_zcopy)) {
        const uct_iov_t iov = claimed(payload, am.max_zcopy + 1);
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  uct_ep_am_zcopy(ep(), kId, nullptr, 0, &iov, 1, 0, &completion));
        if (am.max_hdr > 0) {  // the header counts, too
            const uct_iov_t rest = claimed(payload, am.max_zcopy);
            EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                      uct_ep_am_zcopy(ep(), kId, header.data(), 1, &rest, 1, 0, &completion));
        }
    }
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_ep_am_zcopy(ep(), kId, header.data(), static_cast<unsigned>(am.max_hdr + 1),
                              &none, 1, 0, &completion));
    const std::vector<uct_iov_t> iov(am.max_iov + 1, payload.iov(0, 1));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_ep_am_zcopy(ep(), kId, nullptr, 0, iov.data(), iov.size(), 0, &completion));
    expect_still_works();
    EXPECT_EQ(0, completion.calls);
    EXPECT_EQ(1, completion.count);
}

TEST_P(AmLimits, an_operation_that_is_not_advertised_is_unsupported) {
    const Buffer payload = make_payload(sender(), 16, 1);
    const uct_iov_t iov = payload.iov();
    if (!sender().offers(UCT_IFACE_FLAG_AM_SHORT)) {
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, uct_ep_am_short(ep(), kId, 0, nullptr, 0));
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, uct_ep_am_short_iov(ep(), kId, &iov, 1));
    }
    if (!sender().offers(UCT_IFACE_FLAG_AM_BCOPY)) {
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, send_am_bytes(ep(), kId, {}));
    }
    if (!sender().offers(UCT_IFACE_FLAG_AM_ZCOPY)) {
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, uct_ep_am_zcopy(ep(), kId, nullptr, 0, &iov, 1, 0, nullptr));
    }
}

TEST_P(TagLimits, short_beyond_max_short_is_refused) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    const Buffer payload = make_payload(sender(), attr().cap.tag.eager.max_short + 1, 1);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_ep_tag_eager_short(ep(), kTag, payload.data(), payload.size()));
    expect_still_works();
}

TEST_P(TagLimits, bcopy_beyond_max_bcopy_is_refused) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_BCOPY | UCT_IFACE_FLAG_ERRHANDLE_BCOPY_LEN);
    std::size_t length = attr().cap.tag.eager.max_bcopy + 1;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_ep_tag_eager_bcopy(ep(), kTag, 0, pack_claiming, &length, 0));
    expect_still_works();
}

TEST_P(TagLimits, zcopy_beyond_max_zcopy_or_max_iov_is_refused) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_ZCOPY);
    const auto& eager = attr().cap.tag.eager;
    const Buffer payload = make_payload(sender(), 64, 1);
    Completion completion;
    if (can_exceed(eager.max_zcopy)) {
        const uct_iov_t iov = claimed(payload, eager.max_zcopy + 1);
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  uct_ep_tag_eager_zcopy(ep(), kTag, 0, &iov, 1, 0, &completion));
    }
    const std::vector<uct_iov_t> iov(eager.max_iov + 1, payload.iov(0, 1));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_ep_tag_eager_zcopy(ep(), kTag, 0, iov.data(), iov.size(), 0, &completion));
    expect_still_works();
    EXPECT_EQ(0, completion.calls);
}

TEST_P(TagLimits, rendezvous_beyond_max_zcopy_max_hdr_or_max_iov_is_refused) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    const auto& rndv = attr().cap.tag.rndv;
    const Buffer payload = make_payload(sender(), 64, 1);
    Completion completion;
    const Bytes header(rndv.max_hdr + 1);
    const auto expect_refused = [&](unsigned header_length, const uct_iov_t* iov,
                                    std::size_t count) {
        const ucs_status_ptr_t result = uct_ep_tag_rndv_zcopy(
            ep(), kTag, header.data(), header_length, iov, count, 0, &completion);
        ASSERT_TRUE(UCS_PTR_IS_ERR(result));
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, UCS_PTR_RAW_STATUS(result));
    };
    const uct_iov_t good = payload.iov();
    expect_refused(static_cast<unsigned>(rndv.max_hdr + 1), &good, 1);
    const std::vector<uct_iov_t> many(rndv.max_iov + 1, payload.iov(0, 1));
    expect_refused(0, many.data(), many.size());
    if (can_exceed(rndv.max_zcopy)) {
        const uct_iov_t large = claimed(payload, rndv.max_zcopy + 1);
        expect_refused(0, &large, 1);
    }
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              uct_ep_tag_rndv_request(ep(), kTag, header.data(),
                                      static_cast<unsigned>(rndv.max_hdr + 1), 0));
    expect_still_works();
    EXPECT_EQ(0, completion.calls);
}

TEST_P(TagLimits, receives_beyond_max_zcopy_or_max_iov_are_refused) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    const auto& recv = attr().cap.tag.recv;
    Receive receive(receiver(), std::max<std::size_t>(64, recv.min_recv));
    if (can_exceed(recv.max_zcopy)) {
        const uct_iov_t large = claimed(receive.buffer, recv.max_zcopy + 1);
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, receive.post_iov(kTag, kExact, {&large, 1}));
    }
    const std::vector<uct_iov_t> many(recv.max_iov + 1, receive.buffer.iov(0, 1));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, receive.post_iov(kTag, kExact, many));
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_tag_eager_short(ep(), kTag, nullptr, 0); }));
    ASSERT_TRUE(until([&] { return receiver().eager.size() == 1; })) << "a refused receive matched";
    EXPECT_EQ(0, receive.endings());
}

TEST_P(TagLimits, a_receive_below_min_recv_is_refused) {
    TW_NEED(UCT_IFACE_FLAG_TAG_EAGER_SHORT);
    const std::size_t least = attr().cap.tag.recv.min_recv;
    if (least > 0) {
        Receive receive(receiver(), least - 1);
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, receive.post(kTag));
    }
    Receive enough(receiver(), least);
    EXPECT_EQ(UCS_OK, enough.post(kTag));
    EXPECT_EQ(UCS_OK, enough.cancel(true));
}

TEST_P(TagLimits, an_operation_that_is_not_advertised_is_unsupported) {
    const Buffer payload = make_payload(sender(), 16, 1);
    const uct_iov_t iov = payload.iov();
    Receive receive(receiver(), std::max<std::size_t>(64, attr().cap.tag.recv.min_recv));
    if (!sender().offers(UCT_IFACE_FLAG_TAG_EAGER_SHORT)) {
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, uct_ep_tag_eager_short(ep(), kTag, nullptr, 0));
    }
    if (!sender().offers(UCT_IFACE_FLAG_TAG_EAGER_BCOPY)) {
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, send_eager_bytes(ep(), kTag, 0, {}));
    }
    if (!sender().offers(UCT_IFACE_FLAG_TAG_EAGER_ZCOPY)) {
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, uct_ep_tag_eager_zcopy(ep(), kTag, 0, &iov, 1, 0, nullptr));
    }
    if (!sender().offers(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY)) {
        const auto result = uct_ep_tag_rndv_zcopy(ep(), kTag, nullptr, 0, &iov, 1, 0, nullptr);
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, UCS_PTR_RAW_STATUS(result));
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, uct_ep_tag_rndv_request(ep(), kTag, nullptr, 0, 0));
    }
    constexpr std::uint64_t kAnyTag =
        UCT_IFACE_FLAG_TAG_EAGER_SHORT | UCT_IFACE_FLAG_TAG_EAGER_BCOPY |
        UCT_IFACE_FLAG_TAG_EAGER_ZCOPY | UCT_IFACE_FLAG_TAG_RNDV_ZCOPY;
    if ((attr().cap.flags & kAnyTag) == 0) {
        EXPECT_EQ(UCS_ERR_UNSUPPORTED, receive.post(kTag));
    }
}

TEST_P(RmaLimits, lengths_beyond_the_limits_are_refused) {
    if (remote_backings(receiver()).empty())
        GTEST_SKIP() << "not offered: memory for a peer";
    Buffer remote(receiver(), 4096, remote_backings(receiver()).front());
    const RemoteKey key(sender(), remote.packed_rkey());
    const Buffer local = make_payload(sender(), 64, 1);
    const auto& put = attr().cap.put;
    const auto& get = attr().cap.get;
    Completion completion;
    const auto length_of = [](std::size_t limit) { return static_cast<unsigned>(limit + 1); };

    if (sender().offers(UCT_IFACE_FLAG_PUT_SHORT) && can_exceed(put.max_short)) {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  uct_ep_put_short(ep(), local.data(), length_of(put.max_short), remote.address(),
                                   key.get()));
    }
    if (sender().offers(UCT_IFACE_FLAG_GET_SHORT) && can_exceed(get.max_short)) {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  uct_ep_get_short(ep(), local.data(), length_of(get.max_short), remote.address(),
                                   key.get()));
    }
    if (sender().offers(UCT_IFACE_FLAG_GET_BCOPY) && can_exceed(get.max_bcopy)) {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  uct_ep_get_bcopy(
                      ep(), [](void*, const void*, std::size_t) {}, nullptr, get.max_bcopy + 1,
                      remote.address(), key.get(), &completion));
    }
    if (sender().offers(UCT_IFACE_FLAG_PUT_ZCOPY)) {
        const std::vector<uct_iov_t> many(put.max_iov + 1, local.iov(0, 1));
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  uct_ep_put_zcopy(ep(), many.data(), many.size(), remote.address(), key.get(),
                                   &completion));
        const uct_iov_t large = claimed(local, put.max_zcopy + 1);
        if (can_exceed(put.max_zcopy)) {
            EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                      uct_ep_put_zcopy(ep(), &large, 1, remote.address(), key.get(), &completion));
        }
    }
    if (sender().offers(UCT_IFACE_FLAG_GET_ZCOPY)) {
        const std::vector<uct_iov_t> many(get.max_iov + 1, local.iov(0, 1));
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  uct_ep_get_zcopy(ep(), many.data(), many.size(), remote.address(), key.get(),
                                   &completion));
        const uct_iov_t large = claimed(local, get.max_zcopy + 1);
        if (can_exceed(get.max_zcopy)) {
            EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                      uct_ep_get_zcopy(ep(), &large, 1, remote.address(), key.get(), &completion));
        }
    }
    expect_still_works();
    EXPECT_EQ(0, completion.calls);
    EXPECT_EQ(Bytes(4096), Bytes(remote.data(), remote.data() + 4096));
}

TEST_P(RmaLimits, an_operation_that_is_not_advertised_is_unsupported) {
    const Buffer local = make_payload(sender(), 16, 1);
    const uct_iov_t iov = local.iov();
    const auto expect_unsupported = [&](std::uint64_t flag, auto&& operation) {
        if (!sender().offers(flag)) {
            EXPECT_EQ(UCS_ERR_UNSUPPORTED, operation());
        }
    };
    expect_unsupported(UCT_IFACE_FLAG_PUT_SHORT,
                       [&] { return uct_ep_put_short(ep(), local.data(), 8, 0, 0); });
    expect_unsupported(UCT_IFACE_FLAG_PUT_BCOPY, [&] {
        std::size_t length = 8;
        return static_cast<ucs_status_t>(uct_ep_put_bcopy(ep(), pack_claiming, &length, 0, 0));
    });
    expect_unsupported(UCT_IFACE_FLAG_PUT_ZCOPY,
                       [&] { return uct_ep_put_zcopy(ep(), &iov, 1, 0, 0, nullptr); });
    expect_unsupported(UCT_IFACE_FLAG_GET_SHORT,
                       [&] { return uct_ep_get_short(ep(), local.data(), 8, 0, 0); });
    expect_unsupported(UCT_IFACE_FLAG_GET_BCOPY, [&] {
        return uct_ep_get_bcopy(
            ep(), [](void*, const void*, std::size_t) {}, nullptr, 8, 0, 0, nullptr);
    });
    expect_unsupported(UCT_IFACE_FLAG_GET_ZCOPY,
                       [&] { return uct_ep_get_zcopy(ep(), &iov, 1, 0, 0, nullptr); });
}

TEST_P(Limits, attributes_make_sense_together) {
    const auto& cap = attr().cap;
    if (sender().offers(UCT_IFACE_FLAG_AM_SHORT)) {
        EXPECT_GE(cap.am.max_short, 8u);
        EXPECT_GE(cap.am.max_iov, 1u);
    }
    if (sender().offers(UCT_IFACE_FLAG_AM_ZCOPY)) {
        EXPECT_LE(cap.am.min_zcopy, cap.am.max_zcopy);
        EXPECT_LE(cap.am.max_hdr, cap.am.max_zcopy);
        EXPECT_GE(cap.am.max_iov, 1u);
        EXPECT_EQ(0u, cap.am.opt_zcopy_align & (cap.am.opt_zcopy_align - 1))
            << "not a power of two";
    }
    if (sender().offers(UCT_IFACE_FLAG_TAG_EAGER_SHORT)) {
        EXPECT_GT(cap.tag.recv.max_outstanding, 0u);
        EXPECT_GE(cap.tag.recv.max_iov, 1u);
        EXPECT_GE(cap.tag.recv.max_zcopy, cap.tag.recv.min_recv);
    }
    if (sender().offers(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY)) {
        EXPECT_GE(cap.tag.rndv.max_iov, 1u);
        EXPECT_GE(cap.tag.recv.max_zcopy, cap.tag.rndv.max_zcopy)
            << "such a message fits no receive";
    }
    EXPECT_TRUE(sender().offers(UCT_IFACE_FLAG_CONNECT_TO_IFACE) ||
                sender().offers(UCT_IFACE_FLAG_CONNECT_TO_EP) ||
                sender().offers(UCT_IFACE_FLAG_CONNECT_TO_SOCKADDR));
    EXPECT_GT(attr().bandwidth.dedicated + attr().bandwidth.shared, 0.0);
    EXPECT_GE(attr().overhead, 0.0);
    EXPECT_GT(attr().latency.c, 0.0);
    EXPECT_GT(attr().max_num_eps, 0u);
    EXPECT_GE(attr().dev_num_paths, 1u);
}

}  // namespace
}  // namespace tagwire::test
