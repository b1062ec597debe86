// SPDX-License-Identifier: BSD-3-Clause
// Memory keys by commands of the device, through the genuine libmlx5.
#include <cerrno>
#include <string>

#include "vhca/test/driver/devx_program.hpp"

namespace tagwire::vhca::driver::test {
namespace {

namespace mkey = prm::mkey;

class DevxKeys : public DevxProgram {
  protected:
    static constexpr std::uint64_t kStart = 0x7000000000;

    void SetUp() override {
        DevxProgram::SetUp();
        qa = make_qp();
        qb = make_qp();
        connect(*qa, qb->qp_num);
        connect(*qb, qa->qp_num);
    }
    void TearDown() override {
        qa.reset();
        qb.reset();
    }

    [[nodiscard]] PrmCommand command(unsigned mode, std::uint64_t bytes, unsigned pieces) const {
        PrmCommand made(prm::kCreateMkey, 0x110 + pieces * 16);
        for (const prm::Field field : {mkey::kMayRead, mkey::kMayWrite, mkey::kMayAtomic,
                                       mkey::kMayWriteHere, mkey::kMayReadHere}) {
            made.set(prm::kMkeyOfCreate, field, 1);
        }
        made.set(prm::kMkeyOfCreate, mkey::kModeLow, mode)
            .set(prm::kMkeyOfCreate, mkey::kQpn, mkey::kAnyQpn)
            .set(prm::kMkeyOfCreate, mkey::kVariant, 0x5a)
            .set(prm::kMkeyOfCreate, mkey::kPd, pdn())
            .set(prm::kMkeyOfCreate, mkey::kStart, kStart)
            .set(prm::kMkeyOfCreate, mkey::kBytes, bytes)
            .set(prm::kMkeyOfCreate, mkey::kUnits, pieces)
            .set(0, mkey::kUnitsGiven, pieces);
        return made;
    }
    void set_piece(PrmCommand& made, unsigned index, std::size_t offset, std::uint64_t bytes) {
        const unsigned base = mkey::kList + index * mkey::kPiece;
        made.set(base, mkey::kPieceBytes, bytes)
            .set(base, mkey::kPieceKey, mr->lkey)
            .set(base, mkey::kPieceAddress, address(offset));
    }
    /// Pages 8 and 4 and 12 of the memory.
    [[nodiscard]] PrmCommand of_pages() {
        PrmCommand made = command(mkey::kEqualPieces, 3 * kPage, 3);
        made.set(prm::kMkeyOfCreate, mkey::kLogPieceBytes, 12);
        unsigned index = 0;
        for (const std::size_t page : {8U, 4U, 12U})
            set_piece(made, index++, page * kPage, 0);
        return made;
    }
    [[nodiscard]] std::uint32_t key() const { return number() << 8 | 0x5a; }
    /// qa, on what the key opens, with the memory's first bytes.
    [[nodiscard]] ibv_wc_status access(ibv_wr_opcode opcode, std::uint32_t rkey,
                                       std::uint64_t offset, std::uint32_t bytes) {
        ibv_sge sge{address(0), bytes, mr->lkey};
        ibv_send_wr wr{};
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = opcode;
        wr.wr.rdma = {kStart + offset, rkey};
        if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
            wr.wr.atomic = {kStart + offset, 2, 0, rkey};
        ibv_send_wr* bad = nullptr;
        EXPECT_EQ(ibv_post_send(qa.get(), &wr, &bad), 0);
        return wait().status;
    }

