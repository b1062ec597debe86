// SPDX-License-Identifier: BSD-3-Clause
// The version, which a program can ask for, and a debugger find in a core file.
#include "protocols/api/tw_version.h"
#include "tagwire_version.h"

static_assert(TW_VERSION_MAJOR == TAGWIRE_VERSION_MAJOR &&
                  TW_VERSION_MINOR == TAGWIRE_VERSION_MINOR &&
                  TW_VERSION_PATCH == TAGWIRE_VERSION_PATCH,
              "tw_version.h and project() in CMakeLists.txt differ");

extern "C" {

// Declared here as in uct/api/tagwire_uct.h, whose other names are not needed.
__attribute__((visibility("default"))) const char* tagwire_version_string();

unsigned tw_version() {
    return TW_VERSION;
}

const char* tw_version_string() {
    return TAGWIRE_VERSION_STRING;
}

const char* tagwire_version_string() {
    return TAGWIRE_VERSION_STRING;
}

}  // extern "C"
