// SPDX-License-Identifier: BSD-3-Clause
// Regions that have no memory of their own: their bytes are those of others.
#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

namespace {

constexpr std::uint64_t kIova = 0x5000000010;

class VhcaIndirect : public testing::Test {
  protected:
    /// b's bytes [4096, 4100) and [8192, 8200) and [0, 4), in this order.
    std::vector<MrPiece> pieces() {
        const auto piece = [this](std::size_t offset, std::uint64_t bytes) {
            return MrPiece{
                .address = world.b.address(offset), .bytes = bytes, .key = world.b.mr->key};
        };
        return {piece(4096, 4), piece(8192, 8), piece(0, 4)};
    }
    Mr* make(std::vector<MrPiece> of, std::uint64_t length, unsigned access = kAllAccess) {
        Mr* mr = nullptr;
        EXPECT_EQ(world.b.device.create_indirect_mr(*world.b.pd, length, kIova, access,
                                                    std::move(of), &mr),
                  0);
        return mr;
    }
    [[nodiscard]] SendWork remote(ibv_wr_opcode opcode, const Mr& mr, std::uint64_t offset) const {
        SendWork work = world.remote(opcode, 0);
        work.remote_addr = kIova + offset;
        work.rkey = mr.key;
        return work;
    }
    ibv_wc_status send(std::size_t bytes, const SendWork& work) {
        EXPECT_EQ(world.send(1, 0, bytes, work), 0);
        return world.a.wait().wc.status;
    }

