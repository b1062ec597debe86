// SPDX-License-Identifier: BSD-3-Clause
// The descriptor that a program reads events from: those of a completion channel, or the
// asynchronous ones of a context. As with the kernel's, read() returns one whole event structure,
// so it is a socket that keeps records: taking events back from a pipe would need a change of the
// flags of the program's own descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "ucs/sys/fd.hpp"

namespace tagwire::vhca::driver {

/// Under the engine's lock, all of it. The program owns the end that it reads, and closes it; it
/// may set O_NONBLOCK, wait in poll(2) or epoll(7), and pass it on.
class EventPipe {
  public:
    /// `event_bytes`: of one event structure. nullptr with errno: no descriptors are left.
    static std::unique_ptr<EventPipe> create(std::size_t event_bytes);

    /// The program's end, given away: to be told once.
    [[nodiscard]] int program_fd() const { return program_fd_; }
    /// Another descriptor of that end, the caller's. -1 with errno.
    [[nodiscard]] int duplicate() const;
    /// Never blocks: what does not fit is kept, and goes with flush() or the next one.
    void push(std::span<const std::byte> event);
    /// False: there is no room, and it is not kept.
    [[nodiscard]] bool try_push(std::span<const std::byte> event);
    /// To be called now and then while has_waiting().
    void flush();
    [[nodiscard]] bool has_waiting() const { return !waiting_.empty(); }
    /// Takes back the unread events for which `is_meant` is true; returns their number. The others
    /// keep their order.
    template <typename F>
    std::size_t take_back(const F& is_meant) {
        std::size_t count = 0;
        drain();
        for (auto event = waiting_.begin(); event != waiting_.end();) {
            if (is_meant(std::span<const std::byte>(*event))) {
                event = waiting_.erase(event);
                ++count;
            } else {
                ++event;
            }
        }
        flush();
        return count;
    }

  private:
    EventPipe() = default;
    void drain();
    [[nodiscard]] bool send(std::span<const std::byte> event);

    std::size_t event_bytes_ = 0;
    int program_fd_ = -1;       // the program's: not to be used, only named
    ucs::UniqueFd read_again_;  // the same end, kept to take events back; nobody gets SIGPIPE
    ucs::UniqueFd write_;
    std::deque<std::vector<std::byte>> waiting_;  // there was no room for them
};

/// Names the socket behind a program's descriptor, which may have another number by now; 0: the
/// descriptor is closed.
[[nodiscard]] std::uint64_t inode_of(int fd);

}  // namespace tagwire::vhca::driver
