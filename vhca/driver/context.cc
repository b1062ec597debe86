// SPDX-License-Identifier: BSD-3-Clause
// An open device: how a command is taken apart, and how everything ends.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <new>

#include "vhca/driver/commands.hpp"
#include "vhca/driver/objects.hpp"
#include "vhca/driver/poller.hpp"

namespace tagwire::vhca::driver {
namespace {

template <typename In>
constexpr Command plain(unsigned number, int (*run)(Context&, const Call&)) {
    return {number, run, sizeof(In), 0};
}
template <typename In, typename Out>
constexpr Command plain(unsigned number, int (*run)(Context&, const Call&)) {
    return {number, run, sizeof(In), sizeof(Out)};
}

/// To the end of a member.
#define TW_THROUGH(type, member) (offsetof(type, member) + sizeof(type::member))

constexpr std::array kPlain = {
    plain<ib_uverbs_get_context, ib_uverbs_get_context_resp>(IB_USER_VERBS_CMD_GET_CONTEXT,
                                                             get_context),
    plain<ib_uverbs_query_device, ib_uverbs_query_device_resp>(IB_USER_VERBS_CMD_QUERY_DEVICE,
                                                               query_device),
    plain<ib_uverbs_query_port, ib_uverbs_query_port_resp>(IB_USER_VERBS_CMD_QUERY_PORT,
                                                           query_port),
    plain<ib_uverbs_alloc_pd, ib_uverbs_alloc_pd_resp>(IB_USER_VERBS_CMD_ALLOC_PD, alloc_pd),
    plain<ib_uverbs_dealloc_pd>(IB_USER_VERBS_CMD_DEALLOC_PD, dealloc_pd),
    plain<ib_uverbs_create_ah, ib_uverbs_create_ah_resp>(IB_USER_VERBS_CMD_CREATE_AH, create_ah),
    plain<ib_uverbs_destroy_ah>(IB_USER_VERBS_CMD_DESTROY_AH, destroy_ah),
    plain<ib_uverbs_reg_mr, ib_uverbs_reg_mr_resp>(IB_USER_VERBS_CMD_REG_MR, reg_mr),
    plain<ib_uverbs_rereg_mr, ib_uverbs_rereg_mr_resp>(IB_USER_VERBS_CMD_REREG_MR, rereg_mr),
    plain<ib_uverbs_dereg_mr>(IB_USER_VERBS_CMD_DEREG_MR, dereg_mr),
    plain<ib_uverbs_create_comp_channel, ib_uverbs_create_comp_channel_resp>(
        IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, create_comp_channel),
    plain<ib_uverbs_create_cq, ib_uverbs_create_cq_resp>(IB_USER_VERBS_CMD_CREATE_CQ, create_cq),
    Command{IB_USER_VERBS_CMD_RESIZE_CQ, resize_cq, sizeof(ib_uverbs_resize_cq),
            offsetof(ib_uverbs_resize_cq_resp, driver_data)},
    plain<ib_uverbs_destroy_cq, ib_uverbs_destroy_cq_resp>(IB_USER_VERBS_CMD_DESTROY_CQ,
                                                           destroy_cq),
    plain<ib_uverbs_create_qp, ib_uverbs_create_qp_resp>(IB_USER_VERBS_CMD_CREATE_QP, create_qp),
    plain<ib_uverbs_open_qp, ib_uverbs_create_qp_resp>(IB_USER_VERBS_CMD_OPEN_QP, open_qp),
    plain<ib_uverbs_query_qp, ib_uverbs_query_qp_resp>(IB_USER_VERBS_CMD_QUERY_QP, query_qp),
    plain<ib_uverbs_modify_qp>(IB_USER_VERBS_CMD_MODIFY_QP, modify_qp),
    plain<ib_uverbs_destroy_qp, ib_uverbs_destroy_qp_resp>(IB_USER_VERBS_CMD_DESTROY_QP,
                                                           destroy_qp),
    plain<ib_uverbs_attach_mcast>(IB_USER_VERBS_CMD_ATTACH_MCAST, attach_mcast),
    plain<ib_uverbs_detach_mcast>(IB_USER_VERBS_CMD_DETACH_MCAST, attach_mcast),
    plain<ib_uverbs_create_srq, ib_uverbs_create_srq_resp>(IB_USER_VERBS_CMD_CREATE_SRQ,
                                                           create_srq),
    plain<ib_uverbs_create_xsrq, ib_uverbs_create_srq_resp>(IB_USER_VERBS_CMD_CREATE_XSRQ,
                                                            create_xsrq),
    plain<ib_uverbs_modify_srq>(IB_USER_VERBS_CMD_MODIFY_SRQ, modify_srq),
    plain<ib_uverbs_query_srq, ib_uverbs_query_srq_resp>(IB_USER_VERBS_CMD_QUERY_SRQ, query_srq),
    plain<ib_uverbs_destroy_srq, ib_uverbs_destroy_srq_resp>(IB_USER_VERBS_CMD_DESTROY_SRQ,
                                                             destroy_srq),
};

constexpr std::array kExtended = {
    Command{IB_USER_VERBS_EX_CMD_QUERY_DEVICE, query_device_ex, sizeof(ib_uverbs_ex_query_device),
            TW_THROUGH(ib_uverbs_ex_query_device_resp, response_length)},
    Command{IB_USER_VERBS_EX_CMD_CREATE_CQ, create_cq_ex, sizeof(ib_uverbs_ex_create_cq),
            sizeof(ib_uverbs_ex_create_cq_resp)},
    Command{IB_USER_VERBS_EX_CMD_CREATE_QP, create_qp_ex,
            TW_THROUGH(ib_uverbs_ex_create_qp, comp_mask), sizeof(ib_uverbs_ex_create_qp_resp)},
    Command{IB_USER_VERBS_EX_CMD_MODIFY_QP, modify_qp_ex, TW_THROUGH(ib_uverbs_ex_modify_qp, base),
            sizeof(ib_uverbs_ex_modify_qp_resp)},
    Command{IB_USER_VERBS_EX_CMD_MODIFY_CQ, modify_cq_ex, sizeof(ib_uverbs_ex_modify_cq), 0},
};

#undef TW_THROUGH

template <typename Table>
const Command* find(const Table& table, unsigned number) {
    const auto found = std::find_if(table.begin(), table.end(), [number](const Command& command) {
        return command.number == number;
    });
    return found == table.end() ? nullptr : &*found;
}

int take_apart(const Command& command, const ib_uverbs_cmd_hdr& header, UserSpan rest, Call* call) {
    if (header.in_words * std::size_t{4} != rest.bytes + sizeof header)
        return EINVAL;
    const std::size_t out_bytes = header.out_words * std::size_t{4};
    if (rest.bytes < command.in_bytes || out_bytes < command.out_bytes)
        return ENOSPC;
    std::uint64_t response = 0;
    if (command.out_bytes != 0) {
        if (const int error = read_user(rest, &response))
            return error;
    }
    const UserSpan out{response, command.out_bytes != 0 ? out_bytes : 0};
    *call = {.core_in = {rest.address, command.in_bytes},
             .driver_in = rest.from(command.in_bytes),
             .core_out = {response, command.out_bytes},
             .driver_out = out.from(command.out_bytes)};
    return 0;
}

int take_apart_extended(const Command& command, const ib_uverbs_cmd_hdr& header, UserSpan rest,
                        Call* call) {
    ib_uverbs_ex_cmd_hdr more;
    if (rest.bytes < sizeof more)
        return EINVAL;
    if (const int error = read_user(rest, &more))
        return error;
    rest = rest.from(sizeof more);
    const std::size_t in_bytes = header.in_words * std::size_t{8};
    const std::size_t out_bytes = header.out_words * std::size_t{8};
    const std::size_t driver_out_bytes = more.provider_out_words * std::size_t{8};
    if (in_bytes + more.provider_in_words * std::size_t{8} != rest.bytes)
        return EINVAL;
    if (in_bytes < command.in_bytes)
        return ENOSPC;
    const bool has_room = out_bytes + driver_out_bytes != 0;
    if (more.cmd_hdr_reserved != 0 || (more.response != 0) != has_room)
        return EINVAL;
    if (out_bytes < command.out_bytes)
        return ENOSPC;
    const UserSpan out{more.response, out_bytes + driver_out_bytes};
    *call = {.core_in = {rest.address, in_bytes},
             .driver_in = rest.from(in_bytes),
             .core_out = {out.address, out_bytes},
             .driver_out = out.from(out_bytes)};
    return 0;
}

/// Where libmlx5 maps it: a command for mmap(2), and no index behind it.
constexpr std::size_t kClockOffset = std::size_t{MLX5_IB_MMAP_CLOCK_INFO} << 20;

/// Timestamps are nanoseconds of the device's clock; the page says what time of day `now` is.
/// False: it cannot be written.
bool write_clock_page(int memfd, Time now) {
    timespec day{};
    ::clock_gettime(CLOCK_REALTIME, &day);
    mlx5_ib_clock_info page{};
    page.nsec = static_cast<Time>(day.tv_sec) * 1'000'000'000 + static_cast<Time>(day.tv_nsec);
    page.cycles = now;
    page.mult = 1;
    page.mask = UINT64_MAX;
    page.overflow_period = UINT64_MAX;
    return ::pwrite(memfd, &page, sizeof page, off_t{kClockOffset}) == ssize_t{sizeof page};
}

template <typename T>
void remove_from(Context& context, HandleTable<T>& table) {
    table.for_each([&](std::uint32_t, T& object) { static_cast<void>(context.remove(object)); });
    table.clear();
}

}  // namespace

const Command* find_command(std::uint32_t command) {
    const unsigned number = command & IB_USER_VERBS_CMD_COMMAND_MASK;
    return (command & IB_USER_VERBS_CMD_FLAG_EXTENDED) != 0 ? find(kExtended, number)
                                                            : find(kPlain, number);
}

bool is_end(const Command& command) {
    constexpr std::array kEnds = {dealloc_pd, dereg_mr,   destroy_ah,
                                  destroy_cq, destroy_qp, destroy_srq};
    return std::find(kEnds.begin(), kEnds.end(), command.run) != kEnds.end();
}

Context::Context(Engine& engine_, Poller& poller_, const DeviceConfig& reported_)
    : engine(engine_), poller(poller_), reported(reported_), process_(::getpid()) {
    const auto guard = engine.lock();
    engine.add(*this);
}

Context::~Context() {
    if (is_inherited())
        return;  // what the tables hold is the child's copy of the memory, and nobody else's
    const auto guard = engine.lock();
    engine.remove(*this);
    if (doorbells_)
        poller.trap().unwatch(doorbells_.get());
    remove_all();
}

void Context::remove_all() {
    remove_from(*this, qps);
    remove_from(*this, srqs);
    remove_from(*this, cqs);
    remove_from(*this, mkeys);
    remove_from(*this, mrs);
    remove_from(*this, ahs);
    remove_from(*this, pds);
}

bool Context::is_inherited() const {
    return ::getpid() != process_;
}

void Context::watch_doorbells(ucs::UniqueFd doorbells, std::size_t bytes) {
    const auto guard = engine.lock();
    doorbells_ = std::move(doorbells);
    has_clock_page = write_clock_page(doorbells_.get(), engine.now());
    poller.trap().watch(doorbells_.get(), bytes,
                        has_clock_page ? kClockOffset : DoorbellTrap::kNoPage);
}

std::int64_t Context::write(const void* bytes, std::size_t count) {
    int error = EIO;
    if (!is_inherited()) {
        try {
            error = run(bytes, count);
        } catch (const std::bad_alloc&) {
            error = ENOMEM;
        }
    }
    if (error != 0) {
        errno = error;
        return -1;
    }
    return static_cast<std::int64_t>(count);
}

int Context::run(const void* bytes, std::size_t count) {
    const UserSpan all{reinterpret_cast<std::uint64_t>(bytes), count};
    ib_uverbs_cmd_hdr header;
    if (count < sizeof header)
        return EINVAL;
    if (const int error = read_user(all, &header))
        return error;
    constexpr std::uint32_t kKnown =
        IB_USER_VERBS_CMD_FLAG_EXTENDED | std::uint32_t{IB_USER_VERBS_CMD_COMMAND_MASK};
    if ((header.command & ~kKnown) != 0)
        return EINVAL;
    const bool is_extended = (header.command & IB_USER_VERBS_CMD_FLAG_EXTENDED) != 0;
    const Command* command = find_command(header.command);
    if (command == nullptr)
        return EOPNOTSUPP;
    Call call;
    const UserSpan rest = all.from(sizeof header);
    if (const int error = is_extended ? take_apart_extended(*command, header, rest, &call)
                                      : take_apart(*command, header, rest, &call)) {
        return error;
    }
    const auto guard = engine.lock();
    const bool is_first = command->run == get_context;
    if (is_first == (async_pipe != nullptr))
        return EINVAL;
    if (engine.device().is_dead() && !is_end(*command))
        return EIO;
    return command->run(*this, call);
}

}  // namespace tagwire::vhca::driver
