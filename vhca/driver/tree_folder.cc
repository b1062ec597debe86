// SPDX-License-Identifier: BSD-3-Clause
// The folder of the tree: it is removed after its process, however that ended.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "ucs/config/environment.hpp"
#include "ucs/log/log.hpp"
#include "ucs/sys/fd.hpp"
#include "ucs/sys/process.hpp"
#include "vhca/driver/kernel.hpp"
#include "vhca/driver/tree.hpp"

namespace tagwire::vhca::driver {
namespace {

/// Identity of a process among all of its machine, before and after it.
struct Owner {
    std::uint64_t pid_namespace = 0, started = 0;
    long pid = 0;
    friend bool operator==(const Owner&, const Owner&) = default;
};

/// When the process was started, in ticks since boot: field 22 of its stat file. 0: it is gone.
std::uint64_t start_of(long pid) {
    std::array<char, 64> path{};
    std::snprintf(path.data(), path.size(), "/proc/%ld/stat", pid);
    const ucs::UniqueFd fd(::open(path.data(), O_RDONLY | O_CLOEXEC));
    std::array<char, 1024> text{};
    if (!fd || ::read(fd.get(), text.data(), text.size() - 1) <= 0)
        return 0;
    // The name, in brackets, may hold anything.
    const char* at = std::strrchr(text.data(), ')');
    constexpr int kFieldsBetween = 20;
    for (int i = 0; i < kFieldsBetween && at != nullptr; ++i)
        at = std::strchr(at + 1, ' ');
    return at == nullptr ? 0 : std::strtoull(at, nullptr, 10);
}

Owner myself() {
    struct stat space {};
    const bool is_there = ::stat("/proc/self/ns/pid", &space) == 0;
    const long pid = ::syscall(SYS_getpid);
    return {.pid_namespace = is_there ? space.st_ino : 0, .started = start_of(pid), .pid = pid};
}

std::string folder_of_trees() {
    const char* runtime = ucs::environment_get("XDG_RUNTIME_DIR");
    const bool is_usable = runtime != nullptr && runtime[0] == '/' && ::access(runtime, W_OK) == 0;
    return is_usable ? runtime : "/tmp";
}

bool parse_name(const char* name, Owner* owner_p) {
    const std::size_t prefix = std::strlen(kTreeNamePrefix);
    return std::strncmp(name, kTreeNamePrefix, prefix) == 0 &&
           std::sscanf(name + prefix, "%" SCNu64 "-%ld-%" SCNu64 "-", &owner_p->pid_namespace,
                       &owner_p->pid, &owner_p->started) == 3;
}

// True for the folder of a process that is gone, or became another program by exec(2). Processes of
// other namespaces cannot be judged from here: false.
bool is_left_over(const Owner& owner, const Owner& self) {
    return owner.pid_namespace == self.pid_namespace &&
           (owner == self || start_of(owner.pid) != owner.started);
}

/// In /tmp anybody can make a folder of such a name, and the superuser could remove it.
bool is_of_this_user(const std::string& path) {
    struct stat facts {};
    return ::lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) &&
           facts.st_uid == ::geteuid();
}

void remove_left_overs(const std::string& folder, const std::string& ours) {
    const std::unique_ptr<DIR, int (*)(DIR*)> all(::opendir(folder.c_str()), &::closedir);
    if (all == nullptr)
        return;
    const Owner self = myself();
    while (const dirent* entry = ::readdir(all.get())) {
        Owner owner;
        const std::string path = folder + "/" + entry->d_name;
        if (parse_name(entry->d_name, &owner) && path != ours && is_left_over(owner, self) &&
            is_of_this_user(path)) {
            remove_tree_folder(path);
        }
    }
}

void remove_at(int parent_fd, const char* name) {
    const int fd = ::openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        const std::unique_ptr<DIR, int (*)(DIR*)> all(::fdopendir(fd), &::closedir);
        while (const dirent* entry = all != nullptr ? ::readdir(all.get()) : nullptr) {
            const std::string_view inside = entry->d_name;
            if (inside != "." && inside != ".." && ::unlinkat(fd, entry->d_name, 0) != 0 &&
                errno == EISDIR) {
                remove_at(fd, entry->d_name);
            }
        }
    }
    ::unlinkat(parent_fd, name, AT_REMOVEDIR);
}

/// The tree of the process: it has to be made anew in a child of fork(2).
class Tree {
  public:
    static Tree& get() {
        static Tree& tree = *new Tree;  // asked until the process ends
        return tree;
    }

    const std::string& published() const { return published_; }

    const std::string& path() {
        if (!is_made()) {
            const std::vector<Engine*> engines = engines_of_tree();
            const std::scoped_lock lock(mutex_);
            if (::syscall(SYS_getpid) != maker_)
                make(engines);
        }
        return path_;
    }

    void remove() {
        if (::syscall(SYS_getpid) == maker_ && !path_.empty())
            remove_tree_folder(path_);
    }

  private:
    Tree() : published_(new_tree_path()), path_(published_), publisher_(::syscall(SYS_getpid)) {
        pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); },
                       [] { get().mutex_.unlock(); });
    }

    [[nodiscard]] bool is_made() {
        const std::scoped_lock lock(mutex_);
        return ::syscall(SYS_getpid) == maker_;
    }

    void make(std::span<Engine* const> engines) {
        maker_ = ::syscall(SYS_getpid);
        path_ = maker_ == publisher_ ? published_ : new_tree_path();
        int error = make_tree_folder(path_);
        if (error == 0)
            error = fill_tree(path_, engines);
        if (error != 0) {
            TW_LOG_ERROR("virtual HCA: cannot create the device files in %s: %s", path_.c_str(),
                         std::strerror(error));
        }
    }

    const std::string published_;
    std::mutex mutex_;
    std::string path_;
    long publisher_;
    long maker_ = 0;
};

[[gnu::constructor]] void publish() {
    ::setenv("SYSFS_PATH", published_tree_path().c_str(), 1);
}
// Children that were killed, or ended by _exit(2), left theirs.
[[gnu::destructor]] void clean() {
    Tree::get().remove();
    remove_left_overs(folder_of_trees(), {});
}

}  // namespace

std::string new_tree_path() {
    const Owner self = myself();
    std::array<char, 128> name{};
    std::snprintf(name.data(), name.size(), "/%s%" PRIu64 "-%ld-%" PRIu64 "-%016" PRIx64,
                  kTreeNamePrefix, self.pid_namespace, self.pid, self.started, ucs::random_u64());
    return folder_of_trees() + name.data();
}

int make_tree_folder(const std::string& path) {
    remove_left_overs(path.substr(0, path.rfind('/')), path);
    return ::mkdir(path.c_str(), 0700) == 0 ? 0 : errno;
}

void remove_tree_folder(const std::string& path) {
    remove_at(AT_FDCWD, path.c_str());
}

const std::string& tree_path() {
    return Tree::get().path();
}

const std::string& published_tree_path() {
    return Tree::get().published();
}

}  // namespace tagwire::vhca::driver
