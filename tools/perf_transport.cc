// SPDX-License-Identifier: BSD-3-Clause
// Chooses the transport of a measurement.
#include <algorithm>

#include "cli/failure.hpp"
#include "tools/perf.hpp"
#include "tools/resources.hpp"

namespace tagwire::tools {
namespace {

/// `auto` at level uct: shared memory between processes of this host, else the first of the others.
std::string best_transport(bool is_remote) {
    if (!is_remote)
        return "sm";
    const std::vector<Resource> resources = all_resources();
    for (const char* transport : {"rc", "dc", "ud", "tcp"})
        if (std::ranges::find(resources, transport, &Resource::transport) != resources.end())
            return transport;
    throw UsageError(
        "--tl auto: no transport here leads to another host (tagwire info devices tells why); "
        "shared memory is --tl sm");
}

}  // namespace

/// The syntax is that of the library at both levels: sm, rc, rc:mlx5_0:1 or auto, by default
/// TAGWIRE_TRANSPORTS, else sm. A list is for level msg alone, where one of its transports carries
/// the messages; of TAGWIRE_TRANSPORTS level uct takes the first.
void plan_transport(const PerfArguments& arguments, Setup* setup) {
    std::string wanted = arguments.transport.value_or("");
    if (!arguments.transport)
        wanted = transports_set().value_or("sm");
    const bool is_list = wanted.find(',') != std::string::npos;
    if (arguments.device && (wanted == "auto" || wanted.find_first_of(":,") != std::string::npos)) {
        throw UsageError(
            text("--device goes with one transport; --tl '%s' names devices as in sm,rc:mlx5_0:1",
                 wanted.c_str()));
    }
    setup->device = arguments.device.value_or("");
    setup->transport = wanted;
    if (setup->level == Level::kMsg)
        return;
    if (is_list && arguments.transport) {
        throw UsageError(
            text("--tl %s: level uct measures one transport at a time, such as sm, rc:mlx5_0:1 or "
                 "auto; a list is for --level msg",
                 wanted.c_str()));
    }
    const std::string first = wanted.substr(0, wanted.find(','));
    const std::size_t colon = first.find(':');
    setup->transport = first.substr(0, colon);
    if (colon != std::string::npos)
        setup->device = first.substr(colon + 1);
    if (setup->transport == "auto")
        setup->transport = best_transport(arguments.connect.has_value());
}

}  // namespace tagwire::tools
