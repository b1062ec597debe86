// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs that commands of the device make, and queries about them, also those that a
// descriptor answers, through the genuine libmlx5.
#include <fcntl.h>

#include <cerrno>

#include "vhca/test/driver/devx_queues.hpp"

namespace tagwire::vhca::driver::test {
namespace {

TEST_F(DevxObjects, a_queue_pair_with_receives_of_its_own_takes_messages) {
    make_completions(0, 5);
    make_queue(1);
    const auto peer = make_qp();
    connect(*peer, qpn);
    receive_from(peer->qp_num);
    post_receives(2);
    for (const char* word : {"first", "other"}) {
        write(10 * kPage, word);
        EXPECT_EQ(send(*peer, 5), IBV_WC_SUCCESS);
        EXPECT_EQ(text(9 * kPage, 5), word);
    }
    const auto& cqe = *reinterpret_cast<const mlx5_cqe64*>(memory.get() + sizeof(mlx5_cqe64));
    EXPECT_EQ(mlx5dv_get_cqe_opcode(const_cast<mlx5_cqe64*>(&cqe)), MLX5_CQE_RESP_SEND);
    EXPECT_EQ(be32toh(cqe.srqn_uidx), 0x77U);
    EXPECT_EQ(be16toh(cqe.wqe_counter), 1U);
    EXPECT_EQ(be32toh(cqe.byte_cnt), 5U);
}

TEST_F(DevxObjects, a_query_may_be_answered_by_a_descriptor) {
    make_completions(0, 5);
    make_queue(1);
    const Owned<mlx5dv_devx_cmd_comp> comp(mlx5dv_devx_create_cmd_comp(context.get()));
    ASSERT_NE(comp, nullptr);
    constexpr std::size_t kReplyBytes = 0x110, kHeadBytes = sizeof(std::uint64_t);
    std::array<std::byte, kHeadBytes + kReplyBytes> answer{};
    auto* head = reinterpret_cast<mlx5dv_devx_async_cmd_hdr*>(answer.data());
    ::fcntl(comp->fd, F_SETFL, O_NONBLOCK);
    EXPECT_EQ(mlx5dv_devx_get_async_cmd_comp(comp.get(), head, answer.size()), EAGAIN);
    const PrmCommand command = query();
    for (const std::uint64_t name : {std::uint64_t{0x1122334455}, std::uint64_t{7}}) {
        ASSERT_EQ(mlx5dv_devx_obj_query_async(queue.get(), command.data(), command.size(),
                                              kReplyBytes, name, comp.get()),
                  0);
    }
    for (const std::uint64_t name : {std::uint64_t{0x1122334455}, std::uint64_t{7}}) {
        ASSERT_EQ(mlx5dv_devx_get_async_cmd_comp(comp.get(), head, answer.size()), 0);
        EXPECT_EQ(head->wr_id, name);
        EXPECT_EQ(prm::get(std::span(answer).subspan(kHeadBytes), prm::kStatus), prm::kOk);
        EXPECT_EQ(prm::get(std::span(answer).subspan(kHeadBytes),
                           prm::qp::kUserIndex.in(prm::kQpContext)),
                  0x77U);
    }
    EXPECT_EQ(mlx5dv_devx_get_async_cmd_comp(comp.get(), head, answer.size()), EAGAIN);
}

TEST_F(DevxObjects, queries_that_nobody_reads_are_refused_in_the_end) {
    make_completions(0, 5);
    make_queue(1);
    const Owned<mlx5dv_devx_cmd_comp> comp(mlx5dv_devx_create_cmd_comp(context.get()));
    ASSERT_NE(comp, nullptr);
    const PrmCommand command = query();
    int error = 0;
    unsigned asked = 0;
    while (error == 0 && asked != 100000) {
        error = mlx5dv_devx_obj_query_async(queue.get(), command.data(), command.size(), 0x110, 1,
                                            comp.get());
        asked += error == 0 ? 1 : 0;
    }
    EXPECT_EQ(error, EAGAIN);
    EXPECT_GT(asked, 16U);
    std::array<std::byte, 0x118> answer{};
    auto* head = reinterpret_cast<mlx5dv_devx_async_cmd_hdr*>(answer.data());
    EXPECT_EQ(mlx5dv_devx_get_async_cmd_comp(comp.get(), head, answer.size()), 0);
    EXPECT_EQ(mlx5dv_devx_obj_query_async(queue.get(), command.data(), command.size(), 0x110, 1,
                                          comp.get()),
              0);
}

TEST_F(DevxObjects, a_query_needs_a_descriptor_of_its_kind_and_its_own_object) {
    make_completions(0, 5);
    make_queue(1);
    const Owned<mlx5dv_devx_cmd_comp> comp(mlx5dv_devx_create_cmd_comp(context.get()));
    ASSERT_NE(comp, nullptr);
    const auto ask = [&](const PrmCommand& command, std::size_t bytes, int fd) {
        mlx5dv_devx_cmd_comp named{.fd = fd};
        return mlx5dv_devx_obj_query_async(queue.get(), command.data(), command.size(), bytes, 1,
                                           &named);
    };
    EXPECT_EQ(ask(query(), 0x110, context->cmd_fd), EBADF);
    EXPECT_EQ(ask(query(), 8, comp->fd), EINVAL);
    PrmCommand other = query();
    other.set(0, prm::kNumber, qpn + 1);
    EXPECT_EQ(ask(other, 0x110, comp->fd), EINVAL);
    PrmCommand change(prm::kTo2Err, 0x110);
    change.set(0, prm::kNumber, qpn);
    EXPECT_EQ(ask(change, 0x110, comp->fd), EINVAL) << "no query";
}

}  // namespace
}  // namespace tagwire::vhca::driver::test
