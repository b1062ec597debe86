// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/launcher/options.hpp"

#include <cerrno>
#include <climits>
#include <string_view>

#include "cli/command.hpp"
#include "cli/described_json.hpp"
#include "cli/failure.hpp"
#include "tagwire_version.h"

namespace tagwire::tools {
namespace {

// Options of the device itself: what --help says, and the name of the variable behind
// TAGWIRE_VHCA_. Values are checked where they are used, by the library.
struct DeviceOption {
    const char* option;
    const char* variable;
    const char* type;
    const char* doc;
};
constexpr DeviceOption kDeviceOptions[] = {
    {"--fabric", "FABRIC", "NAME",
     "What carries packets: shm (default), shared memory; udp, RoCEv2"},
    {"--address", "ADDRESS", "A", "udp: IPv4 address of this process; each process needs its own"},
    {"--loss", "LOSS", "P", "Share of packets that the fabric loses, 0 to 1"},
    {"--dup", "DUP", "P", "Share of packets that it delivers twice"},
    {"--reorder", "REORDER", "P", "Share of packets that others overtake"},
    {"--delay", "DELAY", "T", "Time that every packet takes longer: 10us, 1ms"},
    {"--network-class", "NETWORK_CLASS", "SL:CLASS",
     "Service level and traffic class of the packets that the network carries: 3:96 (default all)"},
    {"--tm", "TM", "N", "Receives that a tag-matching SRQ may hold; 0: no tag matching"},
    {"--dc-key-error", "DC_KEY_ERROR", "WHAT",
     "A request with a wrong DC access key: retry (default), no answer; access, REM_ACCESS_ERR"},
    {"--seed", "SEED", "N", "Seed of packet faults (default: a new one for each run)"},
    {"--trace", "TRACE", "FILE",
     "File for the packets of each process, for Wireshark; %p in its name is the process id"},
    {"--profile", "PROFILE", "NAME",
     "Hardware that the device imitates: connectx (default), soft-roce"},
    {"--link-layer", "LINK_LAYER", "NAME",
     "Link layer: auto (default; ethernet over udp and for soft-roce), infiniband, ethernet"},
    {"--devices", "DEVICES", "N", "Number of devices: vhca0, vhca1, ... (default 1)"},
    {"--ports", "PORTS", "N", "Number of ports (default 1); all but the first are down"},
    {"--gids", "GIDS", "N", "Entries of the GID table (default 8); only the first holds a GID"},
    {"--qps", "QPS", "N", "Queue pairs that the device supports"},
    {"--qp-depth", "QP_DEPTH", "N", "Requests that a queue of a queue pair may hold"},
    {"--cq-depth", "CQ_DEPTH", "N", "Completions that a CQ may hold"},
    {"--srq-depth", "SRQ_DEPTH", "N", "Receives that an SRQ may hold"},
    {"--sges", "SGES", "N", "Scatter/gather entries of one request"},
    {"--inline", "INLINE", "BYTES", "Inline data that a queue pair may ask for"},
    {"--reads", "READS", "N", "Outstanding reads and atomics of one queue pair"},
    {"--mtu", "MTU", "BYTES",
     "MTU of the port: 256 to 4096 (default), a power of two; for several devices a list "
     "4096,1024"},
    {"--send-places", "SEND_PLACES", "WHEN",
     "Release of send queue entries: when a completion is polled, or completed"},
    {"--tm-untagged-min", "TM_UNTAGGED_MIN", "N",
     "Untagged receives to post before a tag-matching SRQ receives (default 33, as cards)"},
    {"--late-events", "LATE_EVENTS", "T",
     "Random delay of completions and events, up to about this, per queue pair: 20us"},
    {"--timer-stretch", "TIMER_STRETCH", "N",
     "Timeouts and RNR waits last up to N times the requested time (default 1; cards: 4)"},
    {"--memlock", "MEMLOCK", "RULE",
     "Limit of registered memory: none (default); kernel, RLIMIT_MEMLOCK without CAP_IPC_LOCK; "
     "all, RLIMIT_MEMLOCK for all processes"},
    {"--driver-abi", "DRIVER_ABI", "FORM",
     "Driver mlx5: form of commands: write (default), as before Linux 4.20, or also ioctl"},
};
// The same for options without a value: what they set the variable to.
constexpr DeviceOption kDeviceFlags[] = {
    {"--stats", "STATS", "y",
     "Print the numbers of packets, retries and faults to standard error at the end"},
    {"--no-atomics", "ATOMICS", "n", "The device supports no atomic operations"},
    {"--no-dc", "DC", "n", "The device supports no DC"},
    {"--tm-ethernet", "TM_ETHERNET", "y",
     "Support tag-matching SRQs on Ethernet ports, where libmlx5 cannot create any"},
    {"--qpn-reuse", "QPN_REUSE", "y",
     "Reuse the numbers of destroyed queue pairs at once, not after 4096 others"},
    {"--shuffle-reads", "SHUFFLE_READS", "y",
     "Place the data of a read in random order; all of it when the read completes"},
    {"--no-dc-rndv", "DC_RNDV", "n",
     "The device does not read rendezvous data over DC, as with rdma-core's verbs"},
    {"--devx", "DEVX", "y",
     "Driver mlx5 by ioctl: programs may create objects by commands of the device (DEVX)"},
};

void add_device_options(const Command& run, VhcaRunArguments* arguments) {
    for (const DeviceOption& known : kDeviceOptions) {
        run.add_option(
               known.option,
               [arguments, &known](const std::string& value) {
                   arguments->settings.emplace_back(known.variable, value);
               },
               known.doc)
            .type_name(known.type);
    }
    for (const DeviceOption& known : kDeviceFlags) {
        run.add_flag(
            known.option,
            [arguments, &known] { arguments->settings.emplace_back(known.variable, known.type); },
            known.doc);
    }
}

struct VhcaArguments {
    VhcaRunArguments run;
    VhcaInjectArguments inject;
    VhcaInfoArguments info;
};

/// Gives `app` its subcommands run, inject and info. `*arguments` outlives it.
void add_vhca_commands(const Command& app, VhcaArguments* arguments) {
    app.require_command();
    const Command run = app.add_command(
        "run", "Start a program of libibverbs on the virtual HCA; its exit status is passed on");
    run.add_option("program", &arguments->run.command, "The program and its arguments, after --")
        .type_name("PROGRAM ARGS")
        .required();
    using Driver = VhcaRunArguments::Driver;
    run.add_option(
           "--driver",
           [arguments](const std::string& name) {
               arguments->run.driver = name == "mlx5" ? Driver::kMlx5 : Driver::kTagwire;
           },
           "libibverbs and libmlx5 of the program: tagwire (default), the fast ones of tagwire; "
           "mlx5, the system's own, above an emulated kernel")
        .choices({"tagwire", "mlx5"})
        .type_name("NAME");
    add_device_options(run, &arguments->run);
    const Command inject = app.add_command(
        "inject", "Kill a device of a running program, take its port down, and the like");
    inject.add_option("pid", &arguments->inject.process, "The process that has the device open")
        .type_name("PID")
        .range(1, INT_MAX)
        .required();
    inject
        .add_option("incident", &arguments->inject.incident,
                    "device-fatal, port-down, port-up, srq-error, or an event alone: lid-change, "
                    "gid-change, pkey-change, sm-change, reregister")
        .type_name("INCIDENT")
        .required();
    inject.add_option("--device", &arguments->inject.device, "Index of the device (default 0)")
        .type_name("N");
    const Command info = app.add_command("info", "Show the device and where its libraries are");
    info.add_option("--json", &arguments->info.json, "Write JSON to FILE, - for standard output")
        .type_name("FILE");
}

}  // namespace

std::string command_name() {
    const std::string_view name = program_invocation_short_name;
    return name == "tagwire vhca" ? std::string(name) : "tagwire-vhca";
}

std::string program_name() {
    const std::string name = command_name();
    return name.substr(0, name.find(' '));
}

VhcaCommandLine parse_vhca_command_line(int argc, char** argv, std::string* asked) {
    const RootCommand app(command_name(), "tagwire-vhca: test RDMA programs without a card",
                          "tagwire-vhca " TAGWIRE_VERSION_STRING);
    VhcaArguments arguments;
    add_vhca_commands(app, &arguments);
    VhcaCommandLine line;
    const std::vector<std::string> words = words_of(argc, argv);
    if (words == std::vector<std::string>{"--describe"}) {
        line.description = to_json(app.describe());
        return line;
    }
    try {
        if (!app.parse(words))
            return line;
        *asked = app.asked();
    } catch (const UsageError&) {
        *asked = app.asked();
        throw;
    }
    if (app.has_got("run"))
        line.run = arguments.run;
    else if (app.has_got("inject"))
        line.inject = arguments.inject;
    else
        line.info = arguments.info;
    return line;
}

}  // namespace tagwire::tools
