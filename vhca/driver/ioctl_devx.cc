// SPDX-License-Identifier: BSD-3-Clause
// Methods of DEVX: commands of the device, and pages that they name.
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <cerrno>
#include <vector>

#include "vhca/driver/devx_commands.hpp"
#include "vhca/driver/ioctl_methods.hpp"
#include "vhca/driver/prm.hpp"
#include "vhca/setup/attach.hpp"
#include "vhca/setup/describe.hpp"

namespace tagwire::vhca::driver {
namespace {

using namespace attribute;

/// Reads the command, runs it, and answers, also when the device refused.
template <typename Run>
int run_command(IoctlCall& call, std::uint16_t in_id, std::uint16_t out_id, const Run& run) {
    const UserSpan in = call.memory(in_id);
    std::vector<std::byte> command(in.bytes), reply(call.memory(out_id).bytes);
    if (!copy_in(command.data(), reinterpret_cast<const void*>(in.address), in.bytes))
        return EFAULT;
    const int error = run(DevxCommand{command, reply});
    if (error != 0 && error != EREMOTEIO)
        return error;
    const int answered = call.write(out_id, reply.data(), reply.size());
    return answered != 0 ? answered : error;
}

constexpr std::array kOther = {
    in_from(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, prm::kCommandBytesMin),
    out_from(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, prm::kCommandBytesMin),
};
int other(Context& context, IoctlCall& call) {
    return run_command(call, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT,
                       [&](const DevxCommand& command) { return devx_general(context, command); });
}

constexpr std::array kQueryUar = {
    in(MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX, sizeof(std::uint32_t)),
    out(MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, sizeof(std::uint32_t)),
};
/// The index that the program has is the device's.
int query_uar(Context& context, IoctlCall& call) {
    std::uint32_t page = 0;
    if (const int error = call.read(MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX, &page))
        return error;
    return has_doorbell_page(context, page) ? call.write(MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, page)
                                            : EINVAL;
}

constexpr std::array kQueryEqn = {
    in(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, sizeof(std::uint32_t)),
    out(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, sizeof(std::uint32_t)),
};
int query_eqn(Context& /*context*/, IoctlCall& call) {
    std::uint32_t vector = 0;
    if (const int error = call.read(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, &vector))
        return error;
    return vector < kCompVectors ? call.write(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, vector + 1)
                                 : EINVAL;
}

// ---- Pages

constexpr std::array kUmemReg = {
    created(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, MLX5_IB_OBJECT_DEVX_UMEM),
    in(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, sizeof(std::uint64_t)),
    in(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, sizeof(std::uint64_t)),
    flags(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS),
    flags(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP),
    out(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, sizeof(std::uint32_t)),
};
int umem_reg(Context& context, IoctlCall& call) {
    constexpr std::uint64_t kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING;
    std::uint64_t rights = 0;
    if (const int error = call.read_flags(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, kRights, &rights))
        return error;
    const std::uint64_t address = call.value(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR);
    const std::uint64_t bytes = call.value(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN);
    if (bytes == 0 || address + bytes < address)
        return EINVAL;
    auto made = std::make_unique<UmemObject>(UmemObject{.address = address, .bytes = bytes});
    if (const int error = pin(reinterpret_cast<const void*>(address), bytes,
                              static_cast<unsigned>(rights), &made->pinned)) {
        return error;
    }
    const std::uint32_t handle = context.umems.add(std::move(made));
    int error = call.tell(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, handle);
    if (error == 0)
        error = call.write(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, handle);
    if (error != 0)
        static_cast<void>(context.umems.take(handle));
    return error;
}

constexpr std::array kUmemDereg = {
    doomed(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, MLX5_IB_OBJECT_DEVX_UMEM),
};
/// Firmware keeps pages that something was made in.
int umem_dereg(Context& context, IoctlCall& call) {
    const std::uint32_t handle = call.handle(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE);
    if (context.umems.find(handle)->users != 0)
        return EBUSY;
    static_cast<void>(context.umems.take(handle));
    return 0;
}

// ---- Objects

constexpr std::array kCreate = {
    created(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, MLX5_IB_OBJECT_DEVX_OBJ),
    in_from(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, prm::kCommandBytesMin),
    out_from(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, prm::kCommandBytesMin),
};
/// `change`: of the number of users.
void count_in_umems(const Context& context, const DevxObject& object, int change) {
    for (const std::uint32_t handle : object.umems)
        if (UmemObject* umem = context.umems.find(handle))
            umem->users += static_cast<std::uint32_t>(change);
}

int create(Context& context, IoctlCall& call) {
    DevxObject object;
    bool is_made = false;
    int error = run_command(call, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN,
                            MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, [&](const DevxCommand& command) {
                                const int failed = devx_create(context, command, &object);
                                is_made = failed == 0;
                                return failed;
                            });
    if (!is_made)
        return error;
    count_in_umems(context, object, 1);
    const std::uint32_t handle = context.devx_objects.add(std::make_unique<DevxObject>(object));
    if (error == 0)
        error = call.tell(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, handle);
    if (error != 0) {
        static_cast<void>(devx_destroy(context, object));
        count_in_umems(context, object, -1);
        static_cast<void>(context.devx_objects.take(handle));
    }
    return error;
}

constexpr std::array kDestroyObject = {
    doomed(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, MLX5_IB_OBJECT_DEVX_OBJ),
};
int destroy(Context& context, IoctlCall& call) {
    const std::uint32_t handle = call.handle(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE);
    const DevxObject& object = *context.devx_objects.find(handle);
    const int error = devx_destroy(context, object);
    if (error == 0 || error == ENOENT) {
        count_in_umems(context, object, -1);
        static_cast<void>(context.devx_objects.take(handle));
        return 0;
    }
    return EREMOTEIO;
}

/// Queue pairs of verbs can be named as well: those by the number that the command has. False:
/// there is no such object.
bool find_object(const Context& context, IoctlCall& call, std::uint16_t handle_id,
                 const DevxCommand& command, DevxObject* object_p) {
    const std::uint32_t handle = call.handle(handle_id);
    const auto number = static_cast<std::uint32_t>(prm::get(command.in, prm::kNumber));
    const DevxObject* object = context.devx_objects.find(handle);
    if (object != nullptr && object->number == number) {
        *object_p = *object;
        return true;
    }
    const QpObject* qp = context.qps.find(handle);
    if (qp == nullptr || qp->is_devx || qp->core->number() != number)
        return false;
    *object_p = {.kind = DevxObject::Kind::kQp, .handle = handle, .number = number};
    return true;
}

constexpr std::array kModify = {
    object(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, kAnyObject),
    in_from(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, prm::kCommandBytesMin),
    out_from(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, prm::kCommandBytesMin),
};
int modify(Context& context, IoctlCall& call) {
    return run_command(call, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN,
                       MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, [&](const DevxCommand& command) {
                           DevxObject object;
                           return find_object(context, call, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE,
                                              command, &object)
                                      ? devx_modify(context, command, object)
                                      : EINVAL;
                       });
}

constexpr std::array kQuery = {
    object(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, kAnyObject),
    in_from(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, prm::kCommandBytesMin),
    out_from(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, prm::kCommandBytesMin),
};
int query(Context& context, IoctlCall& call) {
    return run_command(call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN,
                       MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, [&](const DevxCommand& command) {
                           DevxObject object;
                           return find_object(context, call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE,
                                              command, &object)
                                      ? devx_query(context, command, object)
                                      : EINVAL;
                       });
}

// ---- Queries that are answered by a descriptor

constexpr std::array kCommandFd = {
    new_fd(MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE, MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD),
};
int alloc_command_fd(Context& context, IoctlCall& call) {
    return give_devx_pipe(context, call, MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE,
                          DevxPipe::Kind::kReplies);
}

constexpr std::array kQueryAsync = {
    object(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, kAnyObject),
    in_from(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, prm::kCommandBytesMin),
    constant(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN),
    AttributeSpec{MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, AttributeSpec::Kind::kFd, true,
                  MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD},
    in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, sizeof(std::uint64_t)),
};
/// The device answers at once: what it says, its refusals too, waits in the descriptor.
int query_async(Context& context, IoctlCall& call) {
    constexpr std::uint64_t kReplyBytesMax = UINT16_MAX;
    const UserSpan in = call.memory(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN);
    const std::uint64_t reply_bytes = call.value(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN);
    const auto pipe = find_devx_pipe(context, call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD,
                                     DevxPipe::Kind::kReplies);
    if (pipe == nullptr)
        return EBADF;
    if (reply_bytes < prm::kCommandBytesMin || reply_bytes > kReplyBytesMax)
        return EINVAL;
    std::vector<std::byte> command(in.bytes);
    if (!copy_in(command.data(), reinterpret_cast<const void*>(in.address), in.bytes))
        return EFAULT;
    const std::uint64_t name = call.value(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID);
    std::vector<std::byte> record(sizeof name + reply_bytes);
    std::memcpy(record.data(), &name, sizeof name);
    const DevxCommand asked{command, std::span(record).subspan(sizeof name)};
    DevxObject object;
    if (!find_object(context, call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, asked, &object))
        return EINVAL;
    const int error = devx_query(context, asked, object);
    if (error != 0 && error != EREMOTEIO)
        return error;
    return pipe->events->try_push(record) ? 0 : EAGAIN;  // nobody reads
}

constexpr std::array kDevxMethods = {
    IoctlMethod{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, kOther, other},
    IoctlMethod{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_UAR, kQueryUar, query_uar},
    IoctlMethod{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, kQueryEqn, query_eqn},
    IoctlMethod{MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG, kUmemReg, umem_reg},
    IoctlMethod{MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, kUmemDereg, umem_dereg},
    IoctlMethod{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, kCreate, create},
    IoctlMethod{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, kDestroyObject, destroy},
    IoctlMethod{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, kModify, modify},
    IoctlMethod{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, kQuery, query},
    IoctlMethod{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY, kQueryAsync,
                query_async},
    IoctlMethod{MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC,
                kCommandFd, alloc_command_fd},
};

}  // namespace

std::span<const IoctlMethod> devx_methods() {
    return kDevxMethods;
}

}  // namespace tagwire::vhca::driver
