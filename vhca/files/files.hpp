// SPDX-License-Identifier: BSD-3-Clause
// Files that do not exist, for a program that looks for them: device nodes of RDMA, and what /sys
// tells of them. Both faces preload a library of it, each with nodes of its own.
//
// hook_*.cc have libc's functions and ask here first; everything else goes to the kernel below.
//
//     path        -> find_place()   device node, file of another folder, or neither
//     device node -> open_node()    a descriptor in the table
//     descriptor  -> find_file()    write(2) and ioctl(2) are commands, fstat(2) tells a device
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tagwire::vhca::files {

/// Operations of a descriptor of ours, beyond the file that it really is.
class OpenFile {
  public:
    virtual ~OpenFile() = default;
    /// As write(2), ioctl(2): -1 with errno.
    virtual std::int64_t write(const void* bytes, std::size_t count) = 0;
    virtual int ioctl(unsigned long request, void* argument) = 0;
    /// The device number that fstat(2) tells.
    [[nodiscard]] virtual dev_t device_number() const = 0;
};

struct DeviceNode {
    /// kStandIn: an HCA that is no device of the kernel, but is looked for as one.
    enum class Kind : std::uint8_t { kUverbs, kRdmaCm, kStandIn } kind = Kind::kUverbs;
    unsigned index = 0;
};
[[nodiscard]] dev_t device_number_of(const DeviceNode& node);
/// Below /dev.
[[nodiscard]] std::string path_of(const DeviceNode& node);

/// Where a path of the program leads.
struct Place {
    enum class Kind : std::uint8_t { kForeign, kNode, kTree } kind = Kind::kForeign;
    DeviceNode node;
    std::string path;  // kTree: of the file to take instead
};

// ---- A face's own
/// `dir_fd` as of openat(2). Foreign paths, nearly all, cost a look at their characters: nothing is
/// allocated, and errno stays.
[[nodiscard]] Place find_place(int dir_fd, const char* path);
/// open(2) of it: a descriptor that is in the table, or -1 with errno.
int open_node(const DeviceNode& node, int flags);

// ---- The table of our descriptors. Thread-safe. After fork(2) the child has the descriptors,
// whose files are dead: EIO. A child of vfork(2) changes nothing.
inline constexpr int kFdMax = 1 << 20;
extern std::atomic<bool> is_our_fd[kFdMax];

/// nullptr: not ours. One load then, without a lock.
[[nodiscard]] std::shared_ptr<OpenFile> find_file(int fd);
/// False: the number is too large.
bool add_file(int fd, std::shared_ptr<OpenFile> file);
/// `to` is what `from` is, by dup(2) and its relatives; nothing if that is not ours.
void duplicate_file(int from, int to);
/// Before close(2): the last descriptor of a file ends it.
void remove_file(int fd);
void remove_files(unsigned first, unsigned last);

}  // namespace tagwire::vhca::files
