// SPDX-License-Identifier: BSD-3-Clause
// Doorbell pages that programs ask for one by one. Each is a page of the device's file, behind
// those of the write form; what is rung there is a hint, so a page is nothing but its place.
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <unistd.h>

#include <cerrno>

#include "vhca/driver/ioctl_methods.hpp"

namespace tagwire::vhca::driver {
namespace {

using namespace attribute;

constexpr std::uint32_t kFirstPage = 0x1000;  // of the file: below are those of the write form
constexpr std::uint32_t kPagesMax = 1024;     // of a context
static_assert(kFirstPage > 0x8ff, "the write form has nine kinds of 256 pages");

constexpr std::array kAlloc = {
    created(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, MLX5_IB_OBJECT_UAR),
    constant(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE),
    out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, sizeof(std::uint64_t)),
    out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, sizeof(std::uint32_t)),
    out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, sizeof(std::uint32_t)),
};
constexpr std::array kDestroyUar = {
    doomed(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, MLX5_IB_OBJECT_UAR),
};

/// The lowest page that nobody has; kPagesMax: all are taken.
std::uint32_t free_page(const Context& context) {
    std::array<bool, kPagesMax> is_taken{};
    context.uars.for_each(
        [&](std::uint32_t, const UarObject& uar) { is_taken[uar.page - kFirstPage] = true; });
    std::uint32_t page = 0;
    while (page < kPagesMax && is_taken[page])
        ++page;
    return page;
}

int alloc_uar(Context& context, IoctlCall& call) {
    const std::uint64_t type = call.value(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE);
    if (type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
        return EOPNOTSUPP;
    const std::uint32_t index = free_page(context);
    if (index == kPagesMax)
        return ENOMEM;
    const std::uint32_t page = kFirstPage + index;
    const auto page_bytes = static_cast<std::uint32_t>(sysconf(_SC_PAGESIZE));
    const std::uint32_t handle = context.uars.add(std::make_unique<UarObject>(UarObject{page}));
    int error = call.tell(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, handle);
    if (error == 0) {
        error =
            call.write(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, std::uint64_t{page} * page_bytes);
    }
    if (error == 0)
        error = call.write(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, page_bytes);
    if (error == 0)
        error = call.write(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, page);
    if (error != 0)
        static_cast<void>(context.uars.take(handle));
    return error;
}

int destroy_uar(Context& context, IoctlCall& call) {
    static_cast<void>(context.uars.take(call.handle(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE)));
    return 0;
}

constexpr std::array kUarMethods = {
    IoctlMethod{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, kAlloc, alloc_uar},
    IoctlMethod{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, kDestroyUar, destroy_uar},
};

}  // namespace

bool has_doorbell_page(const Context& context, std::uint32_t page) {
    bool has_it = false;
    context.uars.for_each(
        [&](std::uint32_t, const UarObject& uar) { has_it = has_it || uar.page == page; });
    return has_it;
}

std::span<const IoctlMethod> uar_methods() {
    return kUarMethods;
}

}  // namespace tagwire::vhca::driver
