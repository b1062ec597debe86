// SPDX-License-Identifier: BSD-3-Clause
// A context, and the parts of which objects in it are made.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <ctime>

#include "commander.hpp"

namespace tagwire::vhca::driver::test {

inline constexpr std::uint32_t kUnknown = 12345;
inline constexpr std::uint64_t kNowhere = 0x1000;  // below what may be mapped

class VhcaUverbs : public ::testing::Test {
  protected:
    void SetUp() override {
        context_ = open_context(0);
        ASSERT_NE(context_, nullptr) << std::strerror(errno);
        commander_ = std::make_unique<Commander>(*context_);
    }
    void TearDown() override {
        context_.reset();
        if (commander_->async_fd >= 0)
            close(commander_->async_fd);
    }
    Commander& use() {
        EXPECT_EQ(commander_->open(), 0);
        return *commander_;
    }

    std::unique_ptr<Context> context_;
    std::unique_ptr<Commander> commander_;
};

/// All that a queue pair needs: rings of 16 entries in one piece of memory.
class Parts {
    static constexpr std::size_t kPageBytes = 256 * 1024, kRecordBytes = 4096;

  public:
    explicit Parts(Commander& commander_)
        : commander(commander_), pages(kPageBytes), records(kRecordBytes) {
        pd = commander.make_pd();
        cq = make_cq(15);
    }
    [[nodiscard]] mlx5_ib_create_cq cq_ring() {
        return {.buf_addr = take(64 * 128),
                .db_addr = take_record(),
                .cqe_size = 64,
                .cqe_comp_en = 0,
                .cqe_comp_res_format = 0,
                .flags = 0,
                .uar_page_index = 0,
                .reserved0 = 0,
                .reserved1 = 0};
    }
    [[nodiscard]] static ib_uverbs_create_cq cq_request(std::uint32_t cqe) {
        return {.response = 0,
                .user_handle = 0xc0,
                .cqe = cqe,
                .comp_vector = 0,
                .comp_channel = -1,
                .reserved = 0};
    }
    std::uint32_t make_cq(std::uint32_t cqe) {
        return commander.make_cq(cq_request(cqe), cq_ring());
    }
    [[nodiscard]] ib_uverbs_create_xsrq srq_request() const {
        ib_uverbs_create_xsrq request{};
        request.user_handle = 0x5a;
        request.pd_handle = pd;
        request.max_wr = 15;
        request.max_sge = 3;
        return request;
    }
    [[nodiscard]] mlx5_ib_create_srq srq_ring() {
        mlx5_ib_create_srq ring{};
        ring.buf_addr = take(16 * 64);
        ring.db_addr = take_record();
        ring.uidx = 7;
        return ring;
    }
    [[nodiscard]] ib_uverbs_create_qp qp_request(ibv_qp_type type) const {
        ib_uverbs_create_qp request{};
        request.user_handle = 0x99;
        request.pd_handle = pd;
        request.send_cq_handle = request.recv_cq_handle = cq;
        request.max_send_wr = request.max_recv_wr = 16;
        request.max_send_sge = request.max_recv_sge = 1;
        request.qp_type = static_cast<std::uint8_t>(type);
        return request;
    }
    [[nodiscard]] mlx5_ib_create_qp qp_rings() {
        mlx5_ib_create_qp rings{};
        rings.buf_addr = take(16 * 16 + 16 * 64);
        rings.db_addr = take_record();
        rings.sq_wqe_count = rings.rq_wqe_count = 16;
        rings.rq_wqe_shift = 4;
        rings.uidx = 3;
        return rings;
    }
    [[nodiscard]] ib_uverbs_create_qp dc_request() const {
        ib_uverbs_create_qp request = qp_request(IBV_QPT_DRIVER);
        request.max_recv_wr = request.max_recv_sge = 0;
        return request;
    }
    std::uint64_t take(std::size_t bytes) {
        const std::uint64_t address = pages.address() + used_;
        used_ += (bytes + 63) / 64 * 64;
        EXPECT_LE(used_, kPageBytes);
        return address;
    }
    std::uint64_t take_record() {
        const std::uint64_t address = records.address() + records_used_;
        records_used_ += 64;
        EXPECT_LE(records_used_, kRecordBytes);
        return address;
    }

    Commander& commander;
    RingPages pages, records;
    std::uint32_t pd = 0, cq = 0;

  private:
    std::size_t used_ = 0, records_used_ = 0;
};

inline ib_uverbs_modify_qp modify_request(std::uint32_t qp, std::uint32_t mask,
                                          ibv_qp_state state) {
    ib_uverbs_modify_qp request{};
    request.qp_handle = qp;
    request.attr_mask = mask | IBV_QP_STATE;
    request.qp_state = static_cast<std::uint8_t>(state);
    request.port_num = 1;
    request.dest.port_num = 1;
    request.path_mtu = IBV_MTU_1024;
    request.dest.dlid = 1;
    return request;
}

inline constexpr std::uint32_t kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
inline constexpr std::uint32_t kRtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                      IBV_QP_MIN_RNR_TIMER;
inline constexpr std::uint32_t kRts =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

inline int modify(Commander& commander, std::uint32_t qp, std::uint32_t mask, ibv_qp_state state) {
    return commander.plain(IB_USER_VERBS_CMD_MODIFY_QP, modify_request(qp, mask, state));
}

template <typename Condition>
bool comes_true(const Condition& condition) {
    timespec start{}, now{};
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        if (condition())
            return true;
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec < 10);
    return false;
}

inline bool can_read(int fd) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
    ib_uverbs_async_event_desc event{};
    return read(fd, &event, sizeof event) == sizeof event;
}

}  // namespace tagwire::vhca::driver::test
