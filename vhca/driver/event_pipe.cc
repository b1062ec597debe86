// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/driver/event_pipe.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <iterator>

namespace tagwire::vhca::driver {

std::unique_ptr<EventPipe> EventPipe::create(std::size_t event_bytes) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return nullptr;
    ucs::UniqueFd program(ends[0]);
    std::unique_ptr<EventPipe> pipe(new EventPipe);
    pipe->write_.reset(ends[1]);
    pipe->read_again_.reset(::fcntl(program.get(), F_DUPFD_CLOEXEC, 0));
    if (!pipe->read_again_)
        return nullptr;
    pipe->event_bytes_ = event_bytes;
    pipe->program_fd_ = program.release();
    return pipe;
}

int EventPipe::duplicate() const {
    return ::fcntl(read_again_.get(), F_DUPFD_CLOEXEC, 0);
}

void EventPipe::push(std::span<const std::byte> event) {
    waiting_.emplace_back(event.begin(), event.end());
    flush();
}

bool EventPipe::send(std::span<const std::byte> event) {
    return ::send(write_.get(), event.data(), event.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

bool EventPipe::try_push(std::span<const std::byte> event) {
    flush();
    return waiting_.empty() && send(event);
}

void EventPipe::flush() {
    while (!waiting_.empty() && send(waiting_.front()))
        waiting_.pop_front();
}

void EventPipe::drain() {
    std::vector<std::vector<std::byte>> unread;
    for (std::vector<std::byte> event(event_bytes_);;) {
        const auto bytes = ::recv(read_again_.get(), event.data(), event.size(), MSG_DONTWAIT);
        if (bytes <= 0)
            break;
        unread.push_back(event);
    }
    waiting_.insert(waiting_.begin(), std::make_move_iterator(unread.begin()),
                    std::make_move_iterator(unread.end()));
}

std::uint64_t inode_of(int fd) {
    struct stat facts {};
    return ::fstat(fd, &facts) == 0 ? facts.st_ino : 0;
}

}  // namespace tagwire::vhca::driver
