// SPDX-License-Identifier: BSD-3-Clause
// The commands of the driver face: what they answer, and what they refuse with which errno.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <ctime>

#include "commander.hpp"
#include "vhca/driver/poller.hpp"
#include "vhca/setup/describe.hpp"

namespace tagwire::vhca::driver::test {
namespace {

constexpr std::uint32_t kUnknown = 12345;
constexpr std::uint64_t kNowhere = 0x1000;  // below what may be mapped

class VhcaUverbs : public ::testing::Test {
  protected:
    void SetUp() override {
        context_ = open_context(0);
        ASSERT_NE(context_, nullptr) << std::strerror(errno);
        commander_ = std::make_unique<Commander>(*context_);
    }
    void TearDown() override {
        context_.reset();
        if (commander_->async_fd >= 0) {
            close(commander_->async_fd);
        }
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
  public:
    explicit Parts(Commander& commander_) : commander(commander_), pages(64 * 1024), records(4096) {
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
        return address;
    }
    std::uint64_t take_record() {
        const std::uint64_t address = records.address() + records_used_;
        records_used_ += 64;
        return address;
    }

    Commander& commander;
    RingPages pages, records;
    std::uint32_t pd = 0, cq = 0;

  private:
    std::size_t used_ = 0, records_used_ = 0;
};

ib_uverbs_modify_qp modify_request(std::uint32_t qp, std::uint32_t mask, ibv_qp_state state) {
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

constexpr std::uint32_t kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr std::uint32_t kRtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr std::uint32_t kRts =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

int modify(Commander& commander, std::uint32_t qp, std::uint32_t mask, ibv_qp_state state) {
    return commander.plain(IB_USER_VERBS_CMD_MODIFY_QP, modify_request(qp, mask, state));
}

template <typename Condition>
bool comes_true(const Condition& condition) {
    timespec start{}, now{};
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        if (condition()) {
            return true;
        }
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec < 10);
    return false;
}

bool can_read(int fd) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
    ib_uverbs_async_event_desc event{};
    return read(fd, &event, sizeof event) == sizeof event;
}

// ---- The frame of commands ---------------------------------------------------------------------

TEST_F(VhcaUverbs, commands_that_are_none_are_refused) {
    Commander& commander = use();
    const std::array<std::byte, 4> half{};
    EXPECT_EQ(commander.write(half), EINVAL);
    EXPECT_EQ(context_->write(reinterpret_cast<void*>(kNowhere), 16), -1);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(commander.plain(1 << 8, ib_uverbs_query_device{}), EINVAL);
    EXPECT_EQ(commander.plain(0xff, ib_uverbs_query_device{}), EOPNOTSUPP);
    EXPECT_EQ(commander.extended(0xff, ib_uverbs_ex_query_device{}), EOPNOTSUPP);
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_ALLOC_MW, ib_uverbs_alloc_mw{}), EOPNOTSUPP);
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_OPEN_XRCD, ib_uverbs_open_xrcd{}), EOPNOTSUPP);
    EXPECT_EQ(context_->ioctl(0, nullptr), -1);
    EXPECT_EQ(errno, ENOTTY);
}

TEST_F(VhcaUverbs, sizes_have_to_be_right) {
    Commander& commander = use();
    // More than it says, and less than it needs, either way.
    struct {
        ib_uverbs_cmd_hdr header{IB_USER_VERBS_CMD_QUERY_DEVICE, 3, 200};
        std::uint64_t response = 0;
    } command;
    const auto bytes = std::as_bytes(std::span(&command, 1));
    EXPECT_EQ(commander.write(bytes), EINVAL);
    command.header.in_words = 4;
    EXPECT_EQ(commander.write(bytes), EFAULT);
    command.header.out_words = 1;
    EXPECT_EQ(commander.write(bytes), ENOSPC);
    command.header = {IB_USER_VERBS_CMD_QUERY_PORT, 4, 200};
    EXPECT_EQ(commander.write(bytes), ENOSPC);
}

TEST_F(VhcaUverbs, extended_sizes_have_to_be_right) {
    Commander& commander = use();
    struct {
        ib_uverbs_cmd_hdr header{
            IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE, 1, 40};
        ib_uverbs_ex_cmd_hdr more{};
        ib_uverbs_ex_query_device request{};
    } command;
    std::array<std::byte, 400> answer{};
    const auto bytes = std::as_bytes(std::span(&command, 1));
    EXPECT_EQ(commander.write(bytes), EINVAL);  // room without an address
    command.more.response = reinterpret_cast<std::uint64_t>(answer.data());
    EXPECT_EQ(commander.write(bytes), 0);
    command.more.provider_in_words = 1;
    EXPECT_EQ(commander.write(bytes), EINVAL);
    command.more.provider_in_words = 0;
    command.more.cmd_hdr_reserved = 1;
    EXPECT_EQ(commander.write(bytes), EINVAL);
    command.more.cmd_hdr_reserved = 0;
    command.header.out_words = 1;
    EXPECT_EQ(commander.write(bytes), ENOSPC);
    command.header.out_words = 0;
    EXPECT_EQ(commander.write(bytes), EINVAL);  // an address without room
    command.more.response = 0;
    EXPECT_EQ(commander.write(bytes), ENOSPC);
    EXPECT_EQ(commander.write(bytes.first(16)), EINVAL);
    command.header.in_words = 0;
    EXPECT_EQ(commander.write(bytes.first(24)), ENOSPC);
}

TEST_F(VhcaUverbs, a_context_is_opened_once_and_first) {
    EXPECT_EQ(commander_->plain(IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd{},
                                static_cast<ib_uverbs_alloc_pd_resp*>(nullptr)),
              EINVAL);
    ASSERT_EQ(commander_->open(), 0);
    const int fd = commander_->async_fd;
    EXPECT_GE(fd, 0);
    EXPECT_EQ(commander_->open(), EINVAL);
    commander_->async_fd = fd;
}

