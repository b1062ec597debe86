// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// The level of UCX's transport API that these headers have (not tagwire's own version, which is in
/// <uct/api/tagwire_uct.h>).
#ifndef TAGWIRE_UCT_API_VERSION_H
#define TAGWIRE_UCT_API_VERSION_H

#include <ucs/sys/compiler_def.h>

#define UCT_VERNO_MAJOR 1
#define UCT_VERNO_MINOR 13
#define UCT_VERNO_PATCH 0
#define UCT_VERNO_EXTRA "tagwire"
#define UCT_VERNO_STRING "1.13.0"

#define UCT_MINOR_BIT (16UL)
#define UCT_MAJOR_BIT (24UL)
#define UCT_VERSION(major, minor) (((major) << UCT_MAJOR_BIT) | ((minor) << UCT_MINOR_BIT))
#define UCT_API UCT_VERSION(1L, 13L)

#endif
