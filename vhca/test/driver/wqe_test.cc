// SPDX-License-Identifier: BSD-3-Clause
// Work queue entries: what each form asks for, and what is refused.
#include "vhca/test/driver/program.hpp"

namespace tagwire::vhca::driver {

namespace {

constexpr std::uint16_t kIndex = 0x1234;
constexpr WqeContext kRc{};
constexpr WqeContext kUd{.type = IBV_QPT_UD};
constexpr WqeContext kDci{.type = IBV_QPT_DRIVER, .dc = DcKind::kInitiator};
constexpr WqeContext kTags{.commands_tags = true};
constexpr ibv_sge kSge{0xabcdef0123456789, 100, 0x77};

Wqe parse(const std::vector<std::byte>& bytes, const WqeContext& context = kRc) {
    Wqe wqe;
    wqe.piece_count = 9;  // of the one before
    wqe.work.is_nop = true;
    parse_wqe(bytes, kIndex, context, &wqe);
    return wqe;
}
Wqe parse(const Entry& entry, const WqeContext& context = kRc) {
    return parse(entry.finish(kIndex), context);
}

void expect_refused(const Wqe& wqe) {
    EXPECT_EQ(wqe.work.refused, IBV_WC_LOC_QP_OP_ERR);
    EXPECT_EQ(wqe.work.opcode, IBV_WR_SEND);
    EXPECT_NE(wqe.work.flags & IBV_SEND_SIGNALED, 0U);
    EXPECT_EQ(wqe.piece_count, 0U);
    EXPECT_FALSE(wqe.is_tag_command);
    EXPECT_FALSE(wqe.has_address);
}

TEST(VhcaWqe, a_send_has_pieces_of_both_kinds_in_their_order) {
    const Wqe wqe = parse(Entry(MLX5_OPCODE_SEND).text("header").data(kSge).text("twelve bytes"));
    EXPECT_EQ(wqe.work.refused, IBV_WC_SUCCESS);
    EXPECT_EQ(wqe.work.opcode, IBV_WR_SEND);
    EXPECT_FALSE(wqe.work.is_nop);
    EXPECT_EQ(wqe.index, kIndex);
    EXPECT_EQ(wqe.blocks, 1U);
    ASSERT_EQ(wqe.piece_count, 3U);
    EXPECT_TRUE(wqe.pieces[0].is_inline);
    EXPECT_EQ(wqe.pieces[0].offset, 20U);
    EXPECT_EQ(wqe.pieces[0].sge.length, 6U);
    EXPECT_FALSE(wqe.pieces[1].is_inline);
    EXPECT_EQ(wqe.pieces[1].sge.addr, kSge.addr);
    EXPECT_EQ(wqe.pieces[1].sge.length, kSge.length);
    EXPECT_EQ(wqe.pieces[1].sge.lkey, kSge.lkey);
    EXPECT_EQ(wqe.pieces[2].offset, 52U);
    EXPECT_EQ(wqe.pieces[2].sge.length, 12U);
}

struct Named {
    std::uint8_t opcode;
    ibv_wr_opcode wanted;
};

class VhcaWqeOpcode : public testing::TestWithParam<Named> {};

TEST_P(VhcaWqeOpcode, names_a_request) {
    const auto [opcode, wanted] = GetParam();
    const bool has_remote = opcode >= MLX5_OPCODE_RDMA_READ || opcode == MLX5_OPCODE_RDMA_WRITE ||
                            opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
    const bool has_atomic = opcode >= MLX5_OPCODE_ATOMIC_CS;
    Entry entry(opcode);
    entry.immediate(htobe32(0x01020304));
    if (has_remote)
        entry.remote(0x1122334455667788, 0x99aabbcc);
    if (has_atomic)
        entry.atomic(7, 5);
    const Wqe wqe = parse(entry.data(kSge));
    EXPECT_EQ(wqe.work.refused, IBV_WC_SUCCESS);
    EXPECT_EQ(wqe.work.opcode, wanted);
    EXPECT_EQ(wqe.opcode, opcode);
    EXPECT_EQ(wqe.piece_count, 1U);
    EXPECT_EQ(wqe.work.remote_addr, has_remote ? 0x1122334455667788 : 0U);
    EXPECT_EQ(wqe.work.rkey, has_remote ? 0x99aabbcc : 0U);
    const std::uint32_t imm = opcode == MLX5_OPCODE_SEND_INVAL ? 0x01020304 : htobe32(0x01020304);
    EXPECT_EQ(wqe.work.imm, imm);
    const bool is_add = opcode == MLX5_OPCODE_ATOMIC_FA;
    EXPECT_EQ(wqe.work.compare_add, !has_atomic ? 0U : is_add ? 7U : 5U);
    EXPECT_EQ(wqe.work.swap, has_atomic && !is_add ? 7U : 0U);
}

INSTANTIATE_TEST_SUITE_P(
    all, VhcaWqeOpcode,
    testing::Values(Named{MLX5_OPCODE_SEND, IBV_WR_SEND},
                    Named{MLX5_OPCODE_SEND_IMM, IBV_WR_SEND_WITH_IMM},
                    Named{MLX5_OPCODE_SEND_INVAL, IBV_WR_SEND_WITH_INV},
                    Named{MLX5_OPCODE_RDMA_WRITE, IBV_WR_RDMA_WRITE},
                    Named{MLX5_OPCODE_RDMA_WRITE_IMM, IBV_WR_RDMA_WRITE_WITH_IMM},
                    Named{MLX5_OPCODE_RDMA_READ, IBV_WR_RDMA_READ},
                    Named{MLX5_OPCODE_ATOMIC_CS, IBV_WR_ATOMIC_CMP_AND_SWP},
                    Named{MLX5_OPCODE_ATOMIC_FA, IBV_WR_ATOMIC_FETCH_AND_ADD}));

TEST(VhcaWqe, bits_of_the_control_segment_become_flags) {
    const auto flags = [](unsigned bits) {
        return parse(Entry(MLX5_OPCODE_SEND, static_cast<std::uint8_t>(bits))).work.flags;
    };
    EXPECT_EQ(flags(0), 0U);
    EXPECT_EQ(flags(MLX5_WQE_CTRL_CQ_UPDATE), unsigned{IBV_SEND_SIGNALED});
    EXPECT_EQ(flags(MLX5_WQE_CTRL_SOLICITED), unsigned{IBV_SEND_SOLICITED});
    EXPECT_EQ(flags(MLX5_WQE_CTRL_FENCE), unsigned{IBV_SEND_FENCE});
    EXPECT_EQ(flags(0x60), unsigned{IBV_SEND_FENCE});
    EXPECT_EQ(flags(MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE), 0U);
    EXPECT_EQ(flags(0x8a), unsigned{IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED});
}

TEST(VhcaWqe, a_datagram_has_an_address_of_48_bytes) {
    mlx5_wqe_av av = address_vector(0x56789a | MLX5_EXTENDED_UD_AV, 0, 0x4321);
    av.key.qkey = {htobe32(0x11223344), 0};
    av.stat_rate_sl = 0x53;
    av.fl_mlid = 0x85;
    av.tclass = 9;
    av.hop_limit = 64;
    av.grh_gid_fl = htobe32(1U << 30 | 3U << 20 | 0xabcde);
    av.rgid[15] = 0xee;
    const Wqe wqe = parse(Entry(MLX5_OPCODE_SEND).add(av).data(kSge), kUd);
    ASSERT_TRUE(wqe.has_address);
    EXPECT_EQ(wqe.work.refused, IBV_WC_SUCCESS);
    EXPECT_EQ(wqe.piece_count, 1U);
    EXPECT_EQ(wqe.work.remote_qpn, 0x56789aU);
    EXPECT_EQ(wqe.work.remote_qkey, 0x11223344U);
    const WqeAddress& address = wqe.address;
    EXPECT_TRUE(address.is_extended);
    EXPECT_EQ(address.attr.dlid, 0x4321);
    EXPECT_EQ(address.attr.sl, 3);
    EXPECT_EQ(address.attr.static_rate, 5);
    EXPECT_EQ(address.attr.src_path_bits, 5);
    EXPECT_EQ(address.attr.is_global, 1);
    EXPECT_EQ(address.attr.grh.sgid_index, 3);
    EXPECT_EQ(address.attr.grh.flow_label, 0xabcdeU);
    EXPECT_EQ(address.attr.grh.hop_limit, 64);
    EXPECT_EQ(address.attr.grh.traffic_class, 9);
    EXPECT_EQ(address.attr.grh.dgid.raw[15], 0xee);
}

TEST(VhcaWqe, an_initiators_address_is_of_either_size) {
    const std::uint64_t key = 0xfeedfacecafebeef;
    const auto shorter = address_vector(0x17, key, 8);
    const Wqe small = parse(
        Entry(MLX5_OPCODE_RDMA_WRITE).stream(5).add(shorter, 16).remote(1, 2).data(kSge), kDci);
    EXPECT_EQ(small.work.refused, IBV_WC_SUCCESS);
    EXPECT_EQ(small.work.dc_key, key);
    EXPECT_EQ(small.work.remote_qpn, 0x17U);
    EXPECT_EQ(small.work.stream, 5);
    EXPECT_EQ(small.work.rkey, 2U);
    EXPECT_FALSE(small.address.is_extended);
    const auto longer = address_vector(0x17 | MLX5_EXTENDED_UD_AV, key, 8);
    const Wqe big = parse(Entry(MLX5_OPCODE_RDMA_WRITE).add(longer).remote(1, 2).data(kSge), kDci);
    EXPECT_EQ(big.work.refused, IBV_WC_SUCCESS);
    EXPECT_EQ(big.work.dc_key, key);
    EXPECT_EQ(big.work.rkey, 2U);
    EXPECT_TRUE(big.address.is_extended);
    EXPECT_EQ(big.blocks, 2U);
    EXPECT_EQ(big.address.attr.is_global, 0);
}

TEST(VhcaWqe, nothing_behind_the_control_segment_of_a_nop_matters) {
    const Wqe alone = parse(Entry(MLX5_OPCODE_NOP));
    EXPECT_TRUE(alone.work.is_nop);
    const auto av = address_vector(1, 2, 3);
    const Wqe with = parse(Entry(MLX5_OPCODE_NOP).stream(2).add(av, 16).text(""), kDci);
    EXPECT_TRUE(with.work.is_nop);
    EXPECT_EQ(with.work.refused, IBV_WC_SUCCESS);
    EXPECT_EQ(with.work.stream, 2);
    EXPECT_EQ(with.piece_count, 0U);
    EXPECT_EQ(with.work.flags, unsigned{IBV_SEND_SIGNALED});
}

TEST(VhcaWqe, a_count_of_zero_is_two_gigabytes) {
    const Wqe wqe = parse(Entry(MLX5_OPCODE_SEND).data({1, 0, 2}));
    ASSERT_EQ(wqe.piece_count, 1U);
    EXPECT_EQ(wqe.pieces[0].sge.length, 0x80000000U);
}

mlx5_wqe_tm_seg tag_segment(std::uint8_t opcode, std::uint8_t flags) {
    mlx5_wqe_tm_seg segment{};
    segment.opcode = static_cast<std::uint8_t>(opcode << 4);
    segment.flags = flags;
    segment.index = htobe16(0x203);
    segment.sw_cnt = htobe16(0x405);
    segment.append_tag = htobe64(0x1111222233334444);
    segment.append_mask = htobe64(0xffff);
    return segment;
}

TEST(VhcaWqe, tag_commands_are_of_three_kinds) {
    const Wqe append =
        parse(Entry(MLX5_OPCODE_TAG_MATCHING).add(tag_segment(1, 0xc0)).data(kSge), kTags);
    ASSERT_TRUE(append.is_tag_command);
    EXPECT_EQ(append.tag.kind, TagCommand::Kind::kAppend);
    EXPECT_TRUE(append.tag.wants_completion && append.tag.has_count);
    EXPECT_EQ(append.tag.index, 0x203);
    EXPECT_EQ(append.tag.count, 0x405);
    EXPECT_EQ(append.tag.tag, 0x1111222233334444U);
    EXPECT_EQ(append.tag.mask, 0xffffU);
    EXPECT_EQ(append.tag.sge.addr, kSge.addr);
    EXPECT_EQ(append.tag.sge.length, kSge.length);
    const Wqe empty = parse(
        Entry(MLX5_OPCODE_TAG_MATCHING).add(tag_segment(1, 0)).data({5, 0, kEndOfList}), kTags);
    ASSERT_TRUE(empty.is_tag_command);
    EXPECT_EQ(empty.tag.sge.length, 0U);
    EXPECT_FALSE(empty.tag.wants_completion || empty.tag.has_count);
    const Wqe removal = parse(Entry(MLX5_OPCODE_TAG_MATCHING).add(tag_segment(2, 0x80)), kTags);
    EXPECT_EQ(removal.tag.kind, TagCommand::Kind::kRemove);
    EXPECT_EQ(removal.tag.index, 0x203);
    const Wqe nop = parse(Entry(MLX5_OPCODE_TAG_MATCHING).add(tag_segment(0, 0x40), 16), kTags);
    ASSERT_TRUE(nop.is_tag_command);
    EXPECT_EQ(nop.tag.kind, TagCommand::Kind::kNop);
    EXPECT_TRUE(nop.tag.has_count);
}

TEST(VhcaWqe, tag_commands_are_for_the_queue_that_commands) {
    expect_refused(parse(Entry(MLX5_OPCODE_TAG_MATCHING).add(tag_segment(0, 0)), kRc));
    EXPECT_EQ(parse(Entry(MLX5_OPCODE_SEND), kTags).work.opcode, IBV_WR_SEND);
    expect_refused(parse(Entry(MLX5_OPCODE_TAG_MATCHING).add(tag_segment(3, 0)), kTags));
    expect_refused(parse(Entry(MLX5_OPCODE_TAG_MATCHING).add(tag_segment(1, 0)), kTags));
    expect_refused(parse(Entry(MLX5_OPCODE_TAG_MATCHING).add(tag_segment(1, 0), 16), kTags));
    expect_refused(parse(Entry(MLX5_OPCODE_TAG_MATCHING), kTags));
}

TEST(VhcaWqe, what_the_device_does_not_do_is_refused) {
    for (unsigned opcode = 0; opcode != 256; ++opcode) {
        const Wqe wqe = parse(Entry(static_cast<std::uint8_t>(opcode)).remote(1, 2).atomic(3, 4));
        switch (opcode) {
            case MLX5_OPCODE_NOP:
            case MLX5_OPCODE_SEND_INVAL:
            case MLX5_OPCODE_RDMA_WRITE:
            case MLX5_OPCODE_RDMA_WRITE_IMM:
            case MLX5_OPCODE_SEND:
            case MLX5_OPCODE_SEND_IMM:
            case MLX5_OPCODE_RDMA_READ:
            case MLX5_OPCODE_ATOMIC_CS:
            case MLX5_OPCODE_ATOMIC_FA:
                EXPECT_EQ(wqe.work.refused, IBV_WC_SUCCESS) << opcode;
                break;
            default:
                expect_refused(wqe);
        }
    }
}

TEST(VhcaWqe, contradictions_are_refused) {
    const Entry send = Entry(MLX5_OPCODE_SEND).data(kSge);
    expect_refused(parse(send.finish(kIndex + 1)));
    expect_refused(parse(send.finish(kIndex, 0)));
    expect_refused(parse(send.finish(kIndex, 5)));   // of one block
    expect_refused(parse(send.finish(kIndex, 63)));  // of one block
    expect_refused(parse(Entry(MLX5_OPCODE_RDMA_WRITE)));
    expect_refused(parse(Entry(MLX5_OPCODE_ATOMIC_FA).remote(1, 2)));
    expect_refused(parse(Entry(MLX5_OPCODE_ATOMIC_FA).modifier(8).remote(1, 2).atomic(3, 4)));
    expect_refused(parse(Entry(MLX5_OPCODE_RDMA_READ).remote(1, 2).text("a")));
    expect_refused(parse(Entry(MLX5_OPCODE_SEND), kUd));
    const auto av = address_vector(MLX5_EXTENDED_UD_AV, 0, 0);
    expect_refused(parse(Entry(MLX5_OPCODE_SEND).add(av, 32), kDci));
    for (const std::uint32_t bytes : {13U, 1000U, 0x7fffffffU}) {
        const mlx5_wqe_data_seg longer{htobe32(bytes | MLX5_INLINE_SEG), 0, 0};
        expect_refused(parse(Entry(MLX5_OPCODE_SEND).add(longer)));
    }
    EXPECT_EQ(parse(Entry(MLX5_OPCODE_SEND).stream(6).modifier(0).finish(0)).work.stream, 6);
}

TEST(VhcaWqe, the_largest_entry_has_62_pieces) {
    Entry entry(MLX5_OPCODE_SEND);
    for (unsigned i = 0; i != 62; ++i)
        entry.text("");
    const auto bytes = entry.finish(kIndex);
    EXPECT_EQ(blocks_of(std::span(bytes).first<kSegmentBytes>()), 16U);
    const Wqe wqe = parse(bytes);
    EXPECT_EQ(wqe.work.refused, IBV_WC_SUCCESS);
    EXPECT_EQ(wqe.piece_count, 62U);
    EXPECT_EQ(wqe.blocks, 16U);
}

TEST(VhcaWqe, a_receive_ends_at_its_mark_or_its_end) {
    std::array<ibv_sge, 4> to{};
    const std::array list{data_segment(kSge), data_segment({1, 0, 3}), data_segment({4, 5, 6}),
                          data_segment({0, 0, kEndOfList})};
    const auto bytes = std::as_bytes(std::span(list));
    ASSERT_EQ(parse_receive(bytes, to), 2U);  // the empty one is left out
    EXPECT_EQ(to[0].addr, kSge.addr);
    EXPECT_EQ(to[1].addr, 4U);
    EXPECT_EQ(to[1].length, 5U);
    EXPECT_EQ(to[1].lkey, 6U);
    EXPECT_EQ(parse_receive(bytes.first(16), to), 1U);
    EXPECT_EQ(parse_receive(bytes, std::span(to).first(1)), 1U);
    EXPECT_EQ(parse_receive({}, to), 0U);
}

}  // namespace

}  // namespace tagwire::vhca::driver
