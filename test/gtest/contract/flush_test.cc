// SPDX-License-Identifier: BSD-3-Clause
#include <uct/api/tagwire_uct.h>

#include <optional>

#include "fixture.hpp"

namespace tagwire::test {
namespace {

TW_CONTRACT(Flush);
TW_CONTRACT_OF_TWO(FlushOfTwo);

TEST_P(Flush, nothing_outstanding_is_ok_at_once) {
    EXPECT_TRUE(until([&] { return uct_ep_flush(ep(), UCT_FLUSH_FLAG_LOCAL, nullptr) == UCS_OK; }));
    Completion completion;
    EXPECT_EQ(UCS_OK, uct_ep_flush(ep(), UCT_FLUSH_FLAG_LOCAL, &completion));
    EXPECT_EQ(UCS_OK, uct_iface_flush(sender().iface(), UCT_FLUSH_FLAG_LOCAL, nullptr));
    EXPECT_EQ(UCS_OK, uct_ep_fence(ep(), 0));
    EXPECT_EQ(UCS_OK, uct_iface_fence(sender().iface(), 0));
    drain(100);
    EXPECT_EQ(0, completion.calls);
}

TEST_P(Flush, completes_after_the_operations_before_it) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    RendezvousSend send(sender(), 100000);
    ASSERT_EQ(UCS_OK, retry([&] { return send.start(ep(), kTag); }));
    Completion flushed;
    int order = 0;
    int sent_at = 0;
    int flushed_at = 0;
    send.completion.on_done = [&] { sent_at = ++order; };
    flushed.on_done = [&] { flushed_at = ++order; };
    ASSERT_EQ(UCS_INPROGRESS,
              retry([&] { return uct_ep_flush(ep(), UCT_FLUSH_FLAG_LOCAL, &flushed); }));
    ASSERT_EQ(UCS_INPROGRESS, uct_ep_flush(ep(), UCT_FLUSH_FLAG_LOCAL, nullptr));
    ASSERT_EQ(UCS_INPROGRESS, uct_iface_flush(sender().iface(), UCT_FLUSH_FLAG_LOCAL, nullptr));
    drain(200);
    EXPECT_EQ(0, flushed.calls) << "the rendezvous is not complete, nobody took it";

    // The rendezvous was unexpected: the receiver takes another way and the sender withdraws it,
    // which completes the flush.
    ASSERT_EQ(UCS_OK, uct_ep_tag_rndv_cancel(ep(), send.handle));
    ASSERT_TRUE(until([&] { return flushed.calls == 1; }));
    EXPECT_EQ(UCS_OK, flushed.ended);
    EXPECT_EQ(0, sent_at);

    Receive receive(receiver(), 100000);
    ASSERT_EQ(UCS_OK, receive.post(kTag));
    RendezvousSend again(sender(), 100000);
    again.completion.on_done = [&] { sent_at = ++order; };
    ASSERT_EQ(UCS_OK, retry([&] { return again.start(ep(), kTag); }));
    Completion second;
    second.on_done = [&] { flushed_at = ++order; };
    ASSERT_EQ(UCS_INPROGRESS,
              retry([&] { return uct_ep_flush(ep(), UCT_FLUSH_FLAG_LOCAL, &second); }));
    ASSERT_TRUE(until([&] { return second.calls == 1; }));
    EXPECT_EQ(1, again.completion.calls);
    EXPECT_GT(flushed_at, sent_at);
    ASSERT_TRUE(until([&] { return receive.completed == 1; }));  // it may hear of it later
}

// Over ud the peer acknowledges in its progress.
TEST_P(FlushOfTwo, of_what_was_sent_waits_for_no_reply) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    const bool needs_peer = GetParam().resource.transport == "ud";
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, 1, nullptr, 0); }));
    flush_ep(ep());
    drain();
    // A get whose owner has not progressed is nothing that was sent.
    const bool can_get = sender().offers(UCT_IFACE_FLAG_GET_ZCOPY) &&
                         can_make(sender(), Backing::kRegistered) &&
                         can_make(receiver(), Backing::kRegistered);
    Completion got;
    bool is_getting = false;
    std::optional<Buffer> remote, local;
    std::optional<RemoteKey> key;
    if (can_get) {
        remote.emplace(receiver(), 4096, Backing::kRegistered);
        local.emplace(sender(), 4096, Backing::kRegistered);
        key.emplace(sender(), remote->packed_rkey());
        const uct_iov_t iov = local->iov();
        const ucs_status_t status = retry_alone(sender(), [&] {
            return uct_ep_get_zcopy(ep(), &iov, 1, remote->address(), key->get(), &got);
        });
        ASSERT_GE(status, UCS_OK);
        is_getting = status == UCS_INPROGRESS;
    }
    ASSERT_EQ(UCS_OK,
              retry_alone(sender(), [&] { return uct_ep_am_short(ep(), kId, 2, nullptr, 0); }));
    Completion let_go;
    const ucs_status_t status = retry_alone(
        sender(), [&] { return uct_ep_flush(ep(), TAGWIRE_UCT_FLUSH_FLAG_SENT, &let_go); });
    for (std::uint64_t i = 0; status == UCS_INPROGRESS && let_go.calls == 0 && i < kStepsMax; ++i)
        needs_peer ? step() : sender().progress();
    EXPECT_TRUE(status == UCS_OK || let_go.calls == 1);
    EXPECT_TRUE(until([&] { return receiver().am_count >= 2; }));
    EXPECT_TRUE(!is_getting || until([&] { return got.calls == 1; }));
}

