// SPDX-License-Identifier: BSD-3-Clause
//
// Identifiers of system devices as UCX 1.13 has them in its resource descriptors.
#ifndef TAGWIRE_UCS_SYS_TOPO_BASE_TOPO_H
#define TAGWIRE_UCS_SYS_TOPO_BASE_TOPO_H

#include <stdint.h>

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

#define UCS_SYS_DEVICE_ID_MAX UINT8_MAX

/// The device has no bus address, like shared memory.
#define UCS_SYS_DEVICE_ID_UNKNOWN UINT8_MAX

#define UCS_SYS_BDF_NAME_MAX 16

/// Index of a device on this machine, UCS_SYS_DEVICE_ID_UNKNOWN when it has none.
typedef uint8_t ucs_sys_device_t;

/// PCI address.
typedef struct tagwire_ucs_sys_bus_id {
    uint16_t domain;
    uint8_t bus;
    uint8_t slot;
    uint8_t function;
} ucs_sys_bus_id_t;

typedef struct tagwire_ucs_sys_dev_distance {
    double latency;    ///< Seconds.
    double bandwidth;  ///< Bytes per second.
} ucs_sys_dev_distance_t;

#endif
