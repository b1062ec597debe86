// SPDX-License-Identifier: BSD-3-Clause
#include "tools/meeting_place.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
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

/// Runs in a session of its own, so that signals to the command's process group miss it, and those
/// to all processes of its name end it no sooner than the command. Holds none of the command's
/// descriptors open, nor its directory.
[[noreturn]] void keep(const std::string& path, int socket) {
    setsid();
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, nullptr);
    dup2(socket, STDIN_FILENO);
    closefrom(STDIN_FILENO + 1);
    if (chdir("/") != 0)
        _exit(errno);
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
bool start_keeper(const std::string& path, int socket) {
    const pid_t between = fork();
    if (between < 0)
        return false;
    if (between == 0) {
        const pid_t keeper = fork();
        if (keeper == 0)
            keep(path, socket);
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

/// Makes it in the user's directory of temporary files, or, if that cannot be used, in /dev/shm.
std::string make_directory() {
    std::error_code error;
    const fs::path own = fs::temp_directory_path(error);
    std::string reason = error.message();
    for (const fs::path& folder : {own, fs::path("/dev/shm")}) {
        if (folder.empty())
            continue;
        std::string path = (fs::absolute(folder, error) / "tagwire-run-XXXXXX").string();
        if (!error && mkdtemp(path.data()) != nullptr)
            return path;
        if (!own.empty() && folder == own)
            reason = own.string() + ": " + (error ? error.message() : std::strerror(errno));
    }
    throw Failure(
        "the ranks have no directory to meet in: expected one in which this user can "
        "make another (TMPDIR, else /tmp): " +
        reason);
}

}  // namespace

MeetingPlace::MeetingPlace() : path_(make_directory()) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        const std::string reason = std::strerror(errno);
        remove_directory(path_);
        throw Failure("socketpair: " + reason);
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
    [[maybe_unused]] const ssize_t told = send(keeper_, "", 1, MSG_NOSIGNAL);
    close(keeper_);
}

void MeetingPlace::set() const {
    setenv("TAGWIRE_BOOTSTRAP", ("dir:" + path_).c_str(), 1);
}

}  // namespace tagwire::tools
