// SPDX-License-Identifier: BSD-3-Clause
// Short data come within the completion, and the genuine libmlx5 puts them where they belong when
// the program polls.
#include "vhca/test/driver/devx_queues.hpp"

namespace tagwire::vhca::driver::test {

class VhcaShortData : public DevxProgram {
  protected:
    static constexpr std::size_t kTarget = 4 * kPage, kSource = 6 * kPage;

    void make_pair(std::uint16_t entry_bytes, bool signals_all = true) {
        ibv_cq_init_attr_ex attr{};
        attr.cqe = 16;
        attr.wc_flags = IBV_WC_STANDARD_FLAGS;
        mlx5dv_cq_init_attr more{};
        more.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
        more.cqe_size = entry_bytes;
        const auto make_cq = [&] {
            return Owned<ibv_cq>(ibv_cq_ex_to_cq(mlx5dv_create_cq(context.get(), &attr, &more)));
        };
        cq = make_cq();
        received = make_cq();
        ASSERT_NE(cq, nullptr);
        ASSERT_NE(received, nullptr);
        ibv_qp_init_attr init{};
        init.send_cq = cq.get();
        init.recv_cq = received.get();
        init.qp_type = IBV_QPT_RC;
        init.sq_sig_all = signals_all ? 1 : 0;
        init.cap = {16, 16, 2, 2, 0};
        a.reset(ibv_create_qp(pd.get(), &init));
        b.reset(ibv_create_qp(pd.get(), &init));
        ASSERT_NE(a, nullptr);
        ASSERT_NE(b, nullptr);
        connect(*a, b->qp_num);
        connect(*b, a->qp_num);
    }
    void TearDown() override {
        a = nullptr;
        b = nullptr;
        received = nullptr;
    }
    [[nodiscard]] ibv_sge piece(std::size_t offset, std::size_t bytes) const {
        return {address(offset), static_cast<std::uint32_t>(bytes), mr->lkey};
    }
    void post(ibv_wr_opcode opcode, std::size_t offset, std::size_t bytes) {
        ibv_sge sge = piece(offset, bytes);
        ibv_send_wr wr{}, *bad = nullptr;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = opcode;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.rdma = {address(kSource), mr->rkey};
        if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
            wr.wr.atomic = {address(kSource), 1, 0, mr->rkey};
        ASSERT_EQ(ibv_post_send(a.get(), &wr, &bad), 0);
    }
    /// Returns what the buffer has before the receive is polled, and after.
    std::pair<std::string, std::string> receive(const std::string& message) {
        std::memset(memory.get() + kTarget, '.', kPage);
        write(kSource, message);
        std::array<ibv_sge, 2> pieces{piece(kTarget, 5), piece(kTarget + 5, 200)};
        ibv_recv_wr wr{}, *bad = nullptr;
        wr.sg_list = pieces.data();
        wr.num_sge = 2;
        EXPECT_EQ(ibv_post_recv(b.get(), &wr, &bad), 0);
        post(IBV_WR_SEND, kSource, message.size());
        EXPECT_EQ(wait().status, IBV_WC_SUCCESS);
        std::string before = text(kTarget, message.size());
        cq.swap(received);
        const ibv_wc wc = wait();
        cq.swap(received);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.byte_len, message.size());
        EXPECT_EQ(text(kTarget + message.size(), 1), ".");
        return {before, text(kTarget, message.size())};
    }
    void expect_within(std::size_t most) {
        for (const std::size_t bytes : {std::size_t{1}, std::size_t{8}, most}) {
            const std::string message(bytes, 'm');
            const auto [before, after] = receive(message);
            EXPECT_EQ(before, std::string(bytes, '.')) << bytes;
            EXPECT_EQ(after, message);
        }
        const std::string longer(most + 1, 'l');
        const auto [before, after] = receive(longer);
        EXPECT_EQ(before, longer);
        EXPECT_EQ(after, longer);
    }

    Owned<ibv_cq> received;
    Owned<ibv_qp> a, b;
};

TEST_F(VhcaShortData, of_32_bytes_are_within_an_entry_of_64) {
    make_pair(64);
    expect_within(32);
}

TEST_F(VhcaShortData, of_64_bytes_are_within_an_entry_of_128) {
    make_pair(128);
    expect_within(64);
}

TEST_F(VhcaShortData, that_were_read_are_there_when_the_request_is_polled) {
    make_pair(64);
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{32}, std::size_t{33}}) {
        std::memset(memory.get() + kTarget, '.', kPage);
        write(kSource, std::string(bytes, 'r'));
        post(IBV_WR_RDMA_READ, kTarget, bytes);
        ::poll(nullptr, 0, 20);
        if (bytes <= 32) {
            EXPECT_EQ(text(kTarget, bytes), std::string(bytes, '.'));
        }
        EXPECT_EQ(wait().status, IBV_WC_SUCCESS);
        EXPECT_EQ(text(kTarget, bytes + 1), std::string(bytes, 'r') + '.');
    }
    const std::uint64_t value = 41;
    std::memcpy(memory.get() + kSource, &value, sizeof value);
    post(IBV_WR_ATOMIC_FETCH_AND_ADD, kTarget, sizeof value);
    EXPECT_EQ(wait().status, IBV_WC_SUCCESS);
    std::array<std::uint64_t, 2> seen{};
    std::memcpy(&seen[0], memory.get() + kTarget, sizeof value);
    std::memcpy(&seen[1], memory.get() + kSource, sizeof value);
    EXPECT_EQ(seen, (std::array<std::uint64_t, 2>{41, 42}));
}

// Up to version 63 libmlx5 takes these from one byte before the entry, so the entry is looked at.
TEST_F(VhcaShortData, that_were_read_are_in_the_first_half_of_an_entry_of_128) {
    make_pair(128);
    const std::string message(64, 'r');
    write(kSource, message);
    post(IBV_WR_RDMA_READ, kTarget, message.size());
    EXPECT_EQ(wait().status, IBV_WC_SUCCESS);
    mlx5dv_cq ring{};
    mlx5dv_obj object{};
    object.cq = {cq.get(), &ring};
    ASSERT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ), 0);
    ASSERT_EQ(ring.cqe_size, 128U);
    EXPECT_EQ(std::string(static_cast<const char*>(ring.buf), message.size()), message);
}

// Nobody would look into the entry of a request that makes none.
TEST_F(VhcaShortData, that_were_read_go_to_the_buffer_where_not_all_requests_are_signaled) {
    make_pair(64, false);
    write(kSource, "readable");
    post(IBV_WR_RDMA_READ, kTarget, 8);
    for (int tries = 0; tries != 20000 && text(kTarget, 8) != "readable"; ++tries)
        ::poll(nullptr, 0, 1);
    EXPECT_EQ(text(kTarget, 8), "readable");
    EXPECT_EQ(wait().status, IBV_WC_SUCCESS);
}

}  // namespace tagwire::vhca::driver::test
