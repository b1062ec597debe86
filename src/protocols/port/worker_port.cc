// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/port/worker_port.hpp"

#include "ucs/log/log.hpp"

namespace tagwire::proto {

bool WorkerPort::drop(const char* what, std::size_t length) const {
    count(WorkerCounter::kGarbage);
    TW_LOG_DEBUG("%s of %zu bytes is dropped", what, length);
    return false;
}

}  // namespace tagwire::proto
