// SPDX-License-Identifier: BSD-3-Clause
// Hooks of what is done with descriptors.
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/netlink.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdarg>
#include <cstring>
#include <string>

#include "vhca/files/hook.hpp"

namespace tagwire::vhca::files {
namespace {

/// Reads memory that may not be there. False: it is not.
bool read_own(void* to, const void* from, std::size_t bytes) {
    const iovec local{to, bytes}, remote{const_cast<void*>(from), bytes};
    const long got = direct(SYS_process_vm_readv, direct(SYS_getpid), &local, 1L, &remote, 1L, 0L);
    if (got >= 0 || errno == EFAULT)
        return got == static_cast<long>(bytes);
    std::memcpy(to, from, bytes);  // a sandbox that has no such call
    return true;
}

// As the kernel's writev(2): one command, in pieces.
ssize_t write_pieces(OpenFile& file, const iovec* pieces, int count) {
    constexpr std::size_t kCommandBytesMax = std::size_t{1} << 20;  // more than any command has
    if (count < 0 || count > IOV_MAX)
        return fail(EINVAL);
    std::string whole;
    for (int i = 0; i < count; ++i) {
        iovec piece{};
        if (!read_own(&piece, pieces + i, sizeof piece))
            return fail(EFAULT);
        if (piece.iov_len > kCommandBytesMax - whole.size())
            return fail(EINVAL);
        const std::size_t before = whole.size();
        whole.resize(before + piece.iov_len);
        if (piece.iov_len != 0 && !read_own(&whole[before], piece.iov_base, piece.iov_len))
            return fail(EFAULT);
    }
    return whole.empty() ? 0 : file.write(whole.data(), whole.size());
}

/// Requests that the kernel answers for files of every kind.
bool is_of_any_file(unsigned long request) {
    return request == FIONBIO || request == FIOASYNC || request == FIOCLEX || request == FIONCLEX;
}

int close_fd(int fd) {
    remove_file(fd);
    return static_cast<int>(direct_cancellable(SYS_close, fd));
}

int close_fds(unsigned first, unsigned last, int flags) {
    constexpr unsigned kKnown = CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE;
    const auto given = static_cast<unsigned>(flags);
    if (first <= last && (given & ~kKnown) == 0 && (given & CLOSE_RANGE_CLOEXEC) == 0)
        remove_files(first, last);
    return static_cast<int>(direct(SYS_close_range, first, last, flags));
}

int told_of(int from, int to) {
    if (to >= 0) {
        const int error = errno;
        duplicate_file(from, to);
        errno = error;
    }
    return to;
}

int duplicate_to(int from, int to, int flags) {
    if (from == to)
        return fail(EINVAL);
    return told_of(from, static_cast<int>(direct(SYS_dup3, from, to, flags)));
}

int control(int fd, int command, void* argument) {
    switch (command) {
        case F_DUPFD:
        case F_DUPFD_CLOEXEC:
            return told_of(fd, static_cast<int>(direct(SYS_fcntl, fd, command, argument)));
        case F_SETLKW:
        case F_OFD_SETLKW:
            return static_cast<int>(direct_cancellable(SYS_fcntl, fd, command, argument));
        default:
            return static_cast<int>(direct(SYS_fcntl, fd, command, argument));
    }
}

}  // namespace
}  // namespace tagwire::vhca::files

using namespace tagwire::vhca::files;

TW_HOOK(ssize_t, write, "write", int fd, const void* bytes, std::size_t count) {
    if (const auto file = find_file(fd)) [[unlikely]]
        return file->write(bytes, count);
    return direct_cancellable(SYS_write, fd, bytes, count);
}
TW_HOOK(ssize_t, writev, "writev", int fd, const iovec* pieces, int count) {
    if (const auto file = find_file(fd)) [[unlikely]]
        return write_pieces(*file, pieces, count);
    return direct_cancellable(SYS_writev, fd, pieces, count);
}
TW_HOOK(int, ioctl, "ioctl", int fd, unsigned long request, ...) {
    va_list rest;
    va_start(rest, request);
    void* argument = va_arg(rest, void*);
    va_end(rest);
    if (const auto file = is_of_any_file(request) ? nullptr : find_file(fd)) [[unlikely]]
        return file->ioctl(request, argument);
    return static_cast<int>(direct(SYS_ioctl, fd, request, argument));
}
TW_HOOK(int, close, "close", int fd) {
    return close_fd(fd);
}
TW_HOOK(int, close_range, "close_range", unsigned first, unsigned last, int flags) {
    return close_fds(first, last, flags);
}
TW_HOOK(void, closefrom, "closefrom", int first) {
    const unsigned from = first < 0 ? 0 : static_cast<unsigned>(first);
    if (close_fds(from, UINT_MAX, 0) != 0) {
        static auto* const libc = next<void(int)>("closefrom");
        libc(first);  // a kernel before 5.9
    }
}
TW_HOOK(int, dup, "dup", int fd) {
    return told_of(fd, static_cast<int>(direct(SYS_dup, fd)));
}
TW_HOOK(int, dup2, "dup2", int from, int to) {
    if (from == to)
        return direct(SYS_fcntl, from, F_GETFD) < 0 ? -1 : to;
    return duplicate_to(from, to, 0);
}
TW_HOOK(int, dup3, "dup3", int from, int to, int flags) {
    return duplicate_to(from, to, flags);
}
TW_HOOK(int, fcntl, "fcntl", int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void* argument = va_arg(rest, void*);
    va_end(rest);
    return control(fd, command, argument);
}
TW_HOOK(int, fcntl64, "fcntl64", int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void* argument = va_arg(rest, void*);
    va_end(rest);
    return control(fd, command, argument);
}
// Where the kernel has RDMA, libibverbs asks it by netlink; without, it reads sysfs.
TW_HOOK(int, socket, "socket", int domain, int type, int protocol) {
    if (domain == AF_NETLINK && protocol == NETLINK_RDMA)
        return fail(EPROTONOSUPPORT);
    return static_cast<int>(direct(SYS_socket, domain, type, protocol));
}
