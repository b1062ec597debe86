// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/unix_socket.hpp"

#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/sys/limits.hpp"

namespace tagwire::ucs {

namespace {

constexpr int kBacklog = 4096;

std::string path_of(const UnixAddress& address) {
    return address.directory + "/" + address.name;
}

ucs_status_t to_sockaddr(const UnixAddress& address, sockaddr_un* out, socklen_t* length_p) {
    std::memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    const bool abstract = address.directory.empty();
    // An abstract name begins with a zero byte; before that of a file are its directory and a '/'.
    const std::size_t start = address.directory.size() + 1;
    const std::size_t bytes = start + address.name.size();
    if (bytes >= sizeof out->sun_path) {
        TW_LOG_ERROR("socket path \"%s%s%s\" has %zu bytes, at most %zu fit",
                     address.directory.c_str(), abstract ? "" : "/", address.name.c_str(),
                     abstract ? bytes - 1 : bytes, sizeof out->sun_path - (abstract ? 2 : 1));
        return UCS_ERR_INVALID_PARAM;
    }
    if (!abstract) {
        std::memcpy(out->sun_path, address.directory.data(), address.directory.size());
        out->sun_path[address.directory.size()] = '/';
    }
    std::memcpy(out->sun_path + start, address.name.data(), address.name.size());
    *length_p =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + bytes + (abstract ? 0 : 1));
    return UCS_OK;
}

ucs_status_t make_socket(UniqueFd* fd_p) {
    fd_p->reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    return *fd_p ? UCS_OK : fd_error("socket", errno);
}

// A peer may pass a socket whose close waits (SO_LINGER) until data that it holds back is sent.
void never_wait_in_close(int fd) {
    const linger off{0, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof off);  // fails for all but sockets
}

void take_fds(const msghdr& header, ReceivedMessage* message) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr;
         c = CMSG_NXTHDR(const_cast<msghdr*>(&header), c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
            UniqueFd owned(fd);
            never_wait_in_close(fd);
            if (message->fd_count < kFdsPerMessageMax)
                message->fds[message->fd_count++] = std::move(owned);
        }
    }
}

}  // namespace

ucs_status_t unix_listen(const UnixAddress& address, UniqueFd* fd_p) {
    // Between bind and listen a socket looks dead. In a directory that others sweep it gets its
    // name only when it listens.
    const bool in_directory = !address.directory.empty();
    const UnixAddress early{address.directory, in_directory ? "." + address.name : address.name};
    sockaddr_un name;
    socklen_t length = 0;
    ucs_status_t status = to_sockaddr(early, &name, &length);
    if (status != UCS_OK)
        return status;
    UniqueFd fd;
    if ((status = make_socket(&fd)) != UCS_OK)
        return status;
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0) {
        if (errno == EADDRINUSE)
            return UCS_ERR_ALREADY_EXISTS;
        return fd_error("bind of a local socket", errno);
    }
    if (::listen(fd.get(), kBacklog) != 0)
        return fd_error("listen", errno);
    if (in_directory) {
        // Unlike rename(2), link(2) does not take the place of a socket that has the name already.
        const bool named = ::link(path_of(early).c_str(), path_of(address).c_str()) == 0;
        const int error = errno;
        unix_unlink(early);
        if (!named)
            return error == EEXIST ? UCS_ERR_ALREADY_EXISTS
                                   : fd_error("link of a local socket", error);
    }
    *fd_p = std::move(fd);
    return UCS_OK;
}

ucs_status_t unix_connect(const UnixAddress& address, UniqueFd* fd_p) {
    sockaddr_un name;
    socklen_t length = 0;
    ucs_status_t status = to_sockaddr(address, &name, &length);
    if (status != UCS_OK)
        return status;
    UniqueFd fd;
    if ((status = make_socket(&fd)) != UCS_OK)
        return status;
    int rc = 0;
    do {
        rc = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), length);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0) {
        if (errno == EAGAIN)
            return UCS_ERR_NO_RESOURCE;
        if (errno == ECONNREFUSED || errno == ENOENT)
            return UCS_ERR_UNREACHABLE;
        return fd_error("connect of a local socket", errno);
    }
    *fd_p = std::move(fd);
    return UCS_OK;
}

ucs_status_t unix_accept(int listener, UniqueFd* fd_p) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
            return UCS_ERR_NO_PROGRESS;
        return fd_error("accept", errno);
    }
    fd_p->reset(fd);
    return UCS_OK;
}

