// SPDX-License-Identifier: BSD-3-Clause
// `tagwire-vhca inject`: an incident for a virtual device of a process that runs.
#include <cerrno>
#include <cstring>
#include <string>

#include "cli/failure.hpp"
#include "vhca/launcher/launcher.hpp"
#include "vhca/launcher/library.hpp"

namespace tagwire::tools {
namespace {

using Order = int (*)(int process, unsigned device, const char* incident);
using Names = const char* (*)();

std::string reason_of(int error, const VhcaInjectArguments& arguments) {
    switch (error) {
        case ESRCH:
            return "no process of that number has the device open in this network namespace";
        case EPERM:
            return "the process belongs to another user";
        case EIO:
            return "the device is dead";
        case ETIMEDOUT:
            return "the process does not answer: is it stopped?";
        default:
            return arguments.incident + ": " + std::strerror(error);
    }
}

}  // namespace

void inject_incident(const VhcaInjectArguments& arguments) {
    const VhcaLibrary library(find_vhca_libraries().device);
    const auto order = library.find<Order>("tagwire_vhca_order");
    const int error =
        order(static_cast<int>(arguments.process), arguments.device, arguments.incident.c_str());
    if (error == EINVAL) {
        throw UsageError("unknown incident '" + arguments.incident + "'; there are " +
                         library.find<Names>("tagwire_vhca_incidents")());
    }
    if (error != 0) {
        throw Failure("vhca" + std::to_string(arguments.device) + " of process " +
                      std::to_string(arguments.process) + ": " + reason_of(error, arguments));
    }
}

}  // namespace tagwire::tools
