// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report_run.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "cli/failure.hpp"
#include "tools/python.hpp"

namespace tagwire::tools {

void run_report(const ReportArguments& arguments, const std::string& program) {
    std::vector<std::string> words = python_command("report.py");
    words.insert(words.end(), {"--tagwire", program, "--shown", arguments.command});
    if (arguments.quick)
        words.emplace_back("--quick");
    if (arguments.compare)
        words.push_back("--compare=" + *arguments.compare);
    words.insert(words.end(), {"--", arguments.file});
    std::vector<char*> argv;
    for (std::string& word : words)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    execvp(argv.front(), argv.data());
    throw Failure(text("cannot start %s: %s", argv.front(), std::strerror(errno)));
}

}  // namespace tagwire::tools