TEST_F(VhcaUverbs, a_context_of_devx_is_refused_and_one_of_old_drivers_is_not) {
    mlx5_ib_alloc_ucontext_req_v2 request{};
    request.total_num_bfregs = 16;
    request.num_low_latency_bfregs = 4;
    ib_uverbs_get_context_resp response{};
    mlx5_ib_alloc_ucontext_resp facts{};
    const auto ask = [&](const auto& driver) {
        return commander_->plain(IB_USER_VERBS_CMD_GET_CONTEXT, ib_uverbs_get_context{}, &response,
                                 driver, &facts);
    };
    request.flags = MLX5_IB_ALLOC_UCTX_DEVX;
    EXPECT_EQ(ask(request), EINVAL);
    request.flags = 2;
    EXPECT_EQ(ask(request), EOPNOTSUPP);
    request.flags = 0;
    request.reserved1 = 1;
    EXPECT_EQ(ask(request), EOPNOTSUPP);
    request.reserved1 = 0;
    request.num_low_latency_bfregs = 16;
    EXPECT_EQ(ask(request), EINVAL);
    request.total_num_bfregs = 1024;
    EXPECT_EQ(ask(request), ENOMEM);
    EXPECT_EQ(ask(std::uint32_t{16}), EINVAL);
    ASSERT_EQ(ask(mlx5_ib_alloc_ucontext_req{16, 4}), 0);
    commander_->async_fd = static_cast<int>(response.async_fd);
    EXPECT_EQ(response.num_comp_vectors, 8U);
    EXPECT_EQ(facts.response_length, sizeof facts);
    EXPECT_EQ(facts.tot_bfregs, 16U);
    EXPECT_EQ(facts.cqe_version, 1);
    EXPECT_EQ(facts.max_send_wqebb, 32768U);
    EXPECT_EQ(facts.max_srq_recv_wr, 32768U);
    EXPECT_EQ(facts.max_rq_desc_sz, 512);
}

TEST_F(VhcaUverbs, there_are_as_many_devices_as_the_options_say) {
    EXPECT_EQ(open_context(5), nullptr);
    EXPECT_EQ(errno, ENODEV);
}

TEST_F(VhcaUverbs, a_child_has_no_commands) {
    Commander& commander = use();
    const pid_t child = fork();
    if (child == 0) {
        const std::uint32_t pd = commander.make_pd();
        _exit(pd == 0 && commander.error == EIO ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_NE(commander.make_pd(), 0U);
}

// ---- The device --------------------------------------------------------------------------------

TEST_F(VhcaUverbs, the_device_tells_what_the_other_face_tells) {
    Commander& commander = use();
    ib_uverbs_query_device_resp plain{};
    ASSERT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_DEVICE, ib_uverbs_query_device{}, &plain), 0);
    ib_uverbs_ex_query_device_resp full{};
    mlx5_ib_query_device_resp driver{};
    ASSERT_EQ(commander.extended(IB_USER_VERBS_EX_CMD_QUERY_DEVICE, ib_uverbs_ex_query_device{},
                                 &full, Nothing{}, &driver),
              0);
    EXPECT_EQ(std::memcmp(&plain, &full.base, sizeof plain), 0);
    EXPECT_EQ(plain.max_sge, 30U);
    EXPECT_EQ(plain.max_qp_wr, 32768U);
    EXPECT_EQ(plain.max_srq_wr, 32767U);
    EXPECT_EQ(plain.phys_port_cnt, 1);
    EXPECT_EQ(full.response_length, sizeof full);
    EXPECT_EQ(full.tm_caps.max_num_tags, 1023U);
    EXPECT_EQ(driver.response_length, sizeof driver);
    EXPECT_EQ(driver.dci_streams_caps.max_log_num_concurent, 6);
}

TEST_F(VhcaUverbs, requests_may_grow_by_zeros_and_answers_are_cut) {
    Commander& commander = use();
    struct {
        ib_uverbs_ex_query_device request{};
        std::uint64_t more = 0;
    } grown;
    struct {
        ib_uverbs_query_device_resp base;
        std::uint32_t comp_mask, response_length;
    } shorter{};
    EXPECT_EQ(commander.extended(IB_USER_VERBS_EX_CMD_QUERY_DEVICE, grown, &shorter), 0);
    EXPECT_EQ(shorter.response_length, sizeof shorter);
    grown.more = 1;
    EXPECT_EQ(commander.extended(IB_USER_VERBS_EX_CMD_QUERY_DEVICE, grown, &shorter), EOPNOTSUPP);
    grown.more = 0;
    grown.request.comp_mask = 1;
    EXPECT_EQ(commander.extended(IB_USER_VERBS_EX_CMD_QUERY_DEVICE, grown, &shorter), EINVAL);
    struct {
        ib_uverbs_ex_query_device_resp facts;
        std::uint64_t behind;
    } longer{.facts = {}, .behind = 9};
    EXPECT_EQ(
        commander.extended(IB_USER_VERBS_EX_CMD_QUERY_DEVICE, ib_uverbs_ex_query_device{}, &longer),
        0);
    EXPECT_EQ(longer.behind, 0U);
}

TEST_F(VhcaUverbs, a_port_is_told_and_others_are_not_there) {
    Commander& commander = use();
    ib_uverbs_query_port request{};
    ib_uverbs_query_port_resp port{};
    request.port_num = 1;
    ASSERT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_PORT, request, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_INFINIBAND);
    EXPECT_EQ(port.lid, context_->engine.lid());
    EXPECT_EQ(port.gid_tbl_len, 8U);
    for (const auto number : std::array<std::uint8_t, 2>{0, 2}) {
        request.port_num = number;
        EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_PORT, request, &port), EINVAL);
    }
}

// ---- Memory and addresses ----------------------------------------------------------------------

TEST_F(VhcaUverbs, a_domain_in_use_stays) {
    Commander& commander = use();
    const std::uint32_t pd = commander.make_pd();
    ASSERT_NE(pd, 0U);
    RingPages memory(4096);
    ib_uverbs_reg_mr request{};
    request.start = request.hca_va = memory.address();
    request.length = 100;
    request.pd_handle = pd;
    ib_uverbs_reg_mr_resp mr{};
    ASSERT_EQ(commander.plain(IB_USER_VERBS_CMD_REG_MR, request, &mr), 0);
    EXPECT_EQ(mr.lkey, mr.rkey);
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{pd}), EBUSY);
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DEREG_MR, ib_uverbs_dereg_mr{mr.mr_handle}), 0);
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DEREG_MR, ib_uverbs_dereg_mr{mr.mr_handle}),
              ENOENT);
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{pd}), 0);
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{pd}), ENOENT);
}

