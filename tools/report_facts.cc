// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report_facts.hpp"

#include <sys/utsname.h>
#include <uct/api/tagwire_uct.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include "cli/failure.hpp"
#include "tools/pinning.hpp"

namespace tagwire::tools {
namespace {

std::string processor() {
    std::ifstream lines("/proc/cpuinfo");
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with("model name"))
            return line.substr(std::min(line.find(':') + 2, line.size()));
    return "unknown processor";
}

}  // namespace

Facts facts_of_machine(const std::vector<int>& cpus) {
    char date[64];
    const std::time_t now = std::time(nullptr);
    std::tm broken{};
    std::strftime(date, sizeof date, "%Y-%m-%d %H:%M %Z", localtime_r(&now, &broken));
    utsname host{};
    uname(&host);
    return {{"Date", date},
            {"Host", text("%s, %s, %ld cores; measured on cpus %d and %d", host.nodename,
                          processor().c_str(), sysconf(_SC_NPROCESSORS_ONLN), cpus[0], cpus[1])},
            {"Kernel", std::string(host.sysname) + " " + host.release},
            {"tagwire", tagwire_version_string()}};
}

std::string load_warning() {
    double load = 0;
    const double cpus = static_cast<double>(allowed_cpus().size());
    if (getloadavg(&load, 1) != 1 || cpus - std::round(load) >= 2)
        return "";
    return text(
        "Fewer than two cores were free at the beginning (%.0f allowed, load %.1f): both "
        "sides spin, so these figures may be 10 to 100 times worse than on an idle "
        "machine.",
        cpus, load);
}

}  // namespace tagwire::tools
