// SPDX-License-Identifier: BSD-3-Clause
// The kernel that the hook shows to a program: files, devices and sockets that do not exist.
//
// hook_*.cc have libc's functions and ask here first; everything else goes to the kernel below.
//
//     path        -> find_place()   device node, file of our sysfs tree, or neither
//     device node -> open_node()    a memfd (its pages are the doorbells) in the table
//     descriptor  -> find_file()    write(2) and ioctl(2) are commands, fstat(2) tells a device
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ucs/sys/fd.hpp"
#include "vhca/engine/engine.hpp"

namespace tagwire::vhca::driver {

/// What a descriptor of ours does beyond the file that it really is.
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
    enum class Kind : std::uint8_t { kUverbs, kRdmaCm } kind = Kind::kUverbs;
    unsigned index = 0;
};
[[nodiscard]] dev_t device_number_of(const DeviceNode& node);

/// Where a path of the program leads.
struct Place {
    enum class Kind : std::uint8_t { kForeign, kNode, kTree } kind = Kind::kForeign;
    DeviceNode node;
    std::string path;  // kTree: of the file to take instead
};
/// `dir_fd` as of openat(2). Foreign paths, nearly all, cost a look at their characters: nothing is
/// allocated, and errno stays.
[[nodiscard]] Place find_place(int dir_fd, const char* path);

/// open(2) of it: a descriptor that is in the table, or -1 with errno.
int open_node(const DeviceNode& node);

/// Size of the file of a device, whose pages are doorbells: every offset that programs map.
inline constexpr std::size_t kDoorbellBytes = std::size_t{1} << 30;

// ---- By the parts behind the nodes
/// The engine of a device with the driver face's settings and sink; errno value.
int attach_driver(unsigned index, Engine** engine_p);
/// /dev/infiniband/uverbsN. `doorbells`: kDoorbellBytes, a descriptor that belongs to the file.
/// nullptr with errno.
std::shared_ptr<OpenFile> open_uverbs(unsigned index, ucs::UniqueFd doorbells);
/// /dev/infiniband/rdma_cm, with a descriptor of its own, which it gives away. nullptr with errno.
std::shared_ptr<OpenFile> open_rdma_cm(int flags, int* fd_p);
/// How many devices the face has: none for a look that libmlx5 does not know, which is said once.
unsigned driver_device_count();

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

// ---- The sysfs tree
/// Made at the first call that needs it, one for each process (a child of fork(2), too). Empty: it
/// cannot be made, which was said.
const std::string& tree_path();
/// The path that SYSFS_PATH names, in the process and those that it forks.
const std::string& published_tree_path();

}  // namespace tagwire::vhca::driver
