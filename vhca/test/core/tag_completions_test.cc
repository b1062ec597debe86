// SPDX-License-Identifier: BSD-3-Clause
// Completions of messages to a tag-matching SRQ, in every form.
#include "vhca/core/packet.hpp"
#include "vhca/test/core/tag_world.hpp"

namespace tagwire::vhca {

namespace {

constexpr std::size_t kManyPackets = 3000;  // with the MTU of 1024

std::string pattern(std::size_t bytes, char first = 'a') {
    std::string text(bytes, ' ');
    for (std::size_t i = 0; i < bytes; ++i)
        text[i] = static_cast<char>(first + static_cast<int>(i % 23));
    return text;
}

TEST(VhcaTagCompletion, eager_match_in_one_packet_is_one_completion) {
    TagWorld world;
    world.add(5, 77, 0, 100);
    ASSERT_EQ(world.send_eager(5, "payload"), 0);
    const Completion completion = world.wait_tags();
    expect_tagged(completion, 77, kMatch | kValid, 7);
    EXPECT_EQ(completion.tm_tag, 5U);
    EXPECT_EQ(completion.tm_priv, kContext);
    EXPECT_EQ(completion.wc.qp_num, world.receivers[0]->number());
    EXPECT_EQ(completion.wc.src_qp, world.senders[0]->number());
    EXPECT_EQ(world.tagged(0, 7), "payload");
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
    world.settle();
    EXPECT_TRUE(world.cq->is_empty());
    EXPECT_TRUE(world.b.cq->is_empty()) << "the queue pair's own CQs have no part in it";
}

TEST(VhcaTagCompletion, eager_match_in_many_packets_is_told_at_the_first_and_at_the_last) {
    TagWorld world;
    const std::string text = pattern(kManyPackets);
    world.add(5, 77, 0, text.size());
    ASSERT_EQ(world.send_eager(5, text), 0);
    const Completion match = world.wait_tags();
    expect_tagged(match, 77, kMatch, 0);
    EXPECT_EQ(match.tm_tag, 5U);
    EXPECT_EQ(match.tm_priv, kContext);
    const Completion data = world.wait_tags();
    expect_tagged(data, 77, kValid, text.size());
    EXPECT_EQ(data.tm_tag, 0U) << "the header came with the match";
    EXPECT_EQ(world.tagged(0, text.size()), text);
}

TEST(VhcaTagCompletion, empty_eager_message_matches_a_receive_without_buffer) {
    TagWorld world;
    world.add(5, 77, 0, 0);
    ASSERT_EQ(world.send_eager(5, ""), 0);
    expect_tagged(world.wait_tags(), 77, kMatch | kValid, 0);
}

TEST(VhcaTagCompletion, immediate_data_come_with_the_last_completion) {
    TagWorld world;
    world.add(5, 77, 0, kManyPackets);
    const SendWork with_imm{.opcode = IBV_WR_SEND_WITH_IMM, .imm = 99};
    const std::string text = world.header(TagOpcode::kEager, 5) + pattern(kManyPackets);
    ASSERT_EQ(world.send_message(text, with_imm), 0);
    EXPECT_EQ(world.wait_tags().wc.wc_flags, kMatch);
    const Completion data = world.wait_tags();
    EXPECT_EQ(data.wc.wc_flags, kValid | IBV_WC_WITH_IMM);
    EXPECT_EQ(data.wc.imm_data, 99U);
}

TEST(VhcaTagCompletion, unexpected_message_is_whole_in_an_untagged_receive) {
    TagWorld world;
    world.add(6, 77, 0, 100);
    const std::string small = world.header(TagOpcode::kEager, 5) + "payload";
    const std::string large = world.header(TagOpcode::kEager, 4) + pattern(kManyPackets);
    const std::string request = world.rendezvous(3, 0, 1 << 16) + "more";
    std::uint64_t slot = 0;
    for (const std::string& message : {small, large, request}) {
        ASSERT_EQ(world.send_message(message), 0);
        const Completion completion = world.wait_tags();
        expect_tagged(completion, slot, 0, message.size());
        EXPECT_EQ(completion.tm_tag, 0U) << "the header is in the receive";
        EXPECT_EQ(world.untagged(slot, message.size()), message);
        ++slot;
    }
}

TEST(VhcaTagCompletion, message_without_tag_and_fin_are_for_software_and_not_counted) {
    TagWorld world;
    world.add(0, 77, 0, 100, {.mask = 0});
    const std::string no_tag = world.header(TagOpcode::kNoTag, 0) + "x";
    const std::string fin = world.header(TagOpcode::kFin, 5) + std::string(16, 'r');
    const std::string unknown = world.header(static_cast<TagOpcode>(200), 5);
    std::uint64_t slot = 0;
    for (const std::string& message : {no_tag, fin, unknown, std::string("short"), std::string()}) {
        ASSERT_EQ(world.send_message(message), 0);
        const Completion completion = world.wait_tags();
        EXPECT_EQ(completion.wc.opcode, IBV_WC_TM_NO_TAG);
        EXPECT_EQ(completion.wc.wr_id, slot);
        EXPECT_EQ(completion.wc.wc_flags, 0U);
        EXPECT_EQ(completion.wc.byte_len, message.size());
        EXPECT_EQ(completion.tm_tag, 0U);
        EXPECT_EQ(world.untagged(slot, message.size()), message);
        ++slot;
    }
    world.add(9, 78, 0, 100);  // active at once: there is nothing that software must know of
    ASSERT_EQ(world.send_eager(9, "x"), 0);
    EXPECT_EQ(world.wait_tags().wc.wc_flags, kMatch | kValid);
}

TEST(VhcaTagCompletion, rendezvous_is_read_by_the_device_which_then_tells_the_sender) {
    TagWorld world;
    const std::string data = pattern(50'000);
    world.add(5, 77, 100, data.size());
    ASSERT_EQ(world.send_rendezvous(5, 0, data), 0);
    const Completion match = world.wait_tags();
    expect_tagged(match, 77, kMatch, 0);
    EXPECT_EQ(match.tm_tag, 5U);
    EXPECT_EQ(match.tm_priv, kContext);
    expect_tagged(world.wait_tags(), 77, kValid, data.size());
    EXPECT_EQ(world.tagged(100, data.size()), data);

    EXPECT_EQ(world.a.wait().wc.opcode, IBV_WC_SEND) << "its own send first";
    const Completion fin = world.a.wait();
    EXPECT_EQ(fin.wc.opcode, IBV_WC_RECV) << "an ordinary queue pair knows no FIN";
    EXPECT_EQ(fin.wc.byte_len, kRendezvousBytes);
    std::string expected = world.rendezvous(5, 0, data.size());
    expected[0] = static_cast<char>(TagOpcode::kFin);
    EXPECT_EQ(world.a.text(TagWorld::kFinsAt, kRendezvousBytes), expected);
    world.settle();
    EXPECT_TRUE(world.cq->is_empty());
    EXPECT_TRUE(world.b.cq->is_empty()) << "the device's own read and send complete to nobody";
}

TEST(VhcaTagCompletion, sender_that_changes_its_rendezvous_request_meanwhile_changes_nothing) {
    TagWorld world;
    world.add(5, 1, 0, 64);
    world.a.write(TagWorld::kMessagesBytes, std::string(4096, 'd'));
    const std::string request = world.rendezvous(5, 0, 64);
    Packet packet;
    packet.opcode = Opcode::kRcSendOnly;
    packet.qpn = world.receivers[0]->number();
    packet.psn = 7;
    std::vector<std::byte> shared(kPacketBytesMax);  // the sender can still write there
    std::byte* payload = put_headers(shared.data(), packet, request.size());
    std::memcpy(payload, request.data(), request.size());
    world.cq->arm(false);
    world.b.events.at_cq_event = [&] {
        const ReadHeader longer{htobe64(world.a.address(TagWorld::kMessagesBytes)),
                                htobe32(world.a.mr->key), htobe32(4096)};
        std::memcpy(payload + kTagHeaderBytes, &longer, sizeof longer);
    };
    const auto bytes = static_cast<std::size_t>(payload - shared.data()) + request.size();
    world.b.device.receive(world.a.route(), {shared.data(), bytes}, world.fabric.now());
    ASSERT_EQ(world.b.events.cqs.size(), 1U);
    expect_tagged(world.wait_tags(), 1, kMatch, 0);
    expect_tagged(world.wait_tags(), 1, kValid, 64);
    EXPECT_EQ(world.tagged(0, 65), std::string(64, 'd') + std::string(1, '\0'));
}

TEST(VhcaTagCompletion, empty_rendezvous_is_complete_too) {
    TagWorld world;
    world.add(5, 77, 0, 0);
    ASSERT_EQ(world.send_rendezvous(5, 0, ""), 0);
    expect_tagged(world.wait_tags(), 77, kMatch, 0);
    expect_tagged(world.wait_tags(), 77, kValid, 0);
    EXPECT_EQ(world.a.wait().wc.opcode, IBV_WC_SEND);
    EXPECT_EQ(world.a.wait().wc.opcode, IBV_WC_RECV);
}

TEST(VhcaTagCompletion, rendezvous_larger_than_its_buffer_leaves_the_request_there) {
    TagWorld world;
    world.add(5, 77, 0, 100);
    const std::string request = world.rendezvous(5, 0, 101) + "more";
    ASSERT_EQ(world.send_message(request), 0);
    const Completion completion = world.wait_tags();
    EXPECT_EQ(completion.wc.status, IBV_WC_TM_RNDV_INCOMPLETE);
    EXPECT_EQ(completion.wc.opcode, IBV_WC_TM_RECV);
    EXPECT_EQ(completion.wc.wr_id, 77U);
    EXPECT_EQ(completion.wc.wc_flags, kMatch | kValid);
    EXPECT_EQ(completion.wc.byte_len, request.size());
    EXPECT_EQ(completion.tm_tag, 5U);
    EXPECT_EQ(world.tagged(0, request.size()), request);
    ASSERT_EQ(world.send_eager(5, "x"), 0);
    EXPECT_EQ(world.wait_tags().wc.wc_flags, 0U) << "the receive was consumed";
    EXPECT_EQ(world.receivers[0]->state(), IBV_QPS_RTS);
}

/// One completion of the receive, errors at both queue pairs.
void expect_broken(TagWorld& world, ibv_wc_status receiver, ibv_wc_status sender) {
    Completion last = world.wait_tags();
    if (last.wc.wc_flags == kMatch)
        last = world.wait_tags();
    EXPECT_EQ(last.wc.status, receiver);
    EXPECT_EQ(last.wc.wr_id, 77U);
    EXPECT_EQ(world.a.wait().wc.status, sender);
    EXPECT_EQ(world.receivers[0]->state(), IBV_QPS_ERR);
    world.settle();
    EXPECT_TRUE(world.cq->is_empty());
    EXPECT_EQ(world.b.events.count(IBV_EVENT_QP_LAST_WQE_REACHED), 1U);
}

TEST(VhcaTagCompletion, eager_message_longer_than_its_buffer_breaks_the_connection) {
    for (const std::size_t bytes : {std::size_t{10}, std::size_t{1500}}) {
        TagWorld world;
        world.add(5, 77, 0, bytes);
        ASSERT_EQ(world.send_eager(5, pattern(bytes + 1)), 0);
        expect_broken(world, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
    }
}

TEST(VhcaTagCompletion, request_that_fits_nowhere_breaks_the_connection) {
    TagWorld world;
    world.add(5, 77, 0, kRendezvousBytes - 1);
    ASSERT_EQ(world.send_rendezvous(5, 0, pattern(200)), 0);
    expect_broken(world, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
}

TEST(VhcaTagCompletion, buffer_whose_key_does_not_open_breaks_the_connection) {
    TagWorld world;
    ibv_sge sge = world.b.sge(0, 100);
    sge.lkey ^= 1;
    TagWork work{
        .opcode = IBV_WR_TAG_ADD, .recv_wr_id = 77, .tag = 5, .mask = kExact, .sges = {&sge, 1}};
    ASSERT_EQ(world.operate(work), 0);
    ASSERT_EQ(world.send_eager(5, "x"), 0);
    expect_broken(world, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
}

TEST(VhcaTagCompletion, data_that_may_not_be_read_complete_with_the_error_of_the_read) {
    TagWorld world;
    world.add(5, 77, 0, 100);
    std::string request = world.rendezvous(5, 0, 100);
    request[24] = static_cast<char>(request[24] ^ 0x40);  // of the key
    ASSERT_EQ(world.send_message(request), 0);
    EXPECT_EQ(world.wait_tags().wc.wc_flags, kMatch);
    const Completion data = world.wait_tags();
    EXPECT_EQ(data.wc.status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(data.wc.wr_id, 77U);
    EXPECT_EQ(world.receivers[0]->state(), IBV_QPS_ERR);
}

TEST(VhcaTagCompletion, request_that_is_no_request_is_refused) {
    for (const std::size_t bytes : {std::size_t{15}, std::size_t{49}, std::size_t{2000}}) {
        TagWorld world;
        world.add(5, 77, 0, 100);
        ASSERT_EQ(world.send_message(world.header(TagOpcode::kRendezvous, 5) + pattern(bytes)), 0);
        EXPECT_EQ(world.a.wait().wc.status, IBV_WC_REM_INV_REQ_ERR);
        EXPECT_TRUE(world.cq->is_empty()) << "nothing was consumed";
    }
}

TEST(VhcaTagCompletion, sender_waits_until_there_is_an_untagged_receive) {
    TagWorld world({.untagged = 0});
    ASSERT_EQ(world.send_eager(5, "unexpected"), 0);
    world.fabric.run_until(world.fabric.now() + 100'000);
    EXPECT_GT(world.a.device.counters().rnr_naks, 0U);
    EXPECT_TRUE(world.cq->is_empty());
    EXPECT_EQ(world.post_untagged(0), 0);
    expect_tagged(world.wait_tags(), 0, 0, kTagHeaderBytes + 10);
    // Refused attempts were not counted: there is one unexpected message.
    EXPECT_EQ(world.sync(1), 0);
    world.add(6, 77, 0, 100);
    ASSERT_EQ(world.send_eager(6, "match needs none"), 0);
    expect_tagged(world.wait_tags(), 77, kMatch | kValid, 16);
}

TEST(VhcaTagCompletion, sender_that_waits_matches_what_was_added_meanwhile) {
    TagWorld world({.untagged = 0});
    ASSERT_EQ(world.send_eager(5, "late"), 0);
    world.fabric.run_until(world.fabric.now() + 100'000);
    world.add(5, 77, 0, 100);
    expect_tagged(world.wait_tags(), 77, kMatch | kValid, 4);
}

TEST(VhcaTagCompletion, strict_device_starts_with_enough_untagged_receives_and_goes_on_with_fewer) {
    TagOptions options;
    options.untagged = 32;
    options.world.node.device.tm_untagged_min = 33;
    TagWorld world(options);
    world.add(5, 77, 0, 100);
    ASSERT_EQ(world.send_eager(5, "x"), 0);
    world.fabric.run_until(world.fabric.now() + 100'000);
    EXPECT_TRUE(world.cq->is_empty());
    EXPECT_EQ(world.post_untagged(32), 0);
    EXPECT_EQ(world.wait_tags().wc.wr_id, 77U);
    for (std::uint64_t slot = 0; slot < 2; ++slot) {
        ASSERT_EQ(world.send_eager(5, "y"), 0);
        EXPECT_EQ(world.wait_tags().wc.wr_id, slot);
    }
}

TEST(VhcaTagCompletion, write_with_immediate_takes_an_untagged_receive) {
    TagWorld world;
    SendWork work{.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                  .remote_addr = world.b.address(TagWorld::kTaggedAt),
                  .rkey = world.b.mr->key};
    ASSERT_EQ(world.send_message("written", work), 0);
    const Completion completion = world.wait_tags();
    EXPECT_EQ(completion.wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(completion.wc.wr_id, 0U);
    EXPECT_EQ(world.tagged(0, 7), "written");
}

TEST(VhcaTagCompletion, messages_of_several_senders_interleave_packet_by_packet) {
    constexpr std::size_t kSenders = 4, kBytes = 20'000;
    TagOptions options{.senders = kSenders};
    options.world.fabric.delay_max = 20'000;
    TagWorld world(options);
    for (std::size_t i = 0; i < kSenders; ++i)
        world.add(i, i, i * kBytes, kBytes);
    for (std::size_t i = 0; i < kSenders; ++i)
        ASSERT_EQ(world.send_eager(i, pattern(kBytes, static_cast<char>('A' + i)), i), 0);
    std::vector<unsigned> flags;
    for (std::size_t i = 0; i < 2 * kSenders; ++i) {
        const Completion completion = world.wait_tags();
        flags.push_back(completion.wc.wc_flags);
        EXPECT_EQ(completion.wc.qp_num, world.receivers[completion.wc.wr_id]->number());
    }
    EXPECT_EQ(flags[1], kMatch) << "the second began before the first ended";
    for (std::size_t i = 0; i < kSenders; ++i)
        EXPECT_EQ(world.tagged(i * kBytes, kBytes), pattern(kBytes, static_cast<char>('A' + i)));
}

TEST(VhcaTagCompletion, many_rendezvous_of_one_sender_are_carried_out_in_order) {
    constexpr std::size_t kCount = 60, kBytes = 3000;  // more than the device's queue begins with
    TagWorld world({.tags_max = kCount});
    for (std::size_t i = 0; i < kCount; ++i) {
        world.add(i, i, i * kBytes, kBytes);
        ASSERT_EQ(world.send_rendezvous(i, i * kBytes, pattern(kBytes, static_cast<char>(i))), 0);
    }
    std::vector<std::uint64_t> matches, data;
    while (data.size() != kCount && !testing::Test::HasFatalFailure()) {
        const Completion completion = world.wait_tags();
        ASSERT_EQ(completion.wc.status, IBV_WC_SUCCESS);
        (completion.wc.wc_flags == kMatch ? matches : data).push_back(completion.wc.wr_id);
        while (const auto fin = world.a.poll())
            if (fin->wc.opcode == IBV_WC_RECV)
                world.post_fin(*world.senders[0]);
    }
    for (std::size_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(matches[i], i);
        EXPECT_EQ(data[i], i);
        EXPECT_EQ(world.tagged(i * kBytes, kBytes), pattern(kBytes, static_cast<char>(i)));
    }
}

TEST(VhcaTagCompletion, rendezvous_arrives_once_whatever_is_lost) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        SCOPED_TRACE(seed);
        TagOptions options;
        options.world.seed = seed;
        options.world.fabric = {.loss = 0.05, .duplication = 0.05, .delay_max = 5000};
        options.world.connection.timeout = 6;
        TagWorld world(options);
        const std::string data = pattern(30'000, static_cast<char>(seed));
        world.add(5, 77, 0, data.size());
        ASSERT_EQ(world.send_rendezvous(5, 0, data), 0);
        expect_tagged(world.wait_tags(), 77, kMatch, 0);
        expect_tagged(world.wait_tags(), 77, kValid, data.size());
        EXPECT_EQ(world.tagged(0, data.size()), data);
        // When the acknowledgement of the request is lost, the FIN may come before it.
        const unsigned sum = world.a.wait().wc.opcode + world.a.wait().wc.opcode;
        EXPECT_EQ(sum, unsigned{IBV_WC_SEND} + unsigned{IBV_WC_RECV});
        world.settle();
        EXPECT_TRUE(world.cq->is_empty() && world.a.cq->is_empty());
    }
}

TEST(VhcaTagCompletion, sender_killed_in_an_eager_message_leaves_the_receive_until_the_qp_ends) {
    TagWorld world(slow());
    world.add(5, 77, 0, 60'000);
    ASSERT_EQ(world.send_eager(5, pattern(60'000)), 0);
    expect_tagged(world.wait_tags(), 77, kMatch, 0);
    world.fabric.crash(0);
    world.settle();
    // A receiver has no timer: as with any connection, nothing tells it.
    EXPECT_TRUE(world.cq->is_empty());
    EXPECT_EQ(world.receivers[0]->state(), IBV_QPS_RTS);
    ASSERT_EQ(world.to_state(*world.receivers[0], IBV_QPS_ERR), 0);
    const Completion end = *world.poll_tags();
    EXPECT_EQ(end.wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(end.wc.wr_id, 77U);
}

TEST(VhcaTagCompletion, sender_killed_in_a_rendezvous_is_noticed_by_the_read) {
    TagWorld world(slow());
    world.add(5, 77, 0, 60'000);
    ASSERT_EQ(world.send_rendezvous(5, 0, pattern(60'000)), 0);
    expect_tagged(world.wait_tags(), 77, kMatch, 0);
    world.fabric.crash(0);
    const Completion end = world.wait_tags();
    EXPECT_EQ(end.wc.status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(end.wc.wr_id, 77U);
    EXPECT_EQ(world.receivers[0]->state(), IBV_QPS_ERR);
}

TEST(VhcaTagCompletion, unexpected_message_that_never_was_whole_is_not_counted) {
    TagWorld world(slow());
    ASSERT_EQ(world.send_eager(5, pattern(kManyPackets)), 0);
    while (world.b.device.counters().packets_received == 0)
        world.fabric.step();
    world.add(6, 77, 0, 100);  // waits: software does not know of the message
    ASSERT_EQ(world.to_state(*world.receivers[0], IBV_QPS_RESET), 0);
    EXPECT_TRUE(world.cq->is_empty());
    ASSERT_EQ(world.send_eager(6, "x", 1), 0);
    expect_tagged(world.wait_tags(), 77, kMatch | kValid, 1);
}

TEST(VhcaTagCompletion, reset_in_the_middle_gives_the_receive_back) {
    TagOptions options = slow();
    options.tags_max = 2;
    TagWorld world(options);
    world.add(5, 77, 0, 60'000);
    world.add(6, 78, 60'000, 60'000);
    ASSERT_EQ(world.send_eager(5, pattern(60'000)), 0);
    ASSERT_EQ(world.send_rendezvous(6, 0, pattern(60'000), 1), 0);
    EXPECT_EQ(world.wait_tags().wc.wc_flags, kMatch);
    EXPECT_EQ(world.wait_tags().wc.wc_flags, kMatch);
    ASSERT_EQ(world.b.device.destroy_qp(*world.receivers[0]), 0);
    ASSERT_EQ(world.b.device.destroy_qp(*world.receivers[1]), 0);
    EXPECT_TRUE(world.cq->is_empty());
    world.add(7, 79, 0, 100);
    world.add(8, 80, 0, 100);
}

}  // namespace

}  // namespace tagwire::vhca
