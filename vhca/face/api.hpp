// SPDX-License-Identifier: BSD-3-Clause
// Exports of libtagwire-vhca.so: one function tagwire_vhca_<name> for every function of libibverbs
// and libmlx5 that the virtual device implements, with the same signature and meaning.
//
// The drop-in libraries forward to these; a program that loads this library itself finds them with
// dlsym(). Inline functions of libibverbs (posting, polling, *_ex) work through the context's
// function pointers as with any other provider.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#include <cstddef>
#include <cstdint>

#include "vhca/face/extension.hpp"

#define TW_VHCA_VERBS(X)           \
    X(ibv_get_device_list)         \
    X(ibv_free_device_list)        \
    X(ibv_get_device_name)         \
    X(ibv_get_device_index)        \
    X(ibv_get_device_guid)         \
    X(ibv_open_device)             \
    X(ibv_close_device)            \
    X(ibv_query_device)            \
    X(ibv_query_port)              \
    X(ibv_query_gid)               \
    X(_ibv_query_gid_ex)           \
    X(_ibv_query_gid_table)        \
    X(ibv_query_pkey)              \
    X(ibv_get_pkey_index)          \
    X(ibv_alloc_pd)                \
    X(ibv_dealloc_pd)              \
    X(ibv_reg_mr)                  \
    X(ibv_reg_mr_iova)             \
    X(ibv_reg_mr_iova2)            \
    X(ibv_rereg_mr)                \
    X(ibv_dereg_mr)                \
    X(ibv_create_comp_channel)     \
    X(ibv_destroy_comp_channel)    \
    X(ibv_create_cq)               \
    X(ibv_resize_cq)               \
    X(ibv_destroy_cq)              \
    X(ibv_get_cq_event)            \
    X(ibv_ack_cq_events)           \
    X(ibv_get_async_event)         \
    X(ibv_ack_async_event)         \
    X(ibv_create_srq)              \
    X(ibv_modify_srq)              \
    X(ibv_query_srq)               \
    X(ibv_destroy_srq)             \
    X(ibv_create_qp)               \
    X(ibv_modify_qp)               \
    X(ibv_query_qp)                \
    X(ibv_query_qp_data_in_order)  \
    X(ibv_destroy_qp)              \
    X(ibv_qp_to_qp_ex)             \
    X(ibv_create_ah)               \
    X(ibv_create_ah_from_wc)       \
    X(ibv_init_ah_from_wc)         \
    X(ibv_destroy_ah)              \
    X(ibv_attach_mcast)            \
    X(ibv_detach_mcast)            \
    X(ibv_fork_init)               \
    X(ibv_is_fork_initialized)     \
    X(ibv_node_type_str)           \
    X(ibv_port_state_str)          \
    X(ibv_event_type_str)          \
    X(ibv_wc_status_str)           \
    X(ibv_rate_to_mult)            \
    X(mult_to_ibv_rate)            \
    X(ibv_rate_to_mbps)            \
    X(mbps_to_ibv_rate)            \
    X(ibv_query_ece)               \
    X(ibv_set_ece)                 \
    X(mlx5dv_is_supported)         \
    X(mlx5dv_open_device)          \
    X(mlx5dv_query_device)         \
    X(mlx5dv_create_qp)            \
    X(mlx5dv_qp_ex_from_ibv_qp_ex) \
    X(mlx5dv_dci_stream_id_reset)

#define TW_VHCA_DECLARE(name) [[gnu::visibility("default")]] decltype(::name) tagwire_vhca_##name;

extern "C" {
TW_VHCA_VERBS(TW_VHCA_DECLARE)

// These are in no installed header.
[[gnu::visibility("default")]] const char* tagwire_vhca_ibv_get_sysfs_path(void);
[[gnu::visibility("default")]] int tagwire_vhca_ibv_read_sysfs_file(const char* directory,
                                                                    const char* file, char* out,
                                                                    std::size_t out_bytes);
[[gnu::visibility("default")]] int tagwire_vhca_ibv_query_gid_type(ibv_context* context,
                                                                   std::uint8_t port,
                                                                   unsigned int index, int* type_p);
[[gnu::visibility("default")]] void tagwire_vhca_ibv_copy_ah_attr_from_kern(
    ibv_ah_attr* to, const ib_uverbs_ah_attr* from);
[[gnu::visibility("default")]] void tagwire_vhca_ibv_copy_qp_attr_from_kern(
    ibv_qp_attr* to, const ib_uverbs_qp_attr* from);
[[gnu::visibility("default")]] void tagwire_vhca_ibv_copy_path_rec_from_kern(
    ibv_sa_path_rec* to, const ib_user_path_rec* from);
[[gnu::visibility("default")]] void tagwire_vhca_ibv_copy_path_rec_to_kern(
    ib_user_path_rec* to, const ibv_sa_path_rec* from);
[[gnu::visibility("default")]] int tagwire_vhca_ibv_dontfork_range(void* base, std::size_t bytes);
[[gnu::visibility("default")]] int tagwire_vhca_ibv_dofork_range(void* base, std::size_t bytes);

/// Where the drop-in libraries send what is not implemented: errno and result are EOPNOTSUPP.
[[gnu::visibility("default")]] int tagwire_vhca_unsupported_number(void);
/// The same for functions that return a pointer: errno is EOPNOTSUPP, the result nullptr.
[[gnu::visibility("default")]] void* tagwire_vhca_unsupported_pointer(void);
/// "0.1.0", the version of tagwire that this is.
[[gnu::visibility("default")]] const char* tagwire_vhca_version(void);
/// Tells `take` what `tagwire vhca info` shows, group after group. 0 or an errno value.
[[gnu::visibility("default")]] int tagwire_vhca_describe(
    void (*take)(void* arg, const char* group, const char* name, const char* value), void* arg);

// ---- For the launcher
/// Looks at the options of this process, the variables TAGWIRE_VHCA_*, and makes nothing. 0, or
/// EINVAL: the log says what is wrong.
[[gnu::visibility("default")]] int tagwire_vhca_check_options(void);
/// As tagwire_vhca_inject(), for a device of another process (engine/control.hpp).
[[gnu::visibility("default")]] int tagwire_vhca_order(int process, unsigned device,
                                                      const char* incident);
/// The names of all incidents, separated by ", ".
[[gnu::visibility("default")]] const char* tagwire_vhca_incidents(void);

// ---- /dev/infiniband/rdma_cm, for the library that is preloaded
struct tagwire_vhca_cm;
/// As open(2), with its O_CLOEXEC and O_NONBLOCK: nullptr with errno. The descriptor is the
/// caller's.
[[gnu::visibility("default")]] tagwire_vhca_cm* tagwire_vhca_cm_open(int flags, int* fd_p);
/// As write(2). `find` tells the file behind another descriptor of the program, or nullptr.
[[gnu::visibility("default")]] std::int64_t tagwire_vhca_cm_write(tagwire_vhca_cm* cm,
                                                                  const void* bytes,
                                                                  std::size_t count,
                                                                  tagwire_vhca_cm* (*find)(int fd));
[[gnu::visibility("default")]] void tagwire_vhca_cm_close(tagwire_vhca_cm* cm);
}
