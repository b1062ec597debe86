// SPDX-License-Identifier: BSD-3-Clause
#include "cli/json_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cli/failure.hpp"

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

std::string folder_of(const std::string& file) {
    const std::string folder = std::filesystem::path(file).parent_path();
    return folder.empty() ? "." : folder;
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
    return access(folder_of(target).c_str(), W_OK | X_OK) == 0;
}

/// Keeps signals from ending the process between two steps.
class NoSignals {
  public:
    NoSignals() {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, &before_);
    }
    ~NoSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
    NoSignals(const NoSignals&) = delete;
    NoSignals& operator=(const NoSignals&) = delete;

  private:
    sigset_t before_{};
};

/// A new file for the place of `target`, which stays as it is until the new one is whole. It has no
/// name until then where the file system can do that, so that a signal leaves nothing behind; else
/// it is removed unless it took the place.
class Aside {
  public:
    explicit Aside(const std::string& target)
        : target_(target), path_(target + text(".%d.part", getpid())) {
        unlink(path_.c_str());  // of a dead process that had this number
        int fd = open(folder_of(target).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
        has_name_ = fd < 0;
        if (has_name_)
            fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        stream_ = fd < 0 ? nullptr : fdopen(fd, "w");
        struct stat old {};
        if (stream_ == nullptr ||
            (stat(target.c_str(), &old) == 0 && fchmod(fd, old.st_mode & 0777) != 0)) {
            refuse(target);
        }
    }
    ~Aside() {
        if (stream_ != nullptr)
            std::fclose(stream_);
        if (has_name_)
            unlink(path_.c_str());
    }
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;

    std::FILE* stream() const { return stream_; }

    void take_place() {
        const NoSignals no_signals;
        if (!has_name_ && !give_name())
            refuse(target_);
        has_name_ = true;
        close_checked(std::exchange(stream_, nullptr), target_);
        if (std::rename(path_.c_str(), target_.c_str()) != 0)
            refuse(target_);
        has_name_ = false;
    }

  private:
    bool give_name() const {
        const std::string open_file = "/proc/self/fd/" + std::to_string(fileno(stream_));
        return linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) == 0;
    }

    std::string target_;
    std::string path_;
    bool has_name_ = false;
    std::FILE* stream_ = nullptr;
};

}  // namespace

bool is_one_file(const std::string& one, const std::string& other) {
    if (one.empty() || other.empty() || one == "-" || other == "-" || one == "/dev/null")
        return false;
    std::error_code error, other_error;
    const auto path = std::filesystem::weakly_canonical(std::filesystem::absolute(one), error);
    return path ==
               std::filesystem::weakly_canonical(std::filesystem::absolute(other), other_error) &&
           !error && !other_error;
}

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
