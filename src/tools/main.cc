// SPDX-License-Identifier: BSD-3-Clause
// The `tagwire` command. Exit status: 0 success, 1 failure, 2 wrong usage.
#include <cstdio>
#include <exception>

#include "tools/failure.hpp"
#include "tools/info.hpp"
#include "tools/options.hpp"
#include "tools/session.hpp"

namespace {

using namespace tagwire::tools;

void run(int argc, char** argv) {
    const CommandLine line = parse_command_line(argc, argv);
    if (line.perf) {
        run_perf(make_plan(*line.perf));
    } else if (line.info) {
        run_info(*line.info);
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (const std::optional<int> status = run_if_peer_process(argc, argv)) {
        return *status;
    }
    try {
        run(argc, argv);
        return 0;
    } catch (const UsageError& error) {
        std::fprintf(stderr, "tagwire: %s\nTry 'tagwire --help' or 'tagwire perf --help'.\n",
                     error.what());
        return 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "tagwire: %s\n", error.what());
        return 1;
    }
}
