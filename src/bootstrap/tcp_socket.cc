// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/tcp_socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace tagwire::bootstrap {
namespace {

constexpr const char* kDefaultHost = "127.0.0.1";
constexpr int kBacklog = 1024;

bool is_port(std::string_view text) {
    if (text.empty() || text.size() > 5)
        return false;
    unsigned port = 0;
    for (const char letter : text) {
        if (letter < '0' || letter > '9')
            return false;
        port = port * 10 + static_cast<unsigned>(letter - '0');
    }
    return port >= 1 && port <= 65535;
}

ucs::UniqueFd make_socket(const addrinfo& address) {
    ucs::UniqueFd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    // On both sides: a port where an earlier job's connections wait for their end is free for a
    // listener then.
    const int on = 1;
    if (fd)
        ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return fd;
}

ucs_status_t listen_status(int error) {
    if (error == EADDRINUSE)
        return UCS_ERR_BUSY;
    return error == EADDRNOTAVAIL ? UCS_ERR_INVALID_PARAM : UCS_ERR_IO_ERROR;
}

/// Where nobody listens, a port of the range for outgoing connections may connect to itself.
bool is_own_end(int fd) {
    sockaddr_storage ours{};
    sockaddr_storage theirs{};
    socklen_t our_bytes = sizeof ours;
    socklen_t their_bytes = sizeof theirs;
    return ::getsockname(fd, reinterpret_cast<sockaddr*>(&ours), &our_bytes) == 0 &&
           ::getpeername(fd, reinterpret_cast<sockaddr*>(&theirs), &their_bytes) == 0 &&
           our_bytes == their_bytes && std::memcmp(&ours, &theirs, our_bytes) == 0;
}

/// 0 or an errno.
int finish_connect(int fd, const Deadline& deadline) {
    pollfd entry{fd, POLLOUT, 0};
    int ready = 0;
    do {
        ready = ::poll(&entry, 1, deadline.left_ms());
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0)
        return ETIMEDOUT;
    int error = 0;
    socklen_t bytes = sizeof error;
    return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

int try_connect(const addrinfo& address, const Deadline& deadline, ucs::UniqueFd* fd_p) {
    ucs::UniqueFd fd = make_socket(address);
    if (!fd)
        return errno;
    int error = ::connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS)
        error = finish_connect(fd.get(), deadline);
    if (error == 0 && is_own_end(fd.get()))
        error = ECONNREFUSED;
    if (error != 0)
        return error;
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *fd_p = std::move(fd);
    return 0;
}

}  // namespace

Result resolve(const std::string& where, AddressList* list_p) {
    const std::size_t colon = where.rfind(':');
    std::string host = colon == std::string::npos ? "" : where.substr(0, colon);
    const std::string port = colon == std::string::npos ? where : where.substr(colon + 1);
    const bool has_brackets = host.size() >= 2 && host.front() == '[' && host.back() == ']';
    if (!is_port(port) || (!has_brackets && host.find(':') != std::string::npos)) {
        return failed(UCS_ERR_INVALID_PARAM, "'%s' is not HOST:PORT with a port from 1 to 65535",
                      where.c_str());
    }
    if (has_brackets)
        host = host.substr(1, host.size() - 2);
    if (host.empty())
        host = kDefaultHost;
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* list = nullptr;
    const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
    if (error != 0) {
        return failed(UCS_ERR_UNREACHABLE, "cannot resolve host '%s': %s", host.c_str(),
                      gai_strerror(error));
    }
    *list_p = AddressList(list, &freeaddrinfo);
    return {};
}

Result tcp_listen(const std::string& where, const addrinfo* list, ucs::UniqueFd* fd_p) {
    int error = 0;
    for (const addrinfo* address = list; address != nullptr; address = address->ai_next) {
        ucs::UniqueFd fd = make_socket(*address);
        if (fd && ::bind(fd.get(), address->ai_addr, address->ai_addrlen) == 0 &&
            ::listen(fd.get(), kBacklog) == 0) {
            *fd_p = std::move(fd);
            return {};
        }
        error = errno;
    }
    return failed_errno(listen_status(error), error, "rank 0 cannot listen at %s", where.c_str());
}

Result tcp_connect(const addrinfo* list, const Deadline& deadline, ucs::UniqueFd* fd_p) {
    int error = 0;
    for (const addrinfo* address = list; address != nullptr; address = address->ai_next) {
        error = try_connect(*address, deadline, fd_p);
        if (error == 0)
            return {};
    }
    return {UCS_ERR_UNREACHABLE, std::strerror(error)};
}

bool is_loopback(int fd) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
        return false;
    if (address.ss_family == AF_INET6) {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(&v6) != 0;
    }
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
}

std::string peer_text(int fd) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    char host[NI_MAXHOST];
    char port[NI_MAXSERV];
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
        ::getnameinfo(reinterpret_cast<sockaddr*>(&address), bytes, host, sizeof host, port,
                      sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return "a closed connection";
    }
    return std::string(host) + ":" + port;
}

}  // namespace tagwire::bootstrap
