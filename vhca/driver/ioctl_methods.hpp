// SPDX-License-Identifier: BSD-3-Clause
// The methods of the ioctl form. Those that have a write form fill its structures and call the same
// command (commands.hpp), so both forms do the same.
//
// ioctl_methods.cc   which there are, and what all share
// ioctl_device.cc    the device, its port, asynchronous events
// ioctl_objects.cc   CQs, SRQs, queue pairs, and the ends of all objects
// ioctl_uar.cc       doorbell pages
// ioctl_devx.cc      commands of the device
// ioctl_devx_events.cc   descriptors of their events
#pragma once

#include <rdma/ib_user_ioctl_cmds.h>

#include <cstdint>
#include <span>

#include "vhca/driver/commands.hpp"
#include "vhca/driver/ioctl.hpp"

namespace tagwire::vhca::driver {

[[nodiscard]] std::span<const IoctlMethod> device_methods();
[[nodiscard]] std::span<const IoctlMethod> object_methods();
[[nodiscard]] std::span<const IoctlMethod> uar_methods();
/// Methods of a context whose program was let use DEVX.
[[nodiscard]] std::span<const IoctlMethod> devx_methods();
[[nodiscard]] std::span<const IoctlMethod> devx_event_methods();
/// A new descriptor of DEVX, told to the program. errno.
int give_devx_pipe(Context& context, IoctlCall& call, std::uint16_t answer, DevxPipe::Kind kind);
/// The descriptor that an attribute names. nullptr: none of that kind.
std::shared_ptr<DevxPipe> find_devx_pipe(const Context& context, const IoctlCall& call,
                                         std::uint16_t id, DevxPipe::Kind kind);
/// An attribute's object of any kind: the method looks itself.
inline constexpr std::uint16_t kAnyObject = 0xffff;

/// RDMA_VERBS_IOCTL. errno value. Takes the engine's lock.
int run_ioctl(Context& context, const void* argument);

/// A structure of ours, in the place of one of the program's.
template <typename T>
UserSpan ours(T& value) {
    return {reinterpret_cast<std::uint64_t>(&value), sizeof value};
}
/// A command's call with our structures, and the program's driver data.
template <typename In, typename Out>
Call call_of(const IoctlCall& call, In& in, Out& out) {
    return {.core_in = ours(in),
            .driver_in = call.memory(UVERBS_ATTR_UHW_IN),
            .core_out = ours(out),
            .driver_out = call.memory(UVERBS_ATTR_UHW_OUT)};
}

}  // namespace tagwire::vhca::driver