ucs_status_t unix_send(int fd, std::span<const std::byte> message, const int* fds,
                       std::size_t fd_count) {
    alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int) * kFdsPerMessageMax)] = {};
    iovec iov{const_cast<std::byte*>(message.data()), message.size()};
    msghdr header{};
    header.msg_iov = &iov;
    header.msg_iovlen = 1;
    if (fd_count > 0) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        cmsghdr* c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        std::memcpy(CMSG_DATA(c), fds, sizeof(int) * fd_count);
    }
    ssize_t sent = 0;
    do {
        sent = ::sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0)
        return UCS_OK;
    // ETOOMANYREFS: too many descriptors of ours are under way; the peers' reading brings it down.
    if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)
        return UCS_ERR_NO_RESOURCE;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
        return UCS_ERR_CONNECTION_RESET;
    return fd_error("sendmsg", errno);
}

ucs_status_t unix_receive(int fd, std::span<std::byte> buffer, ReceivedMessage* message_p) {
    alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int) * kFdsPerMessageMax)];
    iovec iov{buffer.data(), buffer.size()};
    msghdr header{};
    header.msg_iov = &iov;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    ssize_t got = 0;
    bool is_reset = false;
    // ECONNRESET says that the peer closed without having read all that we sent. It is told once,
    // before packets of the peer that wait to be read; their end is an end of file.
    do {
        got = ::recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 &&
             (errno == EINTR || (errno == ECONNRESET && !std::exchange(is_reset, true))));
    if (got < 0) {
        if (errno == EAGAIN)
            return UCS_ERR_NO_PROGRESS;
        if (errno == ECONNRESET)
            return UCS_ERR_CONNECTION_RESET;
        return fd_error("recvmsg", errno);
    }
    ReceivedMessage message;
    take_fds(header, &message);
    if (got == 0 && message.fd_count == 0)
        return UCS_ERR_CONNECTION_RESET;
    // It also says that we ran out of descriptors while they were handed over.
    const bool is_cut = (header.msg_flags & MSG_CTRUNC) != 0;
    if (is_cut && message.fd_count < kFdsPerMessageMax)
        return fd_error("recvmsg (descriptors of a local peer)", EMFILE);
    if (is_cut || (header.msg_flags & MSG_TRUNC) != 0) {
        TW_LOG_ERROR("a message of a local peer has more %s than any that this library sends",
                     is_cut ? "descriptors" : "bytes");
        return UCS_ERR_INVALID_PARAM;
    }
    message.bytes = static_cast<std::size_t>(got);
    *message_p = std::move(message);
    return UCS_OK;
}

bool unix_is_hung_up(int fd) {
    pollfd p{fd, POLLRDHUP, 0};
    return ::poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

void unix_shut_down(int fd) {
    ::shutdown(fd, SHUT_RDWR);
}

ucs_status_t unix_peer_credentials(int fd, PeerCredentials* credentials_p) {
    ucred credentials{};
    socklen_t length = sizeof credentials;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
        return fd_error("getsockopt(SO_PEERCRED)", errno);
    *credentials_p = PeerCredentials{credentials.pid, credentials.uid};
    return UCS_OK;
}

namespace {

/// A socket of this user, not a new one, that nobody serves.
bool is_dead(const UnixAddress& address) {
    constexpr std::time_t kNewSeconds = 60;
    struct stat info {};
    if (::lstat(path_of(address).c_str(), &info) != 0 || !S_ISSOCK(info.st_mode) ||
        info.st_uid != ::geteuid() || info.st_mtime > std::time(nullptr) - kNewSeconds)
        return false;
    UniqueFd probe;
    return unix_connect(address, &probe) == UCS_ERR_UNREACHABLE;
}

}  // namespace

unsigned unix_sweep_directory(const std::string& directory, const std::string& prefix) {
    DIR* dir = ::opendir(directory.c_str());
    if (dir == nullptr)
        return 0;
    unsigned removed = 0;
    while (const dirent* entry = ::readdir(dir)) {
        const UnixAddress address{directory, entry->d_name};
        if ((address.name.starts_with(prefix) || address.name.starts_with("." + prefix)) &&
            is_dead(address) && ::unlink(path_of(address).c_str()) == 0)
            ++removed;
    }
    ::closedir(dir);
    return removed;
}

ucs_status_t unix_check_directory(const std::string& directory) {
    struct stat info {};
    if (::stat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
        ::access(directory.c_str(), W_OK | X_OK) != 0) {
        TW_LOG_ERROR("TAGWIRE_SM_DIR=%s: not a directory that this user can write to",
                     directory.c_str());
        return UCS_ERR_INVALID_PARAM;
    }
    return UCS_OK;
}

void unix_unlink(const UnixAddress& address) {
    if (!address.directory.empty())
        ::unlink(path_of(address).c_str());
}

}  // namespace tagwire::ucs
