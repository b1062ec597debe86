// SPDX-License-Identifier: BSD-3-Clause
// Where a test finds what was built with it. Counted from the program, so that no object depends on
// the path of the build directory.
#pragma once

#include <filesystem>
#include <string>

namespace tagwire::test {

/// `name` counts from the build directory, such as lib/libtagwire-vhca.so.
inline std::string built(const char* name) {
    return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / name;
}

inline std::string built_vhca() {
    return built("lib/libtagwire-vhca.so");
}

}  // namespace tagwire::test
