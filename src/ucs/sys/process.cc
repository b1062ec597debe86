// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/process.hpp"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "ucs/log/log.hpp"
#include "ucs/sys/limits.hpp"
#include "ucs/sys/unix_socket.hpp"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace tagwire::ucs {

namespace {

ucs_status_t peer_pidfd(int socket_fd, UniqueFd* fd_p) {
    int fd = -1;
    socklen_t length = sizeof fd;
    if (::getsockopt(socket_fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &length) == 0) {
        fd_p->reset(fd);
        return UCS_OK;
    }
    if (errno == ESRCH || errno == EINVAL)
        return UCS_ERR_CONNECTION_RESET;
    if (errno == EMFILE || errno == ENFILE)
        return fd_error("getsockopt(SO_PEERPIDFD)", errno);
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t pidfd_by_pid(int socket_fd, pid_t pid, UniqueFd* fd_p) {
    if (pid <= 0)
        return UCS_ERR_UNSUPPORTED;  // the peer lives in a pid namespace that we cannot see
    UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!fd) {
        if (errno == ESRCH)
            return UCS_ERR_CONNECTION_RESET;
        if (errno == EMFILE || errno == ENFILE)
            return fd_error("pidfd_open", errno);
        return UCS_ERR_UNSUPPORTED;
    }
    if (unix_is_hung_up(socket_fd))
        return UCS_ERR_CONNECTION_RESET;
    *fd_p = std::move(fd);
    return UCS_OK;
}

template <class Call>
ucs_status_t copy_ranges(Call call, pid_t pid, const iovec* local, std::size_t local_count,
                         const iovec* remote, std::size_t remote_count, std::size_t bytes) {
    const ssize_t moved = call(pid, local, local_count, remote, remote_count, 0UL);
    if (moved == static_cast<ssize_t>(bytes))
        return UCS_OK;
    // A short count means that the copy met an unmapped page.
    if (moved >= 0 || errno == EFAULT)
        return UCS_ERR_INVALID_ADDR;
    if (errno == ESRCH)
        return UCS_ERR_CONNECTION_RESET;
    if (errno == EPERM || errno == ENOSYS)
        return UCS_ERR_REJECTED;
    return UCS_ERR_IO_ERROR;
}

template <class Call>
ucs_status_t copy_all(Call call, pid_t pid, const iovec* local, std::size_t local_count,
                      std::uint64_t remote, std::size_t bytes) {
    const iovec there{reinterpret_cast<void*>(remote), bytes};
    return copy_ranges(call, pid, local, local_count, &there, 1UL, bytes);
}

}  // namespace

ucs_status_t open_peer_pidfd(DeathSource source, int socket_fd, pid_t pid, UniqueFd* fd_p) {
    switch (source) {
        case DeathSource::kPeerPidfd:
            return peer_pidfd(socket_fd, fd_p);
        case DeathSource::kPidfdOpen:
            return pidfd_by_pid(socket_fd, pid, fd_p);
        case DeathSource::kHangup:
            break;
    }
    return UCS_ERR_UNSUPPORTED;
}

bool pidfd_is_alive(int pidfd) {
    pollfd p{pidfd, POLLIN, 0};
    return ::poll(&p, 1, 0) == 0;
}

bool register_global_barrier() {
    return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

bool global_barrier() {
    return ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
}

ucs_status_t process_read(pid_t pid, const iovec* local, std::size_t local_count,
                          std::uint64_t remote, std::size_t bytes) {
    return copy_all(::process_vm_readv, pid, local, local_count, remote, bytes);
}

ucs_status_t process_write(pid_t pid, const iovec* local, std::size_t local_count,
                           std::uint64_t remote, std::size_t bytes) {
    return copy_all(::process_vm_writev, pid, local, local_count, remote, bytes);
}

ucs_status_t process_write_ranges(pid_t pid, const iovec* local, std::size_t local_count,
                                  const iovec* remote, std::size_t remote_count,
                                  std::size_t bytes) {
    return copy_ranges(::process_vm_writev, pid, local, local_count, remote, remote_count, bytes);
}

int yama_ptrace_scope() {
    const UniqueFd fd(::open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC));
    char text[8] = {};
    if (!fd || ::read(fd.get(), text, sizeof text - 1) <= 0)
        return -1;
    return std::atoi(text);
}

void allow_any_ptracer() {
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

std::uint64_t random_u64() {
    std::uint64_t value = 0;
    if (::getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value)) {
        TW_LOG_ERROR("getrandom failed: %s", std::strerror(errno));
        std::abort();  // without randomness neither names nor cookies mean anything
    }
    return value;
}

namespace {

/// Two that do not know where they are must not take each other for neighbours.
std::uint64_t unknown_place() {
    static const std::uint64_t number = random_u64() | 1;
    return number;
}

}  // namespace

std::uint64_t boot_id() {
    // Kept once it is known: a process without descriptors left must not take every peer for one of
    // another machine. Every thread would store the same.
    static std::atomic<std::uint64_t> known{0};
    std::uint64_t hash = known.load(std::memory_order_relaxed);
    if (hash != 0)
        return hash;
    const UniqueFd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    char text[64] = {};
    if (!fd || ::read(fd.get(), text, sizeof text - 1) <= 0)
        return unknown_place();
    hash = 1469598103934665603ULL;  // FNV-1a
    for (const char* c = text; *c != '\0' && *c != '\n'; ++c)
        hash = (hash ^ static_cast<unsigned char>(*c)) * 1099511628211ULL;
    known.store(hash, std::memory_order_relaxed);
    return hash;
}

std::uint64_t network_namespace() {
    struct stat info {};
    return ::stat("/proc/thread-self/ns/net", &info) == 0 ? static_cast<std::uint64_t>(info.st_ino)
                                                          : unknown_place();
}

}  // namespace tagwire::ucs