TEST_F(VhcaUverbs, regions_have_to_be_there_and_have_rights_that_exist) {
    Commander& commander = use();
    RingPages memory(8192);
    ib_uverbs_reg_mr good{};
    good.start = good.hca_va = memory.address();
    good.length = 100;
    good.pd_handle = commander.make_pd();
    ib_uverbs_reg_mr_resp mr{};
    const auto reg = [&](const auto& change) {
        ib_uverbs_reg_mr request = good;
        change(request);
        return commander.plain(IB_USER_VERBS_CMD_REG_MR, request, &mr);
    };
    EXPECT_EQ(reg([](auto& r) { r.start = r.hca_va = kNowhere; }), EFAULT);
    EXPECT_EQ(reg([](auto& r) { r.length = 0; }), EINVAL);
    EXPECT_EQ(reg([](auto& r) { r.length = UINT64_MAX; }), EINVAL);
    EXPECT_EQ(reg([](auto& r) { r.hca_va += 8; }), EINVAL);
    EXPECT_EQ(reg([](auto& r) { r.hca_va += 4096; }), 0);
    EXPECT_EQ(reg([](auto& r) { r.access_flags = IBV_ACCESS_REMOTE_WRITE; }), EINVAL);
    EXPECT_EQ(reg([](auto& r) { r.access_flags = IBV_ACCESS_REMOTE_READ; }), 0);
    EXPECT_EQ(reg([](auto& r) { r.access_flags = 1 << 12; }), EINVAL);
    EXPECT_EQ(reg([](auto& r) { r.access_flags = IBV_ACCESS_ON_DEMAND; }), EOPNOTSUPP);
    EXPECT_EQ(reg([](auto& r) { r.access_flags = IBV_ACCESS_RELAXED_ORDERING; }), 0);
    EXPECT_EQ(reg([](auto& r) { r.pd_handle = kUnknown; }), EINVAL);
}

TEST_F(VhcaUverbs, a_region_moves_with_a_new_key) {
    Commander& commander = use();
    RingPages memory(8192);
    ib_uverbs_reg_mr request{};
    request.start = request.hca_va = memory.address();
    request.length = 100;
    request.pd_handle = commander.make_pd();
    ib_uverbs_reg_mr_resp mr{};
    ASSERT_EQ(commander.plain(IB_USER_VERBS_CMD_REG_MR, request, &mr), 0);
    ib_uverbs_rereg_mr good{};
    good.mr_handle = mr.mr_handle;
    good.flags = IBV_REREG_MR_CHANGE_TRANSLATION;
    good.start = good.hca_va = memory.address() + 4096;
    good.length = 4096;
    ib_uverbs_rereg_mr_resp moved{};
    const auto rereg = [&](const auto& change) {
        ib_uverbs_rereg_mr changed = good;
        change(changed);
        return commander.plain(IB_USER_VERBS_CMD_REREG_MR, changed, &moved);
    };
    EXPECT_EQ(rereg([](auto& r) { r.flags = 0; }), EINVAL);
    EXPECT_EQ(rereg([](auto& r) { r.flags = 8; }), EOPNOTSUPP);
    EXPECT_EQ(rereg([](auto& r) { r.hca_va += 1; }), EINVAL);
    EXPECT_EQ(rereg([](auto& r) { r.mr_handle = kUnknown; }), ENOENT);
    EXPECT_EQ(rereg([](auto& r) { r.start = r.hca_va = kNowhere; }), EFAULT);
    EXPECT_EQ(rereg([](auto& r) {
                  r.flags = IBV_REREG_MR_CHANGE_PD;
                  r.pd_handle = kUnknown;
              }),
              EINVAL);
    EXPECT_EQ(rereg([](auto& r) {
                  r.flags = IBV_REREG_MR_CHANGE_ACCESS;
                  r.access_flags = IBV_ACCESS_REMOTE_ATOMIC;
              }),
              EINVAL);
    EXPECT_EQ(rereg([](auto&) {}), 0);
    EXPECT_NE(moved.lkey, mr.lkey);
}

TEST_F(VhcaUverbs, address_handles_need_a_port_and_a_gid_that_are_there) {
    Commander& commander = use();
    ib_uverbs_create_ah good{};
    good.pd_handle = commander.make_pd();
    good.attr.port_num = 1;
    good.attr.dlid = 1;
    ib_uverbs_create_ah_resp ah{};
    const auto create = [&](const auto& change) {
        ib_uverbs_create_ah request = good;
        change(request);
        return commander.plain(IB_USER_VERBS_CMD_CREATE_AH, request, &ah);
    };
    EXPECT_EQ(create([](auto& r) { r.attr.port_num = 2; }), EINVAL);
    EXPECT_EQ(create([](auto& r) { r.attr.sl = 16; }), EINVAL);
    EXPECT_EQ(create([](auto& r) { r.pd_handle = kUnknown; }), EINVAL);
    EXPECT_EQ(create([](auto& r) {
                  r.attr.is_global = 1;
                  r.attr.grh.sgid_index = 1;
              }),
              ENODATA);
    EXPECT_EQ(create([](auto& r) {
                  r.attr.is_global = 1;
                  r.attr.grh.sgid_index = 8;
              }),
              EINVAL);
    ASSERT_EQ(create([](auto&) {}), 0);
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{good.pd_handle}),
              EBUSY);
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DESTROY_AH, ib_uverbs_destroy_ah{ah.ah_handle}), 0);
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DESTROY_AH, ib_uverbs_destroy_ah{ah.ah_handle}),
              ENOENT);
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{good.pd_handle}),
              0);
}

// ---- Completion queues -------------------------------------------------------------------------

TEST_F(VhcaUverbs, completion_queues_have_one_less_than_a_power_of_two) {
    Commander& commander = use();
    Parts parts(commander);
    std::uint32_t cqe = 0;
    EXPECT_NE(commander.make_cq(Parts::cq_request(16), parts.cq_ring(), &cqe), 0U);
    EXPECT_EQ(cqe, 31U);
    struct {
        ib_uverbs_ex_create_cq request{};
    } extended;
    extended.request.cqe = 31;
    extended.request.comp_channel = -1;
    extended.request.flags = IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
    ib_uverbs_ex_create_cq_resp response{};
    mlx5_ib_create_cq_resp driver{};
    const auto create = [&] {
        return commander.extended(IB_USER_VERBS_EX_CMD_CREATE_CQ, extended.request, &response,
                                  parts.cq_ring(), &driver);
    };
    EXPECT_EQ(create(), 0);
    EXPECT_EQ(response.base.cqe, 31U);
    EXPECT_EQ(response.response_length, sizeof response);
    EXPECT_NE(driver.cqn, 0U);
    extended.request.flags = 4;
    EXPECT_EQ(create(), EOPNOTSUPP);
    extended.request.flags = 0;
    extended.request.comp_mask = 1;
    EXPECT_EQ(create(), EINVAL);
}

