// SPDX-License-Identifier: BSD-3-Clause
// Processes that exchange messages over tcp with all others and check each byte; each may have a
// network namespace of its own.
//
//   test                         members
//    | bridge0 -- port0 <-> wire0   10.93.9.1, a namespace
//    |        '-- port1 <-> wire0   10.93.9.2, another one
//    | Command ------------------>  exchanges, and says when the first messages have come
//    | <-------------------------   Report, when everything has ended
//
// The number of a message, its sender and its receiver decide its length and content. Namespaces
// have no names: each is gone with the process that made it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "process/harness.hpp"
#include "protocols/fixture.hpp"

namespace tagwire::test {

struct Command {
    std::uint32_t messages = 0;  // to each peer, and from it; 0: the member ends
    std::uint32_t failures = 0;  // of endpoints, which are waited for, too
};

struct Report {
    bool is_over = false;
    std::uint64_t received = 0, sent = 0;  // that ended well
    std::uint64_t refused = 0;             // that did not
    std::uint64_t wrong = 0;               // received, with another length or content
    std::uint64_t failed_peers = 0;        // a bit for each
    tw_status_t failure = TW_OK;           // of the last of them
};

/// A member in its own process.
class Member {
  public:
    Member(unsigned rank, std::size_t bytes_max);
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
    ~Member();

    [[nodiscard]] Bytes address() const { return node_->address(); }
    void connect(const std::vector<Bytes>& addresses);
    /// Tells `control` when a few messages have come.
    Report exchange(const Command& command, const Channel& control);
    /// Progresses until there is a command.
    Command await_command(const Channel& control);

  private:
    static constexpr std::size_t kWindow = 4;  // operations of a kind and peer at a time
    struct Peer;
    struct Slot {
        Peer* peer = nullptr;
        bool is_send = false;
        bool is_used = false;
        std::uint64_t number = 0;
        Bytes bytes;
    };
    struct Peer {
        unsigned rank = 0;
        tw_ep_h ep = nullptr;
        std::uint64_t sends = 0, receives = 0;  // that have begun
        std::array<Slot, 2 * kWindow> slots;
    };

    [[nodiscard]] Bytes content(unsigned from, unsigned to, std::uint64_t number) const;
    void fill(Peer& peer, std::uint64_t end);
    bool begin(Slot& slot);
    void take_ends();
    [[nodiscard]] bool is_idle() const;
    void sleep();

    unsigned rank_;
    std::size_t bytes_max_;
    tw_context_h context_ = nullptr;
    std::unique_ptr<Node> node_;
    std::deque<Peer> peers_;
    std::uint64_t messages_ = 0;  // to each peer, so far
    Report report_;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

/// The members, as the test sees them.
class Members {
  public:
    /// Each in a namespace of its own that can reach the others', or all in the test's. Check
    /// is_up().
    Members(unsigned count, bool have_namespaces, std::size_t bytes_max,
            const Environment& environment);
    Members(const Members&) = delete;
    Members& operator=(const Members&) = delete;
    ~Members();

    [[nodiscard]] bool is_up() const { return is_up_; }
    [[nodiscard]] std::size_t count() const { return children_.size(); }
    [[nodiscard]] Child& child(unsigned rank) { return *children_[rank]; }
    void command(unsigned rank, const Command& command) {
        children_[rank]->channel().send_value(command);
    }
    void command_all(const Command& command);
    /// All have received something of the exchange that they were commanded.
    bool are_under_way();
    Report report(unsigned rank);
    /// Rules of nftables(8) for the chain of a member's packets, "in" or "out".
    bool add_rule(unsigned rank, const std::string& chain, const std::string& rule);
    bool flush_rules(unsigned rank);
    static std::string address_of(unsigned rank);

  private:
    bool join(unsigned rank);
    bool introduce();

    std::vector<std::unique_ptr<Child>> children_;
    bool have_namespaces_;
    bool is_up_ = false;
};

}  // namespace tagwire::test
