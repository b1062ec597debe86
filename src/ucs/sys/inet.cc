// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/inet.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace tagwire::ucs {
namespace {

constexpr std::string_view kDefaultHost = "127.0.0.1";
constexpr unsigned kPortMax = 65535;

bool is_port(std::string_view text, unsigned port_min) {
    unsigned port = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
    return error == std::errc() && end == text.data() + text.size() && port >= port_min &&
           port <= kPortMax;
}

struct Name {
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;

    [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&address); }
};

std::string text_of_name(Name& name) {
    HostPort at;
    return read_socket_address(name.get(), name.bytes, 0, &at) ? text_of(at) : "an unknown address";
}

}  // namespace

bool parse_host_port(std::string_view where, unsigned port_min, HostPort* to) {
    const std::size_t colon = where.rfind(':');
    std::string_view host = colon == std::string_view::npos ? "" : where.substr(0, colon);
    const std::string_view port = colon == std::string_view::npos ? where : where.substr(colon + 1);
    const bool has_brackets = host.size() >= 2 && host.front() == '[' && host.back() == ']';
    if (!is_port(port, port_min) || (!has_brackets && host.find(':') != std::string_view::npos))
        return false;
    if (has_brackets)
        host = host.substr(1, host.size() - 2);
    to->host = host.empty() ? kDefaultHost : host;
    to->port = port;
    return true;
}

bool read_socket_address(const sockaddr* address, std::size_t bytes, unsigned port_min,
                         HostPort* to) {
    const bool is_v4 = bytes == sizeof(sockaddr_in) && address->sa_family == AF_INET;
    const bool is_v6 = bytes == sizeof(sockaddr_in6) && address->sa_family == AF_INET6;
    char host[NI_MAXHOST];
    char port[NI_MAXSERV];
    if ((!is_v4 && !is_v6) ||
        ::getnameinfo(address, static_cast<socklen_t>(bytes), host, sizeof host, port, sizeof port,
                      NI_NUMERICHOST | NI_NUMERICSERV) != 0 ||
        !is_port(port, port_min))
        return false;
    to->host = host;
    to->port = port;
    return true;
}

std::string text_of(const HostPort& at) {
    const bool is_v6 = at.host.find(':') != std::string::npos;
    return (is_v6 ? "[" : "") + at.host + (is_v6 ? "]:" : ":") + at.port;
}

int resolve(const HostPort& at, int flags, AddressList* list_p) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | flags;
    addrinfo* list = nullptr;
    const int error = ::getaddrinfo(at.host.c_str(), at.port.c_str(), &hints, &list);
    if (error == 0)
        *list_p = AddressList(list, &freeaddrinfo);
    return error;
}

UniqueFd make_tcp_socket(const addrinfo& address) {
    UniqueFd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    // On both sides: a port where earlier connections wait for their end is free for a listener
    // then.
    const int on = 1;
    if (fd)
        ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return fd;
}

bool is_own_end(int fd) {
    Name ours;
    Name theirs;
    return ::getsockname(fd, ours.get(), &ours.bytes) == 0 &&
           ::getpeername(fd, theirs.get(), &theirs.bytes) == 0 && ours.bytes == theirs.bytes &&
           std::memcmp(&ours.address, &theirs.address, ours.bytes) == 0;
}

std::string own_text(int fd) {
    Name name;
    return ::getsockname(fd, name.get(), &name.bytes) == 0 ? text_of_name(name) : "a closed socket";
}

std::string peer_text(int fd) {
    Name name;
    return ::getpeername(fd, name.get(), &name.bytes) == 0 ? text_of_name(name)
                                                           : "a closed connection";
}

sockaddr_storage own_address(int fd) {
    Name name;
    return ::getsockname(fd, name.get(), &name.bytes) == 0 ? name.address : sockaddr_storage{};
}

sockaddr_storage peer_address(int fd) {
    Name name;
    return ::getpeername(fd, name.get(), &name.bytes) == 0 ? name.address : sockaddr_storage{};
}

}  // namespace tagwire::ucs