TEST_P(Flush, does_not_wait_for_operations_after_it) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    Receive receive(receiver(), 50000);
    ASSERT_EQ(UCS_OK, receive.post(kTag));
    RendezvousSend first(sender(), 50000);
    ASSERT_EQ(UCS_OK, retry([&] { return first.start(ep(), kTag); }));
    Completion flushed;
    const ucs_status_t status =
        retry([&] { return uct_ep_flush(ep(), UCT_FLUSH_FLAG_LOCAL, &flushed); });
    RendezvousSend later(sender(), 50000);  // stays unexpected
    ASSERT_EQ(UCS_OK, retry([&] { return later.start(ep(), kTag + 1); }));
    if (status == UCS_INPROGRESS) {
        EXPECT_TRUE(until([&] { return flushed.calls == 1; }));
    }
    EXPECT_EQ(1, first.completion.calls);
    EXPECT_EQ(0, later.completion.calls);
    EXPECT_EQ(UCS_OK, uct_ep_tag_rndv_cancel(ep(), later.handle));
    ASSERT_TRUE(until([&] { return receive.completed == 1; }));
}

TEST_P(Flush, of_the_interface_covers_all_endpoints) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    Entity& other = add_entity();
    uct_ep_h second = connect_more(sender(), other);
    Receive receive(receiver(), 50000);
    Receive other_receive(other, 50000);
    ASSERT_EQ(UCS_OK, receive.post(kTag));
    ASSERT_EQ(UCS_OK, other_receive.post(kTag));
    RendezvousSend one(sender(), 50000);
    RendezvousSend two(sender(), 50000);
    ASSERT_EQ(UCS_OK, retry([&] { return one.start(ep(), kTag); }));
    ASSERT_EQ(UCS_OK, retry([&] { return two.start(second, kTag); }));
    ASSERT_TRUE(until([&] {
        return uct_iface_flush(sender().iface(), UCT_FLUSH_FLAG_LOCAL, nullptr) == UCS_OK;
    }));
    EXPECT_EQ(1, one.completion.calls);
    EXPECT_EQ(1, two.completion.calls);
    ASSERT_TRUE(until([&] { return receive.completed == 1 && other_receive.completed == 1; }));
}

TEST_P(Flush, cancel_ends_outstanding_work_and_then_the_endpoint_refuses) {
    TW_NEED(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    uct_ep_h other = connect_more(sender(), receiver());
    std::vector<std::unique_ptr<RendezvousSend>> sends;
    for (uct_tag_t i = 0; i < 10; ++i) {
        sends.push_back(std::make_unique<RendezvousSend>(sender(), 20000));
        ASSERT_EQ(UCS_OK, retry([&] { return sends.back()->start(ep(), kTag + i); }));
    }
    Completion flushed;
    const ucs_status_t status =
        retry([&] { return uct_ep_flush(ep(), UCT_FLUSH_FLAG_CANCEL, &flushed); });
    if (status == UCS_INPROGRESS) {
        ASSERT_TRUE(until([&] { return flushed.calls == 1; }));
    } else {
        ASSERT_EQ(UCS_OK, status);
    }
    for (const auto& send : sends) {
        EXPECT_EQ(1, send->completion.calls);
        EXPECT_EQ(UCS_ERR_CANCELED, send->completion.ended);
    }
    RendezvousSend late(sender(), 100);
    EXPECT_LT(late.start(ep(), kTag), UCS_OK);
    if (sender().offers(UCT_IFACE_FLAG_AM_SHORT)) {
        const ucs_status_t refused = uct_ep_am_short(ep(), kId, 0, nullptr, 0);
        EXPECT_LT(refused, UCS_OK);
        EXPECT_NE(UCS_ERR_NO_RESOURCE, refused) << "would be tried again for ever";
        // Another endpoint to the same peer is not concerned.
        ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(other, kId, 1, nullptr, 0); }));
        EXPECT_TRUE(until([&] { return !receiver().am.empty(); }));
    }
    drain();
    for (const auto& send : sends)
        EXPECT_EQ(1, send->completion.calls);
    destroy_ep();
}

