// SPDX-License-Identifier: BSD-3-Clause
// Names of librdmacm's that its header for programs has: <rdma/rdma_user_cm.h> knows numbers only.
#pragma once

#include <cstdint>

namespace tagwire::vhca::cm {

/// enum rdma_cm_event_type.
enum EventType : std::uint32_t {
    kAddressResolved,
    kAddressError,
    kRouteResolved,
    kRouteError,
    kConnectRequest,
    kConnectResponse,
    kConnectError,
    kUnreachable,
    kRejected,
    kEstablished,
    kDisconnected,
    kDeviceRemoval,
    kMulticastJoin,
    kMulticastError,
    kAddressChange,
    kTimeWaitExit,
};

}  // namespace tagwire::vhca::cm
