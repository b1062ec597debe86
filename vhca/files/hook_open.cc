// SPDX-License-Identifier: BSD-3-Clause
// Hooks of what opens files and folders by their path.
#include <dirent.h>
#include <fcntl.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "vhca/files/hook.hpp"

namespace tagwire::vhca::files {
namespace {

bool needs_mode(int flags) {
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

int open_at(int dir_fd, const char* path, int flags, mode_t mode) {
    const Place place = find_place(dir_fd, path);
    if (place.kind == Place::Kind::kNode && (flags & O_PATH) == 0)
        return (flags & O_DIRECTORY) != 0 ? fail(ENOTDIR) : open_node(place.node, flags);
    if (place.kind == Place::Kind::kTree)
        return static_cast<int>(direct(SYS_openat, AT_FDCWD, place.path.c_str(), flags, mode));
    return static_cast<int>(direct_cancellable(SYS_openat, dir_fd, path, flags, mode));
}

FILE* open_stream(const char* path, const char* mode) {
    static auto* const libc = next<FILE*(const char*, const char*)>("fopen");
    const Place place = find_place(AT_FDCWD, path);
    if (place.kind != Place::Kind::kNode)
        return libc(place.kind == Place::Kind::kTree ? place.path.c_str() : path, mode);
    const int fd = open_node(place.node, std::strchr(mode, 'e') != nullptr ? O_CLOEXEC : 0);
    FILE* stream = fd < 0 ? nullptr : ::fdopen(fd, mode);
    if (fd >= 0 && stream == nullptr) {
        const int error = errno;
        remove_file(fd);
        direct(SYS_close, fd);
        errno = error;
    }
    return stream;
}

}  // namespace
}  // namespace tagwire::vhca::files

using namespace tagwire::vhca::files;

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
// Called by programs that were built with _FORTIFY_SOURCE.
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

TW_HOOK(int, chdir, "chdir", const char* path) {
    return static_cast<int>(direct(SYS_chdir, path_of(find_place(AT_FDCWD, path), path)));
}
