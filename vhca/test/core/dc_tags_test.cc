// SPDX-License-Identifier: BSD-3-Clause
// Tag matching on a DCT: what came from DCIs is matched like what comes through reliable
// connections, and a rendezvous is read from the DCT that its header names.
#include "vhca/test/core/dc_world.hpp"
#include "vhca/test/core/tag_world.hpp"

namespace tagwire::vhca {

namespace {

constexpr std::size_t kDataAt = 1 << 14, kTaggedAt = 1 << 15, kFinAt = 4096;

DcOptions with_tags(DcOptions options = {}) {
    options.node.device.tm_tags_max = 64;
    options.node.device.has_dc_rendezvous = true;
    options.node.memory_bytes = 1 << 17;
    return options;
}

/// Senders are the hosts of the targets; each has a DCI, and a DCT that it is read from. The SRQ
/// that matches is that of host a.
class DcTagWorld : public DcWorld {
  public:
    explicit DcTagWorld(const DcOptions& given = with_tags()) : DcWorld(given) {
        EXPECT_EQ(a().device.create_cq({.cqe = 1024}, &cq), 0);
        const SrqConfig config{.pd = a().pd, .wr_max = 64, .sge_max = 1, .tm = {16, 64, cq}};
        EXPECT_EQ(a().device.create_srq(config, &tm), 0);
        dct = &make_dct(a(), tm);
        for (std::size_t index = 0; index < options.targets; ++index) {
            dcis.push_back(&make_dci(target(index)));
            EXPECT_EQ(receive(index, 100, kFinAt, 64), 0);
            post_untagged(index);
            post_untagged(index);
        }
    }

    void post_untagged(std::uint64_t slot) {
        const ibv_sge sge = a().sge(slot * 4096, 4096);
        EXPECT_EQ(tm->post({slot, {&sge, 1}}), 0);
    }
    void add(std::uint64_t tag, std::uint64_t recv_wr_id, std::size_t offset, std::size_t bytes) {
        const ibv_sge sge = a().sge(kTaggedAt + offset, bytes);
        TagWork work{.opcode = IBV_WR_TAG_ADD,
                     .recv_wr_id = recv_wr_id,
                     .tag = tag,
                     .mask = kExact,
                     .sges = {&sge, 1}};
        std::size_t failed = 0;
        EXPECT_EQ(tm->post_ops({&work, 1}, &failed, fabric.now()), 0);
    }
    void send_message(std::size_t sender, const std::string& message) {
        target(sender).write(0, message);
        const ibv_sge sge = target(sender).sge(0, message.size());
        const SendWork work{.flags = IBV_SEND_SIGNALED,
                            .route = a().route(),
                            .remote_qpn = dct->number(),
                            .dc_key = kDcKey,
                            .sges = {&sge, 1}};
        EXPECT_EQ(dcis[sender]->post_send(work, fabric.now()), 0);
    }
    [[nodiscard, gnu::noinline]] std::string rendezvous(std::size_t sender, std::uint64_t tag,
                                                        std::size_t bytes,
                                                        std::uint64_t key = kDcKey) {
        Host& host = target(sender);
        const ReadHeader source{htobe64(host.address(kDataAt)), htobe32(host.mr->key),
                                htobe32(static_cast<std::uint32_t>(bytes))};
        const DcReadHeader back{htobe32(dcts[sender]->number()), 0, htobe64(key)};
        return TagWorld::header(TagOpcode::kRendezvous, tag) +
               std::string(reinterpret_cast<const char*>(&source), sizeof source) +
               std::string(reinterpret_cast<const char*>(&back), sizeof back);
    }
    Completion wait_tags() {
        EXPECT_TRUE(fabric.run([this] { return !cq->is_empty(); })) << "no completion";
        Completion completion;
        static_cast<void>(cq->poll(&completion));
        return completion;
    }
    [[nodiscard]] std::string tagged(std::size_t offset, std::size_t bytes) {
        return a().text(kTaggedAt + offset, bytes);
    }

