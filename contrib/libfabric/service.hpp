// SPDX-License-Identifier: BSD-3-Clause
// Endpoints by node and service, as fi_getinfo(3) and fi_av_insertsvc(3) take them. The name of an
// endpoint is an address of the messaging layer, which has no ports; so an endpoint that was opened
// with a service (FI_SOURCE) answers at that UDP port with its name, and inserting the node and
// service into an address vector sends a request there.
//
// 1. A place can be used wherever a name can (fi_info's src_addr and dest_addr); no request is sent
//    before it is inserted, so fi_getinfo() never waits.
// 2. An answer is shorter than its question, and repeats a number that only the requester knows.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "name.hpp"

namespace tagwire::fi {

/// Address and port.
class Place {
  public:
    /// As getaddrinfo(3) finds it; `flags` are FI_SOURCE and FI_NUMERICHOST. Nothing: there is no
    /// such place, or with FI_SOURCE it is not on this machine; the log says so. May throw for want
    /// of memory.
    static std::optional<Place> resolve(const char* node, const char* service, std::uint64_t flags);
    /// The place that name() encoded; nothing: `name` is something else.
    static std::optional<Place> of(const Name& name);

    Name name() const;
    /// "192.0.2.1:4711", "[2001:db8::1]:4711".
    std::string str() const;
    std::uint16_t port() const;
    /// The name of the endpoint there. Waits up to `timeout_ms` for an answer.
    std::optional<Name> ask(int timeout_ms) const;
    /// A socket bound to it, with another `port` if that is not 0; -1 with errno.
    int bound_socket(bool with_port) const;

  private:
    union Address {
        sockaddr any;
        sockaddr_in v4;
        sockaddr_in6 v6;
    };

    Place() = default;
    socklen_t length() const;
    bool is_local() const;

    Address address_{};
};

/// Resolves a peer by node and service to a place, or to the name whose text `node` is. Nothing:
/// neither; the log says why.
std::optional<Name> named(const char* node, const char* service, std::uint64_t flags);
/// `name` itself; of a place the name of the endpoint there, which is asked now; nothing when none
/// answers.
std::optional<Name> name_at(const Name& name);

/// Answers at a place with an endpoint's name, in a thread of its own, until it is destroyed.
class Door {
  public:
    /// 0, or a negative error of libfabric: -FI_EADDRINUSE when the port is in use. May throw for
    /// want of memory.
    static int open(const Place& place, const Name& name, std::unique_ptr<Door>* door_p);
    Door(const Door&) = delete;
    Door& operator=(const Door&) = delete;
    ~Door();

  private:
    explicit Door(const Name& name) : name_(name) {}
    void serve() const;

    const Name name_;
    int socket_ = -1;
    int stop_ = -1;  // eventfd: readable when the thread is to end
    std::thread thread_;
};

}  // namespace tagwire::fi
