// SPDX-License-Identifier: BSD-3-Clause
// A program of the genuine libmlx5 that uses DEVX: its device, two connected queue pairs of verbs
// in it, and commands of the device. Starts with the driver face preloaded.
#pragma once

#include <infiniband/mlx5dv.h>
#include <poll.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "vhca/driver/prm.hpp"

namespace tagwire::vhca::driver::test {

/// A command in the making.
class PrmCommand {
  public:
    PrmCommand(prm::Opcode opcode, std::size_t bytes) : bytes_(bytes) {
        set(0, prm::kOpcode, opcode);
    }
    PrmCommand& set(unsigned base, prm::Field field, std::uint64_t value) {
        prm::set(bytes_, field.in(base), value);
        return *this;
    }
    [[nodiscard]] const void* data() const { return bytes_.data(); }
    [[nodiscard]] std::size_t size() const { return bytes_.size(); }
    std::vector<std::byte>& bytes() { return bytes_; }

  private:
    std::vector<std::byte> bytes_;
};

using PrmReply = std::array<std::byte, 1024>;

struct DestroysDevx {
    void operator()(mlx5dv_devx_obj* object) const {
        EXPECT_EQ(mlx5dv_devx_obj_destroy(object), 0);
    }
    void operator()(mlx5dv_devx_umem* umem) const { EXPECT_EQ(mlx5dv_devx_umem_dereg(umem), 0); }
    void operator()(mlx5dv_devx_uar* uar) const { mlx5dv_devx_free_uar(uar); }
    void operator()(mlx5dv_devx_event_channel* c) const { mlx5dv_devx_destroy_event_channel(c); }
    void operator()(mlx5dv_devx_cmd_comp* comp) const { mlx5dv_devx_destroy_cmd_comp(comp); }
    void operator()(ibv_mr* mr) const { EXPECT_EQ(ibv_dereg_mr(mr), 0); }
    void operator()(ibv_cq* cq) const { EXPECT_EQ(ibv_destroy_cq(cq), 0); }
    void operator()(ibv_qp* qp) const { EXPECT_EQ(ibv_destroy_qp(qp), 0); }
    void operator()(ibv_srq* srq) const { EXPECT_EQ(ibv_destroy_srq(srq), 0); }
    void operator()(ibv_pd* pd) const { EXPECT_EQ(ibv_dealloc_pd(pd), 0); }
    void operator()(ibv_context* context) const { EXPECT_EQ(ibv_close_device(context), 0); }
};
template <typename T>
using Owned = std::unique_ptr<T, DestroysDevx>;

class DevxProgram : public testing::Test {
  protected:
    static constexpr std::size_t kPage = 4096, kMemoryBytes = 16 * kPage;
    static constexpr int kAllRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

    void SetUp() override {
        int count = 0;
        ibv_device** list = ibv_get_device_list(&count);
        ASSERT_GT(count, 0) << "the driver face is not preloaded";
        mlx5dv_context_attr attr{};
        attr.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
        context.reset(mlx5dv_open_device(list[0], &attr));
        ibv_free_device_list(list);
        ASSERT_NE(context, nullptr);
        pd.reset(ibv_alloc_pd(context.get()));
        ASSERT_NE(pd, nullptr);
        cq.reset(ibv_create_cq(context.get(), 64, nullptr, nullptr, 0));
        ASSERT_NE(cq, nullptr);
        memory.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, kMemoryBytes)));
        std::memset(memory.get(), 0, kMemoryBytes);
        mr.reset(ibv_reg_mr(pd.get(), memory.get(), kMemoryBytes, kAllRights));
        ASSERT_NE(mr, nullptr);
        ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
    }

    [[nodiscard]] std::uint32_t pdn() const {
        mlx5dv_pd out{};
        mlx5dv_obj object{};
        object.pd = {pd.get(), &out};
        EXPECT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_PD), 0);
        return out.pdn;
    }
    [[nodiscard]] std::uint64_t address(std::size_t offset) const {
        return reinterpret_cast<std::uint64_t>(memory.get()) + offset;
    }
    [[nodiscard]] std::string text(std::size_t offset, std::size_t bytes) const {
        return {reinterpret_cast<const char*>(memory.get()) + offset, bytes};
    }
    void write(std::size_t offset, const std::string& text) {
        std::memcpy(memory.get() + offset, text.data(), text.size());
    }

    /// nullptr: refused, and the reply says why.
    Owned<mlx5dv_devx_obj> create(PrmCommand& command) {
        reply = {};
        return Owned<mlx5dv_devx_obj>(mlx5dv_devx_obj_create(
            context.get(), command.data(), command.size(), reply.data(), reply.size()));
    }
    [[nodiscard]] unsigned status() const {
        return static_cast<unsigned>(prm::get(reply, prm::kStatus));
    }
    [[nodiscard]] std::uint32_t number() const {
        return static_cast<std::uint32_t>(prm::get(reply, prm::kNumber));
    }
    Owned<mlx5dv_devx_umem> share(std::size_t offset, std::size_t bytes) {
        return Owned<mlx5dv_devx_umem>(mlx5dv_devx_umem_reg(context.get(), memory.get() + offset,
                                                            bytes, IBV_ACCESS_LOCAL_WRITE));
    }

    [[nodiscard]] Owned<ibv_qp> make_qp(ibv_srq* srq = nullptr) {
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq.get();
        init.srq = srq;
        init.qp_type = IBV_QPT_RC;
        init.sq_sig_all = 1;
        init.cap = {16, 16, 1, 1, 0};
        return Owned<ibv_qp>(ibv_create_qp(pd.get(), &init));
    }
    void connect(ibv_qp& qp, std::uint32_t remote) const {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        attr.qp_access_flags = kAllRights;
        ASSERT_EQ(
            ibv_modify_qp(&qp, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            0);
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_1024;
        attr.dest_qp_num = remote;
        attr.max_dest_rd_atomic = 1;
        attr.min_rnr_timer = 1;
        attr.ah_attr.dlid = port.lid;
        attr.ah_attr.port_num = 1;
        ASSERT_EQ(
            ibv_modify_qp(&qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            0);
        attr.qp_state = IBV_QPS_RTS;
        attr.timeout = 14;
        attr.retry_cnt = attr.rnr_retry = 7;
        attr.max_rd_atomic = 1;
        ASSERT_EQ(ibv_modify_qp(&qp, &attr,
                                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                  0);
    }
    /// The next completion.
    [[nodiscard]] ibv_wc wait() const {
        ibv_wc wc{};
        for (int tries = 0; tries != 20000; ++tries) {
            if (ibv_poll_cq(cq.get(), 1, &wc) == 1)
                return wc;
            ::poll(nullptr, 0, 1);
        }
        ADD_FAILURE() << "no completion";
        wc.status = IBV_WC_GENERAL_ERR;
        return wc;
    }

    struct Frees {
        void operator()(std::byte* at) const { std::free(at); }
    };
    std::unique_ptr<std::byte, Frees> memory;
    Owned<ibv_context> context;
    Owned<ibv_pd> pd;
    Owned<ibv_cq> cq;
    Owned<ibv_mr> mr;
    ibv_port_attr port{};
    PrmReply reply{};
};

}  // namespace tagwire::vhca::driver::test