TEST_F(VhcaUverbs, completion_queues_that_cannot_be_are_refused) {
    Commander& commander = use();
    Parts parts(commander);
    const auto create = [&](const auto& change) {
        ib_uverbs_create_cq request = Parts::cq_request(15);
        mlx5_ib_create_cq ring = parts.cq_ring();
        change(request, ring);
        commander.make_cq(request, ring);
        return commander.error;
    };
    EXPECT_EQ(create([](auto& r, auto&) { r.cqe = 0; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.cqe = 1 << 22; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.cqe = UINT32_MAX; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.comp_vector = 8; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.comp_channel = 0; }), EBADF);
    EXPECT_EQ(create([](auto& r, auto&) { r.comp_channel = 9999; }), EBADF);
    EXPECT_EQ(create([](auto&, auto& ring) { ring.cqe_size = 32; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& ring) { ring.reserved1 = 1; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& ring) { ring.flags = 8; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& ring) { ring.cqe_comp_en = 1; }), EOPNOTSUPP);
    EXPECT_EQ(create([](auto&, auto& ring) { ring.buf_addr = kNowhere; }), EFAULT);
    EXPECT_EQ(create([](auto&, auto& ring) { ring.db_addr = kNowhere; }), EFAULT);
    EXPECT_EQ(create([](auto&, auto& ring) { ring.db_addr += 4; }), EINVAL);
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_CREATE_CQ, Parts::cq_request(15),
                              static_cast<ib_uverbs_create_cq_resp*>(nullptr), Nothing{},
                              static_cast<mlx5_ib_create_cq_resp*>(nullptr)),
              EINVAL);
    EXPECT_EQ(create([](auto&, auto&) {}), 0);
}

TEST_F(VhcaUverbs, an_answer_that_cannot_be_given_makes_nothing) {
    Commander& commander = use();
    struct {
        ib_uverbs_cmd_hdr header{IB_USER_VERBS_CMD_ALLOC_PD, 4, 2};
        std::uint64_t response = kNowhere;
    } command;
    EXPECT_EQ(commander.write(std::as_bytes(std::span(&command, 1))), EFAULT);
    command.header = {IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, 4, 1};
    EXPECT_EQ(commander.write(std::as_bytes(std::span(&command, 1))), EFAULT);
    EXPECT_TRUE(context_->pds.is_empty());
    EXPECT_TRUE(context_->channels.empty());
}

TEST_F(VhcaUverbs, a_queue_is_resized) {
    Commander& commander = use();
    Parts parts(commander);
    ib_uverbs_resize_cq request{};
    request.cq_handle = parts.cq;
    request.cqe = 31;
    struct {
        std::uint32_t cqe, reserved;
    } response{};
    mlx5_ib_resize_cq ring{};
    ring.buf_addr = parts.take(64 * 32);
    ring.cqe_size = 64;
    const auto resize = [&] {
        return commander.plain(IB_USER_VERBS_CMD_RESIZE_CQ, request, &response, ring);
    };
    ring.reserved1 = 1;
    EXPECT_EQ(resize(), EINVAL);
    ring.reserved1 = 0;
    EXPECT_EQ(resize(), 0);
    EXPECT_EQ(response.cqe, 31U);
    EXPECT_EQ(resize(), 0);  // it is so already
    request.cqe = 0;
    EXPECT_EQ(resize(), EINVAL);
    request.cqe = 63;
    ring.buf_addr = kNowhere;
    EXPECT_EQ(resize(), EFAULT);
    request.cq_handle = kUnknown;
    EXPECT_EQ(resize(), EINVAL);
    ib_uverbs_ex_modify_cq modify{};
    modify.cq_handle = parts.cq;
    EXPECT_EQ(commander.extended(IB_USER_VERBS_EX_CMD_MODIFY_CQ, modify), EINVAL);
    modify.attr_mask = IBV_CQ_ATTR_MODERATE;
    EXPECT_EQ(commander.extended(IB_USER_VERBS_EX_CMD_MODIFY_CQ, modify), EOPNOTSUPP);
}

TEST_F(VhcaUverbs, a_channel_is_any_descriptor_of_it) {
    Commander& commander = use();
    Parts parts(commander);
    const auto fd = static_cast<int>(commander.make_channel());
    ASSERT_EQ(commander.error, 0);
    const int copy = dup(fd);
    ib_uverbs_create_cq request = Parts::cq_request(15);
    request.comp_channel = copy;
    const std::uint32_t cq = commander.make_cq(request, parts.cq_ring());
    EXPECT_EQ(commander.error, 0);
    close(copy);
    close(fd);
    // The queue keeps it until it goes.
    const auto next = static_cast<int>(commander.make_channel());
    EXPECT_EQ(context_->channels.size(), 2U);
    ib_uverbs_destroy_cq_resp gone{};
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DESTROY_CQ, ib_uverbs_destroy_cq{0, cq, 0}, &gone),
              0);
    EXPECT_EQ(context_->channels.size(), 1U);
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DESTROY_CQ, ib_uverbs_destroy_cq{0, cq, 0}, &gone),
              ENOENT);
    close(next);
}

// ---- Shared receive queues ---------------------------------------------------------------------

TEST_F(VhcaUverbs, shared_queues_answer_what_the_driver_masks_with) {
    Commander& commander = use();
    Parts parts(commander);
    ib_uverbs_create_srq request{};
    request.pd_handle = parts.pd;
    request.max_wr = 9;
    request.max_sge = 3;
    ib_uverbs_create_srq_resp srq{};
    mlx5_ib_create_srq_resp driver{};
    ASSERT_EQ(
        commander.plain(IB_USER_VERBS_CMD_CREATE_SRQ, request, &srq, parts.srq_ring(), &driver), 0);
    EXPECT_EQ(srq.max_wr, 15U);
    EXPECT_EQ(srq.max_sge, 3U);
    EXPECT_EQ(srq.srqn, driver.srqn);
    ib_uverbs_query_srq query{};
    query.srq_handle = srq.srq_handle;
    ib_uverbs_query_srq_resp facts{};
    ASSERT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_SRQ, query, &facts), 0);
    EXPECT_EQ(facts.max_wr, 15U);
    EXPECT_EQ(facts.max_sge, 3U);
    query.srq_handle = kUnknown;
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_SRQ, query, &facts), EINVAL);
}

