// SPDX-License-Identifier: BSD-3-Clause
#include "tools/vhca_options.hpp"

#include <CLI/CLI.hpp>

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
    {"--address", "ADDRESS", "A", "udp: the IPv4 address of this process, which has it alone"},
    {"--loss", "LOSS", "P", "Share of packets that the fabric loses, 0 to 1"},
    {"--dup", "DUP", "P", "Share of packets that it delivers twice"},
    {"--reorder", "REORDER", "P", "Share of packets that others overtake"},
    {"--delay", "DELAY", "T", "Time that every packet takes longer: 10us, 1ms"},
    {"--network-class", "NETWORK_CLASS", "SL:CLASS",
     "The network carries packets of this service level and traffic class only: 3:96"},
    {"--tm", "TM", "N", "Receives that a tag-matching SRQ may hold; 0: no tag matching"},
    {"--dc-key-error", "DC_KEY_ERROR", "WHAT",
     "A request with a wrong DC access key: retry (default), no answer; access, REM_ACCESS_ERR"},
    {"--seed", "SEED", "N", "Seed of what happens to packets (default another one each time)"},
    {"--trace", "TRACE", "FILE",
     "Write the packets that each process sends and receives, for Wireshark; %p is its id"},
    {"--profile", "PROFILE", "NAME",
     "Hardware that the device imitates: connectx (default), soft-roce"},
    {"--link-layer", "LINK_LAYER", "NAME",
     "Of the port: auto (default; ethernet over udp and for soft-roce), infiniband, ethernet"},
    {"--devices", "DEVICES", "N", "Devices: vhca0, vhca1, ... (default 1)"},
    {"--ports", "PORTS", "N", "Ports; those behind the first are down"},
    {"--gids", "GIDS", "N", "Entries of the GID table (default 8), of which the first is used"},
    {"--qps", "QPS", "N", "Queue pairs that it has"},
    {"--qp-depth", "QP_DEPTH", "N", "Requests that a queue of a queue pair may hold"},
    {"--cq-depth", "CQ_DEPTH", "N", "Completions that a CQ may hold"},
    {"--srq-depth", "SRQ_DEPTH", "N", "Receives that an SRQ may hold"},
    {"--sges", "SGES", "N", "Pieces of one request"},
    {"--inline", "INLINE", "BYTES", "Inline data that a queue pair may ask for"},
    {"--reads", "READS", "N", "Reads and atomics of one queue pair on their way"},
    {"--mtu", "MTU", "BYTES",
     "MTU of the port: 256, 512, 1024, 2048 or 4096 (default); of each device, by commas"},
    {"--send-places", "SEND_PLACES", "WHEN", "When a send gives its place back: polled, completed"},
    {"--tm-untagged-min", "TM_UNTAGGED_MIN", "N",
     "Untagged receives before a tag-matching SRQ takes messages (default 33, as cards)"},
    {"--late-events", "LATE_EVENTS", "T",
     "Completions and events are late by about this, in any order across queue pairs: 20us"},
    {"--timer-stretch", "TIMER_STRETCH", "N",
     "Timeouts and RNR waits take up to N times what was asked for (cards: 4)"},
    {"--driver-abi", "DRIVER_ABI", "FORM",
     "Driver mlx5: commands come by write (default), as to old kernels, or by ioctl too"},
};
// The same for options without a value: what they set the variable to.
constexpr DeviceOption kDeviceFlags[] = {
    {"--stats", "STATS", "y", "At the end, a line on standard error: packets, retries, faults"},
    {"--no-atomics", "ATOMICS", "n", "The device has no atomic operations"},
    {"--no-dc", "DC", "n", "The device has no DC"},
    {"--tm-ethernet", "TM_ETHERNET", "y",
     "Tag-matching SRQs on Ethernet ports, where libmlx5 can make none"},
    {"--qpn-reuse", "QPN_REUSE", "y",
     "A new queue pair has the number of the one that was destroyed before"},
    {"--shuffle-reads", "SHUFFLE_READS", "y",
     "The data of a read are placed in any order; all are there when it completes"},
    {"--no-dc-rndv", "DC_RNDV", "n",
     "No rendezvous by the device in tag matching over DC, as with rdma-core's verbs"},
    {"--devx", "DEVX", "y", "Driver mlx5 by ioctl: objects made by commands of the device"},
};

void add_device_options(CLI::App* run, VhcaRunArguments* arguments) {
    for (const DeviceOption& known : kDeviceOptions) {
        run->add_option_function<std::string>(
               known.option,
               [arguments, &known](const std::string& value) {
                   arguments->settings.emplace_back(known.variable, value);
               },
               known.doc)
            ->type_name(known.type);
    }
    for (const DeviceOption& known : kDeviceFlags) {
        run->add_flag_callback(
            known.option,
            [arguments, &known] { arguments->settings.emplace_back(known.variable, known.type); },
            known.doc);
    }
}

}  // namespace

void add_vhca_commands(CLI::App* app, VhcaArguments* arguments) {
    app->require_subcommand(1);
    CLI::App* run = app->add_subcommand(
        "run", "Start a program of libibverbs on the virtual HCA; its exit status is passed on");
    run->add_option("command", arguments->run.command, "The program and its arguments, after --")
        ->type_name("PROGRAM ARGS")
        ->required();
    using Driver = VhcaRunArguments::Driver;
    run->add_option_function<std::string>(
           "--driver",
           [arguments](const std::string& name) {
               arguments->run.driver = name == "mlx5" ? Driver::kMlx5 : Driver::kTagwire;
           },
           "The program's libibverbs and libmlx5: tagwire (default), ours, fast; mlx5, the "
           "system's "
           "own, above an emulated kernel")
        ->check(CLI::IsMember({"tagwire", "mlx5"}))
        ->type_name("NAME");
    add_device_options(run, &arguments->run);
    CLI::App* info = app->add_subcommand("info", "Show the device and where its libraries are");
    info->add_option("--json", arguments->info.json, "Write it there, - for standard output")
        ->type_name("FILE");
}

std::string asked_of(const CLI::App& app) {
    const std::vector<const CLI::App*> asked =
        app.get_subcommands([](const CLI::App* one) { return one->parsed(); });
    return app.get_name() + (asked.empty() ? "" : " " + asked_of(*asked.front()));
}

}  // namespace tagwire::tools
