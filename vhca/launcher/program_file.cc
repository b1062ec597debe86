// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/launcher/program_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace tagwire::tools {
namespace {

class File {
  public:
    explicit File(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
    ~File() {
        if (fd_ >= 0)
            close(fd_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    [[nodiscard]] int fd() const { return fd_; }

  private:
    int fd_;
};

bool is_executable(const std::string& path) {
    struct stat file {};
    return stat(path.c_str(), &file) == 0 && S_ISREG(file.st_mode) &&
           access(path.c_str(), X_OK) == 0;
}

template <typename T>
bool read_at(int fd, std::size_t offset, T* out) {
    return pread(fd, out, sizeof *out, static_cast<off_t>(offset)) ==
           static_cast<ssize_t>(sizeof *out);
}

/// The dynamic linker is named in a segment of its own; a program without is static.
bool is_static(int fd) {
    Elf64_Ehdr header{};
    if (!read_at(fd, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr)) {
        return false;
    }
    for (std::size_t i = 0; i < header.e_phnum; ++i) {
        Elf64_Phdr segment{};
        if (!read_at(fd, header.e_phoff + i * sizeof segment, &segment) ||
            segment.p_type == PT_INTERP) {
            return false;
        }
    }
    return true;
}

/// The interpreter that "#!" at the beginning names. Empty: it is no script.
std::string interpreter_of(int fd) {
    std::array<char, 256> line{};
    const ssize_t got = pread(fd, line.data(), line.size(), 0);
    std::string_view text(line.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    if (!text.starts_with("#!"))
        return {};
    text.remove_prefix(2);
    text = text.substr(0, text.find('\n'));
    const std::size_t begin = text.find_first_not_of(" \t");
    if (begin == std::string_view::npos)
        return {};
    text.remove_prefix(begin);
    return std::string(text.substr(0, text.find_first_of(" \t")));
}

bool gains_rights(const std::string& path, const struct stat& file) {
    const bool is_setuid = (file.st_mode & S_ISUID) != 0 && file.st_uid != getuid();
    const bool is_setgid = (file.st_mode & S_ISGID) != 0 && file.st_gid != getgid();
    const bool has_capabilities =
        getuid() != 0 && getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
    return is_setuid || is_setgid || has_capabilities;
}

std::string why_not_preloaded(const std::string& path, int scripts_left) {
    const File opened(path);
    const int fd = opened.fd();
    struct stat file {};
    if (fd < 0 || fstat(fd, &file) != 0)
        return {};
    const std::string interpreter = interpreter_of(fd);
    if (!interpreter.empty())
        return scripts_left > 0 ? why_not_preloaded(interpreter, scripts_left - 1) : "";
    if (is_static(fd))
        return path + " is a static program";
    return gains_rights(path, file) ? path + " runs with rights that its user does not have"
                                    : std::string();
}

}  // namespace

std::optional<std::string> find_program(const std::string& name, std::string_view path) {
    if (name.find('/') != std::string::npos)
        return is_executable(name) ? std::optional(name) : std::nullopt;
    for (;;) {
        const std::size_t end = path.find(':');
        const std::string_view folder = path.substr(0, end);
        const std::string file = (folder.empty() ? "." : std::string(folder)) + "/" + name;
        if (is_executable(file))
            return file;
        if (end == std::string_view::npos)
            return std::nullopt;
        path.remove_prefix(end + 1);
    }
}

std::string why_not_preloaded(const std::string& path) {
    constexpr int kScriptsMax = 4;  // as the kernel follows
    return why_not_preloaded(path, kScriptsMax);
}

}  // namespace tagwire::tools
