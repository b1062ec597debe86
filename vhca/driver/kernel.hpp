// SPDX-License-Identifier: BSD-3-Clause
// The kernel that the driver face shows to a program: what its nodes and its sysfs tree are. A
// uverbs node is a memfd, whose pages are the doorbells.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "ucs/sys/fd.hpp"
#include "vhca/engine/engine.hpp"
#include "vhca/files/files.hpp"

namespace tagwire::vhca::driver {

using files::DeviceNode;
using files::OpenFile;

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
/// Number of devices: none with a profile that libmlx5 does not know, which is logged once.
unsigned driver_device_count();

// ---- The sysfs tree
/// Made at the first call that needs it, one for each process (a child of fork(2), too). If it
/// cannot be made, which is said, nothing is there.
const std::string& tree_path();
/// The path that SYSFS_PATH names, in the process and those that it forks.
const std::string& published_tree_path();

}  // namespace tagwire::vhca::driver
