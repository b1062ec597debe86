// SPDX-License-Identifier: BSD-3-Clause
// The `tagwire-vhca` command: `tagwire vhca` for machines that have the virtual HCA only. It links
// nothing of libtagwire. Exit status: 0 success, 1 failure, 2 wrong usage; `tagwire-vhca run` that
// of the program which it starts.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <string>

#include "tagwire_version.h"
#include "tools/failure.hpp"
#include "tools/help.hpp"
#include "tools/vhca.hpp"

namespace {

using namespace tagwire::tools;

int run(int argc, char** argv, std::string* asked) {
    CLI::App app("tagwire-vhca: test RDMA programs without a card", "tagwire-vhca");
    app.set_version_flag("--version", "tagwire-vhca " TAGWIRE_VERSION_STRING);
    use_wrapped_help(&app);
    VhcaArguments arguments;
    add_vhca_commands(&app, &arguments);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& success) {
        return app.exit(success);
    } catch (const CLI::ParseError& error) {
        *asked = asked_of(app);
        throw UsageError(error.what());
    }
    if (app.got_subcommand("run"))
        return run_vhca_program(arguments.run);
    show_vhca(arguments.info);
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