TEST_F(VhcaUverbs, shared_queues_that_cannot_be_are_refused) {
    Commander& commander = use();
    Parts parts(commander);
    const auto create = [&](const auto& change) {
        ib_uverbs_create_xsrq request = parts.srq_request();
        mlx5_ib_create_srq ring = parts.srq_ring();
        change(request, ring);
        commander.make_srq(request, ring);
        return commander.error;
    };
    EXPECT_EQ(create([](auto& r, auto&) { r.pd_handle = kUnknown; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.max_wr = 32768; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.max_wr = UINT32_MAX; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.max_sge = 32; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.srq_type = IBV_SRQT_XRC; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.srq_type = 9; }), EOPNOTSUPP);
    EXPECT_EQ(create([](auto&, auto& ring) { ring.buf_addr = kNowhere; }), EFAULT);
    EXPECT_EQ(create([](auto&, auto& ring) { ring.db_addr = kNowhere; }), EFAULT);
    EXPECT_EQ(create([](auto&, auto& ring) { ring.reserved0 = 1; }), EINVAL);
    const auto tags = [&](const auto& change) {
        return create([&](auto& r, auto& ring) {
            r.srq_type = IBV_SRQT_TM;
            r.cq_handle = parts.cq;
            r.max_num_tags = 8;
            change(r, ring);
        });
    };
    EXPECT_EQ(tags([](auto& r, auto&) { r.cq_handle = kUnknown; }), EINVAL);
    EXPECT_EQ(tags([](auto& r, auto&) { r.max_num_tags = 0; }), EINVAL);
    EXPECT_EQ(tags([](auto& r, auto&) { r.max_num_tags = 1024; }), EINVAL);
    EXPECT_EQ(tags([](auto&, auto& ring) { ring.uidx = 1 << 24; }), EINVAL);
    EXPECT_EQ(tags([](auto&, auto&) {}), 0);
    // It uses its CQ.
    ib_uverbs_destroy_cq_resp gone{};
    EXPECT_EQ(
        commander.plain(IB_USER_VERBS_CMD_DESTROY_CQ, ib_uverbs_destroy_cq{0, parts.cq, 0}, &gone),
        EBUSY);
}

TEST_F(VhcaUverbs, events_that_were_read_are_reported_and_others_taken_back) {
    Commander& commander = use();
    Parts parts(commander);
    for (const bool is_read : {true, false}) {
        const std::uint32_t srq = commander.make_srq(parts.srq_request(), parts.srq_ring());
        ASSERT_EQ(commander.error, 0);
        ib_uverbs_modify_srq modify{};
        modify.srq_handle = srq;
        modify.attr_mask = IBV_SRQ_MAX_WR;
        EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_MODIFY_SRQ, modify), EINVAL);
        modify.attr_mask = IBV_SRQ_LIMIT;
        modify.srq_limit = 16;
        EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_MODIFY_SRQ, modify), EINVAL);
        modify.srq_limit = 2;  // fewer are posted
        EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_MODIFY_SRQ, modify), 0);
        if (is_read) {
            EXPECT_TRUE(comes_true([&] { return can_read(commander.async_fd); }));
        }
        ib_uverbs_destroy_srq_resp gone{};
        EXPECT_EQ(
            commander.plain(IB_USER_VERBS_CMD_DESTROY_SRQ, ib_uverbs_destroy_srq{0, srq, 0}, &gone),
            0);
        EXPECT_EQ(gone.events_reported, is_read ? 1U : 0U);
        EXPECT_FALSE(can_read(commander.async_fd));
    }
}

// ---- Queue pairs -------------------------------------------------------------------------------

TEST_F(VhcaUverbs, queue_pairs_that_cannot_be_are_refused) {
    Commander& commander = use();
    Parts parts(commander);
    const auto create = [&](const auto& change) {
        ib_uverbs_create_qp request = parts.qp_request(IBV_QPT_RC);
        mlx5_ib_create_qp rings = parts.qp_rings();
        change(request, rings);
        commander.make_qp(request, rings);
        return commander.error;
    };
    EXPECT_EQ(create([](auto& r, auto&) { r.qp_type = 5; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.qp_type = IBV_QPT_RAW_PACKET; }), EPERM);
    EXPECT_EQ(create([](auto& r, auto&) { r.qp_type = IBV_QPT_XRC_SEND; }), EOPNOTSUPP);
    EXPECT_EQ(create([](auto& r, auto&) { r.qp_type = IBV_QPT_XRC_RECV; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.pd_handle = kUnknown; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.send_cq_handle = kUnknown; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.recv_cq_handle = kUnknown; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) {
                  r.is_srq = 1;
                  r.srq_handle = kUnknown;
              }),
              EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.flags = 1 << 20; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.flags = MLX5_QP_FLAG_SIGNATURE; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.flags = MLX5_QP_FLAG_SCATTER_CQE; }), 0);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.uidx = 1 << 24; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.sq_wqe_count = 17; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.sq_wqe_count = 65536; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.rq_wqe_count = 0; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.rq_wqe_shift = 3; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.rq_wqe_shift = 40; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.buf_addr = kNowhere; }), EFAULT);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.db_addr = kNowhere; }), EFAULT);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.buf_addr += 16; }), EINVAL);
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_CREATE_QP, parts.qp_request(IBV_QPT_RC),
                              static_cast<ib_uverbs_create_qp_resp*>(nullptr)),
              EINVAL);
}

