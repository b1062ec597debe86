// SPDX-License-Identifier: BSD-3-Clause
// The table of descriptors, and the names and numbers of device nodes.
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "vhca/files/files.hpp"
#include "vhca/files/path.hpp"

namespace tagwire::vhca::files {

std::atomic<bool> is_our_fd[kFdMax];

namespace {

// As Linux numbers them: infiniband_verbs is a range of its own; others are miscellaneous devices,
// whose minor number is any.
constexpr unsigned kVerbsMajor = 231, kVerbsMinor = 192;
constexpr unsigned kMiscMajor = 10, kCmMinor = 122, kStandInMinor = 123;

// Not the hook's close(): the table is not to be asked while it is changed.
long direct_getpid() {
    return ::syscall(SYS_getpid);
}

/// A file of the parent's, in a child.
class DeadFile final : public OpenFile {
  public:
    explicit DeadFile(dev_t number) : number_(number) {}
    std::int64_t write(const void* /*bytes*/, std::size_t /*count*/) override {
        errno = EIO;
        return -1;
    }
    int ioctl(unsigned long /*request*/, void* /*argument*/) override {
        errno = EIO;
        return -1;
    }
    [[nodiscard]] dev_t device_number() const override { return number_; }

  private:
    dev_t number_;
};

class Table {
  public:
    // Never destroyed: threads may use it until the process ends.
    static Table& get() {
        static Table& table = *new Table;
        return table;
    }

    std::shared_ptr<OpenFile> find(int fd) {
        const std::scoped_lock lock(mutex_);
        const auto found = files_.find(fd);
        return found == files_.end() ? nullptr : found->second;
    }
    /// The previous one goes, after the lock is released.
    void add(int fd, std::shared_ptr<OpenFile> file) {
        std::shared_ptr<OpenFile> old;
        const std::scoped_lock lock(mutex_);
        if (is_child_of_vfork())
            return;
        old = std::exchange(files_[fd], std::move(file));
        // SYNC vhca_fd: a hint; whoever learnt the number from a thread sees it
        is_our_fd[fd].store(true, std::memory_order_release);
    }
    std::shared_ptr<OpenFile> take(int fd) {
        const std::scoped_lock lock(mutex_);
        if (is_child_of_vfork())
            return nullptr;
        is_our_fd[fd].store(false, std::memory_order_release);  // SYNC vhca_fd
        auto node = files_.extract(fd);
        return node.empty() ? nullptr : std::move(node.mapped());
    }
    std::vector<int> numbers(unsigned first, unsigned last) {
        std::vector<int> all;
        const std::scoped_lock lock(mutex_);
        for (const auto& [fd, file] : files_)
            if (static_cast<unsigned>(fd) >= first && static_cast<unsigned>(fd) <= last)
                all.push_back(fd);
        return all;
    }

  private:
    Table() {
        pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); },
                       [] { get().leave_to_parent(); });
    }
    // A child of vfork(2) has our memory, and gets its descriptors closed before it becomes another
    // program.
    [[nodiscard]] bool is_child_of_vfork() const { return direct_getpid() != owner_; }

    void leave_to_parent() {
        owner_ = direct_getpid();
        std::unordered_map<std::shared_ptr<OpenFile>, std::shared_ptr<OpenFile>> dead;
        for (auto& [fd, file] : files_) {
            std::shared_ptr<OpenFile>& stand_in = dead[file];
            if (stand_in == nullptr) {
                stand_in = std::make_shared<DeadFile>(file->device_number());
                // The file's objects belong to an engine that this process does not have.
                static_cast<void>(new std::shared_ptr<OpenFile>(file));
            }
            file = stand_in;
        }
        mutex_.unlock();
    }

    std::mutex mutex_;
    std::unordered_map<int, std::shared_ptr<OpenFile>> files_;
    long owner_ = direct_getpid();
};

// Handlers of fork(2) run in the order in which the process takes locks: a device looks into the
// table under its own lock, so the table's handler is registered before that of any device.
[[gnu::constructor]] void register_fork_handlers() {
    static_cast<void>(Table::get());
}

bool may_be_ours(int fd) {
    return fd >= 0 && fd < kFdMax && is_our_fd[fd].load(std::memory_order_acquire);  // SYNC vhca_fd
}

}  // namespace

dev_t device_number_of(const DeviceNode& node) {
    switch (node.kind) {
        case DeviceNode::Kind::kUverbs:
            return makedev(kVerbsMajor, kVerbsMinor + node.index);
        case DeviceNode::Kind::kRdmaCm:
            return makedev(kMiscMajor, kCmMinor);
        default:
            return makedev(kMiscMajor, kStandInMinor + node.index);
    }
}

std::string path_of(const DeviceNode& node) {
    switch (node.kind) {
        case DeviceNode::Kind::kUverbs:
            return "/dev/infiniband/uverbs" + std::to_string(node.index);
        case DeviceNode::Kind::kRdmaCm:
            return std::string(kRdmaCmPath);
        default:
            return "/dev/infiniband/tagwire-vhca" + std::to_string(node.index);
    }
}

std::shared_ptr<OpenFile> find_file(int fd) {
    return may_be_ours(fd) ? Table::get().find(fd) : nullptr;
}

bool add_file(int fd, std::shared_ptr<OpenFile> file) {
    if (fd < 0 || fd >= kFdMax)
        return false;
    Table::get().add(fd, std::move(file));
    return true;
}

void duplicate_file(int from, int to) {
    std::shared_ptr<OpenFile> file = find_file(from);
    if (file == nullptr)
        remove_file(to);  // dup2(2) closes what was there
    else if (from != to)
        static_cast<void>(add_file(to, std::move(file)));
}

void remove_file(int fd) {
    if (may_be_ours(fd))
        const std::shared_ptr<OpenFile> last = Table::get().take(fd);
}

void remove_files(unsigned first, unsigned last) {
    for (const int fd : Table::get().numbers(first, last))
        remove_file(fd);
}

}  // namespace tagwire::vhca::files
