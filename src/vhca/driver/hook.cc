// SPDX-License-Identifier: BSD-3-Clause
// The functions of libc that the driver face stands before. What is not ours goes to the kernel by
// a direct system call, so that it does not matter who else stands before libc, nor how early it
// is; those that are more than a system call go to the next library's.
//
// Each is a function of its own name with libc's as its symbol: the headers' declarations promise
// more about the arguments than a caller keeps.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "vhca/driver/doorbell_trap.hpp"
#include "vhca/driver/kernel.hpp"

#define TW_HOOK(result, name, symbol, ...)                   \
    extern "C" __attribute__((visibility("default")))        \
    result tagwire_hook_##name(__VA_ARGS__) __asm__(symbol); \
    result tagwire_hook_##name(__VA_ARGS__)

namespace tagwire::vhca::driver {
namespace {

template <typename... Args>
long direct(long number, Args... args) {
    return ::syscall(number, args...);
}

/// Of a function that may block for long, where libc lets pthread_cancel(3) end the thread.
template <typename... Args>
long direct_cancellable(long number, Args... args) {
    int before = 0;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
    const long result = ::syscall(number, args...);
    const int error = errno;
    pthread_setcanceltype(before, nullptr);
    errno = error;
    return result;
}

/// That of the next library, by a name that only this file uses.
template <typename Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

int fail(int error) {
    errno = error;
    return -1;
}

bool needs_mode(int flags) {
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

int open_at(int dir_fd, const char* path, int flags, mode_t mode) {
    const Place place = find_place(dir_fd, path);
    if (place.kind == Place::Kind::kNode && (flags & O_PATH) == 0) {
        return (flags & O_DIRECTORY) != 0 ? fail(ENOTDIR) : open_node(place.node);
    }
    if (place.kind == Place::Kind::kTree) {
        return static_cast<int>(direct(SYS_openat, AT_FDCWD, place.path.c_str(), flags, mode));
    }
    return static_cast<int>(direct_cancellable(SYS_openat, dir_fd, path, flags, mode));
}

/// As stat(2) tells of a device.
void show_device(dev_t number, struct stat* out) {
    out->st_mode = S_IFCHR | 0666;
    out->st_rdev = number;
    out->st_uid = 0;
    out->st_gid = 0;
    out->st_nlink = 1;
    out->st_size = 0;
    out->st_blocks = 0;
}

void show_device(dev_t number, struct statx* out) {
    out->stx_mode = S_IFCHR | 0666;
    out->stx_rdev_major = major(number);
    out->stx_rdev_minor = minor(number);
    out->stx_uid = 0;
    out->stx_gid = 0;
    out->stx_nlink = 1;
    out->stx_size = 0;
    out->stx_blocks = 0;
}

// A device that exists in name only is otherwise as /dev/null.
template <typename Stat, typename Ask>
int stat_at(int dir_fd, const char* path, int flags, Stat* out, const Ask& ask) {
    if (path == nullptr || path[0] == '\0') {
        const auto file = (flags & AT_EMPTY_PATH) != 0 ? find_file(dir_fd) : nullptr;
        const int result = ask(dir_fd, path);
        if (result == 0 && file != nullptr) {
            show_device(file->device_number(), out);
        }
        return result;
    }
    const Place place = find_place(dir_fd, path);
    if (place.kind == Place::Kind::kNode) {
        const int result = ask(AT_FDCWD, "/dev/null");
        if (result == 0) {
            show_device(device_number_of(place.node), out);
        }
        return result;
    }
    return place.kind == Place::Kind::kTree ? ask(AT_FDCWD, place.path.c_str()) : ask(dir_fd, path);
}

int stat_at(int dir_fd, const char* path, int flags, struct stat* out) {
    return stat_at(dir_fd, path, flags, out, [&](int fd, const char* where) {
        return static_cast<int>(direct(SYS_newfstatat, fd, where, out, flags));
    });
}

int stat_fd(int fd, struct stat* out) {
    const auto file = find_file(fd);
    const int result = static_cast<int>(direct(SYS_fstat, fd, out));
    if (result == 0 && file != nullptr) {
        show_device(file->device_number(), out);
    }
    return result;
}

/// May anybody use it? Nodes, like /dev/null, are for all to read and write. The kernel's call has
/// no flags; effective numbers are those of all programs but setuid ones, which we are not in.
int access_at(int dir_fd, const char* path, int mode) {
    const Place place = find_place(dir_fd, path);
    if (place.kind == Place::Kind::kNode) {
        return static_cast<int>(direct(SYS_faccessat, AT_FDCWD, "/dev/null", mode));
    }
    if (place.kind == Place::Kind::kTree) {
        return static_cast<int>(direct(SYS_faccessat, AT_FDCWD, place.path.c_str(), mode));
    }
    return static_cast<int>(direct(SYS_faccessat, dir_fd, path, mode));
}

ssize_t read_link_at(int dir_fd, const char* path, char* out, std::size_t bytes) {
    const Place place = find_place(dir_fd, path);
    if (place.kind == Place::Kind::kNode) {
        return fail(EINVAL);  // no link
    }
    if (place.kind == Place::Kind::kTree) {
        return direct(SYS_readlinkat, AT_FDCWD, place.path.c_str(), out, bytes);
    }
    return direct(SYS_readlinkat, dir_fd, path, out, bytes);
}

char* real_path(const char* path, char* out) {
    static auto* const libc = next<char*(const char*, char*)>("realpath");
    const Place place = find_place(AT_FDCWD, path);
    if (place.kind == Place::Kind::kNode) {
        const std::string name = place.node.kind == DeviceNode::Kind::kRdmaCm
                                     ? "/dev/infiniband/rdma_cm"
                                     : "/dev/infiniband/uverbs" + std::to_string(place.node.index);
        return out != nullptr ? std::strcpy(out, name.c_str()) : ::strdup(name.c_str());
    }
    return libc(place.kind == Place::Kind::kTree ? place.path.c_str() : path, out);
}

FILE* open_stream(const char* path, const char* mode) {
    static auto* const libc = next<FILE*(const char*, const char*)>("fopen");
    const Place place = find_place(AT_FDCWD, path);
    if (place.kind != Place::Kind::kNode) {
        return libc(place.kind == Place::Kind::kTree ? place.path.c_str() : path, mode);
    }
    const int fd = open_node(place.node);
    FILE* stream = fd < 0 ? nullptr : ::fdopen(fd, mode);
    if (fd >= 0 && stream == nullptr) {
        const int error = errno;
        remove_file(fd);
        direct(SYS_close, fd);
        errno = error;
    }
    return stream;
}

const char* path_of(const Place& place, const char* path) {
    return place.kind == Place::Kind::kTree ? place.path.c_str() : path;
}

// What the kernel does for writev(2): one command, in pieces.
ssize_t write_pieces(OpenFile& file, const iovec* pieces, int count) {
    if (count < 0 || count > IOV_MAX) {
        return fail(EINVAL);
    }
    std::string whole;
    for (int i = 0; i < count; ++i) {
        whole.append(static_cast<const char*>(pieces[i].iov_base), pieces[i].iov_len);
    }
    DoorbellTrap::note_command();
    return file.write(whole.data(), whole.size());
}

int close_fd(int fd) {
    remove_file(fd);
    return static_cast<int>(direct_cancellable(SYS_close, fd));
}

int close_fds(unsigned first, unsigned last, int flags) {
    constexpr unsigned kKnown = CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE;
    const auto given = static_cast<unsigned>(flags);
    if (first <= last && (given & ~kKnown) == 0 && (given & CLOSE_RANGE_CLOEXEC) == 0) {
        remove_files(first, last);
    }
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
    if (from == to) {
        return fail(EINVAL);
    }
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
}  // namespace tagwire::vhca::driver

using namespace tagwire::vhca::driver;

// ---- Files --------------------------------------------------------------------------------------

#define TW_TAKE_MODE(flags)                            \
    mode_t mode = 0;                                   \
    if (needs_mode(flags)) {                           \
        va_list rest;                                  \
        va_start(rest, flags);                         \
        mode = static_cast<mode_t>(va_arg(rest, int)); \
        va_end(rest);                                  \
    }

TW_HOOK(int, open, "open", const char* path, int flags, ...) {
    TW_TAKE_MODE(flags)
    return open_at(AT_FDCWD, path, flags, mode);
}
TW_HOOK(int, open64, "open64", const char* path, int flags, ...) {
    TW_TAKE_MODE(flags)
    return open_at(AT_FDCWD, path, flags, mode);
}
TW_HOOK(int, openat, "openat", int dir_fd, const char* path, int flags, ...) {
    TW_TAKE_MODE(flags)
    return open_at(dir_fd, path, flags, mode);
}
TW_HOOK(int, openat64, "openat64", int dir_fd, const char* path, int flags, ...) {
    TW_TAKE_MODE(flags)
    return open_at(dir_fd, path, flags, mode);
}
TW_HOOK(int, creat, "creat", const char* path, mode_t mode) {
    return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
TW_HOOK(int, creat64, "creat64", const char* path, mode_t mode) {
    return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
// Of programs that were built with _FORTIFY_SOURCE.
TW_HOOK(int, open_2, "__open_2", const char* path, int flags) {
    return open_at(AT_FDCWD, path, flags, 0);
}
TW_HOOK(int, open64_2, "__open64_2", const char* path, int flags) {
    return open_at(AT_FDCWD, path, flags, 0);
}
TW_HOOK(int, openat_2, "__openat_2", int dir_fd, const char* path, int flags) {
    return open_at(dir_fd, path, flags, 0);
}
TW_HOOK(int, openat64_2, "__openat64_2", int dir_fd, const char* path, int flags) {
    return open_at(dir_fd, path, flags, 0);
}

TW_HOOK(FILE*, fopen, "fopen", const char* path, const char* mode) {
    return open_stream(path, mode);
}
TW_HOOK(FILE*, fopen64, "fopen64", const char* path, const char* mode) {
    return open_stream(path, mode);
}
TW_HOOK(DIR*, opendir, "opendir", const char* path) {
    static auto* const libc = next<DIR*(const char*)>("opendir");
    return libc(path_of(find_place(AT_FDCWD, path), path));
}

using Filter = int (*)(const dirent*);
using Order = int (*)(const dirent**, const dirent**);
using Scan = int(const char*, dirent***, Filter, Order);
TW_HOOK(int, scandir, "scandir", const char* path, dirent*** list, Filter filter, Order order) {
    static auto* const libc = next<Scan>("scandir");
    return libc(path_of(find_place(AT_FDCWD, path), path), list, filter, order);
}
TW_HOOK(int, scandir64, "scandir64", const char* path, dirent*** list, Filter filter, Order order) {
    static auto* const libc = next<Scan>("scandir64");
    return libc(path_of(find_place(AT_FDCWD, path), path), list, filter, order);
}

// ---- What files are -----------------------------------------------------------------------------
// struct stat and struct stat64 are one on 64-bit machines, and the version that the older
// functions are given says nothing there.
#if __SIZEOF_LONG__ != 8
#error "the driver face is for 64-bit machines"
#endif

#define TW_HOOK_STAT(name, symbol)                                                      \
    TW_HOOK(int, name, symbol, const char* path, struct stat* out) {                    \
        return stat_at(AT_FDCWD, path, 0, out);                                         \
    }                                                                                   \
    TW_HOOK(int, l##name, "l" symbol, const char* path, struct stat* out) {             \
        return stat_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, out);                       \
    }                                                                                   \
    TW_HOOK(int, f##name, "f" symbol, int fd, struct stat* out) {                       \
        return stat_fd(fd, out);                                                        \
    }                                                                                   \
    TW_HOOK(int, old_##name, "__x" symbol, int, const char* path, struct stat* out) {   \
        return stat_at(AT_FDCWD, path, 0, out);                                         \
    }                                                                                   \
    TW_HOOK(int, old_l##name, "__lx" symbol, int, const char* path, struct stat* out) { \
        return stat_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, out);                       \
    }                                                                                   \
    TW_HOOK(int, old_f##name, "__fx" symbol, int, int fd, struct stat* out) {           \
        return stat_fd(fd, out);                                                        \
    }
#define TW_HOOK_STAT_AT(name, symbol, old_symbol)                                             \
    TW_HOOK(int, name, symbol, int dir_fd, const char* path, struct stat* out, int flags) {   \
        return stat_at(dir_fd, path, flags, out);                                             \
    }                                                                                         \
    TW_HOOK(int, old_##name, old_symbol, int, int dir_fd, const char* path, struct stat* out, \
            int flags) {                                                                      \
        return stat_at(dir_fd, path, flags, out);                                             \
    }
TW_HOOK_STAT(stat, "stat")
TW_HOOK_STAT(stat64, "stat64")
TW_HOOK_STAT_AT(fstatat, "fstatat", "__fxstatat")
TW_HOOK_STAT_AT(fstatat64, "fstatat64", "__fxstatat64")

TW_HOOK(int, statx, "statx", int dir_fd, const char* path, int flags, unsigned mask,
        struct statx* out) {
    return stat_at(dir_fd, path, flags, out, [&](int fd, const char* where) {
        return static_cast<int>(direct(SYS_statx, fd, where, flags, mask, out));
    });
}

TW_HOOK(int, access, "access", const char* path, int mode) {
    return access_at(AT_FDCWD, path, mode);
}
TW_HOOK(int, euidaccess, "euidaccess", const char* path, int mode) {
    return access_at(AT_FDCWD, path, mode);
}
TW_HOOK(int, eaccess, "eaccess", const char* path, int mode) {
    return access_at(AT_FDCWD, path, mode);
}
TW_HOOK(int, faccessat, "faccessat", int dir_fd, const char* path, int mode, int flags) {
    static auto* const libc = next<int(int, const char*, int, int)>("faccessat");
    return find_place(dir_fd, path).kind == Place::Kind::kForeign ? libc(dir_fd, path, mode, flags)
                                                                  : access_at(dir_fd, path, mode);
}

TW_HOOK(int, chdir, "chdir", const char* path) {
    return static_cast<int>(direct(SYS_chdir, path_of(find_place(AT_FDCWD, path), path)));
}
TW_HOOK(ssize_t, readlink, "readlink", const char* path, char* out, std::size_t bytes) {
    return read_link_at(AT_FDCWD, path, out, bytes);
}
TW_HOOK(ssize_t, readlinkat, "readlinkat", int dir_fd, const char* path, char* out,
        std::size_t bytes) {
    return read_link_at(dir_fd, path, out, bytes);
}
TW_HOOK(ssize_t, readlink_chk, "__readlink_chk", const char* path, char* out, std::size_t bytes,
        std::size_t room) {
    if (bytes > room) {
        std::abort();
    }
    return read_link_at(AT_FDCWD, path, out, bytes);
}
TW_HOOK(ssize_t, readlinkat_chk, "__readlinkat_chk", int dir_fd, const char* path, char* out,
        std::size_t bytes, std::size_t room) {
    if (bytes > room) {
        std::abort();
    }
    return read_link_at(dir_fd, path, out, bytes);
}
TW_HOOK(char*, realpath, "realpath", const char* path, char* out) {
    return real_path(path, out);
}
TW_HOOK(char*, realpath_chk, "__realpath_chk", const char* path, char* out, std::size_t room) {
    if (out != nullptr && room < PATH_MAX) {
        std::abort();
    }
    return real_path(path, out);
}
TW_HOOK(char*, canonicalize, "canonicalize_file_name", const char* path) {
    return real_path(path, nullptr);
}

// ---- Descriptors --------------------------------------------------------------------------------

TW_HOOK(ssize_t, write, "write", int fd, const void* bytes, std::size_t count) {
    if (const auto file = find_file(fd)) [[unlikely]] {
        DoorbellTrap::note_command();
        return file->write(bytes, count);
    }
    return direct_cancellable(SYS_write, fd, bytes, count);
}
TW_HOOK(ssize_t, writev, "writev", int fd, const iovec* pieces, int count) {
    if (const auto file = find_file(fd)) [[unlikely]] {
        return write_pieces(*file, pieces, count);
    }
    return direct_cancellable(SYS_writev, fd, pieces, count);
}
TW_HOOK(int, ioctl, "ioctl", int fd, unsigned long request, ...) {
    va_list rest;
    va_start(rest, request);
    void* argument = va_arg(rest, void*);
    va_end(rest);
    if (const auto file = find_file(fd)) [[unlikely]] {
        DoorbellTrap::note_command();
        return file->ioctl(request, argument);
    }
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
    if (from == to) {
        return direct(SYS_fcntl, from, F_GETFD) < 0 ? -1 : to;
    }
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
    if (domain == AF_NETLINK && protocol == NETLINK_RDMA) {
        return fail(EPROTONOSUPPORT);
    }
    return static_cast<int>(direct(SYS_socket, domain, type, protocol));
}
