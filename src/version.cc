// SPDX-License-Identifier: BSD-3-Clause
#include "tagwire_version.h"

// The one symbol that a program can look for to learn which tagwire it has loaded, in a core file
// too.
extern "C" __attribute__((visibility("default"))) const char* tagwire_version_string();

const char* tagwire_version_string() {
    return TAGWIRE_VERSION_STRING;
}
