// SPDX-License-Identifier: BSD-3-Clause
#include "progress.hpp"

#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <utility>

#include "ep.hpp"
#include "fabric.hpp"
#include "thread.hpp"

namespace tagwire::fi {

namespace {

std::mutex all_lock;
AutoProgress* all = nullptr;
bool stops_at_exit = false;

}  // namespace

AutoProgress::~AutoProgress() {
    {
        const std::lock_guard guard(all_lock);
        for (AutoProgress** link = &all; *link != nullptr; link = &(*link)->next_) {
            if (*link == this) {
                *link = next_;
                break;
            }
        }
    }
    stop();
}

int AutoProgress::start() {
    int status = sleeper_.open();
    if (status == 0)
        status = start_thread(&thread_, [this] { run(); });
    if (status != 0)
        return status;
    process_ = ::getpid();
    const std::lock_guard guard(all_lock);
    next_ = std::exchange(all, this);
    // The objects that the thread uses have been made by now: they are destroyed after stop_all().
    stops_at_exit = stops_at_exit || std::atexit(stop_all) == 0;
    return stops_at_exit ? 0 : -FI_ENOMEM;
}

/// Programs may exit without closing anything, and the libraries under a running thread end then.
void AutoProgress::stop_all() {
    const std::lock_guard guard(all_lock);
    for (AutoProgress* one = all; one != nullptr; one = one->next_)
        one->stop();
}

void AutoProgress::stop() {
    if (!thread_.joinable())
        return;
    if (process_ != ::getpid()) {
        thread_.detach();
        return;
    }
    {
        const std::lock_guard guard(domain_.lock);
        is_over_ = true;
        sleeper_.ring();
    }
    thread_.join();
}

int AutoProgress::add(const Ep& ep) {
    const int status = sleeper_.add(ep.worker, &ep.is_restless);
    // A thread that is asleep has not armed this worker.
    sleeper_.ring();
    return status;
}

void AutoProgress::run() {
    Sleep sleep(sleeper_);
    for (;;) {
        bool stands_aside = false;
        {
            const std::lock_guard guard(domain_.lock);
            sleep.awake();
            if (is_over_)
                return;
            if (!domain_.progress()) {
                stands_aside = std::exchange(domain_.is_progressed, false);
                // Failures that nobody asked for are reported to nobody; while they wait to be
                // polled, a worker refuses to be armed.
                if (!stands_aside && !sleep.fall_asleep())
                    domain_.drop_reports();
            }
        }
        if (stands_aside)
            std::this_thread::sleep_for(kAside);
        else
            sleep.wait(-1);
    }
}

}  // namespace tagwire::fi