    World world;
};

TEST_F(VhcaIndirect, a_peer_writes_and_reads_across_pieces) {
    const Mr* mr = make(pieces(), 16);
    world.a.write(0, "abcdefghijklmnop");
    ASSERT_EQ(send(14, remote(IBV_WR_RDMA_WRITE, *mr, 1)), IBV_WC_SUCCESS);
    EXPECT_EQ(world.b.text(4097, 3), "abc");
    EXPECT_EQ(world.b.text(8192, 8), "defghijk");
    EXPECT_EQ(world.b.text(0, 3), "lmn");
    world.a.write(0, "................");
    ASSERT_EQ(send(14, remote(IBV_WR_RDMA_READ, *mr, 1)), IBV_WC_SUCCESS);
    EXPECT_EQ(world.a.text(0, 16), "abcdefghijklmn..");
}

TEST_F(VhcaIndirect, messages_of_many_packets_find_their_pieces) {
    std::vector<MrPiece> chain;
    for (std::size_t i = 0; i != 16; ++i) {  // in any order, at any place
        const std::size_t place = i * 7 % 16;
        chain.push_back(
            {.address = world.b.address(1 + place * 1000), .bytes = 1000, .key = world.b.mr->key});
    }
    const Mr* mr = make(chain, 16000);
    std::string text(16000, ' ');
    for (std::size_t i = 0; i != text.size(); ++i)
        text[i] = static_cast<char>('a' + i * i % 26);
    world.a.write(0, text);
    ASSERT_EQ(send(16000, remote(IBV_WR_RDMA_WRITE, *mr, 0)), IBV_WC_SUCCESS);
    for (std::size_t i = 0; i != 16; ++i)
        EXPECT_EQ(world.b.text(1 + i * 7 % 16 * 1000, 1000), text.substr(i * 1000, 1000)) << i;
    world.a.write(0, std::string(16000, ' '));
    ASSERT_EQ(send(16000, remote(IBV_WR_RDMA_READ, *mr, 0)), IBV_WC_SUCCESS);
    EXPECT_EQ(world.a.text(0, 16000), text);
}

TEST_F(VhcaIndirect, messages_are_gathered_and_scattered_by_such_keys) {
    const Mr* mr = make(pieces(), 16);
    const ibv_sge sge{kIova, 16, mr->key};
    ASSERT_EQ(world.qb->post_recv({1, {&sge, 1}}), 0);
    world.a.write(0, "abcdefghijklmnop");
    ASSERT_EQ(send(16, {}), IBV_WC_SUCCESS);
    EXPECT_EQ(world.b.wait().wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(world.b.text(8192, 8), "efghijkl");
}

TEST_F(VhcaIndirect, an_atomic_needs_its_eight_bytes_in_one_piece) {
    std::vector<MrPiece> halves{
        {.address = world.b.address(16), .bytes = 16, .key = world.b.mr->key},
        {.address = world.b.address(64), .bytes = 16, .key = world.b.mr->key}};
    const Mr* mr = make(halves, 32);
    world.b.word(64) = 40;
    SendWork add = remote(IBV_WR_ATOMIC_FETCH_AND_ADD, *mr, 16);
    add.compare_add = 2;
    ASSERT_EQ(send(8, add), IBV_WC_SUCCESS);
    EXPECT_EQ(world.b.word(64), 42U);
    EXPECT_EQ(world.a.word(0), 40U);
    halves[0].bytes = 12;
    const Mr* torn = make(halves, 28);
    SendWork across = remote(IBV_WR_ATOMIC_FETCH_AND_ADD, *torn, 8);
    across.remote_addr = kIova + 8;
    EXPECT_EQ(send(8, across), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(VhcaIndirect, rights_are_those_of_the_key_that_the_peer_has) {
    Mr* inner = nullptr;
    ASSERT_EQ(world.b.device.create_mr(*world.b.pd, world.b.memory.data(), 64, world.b.address(0),
                                       IBV_ACCESS_LOCAL_WRITE, &inner),
              0);
    const std::vector<MrPiece> one{{.address = world.b.address(0), .bytes = 64, .key = inner->key}};
    const Mr* open = make(one, 64);
    EXPECT_EQ(send(8, remote(IBV_WR_RDMA_WRITE, *open, 0)), IBV_WC_SUCCESS);
    const Mr* readable = make(one, 64, IBV_ACCESS_REMOTE_READ);
    EXPECT_EQ(send(8, remote(IBV_WR_RDMA_READ, *readable, 0)), IBV_WC_SUCCESS);
    EXPECT_EQ(send(8, remote(IBV_WR_RDMA_WRITE, *readable, 0)), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(VhcaIndirect, a_piece_that_may_not_be_written_is_not_written) {
    Mr* inner = nullptr;
    ASSERT_EQ(world.b.device.create_mr(*world.b.pd, world.b.memory.data(), 64, world.b.address(0),
                                       0, &inner),
              0);
    const Mr* mr = make({{.address = world.b.address(0), .bytes = 64, .key = inner->key}}, 64);
    EXPECT_EQ(send(8, remote(IBV_WR_RDMA_READ, *mr, 0)), IBV_WC_SUCCESS);
    EXPECT_EQ(send(8, remote(IBV_WR_RDMA_WRITE, *mr, 0)), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(VhcaIndirect, pieces_may_be_indirect_up_to_a_depth) {
    Mr* mr = make({{.address = world.b.address(64), .bytes = 64, .key = world.b.mr->key}}, 64);
    for (int depth = 2; depth <= 4; ++depth)
        mr = make({{.address = kIova, .bytes = 64, .key = mr->key}}, 64);
    EXPECT_EQ(send(8, remote(IBV_WR_RDMA_WRITE, *mr, 8)), IBV_WC_SUCCESS);
    mr = make({{.address = kIova, .bytes = 64, .key = mr->key}}, 64);
    EXPECT_EQ(send(8, remote(IBV_WR_RDMA_WRITE, *mr, 8)), IBV_WC_REM_ACCESS_ERR);
}

// Firmware lets a region be made of more than is there: UCX aligns what it registers so.
TEST_F(VhcaIndirect, what_a_piece_does_not_have_fails_when_it_is_accessed) {
    const Mr* mr = make({{.address = world.b.address(0) - 4096,
                          .bytes = std::uint64_t{1} << 31,
                          .key = world.b.mr->key}},
                        std::uint64_t{1} << 31);
    EXPECT_EQ(send(8, remote(IBV_WR_RDMA_WRITE, *mr, 4096)), IBV_WC_SUCCESS);
    EXPECT_EQ(send(8, remote(IBV_WR_RDMA_WRITE, *mr, 4095)), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(VhcaIndirect, a_region_that_is_gone_opens_nothing_through_another) {
    Mr* inner = nullptr;
    ASSERT_EQ(world.b.device.create_mr(*world.b.pd, world.b.memory.data(), 64, world.b.address(0),
                                       kAllAccess, &inner),
              0);
    const Mr* mr = make({{.address = world.b.address(0), .bytes = 64, .key = inner->key}}, 64);
    EXPECT_EQ(world.b.device.destroy_mr(*inner), 0);
    EXPECT_EQ(send(8, remote(IBV_WR_RDMA_WRITE, *mr, 0)), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(VhcaIndirect, regions_that_cannot_be_are_refused) {
    Mr* mr = nullptr;
    const auto create = [&](std::vector<MrPiece> of, std::uint64_t length, unsigned access) {
        return world.b.device.create_indirect_mr(*world.b.pd, length, kIova, access, std::move(of),
                                                 &mr);
    };
    EXPECT_EQ(create(pieces(), 17, kAllAccess), EINVAL) << "longer than its pieces";
    EXPECT_EQ(create({}, 1, kAllAccess), EINVAL);
    EXPECT_EQ(create(pieces(), 0, kAllAccess), EINVAL);
    EXPECT_EQ(create(pieces(), 16, IBV_ACCESS_REMOTE_WRITE), EINVAL) << "as of any region";
    auto empty = pieces();
    empty[1].bytes = 0;
    EXPECT_EQ(create(empty, 8, kAllAccess), EINVAL);
    auto wraps = pieces();
    wraps[0].address = UINT64_MAX - 2;
    EXPECT_EQ(create(wraps, 16, kAllAccess), EINVAL);
    EXPECT_EQ(mr, nullptr);
}

TEST_F(VhcaIndirect, a_program_may_choose_the_low_byte_of_a_key) {
    Mr* mr = make(pieces(), 16);
    world.b.device.choose_variant(*mr, 0x5a);
    EXPECT_EQ(mr->key & 0xff, 0x5aU);
    EXPECT_EQ(send(8, remote(IBV_WR_RDMA_WRITE, *mr, 0)), IBV_WC_SUCCESS);
}

TEST(VhcaIndirectWork, access_to_more_pieces_than_a_device_visits_fails) {
    constexpr std::size_t kPieces = 2048, kKeys = 256;
    WorldOptions options;
    options.node.memory_bytes = kPieces * kKeys;
    World world(options);
    Device& device = world.b.device;
    std::vector<MrPiece> bytes(kPieces);  // one by one
    for (MrPiece& piece : bytes)
        piece = {.address = world.b.address(7), .bytes = 1, .key = world.b.mr->key};
    Mr *below = nullptr, *mr = nullptr;
    ASSERT_EQ(device.create_indirect_mr(*world.b.pd, kPieces, 0, kAllAccess, bytes, &below), 0);
    std::vector<MrPiece> keys(kKeys);
    for (MrPiece& piece : keys)
        piece = {.address = 0, .bytes = kPieces, .key = below->key};
    ASSERT_EQ(device.create_indirect_mr(*world.b.pd, kPieces * kKeys, 0, kAllAccess, keys, &mr), 0);
    const auto read = [&](std::size_t count) {
        SendWork work = world.remote(IBV_WR_RDMA_READ, 0);
        work.remote_addr = 0;
        work.rkey = mr->key;
        EXPECT_EQ(world.send(1, 0, count, work), 0);
        return world.a.wait().wc.status;
    };
    EXPECT_EQ(read(kPieces * kKeys / 4), IBV_WC_SUCCESS);
    EXPECT_EQ(read(kPieces * kKeys), IBV_WC_REM_ACCESS_ERR);
}

}  // namespace
}  // namespace tagwire::vhca
