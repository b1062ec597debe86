// SPDX-License-Identifier: BSD-3-Clause
// The side that connects: one call of tw_ep_connect(), until it is reported.
//
// A name may have several addresses, of which some may be silent. The next one is tried when one
// has failed, or has not answered for a quarter of a second; those before it are still waited for,
// and the first that takes the connection is used (RFC 8305).
#pragma once

#include <sys/socket.h>

#include <memory>
#include <span>
#include <string>

#include "protocols/cm/connection_manager.hpp"
#include "protocols/cm/name_lookup.hpp"
#include "protocols/wire/cm_messages.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/sys/private_fd.hpp"

namespace tagwire::proto {

class Connecting;

/// A connection to one of the addresses that is under way.
class Attempt final : public Watched {
  public:
    Attempt(Connecting& owner, ucs::PrivateFd fd);
    ~Attempt() override;

    void on_ready() override;
    void on_late() override;
    void on_no_memory() override;

    [[nodiscard]] int fd() const { return fd_.get(); }
    /// The descriptor belongs to the caller from now on.
    ucs::PrivateFd release();

  private:
    Connecting& owner_;
    ucs::PrivateFd fd_;
};

class Connecting final : public Watched {
  public:
    /// `params` were checked; their private data is copied.
    static ucs_status_t begin(ConnectionManager& cm, const ucs::HostPort& at,
                              const tw_connect_params_t& params);
    /// Sends the requests of all whose connections are there, or come about before that time.
    static void send_requests(std::span<Connecting* const> all, std::uint64_t end_ns);
    ~Connecting() override;

    void on_ready() override;
    void on_late() override;
    void on_no_memory() override { end(UCS_ERR_NO_MEMORY, nullptr, {}); }

    /// The next address; there may be none.
    void try_next();
    /// The attempt has connected or failed. The call may end this object.
    void attempt_over(Attempt& attempt);

  private:
    enum class State : std::uint8_t { kLookingUp, kConnecting, kWaiting };

    Connecting(ConnectionManager& owner, const ucs::HostPort& at,
               const tw_connect_params_t& params);
    void looked_up();
    void begin_at_once();
    bool begin_attempt(const addrinfo& at);
    bool bind_own(int fd, int family);
    /// 0: it is connected.
    int error_of(int fd) const;
    bool send_request(ucs::PrivateFd fd);
    /// Uses the first attempt that is connected. False: there is none.
    bool try_send_request();
    void replied();
    void accepted();
    void unwatch_all();
    /// Reports it, and goes.
    void end(ucs_status_t status, tw_ep_h ep, WireBytes private_data);
    [[gnu::format(printf, 3, 4)]] void fail(ucs_status_t status, const char* format, ...);

    const std::string where_;
    tw_connect_params_t params_;
    const ReserveBytes private_data_;
    sockaddr_storage own_{};  // AF_UNSPEC: the system chooses
    State state_ = State::kLookingUp;
    NameLookup lookup_;
    ucs::AddressList list_{nullptr, &freeaddrinfo};
    const addrinfo* next_ = nullptr;
    int error_ = 0;            // of the address that was tried last
    const char* failed_ = "";  // what it was about
    ucs::ReserveVector<std::unique_ptr<Attempt>> attempts_;
    ucs::PrivateFd fd_;
    CmReader reader_{CmKind::kReply};
};

}  // namespace tagwire::proto
