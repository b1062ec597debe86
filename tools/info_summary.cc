// SPDX-License-Identifier: BSD-3-Clause
// Summary at the head of `tagwire info`: ten lines of what a newcomer needs.
#include <sys/resource.h>
#include <tagwire.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "cli/failure.hpp"
#include "tools/info.hpp"

namespace tagwire::tools {
namespace {

const InfoNode* child_of(const InfoNode& node, const std::string& name) {
    for (const InfoNode& child : node.children)
        if (child.name == name)
            return &child;
    return nullptr;
}

/// Empty if there is none.
std::string fact_of(const InfoNode& node, const std::string& name) {
    const InfoNode* const child = child_of(node, name);
    return child == nullptr ? "" : value_text(child->value);
}

/// The list of transports and what it stands for on this machine, as a worker tells it. Empty: none
/// can be made; the log says why.
std::string transports() {
    std::string text;
    tw_context_h context = nullptr;
    tw_worker_h worker = nullptr;
    const auto take = [](void* to, const char* key, const char* value) {
        if (std::string_view(key) == "transports")
            *static_cast<std::string*>(to) = value;
    };
    if (tw_context_create(nullptr, &context) == TW_OK &&
        tw_worker_create(context, nullptr, &worker) == TW_OK)
        static_cast<void>(tw_worker_describe(worker, take, &text));
    tw_worker_destroy(worker);
    tw_context_destroy(context);
    return text;
}

void say(const char* name, const std::string& what) {
    std::printf("  %-14s %s\n", name, what.c_str());
}

std::vector<const InfoNode*> transports_of(const InfoNode& component) {
    std::vector<const InfoNode*> all;
    if (const InfoNode* const domains = child_of(component, "memory_domains"))
        for (const InfoNode& domain : domains->children)
            if (const InfoNode* const transports = child_of(domain, "transports"))
                for (const InfoNode& transport : transports->children)
                    all.push_back(&transport);
    return all;
}

/// Transports of a component that work, and their devices: "tcp:eth0 tcp:lo". Else the reason.
std::string usable(const InfoNode& component) {
    std::string names, reason;
    for (const InfoNode* const transport : transports_of(component)) {
        const std::string error = fact_of(*transport, "error");
        const std::string name = value_text(transport->value) + ":" + fact_of(*transport, "device");
        if (error.empty())
            names += (names.empty() ? "" : " ") + name;
        else
            reason = name + ": " + error;
    }
    if (!names.empty())
        return names;
    if (const InfoNode* const found = child_of(component, "found"); found != nullptr)
        for (const InfoNode& fact : found->children)
            if (reason.empty())
                reason = fact.name + ": " + value_text(fact.value);
    return "none" + (reason.empty() ? "" : " (" + reason + ")");
}

/// The way of a long message's data to another process of this host.
std::string local_path(const InfoNode& component) {
    for (const InfoNode* const transport : transports_of(component)) {
        const InfoNode* const connection = child_of(*transport, "connection");
        const std::string path = connection == nullptr ? "" : fact_of(*connection, "zcopy_path");
        if (path.empty())
            continue;
        return path == "messages" ? "; long messages are copied twice (see the guide on containers)"
                                  : "; long messages are copied once (" + path + ")";
    }
    return "";
}

std::string costs(const std::string& setting) {
    if (setting == "none")
        return "modelled, as TAGWIRE_CALIBRATION=none says";
    if (setting != "auto")
        return "measured (" + setting + ", by TAGWIRE_CALIBRATION)";
    std::array<char, 4096> path{};
    std::size_t length = path.size();
    if (tw_calibration_path(path.data(), &length) == TW_OK && access(path.data(), R_OK) == 0)
        return std::string("measured (") + path.data() + ")";
    return "modelled; `tagwire tune` measures those of this machine";
}

std::string descriptors() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return "no limit";
    constexpr rlim_t kOwn = 100, kOfClient = 2;
    const rlim_t clients = limit.rlim_cur > kOwn ? (limit.rlim_cur - kOwn) / kOfClient : 0;
    return text("at most %llu (ulimit -n), enough for %llu clients of a server on this host",
                static_cast<unsigned long long>(limit.rlim_cur),
                static_cast<unsigned long long>(clients));
}

/// The options that somebody has set, and those that are refused.
std::string options(const InfoNode& config) {
    std::string set, refused;
    for (const InfoNode& option : config.children) {
        if (!fact_of(option, "problem").empty())
            refused += " " + fact_of(option, "name");
        else if (fact_of(option, "source") != "default")
            set += " " + fact_of(option, "name") + "=" + fact_of(option, "value");
    }
    return "set:" + (set.empty() ? " none" : set) + (refused.empty() ? "" : "; refused:" + refused);
}

std::string setting_of(const InfoNode& config, const std::string& name) {
    for (const InfoNode& option : config.children)
        if (fact_of(option, "name") == name)
            return fact_of(option, "value");
    return "";
}

std::string value_of(const InfoNode& config, const std::string& name) {
    const std::string setting = setting_of(config, name);
    return setting.empty() ? "" : setting + " (" + name + ")";
}

}  // namespace

void print_summary(const InfoFacts& facts) {
    std::printf("tagwire %s, %s\n", fact_of(facts.build, "version").c_str(),
                fact_of(facts.build, "library").c_str());
    for (const InfoNode& component : facts.devices.children) {
        const std::string name = value_text(component.value);
        if (name == "sm")
            say("shared memory", usable(component) + local_path(component));
        else
            say(name == "ib" ? "RDMA" : name.c_str(), usable(component));
    }
    const std::string meant = transports();
    say("transports", meant.empty() ? value_of(facts.config, "TAGWIRE_TRANSPORTS") : meant);
    say("waiting", fact_of(facts.progress, "mode") + " (TAGWIRE_PROGRESS)");
    say("costs", costs(setting_of(facts.config, "TAGWIRE_CALIBRATION")));
    say("descriptors", descriptors());
    say("options", options(facts.config));
    say("more", "tagwire info devices, config, progress or build; tagwire explain; man 7 tagwire");
}

}  // namespace tagwire::tools