    Owned<ibv_qp> qa, qb;
};

TEST_F(DevxKeys, a_key_of_equal_pieces_opens_all_of_them) {
    PrmCommand made = of_pages();
    const auto object = create(made);
    ASSERT_NE(object, nullptr) << "status " << status();
    write(0, "abcdefgh");
    ASSERT_EQ(access(IBV_WR_RDMA_WRITE, key(), kPage - 4, 8), IBV_WC_SUCCESS);
    EXPECT_EQ(text(9 * kPage - 4, 4), "abcd");
    EXPECT_EQ(text(4 * kPage, 4), "efgh");
    write(0, "........");
    ASSERT_EQ(access(IBV_WR_RDMA_READ, key(), kPage - 4, 8), IBV_WC_SUCCESS);
    EXPECT_EQ(text(0, 8), "abcdefgh");
    const std::uint64_t forty = 40;
    std::memcpy(memory.get() + 12 * kPage, &forty, sizeof forty);
    ASSERT_EQ(access(IBV_WR_ATOMIC_FETCH_AND_ADD, key(), 2 * kPage, 8), IBV_WC_SUCCESS);
    EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(memory.get() + 12 * kPage), 42U);
    EXPECT_EQ(access(IBV_WR_RDMA_WRITE, key(), 3 * kPage - 4, 8), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(DevxKeys, a_key_of_pieces_opens_each_with_its_length) {
    PrmCommand made = command(mkey::kPieces, 12, 4);  // padded, as libraries do
    set_piece(made, 0, 5 * kPage + 3, 5);
    set_piece(made, 1, 7 * kPage + 1, 7);
    const auto object = create(made);
    ASSERT_NE(object, nullptr) << "status " << status();
    write(0, "abcdefghijkl");
    ASSERT_EQ(access(IBV_WR_RDMA_WRITE, key(), 0, 12), IBV_WC_SUCCESS);
    EXPECT_EQ(text(5 * kPage + 3, 6), std::string("abcde") + '\0');
    EXPECT_EQ(text(7 * kPage + 1, 8), std::string("fghijkl") + '\0');
}

TEST_F(DevxKeys, a_key_of_shared_pages_opens_them) {
    const auto umem = share(6 * kPage, 2 * kPage);
    ASSERT_NE(umem, nullptr);
    PrmCommand made = command(mkey::kPages, 2 * kPage, 0);
    made.set(0, mkey::kUmem, umem->umem_id);
    const auto object = create(made);
    ASSERT_NE(object, nullptr) << "status " << status();
    write(0, "abcdefgh");
    ASSERT_EQ(access(IBV_WR_RDMA_WRITE, key(), kPage - 4, 8), IBV_WC_SUCCESS);
    EXPECT_EQ(text(7 * kPage - 4, 8), "abcdefgh");
}

TEST_F(DevxKeys, a_key_that_was_destroyed_opens_nothing) {
    PrmCommand made = of_pages();
    auto object = create(made);
    ASSERT_NE(object, nullptr);
    object.reset();
    EXPECT_EQ(access(IBV_WR_RDMA_WRITE, key(), 0, 8), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(DevxKeys, a_key_that_cannot_be_is_refused_with_a_status) {
    const auto status_of = [this](const auto& change) {
        PrmCommand made = of_pages();
        change(made);
        EXPECT_EQ(create(made), nullptr);
        EXPECT_EQ(errno, EREMOTEIO);
        return status();
    };
    const unsigned key_at = prm::kMkeyOfCreate;
    const auto of = [&](prm::Field field, std::uint64_t value) {
        return status_of([&](PrmCommand& c) { c.set(key_at, field, value); });
    };
    EXPECT_EQ(of(mkey::kIsFree, 1), prm::kBadParameter) << "for work requests that change it";
    EXPECT_EQ(of(mkey::kModeLow, 0), prm::kBadParameter) << "physical addresses";
    EXPECT_EQ(of(mkey::kModeHigh, 1), prm::kBadParameter) << "memory of the device";
    EXPECT_EQ(of(mkey::kQpn, qa->qp_num), prm::kBadParameter);
    EXPECT_EQ(of(mkey::kPd, 999), prm::kBadResource);
    EXPECT_EQ(of(mkey::kBytes, 3 * kPage + 1), prm::kBadParameter) << "more than its pieces";
    EXPECT_EQ(of(mkey::kStart, kStart + 8), prm::kBadParameter) << "firmware counts so";
    EXPECT_EQ(of(mkey::kUnits, 2), prm::kBadParameter);
    EXPECT_EQ(status_of([](PrmCommand& c) { c.set(0, mkey::kIndex, 77); }), prm::kBadParameter);
    EXPECT_EQ(status_of([](PrmCommand& c) { c.bytes().resize(0x110 + 2 * 16); }),
              prm::kBadInputLength);
    PrmCommand of_nothing = command(mkey::kPages, kPage, 0);
    of_nothing.set(0, mkey::kUmem, 999);
    EXPECT_EQ(create(of_nothing), nullptr);
    EXPECT_EQ(status(), prm::kBadResource);
    PrmCommand cut(prm::kCreateMkey, 0x40);
    EXPECT_EQ(create(cut), nullptr);
    EXPECT_EQ(errno, EINVAL) << "the kernel looks at it, too";
}

}  // namespace
}  // namespace tagwire::vhca::driver::test
