// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/driver/ioctl_methods.hpp"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace tagwire::vhca::driver {
namespace {

using Kind = AttributeSpec::Kind;

std::vector<IoctlMethod> join(std::initializer_list<std::span<const IoctlMethod>> parts) {
    std::vector<IoctlMethod> all;
    for (const auto part : parts)
        all.insert(all.end(), part.begin(), part.end());
    return all;
}

/// An object that DEVX made has another handle.
template <typename T>
bool is_of_verbs(const T* object) {
    return object != nullptr && !object->is_devx;
}

bool exists(const Context& context, std::uint16_t object, std::uint32_t handle) {
    switch (object) {
        case UVERBS_OBJECT_PD:
            return context.pds.find(handle) != nullptr;
        case UVERBS_OBJECT_CQ:
            return is_of_verbs(context.cqs.find(handle));
        case UVERBS_OBJECT_QP:
            return is_of_verbs(context.qps.find(handle));
        case UVERBS_OBJECT_SRQ:
            return is_of_verbs(context.srqs.find(handle));
        case UVERBS_OBJECT_AH:
            return context.ahs.find(handle) != nullptr;
        case UVERBS_OBJECT_MR:
            return context.mrs.find(handle) != nullptr;
        case MLX5_IB_OBJECT_UAR:
            return context.uars.find(handle) != nullptr;
        case MLX5_IB_OBJECT_DEVX_UMEM:
            return context.umems.find(handle) != nullptr;
        case MLX5_IB_OBJECT_DEVX_OBJ:
            return context.devx_objects.find(handle) != nullptr;
        default:
            return object == kAnyObject;
    }
}

int check_objects(const Context& context, const IoctlCall& call) {
    for (const IoctlCall::Attribute& attribute : call.attributes()) {
        const bool is_used =
            attribute.spec.kind == Kind::kObject || attribute.spec.kind == Kind::kDoomed;
        if (is_used &&
            !exists(context, attribute.spec.object, static_cast<std::uint32_t>(attribute.data))) {
            return ENOENT;
        }
    }
    return 0;
}

/// All but these need what GET_CONTEXT makes.
bool is_first(const IoctlMethod& method) {
    return method.object == UVERBS_OBJECT_DEVICE && (method.number == UVERBS_METHOD_INVOKE_WRITE ||
                                                     method.number == UVERBS_METHOD_GET_CONTEXT);
}

/// A dead device still destroys; a command of the write form is looked at by itself.
bool outlives_device(const IoctlMethod& method) {
    const auto dooms = [](const AttributeSpec& spec) { return spec.kind == Kind::kDoomed; };
    return std::any_of(method.attributes.begin(), method.attributes.end(), dooms) ||
           (method.object == UVERBS_OBJECT_DEVICE && method.number == UVERBS_METHOD_INVOKE_WRITE);
}

}  // namespace

int run_ioctl(Context& context, const void* argument) {
    static const auto plain = join({device_methods(), object_methods(), uar_methods()});
    static const auto with_devx = join({plain, devx_methods(), devx_event_methods()});
    IoctlCall call;
    if (const int error = decode(argument, context.has_devx ? with_devx : plain, &call))
        return error;
    const auto guard = context.engine.lock();
    if (context.async_pipe == nullptr && !is_first(call.method()))
        return EINVAL;
    if (context.engine.device().is_dead() && !outlives_device(call.method()))
        return EIO;
    if (const int error = check_objects(context, call))
        return error;
    int error = call.method().run(context, call);
    if (error == 0 && call.has(UVERBS_ATTR_UHW_OUT))
        error = call.mark_valid(UVERBS_ATTR_UHW_OUT);
    // It says that the ioctl form lacks something, and programs would try the write form.
    return error == EPROTONOSUPPORT ? EINVAL : error;
}

int Context::ioctl(unsigned long request, void* argument) {
    int error = ENOTTY;
    if (has_ioctl && request == RDMA_VERBS_IOCTL) {
        try {
            error = is_inherited() ? EIO : run_ioctl(*this, argument);
        } catch (const std::bad_alloc&) {
            error = ENOMEM;
        }
    }
    if (error != 0) {
        errno = error;
        return -1;
    }
    return 0;
}

}  // namespace tagwire::vhca::driver
