// SPDX-License-Identifier: BSD-3-Clause
// Several processes in one test. The test process itself opens nothing of the library and starts no
// thread, so that it can fork at any time; every role runs in a child of its own and says what it
// has to say through its channel.
//
// A child that failed an expectation exits with kFailedInChild, having printed it. Children die
// with their parent.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "entity.hpp"

namespace tagwire::test {

constexpr int kPatienceMs = 30'000;  // what takes longer hangs
constexpr int kFailedInChild = 77;

/// One end of a stream of packets to another process.
class Channel {
  public:
    explicit Channel(int fd) : fd_(fd) {}
    Channel(Channel&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Channel& operator=(Channel&&) = delete;
    ~Channel();

    void send(const Bytes& bytes) const;
    void signal() const { send(Bytes(1)); }
    /// Nothing when the other end is gone or silent for too long.
    std::optional<Bytes> receive(int timeout_ms = kPatienceMs) const;
    bool await_signal() const { return receive().has_value(); }
    bool has_message() const;

    template <class T>
    void send_value(const T& value) const {
        const auto* first = reinterpret_cast<const std::byte*>(&value);
        send(Bytes(first, first + sizeof value));
    }
    template <class T>
    std::optional<T> receive_value() const {
        const auto bytes = receive();
        if (!bytes || bytes->size() != sizeof(T))
            return std::nullopt;
        T value;
        std::copy(bytes->begin(), bytes->end(), reinterpret_cast<std::byte*>(&value));
        return value;
    }

  private:
    int fd_;
};

class Child {
  public:
    using Role = std::function<void(Channel&)>;

    explicit Child(const Role& role);
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child();  // by force, if it still runs

    pid_t pid() const { return pid_; }
    Channel& channel() { return channel_; }
    void signal(int number) const;
    /// Exit status of the child, 128 + signal when one killed it, -1 when it does not end.
    int join(int timeout_ms = kPatienceMs);
    /// SIGKILL and wait.
    void kill_now();

  private:
    Child(std::pair<int, int> ends, const Role& role);

    Channel channel_;
    pid_t pid_ = -1;
    bool is_running_ = true;
};

/// Progresses `entity` until `done` or too long; gives up the processor when idle, since the other
/// side may need it.
bool progress_until(Entity& entity, const std::function<bool()>& done,
                    int timeout_ms = kPatienceMs);
/// Repeats while NO_RESOURCE, progressing.
ucs_status_t retry(Entity& entity, const std::function<ucs_status_t()>& operation);

/// Byte strings in one packet, for addresses and keys.
Bytes pack(const std::vector<Bytes>& parts);
std::vector<Bytes> unpack(const Bytes& packed);
Bytes address_of(const Entity& entity);
Endpoint connect_to(Entity& from, const Bytes& address);

std::uint64_t now_ns();
void spin_ns(std::uint64_t duration_ns);

/// Seed of this run: TAGWIRE_TEST_SEED, else a fixed one. Rounds: TAGWIRE_TEST_ROUNDS, else
/// `rounds`.
std::uint64_t seed_of_run();
int rounds_of_run(int rounds);

/// Names of the bound unix sockets of this network namespace.
std::vector<std::string> bound_sockets();
std::vector<std::string> files_in(const std::string& directory);

/// Fixture: takes stock before, and after a case finds nothing that was not there before.
class ProcessTest : public ::testing::Test {
  protected:
    void SetUp() override;
    void TearDown() override;

  private:
    std::vector<std::string> shared_memory_;
    std::vector<std::string> temporary_;
    bool owns_network_ = false;
};

}  // namespace tagwire::test
