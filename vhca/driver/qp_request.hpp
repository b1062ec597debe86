// SPDX-License-Identifier: BSD-3-Clause
// The request of CREATE_QP, with the checks of the kernel; the device checks its own limits.
#pragma once

#include "vhca/driver/commands.hpp"

namespace tagwire::vhca::driver {

struct QpRequest {
    ib_uverbs_ex_create_qp core{};
    mlx5_ib_create_qp driver{};
    ibv_qp_type type = IBV_QPT_RC;
    DcConfig dc{};
    PdObject* pd = nullptr;
    CqObject *send_cq = nullptr, *recv_cq = nullptr;
    SrqObject* srq = nullptr;
    RingMemory receives, sends;  // of no entries: none
    ibv_qp_cap reported{};       // as it was asked for
    ibv_qp_cap needed{};         // for the rings
    DataInCqe data_in_cqe{};
};

int read_qp_request(const Context& context, const ib_uverbs_ex_create_qp& core, const Call& call,
                    QpRequest* request);

}  // namespace tagwire::vhca::driver
