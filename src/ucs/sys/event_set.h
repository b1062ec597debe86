// SPDX-License-Identifier: BSD-3-Clause
//
// Event bits of UCX 1.13's descriptor sets. Only the types are here: tagwire has no event-set
// functions, an interface's event descriptor goes into the program's own poll or epoll set.
#ifndef TAGWIRE_UCS_SYS_EVENT_SET_H
#define TAGWIRE_UCS_SYS_EVENT_SET_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

typedef uint8_t ucs_event_set_types_t;

typedef enum tagwire_ucs_event_set_type {
    UCS_EVENT_SET_EVREAD = UCS_BIT(0),
    UCS_EVENT_SET_EVWRITE = UCS_BIT(1),
    UCS_EVENT_SET_EVERR = UCS_BIT(2),
    UCS_EVENT_SET_EDGE_TRIGGERED = UCS_BIT(3)
} ucs_event_set_type_t;

#endif
