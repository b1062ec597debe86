// SPDX-License-Identifier: BSD-3-Clause
#include "tools/vhca.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/described_json.hpp"
#include "cli/failure.hpp"
#include "tools/program.hpp"

namespace tagwire::tools {
namespace {

constexpr const char* kProgram = "tagwire-vhca";
constexpr int kDescribeMs = 5000;

/// Empty: none is beside this program.
std::string file_beside() {
    std::error_code error;
    const auto own = std::filesystem::read_symlink("/proc/self/exe", error);
    const std::string file = (own.parent_path() / kProgram).string();
    return error || access(file.c_str(), X_OK) != 0 ? std::string() : file;
}

}  // namespace

void run_vhca(const std::vector<std::string>& words) {
    const std::string beside = file_beside();
    std::string name = "tagwire vhca";  // by which it knows that this program has started it
    std::vector<std::string> arguments = words;
    std::vector<char*> argv{name.data()};
    for (std::string& word : arguments)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    execvp(beside.empty() ? kProgram : beside.c_str(), argv.data());
    if (errno == ENOENT) {
        throw Failure(
            "there is no tagwire-vhca beside this program or along the path: is the package "
            "tagwire-vhca installed, or was this built without it?");
    }
    throw Failure(text("cannot start tagwire-vhca: %s", std::strerror(errno)));
}

std::vector<DescribedCommand> vhca_commands() {
    const std::string beside = file_beside();
    if (beside.empty() && !has_program(kProgram))
        return {};
    const ProgramResult result =
        run_program({beside.empty() ? kProgram : beside, "--describe"}, kDescribeMs);
    if (result.status != 0)
        return {};  // one of another version
    return described_from_json(result.out).commands;
}

}  // namespace tagwire::tools
