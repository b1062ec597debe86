// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/networks.hpp"

#include <linux/if_addr.h>
#include <net/route.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>
#include <vector>

#include "ucs/sys/fd.hpp"

namespace tagwire::tcp {

namespace {

constexpr std::size_t kInet6Digits = 32;

std::string text_of_file(const char* path) {
    std::FILE* file = std::fopen(path, "re");
    if (file == nullptr)
        return {};
    std::string text;
    char part[4096];
    while (const std::size_t bytes = std::fread(part, 1, sizeof part, file))
        text.append(part, bytes);
    std::fclose(file);
    return text;
}

/// Calls `take` with the words of each line that has at least so many.
template <class Take>
void for_each_line(const std::string& text, std::size_t words_min, const Take& take) {
    std::istringstream lines(text);
    std::vector<std::string> words;
    for (std::string line; std::getline(lines, line);) {
        words.clear();
        std::istringstream parts(line);
        for (std::string word; parts >> word;)
            words.push_back(std::move(word));
        if (words.size() >= words_min)
            take(words);
    }
}

unsigned long number_of(const std::string& hex) {
    return std::strtoul(hex.c_str(), nullptr, 16);
}

bool is_zero(const std::string& hex) {
    return hex.find_first_not_of('0') == std::string::npos;
}

bool is_usable_route(const std::string& flags) {
    return (number_of(flags) & (RTF_UP | RTF_REJECT)) == RTF_UP;
}

Lasting lasting_of(unsigned long flags) {
    if ((flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED)) != 0 && (flags & IFA_F_OPTIMISTIC) == 0)
        return Lasting::kUnusable;
    if ((flags & IFA_F_DEPRECATED) != 0)
        return Lasting::kDeprecated;
    return (flags & IFA_F_TEMPORARY) != 0 ? Lasting::kTemporary : Lasting::kStable;
}

}  // namespace

std::optional<IpAddress> source_towards(const IpAddress& peer) {
    constexpr std::uint16_t kDiscard = 9;  // any port
    const ucs::UniqueFd fd(
        ::socket(peer.is_inet6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    socklen_t bytes = 0;
    sockaddr_storage address = sockaddr_of(peer, kDiscard, &bytes);
    auto* name = reinterpret_cast<sockaddr*>(&address);
    if (!fd || ::connect(fd.get(), name, bytes) != 0)
        return std::nullopt;
    bytes = sizeof address;
    if (::getsockname(fd.get(), name, &bytes) != 0)
        return std::nullopt;
    return ip_of(address);
}

Networks Networks::read() {
    Networks networks;
    networks.add_addresses(text_of_file("/proc/thread-self/net/if_inet6"));
    networks.add_routes(text_of_file("/proc/thread-self/net/route"));
    networks.add_routes6(text_of_file("/proc/thread-self/net/ipv6_route"));
    return networks;
}

// address, index, length of the prefix, scope, flags, name
void Networks::add_addresses(const std::string& if_inet6) {
    for_each_line(if_inet6, 6, [this](const std::vector<std::string>& words) {
        if (words[0].size() != kInet6Digits)
            return;
        std::array<unsigned char, 16> address{};
        for (std::size_t i = 0; i < address.size(); ++i)
            address[i] = static_cast<unsigned char>(number_of(words[0].substr(2 * i, 2)));
        addresses_[address] = lasting_of(number_of(words[4]));
    });
}

// name, destination, gateway, flags, 3 more, mask
void Networks::add_routes(const std::string& route) {
    for_each_line(route, 8, [this](const std::vector<std::string>& words) {
        if (is_zero(words[1]) && is_zero(words[7]) && is_usable_route(words[3]))
            default_routes_.insert(words[0]);
    });
}

// destination, length of its prefix, source, length, gateway, metric, 2 more, flags, name
void Networks::add_routes6(const std::string& ipv6_route) {
    for_each_line(ipv6_route, 10, [this](const std::vector<std::string>& words) {
        if (is_zero(words[0]) && is_zero(words[1]) && is_usable_route(words[8]))
            default_routes_.insert(words[9]);
    });
}

Lasting Networks::lasting(const in6_addr& address) const {
    std::array<unsigned char, 16> bytes;
    std::memcpy(bytes.data(), &address, bytes.size());
    const auto found = addresses_.find(bytes);
    return found == addresses_.end() ? Lasting::kStable : found->second;
}

}  // namespace tagwire::tcp