TEST_F(VhcaUverbs, extended_queue_pairs_have_flags_that_are_none) {
    Commander& commander = use();
    Parts parts(commander);
    const auto create = [&](const auto& change) {
        ib_uverbs_ex_create_qp request{};
        request.pd_handle = parts.pd;
        request.send_cq_handle = request.recv_cq_handle = parts.cq;
        request.max_send_wr = request.max_recv_wr = 16;
        request.max_send_sge = request.max_recv_sge = 1;
        request.qp_type = IBV_QPT_UD;
        change(request);
        ib_uverbs_ex_create_qp_resp response{};
        mlx5_ib_create_qp_resp driver{};
        const int error = commander.extended(IB_USER_VERBS_EX_CMD_CREATE_QP, request, &response,
                                             parts.qp_rings(), &driver);
        EXPECT_TRUE(error != 0 || response.response_length == sizeof response);
        return error;
    };
    EXPECT_EQ(create([](auto& r) { r.create_flags = 1U << 31; }), EINVAL);
    EXPECT_EQ(create([](auto& r) { r.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB; }),
              EOPNOTSUPP);
    EXPECT_EQ(create([](auto& r) { r.create_flags = IBV_QP_CREATE_SOURCE_QPN; }), EPERM);
    EXPECT_EQ(create([](auto& r) { r.comp_mask = 1; }), EINVAL);
    EXPECT_EQ(create([](auto& r) { r.comp_mask = 2; }), EINVAL);
    EXPECT_EQ(create([](auto& r) { r.reserved = 1; }), EINVAL);
    EXPECT_EQ(create([](auto&) {}), 0);
}

TEST_F(VhcaUverbs, dc_queue_pairs_are_of_one_kind) {
    Commander& commander = use();
    Parts parts(commander);
    const std::uint32_t srq = commander.make_srq(parts.srq_request(), parts.srq_ring());
    const auto create = [&](std::uint32_t flags, const auto& change) {
        ib_uverbs_create_qp request = parts.dc_request();
        mlx5_ib_create_qp rings = parts.qp_rings();
        rings.flags = flags;
        change(request, rings);
        return commander.make_qp(request, rings);
    };
    const auto as_it_is = [](auto&, auto&) {};
    const auto with_srq = [srq](auto& request, auto&) {
        request.is_srq = 1;
        request.srq_handle = srq;
    };
    create(0, as_it_is);
    EXPECT_EQ(commander.error, EINVAL);
    create(MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_TYPE_DCT, with_srq);
    EXPECT_EQ(commander.error, EINVAL);
    create(MLX5_QP_FLAG_TYPE_DCT, as_it_is);
    EXPECT_EQ(commander.error, EINVAL);
    create(MLX5_QP_FLAG_TYPE_DCI, [](auto& request, auto&) { request.max_recv_wr = 1; });
    EXPECT_EQ(commander.error, EINVAL);
    create(MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_DCI_STREAM,
           [](auto&, auto& rings) { rings.dci_streams.log_num_concurent = 9; });
    EXPECT_EQ(commander.error, EINVAL);
    create(MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_DCI_STREAM, as_it_is);
    EXPECT_EQ(commander.error, 0);
    const std::uint32_t dci = create(MLX5_QP_FLAG_TYPE_DCI, as_it_is);
    EXPECT_EQ(commander.error, 0);
    constexpr std::uint32_t kDciInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    EXPECT_EQ(modify(commander, dci, kInit, IBV_QPS_INIT), EINVAL);
    EXPECT_EQ(modify(commander, dci, kDciInit, IBV_QPS_INIT), 0);
    EXPECT_EQ(modify(commander, dci, IBV_QP_PATH_MTU | IBV_QP_AV, IBV_QPS_RTR), 0);
    EXPECT_EQ(modify(commander, dci, kRts, IBV_QPS_RTS), 0);
}

TEST_F(VhcaUverbs, a_dc_target_gets_its_number_when_it_is_ready) {
    Commander& commander = use();
    Parts parts(commander);
    const std::uint32_t srq = commander.make_srq(parts.srq_request(), parts.srq_ring());
    ib_uverbs_create_qp request = parts.dc_request();
    request.is_srq = 1;
    request.srq_handle = srq;
    mlx5_ib_create_qp rings{};
    rings.flags = MLX5_QP_FLAG_TYPE_DCT;
    std::uint32_t number = 1;
    const std::uint32_t dct = commander.make_qp(request, rings, &number);
    ASSERT_EQ(commander.error, 0);
    EXPECT_EQ(number, 0U);
    EXPECT_EQ(modify(commander, dct, kInit, IBV_QPS_INIT), 0);
    ib_uverbs_ex_modify_qp ready{};
    constexpr std::uint32_t kReady = IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU;
    ready.base = modify_request(dct, kReady, IBV_QPS_RTR);
    ib_uverbs_ex_modify_qp_resp response{};
    mlx5_ib_modify_qp_resp driver{};
    EXPECT_EQ(commander.extended(IB_USER_VERBS_EX_CMD_MODIFY_QP, ready, &response), EINVAL);
    EXPECT_EQ(commander.extended(IB_USER_VERBS_EX_CMD_MODIFY_QP, ready, &response,
                                 mlx5_ib_modify_qp{}, &driver),
              0);
    EXPECT_NE(driver.dctn, 0U);
    EXPECT_GE(driver.response_length, 8U);
    ib_uverbs_query_qp query{};
    query.qp_handle = dct;
    query.attr_mask = IBV_QP_STATE;
    ib_uverbs_query_qp_resp facts{};
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_QP, query, &facts), 0);
    EXPECT_EQ(facts.qp_state, IBV_QPS_RTR);
    query.attr_mask |= IBV_QP_SQ_PSN;
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_QP, query, &facts), EINVAL);
}

