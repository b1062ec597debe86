// SPDX-License-Identifier: BSD-3-Clause
// The kernel that the hook shows to a program: files, devices and sockets that do not exist.
//
// hook.cc has libc's functions and asks here first; what is not ours goes to the kernel below.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

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

/// The device that this path names, by any number of slashes and links of /dev: nullopt, none of
/// ours.
struct DeviceNode {
    enum class Kind : std::uint8_t { kUverbs, kRdmaCm } kind = Kind::kUverbs;
    unsigned index = 0;
};
[[nodiscard]] std::optional<DeviceNode> find_node(const char* path);
[[nodiscard]] dev_t device_number_of(const DeviceNode& node);

/// open(2) of it: a descriptor that is in the table, or -1 with errno.
int open_node(const DeviceNode& node, int flags);

// ---- The table of our descriptors. Thread-safe; look-up of a descriptor that is not ours is one
// load, without a lock.
/// nullptr: not ours.
[[nodiscard]] std::shared_ptr<OpenFile> find_file(int fd);
void add_file(int fd, std::shared_ptr<OpenFile> file);
/// `to` is what `from` is, by dup(2) and its relatives.
void duplicate_file(int from, int to);
/// Before close(2): the last descriptor of a file ends it.
void remove_file(int fd);
void remove_files(unsigned first, unsigned last);

/// The sysfs tree of the process: made at the first call; SYSFS_PATH of libibverbs leads there.
const std::string& sysfs_path();
/// `path` of sysfs or /dev, where ours are, becomes the path of the tree; nullopt: it is not ours.
[[nodiscard]] std::optional<std::string> redirected(const char* path);

}  // namespace tagwire::vhca::driver
