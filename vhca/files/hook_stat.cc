// SPDX-License-Identifier: BSD-3-Clause
// Hooks of what asks about files: what they are, whether they may be used, where links lead.
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "vhca/files/hook.hpp"

namespace tagwire::vhca::files {
namespace {

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
        if (result == 0 && file != nullptr)
            show_device(file->device_number(), out);
        return result;
    }
    const Place place = find_place(dir_fd, path);
    if (place.kind == Place::Kind::kNode) {
        const int result = ask(AT_FDCWD, "/dev/null");
        if (result == 0)
            show_device(device_number_of(place.node), out);
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
    if (result == 0 && file != nullptr)
        show_device(file->device_number(), out);
    return result;
}

/// May anybody use it? Nodes, like /dev/null, are for all to read and write. The kernel's call has
/// no flags; effective numbers are those of all programs but setuid ones, which we are not in.
int access_at(int dir_fd, const char* path, int mode) {
    const Place place = find_place(dir_fd, path);
    if (place.kind == Place::Kind::kNode)
        return static_cast<int>(direct(SYS_faccessat, AT_FDCWD, "/dev/null", mode));
    if (place.kind == Place::Kind::kTree)
        return static_cast<int>(direct(SYS_faccessat, AT_FDCWD, place.path.c_str(), mode));
    return static_cast<int>(direct(SYS_faccessat, dir_fd, path, mode));
}

ssize_t read_link_at(int dir_fd, const char* path, char* out, std::size_t bytes) {
    const Place place = find_place(dir_fd, path);
    if (place.kind == Place::Kind::kNode)
        return fail(EINVAL);  // no link
    if (place.kind == Place::Kind::kTree)
        return direct(SYS_readlinkat, AT_FDCWD, place.path.c_str(), out, bytes);
    return direct(SYS_readlinkat, dir_fd, path, out, bytes);
}

char* real_path(const char* path, char* out) {
    static auto* const libc = next<char*(const char*, char*)>("realpath");
    const Place place = find_place(AT_FDCWD, path);
    if (place.kind == Place::Kind::kNode) {
        const std::string name = path_of(place.node);
        return out != nullptr ? std::strcpy(out, name.c_str()) : ::strdup(name.c_str());
    }
    return libc(place.kind == Place::Kind::kTree ? place.path.c_str() : path, out);
}

}  // namespace
}  // namespace tagwire::vhca::files

using namespace tagwire::vhca::files;

// struct stat and struct stat64 are one on 64-bit machines, and the version that the older
// functions are given says nothing there.
#if __SIZEOF_LONG__ != 8
#error "the virtual HCA is for 64-bit machines"
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

TW_HOOK(ssize_t, readlink, "readlink", const char* path, char* out, std::size_t bytes) {
    return read_link_at(AT_FDCWD, path, out, bytes);
}
TW_HOOK(ssize_t, readlinkat, "readlinkat", int dir_fd, const char* path, char* out,
        std::size_t bytes) {
    return read_link_at(dir_fd, path, out, bytes);
}
TW_HOOK(ssize_t, readlink_chk, "__readlink_chk", const char* path, char* out, std::size_t bytes,
        std::size_t room) {
    if (bytes > room)
        std::abort();
    return read_link_at(AT_FDCWD, path, out, bytes);
}
TW_HOOK(ssize_t, readlinkat_chk, "__readlinkat_chk", int dir_fd, const char* path, char* out,
        std::size_t bytes, std::size_t room) {
    if (bytes > room)
        std::abort();
    return read_link_at(dir_fd, path, out, bytes);
}
TW_HOOK(char*, realpath, "realpath", const char* path, char* out) {
    return real_path(path, out);
}
TW_HOOK(char*, realpath_chk, "__realpath_chk", const char* path, char* out, std::size_t room) {
    if (out != nullptr && room < PATH_MAX)
        std::abort();
    return real_path(path, out);
}
TW_HOOK(char*, canonicalize, "canonicalize_file_name", const char* path) {
    return real_path(path, nullptr);
}