TEST_F(VhcaUverbs, states_follow_each_other_with_what_they_need) {
    Commander& commander = use();
    Parts parts(commander);
    const std::uint32_t qp = commander.make_qp(parts.qp_request(IBV_QPT_RC), parts.qp_rings());
    ASSERT_EQ(commander.error, 0);
    const auto change = [&](std::uint32_t mask, ibv_qp_state state, const auto& edit) {
        ib_uverbs_modify_qp request = modify_request(qp, mask, state);
        edit(request);
        return commander.plain(IB_USER_VERBS_CMD_MODIFY_QP, request);
    };
    EXPECT_EQ(modify(commander, kUnknown, kInit, IBV_QPS_INIT), EINVAL);
    EXPECT_EQ(modify(commander, qp, kRtr, IBV_QPS_RTR), EINVAL);
    EXPECT_EQ(modify(commander, qp, IBV_QP_PORT, IBV_QPS_INIT), EINVAL);
    EXPECT_EQ(change(kInit, IBV_QPS_INIT, [](auto& r) { r.port_num = 2; }), EINVAL);
    EXPECT_EQ(change(kInit, IBV_QPS_INIT, [](auto& r) { r.pkey_index = 1; }), EINVAL);
    EXPECT_EQ(change(kInit, IBV_QPS_INIT, [](auto& r) { r.qp_state = 7; }), EINVAL);
    EXPECT_EQ(change(kInit | 1U << 25, IBV_QPS_INIT, [](auto&) {}), EOPNOTSUPP);
    EXPECT_EQ(modify(commander, qp, kInit, IBV_QPS_INIT), 0);
    EXPECT_EQ(change(kRtr, IBV_QPS_RTR, [](auto& r) { r.dest.port_num = 0; }), EINVAL);
    EXPECT_EQ(change(kRtr, IBV_QPS_RTR, [](auto& r) { r.path_mtu = 6; }), EINVAL);
    EXPECT_EQ(change(kRtr, IBV_QPS_RTR,
                     [](auto& r) {
                         r.dest.is_global = 1;
                         r.dest.sgid_index = 3;
                     }),
              ENODATA);
    EXPECT_EQ(modify(commander, qp, kRtr, IBV_QPS_RTR), 0);
    EXPECT_EQ(change(kRts, IBV_QPS_RTS, [](auto& r) { r.timeout = 32; }), EINVAL);
    EXPECT_EQ(modify(commander, qp, kRts, IBV_QPS_RTS), 0);
    ib_uverbs_query_qp query{};
    query.qp_handle = qp;
    query.attr_mask = IBV_QP_STATE;
    ib_uverbs_query_qp_resp facts{};
    ASSERT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_QP, query, &facts), 0);
    EXPECT_EQ(facts.qp_state, IBV_QPS_RTS);
    EXPECT_EQ(facts.path_mtu, IBV_MTU_1024);
    EXPECT_EQ(facts.dest.dlid, 1);
    EXPECT_EQ(facts.max_send_wr, 16U);
    EXPECT_EQ(modify(commander, qp, 0, IBV_QPS_RESET), 0);
    EXPECT_EQ(modify(commander, qp, 0, IBV_QPS_ERR), EINVAL);
    query.qp_handle = kUnknown;
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_QP, query, &facts), EINVAL);
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_ATTACH_MCAST, ib_uverbs_attach_mcast{}), EINVAL);
    ib_uverbs_attach_mcast group{};
    group.qp_handle = qp;
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_ATTACH_MCAST, group), EOPNOTSUPP);
}

TEST_F(VhcaUverbs, what_is_used_stays_until_its_users_go) {
    Commander& commander = use();
    Parts parts(commander);
    const std::uint32_t srq = commander.make_srq(parts.srq_request(), parts.srq_ring());
    ib_uverbs_create_qp request = parts.qp_request(IBV_QPT_RC);
    request.is_srq = 1;
    request.srq_handle = srq;
    const std::uint32_t qp = commander.make_qp(request, parts.qp_rings());
    ASSERT_EQ(commander.error, 0);
    ib_uverbs_destroy_srq_resp srq_gone{};
    ib_uverbs_destroy_cq_resp cq_gone{};
    ib_uverbs_destroy_qp_resp qp_gone{};
    const auto end_all = [&](int error) {
        EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DESTROY_SRQ, ib_uverbs_destroy_srq{0, srq, 0},
                                  &srq_gone),
                  error);
        EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DESTROY_CQ,
                                  ib_uverbs_destroy_cq{0, parts.cq, 0}, &cq_gone),
                  error);
        EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{parts.pd}),
                  error);
    };
    end_all(EBUSY);
    EXPECT_EQ(
        commander.plain(IB_USER_VERBS_CMD_DESTROY_QP, ib_uverbs_destroy_qp{0, qp, 0}, &qp_gone), 0);
    EXPECT_EQ(qp_gone.events_reported, 0U);
    EXPECT_EQ(
        commander.plain(IB_USER_VERBS_CMD_DESTROY_QP, ib_uverbs_destroy_qp{0, qp, 0}, &qp_gone),
        ENOENT);
    end_all(0);
}

TEST_F(VhcaUverbs, objects_of_other_contexts_are_not_seen) {
    Commander& commander = use();
    Parts parts(commander);
    const std::uint32_t qp = commander.make_qp(parts.qp_request(IBV_QPT_RC), parts.qp_rings());
    ASSERT_EQ(commander.error, 0);
    const std::unique_ptr<Context> second = open_context(0);
    Commander other(*second);
    ASSERT_EQ(other.open(), 0);
    other.make_qp(parts.qp_request(IBV_QPT_RC), parts.qp_rings());
    EXPECT_EQ(other.error, EINVAL);
    EXPECT_EQ(modify(other, qp, kInit, IBV_QPS_INIT), EINVAL);
    ib_uverbs_destroy_qp_resp gone{};
    EXPECT_EQ(other.plain(IB_USER_VERBS_CMD_DESTROY_QP, ib_uverbs_destroy_qp{0, qp, 0}, &gone),
              ENOENT);
    close(other.async_fd);
}

// ---- The rings move ----------------------------------------------------------------------------

/// A queue pair in RTS that is connected to itself, and its memory.
struct Loop {
    explicit Loop(Parts& parts) : ring(parts.qp_rings()) {
        Commander& commander = parts.commander;
        qp = commander.make_qp(parts.qp_request(IBV_QPT_RC), ring, &number);
        EXPECT_EQ(commander.error, 0);
        EXPECT_EQ(modify(commander, qp, kInit, IBV_QPS_INIT), 0);
        ib_uverbs_modify_qp request = modify_request(qp, kRtr, IBV_QPS_RTR);
        request.dest_qp_num = number;
        EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_MODIFY_QP, request), 0);
        EXPECT_EQ(modify(commander, qp, kRts, IBV_QPS_RTS), 0);
    }
    /// A NOP that wants a completion, and its doorbell record.
    void post_nop(std::uint16_t index) const {
        auto* entry = reinterpret_cast<std::uint32_t*>(ring.buf_addr + 16 * 16) + index % 16 * 16;
        entry[0] = __builtin_bswap32(std::uint32_t{index} << 8);
        entry[1] = __builtin_bswap32(number << 8 | 1);
        entry[2] = __builtin_bswap32(8);
        entry[3] = 0;
        auto* record = reinterpret_cast<std::uint32_t*>(ring.db_addr) + 1;
        std::atomic_ref(*record).store(__builtin_bswap32(std::uint32_t{index} + 1),
                                       std::memory_order_release);
    }

    mlx5_ib_create_qp ring;
    std::uint32_t qp = 0, number = 0;
};

