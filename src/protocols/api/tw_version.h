// SPDX-License-Identifier: BSD-3-Clause
//
// Version of these headers, and of the library that the program runs with. Included by tagwire.h.
//
// Until 1.0 a minor version may change interfaces; a patch version does not. The shared library's
// symbols carry the minor version that they came with (TAGWIRE_0.1), so a program does not start
// with a library that lacks a function it needs.
#ifndef TAGWIRE_PROTOCOLS_API_TW_VERSION_H
#define TAGWIRE_PROTOCOLS_API_TW_VERSION_H

#include <tagwire_status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_VERSION_MAJOR 0
#define TW_VERSION_MINOR 1
#define TW_VERSION_PATCH 0

/// A version as one number, for comparisons: #if TW_VERSION >= TW_MAKE_VERSION(0, 2, 0)
#define TW_MAKE_VERSION(major, minor, patch) ((major)*1000000 + (minor)*1000 + (patch))
/// Version of these headers.
#define TW_VERSION TW_MAKE_VERSION(TW_VERSION_MAJOR, TW_VERSION_MINOR, TW_VERSION_PATCH)

/// TW_VERSION of the library that the program runs with. Any thread.
TAGWIRE_API unsigned tw_version(void);

/// Version of the library as text, "0.1.0"; a constant. Any thread.
TAGWIRE_API const char* tw_version_string(void);

#ifdef __cplusplus
}
#endif

#endif
