// SPDX-License-Identifier: BSD-3-Clause
// The parts that a context is put together from.
#pragma once

#include <optional>

#include "vhca/face/objects.hpp"
#include "vhca/setup/attach.hpp"

namespace tagwire::vhca {

/// Fills context->ops and the extended operations that sit in front of the context; what stays zero
/// is not supported.
void fill_operations(verbs_context* verbs);

// ---- Operations that libibverbs' inline functions reach through the context.
int query_port_op(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t bytes);
int query_device_ex_op(ibv_context* context, const ibv_query_device_ex_input* input,
                       ibv_device_attr_ex* attr, std::size_t bytes);
int query_rt_values_op(ibv_context* context, ibv_values_ex* values);
ibv_cq_ex* create_cq_ex_op(ibv_context* context, ibv_cq_init_attr_ex* attr);
ibv_srq* create_srq_ex_op(ibv_context* context, ibv_srq_init_attr_ex* attr);
int get_srq_num_op(ibv_srq* srq, std::uint32_t* number);
int post_srq_ops_op(ibv_srq* srq, ibv_ops_wr* wr, ibv_ops_wr** bad_wr);
ibv_qp* create_qp_ex_op(ibv_context* context, ibv_qp_init_attr_ex* attr);
int poll_cq_op(ibv_cq* cq, int entries, ibv_wc* wc);
int req_notify_cq_op(ibv_cq* cq, int solicited_only);
int post_send_op(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_recv_op(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int post_srq_recv_op(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);

// ---- The two halves of destroying: first what the device and the context hold of an object, its
// events among it (or an errno value, and nothing happened), then its memory.
int remove(FaceQp& qp);
int remove(FaceSrq& srq);
int remove(FaceCq& cq);
int remove(FaceMr& mr);
int remove(FaceAh& ah);
int remove(FacePd& pd);
void dispose(FaceQp& qp);
void dispose(FaceSrq& srq);
void dispose(FaceCq& cq);
void dispose(FaceMr& mr);
void dispose(FaceAh& ah);
void dispose(FacePd& pd);

// ---- Pieces of them
/// The read functions of an extended CQ that `wc_flags` asks for.
void fill_cq_readers(ibv_cq_ex* cq, std::uint64_t wc_flags);
void fill_qp_ex(ibv_qp_ex* qp);
/// Any queue pair; a DCI or DCT if `dc` says so. `attr` was checked but for what the device checks.
ibv_qp* make_qp(ibv_context* context, ibv_qp_init_attr_ex* attr, const DcConfig& dc);
/// wr_set_dc_addr() and wr_set_dc_addr_stream().
void fill_dv_qp_ex(mlx5dv_qp_ex* qp);

/// The device with that index.
ibv_device* device_at(unsigned index);
/// nullopt: not one of ours.
std::optional<unsigned> index_of(const ibv_device* device);
/// Host order. Makes the engine, which knows it.
std::uint64_t device_guid(unsigned index);
/// One per device and process, made now if it was not yet.
int attach_engine(unsigned index, Engine** engine_p);

}  // namespace tagwire::vhca