    Cq* cq = nullptr;
    Srq* tm = nullptr;
    Qp* dct = nullptr;
    std::vector<Qp*> dcis;
};

TEST(VhcaDcTags, eager_message_goes_to_its_receive) {
    DcTagWorld world;
    world.add(5, 77, 0, 64);
    world.send_message(1, TagWorld::header(TagOpcode::kEager, 5) + "payload");
    const Completion completion = world.wait_tags();
    expect_tagged(completion, 77, kMatch | kValid, 7);
    EXPECT_EQ(completion.wc.qp_num, world.dct->number());
    EXPECT_EQ(completion.tm_tag, 5U);
    EXPECT_EQ(world.tagged(0, 7), "payload");
}

TEST(VhcaDcTags, messages_of_many_packets_from_two_initiators_interleave) {
    DcOptions options = with_tags();
    options.connection.mtu = IBV_MTU_256;
    options.node.device.packets_ahead = 2;
    DcTagWorld world(options);
    const std::string first(2000, 'f'), second(2000, 's');
    world.add(5, 77, 0, 4096);
    world.add(6, 78, 4096, 4096);
    world.send_message(0, TagWorld::header(TagOpcode::kEager, 5) + first);
    world.send_message(1, TagWorld::header(TagOpcode::kEager, 6) + second);
    expect_tagged(world.wait_tags(), 77, kMatch, 0);
    expect_tagged(world.wait_tags(), 78, kMatch, 0);
    expect_tagged(world.wait_tags(), 77, kValid, first.size());
    expect_tagged(world.wait_tags(), 78, kValid, second.size());
    EXPECT_EQ(world.tagged(0, first.size()), first);
    EXPECT_EQ(world.tagged(4096, second.size()), second);
}

TEST(VhcaDcTags, unexpected_messages_and_those_without_tag_go_to_software) {
    DcTagWorld world;
    const std::string message = TagWorld::header(TagOpcode::kEager, 9) + "unexpected";
    world.send_message(0, message);
    expect_tagged(world.wait_tags(), 0, 0, message.size());
    EXPECT_EQ(world.a().text(0, message.size()), message);
    world.send_message(1, TagWorld::header(TagOpcode::kNoTag, 0));
    EXPECT_EQ(world.wait_tags().wc.opcode, IBV_WC_TM_NO_TAG);
}

TEST(VhcaDcTags, rendezvous_is_read_from_the_dct_that_it_names) {
    DcTagWorld world;
    const std::string data(9000, 'd');
    world.target(1).write(kDataAt, data);
    world.add(5, 77, 0, 16384);
    const std::string request = world.rendezvous(1, 5, data.size());
    world.send_message(1, request);
    const Completion match = world.wait_tags();
    expect_tagged(match, 77, kMatch, 0);
    EXPECT_EQ(match.tm_tag, 5U);
    const Completion done = world.wait_tags();
    expect_tagged(done, 77, kValid, data.size());
    EXPECT_EQ(done.wc.qp_num, world.dct->number());
    EXPECT_EQ(world.tagged(0, data.size()), data);
    EXPECT_EQ(world.target(1).wait().wc.opcode, IBV_WC_SEND);
    const Completion fin = world.target(1).wait();
    EXPECT_EQ(fin.wc.opcode, IBV_WC_RECV);
    EXPECT_EQ(fin.wc.byte_len, kRendezvousBytes);
    const std::string wanted =
        TagWorld::header(TagOpcode::kFin, 5) + request.substr(kTagHeaderBytes, sizeof(ReadHeader));
    EXPECT_EQ(world.target(1).text(kFinAt, wanted.size()), wanted);
}

TEST(VhcaDcTags, rendezvous_from_two_senders_do_not_wait_for_each_other) {
    DcTagWorld world;
    const std::string data(5000, 'd');
    for (std::size_t sender = 0; sender < 2; ++sender) {
        world.target(sender).write(kDataAt, data);
        world.add(5 + sender, 77 + sender, sender * 8192, 8192);
        world.send_message(sender, world.rendezvous(sender, 5 + sender, data.size()));
    }
    for (int i = 0; i < 4; ++i)
        EXPECT_EQ(world.wait_tags().wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(world.tagged(0, data.size()), data);
    EXPECT_EQ(world.tagged(8192, data.size()), data);
}

TEST(VhcaDcTags, rendezvous_of_a_sender_that_died_fails_and_others_go_on) {
    DcTagWorld world;
    const std::string data(5000, 'd');
    world.add(5, 77, 0, 8192);
    world.send_message(1, world.rendezvous(1, 5, data.size()));
    expect_tagged(world.wait_tags(), 77, kMatch, 0);
    world.fabric.crash(2);
    const Completion failed = world.wait_tags();
    EXPECT_EQ(failed.wc.status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(failed.wc.wr_id, 77U);
    EXPECT_EQ(world.dct->state(), IBV_QPS_RTR);
    world.add(6, 78, 0, 8192);
    world.target(0).write(kDataAt, data);
    world.send_message(0, world.rendezvous(0, 6, data.size()));
    expect_tagged(world.wait_tags(), 78, kMatch, 0);
    expect_tagged(world.wait_tags(), 78, kValid, data.size());
    EXPECT_EQ(world.tagged(0, data.size()), data);
}

TEST(VhcaDcTags, rendezvous_is_not_read_behind_that_of_another_sender) {
    DcTagWorld world;
    const std::string data(5000, 'd');
    world.target(0).write(kDataAt, data);
    world.add(5, 77, 0, 8192);
    world.send_message(0, world.rendezvous(0, 5, data.size()));
    expect_tagged(world.wait_tags(), 77, kMatch, 0);
    expect_tagged(world.wait_tags(), 77, kValid, data.size());
    world.fabric.run_until(world.fabric.now() + 100'000);
    // Whoever read that is free for the sender that dies, and has not begun when the next comes.
    world.add(6, 78, 0, 8192);
    world.add(7, 79, 8192, 8192);
    world.send_message(1, world.rendezvous(1, 6, data.size()));
    world.send_message(0, world.rendezvous(0, 7, data.size()));
    expect_tagged(world.wait_tags(), 78, kMatch, 0);
    world.fabric.crash(2);
    expect_tagged(world.wait_tags(), 79, kMatch, 0);
    expect_tagged(world.wait_tags(), 79, kValid, data.size());
    EXPECT_EQ(world.tagged(8192, data.size()), data);
    EXPECT_EQ(world.wait_tags().wc.status, IBV_WC_RETRY_EXC_ERR);
}

TEST(VhcaDcTags, rendezvous_that_names_a_wrong_key_fails) {
    DcTagWorld world;
    world.add(5, 77, 0, 64);
    world.send_message(1, world.rendezvous(1, 5, 10, kDcKey + 1));
    expect_tagged(world.wait_tags(), 77, kMatch, 0);
    EXPECT_EQ(world.wait_tags().wc.status, IBV_WC_RETRY_EXC_ERR);
}

TEST(VhcaDcTags, rendezvous_without_the_dct_is_invalid) {
    DcTagWorld world;
    world.add(5, 77, 0, 64);
    world.send_message(1, world.rendezvous(1, 5, 10).substr(0, kRendezvousBytes));
    EXPECT_EQ(world.target(1).wait().wc.status, IBV_WC_REM_INV_REQ_ERR);
}

TEST(VhcaDcTags, without_the_extension_software_carries_the_rendezvous_out) {
    DcOptions options = with_tags();
    options.node.device.has_dc_rendezvous = false;
    DcTagWorld world(options);
    world.add(5, 77, 0, 8192);
    const std::string request = world.rendezvous(1, 5, 5000);
    world.send_message(1, request);
    const Completion completion = world.wait_tags();
    EXPECT_EQ(completion.wc.status, IBV_WC_TM_RNDV_INCOMPLETE);
    EXPECT_EQ(completion.wc.wr_id, 77U);
    EXPECT_EQ(world.tagged(0, request.size()), request);
}

TEST(VhcaDcTags, more_rendezvous_than_readers_wait_for_their_turn) {
    DcOptions options = with_tags();
    options.targets = 5;
    DcTagWorld world(options);
    for (std::uint64_t round = 0; round < 40; ++round) {
        const std::size_t sender = round % options.targets;
        world.target(sender).write(kDataAt, "data");
        world.add(round, round, 0, 64);
        EXPECT_EQ(world.receive(sender, 100, kFinAt, 64), 0);
        world.send_message(sender, world.rendezvous(sender, round, 4));
        expect_tagged(world.wait_tags(), round, kMatch, 0);
        expect_tagged(world.wait_tags(), round, kValid, 4);
        world.settle();
    }
}

TEST(VhcaDcTags, eager_message_whose_initiator_is_reset_fails_its_receive) {
    DcOptions options = with_tags();
    options.connection.mtu = IBV_MTU_256;
    options.node.device.packets_ahead = 2;
    DcTagWorld world(options);
    world.add(5, 77, 0, 4096);
    world.send_message(0, TagWorld::header(TagOpcode::kEager, 5) + std::string(2000, 'x'));
    expect_tagged(world.wait_tags(), 77, kMatch, 0);
    EXPECT_EQ(world.modify(*world.dcis[0], IBV_QPS_RESET, 0), 0);
    const Completion failed = world.wait_tags();
    EXPECT_EQ(failed.wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(failed.wc.wr_id, 77U);
}

}  // namespace

}  // namespace tagwire::vhca
