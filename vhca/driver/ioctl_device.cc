// SPDX-License-Identifier: BSD-3-Clause
// Methods of the device: any command of the write form, the context, the port and its addresses,
// and the descriptor of asynchronous events.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "vhca/driver/ioctl_methods.hpp"
#include "vhca/setup/attach.hpp"
#include "vhca/setup/describe.hpp"

namespace tagwire::vhca::driver {
namespace {

using namespace attribute;

/// None of what IB_UVERBS_CORE_SUPPORT_* names needs to be left out by the library: unknown rights
/// that are optional are ignored.
constexpr std::uint64_t kCoreSupport = IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS;

constexpr std::array kInvokeWrite = {
    constant(UVERBS_ATTR_WRITE_CMD),
    in_from(UVERBS_ATTR_CORE_IN, sizeof(std::uint32_t), false),
    out_from(UVERBS_ATTR_CORE_OUT, 0, false),
};

int invoke_write(Context& context, IoctlCall& call) {
    const std::uint64_t number = call.value(UVERBS_ATTR_WRITE_CMD);
    constexpr std::uint32_t kKnown =
        IB_USER_VERBS_CMD_FLAG_EXTENDED | std::uint32_t{IB_USER_VERBS_CMD_COMMAND_MASK};
    if ((number & ~std::uint64_t{kKnown}) != 0)
        return EINVAL;
    const Command* command = find_command(static_cast<std::uint32_t>(number));
    if (command == nullptr)
        return EOPNOTSUPP;
    const Call inner{.core_in = call.memory(UVERBS_ATTR_CORE_IN),
                     .driver_in = call.memory(UVERBS_ATTR_UHW_IN),
                     .core_out = call.memory(UVERBS_ATTR_CORE_OUT),
                     .driver_out = call.memory(UVERBS_ATTR_UHW_OUT)};
    if (inner.core_in.bytes < command->in_bytes || inner.core_out.bytes < command->out_bytes)
        return ENOSPC;
    if ((command->run == get_context) == (context.async_pipe != nullptr))
        return EINVAL;
    if (context.engine.device().is_dead() && !is_end(*command))
        return EIO;
    if (const int error = command->run(context, inner))
        return error;
    return call.has(UVERBS_ATTR_CORE_OUT) ? call.mark_valid(UVERBS_ATTR_CORE_OUT) : 0;
}

constexpr std::array kGetContext = {
    out(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, sizeof(std::uint32_t), false),
    out(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, sizeof(std::uint64_t), false),
};

/// As the command, but that the events' descriptor is told by ASYNC_EVENT_ALLOC.
int get_context_by_ioctl(Context& context, IoctlCall& call) {
    if (context.async_pipe != nullptr)
        return EINVAL;
    if (const int error = call.write_if_asked(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS,
                                              std::uint32_t{kCompVectors})) {
        return error;
    }
    if (const int error = call.write_if_asked(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, kCoreSupport))
        return error;
    ib_uverbs_get_context request{};
    ib_uverbs_get_context_resp response{};
    const int error = get_context(context, call_of(call, request, response));
    if (error == 0)
        context.untold_async_fd.reset(static_cast<int>(response.async_fd));
    return error;
}

constexpr std::array kQueryContext = {
    out(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, sizeof(std::uint32_t), false),
    out(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, sizeof(std::uint64_t), false),
    out_struct(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX,
               offsetof(mlx5_ib_alloc_ucontext_resp, dump_fill_mkey),
               sizeof(mlx5_ib_alloc_ucontext_resp)),
};

/// For who got the descriptor of a context from somebody else.
int query_context(Context& context, IoctlCall& call) {
    if (const int error = call.write_if_asked(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS,
                                              std::uint32_t{kCompVectors})) {
        return error;
    }
    if (const int error = call.write_if_asked(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, kCoreSupport))
        return error;
    const mlx5_ib_alloc_ucontext_resp facts =
        driver_facts(context, call.memory(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX), context.bfregs);
    return call.write_or_zero(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, &facts, sizeof facts);
}

constexpr std::array kQueryPort = {
    constant(UVERBS_ATTR_QUERY_PORT_PORT_NUM),
    out_struct(UVERBS_ATTR_QUERY_PORT_RESP, sizeof(ib_uverbs_query_port_resp_ex),
               sizeof(ib_uverbs_query_port_resp_ex)),
};

int query_port_by_ioctl(Context& context, IoctlCall& call) {
    const std::uint64_t port = call.value(UVERBS_ATTR_QUERY_PORT_PORT_NUM);
    if (port > UINT8_MAX)
        return EINVAL;
    ib_uverbs_query_port request{};
    request.port_num = static_cast<std::uint8_t>(port);
    ib_uverbs_query_port_resp_ex response{};
    if (const int error = query_port(context, call_of(call, request, response.legacy_resp)))
        return error;
    return call.write_or_zero(UVERBS_ATTR_QUERY_PORT_RESP, &response, sizeof response);
}

constexpr std::array kInfoHandles = {
    constant(UVERBS_ATTR_INFO_OBJECT_ID),
    out(UVERBS_ATTR_INFO_TOTAL_HANDLES, sizeof(std::uint32_t), false),
    out_from(UVERBS_ATTR_INFO_HANDLES_LIST, sizeof(std::uint32_t), false),
};

template <typename T>
std::vector<std::uint32_t> handles_in(const HandleTable<T>& table) {
    std::vector<std::uint32_t> handles;
    table.for_each([&](std::uint32_t handle, const T&) { handles.push_back(handle); });
    return handles;
}

int info_handles(Context& context, IoctlCall& call) {
    const std::size_t bytes = call.memory(UVERBS_ATTR_INFO_HANDLES_LIST).bytes;
    if (bytes == 0 || bytes % sizeof(std::uint32_t) != 0)
        return EINVAL;
    std::vector<std::uint32_t> handles;
    switch (call.value(UVERBS_ATTR_INFO_OBJECT_ID)) {
        case UVERBS_OBJECT_PD:
            handles = handles_in(context.pds);
            break;
        case UVERBS_OBJECT_CQ:
            handles = handles_in(context.cqs);
            break;
        case UVERBS_OBJECT_QP:
            handles = handles_in(context.qps);
            break;
        case UVERBS_OBJECT_SRQ:
            handles = handles_in(context.srqs);
            break;
        case UVERBS_OBJECT_AH:
            handles = handles_in(context.ahs);
            break;
        case UVERBS_OBJECT_MR:
            handles = handles_in(context.mrs);
            break;
        case UVERBS_OBJECT_COMP_CHANNEL:
        case UVERBS_OBJECT_ASYNC_EVENT:
            break;  // descriptors are not listed
        default:
            return EINVAL;
    }
    handles.resize(std::min(handles.size(), bytes / sizeof(std::uint32_t)));
    if (const int error = call.write(UVERBS_ATTR_INFO_HANDLES_LIST, handles.data(),
                                     handles.size() * sizeof(std::uint32_t))) {
        return error;
    }
    return call.write_if_asked(UVERBS_ATTR_INFO_TOTAL_HANDLES,
                               static_cast<std::uint32_t>(handles.size()));
}

// ---- The GID table: the port that carries packets has one entry.

ib_uverbs_gid_entry gid_entry(Context& context) {
    const ibv_gid gid = context.engine.port().gid();
    ib_uverbs_gid_entry entry{};
    std::memcpy(entry.gid, gid.raw, sizeof entry.gid);
    entry.port_num = 1;
    entry.gid_type =
        context.engine.port().is_ethernet() ? IB_UVERBS_GID_TYPE_ROCE_V2 : IB_UVERBS_GID_TYPE_IB;
    return entry;
}

constexpr std::array kQueryGidTable = {
    constant(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE),
    AttributeSpec{UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, AttributeSpec::Kind::kIn, false, 0, 4, 8},
    out_from(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, 0),
    out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, sizeof(std::uint64_t)),
};

int query_gid_table(Context& context, IoctlCall& call) {
    std::uint64_t flags = 0;
    if (const int error = call.read_flags(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, 0, &flags))
        return error;
    const std::uint64_t entry_bytes = call.value(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE);
    const std::size_t bytes = call.memory(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES).bytes;
    if (entry_bytes == 0 || entry_bytes > bytes)
        return EINVAL;
    std::vector<std::byte> entry(entry_bytes);
    const ib_uverbs_gid_entry known = gid_entry(context);
    std::memcpy(entry.data(), &known, std::min(sizeof known, entry.size()));
    if (const int error =
            call.write(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, entry.data(), entry.size())) {
        return error;
    }
    return call.write(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, std::uint64_t{1});
}

constexpr std::array kQueryGidEntry = {
    constant(UVERBS_ATTR_QUERY_GID_ENTRY_PORT),
    constant(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX),
    AttributeSpec{UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, AttributeSpec::Kind::kIn, true, 0, 4, 8},
    out_struct(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, sizeof(ib_uverbs_gid_entry),
               sizeof(ib_uverbs_gid_entry)),
};

int query_gid_entry(Context& context, IoctlCall& call) {
    std::uint64_t flags = 0;
    if (const int error = call.read_flags(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0, &flags))
        return error;
    const std::uint64_t port = call.value(UVERBS_ATTR_QUERY_GID_ENTRY_PORT);
    const std::uint64_t index = call.value(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX);
    if (port > UINT32_MAX || !is_port(context.engine, static_cast<unsigned>(port)) ||
        index >= context.engine.device().config().gids) {
        return EINVAL;
    }
    if (port != 1 || index != 0)
        return ENODATA;
    const ib_uverbs_gid_entry entry = gid_entry(context);
    return call.write_or_zero(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, &entry, sizeof entry);
}

constexpr std::array kAsyncEventAlloc = {
    new_fd(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, UVERBS_OBJECT_ASYNC_EVENT),
};

/// The first one has the events of the context. Another has the same: who imports a context, and
/// who made it, read from one queue.
int async_event_alloc(Context& context, IoctlCall& call) {
    ucs::UniqueFd fd = std::move(context.untold_async_fd);
    if (!fd) {
        fd.reset(context.async_pipe->duplicate());
        if (!fd)
            return errno;
    }
    if (const int error = call.tell(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE,
                                    static_cast<std::uint64_t>(fd.get()))) {
        return error;
    }
    static_cast<void>(fd.release());
    return 0;
}

constexpr std::array kDeviceMethods = {
    IoctlMethod{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, kInvokeWrite, invoke_write, true},
    IoctlMethod{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES, kInfoHandles, info_handles},
    IoctlMethod{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, kQueryPort, query_port_by_ioctl},
    IoctlMethod{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, kGetContext, get_context_by_ioctl,
                true},
    IoctlMethod{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT, kQueryContext, query_context},
    IoctlMethod{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, kQueryGidTable,
                query_gid_table},
    IoctlMethod{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, kQueryGidEntry,
                query_gid_entry},
    IoctlMethod{UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, kAsyncEventAlloc,
                async_event_alloc},
};

}  // namespace

std::span<const IoctlMethod> device_methods() {
    return kDeviceMethods;
}

}  // namespace tagwire::vhca::driver
