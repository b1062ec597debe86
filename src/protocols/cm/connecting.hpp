// SPDX-License-Identifier: BSD-3-Clause
// The side that connects: one call of tw_ep_connect(), until it is reported.
#pragma once

#include <string>

#include "protocols/cm/connection_manager.hpp"
#include "protocols/cm/name_lookup.hpp"
#include "protocols/wire/cm_messages.hpp"

namespace tagwire::proto {

class Connecting final : public Watched {
  public:
    /// `params` were checked; their private data is copied.
    static ucs_status_t begin(ConnectionManager& cm, const char* where, const ucs::HostPort& at,
                              const tw_connect_params_t& params);
    ~Connecting() override;

    void on_ready() override;
    void on_late() override;
    void on_no_memory() override { end(UCS_ERR_NO_MEMORY, nullptr, {}); }

  private:
    enum class State : std::uint8_t { kLookingUp, kConnecting, kWaiting };

    Connecting(ConnectionManager& owner, const char* where, const tw_connect_params_t& params);
    void looked_up();
    /// The next address; there may be none.
    void try_next();
    void connected();
    void replied();
    void accepted();
    void unwatch_all();
    /// Reports it, and goes.
    void end(ucs_status_t status, tw_ep_h ep, WireBytes private_data);
    [[gnu::format(printf, 3, 4)]] void fail(ucs_status_t status, const char* format, ...);

    const std::string where_;
    tw_connect_params_t params_;
    const ReserveBytes private_data_;
    State state_ = State::kLookingUp;
    NameLookup lookup_;
    ucs::AddressList list_{nullptr, &freeaddrinfo};
    const addrinfo* next_ = nullptr;
    int error_ = 0;  // of the address that was tried last
    ucs::UniqueFd fd_;
    CmReader reader_{CmKind::kReply};
};

}  // namespace tagwire::proto
