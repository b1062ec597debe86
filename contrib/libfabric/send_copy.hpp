// SPDX-License-Identifier: BSD-3-Clause
// Active messages whose sender keeps nothing of them.
#pragma once

#include <tagwire.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "letters.hpp"

namespace tagwire::fi {

struct CopyOptions {
    std::uint32_t flags = 0;           ///< TW_OP_x
    std::size_t inject_bytes_max = 0;  ///< The limit of the endpoint.
};

/// Sends an active message; header and data may be reused when it returns. TW_OK: it was sent, or
/// will be; its failure is that of the endpoint. Other statuses are those of tw_am_send(), and
/// nothing has happened.
tw_status_t send_copy(tw_ep_h ep, Letter id, std::span<const std::byte> header,
                      std::span<const std::byte> data, const CopyOptions& options);

}  // namespace tagwire::fi
