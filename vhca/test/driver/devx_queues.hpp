// SPDX-License-Identifier: BSD-3-Clause
// Queues that a program makes by commands of the device, through the genuine libmlx5.
#pragma once

#include <atomic>
#include <functional>

#include "vhca/test/driver/devx_program.hpp"

namespace tagwire::vhca::driver::test {

class DevxObjects : public DevxProgram {
  protected:
    void SetUp() override {
        DevxProgram::SetUp();
        uar.reset(mlx5dv_devx_alloc_uar(context.get(), MLX5DV_UAR_ALLOC_TYPE_NC));
        ASSERT_NE(uar, nullptr);
        queues = share(0, 8 * kPage);
        ASSERT_NE(queues, nullptr);
    }
    void TearDown() override {
        queue = nullptr;
        completions = nullptr;
        queues = nullptr;
        uar = nullptr;
    }
    /// In page `page`; its record is at the end of the page.
    void make_completions(std::size_t page, unsigned log_entries) {
        namespace field = prm::cq;
        PrmCommand made(prm::kCreateCq, 0x110);
        made.set(prm::kCqOfCreate, field::kLogEntries, log_entries)
            .set(prm::kCqOfCreate, field::kUarPage, uar->page_id)
            .set(prm::kCqOfCreate, field::kRecordUmem, queues->umem_id)
            .set(prm::kCqOfCreate, field::kRecordOffset, (page + 1) * kPage - 64)
            .set(0, field::kUmem, queues->umem_id)
            .set(0, field::kUmemOffset, page * kPage);
        for (std::size_t i = 1; i <= std::size_t{1} << log_entries; ++i)
            memory.get()[page * kPage + i * 64 - 1] = std::byte{MLX5_CQE_INVALID << 4};
        completions_record =
            reinterpret_cast<std::uint32_t*>(memory.get() + (page + 1) * kPage - 64);
        completions = create(made);
        ASSERT_NE(completions, nullptr) << "status " << status();
        cqn = number();
    }
    /// RC, with receives of its own: 16 of one piece, and 16 blocks to send behind them.
    void make_queue(std::size_t page) {
        namespace field = prm::qp;
        PrmCommand made(prm::kCreateQp, 0x110);
        made.set(prm::kQpContext, field::kService, field::kServiceRc)
            .set(prm::kQpContext, field::kPd, pdn())
            .set(prm::kQpContext, field::kLogReceives, 4)
            .set(prm::kQpContext, field::kLogSends, 4)
            .set(prm::kQpContext, field::kUarPage, uar->page_id)
            .set(prm::kQpContext, field::kSendCq, cqn)
            .set(prm::kQpContext, field::kReceiveCq, cqn)
            .set(prm::kQpContext, field::kRecordUmem, queues->umem_id)
            .set(prm::kQpContext, field::kRecordOffset, (page + 1) * kPage - 64)
            .set(prm::kQpContext, field::kUserIndex, 0x77)
            .set(0, field::kUmem, queues->umem_id)
            .set(0, field::kUmemOffset, page * kPage);
        receives = memory.get() + page * kPage;
        record = reinterpret_cast<std::uint32_t*>(memory.get() + (page + 1) * kPage - 64);
        queue = create(made);
        ASSERT_NE(queue, nullptr) << "status " << status();
        qpn = number();
    }
    void modify(prm::Opcode opcode, const std::function<void(PrmCommand&)>& fill) {
        PrmCommand command(opcode, 0x110);
        command.set(0, prm::kNumber, qpn);
        fill(command);
        reply = {};
        ASSERT_EQ(mlx5dv_devx_obj_modify(queue.get(), command.data(), command.size(), reply.data(),
                                         reply.size()),
                  0)
            << "status " << status();
    }
    /// To RTR, from that peer.
    void receive_from(std::uint32_t peer) {
        constexpr unsigned kPath = prm::kQpContext + prm::kPath;
        modify(prm::kRst2Init, [](PrmCommand& c) {
            c.set(kPath, prm::path::kPort, 1).set(prm::kQpContext, prm::qp::kMayWrite, 1);
        });
        modify(prm::kInit2Rtr, [&](PrmCommand& c) {
            c.set(kPath, prm::path::kPort, 1)
                .set(kPath, prm::path::kLid, port.lid)
                .set(prm::kQpContext, prm::qp::kMtu, IBV_MTU_1024)
                .set(prm::kQpContext, prm::qp::kRemoteQpn, peer)
                .set(prm::kQpContext, prm::qp::kRnrTimer, 1);
        });
    }
    void post_receives(unsigned count) {
        const mlx5_wqe_data_seg piece{htobe32(64), htobe32(mr->lkey), htobe64(address(9 * kPage))};
        for (unsigned i = 0; i != count; ++i)
            std::memcpy(receives + (posted++ & 15) * sizeof piece, &piece, sizeof piece);
        std::atomic_ref(*record).store(htobe32(posted), std::memory_order_release);
    }
    [[nodiscard]] ibv_wc_status send(ibv_qp& qp, std::uint32_t bytes) {
        ibv_sge sge{address(10 * kPage), bytes, mr->lkey};
        ibv_send_wr wr{}, *bad = nullptr;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SOLICITED;
        EXPECT_EQ(ibv_post_send(&qp, &wr, &bad), 0);
        return wait().status;
    }
    [[nodiscard]] PrmCommand query() const {
        PrmCommand command(prm::kQueryQp, 0x10);
        command.set(0, prm::kNumber, qpn);
        return command;
    }

    Owned<mlx5dv_devx_uar> uar;
    Owned<mlx5dv_devx_umem> queues;
    Owned<mlx5dv_devx_obj> completions, queue;
    std::uint32_t cqn = 0, qpn = 0, posted = 0;
    std::uint32_t *completions_record = nullptr, *record = nullptr;
    std::byte* receives = nullptr;
};

}  // namespace tagwire::vhca::driver::test
