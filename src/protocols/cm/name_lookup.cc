// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/cm/name_lookup.hpp"

#include <signal.h>
#include <sys/eventfd.h>

#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "ucs/log/log.hpp"

namespace tagwire::proto {

struct NameLookup::State {
    ucs::UniqueFd event;
    ucs::HostPort at;
    int error = 0;
    ucs::AddressList list{nullptr, &freeaddrinfo};
    std::atomic<bool> is_over{false};

    void look_up(int flags) {
        error = ucs::resolve(at, flags, &list);
        // SYNC name_lookup: pairs with the acquire in NameLookup::is_over(): the list.
        is_over.store(true, std::memory_order_release);
        const std::uint64_t one = 1;
        [[maybe_unused]] const ssize_t bytes = ::write(event.get(), &one, sizeof one);
    }
};

namespace {

/// Signals are for the threads of the program.
class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;
    ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_{};
};

}  // namespace

ucs_status_t NameLookup::begin(const ucs::HostPort& at) {
    state_ = std::make_shared<State>();
    state_->event.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!state_->event) {
        TW_LOG_ERROR("tw_ep_connect: no descriptor for looking up %s: %s", at.host.c_str(),
                     std::strerror(errno));
        return UCS_ERR_IO_ERROR;
    }
    state_->at = at;
    state_->look_up(AI_NUMERICHOST);
    was_number_ = state_->error == 0;
    if (was_number_)
        return UCS_OK;
    // Relaxed: the thread does not run yet.
    state_->is_over.store(false, std::memory_order_relaxed);
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t bytes = ::read(state_->event.get(), &count, sizeof count);
    const SignalsBlocked blocked;
    try {
        std::thread([state = state_] { state->look_up(0); }).detach();
    } catch (const std::system_error& error) {
        TW_LOG_ERROR("tw_ep_connect: no thread for looking up %s: %s", at.host.c_str(),
                     error.what());
        return UCS_ERR_IO_ERROR;
    }
    return UCS_OK;
}

int NameLookup::fd() const {
    return state_->event.get();
}

bool NameLookup::is_over() const {
    // SYNC name_lookup: pairs with the release in State::look_up().
    return state_->is_over.load(std::memory_order_acquire);
}

int NameLookup::take(ucs::AddressList* list_p) {
    *list_p = std::move(state_->list);
    return state_->error;
}

}  // namespace tagwire::proto
