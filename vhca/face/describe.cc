// SPDX-License-Identifier: BSD-3-Clause
// Output of `tagwire vhca info`.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "vhca/face/api.hpp"
#include "vhca/face/context.hpp"
#include "vhca/setup/hardware_profile.hpp"
#include "vhca/setup/options.hpp"

namespace tagwire::vhca {
namespace {

struct Facts {
    void (*take)(void*, const char*, const char*, const char*);
    void* arg;

    void text(const char* group, const char* name, const std::string& value) const {
        take(arg, group, name, value.c_str());
    }
    void number(const char* group, const char* name, std::uint64_t value) const {
        text(group, name, std::to_string(value));
    }
};

std::string hex(std::uint64_t value, int digits) {
    char out[32];
    std::snprintf(out, sizeof out, "0x%0*llx", digits, static_cast<unsigned long long>(value));
    return out;
}

void describe_device(const Facts& facts, Engine& engine, const ibv_device_attr& attr) {
    facts.text("device", "name", device_at(0)->name);
    facts.number("device", "devices", device_count());
    facts.text("device", "profile", hardware_profile().name);
    facts.text("device", "firmware", attr.fw_ver);
    facts.text("device", "vendor", hex(attr.vendor_id, 4));
    facts.number("device", "part", attr.vendor_part_id);
    facts.text("device", "guid", hex(engine.port().guid(), 16));
    const DeviceConfig& config = engine.device().config();
    facts.text("device", "transports", config.has_dc ? "RC UC UD DC" : "RC UC UD");
    facts.text("device", "atomics", attr.atomic_cap == IBV_ATOMIC_NONE ? "none" : "HCA");
    const std::string tags = std::to_string(config.tm_tags_max);
    facts.text(
        "device", "tag matching",
        config.tm_tags_max == 0 ? "no" : (config.has_dc ? "RC DC, " : "RC, ") + tags + " receives");
    facts.text("device", "DC rendezvous",
               config.tm_tags_max != 0 && config.has_dc && config.has_dc_rendezvous
                   ? "yes (tagwire's extension)"
                   : "no");
}

void describe_limits(const Facts& facts, const DeviceConfig& config, const ibv_device_attr& attr) {
    facts.number("limits", "queue pairs", static_cast<std::uint64_t>(attr.max_qp));
    facts.number("limits", "requests of a queue", static_cast<std::uint64_t>(attr.max_qp_wr));
    facts.number("limits", "sges", static_cast<std::uint64_t>(attr.max_sge));
    facts.number("limits", "inline bytes", config.inline_max);
    facts.number("limits", "cqes", static_cast<std::uint64_t>(attr.max_cqe));
    facts.number("limits", "SRQ requests", static_cast<std::uint64_t>(attr.max_srq_wr));
    facts.number("limits", "SRQ sges", static_cast<std::uint64_t>(attr.max_srq_sge));
    facts.number("limits", "reads and atomics", config.rd_atom_max);
    facts.number("limits", "message bytes", config.message_bytes_max);
    if (config.has_dc) {
        facts.number("limits", "initiators of a DCT", config.dc_contexts_max);
        facts.number("limits", "streams of a DCI", 1U << config.dc_streams_log_max);
    }
}

void describe_strictness(const Facts& facts, const DeviceConfig& config) {
    facts.text("strictness", "send places",
               config.frees_when_completed ? "free when completed" : "free when polled");
    facts.number("strictness", "untagged minimum", config.tm_untagged_min);
    facts.text("strictness", "late events", std::to_string(config.late_ns_max) + " ns");
    facts.text("strictness", "QPN reuse", config.reuses_numbers ? "at once" : "after 4096 others");
    facts.number("strictness", "timer stretch", config.timer_stretch_max);
    facts.text("strictness", "read data", config.shuffles_reads ? "in any order" : "in order");
}

void describe_port(const Facts& facts, const Engine& engine, const ibv_port_attr& port) {
    facts.text("port 1", "state", tagwire_vhca_ibv_port_state_str(port.state));
    facts.text("port 1", "link layer", engine.port().is_ethernet() ? "Ethernet" : "InfiniBand");
    if (engine.port().interface() != nullptr) {
        facts.text("port 1", "address",
                   ipv4_text(static_cast<std::uint32_t>(engine.port().guid())));
        facts.text("port 1", "interface", engine.port().interface()->name);
    } else {
        facts.number("port 1", "lid", port.lid);
    }
    facts.number("port 1", "mtu", 128U << static_cast<unsigned>(port.active_mtu));
}

void describe_options(const Facts& facts) {
    for (const ucs::OptionReport& row : ucs::config_report(option_table()))
        facts.text("options", row.variable.c_str(), row.value + "  (" + row.option->doc + ")");
}

}  // namespace
}  // namespace tagwire::vhca

using namespace tagwire::vhca;

int tagwire_vhca_describe(void (*take)(void*, const char*, const char*, const char*), void* arg) {
    const Facts facts{take, arg};
    ibv_context* context = tagwire_vhca_ibv_open_device(device_at(0));
    if (context == nullptr)
        return errno;
    Engine& engine = *face(context).engine;
    ibv_device_attr attr;
    ibv_port_attr port{};
    tagwire_vhca_ibv_query_device(context, &attr);
    query_port_op(context, 1, &port, sizeof port);
    facts.text("versions", "tagwire", tagwire_vhca_version());
    describe_device(facts, engine, attr);
    describe_port(facts, engine, port);
    describe_limits(facts, engine.device().config(), attr);
    describe_strictness(facts, engine.device().config());
    describe_options(facts);
    return tagwire_vhca_ibv_close_device(context);
}
