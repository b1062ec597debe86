// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/cm/channel.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <mutex>

#include "vhca/cm/manager.hpp"

namespace tagwire::vhca::cm {

std::unique_ptr<Channel> Channel::open(Manager& manager, int open_flags) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC | (open_flags & O_NONBLOCK)) != 0)
        return nullptr;
    std::unique_ptr<Channel> channel(new Channel(manager));
    channel->read_end_.reset(ends[0]);
    channel->write_end_.reset(ends[1]);
    const int how = (open_flags & O_CLOEXEC) != 0 ? F_DUPFD_CLOEXEC : F_DUPFD;
    channel->program_fd_ = ::fcntl(ends[0], how, 0);
    return channel->program_fd_ < 0 ? nullptr : std::move(channel);
}

Channel::~Channel() {
    const std::lock_guard guard(manager_.network());
    manager_.destroy_all(*this);
}

// ---- Events ------------------------------------------------------------------------------------

void tell(Identity& identity, rdma_ucm_event_resp response) {
    if (identity.uid == 0)
        return;
    response.uid = identity.uid;
    response.id = identity.number;
    identity.channel->push({.identity = &identity, .request = nullptr, .response = response});
}

void Channel::push(const Event& event) {
    events_.push_back(event);
    update_bell();
}

std::vector<Identity*> Channel::remove_events(const Identity& identity) {
    std::vector<Identity*> requests;
    for (const Event& event : events_)
        if (event.identity == &identity && event.request != nullptr)
            requests.push_back(event.request);
    std::erase_if(events_, [&](const Event& event) { return event.identity == &identity; });
    update_bell();
    return requests;
}

void Channel::move_events(const Identity& identity, Channel& to) {
    for (const Event& event : events_) {
        if (event.identity == &identity) {
            if (event.request != nullptr)
                event.request->channel = &to;
            to.events_.push_back(event);
        }
    }
    std::erase_if(events_, [&](const Event& event) { return event.identity == &identity; });
    update_bell();
    to.update_bell();
}

// One byte is in the pipe as long as there are events; neither call can block.
void Channel::update_bell() {
    char byte = 0;
    if (!events_.empty() && !is_rung_)
        is_rung_ = ::write(write_end_.get(), &byte, 1) == 1;
    else if (events_.empty() && is_rung_)
        is_rung_ = ::read(read_end_.get(), &byte, 1) != 1;
}

int Channel::get_event(const Command& call) {
    // The structure of older programs ends before these two.
    constexpr std::size_t kBytesMin = sizeof(rdma_ucm_event_resp) -
                                      sizeof(rdma_ucm_event_resp::reserved) -
                                      sizeof(rdma_ucm_event_resp::ece);
    if (call.out_bytes < kBytesMin)
        return ENOSPC;
    for (;;) {
        {
            const std::lock_guard guard(manager_.network());
            if (!events_.empty())
                return fetch_event(call);
        }
        if ((::fcntl(read_end_.get(), F_GETFL) & O_NONBLOCK) != 0)
            return EAGAIN;
        pollfd wait{.fd = read_end_.get(), .events = POLLIN, .revents = 0};
        if (::poll(&wait, 1, -1) < 0)
            return errno;
    }
}

int Channel::fetch_event(const Command& call) {
    rdma_ucm_get_event command;
    if (const int error = driver::read_user(call.in, &command); error != 0)
        return error;
    Event& event = events_.front();
    if (event.request != nullptr) {
        manager_.give_number(*event.request);
        event.response.id = event.request->number;
    }
    if (driver::write_user({command.response, call.out_bytes}, event.response) != 0) {
        if (event.request != nullptr)
            manager_.take_number_back(*event.request);  // while it is part of an event
        return EFAULT;
    }
    if (event.request != nullptr) {
        event.request->channel = this;
        ++event.identity->backlog;
    }
    ++event.identity->events_reported;
    events_.pop_front();
    update_bell();
    return 0;
}

}  // namespace tagwire::vhca::cm
