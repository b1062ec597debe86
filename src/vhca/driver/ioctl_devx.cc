// SPDX-License-Identifier: BSD-3-Clause
// Methods of DEVX: commands of the device, pages that they name, and descriptors of their events.
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <sys/stat.h>
#include <unistd.h>

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
    if (!copy_in(command.data(), reinterpret_cast<const void*>(in.address), in.bytes)) {
        return EFAULT;
    }
    const int error = run(DevxCommand{command, reply});
    if (error != 0 && error != EREMOTEIO) {
        return error;
    }
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
    if (const int error = call.read(MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX, &page)) {
        return error;
    }
    return has_doorbell_page(context, page) ? call.write(MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, page)
                                            : EINVAL;
}

constexpr std::array kQueryEqn = {
    in(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, sizeof(std::uint32_t)),
    out(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, sizeof(std::uint32_t)),
};
int query_eqn(Context& /*context*/, IoctlCall& call) {
    std::uint32_t vector = 0;
    if (const int error = call.read(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, &vector)) {
        return error;
    }
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
    if (const int error = call.read_flags(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, kRights, &rights)) {
        return error;
    }
    const std::uint64_t address = call.value(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR);
    const std::uint64_t bytes = call.value(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN);
    if (bytes == 0 || address + bytes < address) {
        return EINVAL;
    }
    if (!is_mapped(reinterpret_cast<const void*>(address), bytes)) {
        return EFAULT;
    }
    const std::uint32_t handle =
        context.umems.add(std::make_unique<UmemObject>(UmemObject{address, bytes}));
    int error = call.tell(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, handle);
    if (error == 0) {
        error = call.write(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, handle);
    }
    if (error != 0) {
        static_cast<void>(context.umems.take(handle));
    }
    return error;
}

constexpr std::array kUmemDereg = {
    doomed(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, MLX5_IB_OBJECT_DEVX_UMEM),
};
int umem_dereg(Context& context, IoctlCall& call) {
    static_cast<void>(context.umems.take(call.handle(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE)));
    return 0;
}

// ---- Objects

constexpr std::array kCreate = {
    created(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, MLX5_IB_OBJECT_DEVX_OBJ),
    in_from(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, prm::kCommandBytesMin),
    out_from(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, prm::kCommandBytesMin),
};
int create(Context& context, IoctlCall& call) {
    DevxObject object;
    bool is_made = false;
    int error = run_command(call, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN,
                            MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, [&](const DevxCommand& command) {
                                const int failed = devx_create(context, command, &object);
                                is_made = failed == 0;
                                return failed;
                            });
    if (!is_made) {
        return error;
    }
    const std::uint32_t handle = context.devx_objects.add(std::make_unique<DevxObject>(object));
    if (error == 0) {
        error = call.tell(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, handle);
    }
    if (error != 0) {
        static_cast<void>(devx_destroy(context, object));
        static_cast<void>(context.devx_objects.take(handle));
    }
    return error;
}

