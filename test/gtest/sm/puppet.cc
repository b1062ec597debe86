// SPDX-License-Identifier: BSD-3-Clause
#include "sm/puppet.hpp"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <span>

#include "ucs/debug/check.hpp"
#include "ucs/sys/unix_socket.hpp"
#include "uct/sm/wire.hpp"

namespace tagwire::test {

namespace {

/// The puppet's report that it has closed its own copy of the descriptor it sent.
constexpr char kClosed = 'c';

[[noreturn]] void run_puppet(int channel) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::uint64_t name = 0;
    while (::recv(channel, &name, sizeof name, 0) == sizeof name) {
        ucs::UniqueFd socket;
        const ucs_status_t status = ucs::unix_connect({"", sm::socket_name(name)}, &socket);
        const int fd = socket.get();
        ucs::unix_send(channel, std::as_bytes(std::span(&status, 1)), &fd,
                       status == UCS_OK ? 1 : 0);
        socket.reset();
        if (::send(channel, &kClosed, sizeof kClosed, MSG_NOSIGNAL) < 0)
            break;
    }
    ::_exit(0);
}

}  // namespace

Puppet::Puppet() {
    int ends[2];
    TW_CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    const pid_t pid = ::fork();
    TW_CHECK(pid >= 0);
    if (pid == 0) {
        ::close(ends[0]);
        run_puppet(ends[1]);
    }
    ::close(ends[1]);
    channel_.reset(ends[0]);
}

ucs::UniqueFd Puppet::connect(std::uint64_t name) const {
    TW_CHECK(::send(channel_.get(), &name, sizeof name, MSG_NOSIGNAL) == ssize_t{sizeof name});
    std::array<std::byte, 64> buffer;
    ucs::ReceivedMessage message;
    while (ucs::unix_receive(channel_.get(), buffer, &message) == UCS_ERR_NO_PROGRESS) {
    }
    char closed = 0;
    while (::recv(channel_.get(), &closed, sizeof closed, 0) < 0 && errno == EINTR) {
    }
    TW_CHECK(closed == kClosed);
    return std::move(message.fds[0]);
}

}  // namespace tagwire::test
