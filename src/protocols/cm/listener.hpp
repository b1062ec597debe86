// SPDX-License-Identifier: BSD-3-Clause
// The side that listens: listeners, and peers that ask for a connection.
#pragma once

#include <string>

#include "protocols/cm/connection_manager.hpp"
#include "protocols/wire/address.hpp"
#include "protocols/wire/cm_messages.hpp"
#include "ucs/sys/private_fd.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the names of the C API
struct tw_listener {};
// NOLINTNEXTLINE(readability-identifier-naming)
struct tw_conn_request {};

namespace tagwire::proto {

class ConnRequest;

class Listener final : public tw_listener, public Watched {
  public:
    /// `list`: the addresses of `where`; the first that this machine has is taken.
    static ucs_status_t create(ConnectionManager& cm, const char* where,
                               const ucs::AddressList& list, const tw_listen_params_t& params,
                               Listener** listener_p);
    ~Listener() override;

    void on_ready() override;
    void on_late() override { pause(false); }
    void on_no_memory() override {}

    std::string address() const { return ucs::own_text(fd_.get()); }
    void query(tw_listener_attr_t* attr) const;
    const tw_listen_params_t& params() const { return params_; }
    /// Turns away those that the program has not heard of, and goes.
    void end();
    /// One was answered, or has gone.
    void request_ended(const ConnRequest& gone);

  private:
    Listener(ConnectionManager& owner, const tw_listen_params_t& params, ucs::PrivateFd fd);
    /// No more are accepted, or again.
    void pause(bool is_paused);

    const tw_listen_params_t params_;
    ucs::PrivateFd fd_;
    bool is_paused_ = false;
    ucs::ReserveVector<ConnRequest*> requests_;
};

class ConnRequest final : public tw_conn_request, public Watched {
  public:
    ConnRequest(ConnectionManager& owner, Listener& of, ucs::PrivateFd fd);
    ~ConnRequest() override;

    /// False: the system has no room.
    bool begin();
    void on_ready() override;
    void on_late() override;
    void on_no_memory() override { turn_away("out of memory"); }

    /// The program knows it.
    bool is_offered() const { return is_offered_; }
    void listener_ended() { listener_ = nullptr; }
    void query(tw_conn_request_attr_t* attr) const;
    /// The peer has ended its connection.
    bool has_given_up() const;
    /// The address of its worker.
    const ReserveBytes& peer_worker() const { return reader_.message().address; }
    /// Tells the peer of the end of an attempt to connect to its worker: UCS_OK: `own` is the
    /// address of the worker that has the endpoint. Returns that, or UCS_ERR_CONNECTION_RESET: the
    /// peer has given up. Ends the request.
    ucs_status_t answer(ucs_status_t status, WireBytes own, WireBytes private_data);
    /// Ends it.
    void reject(WireBytes private_data);

  private:
    /// The request is whole.
    void came();
    void offer();
    /// The reason is told in the log.
    void turn_away(const char* why);
    /// False: the peer has given up.
    bool reply(CmVerdict verdict, WireBytes address, WireBytes private_data);

    Listener* listener_;  // null: it has ended
    ucs::PrivateFd fd_;   // none: the peer has given up
    const std::string peer_;
    CmReader reader_{CmKind::kRequest};
    std::uint64_t worker_id_ = 0;
    std::uint64_t held_until_ = 0;  // ns; 0: it was not held back
    bool is_offered_ = false;
};

inline Listener& listener_of(tw_listener_h handle) {
    return *static_cast<Listener*>(handle);
}

inline ConnRequest& request_of(tw_conn_request_h handle) {
    return *static_cast<ConnRequest*>(handle);
}

}  // namespace tagwire::proto
