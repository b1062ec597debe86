// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/engine/mutex.hpp"

#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "ucs/sys/spin_pause.hpp"
#include "ucs/sys/step_aside.hpp"

namespace tagwire::vhca {

void EngineMutex::lock_slow() {
    constexpr int kSpins = 100, kYields = 100;
    for (int i = 0; i < kSpins; ++i) {
        if (try_lock())
            return;
        ucs::spin_pause();
    }
    for (int i = 0; !try_lock(); ++i) {
        if (i < kYields) {
            ucs::step_aside();
        } else {
            const timespec rest{0, 20'000};
            nanosleep(&rest, nullptr);
        }
    }
}

void EngineMutex::unlock_slow() {
    if (to_flush_ != nullptr)
        to_flush_->flush();  // what it does not take now goes with the next packets
    const int fd = std::exchange(wake_fd_, -1);
    is_locked_.store(false, std::memory_order_release);  // SYNC vhca_lock
    if (fd < 0)
        return;
    const std::uint64_t one = 1;
    // It cannot fail: the counter is far from its end. The descriptor lives as long as the engine.
    [[maybe_unused]] const auto written = ::write(fd, &one, sizeof one);
}

}  // namespace tagwire::vhca
