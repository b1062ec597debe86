// SPDX-License-Identifier: BSD-3-Clause
// Connections by host and port of one worker: listeners, requests of peers, and connections that
// this side has begun. Everything happens in progress, by non-blocking sockets in one epoll set;
// only names are looked up elsewhere.
//
//   Listener --accept--> ConnRequest: reading -> offered -> answered, or turned away
//   Connecting: looking up -> connecting -> waiting for the reply -> reported
//
// Threads: as the worker's calls. Callbacks run without the worker's lock, and may end any of
// these, the one that called included: after a callback nothing of it is touched.
#pragma once

#include <ucs/type/status.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "protocols/api/tw_listen.h"
#include "protocols/request/callback_port.hpp"
#include "protocols/wire/wire.hpp"
#include "protocols/worker/lookout.hpp"
#include "ucs/log/repeats.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/sys/inet.hpp"
#include "ucs/sys/private_fd.hpp"

namespace tagwire::proto {

class Connecting;
class ConnectionManager;
class PeerTable;

/// The world of connections by host and port.
struct CmPorts {
    const tw_worker_h worker;
    PeerTable& peers;
    const CallbackPort& callbacks;
};

/// Waits for a descriptor, for at most some time.
class Watched : public ucs::FromReserve {
  public:
    explicit Watched(ConnectionManager& owner) : cm(owner) {}
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;
    virtual ~Watched();

    /// The descriptor is ready. These may end the object.
    virtual void on_ready() = 0;
    virtual void on_late() = 0;
    /// on_ready() was given up for want of memory.
    virtual void on_no_memory() = 0;

    ConnectionManager& cm;
    std::uint64_t serial = 0;             // in the epoll set; 0: it is in none
    std::uint64_t deadline = UINT64_MAX;  // ns
    std::size_t place = 0;                // among those that the manager owns
};

class ConnectionManager final : public Lookout {
  public:
    /// UCS_ERR_IO_ERROR: the system has no more descriptors.
    static ucs_status_t create(const CmPorts& ports, std::unique_ptr<Lookout>* lookout_p);
    ~ConnectionManager() override;

    unsigned look() override;
    int fd() const override { return epoll_.get(); }

    // ---- For listeners, requests and connections

    tw_worker_h worker() const { return to_.worker; }
    PeerTable& peers() const { return to_.peers; }
    /// The program is about to be told of something, behind a ProgramCall.
    const CallbackPort& callbacks() const { return to_.callbacks; }
    void count_event() const { to_.callbacks.attention.count_events(); }
    /// The worker's.
    WireBytes address() const { return {address_, address_bytes_}; }
    /// For EPOLLx `events`, from now on only for these. False: the system has no room.
    bool watch(Watched& one, int fd, std::uint32_t events);
    void unwatch(Watched& one, int fd);
    void forget(Watched& gone);
    /// on_late() is called behind this time; UINT64_MAX: never.
    void set_deadline(Watched& one, std::uint64_t deadline_ns);
    void add(std::unique_ptr<Watched> one) {
        one->place = all_.size();
        all_.push_back(std::move(one));
    }
    void destroy(const Watched& one);
    /// Connections that came to nothing, by what is to be said of them.
    ucs::Repeats failures;

    /// Connections that this side has begun, whose requests are given a moment to leave when the
    /// worker goes.
    ucs::ReserveVector<Connecting*> begun;

  private:
    explicit ConnectionManager(const CmPorts& ports) : to_(ports) {}
    bool open();
    void see(std::uint64_t serial);
    bool watch_timer() const;
    void set_timer();
    void expire();

    const CmPorts to_;
    std::byte address_[TW_ADDRESS_BYTES_MAX];
    std::size_t address_bytes_ = sizeof address_;
    ucs::PrivateFd epoll_;
    ucs::PrivateFd timer_;
    std::uint64_t serials_ = 0;
    std::uint64_t timer_set_ = UINT64_MAX;  // ns
    using Deadline = std::pair<std::uint64_t, Watched*>;
    std::set<Deadline, std::less<Deadline>, ucs::ReserveAllocator<Deadline>> deadlines_;
    ucs::ReserveHashMap<std::uint64_t, Watched*> by_serial_;
    ucs::ReserveVector<std::unique_ptr<Watched>> all_;
};

/// The endpoint to the worker of that address, by a new connection where the program that asks has
/// left the one that there is. `is_asked`: that is the peer's.
ucs_status_t connect_anew(PeerTable& peers, WireBytes address, bool is_asked, std::uint32_t flags,
                          void* user_data, tw_ep_h* ep_p);

}  // namespace tagwire::proto
