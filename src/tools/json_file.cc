// SPDX-License-Identifier: BSD-3-Clause
#include "tools/json_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tools/failure.hpp"

namespace tagwire::tools {
namespace {

[[noreturn]] void refuse(const std::string& file) {
    throw Failure(text("cannot write %s: %s", file.c_str(), std::strerror(errno)));
}

void write_to(std::FILE* out, const std::string& content, const std::string& file) {
    if (out == nullptr || std::fwrite(content.data(), 1, content.size(), out) != content.size() ||
        std::fflush(out) != 0) {
        refuse(file);
    }
}

void close_checked(std::FILE* out, const std::string& file) {
    if (out == nullptr || std::fclose(out) != 0)
        refuse(file);
}

/// Where a link leads.
std::string target_of(const std::string& file) {
    std::error_code error;
    const auto target = std::filesystem::canonical(file, error);
    return error ? file : target.string();
}

/// Whether a new file takes the place of `file`. Devices, pipes and what a shell has opened
/// (/dev/stdout) are written as they are, and so is a file in a folder that takes no new one.
bool is_replaced(const std::string& file, const std::string& target) {
    if (file.starts_with("/dev/") || file.starts_with("/proc/"))
        return false;
    struct stat known {};
    const bool is_there = lstat(target.c_str(), &known) == 0;
    if (is_there && (!S_ISREG(known.st_mode) || access(target.c_str(), W_OK) != 0))
        return false;
    const auto folder = std::filesystem::path(target).parent_path();
    return access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) == 0;
}

/// A new file beside `target`, which stays as it is until the new one is whole. Removed unless it
/// took the place.
class Aside {
  public:
    explicit Aside(const std::string& target)
        : target_(target), path_(target + text(".%d.part", getpid())) {
        unlink(path_.c_str());  // of a dead process that had this number
        const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        stream_ = fd < 0 ? nullptr : fdopen(fd, "w");
        struct stat old {};
        if (stream_ == nullptr ||
            (stat(target.c_str(), &old) == 0 && fchmod(fd, old.st_mode & 0777) != 0)) {
            refuse(target);
        }
    }
    ~Aside() {
        if (stream_ != nullptr) {
            std::fclose(stream_);
            unlink(path_.c_str());
        }
    }
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;

    std::FILE* stream() const { return stream_; }

    void take_place() {
        close_checked(std::exchange(stream_, nullptr), target_);
        if (std::rename(path_.c_str(), target_.c_str()) != 0) {
            const int error = errno;
            unlink(path_.c_str());
            errno = error;
            refuse(target_);
        }
    }

  private:
    std::string target_;
    std::string path_;
    std::FILE* stream_ = nullptr;
};

}  // namespace

void check_writable(const std::string& file) {
    if (file.empty() || file == "-")
        return;
    const std::string target = target_of(file);
    if (is_replaced(file, target))
        const Aside attempt(target);
    else
        close_checked(std::fopen(target.c_str(), "ae"), file);
}

void write_text_file(const std::string& file, const std::string& content) {
    if (file == "-") {
        write_to(stdout, content, file);
        return;
    }
    const std::string target = target_of(file);
    if (!is_replaced(file, target)) {
        std::FILE* const out = std::fopen(target.c_str(), "we");
        write_to(out, content, file);
        close_checked(out, file);
        return;
    }
    Aside aside(target);
    write_to(aside.stream(), content, file);
    aside.take_place();
}

}  // namespace tagwire::tools
