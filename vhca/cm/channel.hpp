// SPDX-License-Identifier: BSD-3-Clause
// An open /dev/infiniband/rdma_cm: commands come by write(2), and events wait to be fetched by one.
//
// The program's descriptor is the reading end of a pipe, in which there is a byte as long as events
// wait: poll(2) and epoll(7) work, and O_NONBLOCK is seen where the program set it.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "ucs/sys/fd.hpp"
#include "vhca/cm/identity.hpp"
#include "vhca/driver/call.hpp"

namespace tagwire::vhca::cm {

class Manager;

struct Event {
    Identity* identity = nullptr;  // of a request: the listener
    Identity* request = nullptr;   // the new one
    rdma_ucm_event_resp response{};
};

class Channel {
  public:
    /// The channel behind another descriptor of the program; nullptr: there is none.
    using Finder = std::function<Channel*(int fd)>;

    /// `open_flags` of open(2): O_NONBLOCK, O_CLOEXEC. nullptr with errno.
    static std::unique_ptr<Channel> open(Manager& manager, int open_flags);
    /// Everything in it is destroyed, as the kernel does when a descriptor is closed.
    ~Channel();
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    /// The program's end, given away: to be told once.
    [[nodiscard]] int program_fd() const { return program_fd_; }
    /// As write(2): `count`, or -1 with errno. Takes the lock.
    std::int64_t write(const void* bytes, std::size_t count, const Finder& find);

    // ---- Under the lock, for the manager
    void push(const Event& event);
    /// Events of `identity` go; new identities that they would have brought are returned.
    std::vector<Identity*> remove_events(const Identity& identity);
    void move_events(const Identity& identity, Channel& to);
    [[nodiscard]] std::size_t event_count() const { return events_.size(); }

  private:
    explicit Channel(Manager& manager) : manager_(manager) {}
    struct Command {
        driver::UserSpan in;
        std::size_t out_bytes = 0;
    };

    int run(unsigned command, const Command& call, const Finder& find);
    int run_on_identity(unsigned command, const Command& call);
    int create_id(const Command& call);
    int destroy_id(const Command& call);
    int get_event(const Command& call);
    int fetch_event(const Command& call);
    int migrate_id(const Command& call, const Finder& find);
    int bind(const Command& call);
    int bind_ip(const Command& call);
    int resolve_ip(const Command& call);
    int resolve_address(const Command& call);
    int query_route(const Command& call);
    int query(const Command& call);
    int connect(const Command& call);
    int accept(const Command& call);
    int reject(const Command& call);
    int init_qp_attr(const Command& call);
    int set_option(const Command& call);
    int join(const Command& call, bool is_ip);
    int find(std::uint32_t number, Identity** identity_p);
    int find_with_device(std::uint32_t number, Identity** identity_p);
    void update_bell();

    Manager& manager_;
    int program_fd_ = -1;     // the program's: not to be used, only named
    ucs::UniqueFd read_end_;  // the same end
    ucs::UniqueFd write_end_;
    bool is_rung_ = false;
    std::deque<Event> events_;
};

/// An event of `identity` for its program, if that wants to hear of it.
void tell(Identity& identity, rdma_ucm_event_resp response);

}  // namespace tagwire::vhca::cm