constexpr std::array kDestroy = {
    doomed(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, MLX5_IB_OBJECT_DEVX_OBJ),
};
int destroy(Context& context, IoctlCall& call) {
    const std::uint32_t handle = call.handle(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE);
    const int error = devx_destroy(context, *context.devx_objects.find(handle));
    if (error == 0 || error == ENOENT) {
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
    if (qp == nullptr || qp->is_devx || qp->core->number() != number) {
        return false;
    }
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

// ---- Events

std::uint64_t inode_of(int fd) {
    struct stat facts {};
    return ::fstat(fd, &facts) == 0 ? facts.st_ino : 0;
}

/// Pipes that the program closed, and nothing tells of events to.
void drop_closed(Context& context) {
    std::erase_if(context.devx_pipes, [&context](const auto& item) {
        const EventPipe* pipe = item.second.get();
        bool is_used = inode_of(pipe->program_fd()) == item.first;
        context.cqs.for_each([&](std::uint32_t, const CqObject& cq) {
            is_used = is_used || cq.ring->channel() == pipe;
        });
        context.qps.for_each([&](std::uint32_t, const QpObject& qp) {
            is_used = is_used || qp.last_receive_pipe == pipe;
        });
        return !is_used;
    });
}

constexpr std::array kEventFd = {
    new_fd(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD),
    AttributeSpec{MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, AttributeSpec::Kind::kIn, true, 0,
                  4, 8},
};
/// Events are a cookie and, if the program wants it, an entry of an event queue, which there is
/// not.
int alloc_event_fd(Context& context, IoctlCall& call) {
    constexpr std::uint64_t kOmitsData = MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA;
    std::uint64_t flags = 0;
    if (const int error =
            call.read_flags(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, kOmitsData, &flags)) {
        return error;
    }
    if (flags != kOmitsData) {
        return EOPNOTSUPP;
    }
    drop_closed(context);
    auto pipe = EventPipe::create(sizeof(mlx5_ib_uapi_devx_async_event_hdr));
    if (pipe == nullptr) {
        return errno;
    }
    ucs::UniqueFd fd(pipe->program_fd());
    if (const int error = call.tell(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE,
                                    static_cast<std::uint64_t>(fd.get()))) {
        return error;
    }
    context.devx_pipes[inode_of(fd.release())] = std::move(pipe);
    return 0;
}

constexpr std::array kSubscribe = {
    AttributeSpec{MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, AttributeSpec::Kind::kFd, true,
                  MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD},
    object(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, MLX5_IB_OBJECT_DEVX_OBJ, false),
    in_from(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, sizeof(std::uint16_t)),
    in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, sizeof(std::uint64_t), false),
};
int subscribe(Context& context, IoctlCall& call) {
    constexpr std::uint16_t kCompletion = 0, kLastReceive = 0x13;
    const auto pipe = context.devx_pipes.find(
        inode_of(static_cast<int>(call.value(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE))));
    if (pipe == context.devx_pipes.end()) {
        return EBADF;
    }
    const DevxObject* object =
        context.devx_objects.find(call.handle(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE));
    std::uint16_t event = 0;
    if (call.memory(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST).bytes != sizeof event ||
        object == nullptr) {
        return EOPNOTSUPP;  // one event, of one object
    }
    if (const int error = call.read(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, &event)) {
        return error;
    }
    const std::uint64_t cookie = call.value(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE);
    CqObject* cq =
        object->kind == DevxObject::Kind::kCq ? context.cqs.find(object->handle) : nullptr;
    QpObject* qp =
        object->kind == DevxObject::Kind::kQp ? context.qps.find(object->handle) : nullptr;
    if (cq != nullptr && event == kCompletion) {
        cq->ring->announce_to(pipe->second.get(), cookie);
        return 0;
    }
    if (qp != nullptr && event == kLastReceive) {
        qp->last_receive_pipe = pipe->second.get();
        qp->user_handle = cookie;
        return 0;
    }
    return EINVAL;
}

constexpr std::array kMethods = {
    IoctlMethod{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, kOther, other},
    IoctlMethod{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_UAR, kQueryUar, query_uar},
    IoctlMethod{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, kQueryEqn, query_eqn},
    IoctlMethod{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT, kSubscribe, subscribe},
    IoctlMethod{MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG, kUmemReg, umem_reg},
    IoctlMethod{MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, kUmemDereg, umem_dereg},
    IoctlMethod{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, kCreate, create},
    IoctlMethod{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, kDestroy, destroy},
    IoctlMethod{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, kModify, modify},
    IoctlMethod{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, kQuery, query},
    IoctlMethod{MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC,
                kEventFd, alloc_event_fd},
};

}  // namespace

std::span<const IoctlMethod> devx_methods() {
    return kMethods;
}

}  // namespace tagwire::vhca::driver
