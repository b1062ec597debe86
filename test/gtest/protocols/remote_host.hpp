// SPDX-License-Identifier: BSD-3-Clause
// Two hosts as far as transports see it: this process and a child, each in a network namespace of
// its own, joined by pairs of veth devices. The child's worker returns each tagged message to its
// sender.
#pragma once

#include <sys/types.h>

#include <string>

#include "protocols/fixture.hpp"

namespace tagwire::test {

class RemoteHost {
  public:
    /// Joined by so many wires; the ends of wire N are 10.94.N.1 here and 10.94.N.2 there.
    RemoteHost(unsigned wires, const std::string& transports);
    RemoteHost(const RemoteHost&) = delete;
    RemoteHost& operator=(const RemoteHost&) = delete;
    ~RemoteHost();

    /// The address of its worker; empty: it could not be made.
    const Bytes& address() const { return address_; }
    pid_t pid() const { return process_; }

    static std::string wire(unsigned number) { return "wire" + std::to_string(number); }

  private:
    bool join() const;
    [[noreturn]] void be_child(const std::string& transports) const;

    const unsigned wires_;
    int up_[2] = {-1, -1};
    int down_[2] = {-1, -1};
    pid_t process_ = -1;
    Bytes address_;
};

}  // namespace tagwire::test
