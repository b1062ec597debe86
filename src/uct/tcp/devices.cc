// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/devices.hpp"

#include <fnmatch.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sstream>

#include "ucs/log/log.hpp"
#include "ucs/sys/limits.hpp"
#include "uct/tcp/options.hpp"

namespace tagwire::tcp {

namespace {

constexpr double kAssumedMbitPerS = 10000;
constexpr double kLoopbackMbitPerS = 80000;
constexpr double kBytesPerMbit = 1e6 / 8;

/// TAGWIRE_TCP_DEVICES.
bool admits(const char* wanted, const std::string& name) {
    const bool is_exclusive = wanted[0] == '^';
    std::istringstream patterns(is_exclusive ? wanted + 1 : wanted);
    bool is_named = false;
    for (std::string pattern; std::getline(patterns, pattern, ',');) {
        std::erase(pattern, ' ');
        is_named = is_named || ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    }
    return is_named != is_exclusive;
}

double mbit_per_s_of(const std::string& name) {
    std::FILE* file = std::fopen(("/sys/class/net/" + name + "/speed").c_str(), "re");
    if (file == nullptr)
        return 0;
    double speed = 0;
    if (std::fscanf(file, "%lf", &speed) != 1)
        speed = 0;
    std::fclose(file);
    return speed;
}

/// The better one of an interface's addresses has the lower rank: IPv4, global IPv6, link-local.
int rank_of(const sockaddr& address) {
    if (address.sa_family == AF_INET)
        return 0;
    sockaddr_in6 inet6;
    std::memcpy(&inet6, &address, sizeof inet6);
    return IN6_IS_ADDR_LINKLOCAL(&inet6.sin6_addr) ? 2 : 1;
}

bool is_wanted(const sockaddr* address, Family family) {
    if (address == nullptr)
        return false;
    return (address->sa_family == AF_INET && family != Family::kInet6) ||
           (address->sa_family == AF_INET6 && family != Family::kInet);
}

std::string problem_of(const std::string& name, unsigned flags, const char* wanted) {
    if (!admits(wanted, name))
        return "left out by TAGWIRE_TCP_DEVICES";
    if ((flags & IFF_UP) == 0)
        return "it is down";
    if ((flags & IFF_RUNNING) == 0)
        return "it has no carrier";
    return "it has no address of the family that TAGWIRE_TCP_AF asks for";
}

struct Listed {
    Device device;
    int rank = INT_MAX;
};

void add(const ifaddrs& entry, const DeviceOptions& options, std::vector<Listed>* all) {
    const std::string name = entry.ifa_name;
    const bool is_loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
    auto place = std::ranges::find_if(*all, [&](const Listed& e) { return e.device.name == name; });
    if (place == all->end()) {
        all->emplace_back();
        place = all->end() - 1;
        place->device.name = name;
        place->device.address.is_loopback = is_loopback;
        place->device.problem = problem_of(name, entry.ifa_flags, options.devices.text);
    }
    constexpr unsigned kUsable = IFF_UP | IFF_RUNNING;
    if ((entry.ifa_flags & kUsable) != kUsable || !admits(options.devices.text, name) ||
        !is_wanted(entry.ifa_addr, static_cast<Family>(options.family)) ||
        rank_of(*entry.ifa_addr) >= place->rank)
        return;
    place->rank = rank_of(*entry.ifa_addr);
    sockaddr_storage address{};
    std::memcpy(&address, entry.ifa_addr,
                entry.ifa_addr->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    place->device.address = ip_of(address);
    place->device.address.is_loopback = is_loopback;
    place->device.problem.clear();
}

}  // namespace

Speed speed_of(const Device& device) {
    double mbit = mbit_per_s_of(device.name);
    const bool is_assumed = mbit <= 0;
    if (is_assumed)
        mbit = device.address.is_loopback ? kLoopbackMbitPerS : kAssumedMbitPerS;
    return {mbit * kBytesPerMbit, is_assumed};
}

std::vector<Device> list_devices() {
    const auto options = std::make_unique<DeviceOptions>();
    std::vector<std::string> problems;  // the options' own reader logs them
    ucs::config_resolve(device_option_table(), options.get(), {}, &problems);
    ifaddrs* entries = nullptr;
    if (::getifaddrs(&entries) != 0) {
        TW_LOG_WARN("getifaddrs: %s: no network interface can be used for TCP",
                    ucs::error_text(errno).c_str());
        return {};
    }
    std::vector<Listed> all;
    for (const ifaddrs* entry = entries; entry != nullptr; entry = entry->ifa_next)
        add(*entry, *options, &all);
    ::freeifaddrs(entries);
    // The loopback interface is the last.
    std::stable_partition(all.begin(), all.end(),
                          [](const Listed& each) { return !each.device.address.is_loopback; });
    std::vector<Device> devices;
    for (Listed& each : all)
        devices.push_back(std::move(each.device));
    return devices;
}

}  // namespace tagwire::tcp
