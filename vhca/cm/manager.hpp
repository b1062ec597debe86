// SPDX-License-Identifier: BSD-3-Clause
// The connection manager of a process: the part of rdma_cm and ib_cm in the kernel.
//
// Channels bring the requests of programs, the device brings messages and time, all under the lock
// of the Network. The manager makes no system call and reads no clock but the network's, so tests
// run two managers on a simulated network.
//
//  - int results are 0 or the positive errno value that the kernel gives.
//  - A request is repeated until it is answered or its Timing runs out. A duplicate REQ that waits
//    for the program is answered with an MRA, which starts the count anew: a live program may take
//    its time, a dead one may not.
//  - The answer "no such service" counts only after Timing::asks_min of them (300 ms): on a machine
//    with few processors a program may listen a little later than its peer connects.
//  - An identity tells its peer when it is destroyed, in any state. The message that ends a
//    connection is repeated until the peer has answered; until then the identity lives on as an
//    orphan that no program knows.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "vhca/cm/channel.hpp"
#include "vhca/cm/events.hpp"
#include "vhca/cm/identity.hpp"
#include "vhca/cm/message.hpp"
#include "vhca/cm/network.hpp"
#include "vhca/cm/outbox.hpp"
#include "vhca/cm/port_table.hpp"

namespace tagwire::vhca::cm {

class Manager {
  public:
    static constexpr std::uint32_t kBacklogMax = 1024;
    static constexpr std::size_t kHeaderBytes = 36;  // of addresses, before a program's own data

    Manager(Network& network, std::uint64_t seed, const Timing& timing = {});
    Manager(const Manager&) = delete;
    Manager& operator=(const Manager&) = delete;

    // ---- Requests of programs
    Identity& create(Channel& channel, std::uint64_t uid, std::uint16_t port_space,
                     ibv_qp_type qp_type);
    /// The number of a new one, from now on known to the program.
    void give_number(Identity& identity);
    /// The program was not told after all.
    void take_number_back(Identity& identity);
    void destroy(Identity& identity);
    void destroy_all(const Channel& channel);
    int bind(Identity& identity, const Address& address);
    int resolve_address(Identity& identity, const Address& source, const Address& destination);
    int resolve_route(Identity& identity);
    int listen(Identity& identity, std::uint32_t backlog);
    int connect(Identity& identity, const rdma_ucm_conn_param& param);
    /// `param` nullptr: the active side is ready to use what the peer accepted.
    int accept(Identity& identity, const rdma_ucm_conn_param* param);
    int reject(Identity& identity, std::span<const std::byte> data, std::uint16_t reason);
    int disconnect(Identity& identity);
    int notify(Identity& identity, std::uint32_t event);
    void migrate(Identity& identity, Channel& to);

    // ---- Names
    /// nullptr: none has this number.
    [[nodiscard]] Identity* find(std::uint32_t number) const;
    [[nodiscard]] Network& network() const { return network_; }

    // ---- Events of the device
    void receive(Route from, std::span<const std::byte> mad);
    /// The process there has ended: what its kernel would say for it is taken as said.
    void note_gone(Route node);
    /// Destroys all. False: there are orphans.
    bool say_farewell();
    /// Sends again what was not answered. Returns when it wants to be called again at the latest.
    Time progress(Time now);

  private:
    using Key = std::pair<std::uint64_t, std::uint32_t>;  // node, id of a request at the peer

    int accept_connection(Identity& identity, const rdma_ucm_conn_param& param);
    int accept_datagrams(Identity& identity, const rdma_ucm_conn_param* param);
    int get_ready(Identity& identity);
    void say_good_bye(Identity& identity);

    void receive_request(Route from, const Message& message);
    void receive_again(Identity& identity);
    [[nodiscard]] Identity* find_listener(const Message& message, std::uint16_t* reason_p) const;
    [[nodiscard]] Identity* find_exchange(Route from, const Message& message) const;
    void receive_reply(Identity& identity, const Message& message);
    void receive_rejection(Identity& identity, const Message& message);
    void receive_disconnect(Route from, const Message& message);
    void receive_sidr_reply(Identity& identity, const Message& message);
    void dispatch(Identity& identity, const Message& message);
    void time_out(Identity& identity);
    void lose_peer(Identity& identity);
    void bury_orphans();

    void enter_time_wait(Identity& identity);
    void end_connection(Identity& identity, int status);

    Network& network_;
    std::mt19937_64 random_;
    PortTable ports_;
    Outbox outbox_;
    std::uint32_t next_number_ = 0, next_local_id_;
    std::unordered_map<std::uint32_t, std::unique_ptr<Identity>> identities_;  // by local_id
    std::unordered_map<std::uint32_t, Identity*> numbers_;
    std::map<Key, Identity*> requests_;  // that came, by the peer's id
};

}  // namespace tagwire::vhca::cm
