// SPDX-License-Identifier: BSD-3-Clause
// Commands of the device, translated into those of the kernel: an object that is made by one is an
// object like any other, but that its program has no verbs structure of it.
#pragma once

#include <cstddef>
#include <span>

#include "vhca/driver/commands.hpp"

namespace tagwire::vhca::driver {

/// One command: `in` is a copy. Its reply is all zero, and has room for what replies have at least.
struct DevxCommand {
    std::span<const std::byte> in;
    std::span<std::byte> out;
};

// errno values: EREMOTEIO, the device refused, and the status in the reply says why; EINVAL, the
// kernel has no such command there.
int devx_general(Context& context, const DevxCommand& command);
/// `*object_p` is where what was made is in the tables of `context`.
int devx_create(Context& context, const DevxCommand& command, DevxObject* object_p);
int devx_modify(Context& context, const DevxCommand& command, const DevxObject& object);
int devx_query(Context& context, const DevxCommand& command, const DevxObject& object);
int devx_destroy(Context& context, const DevxObject& object);

}  // namespace tagwire::vhca::driver
