// SPDX-License-Identifier: BSD-3-Clause
// The attributes of a connection's queue pair, as rdma_init_qp_attr() of the kernel fills them.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_user_cm.h>

#include "vhca/cm/identity.hpp"
#include "vhca/cm/network.hpp"

namespace tagwire::vhca::cm {

inline constexpr std::uint32_t kDatagramQkey = 0x01234567;  // RDMA_UDP_QKEY

/// The address of the peer, for packets that leave from `port`.
[[nodiscard]] ib_uverbs_ah_attr address_vector(const Identity& identity, const LocalPort& port);
/// `attr_p->qp_state` says for which state. EINVAL: the connection is not that far.
[[nodiscard]] int init_qp_attr(const Identity& identity, const LocalPort& port, ibv_qp_attr* attr_p,
                               int* mask_p);

}  // namespace tagwire::vhca::cm
