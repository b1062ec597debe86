// SPDX-License-Identifier: BSD-3-Clause
// The sysfs tree of a process: its folder, and what it holds.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vhca/engine/engine.hpp"

namespace tagwire::vhca::driver {

// A PCI domain that no machine has; device n is function n.
inline constexpr std::string_view kTreeBusSys = "/sys/devices/pci7477:00";
inline constexpr std::string_view kTreeDeviceLinks = "/sys/bus/pci/devices/7477:00:00.";

/// Names of folders begin with it; behind it are the namespace, number and start time of the
/// process, and a random number.
inline constexpr const char* kTreeNamePrefix = "driver-face-";

/// A new name for the folder of this process; nothing is made.
std::string new_tree_path();
/// Makes the folder, for this user alone, and removes those of processes that are gone. 0, or an
/// errno value.
int make_tree_folder(const std::string& path);
/// And everything in it.
void remove_tree_folder(const std::string& path);

/// The engines of all devices, made if they were not yet; nullptr: it could not be made. Without
/// locks that handlers of fork(2) take.
std::vector<Engine*> engines_of_tree();
/// Everything that the devices show, in `root`. errno value.
int fill_tree(const std::string& root, std::span<Engine* const> engines);

}  // namespace tagwire::vhca::driver
