// SPDX-License-Identifier: BSD-3-Clause
#include "tools/meeting_place.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cli/failure.hpp"

namespace tagwire::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kRemoveTries = 500;
constexpr useconds_t kRemovePauseUs = 10'000;

/// Again while ranks that are being killed still write into it.
void remove_directory(const std::string& path) {
    std::error_code error;
    for (int tries = 0; tries < kRemoveTries; ++tries) {
        fs::remove_all(path, error);
        if (!error)
            return;
        usleep(kRemovePauseUs);
    }
}

/// Runs in a session of its own, so that signals to the command's process group miss it, and holds
/// none of the command's descriptors open.
[[noreturn]] void keep(const std::string& path, int pipe) {
    setsid();
    dup2(pipe, STDIN_FILENO);
    close_range(STDIN_FILENO + 1, ~0U, 0);
    char byte = 0;
    ssize_t count = 0;
    while ((count = read(STDIN_FILENO, &byte, 1)) < 0 && errno == EINTR) {
    }
    if (count == 0)
        remove_directory(path);
    _exit(0);
}

/// Starts the keeper as nobody's child, for the command waits for all of its children. False: errno
/// has the reason.
bool start_keeper(const std::string& path, int pipe) {
    const pid_t between = fork();
    if (between < 0)
        return false;
    if (between == 0) {
        const pid_t keeper = fork();
        if (keeper == 0)
            keep(path, pipe);
        _exit(keeper < 0 ? errno : 0);
    }
    int status = 0;
    while (waitpid(between, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) == 0)
        return true;
    errno = WEXITSTATUS(status);
    return false;
}

}  // namespace

MeetingPlace::MeetingPlace() {
    std::error_code error;
    path_ = fs::absolute(fs::temp_directory_path(error)) / "tagwire-run-XXXXXX";
    if (error || mkdtemp(path_.data()) == nullptr) {
        throw Failure(text("the ranks have no directory to meet in: %s: %s", path_.c_str(),
                           error ? error.message().c_str() : std::strerror(errno)));
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        const std::string reason = std::strerror(errno);
        remove_directory(path_);
        throw Failure("pipe: " + reason);
    }
    const bool is_kept = start_keeper(path_, ends[0]);
    const std::string reason = std::strerror(errno);
    close(ends[0]);
    keeper_ = ends[1];
    if (!is_kept) {
        close(keeper_);
        remove_directory(path_);
        throw Failure("cannot start a process: " + reason);
    }
}

MeetingPlace::~MeetingPlace() {
    remove_directory(path_);
    [[maybe_unused]] const ssize_t told = write(keeper_, "", 1);
    close(keeper_);
}

void MeetingPlace::set() const {
    setenv("TAGWIRE_BOOTSTRAP", ("dir:" + path_).c_str(), 1);
}

}  // namespace tagwire::tools
