// SPDX-License-Identifier: BSD-3-Clause
#include "tools/python.hpp"

#include <unistd.h>

#include <filesystem>

#include "cli/failure.hpp"
#include "tools/program.hpp"

namespace tagwire::tools {
namespace {

constexpr const char* kPython = "python3";

}  // namespace

std::vector<std::string> python_command(const char* program) {
    if (!has_program(kPython)) {
        throw Failure(
            text("%s, which draws plots and writes reports, is not installed (apt-get install %s)",
                 kPython, kPython));
    }
    std::error_code error;
    const auto beside = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
    auto file = beside / "tagwire-report" / program;  // in a build tree
    if (access(file.c_str(), R_OK) != 0)
        file = (beside / TAGWIRE_TOOLS_REPORT / program).lexically_normal();
    if (error || access(file.c_str(), R_OK) != 0)
        throw Failure(text("%s, which is installed with this command, is not there", file.c_str()));
    // Without the user's own modules and settings, and without files of compiled modules.
    return {kPython, "-sEB", (file.parent_path() / "run.py").string(), program};
}

}  // namespace tagwire::tools
