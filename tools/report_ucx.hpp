// SPDX-License-Identifier: BSD-3-Clause
// The installations of UCX on this machine: ucx_perftest of the path, and those that
// TAGWIRE_BENCH_UCX lists.
#pragma once

#include <string>

namespace tagwire::tools {

struct Ucx {
    std::string program = "ucx_perftest";
    std::string libraries;  // directories for LD_LIBRARY_PATH; empty: it finds its own
    std::string version;    // "1.13.1", of a development build "1.23.0-9466d10"; empty: unknown
};

/// The version in what the library says when it is loaded, or in what ucx_info prints. Empty when
/// there is none.
std::string parse_ucx_version(const std::string& printed);

/// By the numbers of the release; an unknown version is older than any.
bool is_newer_ucx(const std::string& version, const std::string& than);

/// The newest of the path's and of those in `list`, which are separated by colons or commas, each a
/// ucx_perftest or the prefix of an installation; of the same version the last. Throws Failure that
/// names what is not there.
Ucx newest_ucx(const std::string& list);

}  // namespace tagwire::tools
