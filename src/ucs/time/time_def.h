// SPDX-License-Identifier: BSD-3-Clause
//
// The unit of time in public structures.
#ifndef TAGWIRE_UCS_TIME_TIME_DEF_H
#define TAGWIRE_UCS_TIME_TIME_DEF_H

#include <ucs/sys/compiler_def.h>

/// Nanoseconds. (UCX counts processor ticks here and has no public conversion.)
typedef unsigned long ucs_time_t;

#endif
