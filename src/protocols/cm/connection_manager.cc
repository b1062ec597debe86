// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/cm/connection_manager.hpp"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "protocols/cm/connecting.hpp"
#include "protocols/worker/peer_table.hpp"
#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

namespace {

constexpr std::uint64_t kTimer = 0;  // no serial
/// In which a request may still leave when its worker goes.
constexpr std::uint64_t kLastWordsNs = 20'000'000;

}  // namespace

Watched::~Watched() {
    cm.forget(*this);
}

ucs_status_t ConnectionManager::create(const CmPorts& ports, std::unique_ptr<Lookout>* lookout_p) {
    std::unique_ptr<ConnectionManager> manager(new ConnectionManager(ports));
    if (!manager->open()) {
        TW_LOG_ERROR("connections by host and port: no descriptors: %s", std::strerror(errno));
        return UCS_ERR_IO_ERROR;
    }
    *lookout_p = std::move(manager);
    return UCS_OK;
}

ConnectionManager::~ConnectionManager() {
    Connecting::send_requests(begun, ucs::clock_now_ns() + kLastWordsNs);
    while (!all_.empty())
        destroy(*all_.back());
}

bool ConnectionManager::open() {
    epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
    timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    return epoll_ && timer_ && watch_timer() &&
           tw_worker_address(to_.worker, address_, &address_bytes_) == TW_OK;
}

bool ConnectionManager::watch_timer() const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = kTimer;
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &event) == 0;
}

unsigned ConnectionManager::look() {
    if (all_.empty())
        return 0;
    constexpr int kEvents = 16;
    epoll_event events[kEvents];
    const int count = ::epoll_wait(epoll_.get(), events, kEvents, 0);
    for (int i = 0; i < count; ++i) {
        if (events[i].data.u64 == kTimer)
            expire();
        else
            see(events[i].data.u64);
    }
    return static_cast<unsigned>(std::max(count, 0));
}

/// An earlier one may have called the program, which has ended it.
void ConnectionManager::see(std::uint64_t serial) {
    const auto find = [&] {
        const auto found = by_serial_.find(serial);
        return found == by_serial_.end() ? nullptr : found->second;
    };
    try {
        if (Watched* one = find())
            one->on_ready();
    } catch (const std::bad_alloc&) {
        TW_LOG_ERROR("connections by host and port: out of memory");
        if (Watched* one = find())
            one->on_no_memory();
    }
}

bool ConnectionManager::watch(Watched& one, int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    const bool is_new = one.serial == 0;
    if (is_new)
        one.serial = ++serials_;
    event.data.u64 = one.serial;
    if (::epoll_ctl(epoll_.get(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) == 0) {
        by_serial_[one.serial] = &one;
        return true;
    }
    TW_LOG_ERROR("connections by host and port: epoll_ctl: %s", std::strerror(errno));
    return false;
}

/// Before the descriptor is closed.
void ConnectionManager::unwatch(Watched& one, int fd) {
    if (one.serial == 0)
        return;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    by_serial_.erase(std::exchange(one.serial, 0));
}

void ConnectionManager::forget(Watched& gone) {
    if (gone.serial != 0)
        by_serial_.erase(gone.serial);
    set_deadline(gone, UINT64_MAX);
}

void ConnectionManager::destroy(const Watched& one) {
    const std::size_t place = one.place;
    // Its end may lead here again.
    const std::unique_ptr<Watched> gone = std::move(all_[place]);
    if (place + 1 != all_.size()) {
        all_[place] = std::move(all_.back());
        all_[place]->place = place;
    }
    all_.pop_back();
}

// ---- Time

void ConnectionManager::set_deadline(Watched& one, std::uint64_t deadline_ns) {
    if (one.deadline != UINT64_MAX)
        deadlines_.erase({one.deadline, &one});
    one.deadline = deadline_ns;
    if (deadline_ns == UINT64_MAX)
        return;
    deadlines_.insert({deadline_ns, &one});
    if (deadline_ns < timer_set_)
        set_timer();
}

/// It may end too early, when who was to be told has gone.
void ConnectionManager::set_timer() {
    timer_set_ = deadlines_.empty() ? UINT64_MAX : deadlines_.begin()->first;
    itimerspec time{};
    if (timer_set_ != UINT64_MAX)  // a time of 0 would stop the timer
        time.it_value = ucs::timespec_of(std::max<std::uint64_t>(timer_set_, 1));
    ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &time, nullptr);
}

void ConnectionManager::expire() {
    const std::uint64_t now = ucs::clock_now_ns();
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
        Watched& late = *deadlines_.begin()->second;
        set_deadline(late, UINT64_MAX);
        late.on_late();
    }
    set_timer();
}

// ---- Endpoints

ucs_status_t connect_anew(PeerTable& peers, WireBytes address, bool is_asked, std::uint32_t flags,
                          void* user_data, tw_ep_h* ep_p) try {
    std::string reason;
    const auto parsed = parse(address, &reason);
    if (!parsed) {
        TW_LOG_ERROR("connections by host and port: the peer's address is none: %s",
                     reason.c_str());
        return UCS_ERR_INVALID_ADDR;
    }
    PeerEndpoint* ep = nullptr;
    peers.end_left(parsed->id, is_asked);
    const ucs_status_t status = peers.connect(*parsed, flags, user_data, &ep);
    if (status == UCS_OK)
        *ep_p = ep;
    return status;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

}  // namespace tagwire::proto
