// SPDX-License-Identifier: BSD-3-Clause
// A device, its port and the ways that lead from it, as both faces tell them.
#pragma once

#include <infiniband/verbs.h>

#include "vhca/engine/engine.hpp"

namespace tagwire::vhca {

/// The limits in `config` are those that programs are told.
void describe_device(const DeviceConfig& config, ibv_device_attr* attr);
[[nodiscard]] ibv_tm_caps tm_caps_of(const DeviceConfig& config);
/// A port that is_port() knows. Under the lock.
void describe_port(Engine& engine, unsigned port, ibv_port_attr* attr);

/// Whether the device has it; the first is the one that carries packets.
[[nodiscard]] bool is_port(Engine& engine, unsigned port);
/// Address attributes that the port can follow: on Ethernet they need a GID, which has to be one
/// that is there; service level and rate have to exist.
[[nodiscard]] bool is_path(Engine& engine, const ibv_ah_attr& attr);

}  // namespace tagwire::vhca
