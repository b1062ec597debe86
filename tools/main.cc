// SPDX-License-Identifier: BSD-3-Clause
// The `tagwire` command. Exit status: 0 success, 1 failure, 2 wrong usage; `tagwire run` and
// `tagwire vhca run` that of the program which they start.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>

#include "cli/failure.hpp"
#include "tools/info.hpp"
#include "tools/options.hpp"
#include "tools/report_run.hpp"
#include "tools/session.hpp"
#include "tools/soak.hpp"
#include "tools/vhca.hpp"

namespace {

using namespace tagwire::tools;

/// Keeps descriptors that this process opens apart from the standard streams where a caller has
/// closed these. Reading or writing them still fails, as it would have.
void fill_standard_descriptors() {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (fcntl(fd, F_GETFD) < 0)
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest that is free
}

/// This program, for those that are started.
std::string own_file() {
    std::error_code error;
    const auto file = std::filesystem::read_symlink("/proc/self/exe", error);
    return error ? "tagwire" : file.string();
}

int run(int argc, char** argv, std::string* asked) {
    const CommandLine line = parse_command_line(argc, argv, asked);
    if (line.lists_tests)
        list_tests();
    else if (!line.perf.empty())
        return run_perf(make_plans(line.perf));
    else if (line.info)
        run_info(*line.info);
    else if (line.explain)
        run_explain(*line.explain);
    else if (line.tune)
        run_tune(*line.tune);
    else if (line.report)
        run_report(*line.report, own_file());
    else if (line.soak)
        run_soak(*line.soak);
    else if (line.launch)
        return run_launch(*line.launch);
    else if (line.completion)
        std::fputs(line.completion->c_str(), stdout);
    else if (line.vhca)
        run_vhca(*line.vhca);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    fill_standard_descriptors();
    if (const std::optional<int> status = run_if_peer_process(argc, argv))
        return *status;
    std::string asked = "tagwire";
    try {
        return run(argc, argv, &asked);
    } catch (const UsageError& error) {
        std::fprintf(stderr, "tagwire: %s\nTry '%s --help'.\n", error.what(), asked.c_str());
        return 2;
    } catch (const std::bad_alloc&) {
        std::fprintf(stderr,
                     "tagwire: out of memory: reduce --size, --depth, --peers, --window or "
                     "--seconds\n");
        return 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "tagwire: %s\n", error.what());
        return 1;
    }
}
