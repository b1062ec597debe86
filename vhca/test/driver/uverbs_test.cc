// SPDX-License-Identifier: BSD-3-Clause
// Commands of the driver face: their frame, the device, memory and completion queues.
//
// Clang captures no variable of a type that ends with a flexible array, but a reference to it.
#include <poll.h>
#include <sys/wait.h>

#include "common/skip.hpp"
#include "ucs/sys/shm.hpp"
#include "uverbs_fixture.hpp"
#include "vhca/driver/kernel.hpp"
#include "vhca/driver/poller.hpp"

namespace tagwire::vhca::driver::test {
namespace {

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
    ib_uverbs_get_context_resp response_memory{};
    auto& response = response_memory;
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

// Each look at its queues, and each time that its thread is woken, is counted.
TEST_F(VhcaUverbs, a_device_of_a_program_that_blocks_does_nothing) {
    Commander& commander = use();
    const Parts parts(commander);
    ucs::UniqueFd doorbells;
    ASSERT_EQ(ucs::memfd_create_sealed("doorbells", kDoorbellBytes, &doorbells), UCS_OK);
    context_->watch_doorbells(std::move(doorbells), kDoorbellBytes);
    if (context_->poller.trap().fd() < 0)
        TW_SKIP("no userfaultfd here: doorbells are looked for by time");
    const auto counters = [&] { return context_->engine.helper_counters(); };
    bool was_quiet = false;
    for (int i = 0; i < 100 && !was_quiet; ++i) {  // the thread may wait for a processor at first
        const auto before = counters();
        pollfd event{.fd = commander.async_fd, .events = POLLIN, .revents = 0};
        ASSERT_EQ(::poll(&event, 1, 100), 0);
        was_quiet = before.take_overs != 0 && counters().wake_ups == before.wake_ups &&
                    counters().take_overs == before.take_overs;
    }
    EXPECT_TRUE(was_quiet);
}

// A receive that is posted to it rings no doorbell, so the device looks for some, ever more rarely.
TEST_F(VhcaUverbs, a_queue_pair_that_stays_in_error_wakes_the_device_rarely) {
    Commander& commander = use();
    Parts parts(commander);
    const std::uint32_t qp = commander.make_qp(parts.qp_request(IBV_QPT_RC), parts.qp_rings());
    ASSERT_EQ(modify(commander, qp, kInit, IBV_QPS_INIT), 0);
    ASSERT_EQ(modify(commander, qp, 0, IBV_QPS_ERR), 0);
    ucs::UniqueFd doorbells;
    ASSERT_EQ(ucs::memfd_create_sealed("doorbells", kDoorbellBytes, &doorbells), UCS_OK);
    context_->watch_doorbells(std::move(doorbells), kDoorbellBytes);
    if (context_->poller.trap().fd() < 0)
        TW_SKIP("no userfaultfd here: doorbells are looked for by time");
    constexpr Time kRarely = 64'000'000;
    EXPECT_TRUE(comes_true([&] {
        const auto guard = context_->engine.lock();
        return context_->poller.nap() == kRarely;
    }));
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
    EXPECT_EQ(port.lid, context_->engine.port().lid());
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
    ib_uverbs_reg_mr good_memory{};
    auto& good = good_memory;
    good.start = good.hca_va = memory.address();
    good.length = 100;
    good.pd_handle = commander.make_pd();
    ib_uverbs_reg_mr_resp mr_memory{};
    auto& mr = mr_memory;
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
    ib_uverbs_rereg_mr good_memory{};
    auto& good = good_memory;
    good.mr_handle = mr.mr_handle;
    good.flags = IBV_REREG_MR_CHANGE_TRANSLATION;
    good.start = good.hca_va = memory.address() + 4096;
    good.length = 4096;
    ib_uverbs_rereg_mr_resp moved_memory{};
    auto& moved = moved_memory;
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
    ib_uverbs_create_ah good_memory{};
    auto& good = good_memory;
    good.pd_handle = commander.make_pd();
    good.attr.port_num = 1;
    good.attr.dlid = 1;
    ib_uverbs_create_ah_resp ah_memory{};
    auto& ah = ah_memory;
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
    ib_uverbs_resize_cq request_memory{};
    auto& request = request_memory;
    request.cq_handle = parts.cq;
    request.cqe = 31;
    struct {
        std::uint32_t cqe, reserved;
    } response_memory{};
    auto& response = response_memory;
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

}  // namespace
}  // namespace tagwire::vhca::driver::test
