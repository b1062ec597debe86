// SPDX-License-Identifier: BSD-3-Clause
// The `tagwire-vhca` command: `tagwire vhca` for machines that have the virtual HCA only. It links
// nothing of libtagwire. Exit status: 0 success, 1 failure, 2 wrong usage; `tagwire-vhca run` that
// of the program which it starts.
#include <cstdio>
#include <exception>
#include <string>

#include "tools/failure.hpp"
#include "tools/vhca.hpp"
#include "tools/vhca_options.hpp"

namespace {

using namespace tagwire::tools;

int run(int argc, char** argv, std::string* asked) {
    const VhcaCommandLine line = parse_vhca_command_line(argc, argv, asked);
    if (line.run)
        return run_vhca_program(*line.run);
    if (line.inject)
        inject_incident(*line.inject);
    if (line.info)
        show_vhca(*line.info);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    std::string asked = "tagwire-vhca";
    try {
        return run(argc, argv, &asked);
    } catch (const UsageError& error) {
        std::fprintf(stderr, "tagwire-vhca: %s\nTry '%s --help'.\n", error.what(), asked.c_str());
        return 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "tagwire-vhca: %s\n", error.what());
        return 1;
    }
}
