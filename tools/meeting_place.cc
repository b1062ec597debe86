// SPDX-License-Identifier: BSD-3-Clause
#include "tools/meeting_place.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/failure.hpp"

namespace tagwire::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kRemoveTries = 500;
constexpr useconds_t kRemovePauseUs = 10'000;
constexpr std::string_view kPrefix = "tagwire-run-";
constexpr std::string_view kPlaces = "XXXXXX";  // of mkdtemp(3)
/// A younger directory may be of a command that has not locked it yet.
constexpr std::time_t kAbandonedAgeS = 60;

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

/// The open directory, never a symbolic link; -1: it cannot be opened.
int open_directory(const std::string& path) {
    return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/// Whether it is this user's alone, no start of a command is as young, and nobody holds its lock:
/// then this process holds it from now on.
bool is_abandoned(int directory) {
    struct stat status {};
    return fstat(directory, &status) == 0 && status.st_uid == geteuid() &&
           (status.st_mode & 07777) == 0700 &&
           std::time(nullptr) - status.st_mtime > kAbandonedAgeS &&
           flock(directory, LOCK_EX | LOCK_NB) == 0;
}

/// Names of this boot of this host begin so: locks of another one may be unknown here.
std::string name_start() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string boot;
    std::getline(file, boot, '-');
    return std::string(kPrefix) + (boot.empty() ? "" : boot + "-");
}

/// As mkdtemp(3) makes them behind `start`.
bool is_name_of_ours(std::string_view name, std::string_view start) {
    return name.starts_with(start) && name.size() == start.size() + kPlaces.size() &&
           std::all_of(name.begin() + static_cast<std::ptrdiff_t>(start.size()), name.end(),
                       [](unsigned char at) { return std::isalnum(at) != 0; });
}

/// Directories of commands that were killed together with their keepers.
void remove_abandoned(const fs::path& folder) {
    std::error_code error;
    std::vector<std::string> paths;
    const std::string start = name_start();
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
        if (is_name_of_ours(at->path().filename().string(), start))
            paths.push_back(at->path().string());
    for (const std::string& path : paths) {
        const int directory = open_directory(path);
        if (directory < 0)
            continue;
        if (is_abandoned(directory))
            fs::remove_all(path, error);
        close(directory);
    }
}

/// Runs in a session of its own, so that signals to the command's process group miss it, and those
/// to all processes of its name end it no sooner than the command. Holds none of the command's
/// descriptors open but the lock, nor its directory.
[[noreturn]] void keep(const std::string& path, int socket, int lock) {
    setsid();
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, nullptr);
    // Above both, so that neither takes the other's place.
    const int kept_socket = fcntl(socket, F_DUPFD, STDERR_FILENO + 1);
    const int kept_lock = lock < 0 ? -1 : fcntl(lock, F_DUPFD, STDERR_FILENO + 1);
    if (kept_socket < 0 || dup2(kept_socket, STDIN_FILENO) < 0)
        _exit(errno);
    if (kept_lock >= 0)
        dup2(kept_lock, STDIN_FILENO + 1);
    closefrom(STDIN_FILENO + (kept_lock < 0 ? 1 : 2));
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
bool start_keeper(const std::string& path, int socket, int lock) {
    const pid_t between = fork();
    if (between < 0)
        return false;
    if (between == 0) {
        const pid_t keeper = fork();
        if (keeper == 0)
            keep(path, socket, lock);
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
        std::string path =
            (fs::absolute(folder, error) / (name_start() + std::string(kPlaces))).string();
        if (!error)
            remove_abandoned(folder);
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

MeetingPlace::MeetingPlace() : path_(make_directory()), lock_(open_directory(path_)) {
    if (lock_ >= 0)
        flock(lock_, LOCK_EX | LOCK_NB);
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        const std::string reason = std::strerror(errno);
        close(lock_);
        remove_directory(path_);
        throw Failure("socketpair: " + reason);
    }
    const bool is_kept = start_keeper(path_, ends[0], lock_);
    const std::string reason = std::strerror(errno);
    close(ends[0]);
    keeper_ = ends[1];
    if (!is_kept) {
        close(keeper_);
        close(lock_);
        remove_directory(path_);
        throw Failure("cannot start a process: " + reason);
    }
}

MeetingPlace::~MeetingPlace() {
    remove_directory(path_);
    [[maybe_unused]] const ssize_t told = send(keeper_, "", 1, MSG_NOSIGNAL);
    close(keeper_);
    close(lock_);
}

void MeetingPlace::set() const {
    setenv("TAGWIRE_BOOTSTRAP", ("dir:" + path_).c_str(), 1);
}

}  // namespace tagwire::tools
