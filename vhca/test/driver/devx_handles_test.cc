// SPDX-License-Identifier: BSD-3-Clause
// Objects of DEVX have no handles for commands of verbs, and their pages stay as long as they do.
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include <cerrno>

#include "vhca/test/driver/devx_queues.hpp"

namespace tagwire::vhca::driver::test {
namespace {

class DevxHandles : public DevxObjects {
  protected:
    template <typename Request>
    int command(std::uint32_t number, Request request) {
        std::array<std::uint64_t, 32> answer{};
        if constexpr (requires { request.response; })
            request.response = reinterpret_cast<std::uint64_t>(answer.data());
        const ib_uverbs_cmd_hdr header{.command = number,
                                       .in_words = (sizeof header + sizeof request) / 4,
                                       .out_words = sizeof answer / 4};
        std::array<std::byte, sizeof header + sizeof request> written;
        std::memcpy(written.data(), &header, sizeof header);
        std::memcpy(written.data() + sizeof header, &request, sizeof request);
        const ssize_t done = ::write(context->cmd_fd, written.data(), written.size());
        return done == static_cast<ssize_t>(written.size()) ? 0 : errno;
    }
    int destroy_cq(std::uint32_t handle) {
        ib_uverbs_destroy_cq request{};
        request.cq_handle = handle;
        return command(IB_USER_VERBS_CMD_DESTROY_CQ, request);
    }
    int destroy_qp(std::uint32_t handle) {
        ib_uverbs_destroy_qp request{};
        request.qp_handle = handle;
        return command(IB_USER_VERBS_CMD_DESTROY_QP, request);
    }
    int query_qp(std::uint32_t handle) {
        ib_uverbs_query_qp request{};
        request.qp_handle = handle;
        return command(IB_USER_VERBS_CMD_QUERY_QP, request);
    }
    static constexpr std::uint32_t kHandlesMax = 16;
};

TEST_F(DevxHandles, commands_of_verbs_do_not_reach_objects_of_devx) {
    make_completions(0, 5);
    make_queue(1);
    for (std::uint32_t handle = 0; handle < kHandlesMax; ++handle) {
        if (handle != cq->handle) {
            EXPECT_EQ(destroy_cq(handle), ENOENT) << handle;
        }
        EXPECT_EQ(query_qp(handle), EINVAL) << handle;
        EXPECT_EQ(destroy_qp(handle), ENOENT) << handle;
    }
    const auto flags = mlx5dv_devx_create_event_channel_flags{};
    const Owned<mlx5dv_devx_event_channel> channel(
        mlx5dv_devx_create_event_channel(context.get(), flags));
    ASSERT_NE(channel, nullptr);
    std::uint16_t completion = 0;
    EXPECT_EQ(mlx5dv_devx_subscribe_devx_event(channel.get(), completions.get(), sizeof completion,
                                               &completion, 7),
              0);
}

TEST_F(DevxHandles, pages_that_something_was_made_in_stay) {
    make_completions(0, 5);
    make_queue(1);
    EXPECT_EQ(mlx5dv_devx_umem_dereg(queues.get()), EBUSY);
    queue = nullptr;
    EXPECT_EQ(mlx5dv_devx_umem_dereg(queues.get()), EBUSY);
    completions = nullptr;
    EXPECT_EQ(mlx5dv_devx_umem_dereg(queues.release()), 0);
}

}  // namespace
}  // namespace tagwire::vhca::driver::test
