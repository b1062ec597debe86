// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/waiters.hpp"

#include <sys/eventfd.h>
#include <uct/api/tagwire_uct.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ucs/log/repeats.hpp"

namespace tagwire::proto {

void NapWord::wake() const {
    tagwire_uct_worker_wake_naps(worker);
}

bool WakeEvent::make() {
    if (!fd_)
        fd_.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!fd_)
        TW_LOG_REPEATED(ucs::LogLevel::kError, refusals_.due("descriptor"),
                        "wait: cannot create an event descriptor for this thread: %s",
                        std::strerror(errno));
    return static_cast<bool>(fd_);
}

void WakeEvent::wake() const {
    const std::uint64_t one = 1;
    if (::write(fd_.get(), &one, sizeof one) < 0 && errno != EAGAIN)
        TW_LOG_ERROR("wait: cannot wake a thread: %s", std::strerror(errno));
}

void WakeEvent::take() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t bytes = ::read(fd_.get(), &count, sizeof count);
}

}  // namespace tagwire::proto