TEST_P(FlushOfTwo, cancel_ends_although_the_peer_never_progresses) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    std::uint64_t sent = 0;
    while (uct_ep_am_short(ep(), kId, sent, nullptr, 0) == UCS_OK)
        ++sent;
    const Buffer payload = make_payload(sender(), 1000, 1);
    Completion zcopy;
    ucs_status_t zcopy_status = UCS_OK;
    if (sender().offers(UCT_IFACE_FLAG_AM_ZCOPY))
        zcopy_status = send_am(ep(), sender(), Method::kZcopy, kId, payload, &zcopy);
    uct_ep_pending_purge(
        ep(), [](uct_pending_req_t*, void*) {}, nullptr);
    Completion flushed;
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    for (std::uint64_t i = 0; i < kStepsMax && status == UCS_ERR_NO_RESOURCE; ++i) {
        status = uct_ep_flush(ep(), UCT_FLUSH_FLAG_CANCEL, &flushed);
        sender().progress();
    }
    for (std::uint64_t i = 0; i < kStepsMax && status == UCS_INPROGRESS && flushed.calls == 0; ++i)
        sender().progress();
    EXPECT_TRUE(status == UCS_OK || flushed.calls == 1) << ucs_status_string(status);
    EXPECT_EQ(zcopy_status == UCS_INPROGRESS ? 1 : 0, zcopy.calls);
}

// Nobody may take it for "my data is there": what it waits for was cancelled.
TEST_P(FlushOfTwo, that_waits_is_not_told_success_when_its_endpoint_is_destroyed) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    while (uct_ep_am_short(ep(), kId, 0, nullptr, 0) == UCS_OK) {
    }
    Completion flushed;
    const ucs_status_t status = uct_ep_flush(ep(), UCT_FLUSH_FLAG_LOCAL, &flushed);
    destroy_ep();
    EXPECT_EQ(status == UCS_INPROGRESS ? 1 : 0, flushed.calls);
    EXPECT_EQ(status == UCS_INPROGRESS ? UCS_ERR_CANCELED : UCS_INPROGRESS, flushed.ended);
}

TEST_P(FlushOfTwo, that_waits_is_not_told_success_when_another_cancels) {
    TW_NEED(UCT_IFACE_FLAG_AM_SHORT);
    while (uct_ep_am_short(ep(), kId, 0, nullptr, 0) == UCS_OK) {
    }
    Completion flushed, cancelled;
    const ucs_status_t waits = uct_ep_flush(ep(), UCT_FLUSH_FLAG_LOCAL, &flushed);
    const ucs_status_t cancels = uct_ep_flush(ep(), UCT_FLUSH_FLAG_CANCEL, &cancelled);
    ASSERT_GE(cancels, UCS_OK);
    EXPECT_TRUE(until([&] { return flushed.calls == (waits == UCS_INPROGRESS ? 1 : 0); }));
    EXPECT_TRUE(until([&] { return cancelled.calls == (cancels == UCS_INPROGRESS ? 1 : 0); }));
    EXPECT_EQ(waits == UCS_INPROGRESS ? UCS_ERR_CANCELED : UCS_INPROGRESS, flushed.ended);
    EXPECT_EQ(cancels == UCS_INPROGRESS ? UCS_OK : UCS_INPROGRESS, cancelled.ended);
}

TEST_P(Flush, local_waits_for_a_live_peer_as_long_as_it_takes) {
    TW_NEED(UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_AM_SHORT);
    for (const Backing backing : remote_backings(receiver())) {
        SCOPED_TRACE(name_of(backing));
        Buffer remote(receiver(), 100000, backing);
        const RemoteKey key(sender(), remote.packed_rkey());
        const Buffer local = make_payload(sender(), 100000, 3);
        const uct_iov_t iov = local.iov();
        Completion completion;
        const ucs_status_t status = retry([&] {
            return uct_ep_put_zcopy(ep(), &iov, 1, remote.address(), key.get(), &completion);
        });
        ASSERT_GE(status, UCS_OK);
        flush_ep(ep());
        EXPECT_EQ(status == UCS_INPROGRESS ? 1 : 0, completion.calls);
        EXPECT_TRUE(until([&] { return has_pattern(remote.span(), 3); }, 1000));
    }
}

TEST_P(Flush, an_endpoint_check_finds_a_live_peer_alive) {
    TW_NEED(UCT_IFACE_FLAG_EP_CHECK);
    EXPECT_EQ(UCS_OK,
              run([&](uct_completion_t* completion) { return uct_ep_check(ep(), 0, completion); }));
    const ucs_status_t status = retry([&] { return uct_ep_check(ep(), 0, nullptr); });
    EXPECT_GE(status, UCS_OK);
    EXPECT_TRUE(sender().errors.empty());
}

}  // namespace
}  // namespace tagwire::test
