// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/face/context.hpp"

namespace tagwire::vhca {

void fill_operations(verbs_context* verbs) {
    verbs->query_port = query_port_op;
    verbs->query_device_ex = query_device_ex_op;
    verbs->query_rt_values = query_rt_values_op;
    verbs->create_cq_ex = create_cq_ex_op;
    verbs->create_srq_ex = create_srq_ex_op;
    verbs->get_srq_num = get_srq_num_op;
    verbs->post_srq_ops = post_srq_ops_op;
    verbs->create_qp_ex = create_qp_ex_op;
    verbs->sz = sizeof *verbs;
    ibv_context_ops& ops = verbs->context.ops;
    ops.poll_cq = poll_cq_op;
    ops.req_notify_cq = req_notify_cq_op;
    ops.post_send = post_send_op;
    ops.post_recv = post_recv_op;
    ops.post_srq_recv = post_srq_recv_op;
    verbs->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
}

}  // namespace tagwire::vhca
