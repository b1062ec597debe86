// SPDX-License-Identifier: BSD-3-Clause
// The commands, one function each, called under the engine's lock, in a context after GET_CONTEXT
// (but for that one). They return errno values; a refused command has changed nothing.
//
// commands_device.cc  the device and its port      commands_qp.cc    queue pairs
// commands_memory.cc  PDs, MRs and AHs             commands_srq.cc   SRQs
// commands_cq.cc      CQs and channels
#pragma once

#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "vhca/driver/call.hpp"
#include "vhca/driver/objects.hpp"

namespace tagwire::vhca::driver {

/// The greatest number that a program may give to a queue pair or an SRQ.
inline constexpr std::uint32_t kUserIndexMax = 0xffffff;

/// A command, whatever form it comes in.
struct Command {
    unsigned number;
    int (*run)(Context& context, const Call& call);
    // Plain command: sizes of the core's structures; extended command: the least that is needed.
    std::size_t in_bytes = 0, out_bytes = 0;
};
/// IB_USER_VERBS_CMD_* or IB_USER_VERBS_EX_CMD_* with its flag. nullptr: there is none.
[[nodiscard]] const Command* find_command(std::uint32_t command);
/// It destroys something: all that a dead device still does.
[[nodiscard]] bool is_end(const Command& command);

int get_context(Context& context, const Call& call);
int query_device(Context& context, const Call& call);
int query_device_ex(Context& context, const Call& call);
int query_port(Context& context, const Call& call);

int alloc_pd(Context& context, const Call& call);
int dealloc_pd(Context& context, const Call& call);
int reg_mr(Context& context, const Call& call);
int rereg_mr(Context& context, const Call& call);
int dereg_mr(Context& context, const Call& call);
int create_ah(Context& context, const Call& call);
int destroy_ah(Context& context, const Call& call);

int create_comp_channel(Context& context, const Call& call);
int create_cq(Context& context, const Call& call);
int create_cq_ex(Context& context, const Call& call);
int resize_cq(Context& context, const Call& call);
int modify_cq_ex(Context& context, const Call& call);
int destroy_cq(Context& context, const Call& call);

int create_qp(Context& context, const Call& call);
int create_qp_ex(Context& context, const Call& call);
int open_qp(Context& context, const Call& call);
int query_qp(Context& context, const Call& call);
int modify_qp(Context& context, const Call& call);
int modify_qp_ex(Context& context, const Call& call);
int destroy_qp(Context& context, const Call& call);
int attach_mcast(Context& context, const Call& call);

int create_srq(Context& context, const Call& call);
int create_xsrq(Context& context, const Call& call);
int modify_srq(Context& context, const Call& call);
int query_srq(Context& context, const Call& call);
int destroy_srq(Context& context, const Call& call);

// ---- Shared by several commands
/// The driver's part of what GET_CONTEXT answers, as far as it fits there.
mlx5_ib_alloc_ucontext_resp driver_facts(const Context& context, UserSpan to, std::uint32_t bfregs);
/// It is one of the pages that this context allocated.
[[nodiscard]] bool has_doorbell_page(const Context& context, std::uint32_t page);
/// The checks of rdma_check_ah_attr() and of the kernel's GID table: EINVAL, ENODATA.
int check_path(Context& context, const ibv_ah_attr& attr);
/// Memory of a ring, and its doorbell record: EFAULT if it is not there, EINVAL if a card could not
/// reach it so.
int check_ring(std::uint64_t address, std::uint64_t bytes, std::uint64_t record);

/// An object of a kind that DEVX makes, too, by a handle that a program gave. nullptr: there is
/// none, or DEVX made it, and then it has no handle for commands of verbs.
template <typename T>
T* find_named(const HandleTable<T>& table, const Call& call, std::uint32_t handle) {
    T* object = table.find(handle);
    return object != nullptr && object->is_devx && !call.is_of_device ? nullptr : object;
}

/// The end of an object. ENOENT: there is none, EBUSY: others use it.
template <typename T>
int end_object(Context& context, HandleTable<T>& table, std::uint32_t handle) {
    T* object = table.find(handle);
    if (object == nullptr)
        return ENOENT;
    const int error = context.remove(*object);
    if (error == 0)
        static_cast<void>(table.take(handle));
    return error;
}

/// `parts` are ib_uverbs_ah_attr's and ib_uverbs_qp_dest's alike but for where the GRH is.
template <typename Parts>
ibv_ah_attr ah_attr_of(const Parts& parts, const std::uint8_t (&dgid)[16],
                       const ibv_global_route& grh) {
    ibv_ah_attr attr{};
    attr.dlid = parts.dlid;
    attr.sl = parts.sl;
    attr.src_path_bits = parts.src_path_bits;
    attr.static_rate = parts.static_rate;
    attr.port_num = parts.port_num;
    if (parts.is_global != 0) {
        attr.is_global = 1;
        attr.grh = grh;
        std::memcpy(attr.grh.dgid.raw, dgid, sizeof dgid);
    }
    return attr;
}

}  // namespace tagwire::vhca::driver