TEST_F(VhcaUverbs, a_request_in_a_ring_completes_without_a_call) {
    Commander& commander = use();
    Parts parts(commander);
    const auto channel = static_cast<int>(commander.make_channel());
    ib_uverbs_create_cq request = Parts::cq_request(15);
    request.comp_channel = channel;
    const mlx5_ib_create_cq cq_ring = parts.cq_ring();
    parts.cq = commander.make_cq(request, cq_ring);
    auto& owner = *reinterpret_cast<std::uint8_t*>(cq_ring.buf_addr + 63);
    owner = 0xf0;  // as the driver marks entries that are none
    const Loop loop(parts);
    // Armed for any completion after the first 0 of them.
    auto* arm = reinterpret_cast<std::uint32_t*>(cq_ring.db_addr) + 1;
    std::atomic_ref(*arm).store(0, std::memory_order_release);
    loop.post_nop(0);
    EXPECT_TRUE(comes_true(
        [&] { return std::atomic_ref(owner).load(std::memory_order_acquire) >> 4 == 0; }));
    std::uint64_t told = 0;
    fcntl(channel, F_SETFL, O_NONBLOCK);
    EXPECT_TRUE(comes_true([&] { return read(channel, &told, sizeof told) == sizeof told; }));
    EXPECT_EQ(told, request.user_handle);
    close(channel);
}

TEST_F(VhcaUverbs, a_queue_pair_whose_ring_is_gone_fails) {
    Commander& commander = use();
    Parts parts(commander);
    void* pages = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    ib_uverbs_create_qp request = parts.qp_request(IBV_QPT_UD);
    mlx5_ib_create_qp rings = parts.qp_rings();
    rings.buf_addr = reinterpret_cast<std::uint64_t>(pages);
    rings.db_addr = rings.buf_addr + 4096;
    const std::uint32_t qp = commander.make_qp(request, rings);
    constexpr std::uint32_t kUdInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    EXPECT_EQ(modify(commander, qp, kUdInit, IBV_QPS_INIT), 0);
    EXPECT_EQ(modify(commander, qp, 0, IBV_QPS_RTR), 0);
    EXPECT_EQ(modify(commander, qp, IBV_QP_SQ_PSN, IBV_QPS_RTS), 0);
    ASSERT_EQ(munmap(pages, 8192), 0);
    ib_uverbs_query_qp query{};
    query.qp_handle = qp;
    ib_uverbs_query_qp_resp facts{};
    EXPECT_TRUE(comes_true([&] {
        return commander.plain(IB_USER_VERBS_CMD_QUERY_QP, query, &facts) == 0 &&
               facts.qp_state == IBV_QPS_ERR;
    }));
}

TEST_F(VhcaUverbs, everything_goes_with_its_context) {
    Commander& commander = use();
    Parts parts(commander);
    const Loop loop(parts);
    ib_uverbs_create_xsrq tags = parts.srq_request();
    tags.srq_type = IBV_SRQT_TM;
    tags.cq_handle = parts.cq;
    tags.max_num_tags = 8;
    commander.make_srq(tags, parts.srq_ring());
    EXPECT_EQ(commander.error, 0);
    ib_uverbs_reg_mr region{};
    region.start = region.hca_va = parts.pages.address();
    region.length = 100;
    region.pd_handle = parts.pd;
    ib_uverbs_reg_mr_resp mr{};
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_REG_MR, region, &mr), 0);
    ib_uverbs_create_ah address{};
    address.pd_handle = parts.pd;
    address.attr.port_num = 1;
    ib_uverbs_create_ah_resp ah{};
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_CREATE_AH, address, &ah), 0);
    const auto channel = static_cast<int>(commander.make_channel());
    loop.post_nop(0);
    context_.reset();
    // Nobody writes to it any more.
    std::uint64_t told = 0;
    EXPECT_EQ(read(channel, &told, sizeof told), 0);
    close(channel);
}

// ---- Ethernet ----------------------------------------------------------------------------------

class VhcaUverbsEthernet : public VhcaUverbs {};

TEST_F(VhcaUverbsEthernet, paths_need_a_gid) {
    Commander& commander = use();
    Parts parts(commander);
    ib_uverbs_create_ah request{};
    request.pd_handle = parts.pd;
    request.attr.port_num = 1;
    ib_uverbs_create_ah_resp ah{};
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_CREATE_AH, request, &ah), EINVAL);
    request.attr.is_global = 1;
    const ibv_gid gid = context_->engine.gid();
    std::memcpy(request.attr.grh.dgid, gid.raw, sizeof gid.raw);
    struct [[gnu::packed]] {
        std::uint32_t handle;
        mlx5_ib_create_ah_resp driver;
    } answer{};
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_CREATE_AH, request, &answer), 0);
    EXPECT_EQ(answer.driver.response_length, 10U);
    EXPECT_EQ(answer.driver.dmac[5], gid.raw[15]);
    const std::uint32_t qp = commander.make_qp(parts.qp_request(IBV_QPT_RC), parts.qp_rings());
    EXPECT_EQ(modify(commander, qp, kInit, IBV_QPS_INIT), 0);
    EXPECT_EQ(modify(commander, qp, kRtr, IBV_QPS_RTR), EINVAL);
    ib_uverbs_modify_qp modify = modify_request(qp, kRtr, IBV_QPS_RTR);
    modify.dest.is_global = 1;
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_MODIFY_QP, modify), 0);
}

TEST_F(VhcaUverbsEthernet, the_second_port_is_down) {
    Commander& commander = use();
    ib_uverbs_query_port request{};
    request.port_num = 2;
    ib_uverbs_query_port_resp port{};
    ASSERT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_PORT, request, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_DOWN);
    EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    EXPECT_EQ(port.flags, IBV_QPF_GRH_REQUIRED);
}

}  // namespace
}  // namespace tagwire::vhca::driver::test
