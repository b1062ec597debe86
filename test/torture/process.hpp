// SPDX-License-Identifier: BSD-3-Clause
// The other processes of a torture. Each is this program again, started by exec with a role, so
// that it inherits no state of the library; it has one descriptor, a link to its parent, and dies
// with it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>

namespace tagwire::torture {

/// The descriptor of a child's link to its parent.
constexpr int kLinkFd = 3;

/// One end of a stream of packets between parent and child.
class Link {
  public:
    explicit Link(int fd) : fd_(fd) {}
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;
    ~Link();

    template <class T>
    void send(const T& value) const {
        static_assert(std::is_trivially_copyable_v<T>);
        send_bytes(&value, sizeof value);
    }
    /// Waits. Nothing when the other end has gone.
    template <class T>
    std::optional<T> receive() const {
        static_assert(std::is_trivially_copyable_v<T>);
        T value{};
        return receive_bytes(&value, sizeof value) ? std::optional<T>(value) : std::nullopt;
    }
    bool has_packet() const;

  private:
    void send_bytes(const void* bytes, std::size_t length) const;
    bool receive_bytes(void* bytes, std::size_t length) const;

    int fd_;
};

class Child {
  public:
    /// Runs `role` (main.cc lists them) with a seed of its own.
    Child(const std::string& role, std::uint64_t seed);
    /// Runs a function in a plain fork of this process.
    explicit Child(const std::function<int(Link&)>& function);
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child();

    pid_t pid() const { return pid_; }
    Link& link() { return *link_; }
    bool is_running();
    /// SIGKILL and wait.
    void kill();
    /// Waits. The exit status, 128 + signal when one ended it.
    int join();
    /// join() once it has ended, else nothing.
    std::optional<int> try_join();

  private:
    int ended(int status);

    pid_t pid_ = -1;
    std::optional<Link> link_;
    std::optional<int> code_;
};

/// Ends every child that still runs, by its pid. Returns how many. Async-signal-safe.
int kill_children();

/// Value of TAGWIRE_TRANSPORTS, "auto" when it is not set.
std::string transports();

}  // namespace tagwire::torture
