// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/devices.hpp"

#include <fnmatch.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "ucs/log/log.hpp"
#include "ucs/sys/limits.hpp"
#include "ucs/time/clock.hpp"
#include "uct/tcp/networks.hpp"
#include "uct/tcp/options.hpp"

namespace tagwire::tcp {

namespace {

constexpr double kAssumedMbitPerS = 10000;
constexpr double kLoopbackMbitPerS = 80000;
constexpr double kBytesPerMbit = 1e6 / 8;

/// The option chooses interfaces, and not just all.
bool is_choice(const char* wanted) {
    return wanted[0] != '^' && std::strcmp(wanted, "*") != 0;
}

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

bool is_hardware(const std::string& name) {
    return ::access(("/sys/class/net/" + name + "/device").c_str(), F_OK) == 0;
}

/// The better one of an interface's addresses has the lower rank: IPv4, global IPv6 by how long it
/// stays, link-local.
constexpr int kRankLinkLocal = 10;
constexpr int kRankUnusable = INT_MAX;

int rank_of(const sockaddr& address, const Networks& networks) {
    if (address.sa_family == AF_INET)
        return 0;
    sockaddr_in6 inet6;
    std::memcpy(&inet6, &address, sizeof inet6);
    const Lasting lasting = networks.lasting(inet6.sin6_addr);
    if (lasting == Lasting::kUnusable)
        return kRankUnusable;
    return IN6_IS_ADDR_LINKLOCAL(&inet6.sin6_addr) ? kRankLinkLocal : 1 + static_cast<int>(lasting);
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
    int rank = kRankUnusable;
};

void add(const ifaddrs& entry, const DeviceOptions& options, const Networks& networks,
         std::vector<Listed>* all) {
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
        rank_of(*entry.ifa_addr, networks) >= place->rank)
        return;
    place->rank = rank_of(*entry.ifa_addr, networks);
    sockaddr_storage address{};
    std::memcpy(&address, entry.ifa_addr,
                entry.ifa_addr->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    place->device.address = ip_of(address);
    place->device.address.is_loopback = is_loopback;
    place->device.problem.clear();
    if (place->rank == kRankLinkLocal && !is_loopback && !is_choice(options.devices.text))
        place->device.problem =
            "it has a link-local address alone; name it in TAGWIRE_TCP_DEVICES to use it";
}

/// By which usable ones are ordered, the best first.
struct Merit {
    bool is_loopback, has_no_default_route, is_no_hardware;
    double slowness;

    auto operator<=>(const Merit&) const = default;
};

void sort_best_first(const Networks& networks, std::vector<Device>* devices) {
    std::vector<std::pair<Merit, Device>> order;
    for (Device& each : *devices) {
        Merit merit{each.address.is_loopback, false, false, 0};
        if (each.problem.empty()) {
            merit.has_no_default_route = !networks.has_default_route(each.name);
            merit.is_no_hardware = !is_hardware(each.name);
            merit.slowness = -speed_of(each).bytes_per_s;
        }
        order.emplace_back(merit, std::move(each));
    }
    std::ranges::stable_sort(order, std::ranges::less(),
                             [](const auto& each) -> const Merit& { return each.first; });
    devices->clear();
    for (auto& [merit, device] : order)
        devices->push_back(std::move(device));
}

/// The best come first.
void leave_out_what_is_too_many(std::vector<Device>* devices) {
    std::size_t used = 0;
    for (Device& each : *devices)
        if (each.problem.empty() && !each.address.is_loopback && ++used > kDevicesMax)
            each.problem = fmt::format(
                "{} others come first; name it in TAGWIRE_TCP_DEVICES to use it", kDevicesMax);
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
    const Networks networks = Networks::read();
    std::vector<Listed> all;
    for (const ifaddrs* entry = entries; entry != nullptr; entry = entry->ifa_next)
        add(*entry, *options, networks, &all);
    ::freeifaddrs(entries);
    std::vector<Device> devices;
    for (Listed& each : all)
        devices.push_back(std::move(each.device));
    sort_best_first(networks, &devices);
    if (!is_choice(options->devices.text))
        leave_out_what_is_too_many(&devices);
    return devices;
}

DeviceList::Devices DeviceList::now() {
    constexpr std::uint64_t kFreshNs = 1'000'000'000;
    {
        const std::lock_guard locked(lock_);
        if (devices_ != nullptr && ucs::clock_now_ns() - listed_ < kFreshNs)
            return devices_;
    }
    return renew();
}

DeviceList::Devices DeviceList::renew() {
    auto devices = std::make_shared<const std::vector<Device>>(list_devices());
    const std::lock_guard locked(lock_);
    listed_ = ucs::clock_now_ns();
    devices_ = devices;
    return devices;
}

}  // namespace tagwire::tcp
