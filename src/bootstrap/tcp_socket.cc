// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/tcp_socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

namespace tagwire::bootstrap {
namespace {

constexpr int kBacklog = 1024;

ucs_status_t listen_status(int error) {
    if (error == EADDRINUSE)
        return UCS_ERR_BUSY;
    return error == EADDRNOTAVAIL ? UCS_ERR_INVALID_PARAM : UCS_ERR_IO_ERROR;
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
    ucs::UniqueFd fd = ucs::make_tcp_socket(address);
    if (!fd)
        return errno;
    int error = ::connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS)
        error = finish_connect(fd.get(), deadline);
    if (error == 0 && ucs::is_own_end(fd.get()))
        error = ECONNREFUSED;
    if (error != 0)
        return error;
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *fd_p = std::move(fd);
    return 0;
}

}  // namespace

Result resolve(const std::string& where, ucs::AddressList* list_p) {
    ucs::HostPort at;
    if (!ucs::parse_host_port(where, 1, &at)) {
        return failed(UCS_ERR_INVALID_PARAM, "'%s' is not HOST:PORT with a port from 1 to 65535",
                      where.c_str());
    }
    if (const int error = ucs::resolve(at, 0, list_p); error != 0) {
        return failed(UCS_ERR_UNREACHABLE, "cannot resolve host '%s': %s", at.host.c_str(),
                      gai_strerror(error));
    }
    return {};
}

Result tcp_listen(const std::string& where, const addrinfo* list, ucs::UniqueFd* fd_p) {
    int error = 0;
    for (const addrinfo* address = list; address != nullptr; address = address->ai_next) {
        ucs::UniqueFd fd = ucs::make_tcp_socket(*address);
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

}  // namespace tagwire::bootstrap
