// SPDX-License-Identifier: BSD-3-Clause
// The reason why a device makes no DCI: mlx5dv_create_qp(3) has one error for every limit.
#pragma once

#include <functional>
#include <string>

#include "uct/ib/dc/dc_verbs.hpp"

namespace tagwire::dc {

/// Makes a DCI and drops it.
using CanBeMade = std::function<bool(const InitiatorParams&)>;

/// Which of `params` is too much, by trying each with less: what was asked for, what the device
/// says that it has, and which option makes it less.
std::string why_refused(const ib::Device& device, const InitiatorParams& params,
                        unsigned streams_log_max, const CanBeMade& can_be_made);

}  // namespace tagwire::dc
