// SPDX-License-Identifier: BSD-3-Clause
// The `tagwire-vhca` command. `tagwire vhca` starts it, too, under that name (program_name()). It
// links nothing of libtagwire. Exit status: 0 success, 1 failure, 2 wrong usage; `tagwire-vhca run`
// that of the program which it starts.
#include <cstdio>
#include <exception>
#include <string>

#include "cli/failure.hpp"
#include "vhca/launcher/launcher.hpp"
#include "vhca/launcher/options.hpp"

namespace {

using namespace tagwire::tools;

int run(int argc, char** argv, std::string* asked) {
    const VhcaCommandLine line = parse_vhca_command_line(argc, argv, asked);
    if (line.description)
        std::puts(line.description->c_str());
    else if (line.run)
        return run_vhca_program(*line.run);
    else if (line.inject)
        inject_incident(*line.inject);
    else if (line.info)
        show_vhca(*line.info);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    std::string asked = command_name();
    try {
        return run(argc, argv, &asked);
    } catch (const UsageError& error) {
        std::fprintf(stderr, "%s: %s\nTry '%s --help'.\n", program_name().c_str(), error.what(),
                     asked.c_str());
        return 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", program_name().c_str(), error.what());
        return 1;
    }
}
