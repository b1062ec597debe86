// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/waiters.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/sys/recursive_lock.hpp"

namespace tagwire::proto {

Waiter& Waiters::mine() {
    const auto self = reinterpret_cast<std::uintptr_t>(&ucs::self_of_thread);
    const auto found = std::ranges::find(all_, self, [](const auto& one) { return one->thread; });
    if (found != all_.end()) {
        std::rotate(found, found + 1, all_.end());
        return *all_.back();
    }
    forget_one();
    all_.push_back(std::make_unique<Waiter>());
    all_.back()->thread = self;
    return *all_.back();
}

void Waiters::forget_one() {
    const auto is_idle = [](const auto& one) { return !one->waits; };
    if (static_cast<std::size_t>(std::ranges::count_if(all_, is_idle)) < kRemembered)
        return;
    const auto oldest =
        std::ranges::find_if(all_, [](const auto& one) { return !one->waits && !one->has_armed; });
    all_.erase(oldest != all_.end() ? oldest : std::ranges::find_if(all_, is_idle));
}

bool Waiters::others_have_armed(const Waiter& me) const {
    return std::ranges::any_of(all_,
                               [&](const auto& one) { return one->has_armed && &*one != &me; });
}

bool Waiters::make_event(Waiter& waiter) const {
    if (!waiter.event)
        waiter.event.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!waiter.event)
        TW_LOG_ERROR("wait: no descriptor for this thread: %s", std::strerror(errno));
    return static_cast<bool>(waiter.event);
}

void Waiters::sleep(Waiter& waiter) {
    waiter.sleeps = true;
    ++sleeping_;
}

void Waiters::awake(Waiter& waiter) {
    std::uint64_t count = 0;
    if (std::exchange(waiter.is_woken, false)) [[maybe_unused]]
        const ssize_t bytes = ::read(waiter.event.get(), &count, sizeof count);
    if (std::exchange(waiter.sleeps, false))
        --sleeping_;
}

void Waiters::wake_others(const Waiter& me) {
    if (!others_sleep(me))
        return;
    const std::uint64_t one = 1;
    for (const auto& waiter : all_) {
        if (!waiter->sleeps || &*waiter == &me)
            continue;
        waiter->sleeps = false;
        waiter->is_woken = true;
        --sleeping_;
        if (::write(waiter->event.get(), &one, sizeof one) < 0 && errno != EAGAIN)
            TW_LOG_ERROR("wait: a thread cannot be woken: %s", std::strerror(errno));
    }
}

}  // namespace tagwire::proto
