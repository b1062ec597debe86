// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/dir_files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>

namespace tagwire::bootstrap {
namespace {

constexpr const char* kHidden = ".new.";
constexpr int kRemoveTries = 8;

bool is_ours(int fd, mode_t kind, struct stat* info) {
    return ::fstat(fd, info) == 0 && (info->st_mode & S_IFMT) == kind &&
           info->st_uid == ::geteuid();
}

/// 0 or an errno.
int write_all(int fd, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::write(fd, bytes.data(), bytes.size());
        if (count < 0 && errno != EINTR)
            return errno;
        if (count > 0)
            bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
    return 0;
}

bool read_all(int fd, std::span<std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::read(fd, bytes.data(), bytes.size());
        if (count == 0 || (count < 0 && errno != EINTR))
            return false;
        if (count > 0)
            bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
    return true;
}

}  // namespace

Result Folder::open(const std::string& path, Folder* folder_p) {
    folder_p->fd_.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder_p->fd_)
        return {};
    return failed_errno(UCS_ERR_INVALID_PARAM, errno, "cannot use the directory %s", path.c_str());
}

bool Folder::open_below(const std::string& name, Folder* folder_p) const {
    struct stat info {};
    ucs::UniqueFd fd(
        ::openat(fd_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd || !is_ours(fd.get(), S_IFDIR, &info))
        return false;
    folder_p->fd_ = std::move(fd);
    return true;
}

Result Folder::make_below(const std::string& name, Folder* folder_p) const {
    if (::mkdirat(fd_.get(), name.c_str(), S_IRWXU) != 0 || !open_below(name, folder_p))
        return failed_errno(UCS_ERR_IO_ERROR, errno, "cannot create the directory %s",
                            name.c_str());
    return {};
}

void Folder::remove_below(const std::string& name) const {
    Folder folder;
    if (!open_below(name, &folder))
        return;
    // Another rank may be writing a last file.
    int tries = kRemoveTries;
    do {
        folder.clear();
    } while (::unlinkat(fd_.get(), name.c_str(), AT_REMOVEDIR) != 0 && errno == ENOTEMPTY &&
             --tries > 0);
}

/// 0 or an errno.
int Folder::write_hidden(const std::string& hidden, std::span<const std::byte> bytes) const {
    ::unlinkat(fd_.get(), hidden.c_str(), 0);  // of a writer that was killed
    const ucs::UniqueFd fd(::openat(fd_.get(), hidden.c_str(),
                                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                                    S_IRUSR | S_IWUSR));
    return fd ? write_all(fd.get(), bytes) : errno;
}

Result Folder::write(const std::string& name, std::span<const std::byte> bytes) const {
    const std::string hidden = kHidden + name;
    int error = write_hidden(hidden, bytes);
    if (error == 0 && ::renameat(fd_.get(), hidden.c_str(), fd_.get(), name.c_str()) != 0)
        error = errno;
    if (error == 0)
        return {};
    ::unlinkat(fd_.get(), hidden.c_str(), 0);
    return failed_errno(UCS_ERR_IO_ERROR, error, "cannot write the file %s", name.c_str());
}

void Folder::write_once(const std::string& name, const std::string& writer,
                        std::span<const std::byte> bytes) const {
    const std::string hidden = kHidden + name + "." + writer;
    // A rank that cannot write it cannot report that either; the others run into their time limit.
    if (write_hidden(hidden, bytes) == 0)
        static_cast<void>(::linkat(fd_.get(), hidden.c_str(), fd_.get(), name.c_str(), 0));
    ::unlinkat(fd_.get(), hidden.c_str(), 0);
}

std::optional<std::vector<std::byte>> Folder::read(const std::string& name,
                                                   std::size_t bytes_max) const {
    const ucs::UniqueFd fd(
        ::openat(fd_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat info {};
    if (!fd || !is_ours(fd.get(), S_IFREG, &info) ||
        static_cast<std::uint64_t>(info.st_size) > bytes_max) {
        return std::nullopt;
    }
    std::vector<std::byte> bytes(static_cast<std::size_t>(info.st_size));
    if (!read_all(fd.get(), bytes))
        return std::nullopt;
    return bytes;
}

bool Folder::has(const std::string& name) const {
    return ::faccessat(fd_.get(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void Folder::remove(const std::string& name) const {
    ::unlinkat(fd_.get(), name.c_str(), 0);
}

std::vector<std::string> Folder::entries() const {
    std::vector<std::string> names;
    const int fd = ::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* opened = fd < 0 ? nullptr : ::fdopendir(fd);
    if (opened == nullptr) {
        if (fd >= 0)
            ::close(fd);
        return names;
    }
    const std::unique_ptr<DIR, int (*)(DIR*)> closer(opened, &::closedir);
    while (const dirent* entry = ::readdir(opened)) {
        const std::string name = entry->d_name;
        if (name != "." && name != "..")
            names.push_back(name);
    }
    return names;
}

std::vector<std::string> Folder::list() const {
    std::vector<std::string> names = entries();
    std::erase_if(names, [](const std::string& name) { return name.starts_with(kHidden); });
    return names;
}

void Folder::clear() const {
    for (const std::string& name : entries())
        remove(name);
}

bool Folder::is_gone() const {
    struct stat info {};
    return ::fstat(fd_.get(), &info) != 0 || info.st_nlink == 0;
}

}  // namespace tagwire::bootstrap
