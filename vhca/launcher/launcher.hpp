// SPDX-License-Identifier: BSD-3-Clause
// The commands of `tagwire-vhca`: programs on the virtual HCA.
//
// The libraries are no part of libtagwire: they are found relative to this program, in the build
// tree and in an installed one, and are looked at with dlopen() only.
#pragma once

#include <string>

#include "vhca/launcher/options.hpp"

namespace tagwire::tools {

struct VhcaLibraries {
    std::string device;  // libtagwire-vhca.so
    std::string folder;  // libibverbs.so.1 and libmlx5.so.1
    std::string shim;    // to preload
    std::string kernel;  // libtagwire-vhca-kernel.so, to preload for --driver mlx5
};

/// Throws Failure when they were not built or not installed.
VhcaLibraries find_vhca_libraries();

/// Replaces this process by the program. Returns only the exit status for a program that could not
/// be started: 127 when there is none of that name, 126 otherwise.
int run_vhca_program(const VhcaRunArguments& arguments);

/// Throws Failure, and UsageError for an incident that there is not.
void inject_incident(const VhcaInjectArguments& arguments);

/// Throws Failure.
void show_vhca(const VhcaInfoArguments& arguments);

}  // namespace tagwire::tools
