// SPDX-License-Identifier: BSD-3-Clause
// Programs of others on the same processors: processes that compute, and know nothing of the
// measurement. They end with this object, and when this process dies.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace tagwire::tools {

/// Limits what a slip of the finger starts.
inline constexpr std::uint64_t kStrangersMax = 256;

class Strangers {
  public:
    /// To be made before sockets and threads are. Throws Failure.
    explicit Strangers(std::uint64_t count);
    ~Strangers();
    Strangers(const Strangers&) = delete;
    Strangers& operator=(const Strangers&) = delete;

  private:
    void end();

    std::vector<pid_t> processes_;
};

}  // namespace tagwire::tools
