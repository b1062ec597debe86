// SPDX-License-Identifier: BSD-3-Clause
// The control channel between two machines: one TCP connection.
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include "cli/failure.hpp"
#include "tools/channel.hpp"

namespace tagwire::tools {
namespace {

using namespace std::chrono_literals;
constexpr auto kListenPatience = 3s;
constexpr int kConnectTimeoutMs = 5000;
constexpr timeval kTokenPatience{5, 0};
using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList resolve(const std::string& host, std::uint16_t port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
    if (error != 0) {
        throw Failure(
            text("--connect: cannot resolve host '%s': %s", host.c_str(), gai_strerror(error)));
    }
    return AddressList(list, &freeaddrinfo);
}

/// Returns 0 or an errno.
int finish_connect(int fd) {
    pollfd poll_fd{fd, POLLOUT, 0};
    if (poll(&poll_fd, 1, kConnectTimeoutMs) <= 0)
        return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
}

/// Returns a connected socket, or -1 with *error set.
int try_connect(const addrinfo& address, int* error) {
    const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        *error = errno;
        return -1;
    }
    *error = connect(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
    if (*error == EINPROGRESS)
        *error = finish_connect(fd);
    if (*error != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

void make_ready(int fd) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    // From here on the socket blocks: reads are preceded by a poll with a timeout.
    const int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

/// Binds `listener`, which it closes when it fails.
int listen_at(int listener, const sockaddr* address, socklen_t length, std::uint16_t port) {
    const int on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(listener, address, length) != 0 || listen(listener, 1) != 0) {
        const int error = errno;
        close(listener);
        throw Failure(
            text("--server: cannot listen on port %u: %s", unsigned{port}, std::strerror(error)));
    }
    return listener;
}

int listen_on_loopback(std::uint16_t port) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0)
        throw Failure(text("cannot make a socket: %s", std::strerror(errno)));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return listen_at(listener, reinterpret_cast<sockaddr*>(&address), sizeof address, port);
}

int listen_on_all(std::uint16_t port) {
    const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool v6 = fd >= 0;
    const int listener = v6 ? fd : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0)
        throw Failure(text("--server: cannot make a socket: %s", std::strerror(errno)));
    const int off = 0;
    sockaddr_in6 any6{};
    any6.sin6_family = AF_INET6;
    any6.sin6_port = htons(port);
    sockaddr_in any4{};
    any4.sin_family = AF_INET;
    any4.sin_port = htons(port);
    if (v6)
        setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    const sockaddr* address =
        v6 ? reinterpret_cast<sockaddr*>(&any6) : reinterpret_cast<sockaddr*>(&any4);
    const socklen_t length = v6 ? sizeof(any6) : sizeof(any4);
    return listen_at(listener, address, length, port);
}

/// Whether the client shows the token within a few seconds.
bool is_shown(int fd, const Token& token) {
    Token shown{};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kTokenPatience, sizeof kTokenPatience);
    const ssize_t n = recv(fd, shown.data(), shown.size(), MSG_WAITALL);
    constexpr timeval kForEver{0, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kForEver, sizeof kForEver);
    return n == static_cast<ssize_t>(shown.size()) && shown == token;
}

}  // namespace

Token make_token() {
    Token token{};
    if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size()))
        throw Failure(text("no random number: %s", std::strerror(errno)));
    return token;
}

void show_token(int fd, const Token& token) {
    // The buffer of a new connection takes it as a whole.
    const ssize_t n = send(fd, token.data(), token.size(), MSG_NOSIGNAL);
    if (n != static_cast<ssize_t>(token.size()))
        throw Failure(text("the peer process ended (%s)", std::strerror(errno)));
}

int connect_to(const std::string& host, std::uint16_t port) {
    const AddressList list = resolve(host, port);
    const auto give_up = std::chrono::steady_clock::now() + kListenPatience;
    int error = 0;
    do {
        for (const addrinfo* address = list.get(); address != nullptr; address = address->ai_next) {
            const int fd = try_connect(*address, &error);
            if (fd >= 0) {
                make_ready(fd);
                return fd;
            }
        }
        if (error != ECONNREFUSED)
            break;
        std::this_thread::sleep_for(50ms);
    } while (std::chrono::steady_clock::now() < give_up);
    throw Failure(
        text("no tagwire server at %s port %u (%s): start `tagwire perf --server %u` there first "
             "and check "
             "that a firewall lets the port through",
             host.c_str(), unsigned{port}, std::strerror(error), unsigned{port}));
}

Listener::Listener(std::uint16_t port, Reach reach)
    : fd_(reach == Reach::kThisHost ? listen_on_loopback(port) : listen_on_all(port)) {}

Listener::~Listener() {
    close(fd_);
}

std::uint16_t Listener::port() const {
    sockaddr_in6 address{};
    socklen_t length = sizeof(address);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    return ntohs(address.sin6_port);  // at the same place in both families
}

int Listener::accept_one() const {
    int fd = -1;
    do {
        fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0)
        throw Failure(text("--server: accept: %s", std::strerror(errno)));
    make_ready(fd);
    return fd;
}

int Listener::accept_one(const Token& token) const {
    for (;;) {
        const int fd = accept_one();
        if (is_shown(fd, token))
            return fd;
        close(fd);
    }
}

int accept_one(std::uint16_t port) {
    const Listener listener(port);
    std::printf("tagwire: listening on port %u\n", unsigned{listener.port()});
    std::fflush(stdout);
    return listener.accept_one();
}

}  // namespace tagwire::tools
